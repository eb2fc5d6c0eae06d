//! One question of a probe: one request on a connection of its own, and as much of the answer as is looked at.

use std::{io, net::SocketAddr, rc::Rc};

use bytes::BytesMut;
use dataplane::{
    http::{
        client::{ClientError, Custody, Exchange, Outgoing},
        pool::{Key, Pool},
    },
    net::DialError,
};

use super::{
    judge::{ANSWER_BYTES_MAX, Answer, Fault, Proof},
    question::Question,
};
use crate::adapters::addresses::AddressBook;

/// Connections of probes are never shared, so their requests need no telling apart.
const NO_CREDENTIAL: u64 = 0;

/// Asks, at each address of the origin until one takes the connection. May be dropped freely; the connection is closed then.
pub(super) async fn ask(pool: &Pool, book: &AddressBook, question: &Question) -> Result<Answer, Fault> {
    let exchange = reach(pool, book, question).await?;
    let status = exchange.head.status;
    match question.proof {
        // What stands in it counts for nothing.
        Proof::Answers => Ok(Answer { status, body: BytesMut::new() }),
        Proof::Listed | Proof::Generates => Ok(Answer { status, body: whole(exchange).await? }),
    }
}

/// A provider that has moved is looked up once more.
async fn reach(pool: &Pool, book: &AddressBook, question: &Question) -> Result<Exchange, Fault> {
    let mut tried = Vec::new();
    let mut refused = false;
    loop {
        let known = book.addresses(&question.origin).await.map_err(|_| Fault::Odd)?;
        let fresh: Vec<_> = known.into_iter().filter(|address| !tried.contains(address)).collect();
        if fresh.is_empty() {
            return Err(if refused { Fault::Refused } else { Fault::Odd });
        }
        for address in fresh {
            match send(pool, address, question).await {
                Ok(exchange) => return Ok(exchange),
                Err(ClientError::Connect(DialError::Io(_, error))) => {
                    refused |= error.kind() == io::ErrorKind::ConnectionRefused;
                }
                Err(_) => return Err(Fault::Odd),
            }
            tried.push(address);
        }
        book.forget(&question.origin);
    }
}

async fn send(pool: &Pool, address: SocketAddr, question: &Question) -> Result<Exchange, ClientError> {
    let key = Key { address, authority: Rc::clone(&question.authority), credential: NO_CREDENTIAL };
    let outgoing = Outgoing {
        method: &question.method,
        target: &question.target,
        headers: &question.fields,
        body: question.body.clone(),
    };
    pool.send(&key, &outgoing, &Custody::default()).await
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
