//! One question of a probe: one request on a connection of its own, and as much of the answer as is looked at.

use std::{io, net::SocketAddr};

use bytes::BytesMut;
use dataplane::{
    http::client::{ClientError, ConnectError, Custody, Exchange, Outgoing},
    net::DialError,
};

use super::{
    judge::{ANSWER_BYTES_MAX, Answer, Fault, Proof},
    question::Question,
};
use crate::adapters::Provider;

/// Asks, at each address of the origin until one takes the connection. May be dropped freely; the connection is closed then.
pub(super) async fn ask(provider: &Provider, question: &Question) -> Result<Answer, Fault> {
    let exchange = reach(provider, question).await?;
    let status = exchange.head.status;
    match question.proof {
        // What stands in it counts for nothing.
        Proof::Answers => Ok(Answer { status, body: BytesMut::new() }),
        Proof::Listed | Proof::Generates => Ok(Answer { status, body: whole(exchange).await? }),
    }
}

/// A provider that has moved is looked up once more.
async fn reach(provider: &Provider, question: &Question) -> Result<Exchange, Fault> {
    let mut tried = Vec::new();
    let mut refused = false;
    loop {
        let known = provider.addresses.addresses(&question.origin).await.map_err(|_| Fault::Odd)?;
        let fresh: Vec<_> = known.into_iter().filter(|address| !tried.contains(address)).collect();
        if fresh.is_empty() {
            return Err(if refused { Fault::Refused } else { Fault::Odd });
        }
        for address in fresh {
            match send(provider, address, question).await {
                Ok(exchange) => return Ok(exchange),
                Err(ClientError::Connect(ConnectError::Tcp(DialError::Io(_, error)))) => {
                    refused |= error.kind() == io::ErrorKind::ConnectionRefused;
                }
                Err(_) => return Err(Fault::Odd),
            }
            tried.push(address);
        }
        provider.addresses.forget(&question.origin);
    }
}

async fn send(
    provider: &Provider,
    address: SocketAddr,
    question: &Question,
) -> Result<Exchange, ClientError> {
    let key = provider.key(&question.origin, &question.authority, address);
    let outgoing = Outgoing {
        method: &question.method,
        target: &question.target,
        headers: &question.fields,
        body: question.body.clone(),
    };
    provider.probes.pool.send(&key, &outgoing, &Custody::default()).await
}

async fn whole(mut exchange: Exchange) -> Result<BytesMut, Fault> {
    let mut body = BytesMut::new();
    while let Some(piece) = exchange.next().await.map_err(|_| Fault::Odd)? {
        if body.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err(Fault::TooLarge);
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}
