//! What carries a client's bytes: a plain socket, or a TLS session over one.
//!
//! Both behave alike, so that whoever speaks HTTP over it need not know. What differs stands here: under TLS a socket with nothing
//! to say may still have plaintext behind it ([`Wire::has_buffered`]), an end without close_notify is an error and no end, and a
//! clean end of ours is close_notify and FIN.

use std::{future::Future, io, net::SocketAddr, time::Duration};

use bytes::BytesMut;
use futures::future::Either;

use super::secure::Secure;
use crate::net::{Stream, WriteFault};

/// A connection's transport. An enum and no trait object: the plain one costs a comparison.
#[derive(Debug)]
pub enum Wire {
    /// The socket as it is.
    Plain(Stream),
    /// A TLS session whose handshake is over.
    Secure(Secure),
}

impl Wire {
    /// The client's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        match self {
            Self::Plain(stream) => stream.peer_addr(),
            Self::Secure(secure) => secure.stream().peer_addr(),
        }
    }

    /// Whether the client asked for HTTP/2 in the handshake and got it (RFC 7301). Never on a plain socket, where only the
    /// first bytes can tell.
    #[must_use]
    pub fn is_http2(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Secure(secure) => secure.is_http2(),
        }
    }

    /// Whether [`Wire::try_read`] has something to say whatever the socket says.
    #[must_use]
    pub fn has_buffered(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Secure(secure) => secure.has_buffered(),
        }
    }

    /// Waits until [`Wire::try_read`] has something to say, under TLS possibly `None` once more. Holds no buffer; may be dropped
    /// freely.
    ///
    /// # Errors
    /// The poll itself failed.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.readable().await,
            Self::Secure(secure) if secure.has_buffered() => Ok(()),
            Self::Secure(secure) => secure.stream().readable().await,
        }
    }

    /// As [`Wire::readable`], with its own hold on the socket. It knows what was buffered when it was made: what is read past
    /// it meanwhile and buffered does not wake it.
    pub fn watch(&self) -> impl Future<Output = io::Result<()>> + use<> {
        match self {
            Self::Plain(stream) => Either::Left(stream.watch()),
            Self::Secure(secure) if secure.has_buffered() => Either::Right(std::future::ready(Ok(()))),
            Self::Secure(secure) => Either::Left(secure.stream().watch()),
        }
    }

    /// Appends at most `max` bytes, at least 1, without waiting. `None` = nothing there, `Some(0)` = the client has ended its side.
    ///
    /// # Errors
    /// The connection broke; [`io::ErrorKind::UnexpectedEof`]: it ended without TLS's close_notify;
    /// [`io::ErrorKind::InvalidData`]: TLS is broken or was ended by an alert.
    pub fn try_read(&self, buffer: &mut BytesMut, max: usize) -> io::Result<Option<usize>> {
        match self {
            Self::Plain(stream) => stream.try_read(buffer, max),
            Self::Secure(secure) => secure.try_read(buffer, max),
        }
    }

    /// Takes what it can of `bytes` without waiting. `None` = nothing now: wait for [`Wire::writable`]. What was taken is on its way, or
    /// under TLS waits for [`Wire::try_flush`].
    ///
    /// # Errors
    /// The connection broke.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match self {
            Self::Plain(stream) => stream.try_write(bytes),
            Self::Secure(secure) => secure.try_write(bytes),
        }
    }

    /// Whether everything that was taken is in the kernel's hands, now that it was offered once more. `false` = wait for
    /// [`Wire::writable`].
    ///
    /// # Errors
    /// The connection broke.
    pub fn try_flush(&self) -> io::Result<bool> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Secure(secure) => secure.try_flush(),
        }
    }

    /// Waits until [`Wire::try_write`] has something to say. Holds no buffer; may be dropped freely, and may wait beside a
    /// [`Wire::watch`].
    ///
    /// # Errors
    /// The poll itself failed.
    pub async fn writable(&self) -> io::Result<()> {
        self.socket().writable().await
    }

    /// As [`Wire::writable`], with its own hold on the socket.
    pub fn watch_writable(&self) -> impl Future<Output = io::Result<()>> + use<> {
        self.socket().watch_writable()
    }

    /// Bytes that the kernel holds for the client and it has not acknowledged.
    ///
    /// # Errors
    /// The socket is dead.
    pub fn unacknowledged(&self) -> io::Result<usize> {
        self.socket().unacknowledged()
    }

    /// As [`Stream::send_all`].
    ///
    /// # Errors
    /// As [`Stream::send_all`].
    pub async fn send_all(&self, bytes: &[u8], stall: Duration) -> Result<(), WriteFault> {
        match self {
            Self::Plain(stream) => stream.send_all(bytes, stall).await,
            // In a box of its own: the task of a plain connection is not to be as large as this.
            Self::Secure(secure) => Box::pin(secure.send_all(bytes, stall)).await,
        }
    }

    /// Says under TLS, by close_notify, that nothing more comes and nothing was cut off; [`Wire::shutdown_write`] is to follow.
    ///
    /// # Errors
    /// The client takes nothing for `stall`, or the connection broke.
    pub async fn say_goodbye(&self, stall: Duration) -> Result<(), WriteFault> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Secure(secure) => Box::pin(secure.say_goodbye(stall)).await,
        }
    }

    /// Sends FIN.
    pub fn shutdown_write(&self) {
        self.socket().shutdown_write();
    }

    /// As [`Stream::reset_on_close`].
    pub fn reset_on_close(&self) {
        self.socket().reset_on_close();
    }

    /// As [`Stream::end_on_close`].
    pub fn end_on_close(&self) {
        self.socket().end_on_close();
    }

    /// Waits for bytes that nobody is to look at, under TLS ciphertext, and appends at most `max` of them; 0 = end of stream.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn discard_some(&self, sink: &mut BytesMut, max: usize) -> io::Result<usize> {
        self.socket().read_some(sink, max).await
    }

    /// Whether the client has ended its side or the connection broke, as far as can be seen past what it has sent in advance.
    #[must_use]
    pub fn has_left(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_at_end(),
            Self::Secure(secure) => secure.has_left(),
        }
    }

    /// A second hold on the same connection, which stays open until both are dropped.
    #[must_use]
    pub fn share(&self) -> Self {
        match self {
            Self::Plain(stream) => Self::Plain(stream.share()),
            Self::Secure(secure) => Self::Secure(secure.clone()),
        }
    }

    /// Bytes that have arrived at the socket and were not read.
    #[cfg(test)]
    pub(super) fn unread(&self) -> usize {
        self.socket().unread()
    }

    fn socket(&self) -> &Stream {
        match self {
            Self::Plain(stream) => stream,
            Self::Secure(secure) => secure.stream(),
        }
    }
}

impl From<Stream> for Wire {
    fn from(stream: Stream) -> Self {
        Self::Plain(stream)
    }
}
