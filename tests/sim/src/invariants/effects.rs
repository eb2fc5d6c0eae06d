//! What each effect may be, given the books.

use std::{sync::Arc, time::Duration};

use control::{
    effect::{CloseReason, Effect, Grant, Probe, Refusal},
    input::{LeaseId, RequestId},
};

use super::{
    Checked, Expected, Oracle, Stage,
    books::{Cause, Claim, Held, Probing, Wish},
    broken, hold,
};

/// REG-11.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// CAP-3.
const PROBE_WAIT: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

impl Oracle {
    pub(super) fn effect(&mut self, effect: &Effect) -> Checked {
        match effect {
            Effect::Registration { connection, outcome } => {
                self.step.others += 1;
                self.expect("I6 order", &Expected::Registration(*connection, *outcome))?;
                if outcome.is_ok() {
                    hold!(
                        "I19 fencing",
                        self.step.to_fence.is_empty(),
                        "the new owner is told before the fence"
                    );
                    let Some(node) = self.step.certified.clone() else { broken!("I6 order", "{effect:?}") };
                    let claim =
                        Claim { connection: *connection, since: self.now, ready: None, draining: false };
                    self.owned.insert(*connection, Arc::clone(&node));
                    hold!("I8 owner", self.claims.insert(node, claim).is_none(), "two owners: {effect:?}");
                }
            }
            Effect::Readiness { connection, outcome } => {
                self.step.others += 1;
                self.expect("I6 order", &Expected::Readiness(*connection, *outcome))?;
            }
            Effect::CloseConnection { connection, reason } => {
                if *reason == CloseReason::ReadyTimeout {
                    // Accounted for by its own deadline: any number of them may pass at the same moment.
                    let node = self.owned.get(connection);
                    let claim = node.and_then(|node| self.claims.get(node));
                    let late = claim.is_some_and(|claim| {
                        claim.ready.is_none() && claim.since.after(READY_TIMEOUT) <= self.now
                    });
                    hold!("I6 order", late, "REG-11: closed as late: {effect:?}");
                    self.disown(*connection, None);
                } else {
                    self.step.others += 1;
                    let fenced = self.step.to_fence.iter().all(|(.., of)| of != connection);
                    hold!("I19 fencing", fenced, "closed before its fence: {effect:?}");
                    self.expect("I8 owner", &Expected::Closed(*connection, *reason))?;
                }
            }
            Effect::NodeConnected { node, generation } => {
                self.step.others += 1;
                self.expect("I6 order", &Expected::Connected(Arc::clone(node)))?;
                let last = self.last_generation.insert(Arc::clone(node), *generation);
                hold!("I8 owner", last < Some(*generation), "{effect:?} after {last:?}");
                hold!("I8 owner", self.generations.insert(*generation), "{effect:?}: another node had it");
                if let Some(claim) = self.claims.get_mut(node) {
                    claim.ready = Some(*generation);
                }
                self.policy.set_ready(node, true);
                self.dirty = true;
            }
            Effect::NodeFenced { node, generation, leases } => self.fence(node, *generation, *leases)?,
            Effect::Grant(grant) => self.grant(grant)?,
            Effect::Refuse { request, reason } => self.refused(*request, *reason)?,
            Effect::Fenced { lease, request } => {
                self.expect("I19 fencing", &Expected::Fenced(*lease))?;
                self.move_on(*request, *lease, Some(Stage::Lost(*lease)))?;
            }
            Effect::Failed { lease, request, handoff, .. } => {
                self.expect("I9 terminal", &Expected::Failed(*lease, handoff.clone()))?;
                self.move_on(*request, *lease, None)?;
            }
            Effect::Requeued { lease, request } => {
                self.expect("I21 again", &Expected::Requeued(*lease))?;
                self.move_on(*request, *lease, Some(Stage::Waiting))?;
                self.start_waiting(*request);
            }
            Effect::HealthObserved(seen) => {
                self.expect("I16 snapshot", &Expected::Observed(seen.clone()))?;
            }
            Effect::OverlayLowered { node, provider, .. } => {
                self.expect("I16 snapshot", &Expected::Lowered(Arc::clone(node), Arc::clone(provider)))?;
            }
            Effect::OverlayCleared { node, provider } => {
                self.expect("I16 snapshot", &Expected::Cleared(Arc::clone(node), Arc::clone(provider)))?;
            }
            Effect::Probe(probe) => self.probe(probe)?,
            Effect::Snapshot { .. } => {}
        }
        Ok(())
    }

    fn expect(&mut self, check: &'static str, seen: &Expected) -> Checked {
        match self.step.expected.iter().position(|expected| expected == seen) {
            Some(at) => {
                self.step.expected.swap_remove(at);
                Ok(())
            }
            None => Err(super::Broken { check, detail: format!("not called for: {seen:?}") }),
        }
    }

    fn fence(&mut self, node: &Arc<str>, generation: u64, count: usize) -> Checked {
        let owed = self.step.to_fence.iter().position(|(of, owed, _)| (of, *owed) == (node, generation));
        let Some(owed) = owed else { broken!("I19 fencing", "{node} generation {generation} is not over") };
        self.step.to_fence.swap_remove(owed);
        let open: Vec<LeaseId> =
            self.open.get(&generation).map(|open| open.iter().copied().collect()).unwrap_or_default();
        hold!("I19 fencing", open.len() == count, "{count} leases of {node} {generation}, of {open:?}");
        for lease in open {
            if self.leases.get(&lease).is_some_and(|held| held.holder) {
                self.step.expected.push(Expected::Fenced(lease));
            }
            self.give_back(lease, Cause::Fenced);
        }
        self.policy.set_ready(node, false);
        self.policy.forget_health(node);
        self.probes.retain(|_, probe| probe.node != *node);
        self.dirty = true;
        Ok(())
    }

    fn refused(&mut self, id: RequestId, reason: Refusal) -> Checked {
        let Some(request) = self.requests.get(&id) else {
            broken!("I9 terminal", "{id:?} has ended: {reason:?}")
        };
        let wish = Wish::of(&request.admit);
        let waits = request.stage == Stage::Waiting;
        match reason {
            Refusal::Busy => self.expect("I21 again", &Expected::Refused(id, reason))?,
            _ => hold!("I9 terminal", waits, "{reason:?} of {request:?}"),
        }
        let Some(request) = self.requests.get(&id) else { return Ok(()) };
        let model = &*request.admit.group;
        let config = &self.policy.config;
        let servable = self.policy.is_servable(&wish);
        let route = self.policy.route(model);
        match reason {
            Refusal::UnknownModel => {
                hold!("I20 names", servable.is_none() && route.is_none(), "{id:?}: {model} is known");
            }
            Refusal::Unservable => {
                hold!("I20 names", servable == Some(false), "{id:?} could be served: {wish:?}")
            }
            Refusal::QueueFull => {
                let newest = self.waiting.last_key_value().map(|(_, id)| *id);
                hold!("I12 bound", newest == Some(id), "{id:?} refused, {newest:?} is the newest");
                hold!("I12 bound", self.waiting.len() > config.queue_max, "{id:?} had room");
            }
            Refusal::QueueTimeout => {
                let over = config.queue_timeout.is_some_and(|by| request.arrived.after(by) <= self.now);
                hold!("I15 timers", over, "{id:?} refused before its time: {request:?}");
            }
            Refusal::NoNode => {
                let ready = route.is_some_and(|route| self.takes_direct(&route.adapter));
                hold!("I5 dispatch", route.is_some() && !ready, "{id:?}: a node with the adapter is ready");
            }
            Refusal::Busy => {}
        }
        self.end(id);
        Ok(())
    }

    fn takes_direct(&self, adapter: &str) -> bool {
        self.policy.config.nodes.iter().any(|node| {
            node.adapters.iter().any(|of| **of == *adapter)
                && self.claims.get(&node.id).is_some_and(Claim::takes_runs)
        })
    }

    fn grant(&mut self, grant: &Grant) -> Checked {
        let Some(request) = self.requests.get(&grant.request) else {
            broken!("I14 gone", "granted to {:?}, which has ended", grant.request);
        };
        hold!("I3 one lease", request.stage == Stage::Waiting, "granted to {request:?}");
        hold!("I8 owner", grant.lease.0 > self.last_lease, "{:?} after {}", grant.lease, self.last_lease);
        self.last_lease = grant.lease.0;
        hold!("I21 again", grant.attempt == request.grants + 1, "attempt {} of {request:?}", grant.attempt);
        let waited = request.waited + self.now.since(request.since);
        hold!(
            "I16 snapshot",
            grant.queued_for == waited,
            "queued for {:?}, not {waited:?}",
            grant.queued_for
        );
        let Some(claim) = self.claims.get(&grant.node) else {
            broken!("I5 dispatch", "no owner: {grant:?}");
        };
        let current = claim.takes_runs()
            && (claim.connection, claim.ready) == (grant.connection, Some(grant.generation));
        hold!("I5 dispatch", current, "{grant:?} to {claim:?}");
        if grant.direct {
            self.check_direct(grant)?
        } else {
            self.check_pool(grant)?
        }
        self.stop_waiting(grant.request);
        let Some(request) = self.requests.get_mut(&grant.request) else { return Ok(()) };
        request.stage = Stage::Running(grant.lease);
        request.grants += 1;
        request.waited = waited;
        let long = request.admit.long && !grant.direct;
        if grant.direct {
            self.tally.direct_granted += 1;
        } else {
            self.tally.granted += 1;
            self.policy.count(&grant.node, &grant.provider, long, 1);
        }
        self.open.entry(grant.generation).or_default().insert(grant.lease);
        self.leases.insert(
            grant.lease,
            Held {
                request: grant.request,
                connection: grant.connection,
                node: Arc::clone(&grant.node),
                provider: Arc::clone(&grant.provider),
                adapter: Arc::clone(&grant.adapter),
                target: Arc::clone(&grant.target),
                generation: grant.generation,
                long,
                direct: grant.direct,
                since: self.now,
                open: true,
                holder: true,
                bound: None,
            },
        );
        Ok(())
    }

    fn check_direct(&self, grant: &Grant) -> Checked {
        let request = &self.requests[&grant.request];
        let Some(route) = self.policy.route(&request.admit.group) else {
            broken!("I20 names", "no route: {grant:?}");
        };
        let has = self.policy.node(&grant.node).is_some_and(|node| node.adapters.contains(&grant.adapter));
        hold!("I20 names", has, "the node has no such adapter: {grant:?}");
        let named = (&grant.provider, &grant.adapter, &grant.target)
            == (&route.provider, &route.adapter, &route.target)
            && (grant.stall_timeout, grant.request_timeout) == (route.stall_timeout, route.request_timeout);
        hold!("I16 snapshot", named, "{grant:?} is not {route:?}");
        Ok(())
    }

    fn check_pool(&self, grant: &Grant) -> Checked {
        let request = &self.requests[&grant.request];
        let wish = Wish::of(&request.admit);
        let Some(seat) = self.policy.find(&grant.node, &grant.provider) else {
            broken!("I20 names", "no such provider: {grant:?}");
        };
        let policy = &self.policy.seats[seat];
        hold!("I5 dispatch", !policy.overlaid, "to an overlaid provider: {grant:?}");
        let room = policy.load < policy.policy.capacity
            && (!wish.long || policy.long_load < policy.policy.long_capacity);
        hold!("I1 capacity", room, "{grant:?} to {policy:?}");
        let Some((_, target)) = self.policy.eligible(&wish).find(|(of, _)| *of == seat) else {
            broken!("POL-2 rank", "not eligible for {wish:?}: {grant:?}");
        };
        let of = &policy.policy;
        let named = (&grant.adapter, &grant.target) == (&of.adapter, target)
            && (grant.stall_timeout, grant.request_timeout) == (of.stall_timeout, of.request_timeout);
        hold!("I16 snapshot", named, "{grant:?} is not {of:?} with {target}");
        let rank = |seat: usize| (self.policy.seats[seat].load, self.policy.seats[seat].policy.priority);
        let best = self.policy.eligible(&wish).map(|(of, _)| rank(of)).min();
        hold!("POL-2 rank", best == Some(rank(seat)), "{:?} is better than {grant:?}", best);
        for (other, orders) in &self.wishes {
            if let Some(oldest) = orders.first().filter(|oldest| **oldest < request.order) {
                hold!(
                    "I10 fifo",
                    !self.policy.can_run(other),
                    "{grant:?} overtook number {oldest}: {other:?}"
                );
            }
        }
        Ok(())
    }

    /// Where a request goes from the run of this lease; `None`: it has ended.
    fn move_on(&mut self, id: RequestId, lease: LeaseId, to: Option<Stage>) -> Checked {
        let stage = self.stage(id);
        let allowed = stage == Some(Stage::Running(lease))
            || stage == Some(Stage::Lost(lease)) && to == Some(Stage::Waiting);
        hold!("I9 terminal", allowed, "{id:?} goes to {to:?} from {stage:?}");
        let held = self.leases.get(&lease);
        let over = held.is_some_and(|held| held.holder && !held.open && held.request == id);
        hold!("I4 once", over, "told about {held:?}");
        match (to, self.requests.get_mut(&id)) {
            (Some(to), Some(request)) => request.stage = to,
            _ => self.end(id),
        }
        Ok(())
    }

    fn probe(&mut self, probe: &Probe) -> Checked {
        hold!("I8 owner", probe.command.0 > self.last_command, "{probe:?} after {}", self.last_command);
        self.last_command = probe.command.0;
        let claim = self.claims.get(&probe.node);
        let current = claim.is_some_and(|claim| claim.takes_runs() && claim.connection == probe.connection);
        hold!("I5 dispatch", current, "{probe:?} to {claim:?}");
        let Some(seat) = self.policy.find(&probe.node, &probe.provider) else {
            broken!("I20 names", "no such provider: {probe:?}");
        };
        let (now, key) = (self.now, (Arc::clone(&probe.node), Arc::clone(&probe.provider)));
        let targets: Vec<_> = self.policy.targets(seat).cloned().collect();
        let adapter = Arc::clone(&self.policy.seats[seat].policy.adapter);
        let Some(overlay) = self.policy.health.get_mut(&key).and_then(|health| health.overlay.as_mut())
        else {
            broken!("I16 snapshot", "not overlaid: {probe:?}");
        };
        let waited = now.since(overlay.asked);
        let due = PROBE_WAIT.0.saturating_mul(1 << overlay.probes.min(10)).min(PROBE_WAIT.1);
        hold!("I22 effects", waited >= due, "CAP-3: {probe:?} after {waited:?} instead of {due:?}");
        let wanted = if targets.contains(&overlay.target) { Some(&overlay.target) } else { targets.first() };
        hold!(
            "I16 snapshot",
            wanted == Some(&probe.target) && probe.adapter == adapter,
            "CAP-4: {probe:?}: {wanted:?} on {adapter}"
        );
        overlay.asked = now;
        overlay.probes += 1;
        let replaced = overlay.outstanding.replace(probe.command);
        if let Some(replaced) = replaced {
            self.probes.remove(&replaced);
        }
        self.probes.insert(
            probe.command,
            Probing {
                connection: probe.connection,
                node: Arc::clone(&probe.node),
                provider: Arc::clone(&probe.provider),
                adapter: Arc::clone(&probe.adapter),
                target: Arc::clone(&probe.target),
            },
        );
        Ok(())
    }
}
