//! Requests: they arrive, lose patience, reach their deadline.

use std::sync::Arc;

use control::{
    config::Capabilities,
    input::{Admit, Avoided, ConnectionId, Input, LeaseId, Moment, RequestId},
    limits::AVOIDED_MAX,
};

use super::{Event, Simulation};
use crate::invariants::{Broken, Checked};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    Running(LeaseId),
}

/// A request's task on its shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) stage: Stage,
    /// Of the last dispatch.
    pub(super) connection: ConnectionId,
}

impl Simulation {
    pub(super) fn arrive(&mut self) {
        if self.is_healed() {
            return;
        }
        let slots: u64 = self
            .config
            .nodes
            .iter()
            .flat_map(|node| &node.providers)
            .map(|provider| u64::from(provider.capacity))
            .sum();
        let mean = self.swarm.run as f64 / (self.swarm.load * slots.max(1) as f64);
        let next = self.rng.around((mean as u64).max(1_000));
        self.after(next, Event::Arrive);
        // They come alone or in a crowd.
        let crowd = if self.rng.chance(0.02) { self.rng.range(2, 20) } else { 1 };
        for _ in 0..crowd {
            self.admit();
        }
    }

    fn admit(&mut self) {
        self.requests += 1;
        let request = RequestId(self.requests);
        let config = Arc::clone(&self.config);
        let group: Arc<str> = if self.rng.chance(self.swarm.direct) && !config.routes.is_empty() {
            Arc::clone(&self.rng.pick(&config.routes).model)
        } else if self.rng.chance(0.01) || config.groups.is_empty() {
            "nobody".into()
        } else {
            Arc::clone(&self.rng.pick(&config.groups).id)
        };
        let avoid = self.some_avoided();
        let admit = Admit {
            request,
            group,
            needs: Capabilities(if self.rng.chance(0.1) { self.rng.range(0, 3) as u32 } else { 0 }),
            long: self.rng.chance(self.swarm.long),
            avoid,
        };
        self.clients.insert(request, Client { stage: Stage::Waiting, connection: ConnectionId(0) });
        if self.rng.chance(self.swarm.impatient) {
            let patience = self.rng.around(self.swarm.patience);
            self.after(patience, Event::Leave(request));
        }
        self.tell_control(Input::Admit(admit));
    }

    /// One, or up to four, each with its own flag; one of them twice now and then.
    fn some_avoided(&mut self) -> Vec<Avoided> {
        if !self.rng.chance(self.swarm.avoid) {
            return Vec::new();
        }
        let how_many = if self.rng.chance(0.5) { 1 } else { self.rng.range(2, AVOIDED_MAX as u64) };
        (0..how_many)
            .filter_map(|_| {
                Some(Avoided { provider: self.some_provider()?, allow_fallback: self.rng.chance(0.5) })
            })
            .collect()
    }

    fn some_provider(&mut self) -> Option<Arc<str>> {
        let config = Arc::clone(&self.config);
        if self.rng.chance(0.05) {
            return Some("nobody".into());
        }
        let nodes: Vec<_> = config.nodes.iter().filter(|node| !node.providers.is_empty()).collect();
        if nodes.is_empty() {
            return None;
        }
        let node = *self.rng.pick(&nodes);
        Some(Arc::clone(&self.rng.pick(&node.providers).id))
    }

    pub(super) fn leave(&mut self, request: RequestId) {
        if !self.is_healed() {
            self.finish(request);
        }
    }

    pub(super) fn deadline(&mut self, request: RequestId, lease: LeaseId) {
        if self.clients.get(&request).is_some_and(|client| client.stage == Stage::Running(lease)) {
            self.finish(request);
        }
    }

    /// L2: no lease is open for longer than its run's deadline, the cancel bound and what every thread of the Edge may be
    /// late by.
    pub(super) fn watch(&mut self) -> Checked {
        self.after(self.swarm.run.max(super::swarm::SECOND), Event::Watch);
        let Some((lease, since)) = self.judge.oracle.oldest_open() else { return Ok(()) };
        let swarm = &self.swarm;
        let late = swarm.lateness + swarm.control_delay + 3 * swarm.shard_delay + swarm.tick;
        let bound = 120 * super::swarm::SECOND + 11 * super::swarm::SECOND + 40 * late;
        let age = Moment(self.now).since(since).as_nanos() as u64;
        if age > bound {
            let detail = format!("{lease:?} is open for {} s", age / super::swarm::SECOND);
            return Err(Broken { check: "L2 lease ends", detail });
        }
        Ok(())
    }
}
