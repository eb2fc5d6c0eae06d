//! Configurations: the first one, and what an operator does to it later.

use std::{sync::Arc, time::Duration};

use control::{
    config::{Capabilities, Group, Member, NodePolicy, PoolConfig, ProviderPolicy, Route},
    input::Input,
};

use super::{Simulation, nodes::ADAPTERS, swarm::Swarm};
use crate::rng::Rng;

pub(super) fn first_config(rng: &mut Rng, swarm: &Swarm) -> PoolConfig {
    let mut config = PoolConfig {
        generation: 1,
        queue_max: swarm.queue_max as usize,
        queue_timeout: swarm.queue_timeout.map(Duration::from_nanos),
        ..PoolConfig::default()
    };
    let mut provider = 0;
    for index in 0..swarm.nodes {
        // One that is not configured yet dials all the same.
        if rng.chance(0.05) {
            continue;
        }
        let mut node = NodePolicy {
            id: format!("n{index}").into(),
            providers: Vec::new(),
            adapters: ADAPTERS.iter().filter(|_| rng.chance(0.8)).map(|&adapter| adapter.into()).collect(),
        };
        for _ in 0..rng.range(0, swarm.providers) {
            node.providers.push(some_provider(rng, swarm, provider));
            provider += 1;
        }
        config.nodes.push(node);
    }
    for index in 0..swarm.groups {
        let group = some_group(rng, &config, index);
        config.groups.push(group);
    }
    for index in 0..swarm.routes {
        config.routes.push(Route {
            model: format!("r{index}").into(),
            adapter: (*rng.pick(&ADAPTERS)).into(),
            target: "direct".into(),
            provider: "attributed".into(),
            stall_timeout: Duration::from_nanos(swarm.stall_timeout),
            request_timeout: Duration::from_nanos(swarm.request_timeout),
        });
    }
    config
}

fn some_provider(rng: &mut Rng, swarm: &Swarm, number: usize) -> ProviderPolicy {
    let capacity = rng.range(1, swarm.capacity) as u32;
    ProviderPolicy {
        id: format!("p{number}").into(),
        adapter: (*rng.pick(&ADAPTERS)).into(),
        enabled: rng.chance(0.95),
        capacity,
        long_capacity: if rng.chance(0.5) { capacity } else { rng.range(0, capacity.into()) as u32 },
        priority: rng.below(3) as u32,
        capabilities: Capabilities(if rng.chance(0.7) { 3 } else { rng.range(0, 3) as u32 }),
        stall_timeout: Duration::from_nanos(swarm.stall_timeout),
        request_timeout: Duration::from_nanos(swarm.request_timeout),
    }
}

fn some_group(rng: &mut Rng, config: &PoolConfig, index: usize) -> Group {
    let share = *rng.pick(&[0.3, 0.6, 1.0]);
    // With one name for all that serve it, evidence cannot tell two providers of an adapter apart (CAP-4).
    let shared = rng.chance(0.2);
    let all = config.nodes.iter().flat_map(|node| &node.providers);
    let mut members = Vec::new();
    for provider in all {
        if rng.chance(share) && members.len() < 12 || members.is_empty() && rng.chance(0.9) {
            let target = if shared { format!("m{index}") } else { format!("m{index}@{}", provider.id) };
            members.push(Member { provider: Arc::clone(&provider.id), target: target.into() });
        }
    }
    Group { id: format!("m{index}").into(), members }
}

impl Simulation {
    /// One change, or a few at once.
    pub(super) fn edit(&mut self) {
        let mut config = (*self.config).clone();
        for _ in 0..self.rng.range(1, 3) {
            self.change(&mut config);
        }
        self.put_in_force(config);
    }

    pub(super) fn put_in_force(&mut self, mut config: PoolConfig) {
        config.generation = self.config.generation + 1;
        self.config = Arc::new(config);
        self.tell_control(Input::Configure(Arc::clone(&self.config)));
        for link in self.links.len().saturating_sub(200)..self.links.len() {
            if self.links[link].is_up() {
                self.refresh(link);
            }
        }
    }

    fn change(&mut self, config: &mut PoolConfig) {
        let what = self.rng.below(14);
        let swarm = self.swarm.clone();
        let rng = &mut self.rng;
        match what {
            0 => config.queue_max = rng.below(2 * swarm.queue_max + 2) as usize,
            1 => {
                config.queue_timeout =
                    rng.chance(0.8).then(|| Duration::from_nanos(1 + rng.below(6 * swarm.run)));
            }
            2 if !config.groups.is_empty() => {
                let index = rng.index(config.groups.len());
                let number: usize = config.groups[index].id[1..].parse().unwrap_or(0);
                config.groups[index] = some_group(rng, config, number);
            }
            3 if config.groups.len() > 1 => {
                let index = rng.index(config.groups.len());
                config.groups.remove(index);
            }
            4 => {
                let free = (0..8).find(|n| config.groups.iter().all(|group| *group.id != *format!("m{n}")));
                if let Some(number) = free {
                    let group = some_group(rng, config, number);
                    config.groups.push(group);
                }
            }
            5 if config.nodes.len() > 1 => {
                let index = rng.index(config.nodes.len());
                config.nodes.remove(index);
            }
            6 => {
                let index = rng.index(swarm.nodes.max(1));
                let id: Arc<str> = format!("n{index}").into();
                if index < swarm.nodes && config.nodes.iter().all(|node| node.id != id) {
                    let adapters = ADAPTERS.iter().map(|&adapter| adapter.into()).collect();
                    config.nodes.push(NodePolicy { id, providers: Vec::new(), adapters });
                }
            }
            7 if !config.nodes.is_empty() => {
                let taken = |config: &PoolConfig, number: usize| {
                    let id = format!("p{number}");
                    config.nodes.iter().flat_map(|node| &node.providers).any(|p| *p.id == *id)
                };
                let Some(number) = (0..300).find(|&number| !taken(config, number)) else { return };
                let provider = some_provider(rng, &swarm, number);
                let member = Member {
                    provider: Arc::clone(&provider.id),
                    target: format!("m@{}", provider.id).into(),
                };
                let node = rng.index(config.nodes.len());
                config.nodes[node].providers.push(provider);
                if !config.groups.is_empty() {
                    let group = rng.index(config.groups.len());
                    config.groups[group].members.push(member);
                }
            }
            8 => {
                // It moves to another Node under its name: there it is another one.
                let Some((node, place)) = pick_provider(rng, config) else { return };
                let provider = config.nodes[node].providers.remove(place);
                let to = rng.index(config.nodes.len());
                config.nodes[to].providers.push(provider);
            }
            9 => {
                let Some((node, place)) = pick_provider(rng, config) else { return };
                config.nodes[node].providers.remove(place);
            }
            _ => {
                let Some((node, place)) = pick_provider(rng, config) else { return };
                let provider = &mut config.nodes[node].providers[place];
                match what {
                    10 => {
                        let least = u64::from(rng.chance(0.95));
                        provider.capacity = rng.range(least, swarm.capacity) as u32;
                        provider.long_capacity = provider.long_capacity.min(provider.capacity);
                    }
                    11 => provider.enabled = !provider.enabled,
                    12 => provider.priority = rng.below(3) as u32,
                    _ => provider.adapter = (*rng.pick(&ADAPTERS)).into(),
                }
            }
        }
    }
}

fn pick_provider(rng: &mut Rng, config: &PoolConfig) -> Option<(usize, usize)> {
    let all: Vec<_> = config
        .nodes
        .iter()
        .enumerate()
        .flat_map(|(node, policy)| (0..policy.providers.len()).map(move |place| (node, place)))
        .collect();
    if all.is_empty() { None } else { Some(*rng.pick(&all)) }
}
