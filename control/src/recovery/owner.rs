//! The machine.

use alloc::{sync::Arc, vec::Vec};

use super::{
    Attempt, Category, Evidence, Fence, Ineligible, Snapshot, Strategy, Verdict, avoidance::Avoidance,
    budget::Budget, class::Replay,
};
use crate::{
    effect::{Handoff, ProviderHealth},
    input::Avoided,
    limits::{ATTEMPTS_TOLD_MAX, RECOVERIES_MAX},
};

/// What the operator chose (SEG-1), frozen when the request begins (SEG-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Recoveries of a request, over all strategies; 0 = none, never more than [`RECOVERIES_MAX`].
    pub request_max: u32,
    /// Of them by any one strategy; 0 = none.
    pub strategy_max: u32,
    /// Bytes of a body that may be kept to be sent again.
    pub snapshot_bytes_max: usize,
}

/// The owner of one request's liveness (REC-1).
#[derive(Clone, Debug)]
pub struct Owner {
    snapshot_bytes_max: usize,
    budget: Budget,
    avoidance: Avoidance,
    /// The attempt that runs; none before the first and after one that another follows.
    running: Option<Attempt>,
    attempts: u32,
    providers: Vec<Arc<str>>,
    committed: bool,
    closed: bool,
    /// Whether an error within a stream has led to a replay ([`Replay::Once`]).
    replayed_once: bool,
    last_strategy: Option<Strategy>,
}

impl Owner {
    /// The owner of a request that has no attempt yet.
    pub fn new(limits: Limits) -> Self {
        let request_max = limits.request_max.min(RECOVERIES_MAX);
        Self {
            snapshot_bytes_max: limits.snapshot_bytes_max,
            budget: Budget::new(request_max, limits.strategy_max),
            avoidance: Avoidance::default(),
            running: None,
            attempts: 0,
            providers: Vec::new(),
            committed: false,
            closed: false,
            replayed_once: false,
            last_strategy: None,
        }
    }

    /// An attempt is sent: the first, one that a verdict allowed, or one after a grant that its Node's full gate or a lost
    /// connection sent back.
    pub fn dispatched(&mut self, attempt: Attempt) {
        self.attempts = self.attempts.saturating_add(1);
        if self.providers.len() < ATTEMPTS_TOLD_MAX {
            self.providers.push(attempt.provider.clone());
        }
        self.running = Some(attempt);
    }

    /// The first content byte is about to go to the client. True exactly once, and never after [`Owner::close`].
    pub fn commit(&mut self) -> bool {
        let first = !self.committed && !self.closed;
        self.committed |= first;
        first
    }

    /// Whether the client has content.
    pub fn is_committed(&self) -> bool {
        self.committed
    }

    /// Nothing may start any more: the client is gone, the deadline has passed, its credential was revoked, or the answer is
    /// complete.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether another attempt may follow the one that runs. When it says [`Verdict::Recover`] its budget is spent, that
    /// attempt is over for this request, and its provider is noted where the failure was the provider's.
    pub fn judge(&mut self, evidence: &Evidence, snapshot: &Snapshot) -> Verdict {
        match self.recover(evidence, snapshot) {
            Ok((strategy, ordinal)) => {
                let cancel_old = !matches!(evidence, Evidence::Stall { .. } | Evidence::NodeLost);
                Verdict::Recover { strategy, ordinal, cancel_old }
            }
            Err(why) => Verdict::Stay(why),
        }
    }

    /// For the next admission: who failed this request (POL-8), oldest first, at most
    /// [`AVOIDED_MAX`](crate::limits::AVOIDED_MAX).
    pub fn avoid(&self) -> Vec<Avoided> {
        self.avoidance.list()
    }

    /// Attempts that were sent.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The strategy of the last recovery.
    pub fn last_strategy(&self) -> Option<Strategy> {
        self.last_strategy
    }

    /// Their provider ids in order; of the first [`ATTEMPTS_TOLD_MAX`].
    pub fn providers(&self) -> &[Arc<str>] {
        &self.providers
    }

    /// The guards (REC-5), in the order in which the first that refuses names the reason: what is over, what this evidence
    /// can never lead to, what the client has, what is left to send, and last, because it changes something, the budget.
    fn recover(&mut self, evidence: &Evidence, snapshot: &Snapshot) -> Result<(Strategy, u32), Ineligible> {
        if self.closed {
            return Err(Ineligible::Closed);
        }
        let attempt = self.running.clone().ok_or(Ineligible::NotReplayable)?;
        if attempt.direct {
            return Err(Ineligible::Direct);
        }
        if attempt.category == Category::Cli {
            return Err(Ineligible::SideEffect);
        }
        let strategy = self.strategy(&attempt, evidence)?;
        if self.committed && strategy != Strategy::ContinuationRepair {
            return Err(Ineligible::Committed);
        }
        self.check(snapshot, strategy)?;
        let ordinal = self.budget.spend(strategy)?;
        self.replayed_once |= is_once(evidence);
        self.last_strategy = Some(strategy);
        self.running = None;
        if let Some(allow_fallback) = blame(&attempt, evidence) {
            self.avoidance.add(&attempt.provider, allow_fallback);
        }
        Ok((strategy, ordinal))
    }

    /// Which strategy the evidence asks for, if it can lead to any.
    fn strategy(&self, attempt: &Attempt, evidence: &Evidence) -> Result<Strategy, Ineligible> {
        match evidence {
            Evidence::Stall { handoff, fence } => {
                confirmed(handoff.as_ref(), attempt).ok_or(Ineligible::Unconfirmed)?;
                match (fence, attempt.category) {
                    (Fence::Unconfirmed, Category::Api) => Err(Ineligible::SideEffect),
                    _ => Ok(Strategy::ExactReplay),
                }
            }
            Evidence::NodeLost => match attempt.category {
                Category::LocalInference => Ok(Strategy::ExactReplay),
                Category::Api | Category::Cli => Err(Ineligible::SideEffect),
            },
            Evidence::ProviderError { class } => match class.replay() {
                Replay::WithinBudget => Ok(Strategy::ExactReplay),
                Replay::Once if !self.replayed_once => Ok(Strategy::ExactReplay),
                Replay::Once | Replay::Never => Err(Ineligible::NotReplayable),
            },
            Evidence::Repetition => Ok(Strategy::ContinuationRepair),
            Evidence::SchemaMismatch => Ok(Strategy::SchemaRepair),
        }
    }

    /// Whether there is something to send.
    fn check(&self, snapshot: &Snapshot, strategy: Strategy) -> Result<(), Ineligible> {
        if snapshot.bytes > self.snapshot_bytes_max {
            return Err(Ineligible::SnapshotTooLarge);
        }
        if !snapshot.kept {
            return Err(Ineligible::SnapshotGone);
        }
        if strategy == Strategy::ContinuationRepair { snapshot.continuation } else { Ok(()) }
    }
}

/// The Edge's confirmation, if it is of this attempt.
fn confirmed<'a>(handoff: Option<&'a Handoff>, attempt: &Attempt) -> Option<&'a Handoff> {
    handoff.filter(|handoff| handoff.provider == attempt.provider)
}

fn is_once(evidence: &Evidence) -> bool {
    matches!(evidence, Evidence::ProviderError { class } if class.replay() == Replay::Once)
}

/// Whether the provider is to be avoided from now on, and if so whether it may have the request back when there is no live
/// alternate (REC-4).
fn blame(attempt: &Attempt, evidence: &Evidence) -> Option<bool> {
    match evidence {
        Evidence::Stall { handoff, .. } => {
            let handoff = confirmed(handoff.as_ref(), attempt);
            Some(handoff.is_some_and(|handoff| handoff.health == ProviderHealth::Available))
        }
        Evidence::ProviderError { class } if attempt.sole_candidate && class.may_return_to_sole() => None,
        Evidence::NodeLost | Evidence::ProviderError { .. } => Some(false),
        // The model's doing: every provider of it is as good.
        Evidence::Repetition | Evidence::SchemaMismatch => None,
    }
}
