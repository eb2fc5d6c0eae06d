//! The table of leases and its index by generation.

use alloc::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    vec::Vec,
};

use serde::{Deserialize, Serialize};

use super::{Binding, Hold, Lease, State};
use crate::{
    input::{ConnectionId, LeaseId, Moment, RequestId},
    limits::LEASES_MAX,
    queue::Ticket,
    registry::Live,
};

/// A lease whose slot was returned just now.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) lease: LeaseId,
    pub(crate) request: RequestId,
    pub(crate) hold: Hold,
    /// Set when it was cancelling: the deadline that no longer matters. Its holder is gone.
    pub(crate) bound: Option<Moment>,
}

/// What the departure of a holder meant.
#[derive(Debug)]
pub(crate) enum Gone {
    /// The slot is returned.
    Returned(Settled),
    /// The slot stays taken until the terminal or the bound.
    Cancelling,
    /// The slot was returned before.
    Forgotten,
    /// No such lease, or its holder is gone already.
    Unknown,
}

/// All lease records; at most [`LEASES_MAX`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Leases {
    #[serde(with = "crate::pairs")]
    records: BTreeMap<LeaseId, Lease>,
    /// Leases that hold a slot, by generation: what fencing returns.
    #[serde(with = "crate::pairs")]
    open: BTreeMap<u64, BTreeSet<LeaseId>>,
    cancelling: usize,
    last: u64,
}

impl Leases {
    /// Records a grant. The caller has checked [`Self::is_full`].
    pub(crate) fn grant(
        &mut self,
        now: Moment,
        ticket: Ticket,
        hold: Hold,
        binding: Binding,
        live: Live,
    ) -> LeaseId {
        self.last += 1;
        let id = LeaseId(self.last);
        let Live { connection, generation } = live;
        let request = ticket.admit.request;
        let state = State::Active(ticket);
        let lease = Lease { request, hold, binding, connection, generation, granted: now, state };
        self.records.insert(id, lease);
        self.open.entry(generation).or_default().insert(id);
        id
    }

    /// A lease that holds a slot and was granted on this connection: the only kind a terminal can speak of (HND-1).
    pub(crate) fn current(&self, id: LeaseId, connection: ConnectionId) -> Option<&Lease> {
        self.records.get(&id).filter(|lease| {
            (lease.connection == connection || planted!(TerminalOnAnyConnection)) && lease.state.is_open()
        })
    }

    /// The Node's terminal of a [`Self::current`] lease. The ticket comes back when the holder is present.
    pub(crate) fn terminal(&mut self, id: LeaseId) -> Option<(Settled, Option<Ticket>)> {
        self.settle(id, State::Settled)
    }

    /// The holder never sent the request. The settled lease comes back unless fencing settled it before; the ticket
    /// unless the holder is gone. `None`: nothing to be done for this lease.
    pub(crate) fn not_sent(&mut self, id: LeaseId) -> Option<(Option<Settled>, Option<Ticket>)> {
        let lease = self.records.get_mut(&id)?;
        match core::mem::replace(&mut lease.state, State::Settled) {
            State::Settled => None,
            State::Fenced(_) if planted!(FencedNotReadmitted) => None,
            State::Fenced(ticket) if planted!(UnsentReturnedTwice) => {
                let (request, hold) = (lease.request, lease.hold.clone());
                Some((Some(Settled { lease: id, request, hold, bound: None }), Some(ticket)))
            }
            State::Fenced(ticket) => Some((None, Some(ticket))),
            open @ (State::Active(_) | State::Cancelling { .. }) => {
                lease.state = open;
                self.settle(id, State::Settled).map(|(settled, ticket)| (Some(settled), ticket))
            }
        }
    }

    /// The holder is gone. `until` is the cancel bound, should the lease turn to cancelling.
    pub(crate) fn holder_gone(&mut self, id: LeaseId, sent: bool, until: Moment) -> Gone {
        let Some(lease) = self.records.get_mut(&id) else { return Gone::Unknown };
        match lease.state {
            State::Active(_) if sent || planted!(UnsentWaitsForTerminal) => {
                lease.state = State::Cancelling { until };
                self.cancelling += 1;
                Gone::Cancelling
            }
            State::Active(_) => {
                let settled = self.settle(id, State::Settled);
                self.records.remove(&id);
                settled.map_or(Gone::Unknown, |(settled, _)| Gone::Returned(settled))
            }
            State::Cancelling { .. } => Gone::Unknown,
            State::Settled if planted!(RecordOutlivesHolder) => Gone::Forgotten,
            State::Fenced(_) | State::Settled => {
                self.records.remove(&id);
                Gone::Forgotten
            }
        }
    }

    /// The cancel bound passed.
    pub(crate) fn bound_reached(&mut self, id: LeaseId) -> Option<Settled> {
        let lease = self.records.get(&id)?;
        match lease.state {
            State::Cancelling { .. } => self.settle(id, State::Settled).map(|(settled, _)| settled),
            State::Active(_) | State::Fenced(_) | State::Settled => None,
        }
    }

    /// Returns every open lease of a generation, in order of grant. Costs what it returns.
    pub(crate) fn fence(&mut self, generation: u64) -> Vec<Settled> {
        let ids = self.open.remove(&generation).unwrap_or_default();
        let mut fenced = Vec::with_capacity(ids.len());
        for id in ids {
            let is_left =
                self.records.get(&id).is_some_and(|it| matches!(it.state, State::Cancelling { .. }));
            if planted!(FenceSkipsCancelling) && is_left {
                self.open.entry(generation).or_default().insert(id);
                continue;
            }
            if let Some((settled, ticket)) = self.settle(id, State::Settled) {
                if let (Some(ticket), Some(lease)) = (ticket, self.records.get_mut(&id)) {
                    lease.state = State::Fenced(ticket);
                }
                fenced.push(settled);
            }
        }
        fenced
    }

    /// The one way a slot leaves a lease: `next` while the holder is present, forgotten otherwise.
    fn settle(&mut self, id: LeaseId, next: State) -> Option<(Settled, Option<Ticket>)> {
        let lease = self.records.get_mut(&id)?;
        let (request, generation) = (lease.request, lease.generation);
        let (bound, ticket) = match core::mem::replace(&mut lease.state, next) {
            State::Active(ticket) => (None, Some(ticket)),
            State::Cancelling { until } => (Some(until), None),
            closed @ (State::Fenced(_) | State::Settled) => {
                lease.state = closed;
                return None;
            }
        };
        let hold = lease.hold.clone();
        if bound.is_some() {
            self.records.remove(&id);
            self.cancelling -= 1;
        }
        if let Entry::Occupied(mut open) = self.open.entry(generation) {
            open.get_mut().remove(&id);
            if open.get().is_empty() {
                open.remove();
            }
        }
        Some((Settled { lease: id, request, hold, bound }, ticket))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.records.len() >= LEASES_MAX
    }

    /// Records in existence.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Records that hold a slot without a holder.
    pub(crate) fn cancelling(&self) -> usize {
        self.cancelling
    }

    /// All records, for audits.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LeaseId, &Lease)> {
        self.records.iter().map(|(&id, lease)| (id, lease))
    }

    /// The index by generation, for audits.
    pub(crate) fn open(&self) -> impl Iterator<Item = (u64, LeaseId)> {
        self.open.iter().flat_map(|(&generation, ids)| ids.iter().map(move |&id| (generation, id)))
    }
}
