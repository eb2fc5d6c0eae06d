//! A connection to a provider under TLS: a [`Session`] between the client and its socket.
//!
//! No plaintext waits in here: what a receive decrypts is handed out with it, so that a socket with nothing to say means that there
//! is nothing to hear. Ciphertext that the socket does not take at once waits, at most one piece of a request; until it is gone the
//! piece counts as not written, as one that the kernel did not take.

use std::{cell::RefCell, fmt, future::Future, io, rc::Rc, sync::Arc, time::Instant};

use bytes::BytesMut;
use futures::future::Either;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;

use super::{RECEIVE_MAX, error::ConnectError};
use crate::{
    http::pool::Key,
    net::{Patience, Stream, dial},
    relay::handshake,
    tls::{
        https::{TlsError, Trouble},
        session::Session,
    },
};

/// Most plaintext that is encrypted before the socket has taken what was encrypted before.
const PIECE_MAX: usize = 64 * 1024;
/// Receives in one call that bring nothing but TLS's own messages; a server that goes on waits its turn.
const MUTE_RECEIVES_MAX: usize = 4;

/// How servers are judged, and which name this one must have. Equal ones may share a connection.
#[derive(Clone)]
pub struct Tls {
    /// Roots, versions, tickets.
    pub config: Arc<ClientConfig>,
    /// What the certificate must be for.
    pub name: Rc<ServerName<'static>>,
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.name == other.name
    }
}

impl Eq for Tls {}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A connection whose handshake is over. Cloning shares it; the last one's drop says good-bye, where there is nobody to be told
/// otherwise by a reset.
#[derive(Clone)]
pub(crate) struct Secure(Rc<Inner>);

struct Inner {
    stream: Stream,
    address: std::net::SocketAddr,
    name: Rc<ServerName<'static>>,
    /// What is received passes through here; the pool's, for all its connections.
    cipher: Rc<RefCell<BytesMut>>,
    state: RefCell<State>,
}

struct State {
    session: Session,
    /// Ciphertext to be sent from `sent` on.
    out: Vec<u8>,
    sent: usize,
    /// Plaintext whose ciphertext is in `out`, not told as written yet.
    accepted: usize,
    end: Option<End>,
    /// No close_notify any more: it was sent, or FIN or a reset says it all.
    said_goodbye: bool,
}

/// What ended the receiving side.
#[derive(Clone)]
enum End {
    /// close_notify.
    Closed,
    /// The end of the stream without it.
    Cut,
    Fault(TlsError),
}

impl End {
    fn told(&self) -> io::Result<Option<usize>> {
        match self {
            Self::Closed => Ok(Some(0)),
            Self::Cut => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the provider closed the connection without TLS's close_notify",
            )),
            Self::Fault(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error.clone())),
        }
    }
}

/// Connects and shakes hands, both by `deadline`. Plaintext that came with the handshake's last bytes stands beside it: a
/// server that speaks first.
///
/// # Errors
/// [`ConnectError`].
pub(crate) async fn connect(
    key: &Key,
    tls: &Tls,
    patience: Patience,
    cipher: Rc<RefCell<BytesMut>>,
    deadline: Instant,
) -> Result<(Secure, BytesMut), ConnectError> {
    let stream = dial(key.address, deadline).await?;
    stream.set_patience(patience);
    let name = Rc::clone(&tls.name);
    let shaken =
        Box::pin(handshake::connect(stream, Arc::clone(&tls.config), (*name).clone(), deadline)).await;
    let handshake::Established { stream, session, early } =
        shaken.map_err(|error| TlsError::new(&name, key.address, Trouble::from(&error)))?;
    let end = session.peer_closed().then_some(End::Closed);
    let state = State { session, out: Vec::new(), sent: 0, accepted: 0, end, said_goodbye: false };
    let inner = Inner { stream, address: key.address, name, cipher, state: RefCell::new(state) };
    Ok((Secure(Rc::new(inner)), early))
}

impl fmt::Debug for Secure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secure").field("stream", &self.0.stream).finish_non_exhaustive()
    }
}

impl Secure {
    /// Whether the receiving side has ended, which the socket need not tell.
    fn is_over(&self) -> bool {
        self.0.state.borrow().end.is_some()
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        if self.is_over() { Ok(()) } else { self.0.stream.readable().await }
    }

    pub(super) fn watch(&self) -> impl Future<Output = io::Result<()>> + use<> {
        if self.is_over() {
            Either::Left(std::future::ready(Ok(())))
        } else {
            Either::Right(self.0.stream.watch())
        }
    }

    /// Appends what one receive of the socket brings, which may be one record (16 KiB) more than [`RECEIVE_MAX`]. `None` =
    /// nothing there, `Some(0)` = end by close_notify.
    ///
    /// # Errors
    /// The connection broke; [`io::ErrorKind::UnexpectedEof`]: it ended without close_notify;
    /// [`io::ErrorKind::InvalidData`]: TLS is broken or was ended by an alert.
    pub(super) fn try_read(&self, buffer: &mut BytesMut) -> io::Result<Option<usize>> {
        let Inner { stream, cipher, state, .. } = &*self.0;
        let (mut cipher, mut state) = (cipher.borrow_mut(), state.borrow_mut());
        let before = buffer.len();
        for _ in 0..MUTE_RECEIVES_MAX {
            if let Some(end) = &state.end {
                return end.told();
            }
            cipher.clear();
            match stream.try_read(&mut cipher, RECEIVE_MAX)? {
                None => return Ok(None),
                Some(0) => state.end = Some(End::Cut),
                Some(_) => match state.session.receive(&cipher, buffer) {
                    Ok(()) if state.session.peer_closed() => state.end = Some(End::Closed),
                    Ok(()) => {}
                    Err(fault) => {
                        let trouble = Trouble::from(&fault);
                        let error = TlsError::new(&self.0.name, self.0.address, trouble);
                        state.end = Some(End::Fault(error));
                    }
                },
            }
            // An alert or a key update. What the socket does not take now goes with the next piece of a request.
            if state.session.wants_write() && !state.is_pending() {
                let State { session, out, .. } = &mut *state;
                session.flush(out);
                let _sent = state.push(stream);
            }
            if buffer.len() > before {
                return Ok(Some(buffer.len() - before));
            }
        }
        Ok(None)
    }

    /// As [`Stream::try_write`]. After `None` it must be called with the same bytes, which may be under way already.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let Inner { stream, state, .. } = &*self.0;
        let mut state = state.borrow_mut();
        if state.is_pending() {
            if !state.push(stream)? {
                return Ok(None);
            }
            let accepted = std::mem::take(&mut state.accepted);
            if accepted > 0 {
                return Ok(Some(accepted));
            }
        }
        if let Some(End::Fault(error)) = &state.end {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, error.clone()));
        }
        let piece = bytes.get(..bytes.len().min(PIECE_MAX)).unwrap_or_default();
        let State { session, out, .. } = &mut *state;
        session.send(piece, out).map_err(|error| io::Error::new(io::ErrorKind::BrokenPipe, error))?;
        if state.push(stream)? {
            return Ok(Some(piece.len()));
        }
        state.accepted = piece.len();
        Ok(None)
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        self.0.stream.writable().await
    }

    /// Sends FIN, and no close_notify before it. By TLS 1.3 that would be a clean end of the request alone, behind which a server
    /// may well go on answering (RFC 8446 section 6.1); an end without it is that of a client that has left.
    pub(super) fn shutdown_write(&self) {
        self.0.state.borrow_mut().said_goodbye = true;
        self.0.stream.shutdown_write();
    }

    pub(super) fn unread(&self) -> usize {
        self.0.stream.unread()
    }

    pub(super) fn reset_on_close(&self) {
        self.0.state.borrow_mut().said_goodbye = true;
        self.0.stream.reset_on_close();
    }
}

impl State {
    fn is_pending(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Sends what waits; whether all of it is gone.
    fn push(&mut self, stream: &Stream) -> io::Result<bool> {
        while let Some(rest @ [_, ..]) = self.out.get(self.sent..) {
            match stream.try_write(rest)? {
                Some(n) => self.sent += n,
                None => return Ok(false),
            }
        }
        // An idle connection holds no buffer.
        self.out = Vec::new();
        self.sent = 0;
        Ok(true)
    }

    fn say_goodbye(&mut self, stream: &Stream) {
        if !std::mem::replace(&mut self.said_goodbye, true) && !matches!(self.end, Some(End::Fault(_))) {
            self.session.close(&mut self.out);
            let _sent = self.push(stream);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.state.get_mut().say_goodbye(&self.stream);
    }
}
