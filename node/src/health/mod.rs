//! Whether a provider serves a target now (STL-11), asked of the provider itself.
//!
//! ```text
//!   adapter, target ─▶ question ─▶ ask ─▶ judge ─▶ Available | Unavailable | Unknown
//! ```
//!
//! | Module | Owns | Pure |
//! |---|---|---|
//! | [`question`] | what is asked of which kind of adapter | yes |
//! | `ask` | one question on a connection of its own | no |
//! | [`judge`] | what an answer, or its absence, says | yes |
//! | `program` | whether a program is there | no |
//!
//! Anything doubtful is [`ProviderHealth::Unknown`], which lowers nothing and restores nothing (HND-4, CAP-2).

mod ask;
pub mod judge;
mod program;
pub mod question;

use std::{cell::Cell, time::Duration};

use dataplane::{
    clock,
    http::pool::{Pool, PoolLimits},
    shard::boxed,
    time::before,
};

use crate::adapters::{Adapter, Provider};
use judge::{Answer, Fault, Reason};
use question::{Plan, Request};

/// How long a probe takes at most, resolving and connecting included (STL-4).
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Probes of one Node at a time; a further one is [`Reason::Crowded`] at once. Every request that a dead provider held may stall at
/// the same moment, and a few answers tell as much as hundreds.
pub const PROBES_MAX: usize = 32;

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProviderHealth {
    /// It serves exactly this target.
    Available,
    /// It refuses connections, fails by its own account, or does not have the target.
    Unavailable,
    /// Nothing that could be relied on.
    Unknown,
}

impl ProviderHealth {
    /// Every one, for registering counters.
    pub const ALL: [Self; 3] = [Self::Available, Self::Unavailable, Self::Unknown];

    /// The word on the wire, in logs and in metrics (STL-5, CAP-1).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
        }
    }

    /// `liveness_classification`, the other half of the pair that a stall's terminal carries (STL-5).
    #[must_use]
    pub const fn liveness(self) -> &'static str {
        match self {
            Self::Available => "request_stalled",
            Self::Unavailable => "provider_unhealthy",
            Self::Unknown => "health_unknown",
        }
    }
}

/// What probes of one shard share: connections of their own, and a bound.
#[derive(Debug)]
pub struct Probes {
    /// Keeps nothing idle, so that each request has a connection of its own, which is closed after it.
    pool: Pool,
    running: Cell<usize>,
}

impl Default for Probes {
    fn default() -> Self {
        let limits = PoolLimits {
            connect_timeout: PROBE_TIMEOUT,
            idle_per_key: 0,
            write_stall: PROBE_TIMEOUT,
            ..PoolLimits::default()
        };
        Self { pool: Pool::new(limits), running: Cell::new(0) }
    }
}

impl Probes {
    /// Connections open now.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.pool.stats().open
    }

    fn enter(&self) -> Option<Place<'_>> {
        let running = self.running.get();
        (running < PROBES_MAX).then(|| {
            self.running.set(running + 1);
            Place(&self.running)
        })
    }
}

struct Place<'a>(&'a Cell<usize>);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Asks `adapter`'s provider whether it serves exactly `target`, on connections of its own and for at most [`PROBE_TIMEOUT`]. It
/// takes no place at the adapter's gate, and holds nothing of a run. May be dropped freely; the connection is closed then.
///
/// With several questions the first doubt decides, so that a server which is down is not asked to generate.
pub async fn probe(provider: &Provider, adapter: &Adapter, target: &str) -> ProviderHealth {
    let begun = clock::now();
    let reason = reason(provider, adapter, target).await;
    let health = reason.health();
    let took = clock::now().saturating_duration_since(begun);
    provider.metrics.note_probe(reason, took);
    let (health_word, reason, millis) = (health.as_str(), reason.as_str(), took.as_millis());
    tracing::debug!(adapter = adapter.name, health = health_word, reason, millis, "provider probed");
    health
}

/// One request on a connection of its own, and as much of the answer as `bytes_max`; with 0, its status alone. It takes as long as
/// it takes: the deadline is the caller's, who drops the future.
///
/// # Errors
/// [`Fault`]: there is no whole answer.
pub async fn fetch(provider: &Provider, request: &Request, bytes_max: usize) -> Result<Answer, Fault> {
    ask::ask(provider, request, bytes_max).await
}

async fn reason(provider: &Provider, adapter: &Adapter, target: &str) -> Reason {
    let questions = match question::plan(adapter, target) {
        Plan::Http(questions) => questions,
        Plan::Program(path) => {
            return before(clock::now() + PROBE_TIMEOUT, program::look(path))
                .await
                .unwrap_or(Reason::TimedOut);
        }
        Plan::None => return Reason::NotAskable,
    };
    let Some(_place) = provider.probes.enter() else { return Reason::Crowded };
    let asking = boxed(|| async {
        for question in &questions {
            let bytes_max = question.proof.bytes_max();
            let answer = fetch(provider, &question.request, bytes_max).await;
            let found = judge::judge(question.proof, target, answer.as_ref().map_err(|fault| *fault));
            if found != Reason::Serves {
                return found;
            }
        }
        Reason::Serves
    });
    before(clock::now() + PROBE_TIMEOUT, asking).await.unwrap_or(Reason::TimedOut)
}
