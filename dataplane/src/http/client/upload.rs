//! Writing a request, with an ear for an answer that comes before its end.

use std::{io, pin::pin, time::Duration};

use bytes::Bytes;
use futures::future::{Either, LocalBoxFuture, select};

use super::{
    ClientError,
    conn::{Conn, Wire},
    heads::Heads,
};
use crate::{clock, http::head::ResponseHead, net::WriteFault, time::before};

/// Most bytes of a body that one write takes.
const WRITE_MAX: usize = 256 * 1024;
/// A body up to this goes out in the write of its head.
const JOINED_MAX: usize = 64 * 1024;
/// Once the provider has spoken, how long the write under way may take before it is given up for reading. A provider that
/// refuses a body without reading it would otherwise hold us for the whole write stall.
const EARLY_GRACE: Duration = Duration::from_secs(2);

/// How far an upload came.
#[derive(Debug)]
pub(super) struct Sent {
    /// The answer's head, where it came before the request's end.
    pub(super) early: Option<ResponseHead>,
    /// Whether the provider has got all of the request. If not, the connection ends with the answer.
    pub(super) whole: bool,
}

/// Writes `head` and `body`. An early answer that is no success (3xx to 5xx) ends it; a 2xx lets it go on to its end.
pub(super) async fn upload(
    conn: &mut Conn,
    heads: &mut Heads<'_>,
    (head, body): (Bytes, Bytes),
    stall: Duration,
) -> Result<Sent, ClientError> {
    if body.len() <= JOINED_MAX {
        let message = if body.is_empty() { head } else { [head, body].concat().into() };
        return match conn.wire.write_all(message, clock::now() + stall).await {
            Ok(()) => Ok(Sent { early: None, whole: true }),
            Err(fault) => answer_despite(conn, heads, fault),
        };
    }
    let mut watch: Option<Watch> = Some(Box::pin(conn.wire.watch()));
    let mut early = None;
    let mut next = head;
    let mut rest = body;
    while !next.is_empty() {
        let (heard, written) = write(&mut conn.wire, next, stall, &mut watch).await;
        if let Some(Err(fault)) = written {
            // The answer that explains the fault may be there, and may have been before it.
            return match early {
                Some(head) => Ok(Sent { early: Some(head), whole: false }),
                None => answer_despite(conn, heads, fault),
            };
        }
        next = rest.split_to(rest.len().min(WRITE_MAX));
        if !heard {
            continue;
        }
        conn.rouse();
        early = heads.take(conn)?;
        match (&early, written.is_some()) {
            (Some(head), true) if head.status < 300 => {}
            (Some(_), written) => return Ok(Sent { early, whole: written && next.is_empty() }),
            (None, true) => watch = Some(Box::pin(conn.wire.watch())),
            (None, false) => return Err(WriteFault::Stalled.into()),
        }
    }
    Ok(Sent { early, whole: true })
}

type Watch = LocalBoxFuture<'static, io::Result<()>>;

/// Writes one part. Gives whether the provider was heard meanwhile, and the write's result unless it was given up.
async fn write(
    wire: &mut Wire,
    part: Bytes,
    stall: Duration,
    watch: &mut Option<Watch>,
) -> (bool, Option<Result<(), WriteFault>>) {
    let mut writing = pin!(wire.write_all(part, clock::now() + stall));
    let Some(watching) = watch else {
        return (false, Some(writing.await));
    };
    match select(writing.as_mut(), watching).await {
        Either::Left((result, _)) => (false, Some(result)),
        Either::Right(_) => {
            *watch = None;
            (true, before(clock::now() + EARLY_GRACE, writing).await)
        }
    }
}

/// The answer that a provider gave before it stopped taking the request: what has arrived can still be read.
fn answer_despite(conn: &mut Conn, heads: &mut Heads<'_>, fault: WriteFault) -> Result<Sent, ClientError> {
    conn.rouse();
    match heads.take(conn) {
        Ok(Some(head)) => Ok(Sent { early: Some(head), whole: false }),
        Ok(None) | Err(ClientError::NoAnswer | ClientError::ConnectionReset(_)) => Err(fault.into()),
        Err(error) => Err(error),
    }
}
