//! What one stream has waiting to be sent: in order, bounded by its window, cut and merged into frames as they leave.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};
use proto::{
    body::Chunks,
    frame::{CHUNK_BYTES_MAX, encode_tunnel_body},
    message::{Message, RunEvent, RunEventKind, StreamNo, TunnelFrame, TunnelFrameKind},
};
use thiserror::Error;

use super::credit::{SendWindow, event_cost};

/// Most items that wait on one stream. Body bytes are merged, so only frames without payload can be this many: then the
/// owner is told [`QueueError::Full`].
pub(super) const ITEMS_MAX: usize = 4096;
/// Waiting body pieces shorter than this are copied together into one; longer ones are sent from where they are. It also
/// keeps a small waiting piece from holding on to the large read buffer it is a slice of.
const MERGE_BELOW: usize = 16 * 1024;
/// With so many items waiting, deltas of runs are put together, too: each costs far more memory than the few bytes of a token, and only
/// bytes are bounded by the window. Fewer leave as they came, so that a token is seen by itself.
const MERGE_DELTAS_FROM: usize = 64;

/// Why a message cannot wait on a stream. The message is dropped; a run that gets one of these cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QueueError {
    /// No such stream (any more): the usual race with a cancel, a close or the end of the link.
    #[error("the stream is not open")]
    NotOpen,
    /// The stream already holds as much as its window. Ask `sendable` first.
    #[error("the stream already holds a whole window")]
    Full,
    /// A run event of more than half the window, which would wait for ever.
    #[error("an event of {cost} bytes does not fit a window of {window}")]
    TooLarge {
        /// What it costs.
        cost: usize,
        /// The window.
        window: usize,
    },
    /// The terminal is queued or sent: nothing may follow it.
    #[error("the stream has its terminal already")]
    AfterEnd,
    /// A message that belongs to no stream or to another one, or a body chunk: those are cut from `queue_body`.
    #[error("the message does not belong on this stream")]
    WrongMessage,
}

/// Rare kinds are boxed: every silent stream keeps a few places for the small ones.
enum Item {
    /// Body bytes as they were handed over.
    Body(Bytes),
    /// Small body pieces, copied together.
    Merged(BytesMut),
    /// The rest of a request body.
    Upload(Chunks),
    /// A tunnel frame without payload.
    Frame(Box<TunnelFrameKind>),
    /// An event of a run.
    Event(Box<RunEvent>),
    /// A request or its cancel.
    Whole(Box<Message>),
}

/// What became of one attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Emitted {
    /// One frame.
    Frame,
    /// Nothing: the credit does not suffice for what comes next.
    Blocked,
    /// Nothing: there is nothing.
    Empty,
}

#[derive(Default)]
pub(super) struct Outbox {
    items: VecDeque<Item>,
    /// Cost of what waits, an upload's rest excepted: those are slices of the one body its owner holds anyway.
    queued: usize,
    next_sequence: u64,
    end_queued: bool,
    end_sent: bool,
}

impl Outbox {
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.items.len() >= ITEMS_MAX
    }

    /// Adds a message of this stream. Its own sequence number is of no meaning: frames are numbered as they leave.
    pub(super) fn push(&mut self, message: Message, window: usize) -> Result<(), QueueError> {
        if self.end_queued {
            return Err(QueueError::AfterEnd);
        }
        match message {
            Message::TunnelFrame(TunnelFrame { kind: TunnelFrameKind::Body(body), .. }) => {
                self.push_body(body, window)
            }
            Message::TunnelFrame(TunnelFrame { kind, .. }) => {
                let ends = matches!(kind, TunnelFrameKind::End | TunnelFrameKind::Error(_));
                self.push_item(Item::Frame(Box::new(kind)), ends)
            }
            Message::RunEvent(event) => self.push_event(event, window),
            message @ (Message::TunnelRequest(_) | Message::RunRequest(_)) => {
                self.push_item(Item::Whole(Box::new(message)), false)
            }
            _ => Err(QueueError::WrongMessage),
        }
    }

    /// Adds the rest of a request body, to leave in chunks as credit allows. Empty: nothing.
    pub(super) fn push_upload(&mut self, body: Chunks) -> Result<(), QueueError> {
        if self.end_queued {
            return Err(QueueError::AfterEnd);
        }
        if body.bytes_left() == 0 {
            return Ok(());
        }
        self.push_item(Item::Upload(body), true)
    }

    fn push_item(&mut self, item: Item, ends: bool) -> Result<(), QueueError> {
        // A terminal always finds a place: without it the run would never end.
        if self.is_full() && !ends {
            return Err(QueueError::Full);
        }
        self.end_queued |= ends;
        self.items.push_back(item);
        Ok(())
    }

    fn push_body(&mut self, body: Bytes, window: usize) -> Result<(), QueueError> {
        let cost = body.len();
        if cost == 0 {
            return Ok(());
        }
        if self.queued + cost > window {
            return Err(QueueError::Full);
        }
        if !self.merge(&body) {
            self.push_item(Item::Body(body), false)?;
        }
        self.queued += cost;
        Ok(())
    }

    /// Copies a small piece behind the last one, if both fit one frame.
    fn merge(&mut self, body: &Bytes) -> bool {
        if body.len() >= MERGE_BELOW {
            return false;
        }
        match self.items.back_mut() {
            Some(Item::Merged(last)) if last.len() + body.len() <= CHUNK_BYTES_MAX => {
                last.extend_from_slice(body)
            }
            Some(last) => {
                let Item::Body(first) = last else { return false };
                if first.len() >= MERGE_BELOW {
                    return false;
                }
                let mut both = BytesMut::with_capacity(2 * (first.len() + body.len()));
                both.extend_from_slice(first);
                both.extend_from_slice(body);
                *last = Item::Merged(both);
            }
            None => return false,
        }
        true
    }

    fn push_event(&mut self, event: RunEvent, window: usize) -> Result<(), QueueError> {
        let cost = event_cost(&event.kind);
        if cost > window.div_ceil(2) {
            return Err(QueueError::TooLarge { cost, window });
        }
        if self.queued + cost > window {
            return Err(QueueError::Full);
        }
        if self.items.len() >= MERGE_DELTAS_FROM && self.merge_delta(&event, window) {
            self.queued += cost;
            return Ok(());
        }
        let ends = matches!(
            event.kind,
            RunEventKind::Complete { .. } | RunEventKind::Error(_) | RunEventKind::Cancelled
        );
        self.push_item(Item::Event(Box::new(event)), ends)?;
        self.queued += cost;
        Ok(())
    }

    /// Puts a delta behind the last one that waits, if both are of one kind and fit one event.
    fn merge_delta(&mut self, event: &RunEvent, window: usize) -> bool {
        let Some(Item::Event(last)) = self.items.back_mut() else { return false };
        let RunEvent { kind: RunEventKind::Delta { text, reasoning }, metadata, .. } = event else {
            return false;
        };
        let room = CHUNK_BYTES_MAX.min(window.div_ceil(2));
        let fits = event_cost(&last.kind) + event_cost(&event.kind) <= room;
        let RunEventKind::Delta { text: last_text, reasoning: last_reasoning } = &mut last.kind else {
            return false;
        };
        // Reasoning that follows text must not come before it.
        let in_order = reasoning.is_empty() || last_text.is_empty();
        if !fits || !in_order || !metadata.is_empty() || !last.metadata.is_empty() {
            return false;
        }
        last_text.push_str(text);
        last_reasoning.push_str(reasoning);
        true
    }

    /// Drops everything that waits, so that a terminal can leave next. What was sent stays sent; numbers have no gap.
    pub(super) fn discard(&mut self) {
        self.items.clear();
        self.queued = 0;
        self.end_queued = self.end_sent;
    }

    /// Drops the payload that waits in front of the terminal, so that it can leave without credit. A start that has not
    /// left stays: an end without one is a violation to the peer.
    pub(super) fn discard_before_end(&mut self) {
        self.items.retain(|item| match item {
            Item::Frame(_) | Item::Whole(_) => true,
            Item::Event(event) => event_cost(&event.kind) == 0,
            Item::Body(_) | Item::Merged(_) | Item::Upload(_) => false,
        });
        self.queued = 0;
    }

    /// Drops what waits but a request that has not left yet, and lets the cancel follow that request; gives the cancel back
    /// when the request has left already.
    pub(super) fn cancel(&mut self, cancel: Message) -> Option<Message> {
        let front = self.items.pop_front();
        self.discard();
        let Some(Item::Whole(request)) = front else { return Some(cancel) };
        self.items.push_back(Item::Whole(request));
        self.items.push_back(Item::Whole(Box::new(cancel)));
        None
    }

    /// Appends the next frame to `out`, at most `max` bytes of payload in it where it can be cut.
    pub(super) fn emit(
        &mut self,
        stream: StreamNo,
        send: &mut SendWindow,
        max: usize,
        out: &mut Vec<u8>,
    ) -> Emitted {
        let room = send.credit().min(max).min(CHUNK_BYTES_MAX);
        let Some(item) = self.items.front_mut() else { return Emitted::Empty };
        let sent = match item {
            Item::Body(body) => emit_body(body, stream, self.next_sequence, room, out),
            Item::Merged(body) => emit_body(body, stream, self.next_sequence, room, out),
            Item::Upload(chunks) => {
                let Some(chunk) = chunks.next_within(room) else { return Emitted::Blocked };
                let (used, last) = (chunk.data.len(), chunk.last);
                Message::BodyChunk(chunk).encode(out);
                let _within_room = send.consume(used);
                if last {
                    self.end_sent = true;
                    // Nothing may follow: the run is an answer's from now on, and may be silent for long.
                    self.items = VecDeque::new();
                }
                return Emitted::Frame;
            }
            Item::Event(event) if event_cost(&event.kind) > send.credit() => return Emitted::Blocked,
            _ => return self.emit_whole(stream, send, out),
        };
        if sent.bytes == 0 {
            return Emitted::Blocked;
        }
        let _within_room = send.consume(sent.bytes);
        self.next_sequence += 1;
        self.queued -= sent.bytes;
        if sent.all {
            self.items.pop_front();
        }
        Emitted::Frame
    }

    /// Sends the front item, which cannot be cut and for which there is credit.
    fn emit_whole(&mut self, stream: StreamNo, send: &mut SendWindow, out: &mut Vec<u8>) -> Emitted {
        let sequence = self.next_sequence;
        let message = match self.items.pop_front() {
            Some(Item::Frame(kind)) => Message::TunnelFrame(TunnelFrame { stream, sequence, kind: *kind }),
            Some(Item::Event(event)) => {
                let cost = event_cost(&event.kind);
                let _there_is_credit = send.consume(cost);
                self.queued -= cost;
                Message::RunEvent(RunEvent { stream, sequence, ..*event })
            }
            Some(Item::Whole(message)) => {
                message.encode(out);
                if self.items.is_empty() {
                    // A request without more of its body: as above.
                    self.items = VecDeque::new();
                }
                return Emitted::Frame;
            }
            _ => return Emitted::Empty,
        };
        self.next_sequence += 1;
        // A terminal is the last item, so an empty box after it means that it has left.
        self.end_sent = self.end_queued && self.items.is_empty();
        message.encode(out);
        Emitted::Frame
    }
}

struct Sent {
    bytes: usize,
    all: bool,
}

fn emit_body(body: &mut impl Buf, stream: StreamNo, sequence: u64, room: usize, out: &mut Vec<u8>) -> Sent {
    // Both kinds of body are contiguous: `chunk` is all that remains.
    let bytes = body.remaining().min(room);
    if let Some(data) = body.chunk().get(..bytes).filter(|data| !data.is_empty()) {
        encode_tunnel_body(out, stream, sequence, data);
        body.advance(bytes);
    }
    Sent { bytes, all: !body.has_remaining() }
}
