//! Taking over a configuration: providers keep their load, groups are built anew.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

use super::{
    GroupKey, Live, Pool, ProviderKey,
    bucket::Bucket,
    choice::{Group, Member},
    provider::{Provider, Seat},
};
use crate::config::{self, Capabilities, PoolConfig, ProviderPolicy};

impl Pool {
    /// Takes over `config`. `live` tells the dispatch-ready generation of a Node.
    ///
    /// A provider is the same when Node and id are (POL-3); its leases stay and count (POL-6). Group keys
    /// given out before are void; who waits is to be resolved and enqueued again. Gives the providers that are forgotten.
    pub(crate) fn rebuild(
        &mut self,
        config: &PoolConfig,
        live: impl Fn(&str) -> Option<Live>,
    ) -> Vec<ProviderKey> {
        for provider in self.providers.values_mut() {
            provider.configured = false;
            provider.live = None;
            provider.seats.clear();
        }
        self.by_node.clear();
        let mut by_id = BTreeMap::new();
        for node in &config.nodes {
            let live = live(&node.id);
            let mut keys = Vec::with_capacity(node.providers.len());
            for policy in &node.providers {
                let key = self.place(&node.id, policy, live);
                by_id.insert(Arc::clone(&policy.id), key);
                keys.push(key);
            }
            self.by_node.insert(Arc::clone(&node.id), keys);
        }
        let mut forgotten: Vec<_> = self.providers.keys().copied().collect();
        forgotten.retain(|&key| self.forget_if_over(key));
        self.group_keys.clear();
        self.groups.clear();
        for (index, group) in config.groups.iter().enumerate() {
            let built = self.build(GroupKey(index), group, &by_id);
            self.groups.push(built);
            self.group_keys.insert(Arc::clone(&group.id), GroupKey(index));
        }
        self.touched.clear();
        forgotten
    }

    fn place(&mut self, node: &Arc<str>, policy: &ProviderPolicy, live: Option<Live>) -> ProviderKey {
        let name = (Arc::clone(node), Arc::clone(&policy.id));
        let key = *self.names.entry(name).or_insert_with(|| {
            self.last_key += 1;
            ProviderKey(self.last_key)
        });
        let provider = self.providers.entry(key).or_insert_with(|| Provider {
            node: Arc::clone(node),
            policy: policy.clone(),
            configured: true,
            live: None,
            overlaid: false,
            in_flight: 0,
            long_in_flight: 0,
            last_grant: 0,
            seats: Vec::new(),
        });
        let before = provider.policy.capacity;
        provider.policy = policy.clone();
        if planted!(LoweredCapacityIgnored) && provider.in_flight > policy.capacity {
            provider.policy.capacity = before;
        }
        provider.configured = true;
        if planted!(ReloadForgetsRotation) {
            provider.last_grant = 0;
        }
        provider.live = live;
        key
    }

    /// Resolves one group. Members that name no configured provider, or one already named, are left out: the loader
    /// reports them, and the machine does not depend on it.
    fn build(
        &mut self,
        key: GroupKey,
        group: &config::Group,
        by_id: &BTreeMap<Arc<str>, ProviderKey>,
    ) -> Group {
        let mut built = Group::default();
        let mut buckets: BTreeMap<Capabilities, usize> = BTreeMap::new();
        for member in &group.members {
            let Some(&provider_key) = by_id.get(&member.provider) else { continue };
            let Some(provider) = self.providers.get_mut(&provider_key) else { continue };
            let Ok(position) = u32::try_from(built.members.len()) else { break };
            if built.positions.contains_key(&member.provider) {
                continue;
            }
            let capabilities = provider.policy.capabilities;
            let bucket = *buckets.entry(capabilities).or_insert_with(|| {
                built.buckets.push(Bucket::new(capabilities));
                built.buckets.len() - 1
            });
            if let Some(bucket) = built.buckets.get_mut(bucket) {
                bucket.enter(position, &provider.standing());
            }
            provider.seats.push(Seat { group: key, bucket, member: position });
            built.positions.insert(Arc::clone(&member.provider), position);
            built.members.push(Member { provider: provider_key, bucket, target: Arc::clone(&member.target) });
        }
        built
    }
}
