//! From a connected socket to an authenticated session, within a deadline.
//!
//! ```text
//!   Connected ──▶ Handshaking ──▶ Established
//!                     └──▶ refused (alert sent), timed out, closed by the peer
//! ```
//! On TLS 1.3 the dialling end is done before the other end has judged its certificate: a refusal of the Edge reaches a
//! Node as an alert on its first read, and so as [`CloseReason::Tls`](super::CloseReason::Tls) of its link.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::ServerName;
use thiserror::Error;

use crate::{
    clock,
    net::{Stream, WriteFault},
    time::before,
    tls::{
        refusal::{Refusal, TlsFault},
        session::Session,
    },
};

/// What one read of a handshake may take: every flight of a chain within its bound.
const READ_BYTES: usize = 32 * 1024;
/// How long a refused peer is given to take its alert before the socket closes.
const ALERT_LINGER: Duration = Duration::from_millis(500);
/// What a refused peer may send meanwhile.
const ALERT_LINGER_BYTES: usize = 256 * 1024;

/// A socket with an authenticated peer.
pub struct Established {
    /// The socket, with no byte of the session left unread in our buffers but `early`.
    pub stream: Stream,
    /// The session; [`Session::peer`] says who it is.
    pub session: Session,
    /// Plaintext that came with the last bytes of the handshake; goes to [`Link::run`](super::Link::run).
    pub early: BytesMut,
}

impl std::fmt::Debug for Established {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Established").field("early", &self.early.len()).finish_non_exhaustive()
    }
}

/// Why there is no session.
#[derive(Debug, Error)]
pub enum HandshakeError {
    /// TLS or the certificate policy of one of the ends, a stranger's first byte, or the deadline
    /// ([`Refusal::HandshakeTimeout`]).
    #[error(transparent)]
    Tls(#[from] TlsFault),
    /// The peer closed the connection in the middle.
    #[error("the peer closed the connection during the tls handshake")]
    Closed,
    /// The socket broke.
    #[error("the connection broke during the tls handshake")]
    Io(#[from] io::Error),
}

impl HandshakeError {
    /// The reason, where it is one of the closed list; `None` when the peer went away without any.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Tls(fault) => Some(fault.refusal()),
            Self::Closed | Self::Io(_) => None,
        }
    }
}

/// The accepting end's handshake, to be over by `deadline`.
///
/// # Errors
/// [`HandshakeError`]; the socket is closed.
pub async fn accept(
    stream: Stream,
    config: Arc<ServerConfig>,
    deadline: Instant,
) -> Result<Established, HandshakeError> {
    drive(stream, Box::new(Session::server(config)?), deadline).await
}

/// The dialling end's handshake, to be over by `deadline`. `server_name` is never compared with the certificate where the
/// configuration's verifier judges the workload identity instead.
///
/// # Errors
/// [`HandshakeError`]; the socket is closed.
pub async fn connect(
    stream: Stream,
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
    deadline: Instant,
) -> Result<Established, HandshakeError> {
    drive(stream, Box::new(Session::client(config, server_name)?), deadline).await
}

/// The session is boxed while it waits: it is the bulk of the future, and futures are moved.
async fn drive(
    mut stream: Stream,
    mut session: Box<Session>,
    deadline: Instant,
) -> Result<Established, HandshakeError> {
    let early = shake(&mut stream, &mut session, BytesMut::new(), deadline).await?;
    Ok(Established { stream, session: *session, early })
}

/// Drives a session to the end of its handshake; `received` is what came before. Gives plaintext that came with its last bytes.
///
/// # Errors
/// [`HandshakeError`]; the peer has been told, and the socket is to be closed.
pub(crate) async fn shake(
    stream: &mut Stream,
    session: &mut Session,
    received: BytesMut,
    deadline: Instant,
) -> Result<BytesMut, HandshakeError> {
    let mut early = BytesMut::new();
    let mut cipher = received;
    let mut out = Vec::new();
    loop {
        if !cipher.is_empty()
            && let Err(fault) = session.receive(&cipher, &mut early)
        {
            refuse(stream, session, deadline).await;
            return Err(fault.into());
        }
        session.flush(&mut out);
        if !out.is_empty() {
            let (written, buffer) = stream.write_all(out, deadline).await;
            written?;
            out = buffer;
            out.clear();
        }
        if !session.is_handshaking() {
            return Ok(early);
        }
        cipher.clear();
        match before(deadline, stream.read_some(&mut cipher, READ_BYTES)).await {
            None => return Err(TlsFault::local(Refusal::HandshakeTimeout).into()),
            Some(Ok(0)) => return Err(HandshakeError::Closed),
            Some(read) => read?,
        };
    }
}

/// Gets the alert to the peer: a socket that is closed with unread bytes sends RST, which may overtake it.
async fn refuse(stream: &mut Stream, session: &mut Session, deadline: Instant) {
    let until = deadline.min(clock::now() + ALERT_LINGER);
    let mut out = Vec::new();
    session.flush(&mut out);
    if out.is_empty() || stream.write_all(out, until).await.0.is_err() {
        return;
    }
    stream.shutdown_write();
    let mut rest = BytesMut::new();
    let mut taken = 0;
    while taken < ALERT_LINGER_BYTES {
        rest.clear();
        match before(until, stream.read_some(&mut rest, READ_BYTES)).await {
            Some(Ok(bytes @ 1..)) => taken += bytes,
            _ => return,
        }
    }
}

impl From<WriteFault> for HandshakeError {
    fn from(fault: WriteFault) -> Self {
        match fault {
            WriteFault::Stalled => TlsFault::local(Refusal::HandshakeTimeout).into(),
            WriteFault::Io(error) => Self::Io(error),
        }
    }
}
