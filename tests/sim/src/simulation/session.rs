//! What a session of the Edge does with a request beyond its slot: it passes on what the provider says, asks the owner of the
//! request's liveness when an attempt fails, closes the old transport and asks for a new attempt.
//!
//! Draws of its own come from dice of its own: what else a seed decides does not hang on them.

use std::sync::Arc;

use control::{
    config::Capabilities,
    effect::{Grant, Handoff},
    input::{Input, LeaseId, RequestId},
    recovery::{Attempt, Category, ErrorClass, Evidence, Fence, Ineligible, Limits, Snapshot},
};
use proto::message::{ErrorKind, ExecutionError};

use super::{
    Simulation,
    clients::{Client, Stage},
    edge::Mail,
};
use crate::{
    invariants::{Broken, Checked},
    recovery::{Recovery, Watched},
    rng::Rng,
};

/// What a provider says, as the Edge's readers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Nothing a client would miss.
    Preamble,
    /// The byte at this place of the answer.
    Content(u64),
    /// An error; the stream may go on.
    Error(ErrorClass),
    /// The same again.
    Loop,
    /// Something else than what was asked for.
    Mismatch,
}

/// What a provider is asked beside the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Where the answer goes on.
    pub(super) from: u64,
    /// Every provider that is asked this says something wrong.
    pub(super) baffles: bool,
}

/// How this seed's requests are recovered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    /// As an operator may set them, and a little beyond.
    limits: Limits,
    /// Whether providers' errors, loops, and answers of the wrong shape are looked at.
    errors: bool,
    loops: bool,
    shapes: bool,
    /// Share of runs that say something before their end.
    talks: f64,
    /// Share of what they say then that is wrong, in which way if always in one, and of complete answers without content.
    wrong: f64,
    way: Option<Said>,
    empty: f64,
    /// Share of stalls after which the Node is not sure that the run has stopped.
    unsure: f64,
    /// Share of runs that hang in silence, of those that hang.
    silent: f64,
    /// Share of requests that no provider can answer.
    baffling: f64,
}

impl Rates {
    pub(super) fn draw(dice: &mut Rng) -> Self {
        let request_max = *dice.pick(&[0, 1, 2, 3, 3, 5]);
        // In about half of the runs everything goes wrong in one way.
        let errors = ErrorClass::ALL.map(Said::Error);
        let ways: Vec<_> = errors.into_iter().chain([Said::Loop, Said::Mismatch]).collect();
        let way = dice.chance(0.5).then(|| *dice.pick(&ways));
        let strategy_max = if dice.chance(0.5) { request_max } else { dice.below(4) as u32 };
        Self {
            limits: Limits { request_max, strategy_max, snapshot_bytes_max: 1_000 },
            errors: dice.chance(0.7),
            loops: dice.chance(0.7),
            shapes: dice.chance(0.7),
            talks: *dice.pick(&[0.0, 0.3, 0.7, 1.0]),
            wrong: *dice.pick(&[0.0, 0.1, 0.5, 0.9]),
            way,
            empty: *dice.pick(&[0.0, 0.1]),
            unsure: *dice.pick(&[0.0, 0.3]),
            silent: *dice.pick(&[0.0, 0.7]),
            baffling: *dice.pick(&[0.0, 0.0, 0.3]),
        }
    }
}

/// Programs, paid interfaces and engines, by the provider's name alone: a configuration that changes leaves them as they are.
fn category(provider: &str) -> Category {
    match provider.bytes().last().map(|digit| digit % 10) {
        Some(3) => Category::Cli,
        Some(1 | 6 | 8) => Category::Api,
        _ => Category::LocalInference,
    }
}

impl Simulation {
    pub(super) fn watched(&self) -> Box<Watched> {
        Box::new(Watched::new(self.rates.limits))
    }

    /// Whether a request is one that no provider can answer.
    pub(super) fn baffles(&mut self) -> bool {
        self.dice.chance(self.rates.baffling)
    }

    /// What of a request can be sent again.
    pub(super) fn some_snapshot(&mut self) -> Snapshot {
        let dice = &mut self.dice;
        let continuation = match dice.below(10) {
            0 => Err(Ineligible::Unsupported),
            1 => Err(Ineligible::ContextUnknown),
            2 => Err(Ineligible::ContextExceeded),
            _ => Ok(()),
        };
        Snapshot {
            kept: dice.chance(0.9),
            bytes: *dice.pick(&[0, 10, 500, 999, 1_000, 1_000, 1_001]),
            continuation,
        }
    }

    /// Holds a check in a place that has nobody to tell.
    pub(super) fn note_broken(&mut self, checked: Checked) {
        if let Err(broken) = checked {
            self.broken.get_or_insert(broken);
        }
    }

    fn attempt(&self, grant: &Grant, group: &str, needs: Capabilities, long: bool) -> Attempt {
        let can = |id: &Arc<str>| {
            let mut all = self.config.nodes.iter().flat_map(|node| &node.providers);
            all.any(|it| {
                it.id == *id && it.enabled && it.capabilities.covers(needs) && (!long || it.long_capacity > 0)
            })
        };
        let group = self.config.groups.iter().find(|it| *it.id == *group);
        let mut others = group.into_iter().flat_map(|group| &group.members).map(|member| &member.provider);
        Attempt {
            provider: Arc::clone(&grant.provider),
            category: category(&grant.provider),
            direct: grant.direct,
            sole_candidate: !others.any(|id| *id != grant.provider && can(id)),
        }
    }

    /// The request goes out under its lease.
    pub(super) fn dispatched(&mut self, request: RequestId, grant: &Grant) {
        let Some(client) = self.clients.get(&request) else { return };
        let admit = &client.admit;
        let attempt = self.attempt(grant, &admit.group, admit.needs, admit.long);
        let tally = &mut self.recovery;
        let Some(client) = self.clients.get_mut(&request) else { return };
        let checked = client.watched.dispatched(attempt, grant.lease, tally);
        self.note_broken(checked);
    }

    /// What a provider says next.
    pub(super) fn said(&mut self, request: RequestId, lease: LeaseId, said: Said) {
        if !self.runs_under(request, lease) {
            return;
        }
        let rates = self.rates;
        let evidence = match said {
            Said::Preamble => return,
            Said::Content(at) => return self.content(request, lease, at),
            Said::Error(class) => rates.errors.then_some(Evidence::ProviderError { class }),
            Said::Loop if rates.loops => Some(Evidence::Repetition),
            Said::Mismatch if rates.shapes => Some(Evidence::SchemaMismatch),
            Said::Loop | Said::Mismatch => return,
        };
        if !self.recovers(request, lease, evidence) {
            self.finish(request);
        }
    }

    fn content(&mut self, request: RequestId, lease: LeaseId, at: u64) {
        let tally = &mut self.recovery;
        let Some(client) = self.clients.get_mut(&request) else { return };
        let checked = client.watched.content(lease, at, tally);
        self.note_broken(checked);
    }

    /// The Node has ended the run with an error.
    pub(super) fn failed(
        &mut self,
        request: RequestId,
        lease: LeaseId,
        error: &ExecutionError,
        handoff: Option<Handoff>,
    ) {
        let evidence = match error.kind {
            ErrorKind::Stalled => {
                let metadata = error.failure.as_ref().and_then(|it| it.metadata.get("fence"));
                let confirmed = metadata.is_some_and(|fence| fence == "confirmed");
                let fence = if confirmed { Fence::Confirmed } else { Fence::Unconfirmed };
                Some(Evidence::Stall { handoff, fence })
            }
            ErrorKind::Connect if self.rates.errors => {
                Some(Evidence::ProviderError { class: ErrorClass::Transport })
            }
            _ => None,
        };
        if !self.recovers(request, lease, evidence) {
            self.end_client(request);
            self.drop_lease(lease);
        }
    }

    /// The Node has ended the run.
    pub(super) fn ended(&mut self, request: RequestId, lease: LeaseId) {
        let Some(client) = self.clients.get(&request) else { return };
        let recovered = client.admit.request != client.first;
        let empty = client.watched.got() == 0 && self.rates.errors;
        let evidence = empty.then_some(Evidence::ProviderError { class: ErrorClass::Empty });
        if !self.recovers(request, lease, evidence) {
            self.recovery.completed += u64::from(recovered && !empty);
            self.end_client(request);
            self.drop_lease(lease);
        }
    }

    /// Asks the owner; when it says so, closes the old transport and asks for the next attempt.
    pub(super) fn recovers(
        &mut self,
        request: RequestId,
        lease: LeaseId,
        evidence: Option<Evidence>,
    ) -> bool {
        let Some(evidence) = evidence else { return false };
        let judged = self.ask(request, &evidence);
        match judged {
            Ok(Some(recovery)) => {
                let checked = self.replay(request, lease, recovery, &evidence);
                self.note_broken(checked);
                true
            }
            Ok(None) => false,
            Err(broken) => {
                self.note_broken(Err(broken));
                false
            }
        }
    }

    fn ask(&mut self, request: RequestId, evidence: &Evidence) -> Result<Option<Recovery>, Broken> {
        let tally = &mut self.recovery;
        let Some(client) = self.clients.get_mut(&request) else { return Ok(None) };
        let snapshot = client.snapshot;
        client.watched.judge(evidence, &snapshot, tally)
    }

    fn replay(
        &mut self,
        request: RequestId,
        lease: LeaseId,
        recovery: Recovery,
        evidence: &Evidence,
    ) -> Checked {
        if self.dice.chance(0.1) {
            // What else is there of the same attempt in the same turn.
            let again = self.ask(request, evidence)?;
            crate::invariants::hold!("R4 over", again.is_none(), "one attempt is followed by two: {again:?}");
        }
        if let Some(client) = self.clients.get(&request).filter(|_| recovery.cancel_old) {
            let connection = client.connection;
            self.mail_link(request, connection, Mail::Cancel(connection, lease));
        }
        self.drop_lease(lease);
        let Some(mut client) = self.clients.remove(&request) else { return Ok(()) };
        client.watched.left(lease);
        client.stage = Stage::Waiting;
        // A request stays on its shard; numbers are left out for it.
        let shard = self.shard_of(request);
        self.requests += 1;
        while self.shard_of(RequestId(self.requests)) != shard {
            self.requests += 1;
        }
        client.admit.request = RequestId(self.requests);
        client.admit.avoid = client.watched.avoid()?;
        self.current.insert(client.first, client.admit.request);
        self.tell_control(Input::Admit(client.admit.clone()));
        self.clients.insert(client.admit.request, client);
        Ok(())
    }

    /// The request has ended for its client, and nothing may come after.
    pub(super) fn end_client(&mut self, request: RequestId) -> Option<Client> {
        let mut client = self.clients.remove(&request)?;
        self.current.remove(&client.first);
        client.watched.close();
        let ended = client.watched.end();
        self.note_broken(ended);
        self.recovery.refused +=
            u64::from(client.stage == Stage::Waiting && client.admit.request != client.first);
        if self.dice.chance(0.1) {
            // What else comes in the same turn.
            let class = *self.dice.pick(&ErrorClass::ALL);
            let evidence = match self.dice.below(4) {
                0 => Evidence::Stall { handoff: None, fence: Fence::Confirmed },
                1 => Evidence::NodeLost,
                2 => Evidence::Repetition,
                _ => Evidence::ProviderError { class },
            };
            let snapshot = client.snapshot;
            let judged = client.watched.judge(&evidence, &snapshot, &mut self.recovery);
            self.note_broken(judged.map(|_| ()));
        }
        Some(client)
    }

    /// What a run says before its end, from a place of the answer on.
    pub(super) fn some_talk(&mut self, Asked { from, baffles }: Asked) -> Vec<Said> {
        let rates = self.rates;
        if !baffles && !self.dice.chance(rates.talks) {
            return Vec::new();
        }
        let dice = &mut self.dice;
        let mut talk = Vec::new();
        if dice.chance(0.5) {
            talk.push(Said::Preamble);
        }
        let words = if baffles { 0 } else { dice.below(3) };
        talk.extend((from..from + words).map(Said::Content));
        if baffles || dice.chance(rates.wrong) {
            let any = match dice.below(4) {
                0 => Said::Loop,
                1 => Said::Mismatch,
                _ => Said::Error(*dice.pick(&ErrorClass::ALL)),
            };
            talk.push(rates.way.unwrap_or(any));
        }
        talk
    }

    /// Whether a complete answer is one without content.
    pub(super) fn is_empty_answer(&mut self) -> bool {
        !self.is_healed() && self.dice.chance(self.rates.empty)
    }

    /// Whether a run that hangs is one that stalls at a provider which is well otherwise.
    pub(super) fn stalls(&mut self) -> bool {
        self.dice.chance(self.rates.silent)
    }

    /// Whether a Node is sure that a run which stalled has stopped (STL-5).
    pub(super) fn some_fence(&mut self) -> &'static str {
        if self.dice.chance(self.rates.unsure) { "unconfirmed" } else { "confirmed" }
    }
}
