//! Waiting for a provider to return from a run that was stopped (POL-11, PRE-3).
//!
//! For as long as that takes the run keeps its place at the gate. When a provider counts as returned is decided in
//! `dataplane::http::client::abort`. Gates are a session's own: after a reconnect the runs of the lost session are not counted at
//! the new ones.

use dataplane::http::client::{Abandoned, abort::Return};
use futures::future::LocalBoxFuture;
use prometheus::IntGauge;

use crate::adapters::{Provider, native::Leftover};

/// A provider that may still be at work on what was dropped. Dropped before its return it is reset. How an HTTP request ended is
/// counted, once.
pub struct Departing<'a> {
    provider: &'a Provider,
    /// `None` when there is nothing to wait for any more.
    connection: Option<Abandoned>,
    other: Option<LocalBoxFuture<'static, ()>>,
    _waiting: Option<Waiting>,
}

impl<'a> Departing<'a> {
    /// Takes over what the execution left, if it did.
    #[must_use]
    pub fn new(provider: &'a Provider, leftover: &Leftover) -> Self {
        let (connection, other) = (leftover.connection.take(), leftover.take_other());
        let is_waiting = connection.is_some() || other.is_some();
        let waiting = is_waiting.then(|| Waiting::new(&provider.metrics.runs_aborting));
        Self { provider, connection, other, _waiting: waiting }
    }

    /// Waits for the return, of an HTTP server at most for the close grace (POL-11): it is reset then. Anything else bounds itself.
    pub async fn within_grace(mut self) -> Return {
        let mut returned = Return::Confirmed;
        if let Some(connection) = self.connection.take() {
            returned = self.provider.pool.returned(connection).await;
            self.provider.metrics.note_abort(returned);
        }
        if let Some(other) = self.other.take() {
            other.await;
        }
        returned
    }

    /// Waits for the return for as long as it takes (PRE-3). May be dropped and called again.
    pub async fn returned(&mut self) -> Return {
        let mut returned = Return::Confirmed;
        if let Some(connection) = &mut self.connection {
            returned = self.provider.pool.returns(connection).await;
            self.provider.metrics.note_abort(returned);
            self.connection = None;
        }
        if let Some(other) = &mut self.other {
            other.await;
            self.other = None;
        }
        returned
    }
}

impl Drop for Departing<'_> {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.give_up();
            self.provider.metrics.note_abort(Return::Unconfirmed);
        }
    }
}

/// Counts a run as aborting for as long as it exists.
#[derive(Debug)]
struct Waiting(IntGauge);

impl Waiting {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.dec();
    }
}
