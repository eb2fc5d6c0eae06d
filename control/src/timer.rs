//! Named timers: a closed set of reasons to wake, ordered by deadline.
//!
//! Whoever sets a timer keeps its deadline, and hands it back to cancel it. Bounded by what can wait: one per pending
//! Node, one per queued request, one per cancelling lease, one per overlaid provider.

use alloc::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    input::{ConnectionId, LeaseId, Moment},
    queue::TicketNo,
    registry::ProviderKey,
};

/// A reason to wake. Of timers due at the same moment the earlier variant, then the lower id, fires first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Timer {
    /// A pending connection did not become ready (REG-11).
    Ready(ConnectionId),
    /// A cancelling lease got no terminal (POL-11).
    CancelBound(LeaseId),
    /// A request waited too long (POL-5).
    QueueWait(TicketNo),
    /// An overlaid provider is to be probed (CAP-3).
    Probe(ProviderKey),
}

/// All set timers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Timers {
    deadlines: BTreeSet<(Moment, Timer)>,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Moment, timer: Timer) {
        self.deadlines.insert((at, timer));
    }

    pub(crate) fn cancel(&mut self, at: Moment, timer: Timer) {
        self.deadlines.remove(&(at, timer));
    }

    /// Takes the first timer that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Moment) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.deadlines.pop_first().map(|(_, timer)| timer)
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    pub(crate) fn contains(&self, at: Moment, timer: Timer) -> bool {
        self.deadlines.contains(&(at, timer))
    }

    pub(crate) fn len(&self) -> usize {
        self.deadlines.len()
    }
}
