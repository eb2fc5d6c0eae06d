//! The whole books against what the machine says of itself (I13, I23, SNP).

use control::{
    effect::{LeaseState, NodeState, ProviderStatus, Snapshot},
    limits::DETAIL_MAX,
};

use super::{
    Checked, Oracle, Stage,
    books::{Claim, Wish},
    hold,
};

impl Oracle {
    /// Compares everything. Costs the size of the books.
    ///
    /// # Errors
    /// The first check that does not hold.
    pub fn compare(&self, snapshot: &Snapshot) -> Checked {
        hold!(
            "I13 conservation",
            snapshot.queued == self.waiting.len(),
            "{} wait: {}",
            self.waiting.len(),
            snapshot.queued
        );
        hold!(
            "I23 memory",
            snapshot.leases == self.leases.len(),
            "{} leases: {}",
            self.leases.len(),
            snapshot.leases
        );
        let cancelling = self.leases.values().filter(|held| held.open && !held.holder).count();
        hold!(
            "I13 conservation",
            snapshot.cancelling == cancelling,
            "{cancelling} cancelling: {}",
            snapshot.cancelling
        );
        self.pairs()?;
        self.compare_nodes(snapshot)?;
        self.compare_queue(snapshot)?;
        self.compare_holds(snapshot)
    }

    /// I3: running requests and leases with a holder are the same pairs.
    fn pairs(&self) -> Checked {
        let running = self.requests.iter().filter_map(|(&id, request)| match request.stage {
            Stage::Running(lease) => Some((lease, id)),
            _ => None,
        });
        let mut running: Vec<_> = running.collect();
        running.sort_unstable();
        let held = self.leases.iter().filter(|(_, held)| held.open && held.holder);
        let held: Vec<_> = held.map(|(&id, held)| (id, held.request)).collect();
        hold!("I3 one lease", running == held, "{running:?} run, {held:?} are held");
        Ok(())
    }

    fn compare_nodes(&self, snapshot: &Snapshot) -> Checked {
        let queued = self.queued();
        let mut seat = 0;
        for node in &snapshot.nodes {
            let claim = self.claims.get(&node.id);
            let state = match claim {
                None => NodeState::Disconnected,
                Some(Claim { ready: None, .. }) => NodeState::Pending,
                Some(Claim { draining: true, .. }) => NodeState::Draining,
                Some(_) => NodeState::Ready,
            };
            hold!("I6 order", node.state == state, "{claim:?}: {node:?}");
            hold!("I6 order", node.connected == (state == NodeState::Ready), "{node:?}");
            for shown in &node.providers {
                let ours = &self.policy.seats[seat];
                let status = match (ours.policy.enabled, ours.ready, ours.overlaid) {
                    (false, ..) => ProviderStatus::Disabled,
                    (_, false, _) => ProviderStatus::Offline,
                    (_, _, true) => ProviderStatus::Unavailable,
                    _ => ProviderStatus::Available,
                };
                hold!("I23 memory", shown.status == status, "{ours:?}: {shown:?}");
                let load = (ours.load, ours.long_load);
                let down = state == NodeState::Disconnected || state == NodeState::Pending;
                hold!("I19 fencing", !down || load == (0, 0), "{ours:?} is offline");
                let (policy, zero) = (&ours.policy, (0, 0));
                let is = |which| status == which;
                let capacity = if is(ProviderStatus::Available) {
                    (policy.capacity, policy.long_capacity)
                } else {
                    zero
                };
                hold!("I23 memory", (shown.capacity, shown.long_capacity) == capacity, "{ours:?}: {shown:?}");
                let hidden = is(ProviderStatus::Offline) || is(ProviderStatus::Unavailable);
                let expected = if hidden { zero } else { load };
                hold!(
                    "I1 capacity",
                    (shown.in_flight, shown.long_in_flight) == expected,
                    "{ours:?}: {shown:?}"
                );
                let waits = (shown.queued, shown.long_queued);
                hold!("I13 conservation", waits == queued[seat], "SNP-1: {:?}: {shown:?}", queued[seat]);
                hold!("I16 snapshot", shown.overlay.is_some() == ours.overlaid, "{ours:?}: {shown:?}");
                seat += 1;
            }
        }
        hold!("I20 names", seat == self.policy.seats.len(), "{seat} providers shown");
        Ok(())
    }

    /// Pending requests of each provider that has them as live candidate: all, long.
    fn queued(&self) -> Vec<(u32, u32)> {
        let mut queued = vec![(0, 0); self.policy.seats.len()];
        for (wish, orders) in &self.wishes {
            let count = orders.len() as u32;
            for (seat, _) in self.policy.live(wish) {
                queued[seat].0 += count;
                queued[seat].1 += if wish.long { count } else { 0 };
            }
        }
        queued
    }

    fn compare_queue(&self, snapshot: &Snapshot) -> Checked {
        hold!("I13 conservation", snapshot.queue.len() == self.waiting.len().min(DETAIL_MAX), "{snapshot:?}");
        for ((place, id), shown) in (1..).zip(self.waiting.values()).zip(&snapshot.queue) {
            let request = &self.requests[id];
            let wish = Wish::of(&request.admit);
            let mut ours: Vec<_> =
                self.policy.live(&wish).map(|(seat, _)| &self.policy.seats[seat].policy.id).collect();
            let mut theirs: Vec<_> = shown.waits_for.iter().collect();
            ours.sort_unstable();
            theirs.sort_unstable();
            let same = (shown.request, shown.position, shown.since, shown.attempts)
                == (*id, place, request.arrived, request.grants)
                && (&shown.group, shown.long) == (&request.admit.group, request.admit.long)
                && ours == theirs;
            hold!("I13 conservation", same, "{request:?} for {ours:?}: {shown:?}");
        }
        Ok(())
    }

    fn compare_holds(&self, snapshot: &Snapshot) -> Checked {
        hold!("I23 memory", snapshot.holds.len() == self.leases.len().min(DETAIL_MAX), "{snapshot:?}");
        for ((id, held), shown) in self.leases.iter().zip(&snapshot.holds) {
            let lost = self.stage(held.request) == Some(Stage::Lost(*id));
            let state = match (held.open, held.holder) {
                (true, true) => LeaseState::Active,
                (true, false) => LeaseState::Cancelling,
                (false, _) if lost => LeaseState::Fenced,
                (false, _) => LeaseState::Settled,
            };
            let same = (shown.lease, shown.request, shown.since, shown.state)
                == (*id, held.request, held.since, state)
                && (&shown.node, &shown.provider, shown.direct, shown.long)
                    == (&held.node, &held.provider, held.direct, held.long);
            hold!("I23 memory", same, "{id:?} {held:?} {state:?}: {shown:?}");
        }
        Ok(())
    }
}
