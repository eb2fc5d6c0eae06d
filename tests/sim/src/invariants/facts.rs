//! What each fact means, and what must come of it.

use std::{sync::Arc, time::Duration};

use control::{
    config::PoolConfig,
    effect::{
        CloseReason, Handoff, HealthObservation, HealthVerdict, ProviderHealth, ReadinessRefusal, Refusal,
        RegistrationRefusal,
    },
    input::{Admit, CommandId, ConnectionId, Input, LeaseId},
};
use proto::message::{ErrorKind, ExecutionError};

use super::{
    Checked, Expected, Oracle, Stage,
    books::{Cause, Claim, Health, Overlay, Request},
    evidence, hold,
};

impl Oracle {
    pub(super) fn fact(&mut self, input: &Input) -> Checked {
        if self.is_stale(input) {
            self.step.stale = true;
            self.tally.stale += 1;
            return Ok(());
        }
        match input {
            Input::Configure(config) => self.configure(config),
            Input::Register { connection, certified, claimed, token_ok } => {
                self.register(*connection, certified, claimed, *token_ok);
            }
            Input::Ready { connection, claimed } => self.ready(*connection, claimed),
            Input::Draining { connection } => self.drain(*connection),
            Input::ConnectionClosed { connection } => {
                self.disown(*connection, None);
            }
            Input::Admit(admit) => return self.admit(admit),
            Input::Withdraw { request } => {
                self.tally.withdrawn += 1;
                self.end(*request);
            }
            Input::HolderGone { lease, sent } => self.holder_gone(*lease, *sent),
            Input::NotSent { lease } => self.not_sent(*lease),
            Input::Terminal { lease, error, sequence, .. } => {
                self.terminal(*lease, error.as_ref(), *sequence)
            }
            Input::CommandAnswered { connection, command, result } => {
                if let Ok(said) = result {
                    self.answered(*connection, *command, said);
                }
            }
            Input::Inspect { .. } => {}
        }
        Ok(())
    }

    fn register(&mut self, connection: ConnectionId, certified: &Arc<str>, claimed: &str, token_ok: bool) {
        let outcome = if self.retired.contains(&connection) {
            Err(RegistrationRefusal::Stale)
        } else if self.owned.contains_key(&connection) {
            Err(RegistrationRefusal::AlreadyRegistered)
        } else if **certified != *claimed {
            Err(RegistrationRefusal::IdentityMismatch)
        } else if self.policy.node(certified).is_none() {
            Err(RegistrationRefusal::UnknownNode)
        } else if token_ok {
            Ok(())
        } else {
            Err(RegistrationRefusal::BadToken)
        };
        self.step.refused = outcome.is_err();
        if outcome.is_ok()
            && let Some(old) = self.claims.get(certified).map(|claim| claim.connection)
        {
            self.disown(old, Some(CloseReason::Superseded));
        }
        self.step.expected.push(Expected::Registration(connection, outcome));
        self.step.certified = Some(Arc::clone(certified));
    }

    fn ready(&mut self, connection: ConnectionId, claimed: &str) {
        let outcome = match self.owned.get(&connection) {
            None if self.retired.contains(&connection) => Err(ReadinessRefusal::Stale),
            None => Err(ReadinessRefusal::NotRegistered),
            Some(node) if **node != *claimed => Err(ReadinessRefusal::IdentityMismatch),
            Some(node) => {
                if self.claims.get(node).is_some_and(|claim| claim.ready.is_none()) {
                    self.step.expected.push(Expected::Connected(Arc::clone(node)));
                }
                Ok(())
            }
        };
        self.step.refused = outcome.is_err();
        self.step.expected.push(Expected::Readiness(connection, outcome));
    }

    fn drain(&mut self, connection: ConnectionId) {
        let Some(node) = self.owned.get(&connection).cloned() else { return };
        if let Some(claim) = self.claims.get_mut(&node) {
            claim.draining = true;
        }
        self.policy.set_ready(&node, false);
        // An avoided candidate may be permitted now.
        self.dirty = true;
        // Nothing is asked of a Node that drains.
        for ((of, _), health) in &mut self.policy.health {
            if *of == node
                && let Some(overlay) = &mut health.overlay
                && let Some(command) = overlay.outstanding.take()
            {
                self.probes.remove(&command);
            }
        }
    }

    /// Ends an ownership. `reason`: the driver is to close the connection.
    pub(super) fn disown(&mut self, connection: ConnectionId, reason: Option<CloseReason>) {
        self.retired.insert(connection);
        let Some(node) = self.owned.remove(&connection) else { return };
        let Some(claim) = self.claims.remove(&node) else { return };
        if let Some(reason) = reason {
            self.step.expected.push(Expected::Closed(connection, reason));
        }
        if let Some(generation) = claim.ready {
            self.step.to_fence.push((node, generation, connection));
        }
    }

    fn configure(&mut self, config: &Arc<PoolConfig>) {
        let gone: Vec<_> = self
            .claims
            .iter()
            .filter(|(node, _)| config.nodes.iter().all(|n| n.id != **node))
            .map(|(_, claim)| claim.connection)
            .collect();
        self.step.owners_removed = gone.len();
        for connection in gone {
            self.disown(connection, Some(CloseReason::Removed));
        }
        self.policy.rebuild(Arc::clone(config), &self.claims, &self.leases);
        let policy = &mut self.policy;
        self.probes.retain(|command, probe| {
            // What is not configured is not asked; should it come back, it is asked anew.
            let stays = policy.find(&probe.node, &probe.provider).is_some();
            let key = (Arc::clone(&probe.node), Arc::clone(&probe.provider));
            if let Some(overlay) = policy.health.get_mut(&key).and_then(|health| health.overlay.as_mut())
                && !stays
                && overlay.outstanding == Some(*command)
            {
                overlay.outstanding = None;
            }
            stays
        });
        // A group may have become a route, or the other way round.
        let waiting: Vec<_> = self.waiting.values().copied().collect();
        self.wishes.clear();
        for id in waiting {
            let since = self.requests[&id].since;
            self.start_waiting(id);
            if let Some(request) = self.requests.get_mut(&id) {
                request.since = since;
            }
        }
        self.dirty = true;
    }

    fn admit(&mut self, admit: &Admit) -> Checked {
        hold!(
            "I13 conservation",
            !self.requests.contains_key(&admit.request),
            "the driver asks twice: {admit:?}"
        );
        self.tally.admitted += 1;
        self.last_order += 1;
        let request = Request {
            admit: admit.clone(),
            stage: Stage::Waiting,
            order: self.last_order,
            arrived: self.now,
            since: self.now,
            waited: Duration::ZERO,
            grants: 0,
            busy: false,
        };
        self.requests.insert(admit.request, request);
        self.start_waiting(admit.request);
        Ok(())
    }

    fn holder_gone(&mut self, id: LeaseId, sent: bool) {
        let now = self.now;
        let Some(held) = self.leases.get_mut(&id) else { return };
        held.holder = false;
        let (request, open) = (held.request, held.open);
        if open && sent {
            let bound = now.after(Duration::from_secs(10));
            held.bound = Some(bound);
            self.bounds.insert((bound, id));
        } else if open {
            self.give_back(id, Cause::Abandoned);
        } else {
            self.leases.remove(&id);
        }
        if matches!(self.stage(request), Some(Stage::Running(of) | Stage::Lost(of)) if of == id) {
            self.end(request);
        }
    }

    fn not_sent(&mut self, id: LeaseId) {
        let Some(held) = self.leases.get(&id) else { return };
        let waits_again = held.holder;
        self.give_back(id, Cause::NotSent);
        if waits_again {
            self.step.expected.push(Expected::Requeued(id));
        }
    }

    fn terminal(&mut self, id: LeaseId, error: Option<&ExecutionError>, sequence: u64) {
        let Some(held) = self.leases.get(&id).cloned() else { return };
        // A busy Node has done nothing; behind a frame the word is not believed.
        let busy = error.is_some_and(|error| error.kind == ErrorKind::Busy && sequence == 0);
        let cause = match error {
            _ if !held.holder => Cause::Cancelled,
            None => Cause::Completed,
            Some(_) if busy => Cause::Busy,
            Some(_) => Cause::Failed,
        };
        self.give_back(id, cause);
        let evidence = error.filter(|_| !held.direct);
        let evidence = evidence.and_then(|error| evidence::of_stall(error, &held.adapter, &held.target));
        let handoff = evidence.map(|(health, _)| Handoff { provider: Arc::clone(&held.provider), health });
        self.tally.handoffs += u64::from(handoff.is_some());
        let claims = |error: &ExecutionError| error.failure.is_some() || error.kind == ErrorKind::Stalled;
        if !held.direct && error.is_some_and(claims) {
            let verdict = match evidence {
                Some((ProviderHealth::Unavailable, number)) => self.unavailable(&held, number),
                Some(_) => HealthVerdict::Unchanged,
                None => HealthVerdict::Rejected,
            };
            let health = evidence.map(|(health, _)| health);
            self.observed(&held.node, &held.provider, health, verdict);
        }
        let (Some(_), true) = (error, held.holder) else {
            if held.holder {
                self.end(held.request);
            }
            return;
        };
        let draining = self
            .claims
            .get(&held.node)
            .is_some_and(|claim| claim.draining && claim.connection == held.connection);
        let Some(request) = self.requests.get_mut(&held.request) else { return };
        let expected = if !busy {
            Expected::Failed(id, handoff)
        } else if held.direct || request.busy && !draining {
            Expected::Refused(held.request, Refusal::Busy)
        } else {
            request.busy |= !draining;
            Expected::Requeued(id)
        };
        self.step.expected.push(expected);
    }

    /// OBS-2: whatever counts as evidence is told of, with what came of it.
    fn observed(
        &mut self,
        node: &Arc<str>,
        provider: &Arc<str>,
        health: Option<ProviderHealth>,
        verdict: HealthVerdict,
    ) {
        let (node, provider) = (Arc::clone(node), Arc::clone(provider));
        let seen = HealthObservation { node, provider, health, verdict };
        self.step.expected.push(Expected::Observed(seen));
    }

    /// HND-4: a fresh observation takes exactly that provider out.
    fn unavailable(&mut self, held: &super::Held, number: u64) -> HealthVerdict {
        if !self.policy.exists(&held.node, &held.provider, &self.leases) {
            return HealthVerdict::Unchanged;
        }
        let seat = self.policy.find(&held.node, &held.provider);
        let key = (Arc::clone(&held.node), Arc::clone(&held.provider));
        let health = self.policy.health.entry(key).or_insert(Health { applied: 0, overlay: None });
        if number <= health.applied {
            self.tally.evidence_stale += 1;
            return HealthVerdict::Stale;
        }
        health.applied = number;
        match &mut health.overlay {
            Some(overlay) => {
                if (&overlay.adapter, &overlay.target) != (&held.adapter, &held.target) {
                    overlay.adapter = Arc::clone(&held.adapter);
                    overlay.target = Arc::clone(&held.target);
                    if let Some(command) = overlay.outstanding.take() {
                        self.probes.remove(&command);
                    }
                }
                HealthVerdict::Repeated
            }
            none => {
                *none = Some(Overlay {
                    adapter: Arc::clone(&held.adapter),
                    target: Arc::clone(&held.target),
                    asked: self.now,
                    probes: 0,
                    outstanding: None,
                });
                if let Some(seat) = seat {
                    self.policy.seats[seat].overlaid = true;
                }
                self.dirty = true;
                self.tally.lowered += 1;
                self.step
                    .expected
                    .push(Expected::Lowered(Arc::clone(&held.node), Arc::clone(&held.provider)));
                HealthVerdict::Lowered
            }
        }
    }

    /// CAP-2: everything must fit, or nothing changes.
    fn answered(
        &mut self,
        connection: ConnectionId,
        command: CommandId,
        said: &std::collections::BTreeMap<String, String>,
    ) {
        let Some(probe) = self.probes.get(&command).filter(|probe| probe.connection == connection) else {
            return;
        };
        let Some(number) = evidence::of_answer(said, &probe.adapter, &probe.target) else { return };
        let Some(seat) = self.policy.find(&probe.node, &probe.provider) else { return };
        let fresh = self
            .policy
            .health
            .get(&(Arc::clone(&probe.node), Arc::clone(&probe.provider)))
            .is_some_and(|health| number > health.applied);
        let exact = self.policy.serving(&probe.node, &probe.adapter, &probe.target) == 1
            && *self.policy.seats[seat].policy.adapter == *probe.adapter
            && self.policy.targets(seat).any(|target| *target == probe.target);
        if !fresh || !exact || !self.claims.get(&probe.node).is_some_and(Claim::takes_runs) {
            return;
        }
        let key = (Arc::clone(&probe.node), Arc::clone(&probe.provider));
        self.probes.remove(&command);
        if let Some(health) = self.policy.health.get_mut(&key) {
            health.applied = number;
            health.overlay = None;
        }
        self.policy.seats[seat].overlaid = false;
        self.dirty = true;
        self.tally.cleared += 1;
        self.observed(&key.0, &key.1, Some(ProviderHealth::Available), HealthVerdict::Cleared);
        self.step.expected.push(Expected::Cleared(key.0, key.1));
    }
}
