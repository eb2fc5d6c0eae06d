//! One connection to a provider: its socket, what was received and not yet understood, and what it counts for.

use std::{cell::RefCell, future::Future, io, rc::Rc};

use bytes::BytesMut;
use futures::future::Either;

use super::{custody::Custody, secure::Secure};
use crate::{
    http::pool::{Counters, Key},
    net::Stream,
};

/// Most bytes that one receive takes.
pub(crate) const RECEIVE_MAX: usize = 64 * 1024;
/// A receive of at least this much keeps the buffer it came in; a smaller one is copied into one of its own size, so that
/// a piece that waits somewhere pins at most twice its length.
const KEEP_MIN: usize = RECEIVE_MAX / 2;

/// Where the bytes go; nothing else in the client knows.
#[derive(Debug)]
pub(crate) enum Wire {
    /// TCP as it is (`http://`).
    Plain(Stream),
    /// TLS (`https://`).
    Secure(Secure),
}

impl Wire {
    pub(super) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.readable().await,
            Self::Secure(secure) => secure.readable().await,
        }
    }

    /// As [`Stream::watch`].
    pub(super) fn watch(&self) -> impl Future<Output = io::Result<()>> + use<> {
        match self {
            Self::Plain(stream) => Either::Left(stream.watch()),
            Self::Secure(secure) => Either::Right(secure.watch()),
        }
    }

    /// As [`Stream::try_read`]; TLS does not keep to `max`, which is for no more than not to take what nobody wants yet.
    pub(super) fn try_read(&self, buffer: &mut BytesMut, max: usize) -> io::Result<Option<usize>> {
        match self {
            Self::Plain(stream) => stream.try_read(buffer, max),
            Self::Secure(secure) => secure.try_read(buffer),
        }
    }

    /// As [`Stream::shutdown_write`].
    pub(super) fn shutdown_write(&self) {
        match self {
            Self::Plain(stream) => stream.shutdown_write(),
            Self::Secure(secure) => secure.shutdown_write(),
        }
    }

    /// As [`Stream::unread`].
    pub(super) fn unread(&self) -> usize {
        match self {
            Self::Plain(stream) => stream.unread(),
            Self::Secure(secure) => secure.unread(),
        }
    }

    /// As [`Stream::reset_on_close`].
    pub(super) fn reset_on_close(&self) {
        match self {
            Self::Plain(stream) => stream.reset_on_close(),
            Self::Secure(secure) => secure.reset_on_close(),
        }
    }

    /// As [`Stream::share`].
    fn share(&self) -> Self {
        match self {
            Self::Plain(stream) => Self::Plain(stream.share()),
            Self::Secure(secure) => Self::Secure(secure.clone()),
        }
    }

    /// As [`Stream::try_write`].
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match self {
            Self::Plain(stream) => stream.try_write(bytes),
            Self::Secure(secure) => secure.try_write(bytes),
        }
    }

    /// As [`Stream::writable`].
    pub(super) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.writable().await,
            Self::Secure(secure) => secure.writable().await,
        }
    }
}

/// What [`Conn::receive`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// Bytes, now in [`Conn::buffer`].
    Data,
    /// Nothing for now.
    Nothing,
    /// The end of the stream.
    End,
    /// Its end without TLS's close_notify: whatever had come by then may have been more.
    Cut,
}

/// Counts a connection as open for as long as it exists. Clones count once.
#[derive(Clone, Debug)]
pub(super) struct OpenConnection {
    _counted: Rc<Counted>,
}

#[derive(Debug)]
struct Counted(Rc<Counters>);

impl OpenConnection {
    fn new(counters: Rc<Counters>) -> Self {
        counters.opened.set(counters.opened.get() + 1);
        counters.open.set(counters.open.get() + 1);
        Self { _counted: Rc::new(Counted(counters)) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get().saturating_sub(1));
    }
}

/// What a connection is in the middle of.
#[derive(Debug)]
enum Serving {
    /// Nothing: its drop is an ordinary close.
    Nothing,
    /// A request is being written. A provider that has not got all of it cannot be at work on it, and a reset tells it at once,
    /// past everything that it has not read.
    Request(Custody),
    /// The request was written, its answer has not ended.
    Answer(Custody),
}

/// A connection. Dropping it closes it, unless an answer is due on it: then it goes into the custody of who asked.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(super) wire: Wire,
    /// Received and not yet taken. Its owner empties it before it receives more, but for a part of a head or a chunk line.
    pub(super) buffer: BytesMut,
    pub(crate) key: Key,
    /// The last receive took everything there was, so that another one is not worth its system call.
    drained: bool,
    serving: Serving,
    open: OpenConnection,
    counters: Rc<Counters>,
}

impl Conn {
    /// `early` is what the server has said already.
    pub(crate) fn new(wire: Wire, early: BytesMut, key: Key, counters: Rc<Counters>) -> Self {
        let open = OpenConnection::new(Rc::clone(&counters));
        Self { wire, buffer: early, key, drained: false, serving: Serving::Nothing, open, counters }
    }

    /// A request begins; dropped from now on the connection is no longer the caller's alone.
    pub(super) fn begin(&mut self, custody: Custody) {
        self.serving = Serving::Request(custody);
    }

    /// The provider has got all of the request.
    pub(super) fn sent(&mut self) {
        if let Serving::Request(custody) = std::mem::replace(&mut self.serving, Serving::Nothing) {
            self.serving = Serving::Answer(custody);
        }
    }

    /// The exchange is over, well or badly: there is nothing that the provider could still be at.
    pub(super) fn release(&mut self) {
        self.serving = Serving::Nothing;
    }

    /// Receives without waiting, by way of the shard's one `scratch`.
    pub(super) fn receive(&mut self, scratch: &RefCell<BytesMut>) -> io::Result<Received> {
        if self.drained {
            return Ok(Received::Nothing);
        }
        let mut scratch = scratch.borrow_mut();
        scratch.clear();
        let n = match self.wire.try_read(&mut scratch, RECEIVE_MAX) {
            Ok(Some(n)) => n,
            Ok(None) => {
                self.drained = true;
                return Ok(Received::Nothing);
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Received::Cut),
            Err(error) => return Err(error),
        };
        if n == 0 {
            return Ok(Received::End);
        }
        self.counters.note_read(n);
        self.drained = n < RECEIVE_MAX;
        if self.buffer.is_empty() && n >= KEEP_MIN {
            self.buffer = scratch.split();
        } else if self.buffer.is_empty() {
            self.buffer = BytesMut::from(scratch.as_ref());
        } else {
            self.buffer.extend_from_slice(&scratch);
        }
        Ok(Received::Data)
    }

    /// Waits until [`Conn::receive`] has something to say, without holding a buffer.
    pub(super) async fn wait(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
        self.wire.readable().await?;
        self.drained = false;
        Ok(())
    }

    /// Says that the peer was heard of by a watch.
    pub(super) fn rouse(&mut self) {
        self.drained = false;
    }

    /// Whether an idle connection can serve another request: it is open and its peer has said nothing.
    pub(crate) fn is_quiet(&mut self, scratch: &RefCell<BytesMut>) -> bool {
        let mut scratch = scratch.borrow_mut();
        scratch.clear();
        let quiet = self.buffer.is_empty() && matches!(self.wire.try_read(&mut scratch, 1), Ok(None));
        self.drained = quiet;
        quiet
    }

    /// Whether something was received that nobody has taken.
    pub(crate) fn has_surplus(&self) -> bool {
        !self.buffer.is_empty()
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.serving, Serving::Nothing) {
            Serving::Nothing => {}
            Serving::Request(_) => self.wire.reset_on_close(),
            Serving::Answer(custody) => custody.give(self.wire.share(), self.open.clone()),
        }
    }
}
