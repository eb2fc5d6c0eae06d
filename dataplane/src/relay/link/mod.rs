//! Drives one link: a socket with its TLS session on one side, a [`Mux`] and its owner on the other.
//!
//! [`Link::run`] is one task with two loops, and a small task beside it. The reader takes what the socket has, up to 256 KiB, hands every message of
//! it to the [`Handler`], tells it once that the batch is over, and wakes the writer once. The writer gathers everything
//! that is ready, up to 64 KiB, into one TLS write. The pulse keeps the heartbeat. Whoever finds a reason to end says so,
//! and the writer ends the link in the runtime's order: farewell, FIN, stop the reader, await it, drop both halves.
//!
//! No loop waits for the owner: what a slow client cannot take yet is bounded by credit, so the socket is always read and
//! heartbeats always pass (HBT-2).

mod handle;

use std::{
    cell::{Cell, RefCell},
    io, mem,
    pin::pin,
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use futures::{
    future::{Either, select},
    join,
};
use proto::{
    frame::{Decoder, FRAME_BYTES_MAX},
    message::{Goodbye, Message},
};

use super::{
    close::{CloseReason, Farewell},
    mux::{Incoming, Mux, MuxLimits},
};
use crate::{
    clock,
    local::{Latch, Signal},
    net::{Patience, ReadHalf, Stream, WriteFault, WriteHalf},
    shard::spawn_guarded,
    time::{before, sleep_until, yield_now},
    tls::session::Session,
};

pub use handle::LinkHandle;

/// What one read may take.
pub const LINK_READ_BYTES: usize = 256 * 1024;
/// What one write gathers, about: the last frame may go over it.
pub const LINK_WRITE_BYTES: usize = 64 * 1024;
/// How long one such write may take before the peer counts as one that stopped reading.
pub const LINK_WRITE_STALL: Duration = Duration::from_secs(45);
/// How long a link that ends tries to get its farewell out.
pub const LINK_FAREWELL: Duration = Duration::from_secs(1);
/// The kernel's own bound stands behind the heartbeat's: who is silent ends by that. After a loss the link goes on within 2 s,
/// so that one shorter than the heartbeat's deadline leaves time for an answer.
pub const LINK_PATIENCE: Patience =
    Patience { silence: Some(Duration::from_secs(60)), retransmit_max: Some(Duration::from_secs(2)) };
/// What may wait in the kernel unsent, in bytes: heartbeats of a slow link wait behind it.
pub const LINK_UNSENT_MAX: u32 = 128 * 1024;
/// A write buffer that grew over this for a huge control message is not kept.
const WRITE_BUFFER_KEPT: usize = 4 * LINK_WRITE_BYTES;

/// Bounds of one link.
#[derive(Clone, Copy, Debug)]
pub struct LinkLimits {
    /// Streams, control messages and heartbeat.
    pub mux: MuxLimits,
    /// Longest frame taken from the peer, in bytes (WIR-2).
    pub frame_bytes_max: usize,
    /// Longest duration of one write.
    pub write_stall: Duration,
    /// Longest farewell.
    pub farewell: Duration,
}

impl Default for LinkLimits {
    fn default() -> Self {
        Self {
            mux: MuxLimits::default(),
            frame_bytes_max: FRAME_BYTES_MAX,
            write_stall: LINK_WRITE_STALL,
            farewell: LINK_FAREWELL,
        }
    }
}

/// The owner of a link, called by its reader. It must not block; what it wants to say it says through its [`LinkHandle`],
/// also from inside these calls.
pub trait Handler {
    /// One message, in the order of arrival. A `Bytes` in it is a slice of the read buffer: who keeps a small one for long
    /// copies it.
    fn on_incoming(&mut self, incoming: Incoming);

    /// All messages of one read have been handed over: the time to ring each shard that got any, once.
    fn on_batch_end(&mut self);
}

struct Shared {
    session: RefCell<Session>,
    mux: RefCell<Mux>,
    /// There may be something to write.
    wake: Signal,
    /// Why the link ends; the first reason counts.
    reason: Cell<Option<CloseReason>>,
    stopping: Latch,
    /// The link is over and its socket closed.
    ended: Latch,
}

impl Shared {
    fn stop(&self, reason: CloseReason) {
        if self.reason.get().is_none() {
            self.reason.set(Some(reason));
            self.stopping.close();
            self.wake.set();
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.is_closed()
    }

    /// Wakes the writer if what was received left something to write. What the owner says meanwhile wakes it by itself.
    fn wake_for_replies(&self) {
        if self.mux.borrow().wants_transmit() || self.session.borrow().wants_write() {
            self.wake.set();
        }
    }
}

/// One link, before and while it runs.
pub struct Link {
    shared: Rc<Shared>,
    limits: LinkLimits,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("mux", &self.shared.mux).finish_non_exhaustive()
    }
}

impl Link {
    /// A link over a session whose handshake is complete. Its heartbeat starts now.
    #[must_use]
    pub fn new(session: Session, limits: LinkLimits) -> Self {
        let shared = Shared {
            session: RefCell::new(session),
            mux: RefCell::new(Mux::new(limits.mux, clock::now())),
            wake: Signal::new(),
            reason: Cell::new(None),
            stopping: Latch::new(),
            ended: Latch::new(),
        };
        Self { shared: Rc::new(shared), limits }
    }

    /// What tasks of this shard hold. It may outlive the link.
    #[must_use]
    pub fn handle(&self) -> LinkHandle {
        LinkHandle(Rc::clone(&self.shared))
    }

    /// Runs the link to its end and closes the socket. `early` is the plaintext that came with the handshake's last bytes.
    ///
    /// Dropping the future closes the socket at once, without a farewell.
    pub async fn run<H: Handler>(self, stream: Stream, early: BytesMut, handler: &mut H) -> CloseReason {
        let guard = EndGuard(&self.shared);
        stream.set_patience(LINK_PATIENCE);
        stream.set_unsent_max(LINK_UNSENT_MAX);
        let (read, write) = stream.into_split();
        let reader = Reader::new(&self.shared, self.limits, early);
        let writer = Writer {
            shared: &self.shared,
            limits: self.limits,
            write,
            cipher: Vec::new(),
            plain: Vec::new(),
        };
        // A task of its own: what is read or written wakes no timer.
        spawn_guarded(pulse(EndOfPulse(Rc::clone(&self.shared))));
        join!(reader.run(read, handler), writer.run());
        drop(guard);
        self.shared.reason.get().unwrap_or(CloseReason::Internal)
    }
}

/// Frees what the link held, also when its task is dropped or a handler panics.
struct EndGuard<'a>(&'a Shared);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.stop(CloseReason::Internal);
        if let Ok(mut mux) = self.0.mux.try_borrow_mut() {
            mux.end();
        }
        self.0.ended.close();
    }
}

/// A link whose heartbeat has ended before it, by a defect, ends too.
struct EndOfPulse(Rc<Shared>);

impl Drop for EndOfPulse {
    fn drop(&mut self) {
        self.0.stop(CloseReason::Internal);
    }
}

/// Keeps the heartbeat, also while a write is stuck. Ends with the link.
async fn pulse(end: EndOfPulse) {
    let shared = &*end.0;
    while !shared.is_stopping() {
        let due = shared.mux.borrow().poll_timeout();
        // A pong only moves it later; then this wakes early once and looks again.
        let _woken = select(pin!(sleep_until(due)), pin!(shared.stopping.closed())).await;
        if shared.is_stopping() {
            return;
        }
        let beat = shared.mux.borrow_mut().handle_timeout(clock::now());
        match beat {
            Ok(true) => shared.wake.set(),
            Ok(false) => {}
            Err(fault) => shared.stop(fault.into()),
        }
    }
}

struct Reader<'a> {
    shared: &'a Shared,
    decoder: Decoder,
    plain: BytesMut,
}

impl<'a> Reader<'a> {
    fn new(shared: &'a Shared, limits: LinkLimits, early: BytesMut) -> Self {
        Self { shared, decoder: Decoder::new(limits.frame_bytes_max), plain: early }
    }

    async fn run<H: Handler>(mut self, mut read: ReadHalf, handler: &mut H) {
        self.deliver(handler);
        self.shared.wake_for_replies();
        let mut cipher = BytesMut::with_capacity(LINK_READ_BYTES);
        while !self.shared.is_stopping() {
            cipher.clear();
            let (result, filled) = read.read(cipher).await;
            cipher = filled;
            match result {
                Ok(0) => self.shared.stop(CloseReason::PeerClosed),
                Ok(_) => self.take(&cipher, handler),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.shared.stop(CloseReason::ConnectionLost),
            }
        }
    }

    fn take<H: Handler>(&mut self, cipher: &[u8], handler: &mut H) {
        crate::panic_point!("link.reader");
        // No allocation when owners hold no slice of the last batch, as they should not; else one.
        self.plain.reserve(cipher.len());
        let (received, peer_closed) = {
            let mut session = self.shared.session.borrow_mut();
            (session.receive(cipher, &mut self.plain), session.peer_closed())
        };
        // What came before a broken record counts.
        self.deliver(handler);
        match received {
            Err(fault) => self.shared.stop((&fault).into()),
            Ok(()) if peer_closed => self.shared.stop(CloseReason::PeerClosed),
            Ok(()) => {}
        }
        self.shared.wake_for_replies();
    }

    /// Hands every whole message to the owner.
    fn deliver<H: Handler>(&mut self, handler: &mut H) {
        if self.plain.is_empty() {
            return;
        }
        let now = clock::now();
        while !self.shared.is_stopping() {
            match self.next(now) {
                Ok(Some((Incoming::Ignored, _))) => {}
                Ok(Some((incoming, farewell))) => {
                    handler.on_incoming(incoming);
                    if farewell {
                        self.shared.stop(CloseReason::PeerGoodbye);
                    }
                }
                Ok(None) => break,
                Err(reason) => self.shared.stop(reason),
            }
        }
        handler.on_batch_end();
    }

    fn next(&mut self, now: Instant) -> Result<Option<(Incoming, bool)>, CloseReason> {
        let Some(frame) = self.decoder.next(&mut self.plain).map_err(|error| {
            tracing::warn!(%error, "frame refused");
            CloseReason::FrameTooLarge
        })?
        else {
            return Ok(None);
        };
        let message = Message::decode(frame).map_err(|error| {
            tracing::warn!(%error, "message refused");
            CloseReason::ProtocolError
        })?;
        let farewell = matches!(message, Message::Goodbye(_));
        let incoming = self.shared.mux.borrow_mut().handle(now, message).map_err(|fault| {
            tracing::warn!(%fault, "message refused");
            CloseReason::from(fault)
        })?;
        Ok(Some((incoming, farewell)))
    }
}

struct Writer<'a> {
    shared: &'a Shared,
    limits: LinkLimits,
    write: WriteHalf,
    /// Reused from write to write.
    cipher: Vec<u8>,
    plain: Vec<u8>,
}

impl Writer<'_> {
    async fn run(mut self) {
        while !self.shared.is_stopping() {
            self.gather();
            if self.cipher.is_empty() {
                self.shared.wake.wait().await;
            } else if !self.flush().await {
                break;
            } else if self.plain.len() >= LINK_WRITE_BYTES {
                // There may be much more, and a peer that keeps up with it: the reader has its turn in between.
                yield_now().await;
            }
        }
        self.farewell().await;
        self.write.shutdown();
        self.write.stop_reader();
    }

    /// Encrypts what is ready behind what is left.
    fn gather(&mut self) {
        crate::panic_point!("link.writer");
        self.plain.clear();
        self.shared.mux.borrow_mut().poll_transmit(&mut self.plain, LINK_WRITE_BYTES);
        self.encrypt();
    }

    fn encrypt(&mut self) {
        let mut session = self.shared.session.borrow_mut();
        if self.plain.is_empty() || session.send(&self.plain, &mut self.cipher).is_err() {
            // A session that takes no more plaintext has faulted, and the reader says so.
            session.flush(&mut self.cipher);
        }
    }

    /// Writes all ciphertext. `false` when the socket is of no use any more: the reason is set then, and what is left is
    /// not a whole record.
    ///
    /// One system call, and neither a timer nor an operation of the ring, for as long as the socket takes it all.
    async fn flush(&mut self) -> bool {
        let cipher = mem::take(&mut self.cipher);
        let written = match self.write.try_write(&cipher) {
            Ok(sent) if sent == cipher.len() => Some(Ok(())),
            // In a box of its own: the task would otherwise be as large as this wait, for ever.
            Ok(sent) => Box::pin(self.flush_patiently(cipher.get(sent..).unwrap_or_default())).await,
            Err(error) => Some(Err(WriteFault::Io(error))),
        };
        match written {
            Some(Ok(())) => {
                self.cipher = cipher;
                self.cipher.clear();
                if self.cipher.capacity() > WRITE_BUFFER_KEPT {
                    self.cipher = Vec::new();
                }
                return true;
            }
            Some(Err(WriteFault::Stalled)) => self.shared.stop(CloseReason::WriteStall),
            Some(Err(WriteFault::Io(_))) => self.shared.stop(CloseReason::ConnectionLost),
            None => {}
        }
        self.limits.farewell = Duration::ZERO;
        false
    }

    /// Waits for the socket to take the rest; `None` when the link ends before that.
    async fn flush_patiently(&self, rest: &[u8]) -> Option<Result<(), WriteFault>> {
        let (shared, farewell) = (self.shared, self.limits.farewell);
        let mut writing = pin!(self.write.write_until(rest, clock::now() + self.limits.write_stall));
        match select(writing.as_mut(), pin!(shared.stopping.closed())).await {
            Either::Left((written, _)) => Some(written),
            // Dropping the write gives the connection up, which is what follows.
            Either::Right(((), _)) if shared.reason.get().is_some_and(|r| r.farewell() == Farewell::None) => {
                None
            }
            Either::Right(((), _)) => before(clock::now() + farewell, writing).await,
        }
    }

    /// Says what the reason lets us say, for a moment.
    async fn farewell(&mut self) {
        let Some(reason) = self.shared.reason.get() else { return };
        if reason.farewell() == Farewell::None || self.limits.farewell.is_zero() {
            return;
        }
        self.plain.clear();
        if reason.farewell() == Farewell::Goodbye {
            let mut mux = self.shared.mux.borrow_mut();
            let _full = mux.send(Message::Goodbye(Goodbye { reason: reason.label().to_owned() }));
            mux.poll_control(&mut self.plain);
        }
        self.encrypt();
        if !matches!(reason, CloseReason::Tls { .. }) {
            self.shared.session.borrow_mut().close(&mut self.cipher);
        }
        let until = clock::now() + self.limits.farewell;
        let _best_effort = Box::pin(self.write.write_until(&self.cipher, until)).await;
    }
}
