//! The configuration in force, resolved, with the load of each of its providers.

use std::{collections::BTreeMap, sync::Arc};

use control::{
    config::{NodePolicy, PoolConfig, ProviderPolicy, Route},
    input::LeaseId,
};

use super::books::{Claim, HealthBook, Held, Wish};

/// A configured provider.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) node: Arc<str>,
    pub(super) policy: ProviderPolicy,
    pub(super) load: u32,
    pub(super) long_load: u32,
    /// Its Node's owner takes new runs.
    pub(super) ready: bool,
    pub(super) overlaid: bool,
}

impl Seat {
    pub(super) fn is_live(&self) -> bool {
        self.policy.enabled && self.ready && !self.overlaid
    }

    fn can(&self, wish: &Wish) -> bool {
        self.policy.enabled
            && self.policy.capabilities.covers(wish.needs)
            && (!wish.long || self.policy.long_capacity > 0)
    }

    fn has_room(&self, long: bool) -> bool {
        self.load < self.policy.capacity && (!long || self.long_load < self.policy.long_capacity)
    }
}

#[derive(Debug)]
pub(super) struct Policy {
    pub(super) config: Arc<PoolConfig>,
    pub(super) seats: Vec<Seat>,
    by_id: BTreeMap<Arc<str>, usize>,
    /// Candidates of each group in configured order, each once, with its target.
    pub(super) groups: BTreeMap<Arc<str>, Vec<(usize, Arc<str>)>>,
    pub(super) health: HealthBook,
}

impl Policy {
    pub(super) fn new(config: Arc<PoolConfig>) -> Self {
        let mut policy = Self {
            config: Arc::clone(&config),
            seats: Vec::new(),
            by_id: BTreeMap::new(),
            groups: BTreeMap::new(),
            health: HealthBook::new(),
        };
        policy.take_over(config);
        policy
    }

    fn take_over(&mut self, config: Arc<PoolConfig>) {
        self.seats.clear();
        self.by_id.clear();
        self.groups.clear();
        for node in &config.nodes {
            for provider in &node.providers {
                self.by_id.insert(Arc::clone(&provider.id), self.seats.len());
                self.seats.push(Seat {
                    node: Arc::clone(&node.id),
                    policy: provider.clone(),
                    load: 0,
                    long_load: 0,
                    ready: false,
                    overlaid: false,
                });
            }
        }
        for group in &config.groups {
            let mut members: Vec<(usize, Arc<str>)> = Vec::new();
            for member in &group.members {
                if let Some(&seat) = self.by_id.get(&member.provider)
                    && members.iter().all(|(other, _)| *other != seat)
                {
                    members.push((seat, Arc::clone(&member.target)));
                }
            }
            self.groups.insert(Arc::clone(&group.id), members);
        }
        self.config = config;
    }

    /// A new configuration: loads are counted anew. Health stays with a provider that is configured (HND-7), or that still
    /// holds slots and may come back.
    pub(super) fn rebuild(
        &mut self,
        config: Arc<PoolConfig>,
        claims: &BTreeMap<Arc<str>, Claim>,
        leases: &BTreeMap<LeaseId, Held>,
    ) {
        self.take_over(config);
        for held in leases.values().filter(|held| held.open && !held.direct) {
            self.count(&held.node, &held.provider, held.long, 1);
        }
        let mut health = std::mem::take(&mut self.health);
        health.retain(|(node, provider), _| self.exists(node, provider, leases));
        for seat in &mut self.seats {
            seat.ready = claims.get(&seat.node).is_some_and(Claim::takes_runs);
            let health = health.get(&(Arc::clone(&seat.node), Arc::clone(&seat.policy.id)));
            seat.overlaid = health.is_some_and(|health| health.overlay.is_some());
        }
        self.health = health;
    }

    /// Whether it is configured, or holds slots.
    pub(super) fn exists(&self, node: &str, provider: &str, leases: &BTreeMap<LeaseId, Held>) -> bool {
        let holds =
            |held: &Held| held.open && !held.direct && *held.node == *node && *held.provider == *provider;
        self.find(node, provider).is_some() || leases.values().any(holds)
    }

    /// The seat of a provider of this Node.
    pub(super) fn find(&self, node: &str, provider: &str) -> Option<usize> {
        let seat = *self.by_id.get(provider)?;
        (*self.seats[seat].node == *node).then_some(seat)
    }

    pub(super) fn count(&mut self, node: &str, provider: &str, long: bool, by: i32) {
        if let Some(seat) = self.find(node, provider) {
            let seat = &mut self.seats[seat];
            seat.load = seat.load.saturating_add_signed(by);
            if long {
                seat.long_load = seat.long_load.saturating_add_signed(by);
            }
        }
    }

    pub(super) fn set_ready(&mut self, node: &str, ready: bool) {
        self.seats.iter_mut().filter(|seat| *seat.node == *node).for_each(|seat| seat.ready = ready);
    }

    /// Its generation is over: nothing of its health counts any more (HND-5).
    pub(super) fn forget_health(&mut self, node: &str) {
        if !self.health.is_empty() {
            self.health.retain(|(of, _), _| **of != *node);
        }
        self.seats.iter_mut().filter(|seat| *seat.node == *node).for_each(|seat| seat.overlaid = false);
    }

    pub(super) fn route(&self, model: &str) -> Option<&Route> {
        if self.groups.contains_key(model) {
            return None;
        }
        self.config.routes.iter().find(|route| *route.model == *model)
    }

    pub(super) fn node(&self, id: &str) -> Option<&NodePolicy> {
        self.config.nodes.iter().find(|node| *node.id == *id)
    }

    /// Whether anything configured can ever serve it; `None`: there is no such group.
    pub(super) fn is_servable(&self, wish: &Wish) -> Option<bool> {
        let members = self.groups.get(&wish.group)?;
        Some(members.iter().any(|&(seat, _)| {
            let seat = &self.seats[seat];
            seat.can(wish) && wish.avoid.get(&seat.policy.id).is_none_or(|permitted| *permitted)
        }))
    }

    /// Its live candidates, by POL-2 and POL-8, each with its target.
    pub(super) fn live<'a>(&'a self, wish: &'a Wish) -> impl Iterator<Item = (usize, &'a Arc<str>)> {
        let members = self.groups.get(&wish.group).map_or(&[][..], Vec::as_slice);
        let live = move |seat: usize| self.seats[seat].is_live() && self.seats[seat].can(wish);
        let flag = move |seat: usize| wish.avoid.get(&self.seats[seat].policy.id).copied();
        let alternate =
            !wish.avoid.is_empty() && members.iter().any(|&(seat, _)| live(seat) && flag(seat).is_none());
        members
            .iter()
            .filter(move |(seat, _)| live(*seat) && flag(*seat).is_none_or(|flag| flag && !alternate))
            .map(|(seat, target)| (*seat, target))
    }

    /// Its eligible candidates: the live ones with room.
    pub(super) fn eligible<'a>(&'a self, wish: &'a Wish) -> impl Iterator<Item = (usize, &'a Arc<str>)> {
        self.live(wish).filter(|(seat, _)| self.seats[*seat].has_room(wish.long))
    }

    pub(super) fn can_run(&self, wish: &Wish) -> bool {
        self.eligible(wish).next().is_some()
    }

    /// How many providers of a Node serve this target on this adapter, over all groups.
    pub(super) fn serving(&self, node: &str, adapter: &str, target: &str) -> usize {
        let serves = |index: usize| self.targets(index).any(|served| **served == *target);
        let mine = |seat: &Seat| *seat.node == *node && *seat.policy.adapter == *adapter;
        (0..self.seats.len()).filter(|&index| mine(&self.seats[index]) && serves(index)).count()
    }

    /// What a provider serves, group by group.
    pub(super) fn targets(&self, seat: usize) -> impl Iterator<Item = &Arc<str>> {
        self.config.groups.iter().filter_map(move |group| {
            let members = self.groups.get(&group.id)?;
            members.iter().find(|(index, _)| *index == seat).map(|(_, target)| target)
        })
    }
}
