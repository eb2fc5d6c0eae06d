//! Health: what a Node's evidence does to a provider, and how a provider that was taken out comes back.

use alloc::{collections::BTreeMap, string::String, sync::Arc};

use proto::message::ExecutionError;

use super::Machine;
use crate::{
    effect::{Effect, Handoff, HealthObservation, HealthVerdict, Probe, ProviderHealth},
    input::{CommandId, ConnectionId, Moment},
    lease::{Binding, Hold, Lease},
    overlay::{
        Command, Observed,
        evidence::{self, Observation, Stall},
    },
    registry::ProviderKey,
    timer::Timer,
};

/// A terminal that says something about health, read against its lease before that is settled.
pub(super) struct Seen {
    stall: Stall,
    provider: ProviderKey,
    binding: Binding,
}

impl Seen {
    /// `None` when the terminal says nothing about health, as nearly all do, or is of a direct route, which has no overlay
    /// (POL-12).
    pub(super) fn of(error: &ExecutionError, lease: &Lease) -> Option<Self> {
        let Hold::Slot(slot) = lease.hold else { return None };
        let stall = evidence::stall(error, &lease.binding.adapter, &lease.binding.target);
        let binding = || lease.binding.clone();
        (stall != Stall::Other).then(|| Self { stall, provider: slot.provider, binding: binding() })
    }
}

impl Machine {
    /// Applies what a terminal says of its provider (HND-4); gives what goes downstream with it (HND-3). A holder is not
    /// needed: what was seen was seen.
    pub(super) fn take_evidence(&mut self, now: Moment, seen: Seen) -> Option<Handoff> {
        let Seen { stall, provider: key, binding } = seen;
        let Stall::Bound(observation) = stall else {
            self.counters.evidence_rejected += 1;
            self.tell_observation(&binding, None, HealthVerdict::Rejected);
            return None;
        };
        self.counters.handoffs += 1;
        let handoff = Handoff { provider: Arc::clone(&binding.provider), health: observation.health };
        // One that left the configuration went with its last lease.
        let verdict = match self.pool.name_of(key) {
            Some(_) => self.observe(now, key, observation, &binding),
            None => HealthVerdict::Unchanged,
        };
        self.tell_observation(&binding, Some(observation.health), verdict);
        Some(handoff)
    }

    /// For the log, behind the decision (OBS-2).
    fn tell_observation(
        &mut self,
        binding: &Binding,
        health: Option<ProviderHealth>,
        verdict: HealthVerdict,
    ) {
        let (node, provider) = (Arc::clone(&binding.node), Arc::clone(&binding.provider));
        self.emit(Effect::HealthObserved(HealthObservation { node, provider, health, verdict }));
    }

    fn observe(
        &mut self,
        now: Moment,
        key: ProviderKey,
        seen: Observation,
        binding: &Binding,
    ) -> HealthVerdict {
        let Binding { node, provider, adapter, target } = binding.clone();
        match self.overlays.observe(key, now, seen, &adapter, &target) {
            Observed::Irrelevant => HealthVerdict::Unchanged,
            Observed::Again => HealthVerdict::Repeated,
            Observed::Stale => {
                self.counters.evidence_stale += 1;
                HealthVerdict::Stale
            }
            Observed::Lowered => {
                self.counters.overlays_lowered += 1;
                self.pool.overlay(key, true);
                if self.pool.live_of(key).is_some() {
                    self.arm_probe(now, key);
                }
                self.emit(Effect::OverlayLowered { node, provider, adapter, target });
                HealthVerdict::Lowered
            }
        }
    }

    fn arm_probe(&mut self, now: Moment, key: ProviderKey) {
        if let Some(at) = self.overlays.arm(key, now) {
            self.timers.set(at, Timer::Probe(key));
        }
    }

    /// An overlaid provider's timer: asks its Node, and plans the next time. Only a provider with a dispatch-ready Node has
    /// this timer (REG-5).
    pub(super) fn probe(&mut self, now: Moment, key: ProviderKey) {
        self.arm_probe(now, key);
        let Some(live) = self.pool.live_of(key) else { return };
        let Some((node, provider)) = self.pool.name_of(key) else { return };
        let wanted = self.overlays.overlay(key).map(|overlay| Arc::clone(&overlay.target));
        // A provider that no group names serves nothing that could be asked for.
        let Some((adapter, target)) = wanted.and_then(|wanted| self.pool.probe_of(key, &wanted)) else {
            return;
        };
        let command =
            Command { provider: key, live, adapter: Arc::clone(&adapter), target: Arc::clone(&target) };
        let Some(command) = self.overlays.send(command) else { return };
        self.counters.probes.sent += 1;
        let connection = live.connection;
        self.emit(Effect::Probe(Probe { command, connection, node, provider, adapter, target }));
    }

    /// Ends exactly one overlay, or changes nothing (CAP-2).
    pub(super) fn handle_command_answered(
        &mut self,
        connection: ConnectionId,
        id: CommandId,
        result: &Result<BTreeMap<String, String>, String>,
    ) {
        // Commands end with their generation and while it drains, so an outstanding one is of the ready owner.
        let Some(command) = self
            .overlays
            .command(id)
            .filter(|it| it.live.connection == connection || planted!(AnswerOnAnyConnection))
        else {
            self.counters.probes.stray += 1;
            return;
        };
        let key = command.provider;
        let Ok(fields) = result else {
            self.counters.probes.failed += 1;
            return;
        };
        let seen = evidence::answer(fields, &command.adapter, &command.target)
            .filter(|seen| {
                let applied = self.overlays.applied(key);
                seen.sequence > applied || seen.sequence == applied && planted!(EqualNumberClears)
            })
            .filter(|_| self.pool.is_only_binding(key, &command.adapter, &command.target));
        match seen {
            None => self.counters.probes.rejected += 1,
            Some(Observation { health: ProviderHealth::Available, sequence }) => {
                self.clear_overlay(key, sequence);
            }
            Some(_) => self.counters.probes.unavailable += 1,
        }
    }

    fn clear_overlay(&mut self, key: ProviderKey, sequence: u64) {
        let Some(planned) = self.overlays.clear(key, sequence) else { return };
        if let Some(at) = planned {
            self.timers.cancel(at, Timer::Probe(key));
        }
        self.counters.probes.cleared += 1;
        self.counters.overlays_cleared += 1;
        self.pool.overlay(key, false);
        if let Some((node, provider)) = self.pool.name_of(key) {
            self.emit(Effect::OverlayCleared { node: Arc::clone(&node), provider: Arc::clone(&provider) });
            let (health, verdict) = (Some(ProviderHealth::Available), HealthVerdict::Cleared);
            self.emit(Effect::HealthObserved(HealthObservation { node, provider, health, verdict }));
        }
    }

    /// A Node's generation is over: what was known of its providers goes with it (HND-5).
    pub(super) fn end_overlays(&mut self, node: &str) {
        for key in self.pool.of_node(node) {
            self.forget_overlay(key);
            self.pool.overlay(key, false);
        }
    }

    /// A provider, or its generation, is over.
    pub(super) fn forget_overlay(&mut self, key: ProviderKey) {
        let Some(overlay) = self.overlays.forget(key) else { return };
        self.counters.overlays_dropped += 1;
        if let Some(at) = overlay.next_probe.filter(|_| !planted!(OverlayTimerKept)) {
            self.timers.cancel(at, Timer::Probe(key));
        }
    }

    /// A Node takes no new runs, and no commands either.
    pub(super) fn stop_probes(&mut self, node: &str) {
        for key in self.pool.of_node(node) {
            self.stop_probe(key);
        }
    }

    fn stop_probe(&mut self, key: ProviderKey) {
        if let Some(at) = self.overlays.disarm(key) {
            self.timers.cancel(at, Timer::Probe(key));
        }
    }

    /// After a new configuration: exactly the configured overlaid providers of ready Nodes are probed.
    pub(super) fn review_probes(&mut self, now: Moment) {
        let overlaid = self.overlays.overlaid().map(|(key, overlay)| (key, overlay.next_probe.is_some()));
        for (key, planned) in overlaid.collect::<alloc::vec::Vec<_>>() {
            match (self.pool.live_of(key).is_some(), planned) {
                (true, false) => self.arm_probe(now, key),
                (false, true) => self.stop_probe(key),
                (true, true) | (false, false) => {}
            }
        }
    }
}
