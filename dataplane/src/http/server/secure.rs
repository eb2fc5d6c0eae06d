//! A client's connection under TLS: a [`Session`] between HTTP and the socket.
//!
//! An idle one holds no buffer of ours. Plaintext waits here only where a caller had no room for it, at most one record more than was
//! asked for, or where [`Secure::has_left`] had to look past it. Ciphertext that the socket does not take waits, at most one piece of
//! a write.

use std::{
    cell::RefCell,
    io,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use rustls::ServerConfig;

use super::spare;
use crate::{
    net::{Stream, WriteFault},
    relay::handshake::{self, HandshakeError},
    time::before,
    tls::{
        refusal::{Refusal, TlsFault},
        session::{HANDSHAKE_RECORD, Session},
    },
};

/// Most plaintext that is encrypted before the socket has taken what was encrypted before.
const PIECE_MAX: usize = 64 * 1024;
/// Ciphertext asked for at a time: little where the caller has little room, so that little waits here.
const RECEIVE: (usize, usize) = (4 * 1024, 64 * 1024);
/// Receives in one call that bring nothing but TLS's own messages; a client that goes on waits its turn.
const MUTE_RECEIVES_MAX: usize = 4;
/// Most plaintext that is kept to see whether the client has left behind it.
const AHEAD_MAX: usize = 64 * 1024;
/// What the first read of a connection may bring: a hello is some 2 KiB at the most, and a head in plain text is no longer.
const FIRST_READ: usize = 8 * 1024;
/// The application protocol of HTTP/2 over TLS (RFC 9113 section 3.3).
const ALPN_HTTP2: &[u8] = b"h2";

thread_local! {
    /// Where ciphertext is received before it is decrypted.
    static CIPHER: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// What a connection to a port of HTTPS turned out to be.
#[derive(Debug)]
pub enum Handshake {
    /// What it should be.
    Secure(Secure),
    /// Its first byte is none of TLS, but of these, perhaps a request in plain text that may be answered in plain text.
    Plain(Stream, BytesMut),
}

/// The server's handshake, to be over by `deadline`. A connection that says nothing costs no session.
///
/// # Errors
/// [`HandshakeError`]; the socket is closed.
pub async fn handshake(
    mut stream: Stream,
    config: Arc<ServerConfig>,
    deadline: Instant,
) -> Result<Handshake, HandshakeError> {
    let mut received = BytesMut::new();
    match before(deadline, stream.read_some(&mut received, FIRST_READ)).await {
        None => return Err(TlsFault::local(Refusal::HandshakeTimeout).into()),
        Some(Ok(0)) => return Err(HandshakeError::Closed),
        Some(read) => read?,
    };
    if received.first() != Some(&HANDSHAKE_RECORD) {
        return Ok(Handshake::Plain(stream, received));
    }
    // In a box for as long as it takes: it is the bulk of the future, and futures are moved.
    let mut session = Box::new(Session::server(config)?);
    let early = handshake::shake(&mut stream, &mut session, received, deadline).await?;
    let end = session.peer_closed().then_some(End::Closed);
    let state =
        State { plain: early, out: Vec::new(), sent: 0, end, writing: Writing::Idle, session: *session };
    Ok(Handshake::Secure(Secure(Rc::new(Inner { stream, state: RefCell::new(state) }))))
}

/// A connection whose handshake is over. Cloning shares it. Dropped without [`Wire::say_goodbye`](super::Wire::say_goodbye) it
/// leaves the client with an end that it can tell from a proper one.
#[derive(Clone)]
pub struct Secure(Rc<Inner>);

struct Inner {
    stream: Stream,
    state: RefCell<State>,
}

struct State {
    session: Session,
    /// Decrypted and not read yet.
    plain: BytesMut,
    /// Ciphertext to be sent from `sent` on.
    out: Vec<u8>,
    sent: usize,
    end: Option<End>,
    writing: Writing,
}

/// Who writes ciphertext to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    /// Nobody.
    Idle,
    /// A [`Secure::send_all`] that waits, or was dropped: then for ever.
    Busy,
    /// Nobody any more: close_notify was sent.
    Over,
}

/// What ended the receiving side.
enum End {
    /// close_notify.
    Closed,
    /// The end of the stream without it.
    Cut,
    Fault(TlsFault),
}

impl End {
    fn told(&self) -> io::Result<Option<usize>> {
        match self {
            Self::Closed => Ok(Some(0)),
            Self::Cut => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the client closed the connection without TLS's close_notify",
            )),
            Self::Fault(fault) => Err(io::Error::new(io::ErrorKind::InvalidData, fault.clone())),
        }
    }
}

impl std::fmt::Debug for Secure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secure").field("stream", &self.0.stream).finish_non_exhaustive()
    }
}

impl Secure {
    pub(super) fn stream(&self) -> &Stream {
        &self.0.stream
    }

    pub(super) fn is_http2(&self) -> bool {
        self.0.state.borrow().session.alpn() == Some(ALPN_HTTP2)
    }

    pub(super) fn has_buffered(&self) -> bool {
        let state = self.0.state.borrow();
        !state.plain.is_empty() || state.end.is_some()
    }

    /// As [`Wire::try_read`](super::Wire::try_read).
    pub(super) fn try_read(&self, buffer: &mut BytesMut, max: usize) -> io::Result<Option<usize>> {
        let mut state = self.0.state.borrow_mut();
        if !state.plain.is_empty() {
            let taken = state.plain.len().min(max);
            buffer.extend_from_slice(&state.plain.split_to(taken));
            if state.plain.is_empty() {
                state.plain = BytesMut::new();
            }
            return Ok(Some(taken));
        }
        for _ in 0..MUTE_RECEIVES_MAX {
            if let Some(end) = &state.end {
                return end.told();
            }
            match state.receive(&self.0.stream, buffer, max)? {
                Received::Nothing => return Ok(None),
                Received::Data(read @ 1..) => return Ok(Some(read)),
                Received::Data(0) => {}
            }
        }
        Ok(None)
    }

    /// As [`Wire::has_left`](super::Wire::has_left): also a client's close_notify stands behind what it has sent in advance.
    pub(super) fn has_left(&self) -> bool {
        let mut state = self.0.state.borrow_mut();
        let mut nowhere = BytesMut::new();
        for _ in 0..MUTE_RECEIVES_MAX {
            if state.end.is_some() {
                return true;
            }
            if state.plain.len() >= AHEAD_MAX {
                break;
            }
            match state.receive(&self.0.stream, &mut nowhere, 0) {
                Ok(Received::Nothing) => return false,
                Ok(Received::Data(_)) => {}
                Err(_) => return true,
            }
        }
        state.end.is_some() || self.0.stream.is_at_end()
    }

    /// As [`Wire::try_write`](super::Wire::try_write).
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let mut state = self.0.state.borrow_mut();
        if !state.push(&self.0.stream)? {
            return Ok(None);
        }
        let piece = bytes.get(..bytes.len().min(PIECE_MAX)).unwrap_or_default();
        state.encrypt(piece)?;
        state.push(&self.0.stream)?;
        Ok(Some(piece.len()))
    }

    pub(super) fn try_flush(&self) -> io::Result<bool> {
        self.0.state.borrow_mut().push(&self.0.stream)
    }

    /// As [`Stream::send_all`]: one record for what fits into one.
    pub(super) async fn send_all(&self, bytes: &[u8], stall: Duration) -> Result<(), WriteFault> {
        for piece in bytes.chunks(PIECE_MAX) {
            self.0.state.borrow_mut().encrypt(piece)?;
            self.drain(stall).await?;
        }
        Ok(())
    }

    /// Sends close_notify, unless the session is broken: its alert has said everything then.
    pub(super) async fn say_goodbye(&self, stall: Duration) -> Result<(), WriteFault> {
        {
            let mut state = self.0.state.borrow_mut();
            if state.writing != Writing::Idle || matches!(state.end, Some(End::Fault(_))) {
                return Ok(());
            }
            let State { session, out, .. } = &mut *state;
            session.close(out);
        }
        let sent = self.drain(stall).await;
        self.0.state.borrow_mut().writing = Writing::Over;
        sent
    }

    /// Sends what waits, without holding on to the state: the client may be read from meanwhile.
    async fn drain(&self, stall: Duration) -> Result<(), WriteFault> {
        let (out, sent) = {
            let mut state = self.0.state.borrow_mut();
            state.writing = Writing::Busy;
            (std::mem::take(&mut state.out), std::mem::take(&mut state.sent))
        };
        self.0.stream.send_all(out.get(sent..).unwrap_or_default(), stall).await?;
        spare::keep(out);
        self.0.state.borrow_mut().writing = Writing::Idle;
        Ok(())
    }
}

/// What one receive of the socket brought.
enum Received {
    /// The socket has nothing to say.
    Nothing,
    /// So many bytes for the caller; 0 = only for TLS, or for later, or an end.
    Data(usize),
}

impl State {
    /// Receives once and decrypts: into `buffer` at most `max` bytes, the rest for later.
    fn receive(&mut self, stream: &Stream, buffer: &mut BytesMut, max: usize) -> io::Result<Received> {
        let before = buffer.len();
        let Self { session, plain, .. } = self;
        let end = CIPHER.with_borrow_mut(|cipher| {
            cipher.clear();
            let most = max.clamp(RECEIVE.0, RECEIVE.1);
            let end = match stream.try_read(cipher, most)? {
                None => return Ok(None),
                Some(0) => Some(End::Cut),
                Some(_) => {
                    let decrypted = session.receive_with(cipher, |chunk| {
                        let room = max.saturating_sub(buffer.len() - before).min(chunk.len());
                        let (now, later) = chunk.split_at(room);
                        buffer.extend_from_slice(now);
                        plain.extend_from_slice(later);
                    });
                    match decrypted {
                        Ok(()) if session.peer_closed() => Some(End::Closed),
                        Ok(()) => None,
                        Err(fault) => Some(End::Fault(fault)),
                    }
                }
            };
            io::Result::Ok(Some(end))
        })?;
        let Some(end) = end else { return Ok(Received::Nothing) };
        self.end = end;
        // An alert or a key update. Where something is being written, or waits, it goes with what is written next.
        if self.session.wants_write() && self.writing == Writing::Idle && !self.is_pending() {
            self.session.flush(&mut self.out);
            let _sent = self.push(stream);
        }
        Ok(Received::Data(buffer.len() - before))
    }

    fn is_pending(&self) -> bool {
        self.sent < self.out.len()
    }

    fn encrypt(&mut self, plaintext: &[u8]) -> io::Result<()> {
        if self.writing != Writing::Idle {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if self.out.capacity() == 0 {
            self.out = spare::take();
        }
        let sent = self.session.send(plaintext, &mut self.out);
        sent.map_err(|error| io::Error::new(io::ErrorKind::BrokenPipe, error))
    }

    /// Sends what waits without waiting itself; whether all of it is gone.
    fn push(&mut self, stream: &Stream) -> io::Result<bool> {
        if self.writing == Writing::Busy {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        while let Some(rest @ [_, ..]) = self.out.get(self.sent..) {
            match stream.try_write(rest)? {
                Some(n) => self.sent += n,
                None => return Ok(false),
            }
        }
        // A connection with nothing to send holds no buffer.
        spare::keep(std::mem::take(&mut self.out));
        self.sent = 0;
        Ok(true)
    }
}
