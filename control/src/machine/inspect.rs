//! The picture for status and metrics (SNP).

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

use super::Machine;
use crate::{
    config::{NodePolicy, ProviderPolicy},
    effect::{
        Effect, LeaseSnapshot, LeaseState, NodeSnapshot, NodeState, OverlaySnapshot, ProviderSnapshot,
        ProviderStatus, Snapshot, WaiterSnapshot,
    },
    input::LeaseId,
    lease::{Hold, Lease, State},
    limits::DETAIL_MAX,
    queue::Waiting,
    registry::{ProviderKey, Wish},
};

/// Pending requests by provider: all, long.
type Queued = BTreeMap<ProviderKey, (usize, usize)>;

impl Machine {
    pub(super) fn handle_inspect(&mut self, token: u64, detail: bool) {
        let queued = self.queued();
        let snapshot = Snapshot {
            now: self.now,
            config_generation: self.config.generation,
            queued: self.queue.len(),
            leases: self.leases.len(),
            cancelling: self.leases.cancelling(),
            nodes: self.config.nodes.iter().map(|node| self.picture_node(node, &queued)).collect(),
            queue: if detail { self.picture_queue() } else { Vec::new() },
            holds: if detail { self.picture_leases() } else { Vec::new() },
        };
        self.emit(Effect::Snapshot { token, snapshot });
    }

    fn picture_queue(&self) -> Vec<WaiterSnapshot> {
        let mut candidates: BTreeMap<Wish, Vec<Arc<str>>> = BTreeMap::new();
        let mut waits_for = |wish: Wish| {
            let named = || self.pool.live_candidates(wish).filter_map(|key| Some(self.pool.name_of(key)?.1));
            candidates.entry(wish).or_insert_with(|| named().collect()).clone()
        };
        let waiting = (1..).zip(self.queue.iter()).take(DETAIL_MAX);
        let picture = |(position, waiting): (usize, &Waiting)| WaiterSnapshot {
            request: waiting.ticket.admit.request,
            position,
            group: Arc::clone(&waiting.ticket.admit.group),
            long: waiting.ticket.admit.long,
            since: waiting.ticket.arrived,
            attempts: waiting.ticket.attempts,
            waits_for: waits_for(waiting.wish),
        };
        waiting.map(picture).collect()
    }

    fn picture_leases(&self) -> Vec<LeaseSnapshot> {
        let picture = |(id, lease): (LeaseId, &Lease)| LeaseSnapshot {
            lease: id,
            request: lease.request,
            node: Arc::clone(&lease.binding.node),
            provider: Arc::clone(&lease.binding.provider),
            direct: matches!(lease.hold, Hold::Direct(_)),
            long: matches!(lease.hold, Hold::Slot(slot) if slot.long),
            since: lease.granted,
            state: match lease.state {
                State::Active(_) => LeaseState::Active,
                State::Cancelling { .. } => LeaseState::Cancelling,
                State::Fenced(_) => LeaseState::Fenced,
                State::Settled => LeaseState::Settled,
            },
        };
        self.leases.iter().take(DETAIL_MAX).map(picture).collect()
    }

    /// Counts each pending request once at each of its live candidates.
    ///
    /// Costs the members of the groups somebody waits for and the lines that avoid one, not their product: everybody in a
    /// group counts at every live candidate, less those who avoid it.
    fn queued(&self) -> Queued {
        let mut queued = Queued::new();
        for (group, shape, lines) in self.queue.lines() {
            let total: usize = lines.lengths().map(|(_, waiting)| waiting).sum();
            for provider in self.pool.live_candidates(Wish::any(group, shape)) {
                let (all, long) = queued.entry(provider).or_default();
                *all += total;
                *long += if shape.long { total } else { 0 };
            }
            for (avoidance, waiting) in lines.lengths() {
                for provider in self.pool.live_but_avoided(&Wish { group, shape, avoidance }) {
                    if let Some((all, long)) = queued.get_mut(&provider) {
                        *all -= waiting;
                        *long -= if shape.long { waiting } else { 0 };
                    }
                }
            }
        }
        queued
    }

    fn picture_node(&self, node: &NodePolicy, queued: &Queued) -> NodeSnapshot {
        let (state, since) = self.ownership.state(&node.id);
        let connected = state == NodeState::Ready;
        let providers =
            node.providers.iter().map(|policy| self.picture(node, policy, connected, queued)).collect();
        NodeSnapshot { id: Arc::clone(&node.id), connected, state, since, providers }
    }

    /// Disabled outranks offline, offline the overlay (HND-7).
    fn picture(
        &self,
        node: &NodePolicy,
        policy: &ProviderPolicy,
        connected: bool,
        queued: &Queued,
    ) -> ProviderSnapshot {
        let key = self.pool.key_of(&node.id, &policy.id);
        let overlay = key.and_then(|key| self.overlays.overlay(key));
        let status = match (policy.enabled, connected, overlay) {
            (false, _, _) => ProviderStatus::Disabled,
            (true, false, _) => ProviderStatus::Offline,
            (true, true, Some(_)) => ProviderStatus::Unavailable,
            (true, true, None) => ProviderStatus::Available,
        };
        let available = status == ProviderStatus::Available;
        // All numbers of an offline or overlaid provider are 0 (SNP-2, HND-6), also while it still holds leases.
        let shown = key.filter(|_| available || status == ProviderStatus::Disabled);
        let (in_flight, long_in_flight) = shown.map_or((0, 0), |key| self.pool.load(key));
        let (queued, long_queued) = key.and_then(|key| queued.get(&key)).copied().unwrap_or_default();
        let count = |waiting| u32::try_from(waiting).unwrap_or(u32::MAX);
        ProviderSnapshot {
            id: Arc::clone(&policy.id),
            status,
            capacity: if available { policy.capacity } else { 0 },
            long_capacity: if available { policy.long_capacity } else { 0 },
            in_flight,
            long_in_flight,
            queued: count(queued),
            long_queued: count(long_queued),
            overlay: overlay.map(|overlay| OverlaySnapshot {
                since: overlay.since,
                adapter: Arc::clone(&overlay.adapter),
                target: Arc::clone(&overlay.target),
                next_probe: overlay.next_probe,
                probes: overlay.probes,
            }),
        }
    }
}
