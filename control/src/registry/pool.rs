//! The pool: load and standing of every provider, and the ordered candidate sets of every group.
//!
//! Every change of a provider goes through [`Pool::update`], which moves it in the sets of its groups. Cost: the
//! groups it serves, times the logarithm of their size.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Choice, GroupKey, Live, ProviderKey, bucket::Bucket, choice::Group, provider::Provider};
use crate::lease::{Binding, Slot};

/// All providers and groups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Pool {
    #[serde(with = "crate::pairs")]
    pub(super) providers: BTreeMap<ProviderKey, Provider>,
    /// By Node and provider id: the two together are the identity that capacity belongs to (POL-3).
    #[serde(with = "crate::pairs")]
    pub(super) names: BTreeMap<(Arc<str>, Arc<str>), ProviderKey>,
    /// Configured providers of each configured Node, in configured order.
    pub(super) by_node: BTreeMap<Arc<str>, Vec<ProviderKey>>,
    pub(super) groups: Vec<Group>,
    pub(super) group_keys: BTreeMap<Arc<str>, GroupKey>,
    /// Groups in which a waiting request may have become runnable since they were last looked at.
    pub(super) touched: BTreeSet<GroupKey>,
    pub(super) last_key: u64,
    last_grant: u64,
}

/// What a dispatch to a chosen candidate needs to know.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) live: Live,
    pub(crate) binding: Binding,
    pub(crate) stall_timeout: Duration,
    pub(crate) request_timeout: Duration,
}

impl Pool {
    /// The configured providers of a Node.
    pub(crate) fn of_node(&self, node: &str) -> Vec<ProviderKey> {
        self.by_node.get(node).cloned().unwrap_or_default()
    }

    /// The providers of a Node serve under a new generation (FEN-3), or are offline (FEN-2), or take nothing new.
    pub(crate) fn set_live(&mut self, node: &str, live: Option<Live>) {
        for key in self.of_node(node) {
            self.update(key, |provider| provider.live = live);
        }
    }

    /// Takes a slot of a candidate that [`Pool::choose`] found and nothing changed since.
    pub(crate) fn take(&mut self, choice: Choice, long: bool) -> Option<Dispatch> {
        let target = &self.groups.get(choice.group.0)?.members.get(choice.member as usize)?.target;
        let target = Arc::clone(target);
        let provider = self.providers.get(&choice.provider)?;
        let policy = &provider.policy;
        let dispatch = Dispatch {
            live: provider.live?,
            binding: Binding {
                node: Arc::clone(&provider.node),
                provider: Arc::clone(&policy.id),
                adapter: Arc::clone(&policy.adapter),
                target,
            },
            stall_timeout: policy.stall_timeout,
            request_timeout: policy.request_timeout,
        };
        self.last_grant += 1;
        let last_grant = self.last_grant;
        self.update(choice.provider, |provider| {
            provider.in_flight += 1;
            provider.long_in_flight += u32::from(long);
            provider.last_grant = if planted!(RotationLost) { 0 } else { last_grant };
        });
        Some(dispatch)
    }

    /// Returns a slot. Whether its provider is forgotten: it left the configuration, and this was its last lease.
    pub(crate) fn give_back(&mut self, slot: Slot) -> bool {
        self.update(slot.provider, |provider| {
            provider.in_flight -= 1;
            provider.long_in_flight -= u32::from(slot.long && !planted!(LongSlotKept));
        });
        self.forget_if_over(slot.provider)
    }

    /// Forgets a provider that left the configuration and holds no lease.
    pub(super) fn forget_if_over(&mut self, key: ProviderKey) -> bool {
        let over = |provider: &&Provider| {
            !provider.configured && (provider.in_flight == 0 || planted!(RemovedForgetsLoad))
        };
        let Some(provider) = self.providers.get(&key).filter(over) else { return false };
        self.names.remove(&(Arc::clone(&provider.node), Arc::clone(&provider.policy.id)));
        self.providers.remove(&key);
        true
    }

    /// Takes a provider out, or back in (HND-4, CAP-2).
    pub(crate) fn overlay(&mut self, key: ProviderKey, overlaid: bool) {
        self.update(key, |provider| provider.overlaid = overlaid);
    }

    /// The one place where a provider changes.
    pub(super) fn update(&mut self, key: ProviderKey, change: impl FnOnce(&mut Provider)) {
        let Some(provider) = self.providers.get_mut(&key) else { return };
        let before = provider.standing();
        change(provider);
        let after = provider.standing();
        if before == after {
            return;
        }
        for seat in &provider.seats {
            let bucket =
                self.groups.get_mut(seat.group.0).and_then(|group| group.buckets.get_mut(seat.bucket));
            if let Some(bucket) = bucket {
                bucket.leave(seat.member, &before);
                bucket.enter(seat.member, &after);
            }
            if after.may_unblock(&before) {
                self.touched.insert(seat.group);
            }
        }
    }

    /// Marks a group as worth a look.
    pub(crate) fn touch(&mut self, group: GroupKey) {
        self.touched.insert(group);
    }

    /// Whether any group is worth a look.
    pub(crate) fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Takes the groups worth a look.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<GroupKey> {
        core::mem::take(&mut self.touched)
    }

    /// A configured or lease-holding provider, by Node and id.
    pub(crate) fn key_of(&self, node: &Arc<str>, provider: &Arc<str>) -> Option<ProviderKey> {
        self.names.get(&(Arc::clone(node), Arc::clone(provider))).copied()
    }

    /// Current leases of a provider: all, long.
    pub(crate) fn load(&self, key: ProviderKey) -> (u32, u32) {
        self.providers.get(&key).map_or((0, 0), |provider| (provider.in_flight, provider.long_in_flight))
    }
}

/// Checks for audits; each costs the size of what it checks.
impl Pool {
    /// Whether the candidate sets are what they would be if built now.
    pub(crate) fn is_consistent(&self) -> bool {
        self.groups.iter().enumerate().all(|(index, group)| {
            let mut fresh: Vec<Bucket> =
                group.buckets.iter().map(|bucket| Bucket::new(bucket.capabilities)).collect();
            for (position, member) in (0..).zip(&group.members) {
                let provider = self.providers.get(&member.provider);
                let (Some(provider), Some(bucket)) = (provider, fresh.get_mut(member.bucket)) else {
                    return false;
                };
                let seated = provider.seats.iter().any(|seat| {
                    (seat.group, seat.bucket, seat.member) == (GroupKey(index), member.bucket, position)
                });
                if !seated || provider.policy.capabilities != bucket.capabilities {
                    return false;
                }
                bucket.enter(position, &provider.standing());
            }
            fresh == group.buckets
        })
    }

    /// Whether every provider's load is what `loads` says, 0 where it says nothing.
    pub(crate) fn has_loads(&self, loads: &BTreeMap<ProviderKey, (u32, u32)>) -> bool {
        let counted = |key: &ProviderKey| loads.get(key).copied().unwrap_or_default();
        loads.keys().all(|key| self.providers.contains_key(key))
            && self.providers.iter().all(|(key, p)| (p.in_flight, p.long_in_flight) == counted(key))
            && self.providers.values().all(|p| p.configured || p.in_flight > 0)
    }

    /// Providers that are taken out.
    pub(crate) fn overlaid(&self) -> impl Iterator<Item = ProviderKey> {
        self.providers.iter().filter(|(_, provider)| provider.overlaid).map(|(&key, _)| key)
    }

    /// Whether all providers of a Node serve under exactly this generation.
    pub(crate) fn all_serve(&self, node: &str, live: Option<Live>) -> bool {
        let keys = self.by_node.get(node).map_or(&[][..], Vec::as_slice);
        keys.iter().all(|key| self.providers.get(key).is_some_and(|provider| provider.live == live))
    }
}
