//! Time: what ends by itself.

use super::Machine;
use crate::{
    effect::{CloseReason, Effect, Refusal},
    input::Moment,
    lease::Hold,
    timer::Timer,
};

impl Machine {
    /// Fires everything that is due, then pumps what that set free.
    pub(super) fn expire(&mut self, now: Moment) {
        let mut fired = false;
        while let Some(timer) = self.timers.pop_due(now) {
            fired = true;
            match timer {
                Timer::Ready(connection) => {
                    // Only a pending owner has this timer, so there is nothing to fence.
                    if self.ownership.release(now, connection).is_some() {
                        self.counters.ready_timeouts += 1;
                        self.emit(Effect::CloseConnection { connection, reason: CloseReason::ReadyTimeout });
                    }
                }
                Timer::CancelBound(lease) => {
                    if let Some(settled) = self.leases.bound_reached(lease) {
                        let is_slot = matches!(settled.hold, Hold::Slot(_));
                        self.counters.cancel_bound_reached += u64::from(is_slot);
                        self.give_back(&settled, |returned| &mut returned.cancel_bound);
                    }
                }
                Timer::QueueWait(number) => {
                    if let Some(waiting) = self.queue.remove(number) {
                        self.refuse(waiting.ticket.admit.request, Refusal::QueueTimeout);
                    }
                }
                Timer::Probe(provider) => self.probe(now, provider),
            }
        }
        if fired && !planted!(TimeNotPumped) {
            self.pump(now);
        }
    }
}
