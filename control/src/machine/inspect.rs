//! The picture for status and metrics (SNP).

use alloc::{collections::BTreeMap, sync::Arc};

use super::Machine;
use crate::{
    config::{NodePolicy, ProviderPolicy},
    effect::{Effect, NodeSnapshot, ProviderSnapshot, ProviderStatus, Snapshot},
    registry::ProviderKey,
};

/// Pending requests by provider: all, long.
type Queued = BTreeMap<ProviderKey, (u32, u32)>;

impl Machine {
    pub(super) fn handle_inspect(&mut self, token: u64) {
        let queued = self.queued();
        let snapshot = Snapshot {
            config_generation: self.config.generation,
            queued: self.queue.len(),
            leases: self.leases.len(),
            cancelling: self.leases.cancelling(),
            nodes: self.config.nodes.iter().map(|node| self.picture_node(node, &queued)).collect(),
        };
        self.emit(Effect::Snapshot { token, snapshot });
    }

    /// Counts each pending request once at each of its live candidates.
    fn queued(&self) -> Queued {
        let mut queued = Queued::new();
        for (wish, waiting) in self.queue.wishes() {
            let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
            for provider in self.pool.live_candidates(wish) {
                let (all, long) = queued.entry(provider).or_default();
                *all = all.saturating_add(waiting);
                if wish.shape.long {
                    *long = long.saturating_add(waiting);
                }
            }
        }
        queued
    }

    fn picture_node(&self, node: &NodePolicy, queued: &Queued) -> NodeSnapshot {
        let connected = self.ownership.owner(&node.id).is_some_and(|owner| owner.is_ready());
        let providers =
            node.providers.iter().map(|policy| self.picture(node, policy, connected, queued)).collect();
        NodeSnapshot { id: Arc::clone(&node.id), connected, providers }
    }

    /// Disabled outranks offline (HND-7).
    fn picture(
        &self,
        node: &NodePolicy,
        policy: &ProviderPolicy,
        connected: bool,
        queued: &Queued,
    ) -> ProviderSnapshot {
        let status = match (policy.enabled, connected) {
            (false, _) => ProviderStatus::Disabled,
            (true, false) => ProviderStatus::Offline,
            (true, true) => ProviderStatus::Available,
        };
        let available = status == ProviderStatus::Available;
        let key = self.pool.key_of(&node.id, &policy.id);
        // All numbers of an offline provider are 0 (SNP-2), also while its Node drains and it still holds leases.
        let shown = key.filter(|_| status != ProviderStatus::Offline);
        let (in_flight, long_in_flight) = shown.map_or((0, 0), |key| self.pool.load(key));
        let (queued, long_queued) = key.and_then(|key| queued.get(&key)).copied().unwrap_or_default();
        ProviderSnapshot {
            id: Arc::clone(&policy.id),
            status,
            capacity: if available { policy.capacity } else { 0 },
            long_capacity: if available { policy.long_capacity } else { 0 },
            in_flight,
            long_in_flight,
            queued,
            long_queued,
        }
    }
}
