//! One request to a provider and its answer, within the credit of its stream (WIR-6).
//!
//! The pool keeps connections alive and sends a request a second time on a fresh connection when a kept one failed before
//! any byte of an answer (TUN-7). Dropping the future at any point is how a run is stopped: the connection of a request that
//! the provider may be at work on is left in the run's custody then, and any other is closed.

use std::net::SocketAddr;

use bytes::Bytes;
use dataplane::{
    http::{
        client::{ClientError, ConnectError, Custody, Exchange, Outgoing},
        head::Headers,
    },
    local::Signal,
    shard::boxed,
};
use proto::message::ErrorKind;

use super::{
    Prepared,
    endpoint::{Endpoint, Origin},
};
use crate::{
    adapters::Provider,
    run::{
        assembly::Reservation,
        supervise::Watch,
        terminal::{Failed, Terminal},
        watchdog::{Progress, comments::Comments},
    },
};

/// A request body, and the room that it takes.
#[derive(Debug)]
pub struct Upload {
    /// All of it.
    pub body: Bytes,
    /// Given back with it.
    pub reservation: Option<Reservation>,
}

/// Where an answer goes.
#[derive(Clone, Copy, Debug)]
pub struct Downstream<'a> {
    /// The Edge's end of the run.
    pub terminal: &'a Terminal,
    /// Set when the Edge took some of the answer.
    pub credit: &'a Signal,
    /// Where progress is noted.
    pub watch: &'a Watch,
}

impl Downstream<'_> {
    /// Waits until the Edge takes something.
    async fn has_credit(&self) {
        if self.terminal.sendable() == 0 {
            let credit = async {
                while self.terminal.sendable() == 0 {
                    self.credit.wait().await;
                }
            };
            self.watch.blocked(credit).await;
        }
    }

    async fn pass_on(&self, mut piece: Bytes) -> Result<(), Failed> {
        loop {
            let room = self.terminal.sendable().min(piece.len());
            self.terminal.body(piece.split_to(room))?;
            if piece.is_empty() {
                return Ok(());
            }
            self.has_credit().await;
        }
    }
}

/// Sends the request and passes the answer on, up to its proper end.
///
/// # Errors
/// [`Failed`]: what the terminal is to say.
pub async fn exchange(
    provider: &Provider,
    prepared: Prepared,
    upload: Upload,
    downstream: Downstream<'_>,
    custody: &Custody,
) -> Result<(), Failed> {
    let sent = upload.body.len();
    // In a box of its own, which is gone for as long as the answer takes.
    let Prepared { endpoint, fields, credential } = prepared;
    let mut exchange =
        boxed(|| send(provider, &endpoint, (&fields, credential), &upload.body, custody)).await?;
    // No second try is possible any more: the memory is wanted elsewhere.
    drop((upload, endpoint, fields));
    provider.metrics.request_bytes.inc_by(sent as u64);
    if exchange.retried {
        provider.metrics.provider_retries.inc();
    }
    downstream.watch.note(Progress::ResponseStart);
    let headers = super::fields::response_fields(&exchange.head.headers);
    downstream.terminal.start(exchange.head.status, headers, exchange.is_until_close())?;
    let mut comments = Comments::of(exchange.head.headers.get("content-type"));
    exchange.head.headers = Headers::new();
    loop {
        // What the Edge does not take yet stays with the provider.
        downstream.has_credit().await;
        dataplane::panic_point!("node.adapter");
        match exchange.next().await.map_err(failed)? {
            Some(piece) => {
                downstream.watch.note(Progress::Content(comments.content(&piece)));
                downstream.pass_on(piece).await?;
            }
            None => return Ok(()),
        }
    }
}

/// Sends on a connection that may carry this credential to one of the origin's addresses: the one that worked last first, then the others, then what the
/// resolver says by now.
///
/// # Errors
/// [`Failed`]: no head of an answer came.
pub(in crate::adapters) async fn send(
    provider: &Provider,
    endpoint: &Endpoint,
    (fields, credential): (&Headers, u64),
    body: &Bytes,
    custody: &Custody,
) -> Result<Exchange, Failed> {
    let origin = &endpoint.origin;
    let outgoing =
        Outgoing { method: &endpoint.method, target: &endpoint.target, headers: fields, body: body.clone() };
    let key = |address| provider.key(origin, &endpoint.authority, address, credential);
    let mut tried: Vec<SocketAddr> = Vec::new();
    let mut failures = Failures::default();
    if let Some(address) = provider.addresses.preferred(origin) {
        match provider.pool.send(&key(address), &outgoing, custody).await {
            Err(error @ ClientError::Connect(_)) => {
                failures.note(provider, error);
                tried.push(address);
            }
            sent => return sent.map_err(failed),
        }
    }
    loop {
        let known = provider.addresses.addresses(origin).await;
        let known = known.map_err(|error| Failed::error(ErrorKind::Connect, error))?;
        let fresh: Vec<_> = known.into_iter().filter(|address| !tried.contains(address)).collect();
        if fresh.is_empty() {
            let none = || Failed::error(ErrorKind::Connect, "the provider has no address");
            return Err(failures.most_telling.unwrap_or_else(none));
        }
        for address in fresh {
            match provider.pool.send(&key(address), &outgoing, custody).await {
                Ok(exchange) => {
                    provider.addresses.prefer(origin, address);
                    return Ok(exchange);
                }
                Err(error @ ClientError::Connect(_)) => {
                    failures.note(provider, error);
                    tried.push(address);
                }
                Err(error) => return Err(failed(error)),
            }
        }
        forget(provider, origin);
    }
}

fn forget(provider: &Provider, origin: &Origin) {
    tracing::debug!(host = origin.host, port = origin.port, "provider not reachable");
    provider.addresses.forget(origin);
}

/// Why there is no connection to any address of a provider.
#[derive(Debug, Default)]
struct Failures {
    /// The last one, but for one of TCP behind one of TLS: the server was met there, and not where nobody listens.
    most_telling: Option<Failed>,
    met: bool,
}

impl Failures {
    fn note(&mut self, provider: &Provider, error: ClientError) {
        let ClientError::Connect(connect) = &error else { return };
        provider.metrics.note_failed_connect(connect);
        let met = matches!(connect, ConnectError::Tls(_));
        if met || !self.met {
            self.met = met;
            self.most_telling = Some(failed(error));
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(in crate::adapters) fn failed(error: ClientError) -> Failed {
    let kind = error.kind();
    let mut words = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    Failed::error(kind, words)
}
