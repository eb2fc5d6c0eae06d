//! The owner once more: at each question everything that has happened is looked through from the beginning.

use control::{
    effect::{Handoff, ProviderHealth},
    input::Avoided,
    recovery::{
        Attempt, Category, ErrorClass, Evidence, Fence, Ineligible, Limits, Snapshot, Strategy, Verdict,
    },
};

#[derive(Debug)]
enum Happened {
    Sent(Attempt),
    Content,
    Closed,
    Recovered(Attempt, Evidence, Strategy),
}

/// All that has happened to a request.
#[derive(Debug)]
pub struct Reference {
    limits: Limits,
    history: Vec<Happened>,
}

impl Reference {
    /// Nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, history: Vec::new() }
    }

    /// An attempt is sent.
    pub fn dispatched(&mut self, attempt: Attempt) {
        self.history.push(Happened::Sent(attempt));
    }

    /// The client gets content.
    pub fn content(&mut self) {
        if !self.has_content() {
            self.history.push(Happened::Content);
        }
    }

    /// The request is over.
    pub fn close(&mut self) {
        self.history.push(Happened::Closed);
    }

    /// What the owner must say.
    pub fn judge(&mut self, evidence: &Evidence, snapshot: &Snapshot) -> Verdict {
        let strategy = strategy(evidence);
        let over = self.history.iter().any(|it| matches!(it, Happened::Closed));
        let attempt =
            match self.history.iter().rfind(|it| !matches!(it, Happened::Content | Happened::Closed)) {
                Some(Happened::Sent(attempt)) => Some(attempt.clone()),
                _ => None,
            };
        let Some(attempt) = attempt else {
            return Verdict::Stay(if over { Ineligible::Closed } else { Ineligible::NotReplayable });
        };
        let continues = strategy == Strategy::ContinuationRepair;
        let of_it = self.recovered().filter(|(_, _, by)| *by == strategy).count() as u32;
        let refusals = [
            over.then_some(Ineligible::Closed),
            attempt.direct.then_some(Ineligible::Direct),
            (attempt.category == Category::Cli).then_some(Ineligible::SideEffect),
            self.of_evidence(evidence, &attempt),
            (self.has_content() && !continues).then_some(Ineligible::Committed),
            (snapshot.bytes > self.limits.snapshot_bytes_max).then_some(Ineligible::SnapshotTooLarge),
            (!snapshot.kept).then_some(Ineligible::SnapshotGone),
            snapshot.continuation.err().filter(|_| continues),
            (self.recovered().count() as u32 >= self.limits.request_max.min(3))
                .then_some(Ineligible::RequestBudget),
            (of_it >= self.limits.strategy_max).then_some(Ineligible::StrategyBudget),
        ];
        if let Some(why) = refusals.into_iter().flatten().next() {
            return Verdict::Stay(why);
        }
        self.history.push(Happened::Recovered(attempt, evidence.clone(), strategy));
        let cancel_old = match evidence {
            Evidence::Stall { .. } | Evidence::NodeLost => false,
            Evidence::ProviderError { .. } | Evidence::Repetition | Evidence::SchemaMismatch => true,
        };
        Verdict::Recover { strategy, ordinal: of_it + 1, cancel_old }
    }

    /// What the next admission must avoid.
    pub fn avoid(&self) -> Vec<Avoided> {
        let mut avoid: Vec<Avoided> = Vec::new();
        for (attempt, evidence, _) in self.recovered() {
            let Some(allow_fallback) = blamed(attempt, evidence) else { continue };
            match avoid.iter_mut().find(|it| it.provider == attempt.provider) {
                Some(it) => it.allow_fallback &= allow_fallback,
                None => avoid.push(Avoided { provider: attempt.provider.clone(), allow_fallback }),
            }
        }
        avoid
    }

    /// How the last recovery was made.
    pub fn last_strategy(&self) -> Option<Strategy> {
        self.recovered().last().map(|(_, _, strategy)| strategy)
    }

    fn recovered(&self) -> impl Iterator<Item = (&Attempt, &Evidence, Strategy)> {
        self.history.iter().filter_map(|it| match it {
            Happened::Recovered(attempt, evidence, strategy) => Some((attempt, evidence, *strategy)),
            _ => None,
        })
    }

    fn has_content(&self) -> bool {
        self.history.iter().any(|it| matches!(it, Happened::Content))
    }

    /// Why this evidence alone leads to nothing.
    fn of_evidence(&self, evidence: &Evidence, attempt: &Attempt) -> Option<Ineligible> {
        let paid = attempt.category == Category::Api;
        let in_band =
            |evidence: &Evidence| *evidence == Evidence::ProviderError { class: ErrorClass::InBand };
        match evidence {
            Evidence::Stall { handoff, .. } if health(handoff.as_ref(), attempt).is_none() => {
                Some(Ineligible::Unconfirmed)
            }
            Evidence::Stall { fence: Fence::Unconfirmed, .. } if paid => Some(Ineligible::SideEffect),
            Evidence::NodeLost if paid => Some(Ineligible::SideEffect),
            Evidence::ProviderError {
                class: ErrorClass::Backpressure | ErrorClass::Client | ErrorClass::Credential,
            } => Some(Ineligible::NotReplayable),
            _ if in_band(evidence) && self.recovered().any(|(_, before, _)| in_band(before)) => {
                Some(Ineligible::NotReplayable)
            }
            _ => None,
        }
    }
}

fn strategy(evidence: &Evidence) -> Strategy {
    match evidence {
        Evidence::Stall { .. } | Evidence::NodeLost | Evidence::ProviderError { .. } => Strategy::ExactReplay,
        Evidence::Repetition => Strategy::ContinuationRepair,
        Evidence::SchemaMismatch => Strategy::SchemaRepair,
    }
}

fn health(handoff: Option<&Handoff>, attempt: &Attempt) -> Option<ProviderHealth> {
    handoff.filter(|handoff| handoff.provider == attempt.provider).map(|handoff| handoff.health)
}

/// Whether it was the provider's failure, and then whether it may have the request back.
fn blamed(attempt: &Attempt, evidence: &Evidence) -> Option<bool> {
    match evidence {
        Evidence::Stall { handoff, .. } => {
            Some(health(handoff.as_ref(), attempt) == Some(ProviderHealth::Available))
        }
        Evidence::NodeLost => Some(false),
        Evidence::ProviderError { class } => {
            let passes = matches!(class, ErrorClass::Transport | ErrorClass::Server);
            if passes && attempt.sole_candidate { None } else { Some(false) }
        }
        Evidence::Repetition | Evidence::SchemaMismatch => None,
    }
}
