//! The second phase: links are whole, Nodes are honest, nobody new arrives. Then everything must come to rest in bounded
//! time (L1 to L4 of security.md 5.3).

use std::sync::Arc;

use control::effect::{NodeState, ProviderStatus, Snapshot};

use super::{
    Simulation,
    nodes::Kind,
    swarm::{MS, SECOND},
};
use crate::invariants::{Broken, Checked};

/// Of an honest Node, from a whole network on (L3): its own wait between dials comes on top.
const READY_WITHIN: u64 = 60 * SECOND;
/// Everything else: the longest deadline of a run, the cancel bound, the longest wait between probes, and the runs of a
/// full queue one behind another.
const REST_WITHIN: u64 = 400 * SECOND;

impl Simulation {
    pub(super) fn heal(&mut self) {
        self.healed = Some(self.now);
        let swarm = &mut self.swarm;
        swarm.link_delay = swarm.link_delay.min(5 * MS);
        swarm.shard_delay = swarm.shard_delay.min(MS);
        swarm.control_delay = swarm.control_delay.min(MS);
        swarm.lateness = swarm.lateness.min(MS);
        swarm.byzantine = 0.0;
        swarm.failing = 0.0;
        for link in 0..self.links.len() {
            self.mend(link);
            // A link nobody listens to any more is seen to be over.
            if !self.links[link].node_end {
                self.send_up(link, super::links::Up::Closed);
            }
        }
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            node.unreachable = 0;
            node.recover(0);
            node.recover(1);
            let is_honest = std::mem::replace(&mut node.kind, Kind::Honest) == Kind::Honest;
            if !is_honest || node.draining || node.down {
                // It has said things that only a new process can take back, or there is none.
                self.exit(index);
            }
        }
        self.close_links_without_a_node();
        self.last_config();
    }

    /// Second connections that a liar opened.
    fn close_links_without_a_node(&mut self) {
        for link in 0..self.links.len() {
            let node = self.links[link].node;
            if self.nodes[node].link != Some(link) && self.links[link].is_up() {
                self.send_up(link, super::links::Up::Closed);
            }
        }
    }

    /// A configuration under which everything that waits can be served.
    fn last_config(&mut self) {
        let mut config = (*self.config).clone();
        for provider in config.nodes.iter_mut().flat_map(|node| &mut node.providers) {
            provider.enabled = true;
            provider.capacity = provider.capacity.max(1);
            provider.long_capacity = provider.long_capacity.max(1);
        }
        for group in &mut config.groups {
            for member in &mut group.members {
                // Probes can tell them apart now.
                member.target = format!("{}@{}", group.id, member.provider).into();
            }
        }
        self.put_in_force(config);
    }

    pub(super) fn run_to_rest(&mut self) -> Checked {
        let healed = self.healed.unwrap_or(self.now);
        let ready_by = healed + READY_WITHIN + 2 * self.swarm.reconnect + self.swarm.tick;
        let mut checked = healed;
        let mut all_ready = false;
        loop {
            self.next_event()?;
            if self.now < checked + SECOND {
                continue;
            }
            checked = self.now;
            let snapshot = self.judge.snapshot();
            let restless = self.restless(&snapshot);
            all_ready |= !restless.iter().any(|(check, _)| *check == "L3 ready");
            if restless.is_empty() && self.clients.is_empty() && self.holds.is_empty() {
                return Ok(());
            }
            let late = |check: &str| {
                self.now > healed + REST_WITHIN || check == "L3 ready" && !all_ready && self.now > ready_by
            };
            if let Some((check, detail)) = restless.into_iter().find(|(check, _)| late(check)) {
                let after = (self.now - healed) / SECOND;
                return Err(Broken {
                    check,
                    detail: format!("{detail}, {after} s after everything was whole"),
                });
            }
            if self.now > healed + REST_WITHIN {
                let detail = format!("{} clients, {} leases are left", self.clients.len(), self.holds.len());
                return Err(Broken { check: "L2 lease ends", detail });
            }
        }
    }

    /// What has not come to rest.
    fn restless(&self, snapshot: &Snapshot) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        for node in &snapshot.nodes {
            let exists = self.nodes.iter().any(|of| of.name == node.id);
            if exists && node.state == NodeState::Draining {
                found.push(("L4 drain ends", format!("{} drains", node.id)));
            } else if exists && node.state != NodeState::Ready {
                found.push(("L3 ready", format!("{} is {:?}", node.id, node.state)));
            }
            for provider in &node.providers {
                if provider.status == ProviderStatus::Unavailable && self.is_served(&provider.id) {
                    found.push(("L1 overlay ends", format!("{} is overlaid", provider.id)));
                }
            }
        }
        if snapshot.queued > 0 {
            found.push(("L1 waiter ends", format!("{} wait: {:?}", snapshot.queued, snapshot.queue)));
        }
        if snapshot.leases > 0 {
            found.push(("L2 lease ends", format!("{} leases: {:?}", snapshot.leases, snapshot.holds)));
        }
        found
    }

    /// Whether a probe can name what a provider serves.
    fn is_served(&self, provider: &Arc<str>) -> bool {
        self.config.groups.iter().any(|group| group.members.iter().any(|member| member.provider == *provider))
    }
}
