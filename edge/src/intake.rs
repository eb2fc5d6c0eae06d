//! Takes a request's body in, and finds out what it asks for.

use std::rc::Rc;

use bytes::Bytes;
use dataplane::{
    http::{
        body::Body,
        coding::{self, Coding, DecodeFault},
        head::RequestHead,
        hop,
        server::{Connection, ReadFault},
    },
    time::yield_now,
};
use proto::message::Header;

use crate::{
    openai::{
        estimate::{self, Estimator},
        scan::{ChatScan, ScanError, Scanner},
    },
    reply::Fault,
    response,
    shard_state::ShardState,
};

/// The media type of every body.
const JSON: &str = "application/json";
/// Bytes of a body that are looked at in one go: a fraction of a millisecond, whatever they are.
const SCAN_BYTES: usize = 64 * 1024;

/// A body that is one JSON object.
#[derive(Debug)]
pub(crate) struct Taken {
    /// As the client sent it, without its content coding.
    pub(crate) body: Body,
    /// What routing needs of it.
    pub(crate) scan: ChatScan,
}

/// Reads the body. `Err(None)` = the client is gone.
pub(crate) async fn take(
    state: &Rc<ShardState>,
    connection: &mut Connection,
    head: &RequestHead,
) -> Result<Taken, Option<Fault>> {
    let coding = Coding::of(&head.headers).map_err(|_| Some(Fault::UnsupportedEncoding))?;
    let limit = state.settings.limits.body_bytes;
    let max = usize::try_from(limit).unwrap_or(usize::MAX);
    let body =
        connection.read_body(max, &state.bodies).await.map_err(|fault| fault_of_body(&fault, limit))?;
    state.metrics.request_bytes.inc_by(body.len() as u64);
    let body = match coding {
        Some(coding) => {
            let decoding = coding::decode(coding, body, max, &state.bodies);
            decoding.await.map_err(|fault| Some(fault_of_coding(coding, fault, limit)))?
        }
        None => body,
    };
    let scan = scan_in_steps(&body).await.map_err(|error| {
        Some(match error {
            ScanError::Syntax(detail) => Fault::BadJson { detail: detail.into(), param: None },
            ScanError::Missing { param } => Fault::MissingField { param },
            ScanError::Member { param, message } => {
                Fault::BadJson { detail: message.into(), param: Some(param.into()) }
            }
        })
    })?;
    Ok(Taken { body, scan })
}

/// The end-to-end headers that go to the provider (TUN-6): no credential of the client's, nothing that is for us. Which pages may
/// call is asked of us too: a provider that has an opinion of its own on an origin would refuse what was let in here. The body is
/// JSON whatever its client called it, curl's `-d` for one a form, and goes out as JSON: engines refuse other names.
pub(crate) fn wire_headers(head: &RequestHead, credential: Option<&str>) -> Vec<Header> {
    let own = |name: &str| {
        matches!(name, "accept-encoding" | "content-encoding" | "origin") || credential == Some(name)
    };
    let mut is_json = false;
    let mut headers: Vec<_> = hop::forwardable_request(&head.headers)
        .filter(|(name, _)| !own(name))
        .filter(|(name, value)| {
            let keeps = *name != "content-type" || response::names(value, JSON);
            is_json |= keeps && *name == "content-type";
            keeps
        })
        .map(|(name, value)| Header { name: name.to_owned(), value: Bytes::copy_from_slice(value) })
        .collect();
    if !is_json {
        headers.push(Header { name: "content-type".to_owned(), value: Bytes::from_static(JSON.as_bytes()) });
    }
    headers
}

/// Scans a body without keeping the shard's other tasks waiting for all of it.
async fn scan_in_steps(body: &Body) -> Result<ChatScan, ScanError> {
    let mut scanner = Scanner::default();
    for step in body.pieces().iter().flat_map(|piece| piece.chunks(SCAN_BYTES)) {
        scanner.push(step)?;
        if body.len() > SCAN_BYTES {
            yield_now().await;
        }
    }
    scanner.finish()
}

/// About how many input tokens a request has; 0 where its length alone says that they are below `least`.
pub(crate) async fn input_tokens(body: &Body, least: u64) -> u64 {
    if estimate::text_tokens_max(body) < least {
        return 0;
    }
    let mut estimator = Estimator::default();
    for step in body.pieces().iter().flat_map(|piece| piece.chunks(SCAN_BYTES)) {
        estimator.push(step);
        if body.len() > SCAN_BYTES {
            yield_now().await;
        }
    }
    estimator.finish()
}

/// What to tell a client whose body is refused; `None` when nobody would read it.
fn fault_of_body(fault: &ReadFault, limit: u64) -> Option<Fault> {
    Some(match fault.status()? {
        408 => Fault::RequestTimeout,
        413 => Fault::BodyTooLarge { limit },
        503 => Fault::NoBodyRoom,
        _ => Fault::BadFraming { detail: fault.to_string().into() },
    })
}

/// As [`fault_of_body`], for a content coding.
fn fault_of_coding(coding: Coding, fault: DecodeFault, limit: u64) -> Fault {
    let coding = coding.name();
    match fault {
        DecodeFault::TooLarge => Fault::BodyTooLarge { limit },
        DecodeFault::Expands => Fault::BodyExpands { coding },
        DecodeFault::NoRoom => Fault::NoBodyRoom,
        DecodeFault::Corrupt | DecodeFault::Truncated | DecodeFault::Trailing | DecodeFault::Unusual => {
            Fault::BadCoding { coding, detail: fault.to_string() }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::mpsc};

    use dataplane::{
        local::Latch,
        shard::{DriverWish, Shard, ShardSpec, spawn_guarded},
    };

    use super::*;

    /// A body of about `len` bytes, in pieces.
    fn body(len: usize) -> Body {
        let text = format!("{{\"model\":\"m\",\"x\":[{}1]}}", "1,".repeat(len / 2));
        text.into_bytes().chunks(256 * 1024).map(Bytes::copy_from_slice).collect()
    }

    /// How often another task of the shard gets its turn while a body is scanned.
    async fn turns_beside(body: Body) -> usize {
        let (over, turns) = (Rc::new(Latch::new()), Rc::new(Cell::new(0)));
        let (scanned, counted) = (Rc::clone(&over), Rc::clone(&turns));
        spawn_guarded(async move {
            let scan = scan_in_steps(&body).await;
            assert_eq!(scan.map(|scan| scan.model), Ok("m".to_owned()));
            scanned.close();
        });
        let until = Rc::clone(&over);
        spawn_guarded(async move {
            while !until.is_closed() {
                counted.set(counted.get() + 1);
                yield_now().await;
            }
        });
        over.closed().await;
        turns.get()
    }

    #[test]
    fn a_large_body_is_scanned_in_steps_between_which_others_run() {
        let (tell, told) = mpsc::channel();
        let spec = ShardSpec { name: "test".to_owned(), cpu: None, driver: DriverWish::Epoll };
        let shard = Shard::start(spec, move || async move {
            let (small, large) = (turns_beside(body(1000)).await, turns_beside(body(4 << 20)).await);
            let _told = tell.send((small, large));
        });
        assert!(shard.unwrap().join());
        let (small, large) = told.recv().unwrap();
        assert!(small <= 1, "{small} turns");
        assert!(large >= (4 << 20) / SCAN_BYTES, "{large} turns");
    }
}
