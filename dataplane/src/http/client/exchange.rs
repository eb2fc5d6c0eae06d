//! An answer whose head has come, and its body.

use bytes::Bytes;

use super::{
    ClientError,
    conn::{Conn, Received},
};
use crate::http::{
    h1::body::{BodyDecoder, Decoded},
    head::{ResponseHead, Version, list_elements},
    pool::Pool,
};

/// An answer whose head is there. Dropped before its end it leaves its connection in the [`Custody`](super::Custody) of its
/// request, which closes it: that is how the provider learns that nobody wants the rest.
#[derive(Debug)]
pub struct Exchange {
    /// Its head, never a 1xx.
    pub head: ResponseHead,
    /// Whether it came on a connection that had served an earlier request.
    pub reused: bool,
    /// Whether a reused connection failed first and the request was sent again on a fresh one (TUN-7).
    pub retried: bool,
    pool: Pool,
    /// `None` once the body has ended, well or badly.
    conn: Option<Conn>,
    decoder: BodyDecoder,
    keep: bool,
    failed: bool,
}

impl Exchange {
    /// `whole`: the provider took all of the request.
    pub(super) fn new(pool: Pool, conn: Conn, head: ResponseHead, decoder: BodyDecoder, whole: bool) -> Self {
        let keep = whole && may_be_kept(&head) && !decoder.is_until_close();
        let mut exchange = Self {
            head,
            reused: false,
            retried: false,
            pool,
            conn: Some(conn),
            decoder,
            keep,
            failed: false,
        };
        if exchange.decoder.is_end() {
            exchange.finish();
        }
        exchange
    }

    /// The next piece of the body, never empty; waits for it without a buffer. `None` after a proper end. May be dropped
    /// and called again: nothing is lost. By the time the last piece of a body of known length is given, or of a chunked one
    /// whose end came with it, or else `None`, the connection is back in the pool, if it may be.
    ///
    /// # Errors
    /// The answer is cut or malformed; the connection is closed.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            if let Some(next) = self.try_next() {
                return next;
            }
            if let Some(conn) = &mut self.conn
                && let Err(error) = conn.wait().await
            {
                return self.fail(ClientError::ConnectionReset(error));
            }
        }
    }

    /// As [`Exchange::next`] for as long as it need not wait. `None` = it would have to, `Some(Ok(None))` = proper end.
    ///
    /// # Errors
    /// As [`Exchange::next`].
    pub fn try_next(&mut self) -> Option<Result<Option<Bytes>, ClientError>> {
        loop {
            let Some(conn) = &mut self.conn else {
                return Some(if self.failed { Err(ClientError::AlreadyFailed) } else { Ok(None) });
            };
            match self.decoder.decode(&mut conn.buffer) {
                Ok(Decoded::Data(piece)) => {
                    if self.decoder.is_end() {
                        self.finish();
                    }
                    return Some(Ok(Some(piece)));
                }
                Ok(Decoded::End) => self.finish(),
                Ok(Decoded::NeedMore) => match conn.receive(self.pool.scratch()) {
                    Ok(Received::Data) => {}
                    Ok(Received::Nothing) => return None,
                    Ok(Received::End) if self.decoder.finish_at_eof().is_ok() => self.close(),
                    Ok(Received::End | Received::Cut) => return Some(self.fail(ClientError::Truncated)),
                    Err(error) => return Some(self.fail(ClientError::ConnectionReset(error))),
                },
                Err(fault) => return Some(self.fail(fault.into())),
            }
        }
    }

    /// Whether the body ends with the connection, so that its end proves nothing (RFC 9112 section 8).
    #[must_use]
    pub fn is_until_close(&self) -> bool {
        self.decoder.is_until_close()
    }

    /// Whether the body has come to its proper end.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.conn.is_none() && !self.failed
    }

    fn close(&mut self) {
        if let Some(mut conn) = self.conn.take() {
            conn.release();
        }
    }

    fn fail(&mut self, error: ClientError) -> Result<Option<Bytes>, ClientError> {
        self.close();
        self.failed = true;
        Err(error)
    }

    /// The body is over: the connection goes back, or is closed where anything speaks against its reuse.
    fn finish(&mut self) {
        let Some(mut conn) = self.conn.take() else { return };
        conn.release();
        if self.keep && !conn.has_surplus() {
            self.pool.put(conn);
        }
    }
}

/// Whether the provider lets the connection be used again (RFC 9112 section 9.3). HTTP/1.0 keep-alive is not trusted.
fn may_be_kept(head: &ResponseHead) -> bool {
    let mut options = head.headers.get_all("connection").flat_map(list_elements);
    head.version == Version::Http11 && !options.any(|option| option.eq_ignore_ascii_case(b"close"))
}
