//! What providers serve: the targets their groups name, by which health evidence tells them apart.

use alloc::sync::Arc;

use super::{Live, Pool, ProviderKey, provider::Provider};

impl Pool {
    /// The targets a provider serves, in configured order of their groups.
    fn targets<'a>(&'a self, provider: &'a Provider) -> impl Iterator<Item = &'a Arc<str>> {
        provider.seats.iter().filter_map(|seat| {
            let member = self.groups.get(seat.group.0)?.members.get(seat.member as usize)?;
            Some(&member.target)
        })
    }

    /// What a probe of a provider names: its adapter, and `wanted` if that is still served, else the first target it serves
    /// (CAP-4). `None` when it serves none.
    pub(crate) fn probe_of(&self, key: ProviderKey, wanted: &Arc<str>) -> Option<(Arc<str>, Arc<str>)> {
        let provider = self.providers.get(&key)?;
        let found = self.targets(provider).find(|target| *target == wanted);
        let target = found.or_else(|| self.targets(provider).next())?;
        Some((Arc::clone(&provider.policy.adapter), Arc::clone(target)))
    }

    /// Whether a provider is the only one configured on its Node that serves `target` by `adapter` (CAP-2).
    pub(crate) fn is_only_binding(&self, key: ProviderKey, adapter: &str, target: &str) -> bool {
        let Some(node) = self.providers.get(&key).map(|provider| &provider.node) else { return false };
        let keys = self.by_node.get(node).map_or(&[][..], |keys| keys);
        if planted!(AmbiguousAnswerBelieved) {
            return true;
        }
        let mut bound = keys.iter().filter(|&key| {
            self.providers.get(key).is_some_and(|provider| {
                *provider.policy.adapter == *adapter
                    && self.targets(provider).any(|served| **served == *target)
            })
        });
        bound.next() == Some(&key) && bound.next().is_none()
    }

    /// Node and id of a provider.
    pub(crate) fn name_of(&self, key: ProviderKey) -> Option<(Arc<str>, Arc<str>)> {
        let provider = self.providers.get(&key)?;
        Some((Arc::clone(&provider.node), Arc::clone(&provider.policy.id)))
    }

    /// The dispatch-ready generation a configured provider is served by.
    pub(crate) fn live_of(&self, key: ProviderKey) -> Option<Live> {
        self.providers.get(&key)?.live
    }
}
