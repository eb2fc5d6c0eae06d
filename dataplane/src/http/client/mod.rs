//! The HTTP/1.1 client of the Node: one request and its answer on one connection (RFC 9112), under TLS where the key says so.
//!
//! [`Pool::send`] writes a request and gives the [`Exchange`] whose head has come. The caller takes the body with
//! [`Exchange::next`] and [`Exchange::try_next`]. Dropping either early is how a request is cancelled (security.md row 23): the
//! connection goes into the request's [`Custody`], whose owner waits for the provider's return or closes it.

pub mod abort;
mod conn;
mod custody;
mod error;
mod exchange;
mod heads;
mod secure;
#[cfg(test)]
mod tests;
mod upload;

use std::time::Duration;

use bytes::Bytes;

pub(super) use conn::{Conn, RECEIVE_MAX, Wire};
pub use custody::{Abandoned, Custody};
pub use error::{ClientError, ConnectError};
pub use exchange::Exchange;
pub use secure::Tls;
pub(super) use secure::connect as connect_secure;

use super::{
    h1::{
        body::BodyDecoder,
        encode::{self, Framing},
    },
    head::{Headers, Method},
    limits::Limits,
    pool::{Key, Pool},
};
use heads::Heads;

/// A request to a provider. `Host` comes from the key, and `Content-Length` from the body; such fields in `headers`, and
/// `transfer-encoding` and `connection`, are not sent.
#[derive(Clone, Debug)]
pub struct Outgoing<'a> {
    /// Method token, e.g. `POST`.
    pub method: &'a str,
    /// Request target in origin form: path and query.
    pub target: &'a str,
    /// Fields, names in lower case.
    pub headers: &'a Headers,
    /// The body, empty for none.
    pub body: Bytes,
}

/// A body up to this goes out in the write of its head.
const JOINED_MAX: usize = 64 * 1024;

/// A request as bytes, so that it can be sent a second time.
#[derive(Debug)]
pub(super) struct Request {
    method: Method,
    /// The head, with a small body behind it; then a large body.
    parts: [Bytes; 2],
}

impl Request {
    pub(super) fn encode(key: &Key, request: &Outgoing<'_>) -> Result<Self, ClientError> {
        let method = Method::from_token(request.method);
        // A server may want to know that an empty body is meant where a body is usual (RFC 9110 section 8.6).
        let has_body = !request.body.is_empty() || matches!(request.method, "POST" | "PUT" | "PATCH");
        let framing = if has_body { Framing::Length(request.body.len() as u64) } else { Framing::None };
        let joined = if request.body.len() <= JOINED_MAX { request.body.as_ref() } else { &[] };
        let mut head = Vec::with_capacity(1024 + joined.len());
        encode::request_head(
            &mut head,
            &method,
            request.target,
            &key.authority,
            request.headers.raw(),
            framing,
        )
        .map_err(ClientError::Request)?;
        head.extend_from_slice(joined);
        let rest = if joined.is_empty() { request.body.clone() } else { Bytes::new() };
        Ok(Self { method, parts: [head.into(), rest] })
    }
}

/// A request that got no head of an answer.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) error: ClientError,
    /// Whether any byte of an answer had come.
    pub(super) heard: bool,
}

/// Sends `request` on `conn` and waits for the head of the answer.
pub(super) async fn attempt(
    pool: &Pool,
    mut conn: Conn,
    request: &Request,
    (limits, stall): (&Limits, Duration),
    custody: &Custody,
) -> Result<Exchange, Attempt> {
    conn.begin(custody.clone());
    let mut heads = Heads::new(limits, pool.scratch());
    let answer = async {
        let sent = upload::upload(&mut conn, &mut heads, &request.parts, stall).await?;
        if sent.whole {
            conn.sent();
        }
        let head = match sent.early {
            Some(head) => head,
            None => heads.wait(&mut conn).await?,
        };
        let decoder = BodyDecoder::for_response(&head, &request.method, limits)?;
        Ok((head, decoder, sent.whole))
    };
    match answer.await {
        Ok((head, decoder, whole)) => Ok(Exchange::new(pool.clone(), conn, head, decoder, whole)),
        Err(error) => {
            conn.release();
            Err(Attempt { error, heard: heads.heard })
        }
    }
}
