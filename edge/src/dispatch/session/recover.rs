//! What becomes of a request when its attempt fails: the owner of its liveness says whether another one follows (REC-1), and this
//! carries it out.

use std::{sync::Arc, time::Duration};

use control::{
    effect::Grant,
    input::Admit,
    recovery::{
        Attempt, Category, ErrorClass, Evidence, Fence, Ineligible, Limits, Owner, Snapshot, Strategy,
        Verdict,
    },
};
use dataplane::http::{body::Body, server::Gone};
use proto::message::{ErrorKind, ExecutionError};

use super::{
    super::{attempt::Cause, held::Held},
    Session, WayOut,
    gating::Chunk,
};
use crate::{
    config::gate::{Enforcement, FilterKind, Gate},
    gate::{provider_error, recorder::Recorder, repeat::History},
    metrics::recovery::{Action, Outcome},
    openai::scan::ChatScan,
    reply::Fault,
};

/// The recovery of one request.
#[derive(Debug)]
pub(super) struct Recovery {
    /// Decides.
    pub(super) owner: Owner,
    /// Bytes of the body, held or not.
    bytes: usize,
    /// Most bytes of a body that is held.
    bytes_max: usize,
    /// Whether the owner knows of the last grant. Of the only one of nearly every request it is told nothing.
    is_noted: bool,
    /// What the client gets if no other attempt comes of the recovery that has begun.
    original: Option<Original>,
    /// The body as the client sent it, where another one is sent in its place.
    source: Option<Body>,
    /// What the assistant said before, once it was read.
    pub(super) history: Option<Arc<History>>,
    /// What the client has got, where it may be gone on with.
    pub(super) recorder: Option<Recorder>,
    /// What the chunks of the stream that the client gets have in common.
    pub(super) chunk: Option<Chunk>,
    /// Continuations that were begun.
    pub(super) continuations: u32,
    /// What the last one did, until it is known whether it helped.
    pending: Option<Strategy>,
    /// Recoveries that were begun.
    recoveries: u32,
    /// What the last one did whose attempt was sent: of one that found no slot the client is told nothing.
    carried: Option<Strategy>,
    /// The last that was decided.
    observed: Option<Observation>,
    /// What became of the last recovery.
    result: Option<Outcome>,
    /// Time in the queue before the last admission.
    queued_before: Duration,
    /// How many attempts the client was told of when its response began; 0 = it has not.
    pub(super) told: u32,
}

/// What a client gets of a failed attempt if no other one mends it.
#[derive(Debug)]
pub(super) enum Original {
    /// It is told of this.
    Fault(Fault),
    /// The provider's own answer, all of it.
    Answer(Box<Held>),
    /// The provider's own stream, of which more comes; where that has been given up, it is told of this.
    Stream(Box<Held>, Fault),
}

/// A request that was made anew, as providers are sent it.
#[derive(Debug)]
pub(super) struct Rebuilt {
    pub(super) body: Body,
    pub(super) scan: ChatScan,
}

/// What was said against an attempt, and what came of it.
#[derive(Debug)]
struct Observation {
    /// Whose attempt it was.
    provider: Option<Arc<str>>,
    evidence: Evidence,
    verdict: Verdict,
}

impl Recovery {
    /// Of a request with a body of so many bytes, before its first admission.
    pub(super) fn new(gate: &Gate, bytes: usize) -> Self {
        let limits = Limits {
            request_max: gate.request_recoveries_max,
            strategy_max: gate.strategy_recoveries_max,
            snapshot_bytes_max: gate.snapshot_bytes_max,
        };
        Self {
            owner: Owner::new(limits),
            bytes,
            bytes_max: gate.snapshot_bytes_max,
            is_noted: false,
            original: None,
            source: None,
            history: None,
            recorder: None,
            chunk: None,
            continuations: 0,
            pending: None,
            recoveries: 0,
            carried: None,
            observed: None,
            result: None,
            queued_before: Duration::ZERO,
            told: 0,
        }
    }

    /// The body as the client sent it; `current` is the one that is sent now.
    pub(super) fn source<'a>(&'a self, current: &'a Body) -> &'a Body {
        self.source.as_ref().unwrap_or(current)
    }

    /// Another body takes the place of this one.
    pub(super) fn keep_source(&mut self, replaced: Body) {
        self.source.get_or_insert(replaced);
    }

    /// The strategy of the last recovery that sent something, for the client and the log.
    pub(super) fn kind(&self) -> Option<&'static str> {
        self.carried.map(Strategy::name)
    }

    /// The providers of all attempts where there was more than one.
    pub(super) fn providers(&self) -> &[Arc<str>] {
        let providers = self.owner.providers();
        if providers.len() > 1 { providers } else { &[] }
    }

    /// Time in the queue, of all admissions; `grant` is the last one that was granted.
    pub(super) fn queued(&self, grant: Option<&Grant>) -> Duration {
        self.queued_before.saturating_add(grant.map_or(Duration::ZERO, |grant| grant.queued_for))
    }

    /// Whether a failed attempt stands behind what goes on now.
    pub(super) fn has_begun(&self) -> bool {
        self.owner.last_strategy().is_some()
    }
}

impl Session<'_> {
    /// Whether the body is small enough to be held for another attempt.
    pub(super) fn is_kept(&self) -> bool {
        self.recovery.bytes <= self.recovery.bytes_max
    }

    /// A grant has come. Of the first one the owner learns when there is a second one, or when it fails.
    pub(super) fn note_grant(&mut self, grant: &Grant) {
        if self.attempt.dispatches() > 1 {
            self.note_attempt();
            let attempt = self.attempt_of(grant);
            self.recovery.owner.dispatched(attempt);
            self.recovery.is_noted = true;
        }
    }

    fn note_attempt(&mut self) {
        if self.recovery.is_noted {
            return;
        }
        if let Some(attempt) = self.grant.as_deref().map(|grant| self.attempt_of(grant)) {
            self.recovery.owner.dispatched(attempt);
            self.recovery.is_noted = true;
        }
    }

    fn attempt_of(&self, grant: &Grant) -> Attempt {
        let settings = &self.shard.settings;
        let provider = settings.provider(&grant.provider).filter(|_| !grant.direct);
        Attempt {
            provider: Arc::clone(&grant.provider),
            category: provider.map_or(Category::Api, |(_, provider)| provider.category),
            direct: grant.direct,
            sole_candidate: self.candidates() < 2,
        }
    }

    /// How many providers are configured for what is asked, whatever they do now.
    fn candidates(&self) -> usize {
        let settings = &self.shard.settings;
        let group = settings.pool.groups.iter().find(|group| group.id == self.plan.group);
        let members = group.map(|group| &*group.members).unwrap_or_default();
        let serves = |member: &&control::config::Member| {
            let provider = settings.provider(&member.provider).map(|(_, provider)| provider);
            provider.is_some_and(|it| {
                it.enabled && crate::config::capability::reachable(it.capabilities).covers(self.plan.needs)
            })
        };
        members.iter().filter(serves).count()
    }

    /// The attempt has failed: another one, or the end.
    pub(super) fn failed(&mut self, cause: Cause) -> Option<WayOut> {
        self.end_run();
        let (evidence, class) = (evidence_of(&cause), class_of(&cause));
        let original = Original::Fault(self.fault_of(cause));
        match evidence {
            Some(evidence) => self.judge(&evidence, original),
            None => self.provider_failed(class, original),
        }
    }

    /// The provider has failed in a way that only a filter makes more of (SEG-6).
    pub(super) fn provider_failed(
        &mut self,
        class: Option<ErrorClass>,
        original: Original,
    ) -> Option<WayOut> {
        let class = class.filter(|_| !self.recovery.owner.is_committed());
        let (Some(class), Some(enforcement)) = (class, self.active.provider_error) else {
            return self.stay(original);
        };
        if enforcement == Enforcement::ObserveOnly {
            // A refusal was counted when its head came.
            self.shard.metrics.recovery.found(FilterKind::ProviderError, Action::Observe);
            return self.stay(original);
        }
        let before = self.recovery.recoveries;
        let way_out = self.judge(&Evidence::ProviderError { class }, original);
        let action = if self.recovery.recoveries > before { Action::Recover } else { Action::Pass };
        self.shard.metrics.recovery.found(FilterKind::ProviderError, action);
        way_out
    }

    /// Nothing mends the failure.
    fn stay(&mut self, original: Original) -> Option<WayOut> {
        match original {
            Original::Fault(fault) => Some(WayOut::Refuse(fault)),
            Original::Answer(held) => {
                self.held = Some(*held);
                self.deliver()
            }
            Original::Stream(mut held, _) => {
                held.open();
                self.held = Some(*held);
                self.release_held();
                None
            }
        }
    }

    /// Asks the owner; `original` is what the client gets where nothing follows.
    fn judge(&mut self, evidence: &Evidence, original: Original) -> Option<WayOut> {
        self.judge_with(evidence, Ok(()), original)
    }

    /// As [`Session::judge`], of a recovery for which the request was made anew, or why it could not be.
    pub(super) fn judge_with(
        &mut self,
        evidence: &Evidence,
        ready: Result<(), Ineligible>,
        original: Original,
    ) -> Option<WayOut> {
        self.note_attempt();
        if self.plan.permit.is_closed() {
            self.recovery.owner.close();
        }
        let is_gone = self.downstream.client.check_gone() == Gone::Yes;
        if is_gone {
            self.recovery.owner.close();
        }
        let snapshot =
            Snapshot { kept: !self.plan.body.is_empty(), bytes: self.recovery.bytes, continuation: ready };
        let verdict = match (evidence, ready) {
            (Evidence::SchemaMismatch, Err(why)) => Verdict::Stay(why),
            _ => self.recovery.owner.judge(evidence, &snapshot),
        };
        self.observe(evidence, verdict);
        match verdict {
            Verdict::Recover { strategy, cancel_old, .. } => {
                self.settle(Outcome::Failed);
                self.recovery.pending = Some(strategy);
                self.recovery.recoveries += 1;
                self.end_attempt(cancel_old);
                self.begin_again(original)
            }
            Verdict::Stay(_) if is_gone => Some(WayOut::ClientGone),
            Verdict::Stay(_) => self.stay(original),
        }
    }

    /// Closes what the failed attempt has. Nothing of it reaches the client any more.
    fn end_attempt(&mut self, cancels: bool) {
        if !cancels {
            // The run is fenced: its Node has nothing to stop (REC-3).
            self.end_run();
        }
        self.run = None;
        self.held = None;
        self.recovery.queued_before = self.recovery.queued(self.grant.as_deref());
        self.attempt.begin_again();
        self.downstream.forget_credit();
    }

    /// Asks for another slot, under a number of its own: what still comes of the one before is for nobody.
    fn begin_again(&mut self, original: Original) -> Option<WayOut> {
        if let Some(grant) = &mut self.grant {
            grant.queued_for = Duration::ZERO;
        }
        self.events = self.shard.requests.enter();
        let admit = Admit {
            request: self.events.id,
            group: Arc::clone(&self.plan.group),
            needs: self.plan.needs,
            long: self.plan.long,
            avoid: self.recovery.owner.avoid(),
        };
        if self.shard.admit(admit).is_err() {
            self.settle(Outcome::Refused);
            self.attempt.abandon();
            return self.end_by(original);
        }
        self.recovery.original = Some(original);
        None
    }

    /// It cannot be sent because of `fault`. Where another attempt was to mend a failure, the client is told of that failure.
    pub(super) fn not_sent(&mut self, fault: Fault) -> Option<WayOut> {
        match self.recovery.original.take() {
            Some(original) => {
                self.settle(Outcome::Refused);
                self.end_by(original)
            }
            None => Some(WayOut::Refuse(fault)),
        }
    }

    /// As [`Session::stay`], of an attempt that is over.
    fn end_by(&mut self, original: Original) -> Option<WayOut> {
        match original {
            Original::Stream(_, fault) => Some(WayOut::Refuse(fault)),
            original => self.stay(original),
        }
    }

    /// The other attempt is on its way. Where it comes back unsent and finds no slot any more, there is still what it was to mend.
    pub(super) fn attempt_sent(&mut self) {
        self.recovery.carried = self.recovery.pending.or(self.recovery.carried);
    }

    /// What became of the last recovery, once.
    pub(super) fn settle(&mut self, outcome: Outcome) {
        let Some(strategy) = self.recovery.pending.take() else { return };
        self.shard.metrics.recovery.result(strategy, outcome);
        self.recovery.result = Some(outcome);
    }

    /// As [`Session::settle`], for a request that ends like this.
    pub(super) fn settle_end(&mut self, way_out: &WayOut) {
        self.settle(match way_out {
            WayOut::Complete => Outcome::Recovered,
            WayOut::ClientGone | WayOut::ClientStalled => Outcome::Abandoned,
            WayOut::Refuse(fault) | WayOut::Untold(fault) => match fault {
                Fault::Revoked | Fault::Draining | Fault::Cancelled => Outcome::Abandoned,
                _ => Outcome::Failed,
            },
        });
    }

    /// Counts what was decided, and keeps it for the log.
    fn observe(&mut self, evidence: &Evidence, verdict: Verdict) {
        self.shard.metrics.recovery.eligibility(verdict);
        let provider = self.grant.as_deref().map(|grant| Arc::clone(&grant.provider));
        self.recovery.observed = Some(Observation { provider, evidence: evidence.clone(), verdict });
    }

    /// Writes the log line of a request of which an attempt failed: words of closed sets, names of the configuration (OBS-3, OBS-4).
    pub(super) fn log_recovery(&self) {
        let Some(Observation { provider, evidence, verdict }) = &self.recovery.observed else { return };
        let (health, fence) = match evidence {
            Evidence::Stall { handoff, fence } => {
                (handoff.as_ref().map(|handoff| word_of_health(handoff.health)), Some(word_of_fence(*fence)))
            }
            _ => (None, None),
        };
        let class = match evidence {
            Evidence::ProviderError { class } => Some(class.name()),
            _ => None,
        };
        tracing::info!(
            request = &*self.plan.request_id,
            model = &*self.plan.group,
            provider = provider.as_deref(),
            evidence = word_of(evidence),
            provider_health = health,
            fence,
            class,
            eligibility = verdict.eligibility(),
            strategy = self.recovery.owner.last_strategy().map(Strategy::name),
            result = self.recovery.result.map(Outcome::label),
            attempts = self.attempt.dispatches(),
            "edge_liveness_recovery_observation"
        );
    }

    fn fault_of(&self, cause: Cause) -> Fault {
        match cause {
            Cause::Execution(failed) => {
                let ExecutionError { kind, message, .. } = failed.error;
                // The input is what the client asked for, so a refusal of it is the client's to answer. The request of a tunnel
                // is ours.
                if kind == ErrorKind::InvalidRequest
                    && self.written.as_ref().is_some_and(|written| written.is_run())
                {
                    return Fault::ProviderRefused { words: message };
                }
                kind.into()
            }
            Cause::NodeLost => Fault::NodeLost,
            Cause::Violation => Fault::UpstreamProtocol,
        }
    }
}

/// What a failure is to a filter of the provider's errors.
fn class_of(cause: &Cause) -> Option<ErrorClass> {
    match cause {
        Cause::Execution(failed) => provider_error::of_kind(failed.error.kind),
        // Its Node's doing.
        Cause::NodeLost | Cause::Violation => None,
    }
}

/// What a failure says of the liveness of its attempt (REC-2, REC-6); `None` for what a replay is no answer to.
fn evidence_of(cause: &Cause) -> Option<Evidence> {
    match cause {
        Cause::Execution(failed) if failed.error.kind == ErrorKind::Stalled => {
            Some(Evidence::Stall { handoff: failed.handoff.clone(), fence: fence_of(&failed.error) })
        }
        Cause::NodeLost => Some(Evidence::NodeLost),
        Cause::Execution(_) | Cause::Violation => None,
    }
}

/// Whether the Node is sure that the run is over at its provider (STL-5): by the one word that says so.
fn fence_of(error: &ExecutionError) -> Fence {
    let fence = error.failure.as_ref().and_then(|failure| failure.metadata.get("fence"));
    if fence.is_some_and(|fence| fence == "confirmed") { Fence::Confirmed } else { Fence::Unconfirmed }
}

fn word_of(evidence: &Evidence) -> &'static str {
    match evidence {
        Evidence::Stall { .. } => "stall",
        Evidence::NodeLost => "node_lost",
        Evidence::ProviderError { .. } => "provider_error",
        Evidence::Repetition => "repetition",
        Evidence::SchemaMismatch => "schema_mismatch",
    }
}

fn word_of_health(health: control::effect::ProviderHealth) -> &'static str {
    use control::effect::ProviderHealth;
    match health {
        ProviderHealth::Available => "available",
        ProviderHealth::Unavailable => "unavailable",
        ProviderHealth::Unknown => "unknown",
    }
}

fn word_of_fence(fence: Fence) -> &'static str {
    match fence {
        Fence::Confirmed => "confirmed",
        Fence::Unconfirmed => "unconfirmed",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use control::effect::{Handoff, ProviderHealth};
    use proto::message::ExecutionFailure;

    use super::*;
    use crate::mail::RunFailed;

    fn failed(kind: ErrorKind, fence: Option<&str>, handoff: Option<Handoff>) -> Cause {
        let failure = fence.map(|fence| ExecutionFailure {
            failure_code: "response_stalled".to_owned(),
            retryable: true,
            metadata: BTreeMap::from([("fence".to_owned(), fence.to_owned())]),
        });
        let error = ExecutionError { kind, message: "sentinel".to_owned(), failure };
        Cause::Execution(Box::new(RunFailed { error, handoff, sequence: 0 }))
    }

    // req: REC-2, STL-5
    #[test]
    fn only_a_stall_and_a_lost_node_say_something_of_liveness_and_only_the_nodes_own_word_confirms_a_fence() {
        let handoff = || Some(Handoff { provider: "p".into(), health: ProviderHealth::Available });
        for (word, fence) in [
            (Some("confirmed"), Fence::Confirmed),
            (Some("Confirmed"), Fence::Unconfirmed),
            (Some("unconfirmed"), Fence::Unconfirmed),
            (Some(""), Fence::Unconfirmed),
            (None, Fence::Unconfirmed),
        ] {
            let evidence = evidence_of(&failed(ErrorKind::Stalled, word, handoff()));
            assert_eq!(evidence, Some(Evidence::Stall { handoff: handoff(), fence }), "{word:?}");
        }
        let evidence = evidence_of(&failed(ErrorKind::Stalled, Some("confirmed"), None));
        assert_eq!(evidence, Some(Evidence::Stall { handoff: None, fence: Fence::Confirmed }));
        assert_eq!(evidence_of(&Cause::NodeLost), Some(Evidence::NodeLost));
        for kind in [ErrorKind::Connect, ErrorKind::UpstreamTruncated, ErrorKind::Busy, ErrorKind::Cancelled]
        {
            assert_eq!(evidence_of(&failed(kind, Some("confirmed"), handoff())), None, "{kind:?}");
        }
        assert_eq!(evidence_of(&Cause::Violation), None);
    }
}
