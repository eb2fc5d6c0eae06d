//! Leases: what ends a run, and where its slot goes.

use proto::message::{ErrorKind, ExecutionError};

use super::{Machine, overlay::Seen};
use crate::{
    counters::Returned,
    effect::{Effect, Refusal},
    input::{ConnectionId, LeaseId, Moment},
    lease::{Gone, Hold, Settled},
    limits::CANCEL_BOUND,
    queue::Ticket,
    timer::Timer,
};

impl Machine {
    /// The connection on which a terminal was received and the lease decide, nothing in the payload (HND-1, HND-2).
    pub(super) fn handle_terminal(
        &mut self,
        now: Moment,
        connection: ConnectionId,
        lease: LeaseId,
        error: Option<ExecutionError>,
        sequence: u64,
    ) {
        let Some(current) = self.leases.current(lease, connection) else {
            self.counters.stale_inputs += 1;
            return;
        };
        // A busy Node has done nothing, so it has said nothing else either: behind a frame the word is not believed.
        let busy = error.as_ref().is_some_and(|error| error.kind == ErrorKind::Busy)
            && (sequence == 0 || planted!(BusyBehindFrame));
        let seen = error.as_ref().and_then(|error| Seen::of(error, current));
        let Some((settled, ticket)) = self.leases.terminal(lease) else { return };
        let present = ticket.is_some();
        self.give_back(&settled, |returned| match &error {
            _ if !present => &mut returned.cancelled,
            None => &mut returned.completed,
            Some(_) if busy => &mut returned.busy,
            Some(_) => &mut returned.failed,
        });
        // The slot is back already: whatever the evidence is worth, the lease's return does not depend on it (HND-2).
        let handoff = seen.and_then(|seen| self.take_evidence(now, seen));
        let (Some(ticket), Some(error)) = (ticket, error) else { return };
        if busy {
            self.counters.busy += 1;
            // A Node that drains says so to whatever was on the way to it: that tells nothing about gates, and it is granted
            // nothing more that it could say it to again.
            let draining = self.ownership.is_draining(connection);
            let draining = draining && !planted!(BusyOfDrainingCounts);
            let direct = matches!(settled.hold, Hold::Direct(_)) && !planted!(DirectBusyWaits);
            if direct || (ticket.busy && !draining && !planted!(BusyForEver)) {
                self.refuse(settled.request, Refusal::Busy);
            } else {
                self.readmit(now, lease, Ticket { busy: ticket.busy || !draining, ..ticket });
            }
        } else {
            self.counters.failed += 1;
            self.emit(Effect::Failed { lease, request: settled.request, error, sequence, handoff });
        }
    }

    pub(super) fn handle_holder_gone(&mut self, now: Moment, lease: LeaseId, sent: bool) {
        let short = if planted!(CancelBoundShort) { 1 } else { 0 };
        let until = now.after(CANCEL_BOUND - core::time::Duration::from_nanos(short));
        match self.leases.holder_gone(lease, sent, until) {
            Gone::Returned(settled) => self.give_back(&settled, |returned| &mut returned.abandoned),
            Gone::Cancelling => {
                self.counters.cancelled += 1;
                self.timers.set(until, Timer::CancelBound(lease));
            }
            Gone::Forgotten => {}
            Gone::Unknown => self.counters.stale_inputs += 1,
        }
    }

    pub(super) fn handle_not_sent(&mut self, now: Moment, lease: LeaseId) {
        let Some((settled, ticket)) = self.leases.not_sent(lease) else {
            self.counters.stale_inputs += 1;
            return;
        };
        if let Some(settled) = settled {
            self.give_back(&settled, |returned| &mut returned.not_sent);
        }
        if let Some(ticket) = ticket {
            self.readmit(now, lease, ticket);
        }
    }

    /// Counts a slot that its lease returned, and why; or the end of a direct lease.
    pub(super) fn give_back(&mut self, settled: &Settled, cause: impl FnOnce(&mut Returned) -> &mut u64) {
        if let Some(until) = settled.bound.filter(|_| !planted!(CancelBoundKept)) {
            self.timers.cancel(until, Timer::CancelBound(settled.lease));
        }
        match &settled.hold {
            Hold::Slot(slot) => {
                self.counters.settled += 1;
                *cause(&mut self.counters.returned) += 1;
                if self.pool.give_back(*slot) {
                    self.forget_overlay(slot.provider);
                }
            }
            Hold::Direct(node) => {
                self.counters.direct_returned += 1;
                if !planted!(DirectLoadKept) || self.ownership.live(node).is_some() {
                    self.direct.give_back(node);
                }
            }
        }
    }

    /// Nothing ran: the request goes back to its old place, or one of a direct route to a Node again.
    fn readmit(&mut self, now: Moment, lease: LeaseId, mut ticket: Ticket) {
        if planted!(RequeuedAtTail) {
            ticket.number = self.queue.draw(ticket.admit.clone(), now).number;
        }
        if planted!(RequeuedWithNewTime) {
            ticket.arrived = now;
        }
        self.counters.requeued += 1;
        self.emit(Effect::Requeued { lease, request: ticket.admit.request });
        self.enqueue(now, ticket);
    }
}
