//! Waiting for a provider to return from a run that was stopped (POL-11, PRE-3).
//!
//! For as long as that takes the run keeps its place at the gate and its terminal is held back, so that the Edge gives the
//! provider nothing new. When a provider counts as returned is decided in `dataplane::http::client::abort`, which also bounds
//! the wait; afterwards nothing of the run is left on this Node. Gates are a session's own: after a reconnect the runs of the lost
//! session are not counted at the new ones.

use dataplane::http::client::Custody;
use prometheus::IntGauge;

use crate::adapters::Provider;

/// Waits for the provider's return, if the request that was dropped may have left it at work. The outcome is counted. May be
/// dropped freely.
pub async fn provider_returns(provider: &Provider, custody: &Custody) {
    let Some(abandoned) = custody.take() else { return };
    let _waiting = Waiting::new(&provider.metrics.runs_aborting);
    let returned = provider.pool.returned(abandoned).await;
    provider.metrics.note_abort(returned);
}

/// Waits for the return of something else than an HTTP server, which bounds itself. May be dropped freely.
pub async fn waiting(provider: &Provider, returned: impl Future<Output = ()>) {
    let _waiting = Waiting::new(&provider.metrics.runs_aborting);
    returned.await;
}

/// Counts a run as aborting for as long as it exists.
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
