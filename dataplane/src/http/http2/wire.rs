//! The socket below the `h2` crate: its bytes, in turns and gathered, and the heads of all frames for [`flood`](super::flood).
//!
//! Reading takes turns, so that a client that never stops sending has the shard for a fraction of a millisecond at a time. What is
//! written is gathered until the connection's task has nothing more to say, and then sent by one call.

use std::{
    cell::RefCell,
    future::Future,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    Notice,
    flood::{Flood, Judge},
    frames::{Frame, Scanner},
    limits::Http2Limits,
};
use crate::{http::server::Wire, shard::wake_behind_others};

/// Bytes of the client's preface.
pub(super) const PREFACE: u64 = 24;
/// Most bytes, and about the most frames, that are read before others have their turn.
const TURN_BYTES: usize = 16 * 1024;
const TURN_FRAMES: usize = 256;
/// What waits for the socket, about: then the crate must wait too.
const OUT_BYTES: usize = 64 * 1024;
/// An output buffer of more than this is not kept while nothing waits in it.
const OUT_KEPT: usize = 4 * 1024;

thread_local! {
    /// Where bytes are received before they are copied: a connection that is silent holds no buffer.
    static SCRATCH: RefCell<BytesMut> = RefCell::new(BytesMut::with_capacity(TURN_BYTES));
}

type Readiness = Pin<Box<dyn Future<Output = io::Result<()>>>>;

struct State {
    wire: Wire,
    /// Received before it was known what the client speaks.
    early: BytesMut,
    inbound: Scanner,
    outbound: Scanner,
    judge: Judge,
    flood: Option<Flood>,
    notify: Box<dyn Fn(Notice)>,
    /// To be sent, from `sent` on.
    out: Vec<u8>,
    sent: usize,
    readable: Option<Readiness>,
    writable: Option<Readiness>,
    now: Instant,
    bytes_left: usize,
    frames_left: usize,
}

/// A hold on a socket: the crate has one, and its connection's task another.
#[derive(Clone)]
pub(super) struct Port(Rc<RefCell<State>>);

impl Port {
    /// `early` = received already; `preface` = bytes that the peer sends before its first frame.
    pub(super) fn new(
        wire: Wire,
        (early, preface): (BytesMut, u64),
        limits: &Http2Limits,
        notify: Box<dyn Fn(Notice)>,
        now: Instant,
    ) -> Self {
        Self(Rc::new(RefCell::new(State {
            wire,
            early,
            inbound: Scanner::new(preface),
            outbound: Scanner::new(0),
            judge: Judge::new(limits, now),
            flood: None,
            notify,
            out: Vec::new(),
            sent: 0,
            readable: None,
            writable: None,
            now,
            bytes_left: 0,
            frames_left: 0,
        })))
    }

    /// Before each poll of the crate: what it may read now.
    pub(super) fn begin_turn(&self, now: Instant) {
        let state = &mut *self.0.borrow_mut();
        state.now = now;
        state.bytes_left = TURN_BYTES;
        state.frames_left = TURN_FRAMES;
    }

    /// What there was too much of. Nothing is read any more then.
    pub(super) fn flood(&self) -> Option<Flood> {
        self.0.borrow().flood
    }

    /// Sends what waits. Pending = the socket takes no more now.
    pub(super) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_send(cx)
    }
}

impl State {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Some(writable) = &mut self.writable {
                let ready = ready!(writable.as_mut().poll(cx));
                self.writable = None;
                ready?;
            }
            let rest = self.out.get(self.sent..).unwrap_or_default();
            // Under TLS what was taken may wait for the socket itself.
            let taken = if rest.is_empty() {
                self.wire.try_flush()?.then_some(0)
            } else {
                self.wire.try_write(rest)?
            };
            match taken {
                Some(0) if rest.is_empty() => {
                    self.sent = 0;
                    self.out.clear();
                    self.out.shrink_to(OUT_KEPT);
                    return Poll::Ready(Ok(()));
                }
                Some(sent) => self.sent += sent,
                None => {
                    self.writable = Some(Box::pin(self.wire.watch_writable()));
                }
            }
        }
    }

    /// Passes on what has arrived, at most as much as the turn has left. Nothing passed on = the end.
    fn poll_receive(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.flood.is_some() {
            // Whoever polls sees it and ends the connection.
            return Poll::Pending;
        }
        let most = buf.remaining().min(self.bytes_left);
        if most == 0 || self.frames_left == 0 {
            wake_behind_others(cx.waker().clone());
            return Poll::Pending;
        }
        if !self.early.is_empty() {
            let early = self.early.split_to(most.min(self.early.len()));
            self.take(&early, buf);
            if self.early.is_empty() {
                self.early = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        loop {
            if let Some(readable) = &mut self.readable {
                let ready = ready!(readable.as_mut().poll(cx));
                self.readable = None;
                ready?;
            }
            let received = SCRATCH.with_borrow_mut(|scratch| {
                scratch.clear();
                let received = self.wire.try_read(scratch, most)?;
                self.take(scratch, buf);
                Ok::<_, io::Error>(received)
            })?;
            if received.is_some() {
                return Poll::Ready(Ok(()));
            }
            self.readable = Some(Box::pin(self.wire.watch()));
        }
    }

    fn take(&mut self, bytes: &[u8], buf: &mut ReadBuf<'_>) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len());
        let Self { inbound, judge, flood, frames_left, notify, now, .. } = self;
        inbound.push(bytes, |frame| {
            *frames_left = frames_left.saturating_sub(1);
            match frame {
                Frame::Reset(code) => notify(Notice::ResetByClient(code)),
                Frame::GoAway(code) => notify(Notice::GoneByClient(code)),
                _ => {}
            }
            if let Err(found) = judge.received(frame, *now) {
                flood.get_or_insert(found);
            }
        });
        buf.put_slice(bytes);
    }

    fn note_sent(&mut self, bytes: &[u8]) {
        let Self { outbound, judge, flood, notify, now, .. } = self;
        outbound.push(bytes, |frame| {
            match frame {
                Frame::Reset(code) => notify(Notice::Reset(code)),
                Frame::GoAway(code) => notify(Notice::Gone(code)),
                _ => {}
            }
            if let Err(found) = judge.sent(frame, *now) {
                flood.get_or_insert(found);
            }
        });
    }
}

impl AsyncRead for Port {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_receive(cx, buf)
    }
}

impl AsyncWrite for Port {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let state = &mut *self.0.borrow_mut();
        if state.out.len() >= OUT_BYTES {
            ready!(state.poll_send(cx))?;
        }
        state.note_sent(bytes);
        state.out.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    /// The connection's task sends when the crate has said everything; here only where that is much.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.0.borrow_mut();
        if state.out.len() < OUT_BYTES { Poll::Ready(Ok(())) } else { state.poll_send(cx) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Its end is said by the connection's task.
        self.0.borrow_mut().poll_send(cx)
    }
}
