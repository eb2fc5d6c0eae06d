//! The streams of one link, without its socket: messages in, frames out.
//!
//! Outbound, in this order: heartbeats, control messages in the order they were given, credit, then the streams that have
//! data and credit, one turn each. A stream is opened by its owner, not by what arrives; what arrives for a stream that is
//! not open is counted and dropped, because after a cancel that is normal.
//!
//! Life of a stream:
//! ```text
//!   open ──▶ queue / queue_body / handle ──▶ finish ──(all sent)──▶ gone
//!                        └───────────────▶ close ─────────────────▶ gone
//! ```
//!
//! Memory: a stream has at most its send window queued (a request body counts as the one buffer it is a slice of); what it
//! received is with its owner at once, at most its receive window of it.

mod receive;
mod transmit;

use std::{collections::VecDeque, mem, time::Instant};

use bytes::Bytes;
use proto::{
    body::Chunks,
    message::{Message, StreamNo},
};
use thiserror::Error;

use super::{
    credit::{ReceiveWindow, SendWindow},
    heartbeat::{Heartbeat, HeartbeatTimes},
    outbox::{Outbox, QueueError},
    sequence::Sequence,
    streams::Streams,
};

pub use receive::{Incoming, StreamFault};

/// Streams of one link at a time, unless the owner says otherwise.
pub const STREAMS_MAX: usize = 65_536;
/// Control messages that wait on one link, unless the owner says otherwise: a cancel for each of some thousand runs whose
/// clients went away while the peer did not read.
pub const CONTROL_QUEUE_MAX: usize = 16_384;

/// Bounds of one link, and its heartbeat.
#[derive(Clone, Copy, Debug)]
pub struct MuxLimits {
    /// Open streams; reaching it refuses [`Mux::open`].
    pub streams_max: usize,
    /// Waiting control messages; reaching it ends the link.
    pub control_max: usize,
    /// When to ask and when to give up.
    pub heartbeat: HeartbeatTimes,
}

impl Default for MuxLimits {
    fn default() -> Self {
        Self {
            streams_max: STREAMS_MAX,
            control_max: CONTROL_QUEUE_MAX,
            heartbeat: HeartbeatTimes::default(),
        }
    }
}

/// What ends a whole link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LinkFault {
    /// No answer to a heartbeat in time (HBT-1).
    #[error("no answer to a heartbeat in time")]
    HeartbeatTimeout,
    /// [`MuxLimits::control_max`] messages wait.
    #[error("too many control messages wait to be sent")]
    ControlQueueFull,
    /// The peer's stream numbers must rise (WIR-10), and this one did not.
    #[error("the peer used stream number {0} again")]
    StreamReused(StreamNo),
}

/// Why a stream cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// [`MuxLimits::streams_max`] are open, or the link has ended.
    #[error("the link takes no more streams")]
    TooMany,
    /// The number is in use.
    #[error("the stream is open already")]
    Exists,
}

/// Counters of one link, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MuxStats {
    /// Messages that arrived.
    pub received: u64,
    /// Frames that left.
    pub sent: u64,
    /// Messages for streams that were not open.
    pub late: u64,
    /// Messages of a newer build.
    pub unknown: u64,
}

struct Stream {
    send: SendWindow,
    receive: ReceiveWindow,
    sequence: Sequence,
    outbox: Outbox,
    /// In `Mux::ready`.
    scheduled: bool,
    /// In `Mux::grants`.
    grant_scheduled: bool,
    /// Takes nothing in any more: the peer broke its rules, or the owner is done.
    deaf: bool,
    /// Goes once everything is sent.
    finishing: bool,
    /// Bytes of its turn that are used up already: by a write that ended within it, or by a last turn that went over.
    used: usize,
}

/// One side of a link.
pub struct Mux {
    limits: MuxLimits,
    heartbeat: Heartbeat,
    ping_due: bool,
    pong_due: bool,
    control: VecDeque<Message>,
    streams: Streams<Stream>,
    /// Streams that may have something to send, in the order of their turns. Numbers of closed streams stay until passed.
    ready: VecDeque<StreamNo>,
    /// Streams with credit to give back.
    grants: VecDeque<StreamNo>,
    /// The highest stream number in a request of the peer.
    last_request: StreamNo,
    ended: bool,
    stats: MuxStats,
}

impl std::fmt::Debug for Mux {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mux")
            .field("streams", &self.streams.len())
            .field("control", &self.control.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Mux {
    /// A link without streams; its heartbeat starts at `now`.
    #[must_use]
    pub fn new(limits: MuxLimits, now: Instant) -> Self {
        Self {
            limits,
            heartbeat: Heartbeat::new(limits.heartbeat, now),
            ping_due: false,
            pong_due: false,
            control: VecDeque::new(),
            streams: Streams::default(),
            ready: VecDeque::new(),
            grants: VecDeque::new(),
            last_request: 0,
            ended: false,
            stats: MuxStats::default(),
        }
    }

    /// Counts the heartbeat from `now`: at registration (HBT-3).
    pub fn restart_heartbeat(&mut self, now: Instant) {
        self.heartbeat.restart(now);
    }

    /// Queues a control message: it leaves before all stream data, after earlier control messages.
    ///
    /// A cancel drops what its stream has waiting, and follows the stream's request if that has not left yet. Requests are
    /// better queued on their stream with [`Self::queue`]: there their size delays nobody.
    ///
    /// # Errors
    /// [`LinkFault::ControlQueueFull`]; the link must be closed. After [`Self::end`] messages are dropped without error.
    pub fn send(&mut self, message: Message) -> Result<(), LinkFault> {
        if self.ended {
            return Ok(());
        }
        let message = match message {
            Message::Cancel(cancel) => match self.streams.get_mut(&cancel.stream) {
                Some(stream) => match stream.outbox.cancel(Message::Cancel(cancel)) {
                    Some(cancel) => cancel,
                    None => return Ok(()),
                },
                None => Message::Cancel(cancel),
            },
            other => other,
        };
        if self.control.len() >= self.limits.control_max {
            return Err(LinkFault::ControlQueueFull);
        }
        self.control.push_back(message);
        Ok(())
    }

    /// Opens a stream. `send_window` is the credit we start with and the bound of what may wait, `receive_window` the
    /// peer's; both in bytes. The two directions have one each: a tunnel's request chunks and its response.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&mut self, stream: StreamNo, send_window: u32, receive_window: u32) -> Result<(), OpenError> {
        if self.streams.contains_key(&stream) {
            return Err(OpenError::Exists);
        }
        if self.ended || self.streams.len() >= self.limits.streams_max {
            return Err(OpenError::TooMany);
        }
        let opened = Stream {
            send: SendWindow::new(send_window),
            receive: ReceiveWindow::new(receive_window),
            sequence: Sequence::new(),
            outbox: Outbox::default(),
            scheduled: false,
            grant_scheduled: false,
            deaf: false,
            finishing: false,
            used: 0,
        };
        self.streams.insert(stream, opened);
        Ok(())
    }

    /// Queues a tunnel frame, run event or the stream's request behind what the stream has waiting. The mux numbers frames
    /// itself as they leave; a body is cut and merged as it likes.
    ///
    /// # Errors
    /// [`QueueError`]; the message is dropped. A sender that asks [`Self::sendable`] first never gets `Full`.
    pub fn queue(&mut self, stream: StreamNo, message: Message) -> Result<(), QueueError> {
        if stream_of(&message) != Some(stream) {
            return Err(QueueError::WrongMessage);
        }
        let found = self.streams.get_mut(&stream).filter(|s| !s.finishing).ok_or(QueueError::NotOpen)?;
        found.outbox.push(message, found.send.window())?;
        assert!(found.outbox.queued() <= found.send.window(), "a stream queued more than its window");
        schedule(&mut self.ready, stream, &mut found.scheduled);
        Ok(())
    }

    /// Queues the rest of a request body behind its request, to leave in chunks of at most 64 KiB as credit allows. It is
    /// the last thing on its stream. An empty body is nothing.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn queue_body(&mut self, stream: StreamNo, body: Bytes) -> Result<(), QueueError> {
        self.queue_pieces(stream, [body])
    }

    /// As [`Self::queue_body`], of a body that is held in pieces.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn queue_pieces(
        &mut self,
        stream: StreamNo,
        pieces: impl IntoIterator<Item = Bytes>,
    ) -> Result<(), QueueError> {
        let found = self.streams.get_mut(&stream).filter(|s| !s.finishing).ok_or(QueueError::NotOpen)?;
        found.outbox.push_upload(Chunks::of_pieces(stream, pieces))?;
        schedule(&mut self.ready, stream, &mut found.scheduled);
        Ok(())
    }

    /// Bytes of payload that may be queued and will leave without further credit; 0 for a stream that is not open. It grows
    /// again with [`Incoming::Credit`].
    #[must_use]
    pub fn sendable(&self, stream: StreamNo) -> usize {
        self.streams.get(&stream).filter(|s| !s.outbox.is_full()).map_or(0, |found| {
            let credit = found.send.credit().min(found.send.window());
            credit.saturating_sub(found.outbox.queued())
        })
    }

    /// The owner no longer holds `bytes` of what the stream received. `true` when there is credit to send for it.
    pub fn release(&mut self, stream: StreamNo, bytes: usize) -> bool {
        let Some(found) = self.streams.get_mut(&stream) else { return false };
        if !found.receive.release(bytes) {
            return false;
        }
        schedule(&mut self.grants, stream, &mut found.grant_scheduled);
        true
    }

    /// Drops what the stream has waiting and has not sent, so that a terminal leaves next. Frame numbers show no gap.
    pub fn discard(&mut self, stream: StreamNo) {
        if let Some(found) = self.streams.get_mut(&stream) {
            found.outbox.discard();
        }
    }

    /// Takes nothing in for the stream any more and forgets it once all that waits is sent.
    pub fn finish(&mut self, stream: StreamNo) {
        let Some(found) = self.streams.get_mut(&stream) else { return };
        found.finishing = true;
        found.deaf = true;
        if found.outbox.is_empty() {
            self.close(stream);
        }
    }

    /// Forgets the stream and drops what it has waiting.
    pub fn close(&mut self, stream: StreamNo) {
        if self.streams.remove(&stream).is_none() {
            return;
        }
        // Numbers of closed streams leave with their turn. While nothing can be sent no turn comes: bound them here.
        let bound = 2 * self.streams.len() + 64;
        if self.ready.len() > bound {
            self.ready.retain(|number| self.streams.contains_key(number));
        }
        if self.grants.len() > bound {
            self.grants.retain(|number| self.streams.contains_key(number));
        }
    }

    /// Forgets everything; from now on nothing can be queued or opened.
    pub fn end(&mut self) {
        self.ended = true;
        self.control = VecDeque::new();
        self.streams = Streams::default();
        self.ready = VecDeque::new();
        self.grants = VecDeque::new();
    }

    /// Whether the stream is open.
    #[must_use]
    pub fn is_open(&self, stream: StreamNo) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Open streams.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Whether any stream has something waiting, for a drain that lets everything leave first.
    #[must_use]
    pub fn has_stream_data(&self) -> bool {
        self.streams.values().any(|stream| !stream.outbox.is_empty())
    }

    #[cfg(test)]
    pub(super) fn scheduled(&self) -> usize {
        self.ready.len() + self.grants.len()
    }

    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> MuxStats {
        self.stats
    }
}

fn schedule(list: &mut VecDeque<StreamNo>, stream: StreamNo, scheduled: &mut bool) {
    if !mem::replace(scheduled, true) {
        list.push_back(stream);
    }
}

/// The stream of a message that belongs to one by its order: data and requests.
fn stream_of(message: &Message) -> Option<StreamNo> {
    match message {
        Message::TunnelFrame(frame) => Some(frame.stream),
        Message::RunEvent(event) => Some(event.stream),
        Message::BodyChunk(chunk) => Some(chunk.stream),
        Message::TunnelRequest(request) => Some(request.stream),
        Message::RunRequest(request) => Some(request.stream),
        _ => None,
    }
}
