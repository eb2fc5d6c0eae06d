//! A check that all tables of the machine agree; for simulators and tests, and for an occasional check in production.

use alloc::{collections::BTreeMap, sync::Arc};

use super::Machine;
use crate::{
    input::Moment,
    lease::{Hold, State},
    registry::Owner,
    timer::Timer,
};

/// Two tables of the machine contradict each other: a defect of the machine, never of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    /// The load counted at a provider is not the sum of the leases that hold its slots.
    #[error("a provider's load is not the sum of its leases")]
    Load,
    /// The ordered candidate sets are not what the providers' standing says.
    #[error("a candidate set does not match the standing of its members")]
    Candidates,
    /// A lease holds a slot of a generation that is neither dispatch-ready nor draining, or is missing in the index by generation.
    #[error("a lease holds a slot of a generation that is not current")]
    Generation,
    /// A connection owns a Node ID that does not name it as owner, or the other way round.
    #[error("connections and node ids disagree about ownership")]
    Ownership,
    /// More requests wait than may.
    #[error("the queue is longer than its bound")]
    QueueBound,
    /// The queue's indexes are not what its tickets say.
    #[error("the queue's indexes do not match its tickets")]
    Queue,
    /// A waiting request has an eligible candidate while leases may still be granted.
    #[error("a waiting request could run")]
    LostWaiter,
    /// A timer is missing, superfluous or overdue.
    #[error("timers do not match what waits for them")]
    Timers,
    /// Slots granted are not the slots held and those returned by each cause together.
    #[error("slots granted, returned by cause and held do not add up")]
    Conservation,
    /// An overlay, its provider, its timer or its outstanding command contradict each other.
    #[error("overlays do not match the providers and commands they speak of")]
    Overlays,
    /// The order of the Nodes for direct routes is not what their leases and generations say.
    #[error("the candidates of direct routes do not match their nodes")]
    Direct,
    /// More lease records exist than may, or the count of cancelling ones is wrong.
    #[error("the lease table is out of its bounds")]
    Leases,
}

impl Machine {
    /// Compares all tables. Costs the sum of their sizes.
    ///
    /// # Errors
    ///
    /// The first contradiction found; a machine that gives one must not be used further.
    pub fn audit(&self) -> Result<(), AuditError> {
        self.audit_ownership()?;
        self.audit_leases()?;
        self.audit_overlays()?;
        if !self.pool.is_consistent() {
            return Err(AuditError::Candidates);
        }
        self.audit_queue()?;
        self.audit_timers()
    }

    fn audit_ownership(&self) -> Result<(), AuditError> {
        let owners = self.ownership.owners();
        let mut count = 0;
        for (node, owner) in owners {
            count += 1;
            if self.ownership.owned_by(owner.connection) != Some(node) {
                return Err(AuditError::Ownership);
            }
            if !self.pool.all_serve(node, self.ownership.live(node)) {
                return Err(AuditError::Generation);
            }
        }
        if count == self.ownership.owned_len() { Ok(()) } else { Err(AuditError::Ownership) }
    }

    fn audit_leases(&self) -> Result<(), AuditError> {
        let mut loads = BTreeMap::new();
        let mut direct: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        let (mut open, mut cancelling) = (0, 0);
        let index: BTreeMap<_, _> =
            self.leases.open().map(|(generation, lease)| (lease, generation)).collect();
        for (id, lease) in self.leases.iter() {
            cancelling += usize::from(matches!(lease.state, State::Cancelling { .. }));
            if !lease.state.is_open() {
                continue;
            }
            match &lease.hold {
                Hold::Slot(slot) => {
                    open += 1;
                    let load: &mut (u32, u32) = loads.entry(slot.provider).or_default();
                    *load = (load.0 + 1, load.1 + u32::from(slot.long));
                }
                Hold::Direct(node) => *direct.entry(Arc::clone(node)).or_default() += 1,
            }
            let current = self.ownership.owners().any(|(_, owner)| {
                owner.holds_leases()
                    && (owner.connection, owner.generation) == (lease.connection, lease.generation)
            });
            if !current || index.get(&id) != Some(&lease.generation) {
                return Err(AuditError::Generation);
            }
        }
        if !self.pool.has_loads(&loads) {
            return Err(AuditError::Load);
        }
        let counters = &self.counters;
        let adds_up = counters.granted.wrapping_sub(counters.settled) == open;
        if !adds_up || counters.settled != counters.returned.total() {
            return Err(AuditError::Conservation);
        }
        let open_direct = u64::from(direct.values().sum::<u32>());
        if counters.direct_granted.wrapping_sub(counters.direct_returned) != open_direct {
            return Err(AuditError::Conservation);
        }
        if !self.direct.is_consistent(&direct, |node| self.ownership.live(node)) {
            return Err(AuditError::Direct);
        }
        let bounded = self.leases.len() <= crate::LEASES_MAX && index.len() as u64 == open + open_direct;
        if bounded && cancelling == self.leases.cancelling() { Ok(()) } else { Err(AuditError::Leases) }
    }

    fn audit_overlays(&self) -> Result<(), AuditError> {
        // A record is of a generation that lives, and goes with its provider.
        let has_generation = |node: &Arc<str>| self.ownership.owner(node).is_some_and(Owner::holds_leases);
        let current = |key| self.pool.name_of(key).is_some_and(|(node, _)| has_generation(&node));
        let known = self.overlays.known().all(current);
        let (mut overlaid, mut outstanding) = (0, 0);
        let mut agree = true;
        for (key, overlay) in self.overlays.overlaid() {
            overlaid += 1;
            outstanding += usize::from(overlay.outstanding.is_some());
            agree &= overlay.next_probe.is_some() == self.pool.live_of(key).is_some();
        }
        for (id, command) in self.overlays.commands() {
            let overlay = self.overlays.overlay(command.provider);
            agree &= overlay.is_some_and(|overlay| overlay.outstanding == Some(id));
            agree &= self.pool.live_of(command.provider) == Some(command.live);
        }
        let excluded = self.pool.overlaid().all(|key| self.overlays.overlay(key).is_some())
            && self.pool.overlaid().count() == overlaid;
        let counters = &self.counters;
        // Wrapping: a checkpoint that was read from a text may say anything.
        let ended = counters.overlays_cleared.wrapping_add(counters.overlays_dropped);
        let counted = counters.overlays_lowered.wrapping_sub(ended);
        let commands = self.overlays.commands().count() == outstanding;
        if known && agree && excluded && commands && counted == overlaid as u64 {
            Ok(())
        } else {
            Err(AuditError::Overlays)
        }
    }

    fn audit_queue(&self) -> Result<(), AuditError> {
        if self.queue.len() > self.config.queue_max {
            return Err(AuditError::QueueBound);
        }
        if !self.queue.is_consistent() {
            return Err(AuditError::Queue);
        }
        let runnable = self.queue.iter().any(|waiting| self.pool.choose(&waiting.wish, &mut 0).is_some());
        if runnable && !self.leases.is_full() { Err(AuditError::LostWaiter) } else { Ok(()) }
    }

    fn audit_timers(&self) -> Result<(), AuditError> {
        let pending = self
            .ownership
            .owners()
            .filter_map(|(_, owner)| Some((owner.pending_until()?, Timer::Ready(owner.connection))));
        let waiting = self
            .queue
            .iter()
            .filter_map(|waiting| Some((waiting.deadline?, Timer::QueueWait(waiting.ticket.number))));
        let cancelling = self.leases.iter().filter_map(|(id, lease)| match lease.state {
            State::Cancelling { until } => Some((until, Timer::CancelBound(id))),
            State::Active(_) | State::Fenced(_) | State::Settled => None,
        });
        let probes = self
            .overlays
            .overlaid()
            .filter_map(|(key, overlay)| Some((overlay.next_probe?, Timer::Probe(key))));
        let mut count = 0;
        for (at, timer) in pending.chain(waiting).chain(cancelling).chain(probes) {
            count += 1;
            if !self.timers.contains(at, timer) {
                return Err(AuditError::Timers);
            }
        }
        let overdue = self.timers.next().is_some_and(|at: Moment| at <= self.now);
        if count == self.timers.len() && !overdue { Ok(()) } else { Err(AuditError::Timers) }
    }
}
