//! One question of a probe: one request on a connection of its own, and as much of the answer as is looked at.

use std::{io, net::SocketAddr};

use bytes::BytesMut;
use dataplane::{
    http::client::{ClientError, ConnectError, Custody, Exchange, Outgoing},
    net::DialError,
};

use super::{
    judge::{Answer, Fault},
    question::Request,
};
use crate::adapters::{Provider, openai_compat::credentials};

/// Asks, at each address of the origin until one takes the connection, and reads a body of at most `bytes_max`; with 0, and
/// of a status of 500 or more, none at all. May be dropped freely; the connection is closed then.
pub(super) async fn ask(provider: &Provider, request: &Request, bytes_max: usize) -> Result<Answer, Fault> {
    let exchange = reach(provider, request).await?;
    let status = exchange.head.status;
    // A server that is broken may never end the words it has about that.
    let is_judged = bytes_max == 0 || status >= 500;
    let body = if is_judged { BytesMut::new() } else { whole(exchange, bytes_max).await? };
    Ok(Answer { status, body })
}

/// A provider that has moved is looked up once more.
async fn reach(provider: &Provider, request: &Request) -> Result<Exchange, Fault> {
    let mut tried = Vec::new();
    let mut refused = false;
    loop {
        let known = provider.addresses.addresses(&request.origin).await.map_err(|_| Fault::Odd)?;
        let fresh: Vec<_> = known.into_iter().filter(|address| !tried.contains(address)).collect();
        if fresh.is_empty() {
            return Err(if refused { Fault::Refused } else { Fault::Odd });
        }
        for address in fresh {
            match send(provider, address, request).await {
                Ok(exchange) => return Ok(exchange),
                Err(ClientError::Connect(ConnectError::Tcp(DialError::Io(_, error)))) => {
                    refused |= error.kind() == io::ErrorKind::ConnectionRefused;
                }
                Err(_) => return Err(Fault::Odd),
            }
            tried.push(address);
        }
        provider.addresses.forget(&request.origin);
    }
}

async fn send(provider: &Provider, address: SocketAddr, request: &Request) -> Result<Exchange, ClientError> {
    // No connection of a probe serves a second request.
    let key = provider.key(&request.origin, &request.authority, address, credentials::NONE);
    let outgoing = Outgoing {
        method: &request.method,
        target: &request.target,
        headers: &request.fields,
        body: request.body.clone(),
    };
    provider.probes.pool.send(&key, &outgoing, &Custody::default()).await
}

async fn whole(mut exchange: Exchange, bytes_max: usize) -> Result<BytesMut, Fault> {
    let mut body = BytesMut::new();
    while let Some(piece) = exchange.next().await.map_err(|_| Fault::Odd)? {
        if body.len() + piece.len() > bytes_max {
            return Err(Fault::TooLarge);
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}
