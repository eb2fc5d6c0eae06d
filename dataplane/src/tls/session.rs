//! One TLS connection without its socket, of the Node link or to a provider: ciphertext in, plaintext out, and back.
//!
//! ```text
//!             receive                         send
//! socket ───▶ ciphertext ─▶ plaintext    frames ─▶ ciphertext ───▶ socket
//!                  └───────── flush: handshake and alert bytes ──────▲
//! ```
//!
//! Both directions work at any time and in any order, so a reader and a writer may share one session without either
//! waiting for the other's socket. The session holds no output of its own for longer than one call: what has to be sent is
//! appended to the caller's buffer, and there back-pressure lives.

use std::{
    io::{BufRead, Write},
    sync::Arc,
};

use bytes::BytesMut;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use rustls_pki_types::ServerName;
use thiserror::Error;

use super::{
    config::ALPN,
    leaf::PeerIdentity,
    refusal::{Refusal, TlsFault},
};

/// First byte of a TLS record that holds handshake messages (RFC 8446 section 5.1).
pub(crate) const HANDSHAKE_RECORD: u8 = 0x16;
/// First byte of a TLS record that holds an alert.
const ALERT_RECORD: u8 = 0x15;

/// One end of a TLS connection.
///
/// ```text
/// Handshaking ──▶ Open ──▶ peer closed ──▶ (dropped)
///      └────────────┴────▶ Faulted
/// ```
pub struct Session {
    conn: Connection,
    /// Nothing has been received yet.
    fresh: bool,
    /// The configuration is one of the Node link's, where a connection without [`ALPN`] is refused. rustls lets a peer
    /// pass that names no protocol at all.
    alpn_required: bool,
    /// The end of the handshake was seen, and `peer` is what it told.
    established: bool,
    peer: Option<PeerIdentity>,
    peer_closed: bool,
    /// We have sent close_notify; rustls would go on encrypting.
    closed: bool,
    fault: Option<TlsFault>,
}

/// Why plaintext cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The session has faulted or was closed by [`Session::close`].
    #[error("the tls session is closed")]
    Closed,
    /// The peer is not authenticated yet. Nothing is held back to be sent later.
    #[error("the tls handshake is not complete")]
    Handshaking,
}

impl Session {
    /// The end that was dialled.
    ///
    /// # Errors
    /// [`TlsFault`] when rustls refuses the configuration.
    pub fn server(config: Arc<ServerConfig>) -> Result<Self, TlsFault> {
        let alpn_required = requires_alpn(&config.alpn_protocols);
        Ok(Self::new(Connection::from(ServerConnection::new(config)?), alpn_required))
    }

    /// The end that dials. Its first bytes are ready for [`flush`](Self::flush) at once.
    ///
    /// # Errors
    /// [`TlsFault`] when rustls refuses the configuration.
    pub fn client(config: Arc<ClientConfig>, server_name: ServerName<'static>) -> Result<Self, TlsFault> {
        let alpn_required = requires_alpn(&config.alpn_protocols);
        Ok(Self::new(Connection::from(ClientConnection::new(config, server_name)?), alpn_required))
    }

    fn new(mut conn: Connection, alpn_required: bool) -> Self {
        // The bound of what is written is the caller's: everything is moved into its buffer in the same call.
        conn.set_buffer_limit(None);
        Self {
            conn,
            fresh: true,
            alpn_required,
            established: false,
            peer: None,
            peer_closed: false,
            closed: false,
            fault: None,
        }
    }

    /// Takes all of `ciphertext` and appends what it holds to `plaintext`: at most `ciphertext.len()` bytes and one record
    /// (16 KiB) more. Afterwards there may be something to [`flush`](Self::flush), also after a fault.
    ///
    /// What arrived before a broken record is delivered, and nothing from it on. Bytes after the peer's close are dropped.
    ///
    /// # Errors
    /// [`TlsFault`]; the session is over and repeats it.
    pub fn receive(&mut self, ciphertext: &[u8], plaintext: &mut BytesMut) -> Result<(), TlsFault> {
        self.receive_with(ciphertext, |piece| plaintext.extend_from_slice(piece))
    }

    /// As [`receive`](Self::receive), piece by piece.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_with(
        &mut self,
        mut ciphertext: &[u8],
        mut plaintext: impl FnMut(&[u8]),
    ) -> Result<(), TlsFault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        self.check_first_byte(ciphertext)?;
        // An empty read would mean end of file to rustls.
        while !ciphertext.is_empty() && !self.peer_closed {
            let before = ciphertext.len();
            let read = self.conn.read_tls(&mut ciphertext);
            // rustls takes about 4 KiB a time, and refuses only when a message outgrows its bound.
            if read.is_err() || ciphertext.len() == before {
                return Err(self.fail(TlsFault::local(Refusal::Protocol)));
            }
            let processed = self.conn.process_new_packets();
            // Also after an error: the same bytes may hold the end of the handshake, plaintext and then a broken record.
            self.complete_handshake()?;
            self.drain(&mut plaintext);
            match processed {
                Ok(state) => self.peer_closed = state.peer_has_closed(),
                Err(error) => return Err(self.fail(error.into())),
            }
        }
        Ok(())
    }

    /// Encrypts `plaintext` and appends it to `out`, in records of up to 16 KiB: one call costs one record as long as it
    /// fits, so a caller gathers its frames first. Pending handshake bytes go first.
    ///
    /// # Errors
    /// [`SendError`]; nothing of `plaintext` is taken then.
    pub fn send(&mut self, plaintext: &[u8], out: &mut Vec<u8>) -> Result<(), SendError> {
        if self.closed || self.fault.is_some() {
            return Err(SendError::Closed);
        }
        if self.conn.is_handshaking() {
            return Err(SendError::Handshaking);
        }
        if !plaintext.is_empty() && self.conn.writer().write_all(plaintext).is_err() {
            return Err(SendError::Closed);
        }
        self.flush(out);
        Ok(())
    }

    /// Appends to `out` whatever TLS itself has to say: handshake messages, key updates, alerts. After a fault that is the
    /// alert for the peer.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        while self.conn.wants_write() {
            // Writing to a Vec does not fail, and 0 bytes would mean no progress.
            if !matches!(self.conn.write_tls(out), Ok(1..)) {
                return;
            }
        }
    }

    /// Appends close_notify to `out`: the peer knows that nothing was cut off. Receiving goes
    /// on, sending is over.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        self.closed = true;
        self.conn.send_close_notify();
        self.flush(out);
    }

    /// The handshake is not complete; nothing can be sent and no plaintext has arrived.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.conn.is_handshaking()
    }

    /// There is something to [`flush`](Self::flush).
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.conn.wants_write()
    }

    /// The peer has sent close_notify. A socket that ends without it was cut off.
    #[must_use]
    pub const fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// The application protocol, once the handshake is complete.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        if self.conn.is_handshaking() { None } else { self.conn.alpn_protocol() }
    }

    /// Who the peer is, once the handshake is complete. Always there on the Node link; `None` for a peer without a
    /// workload certificate where the configuration lets such peers in.
    #[must_use]
    pub const fn peer(&self) -> Option<&PeerIdentity> {
        self.peer.as_ref()
    }

    /// The handshake was shortened by a remembered session. Never on the Node link.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.conn.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }

    #[cfg(test)]
    pub(super) fn refresh_keys_for_test(&mut self) {
        self.conn.refresh_traffic_keys().unwrap();
    }

    /// Tells HTTP and other strangers on the port apart at their first byte. They get no answer.
    fn check_first_byte(&mut self, ciphertext: &[u8]) -> Result<(), TlsFault> {
        let Some(&first) = ciphertext.first().filter(|_| self.fresh) else {
            return Ok(());
        };
        self.fresh = false;
        // A server may refuse us with an alert before anything else.
        let is_tls = match self.conn {
            Connection::Client(_) => matches!(first, HANDSHAKE_RECORD | ALERT_RECORD),
            Connection::Server(_) => first == HANDSHAKE_RECORD,
        };
        if is_tls {
            return Ok(());
        }
        self.discard_output();
        Err(self.fail(TlsFault::local(Refusal::Plaintext)))
    }

    /// Runs once, before the first plaintext is handed out.
    fn complete_handshake(&mut self) -> Result<(), TlsFault> {
        if self.established || self.conn.is_handshaking() {
            return Ok(());
        }
        if self.alpn_required && self.conn.alpn_protocol() != Some(ALPN) {
            // What is pending on the dialling end is our certificate: this peer gets none of it.
            self.discard_output();
            self.conn.send_close_notify();
            return Err(self.fail(TlsFault::local(Refusal::WrongAlpn)));
        }
        self.established = true;
        let leaf = self.conn.peer_certificates().and_then(<[_]>::first);
        self.peer = leaf.and_then(|leaf| PeerIdentity::from_leaf(leaf).ok());
        Ok(())
    }

    fn drain(&mut self, plaintext: &mut impl FnMut(&[u8])) {
        let mut reader = self.conn.reader();
        while let Ok(chunk) = reader.fill_buf() {
            let taken = chunk.len();
            if taken == 0 {
                return;
            }
            plaintext(chunk);
            reader.consume(taken);
        }
    }

    fn discard_output(&mut self) {
        self.flush(&mut Vec::new());
    }

    fn fail(&mut self, fault: TlsFault) -> TlsFault {
        self.fault = Some(fault.clone());
        fault
    }
}

fn requires_alpn(protocols: &[Vec<u8>]) -> bool {
    protocols.iter().any(|protocol| protocol == ALPN)
}
