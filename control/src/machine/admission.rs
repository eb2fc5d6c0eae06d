//! Requests: admission, withdrawal, and the pump that grants slots to those that wait.

use alloc::{collections::BTreeMap, sync::Arc};

use super::Machine;
use crate::{
    effect::{Effect, Grant, Refusal},
    input::{Admit, Moment, RequestId},
    lease::{Binding, Hold, Slot},
    queue::{Ticket, TicketNo, Waiting},
    registry::{Choice, Dispatch, GroupKey, Wish},
    timer::Timer,
};

impl Machine {
    /// A request that can run is granted its slot at once: whoever waits by now cannot run, or the pump would have granted it,
    /// which follows everything that sets a slot free, time included. One that cannot run waits, unless the bound refuses it.
    pub(super) fn handle_admit(&mut self, now: Moment, admit: Admit) {
        if self.queue.number_of(admit.request).is_some() {
            self.counters.stale_inputs += 1;
            return;
        }
        self.counters.admitted += 1;
        let ticket = self.queue.draw(admit, now);
        match self.pool.resolve(&ticket.admit) {
            Ok(wish) => match self.free_choice(&wish) {
                Some(choice) => self.grant(now, ticket, wish.shape.long, choice),
                // It would be the newest, so it is the one to be refused: it is so without a place first, which costs more the
                // more wait.
                None if self.queue.len() >= self.config.queue_max => {
                    self.refuse(ticket.admit.request, Refusal::QueueFull);
                }
                None => self.wait(now, ticket, wish),
            },
            Err(reason) => self.dispatch_directly(now, ticket, reason),
        }
    }

    /// Where a new request can run before anybody who waits.
    fn free_choice(&mut self, wish: &Wish) -> Option<Choice> {
        if self.leases.is_full() {
            return None;
        }
        debug_assert!(!self.pool.is_touched(), "somebody who waits has not been looked at");
        self.pool.choose(wish, &mut self.counters.candidates_examined)
    }

    pub(super) fn handle_withdraw(&mut self, request: RequestId) {
        match self.queue.number_of(request) {
            Some(number) => {
                if planted!(WithdrawnKeepsTimer) {
                    self.queue.remove(number);
                }
                self.dequeue(number);
                self.counters.withdrawn += 1;
            }
            None => self.counters.stale_inputs += 1,
        }
    }

    /// Puts a request at its place, where it stays since `since`, or refuses it when nothing configured can ever serve it.
    /// One whose model is a direct route by now does not wait.
    pub(super) fn enqueue(&mut self, since: Moment, ticket: Ticket) {
        match self.pool.resolve(&ticket.admit) {
            Ok(wish) => self.wait(since, ticket, wish),
            Err(reason) => {
                let waited = ticket.waited.saturating_add(self.now.since(since));
                self.dispatch_directly(self.now, Ticket { waited, ..ticket }, reason);
            }
        }
    }

    fn wait(&mut self, since: Moment, ticket: Ticket, wish: Wish) {
        let deadline = self.config.queue_timeout.map(|timeout| ticket.arrived.after(timeout));
        let late = core::time::Duration::from_nanos(u64::from(planted!(QueueTimeoutLate)));
        let deadline = deadline.map(|at| at.after(late));
        if let Some(at) = deadline {
            self.timers.set(at, Timer::QueueWait(ticket.number));
        }
        self.pool.touch(wish.group);
        self.queue.insert(Waiting { ticket, wish, since, deadline });
    }

    /// Takes a request out of the queue, with its timer.
    pub(super) fn dequeue(&mut self, number: TicketNo) -> Option<Waiting> {
        let waiting = self.queue.remove(number)?;
        if let Some(at) = waiting.deadline {
            self.timers.cancel(at, Timer::QueueWait(number));
        }
        Some(waiting)
    }

    /// Refuses the newest while more wait than may: after a re-admission or a lowered bound (POL-5).
    pub(super) fn refuse_overflow(&mut self) {
        while self.queue.len() > self.config.queue_max + usize::from(planted!(QueueOneTooLong))
            && let Some(waiting) = self
                .queue
                .newest()
                .map(|newest| {
                    let oldest = self.queue.iter().next().map(|oldest| oldest.ticket.number);
                    if planted!(OverflowRefusesOldest) { oldest.unwrap_or(newest) } else { newest }
                })
                .and_then(|number| self.dequeue(number))
        {
            self.refuse(waiting.ticket.admit.request, Refusal::QueueFull);
        }
    }

    /// Grants whatever can be granted, oldest first (POL-9), until no waiting request has an eligible candidate.
    ///
    /// Only groups in which something changed are looked at. Each offers its oldest runnable waiter; the oldest offer
    /// wins. Granting takes slots and never frees one, so an offer can only become void or be followed by a later one,
    /// and checking it again when its turn comes is enough.
    pub(super) fn pump(&mut self, now: Moment) {
        if self.leases.is_full() || !self.pool.is_touched() {
            return;
        }
        let touched = self.pool.take_touched();
        if self.queue.len() == 0 {
            return;
        }
        let mut round = 0_u64;
        let mut offers: BTreeMap<(TicketNo, GroupKey), (Choice, u64)> = BTreeMap::new();
        for group in touched {
            offers.extend(self.offer(group, round));
        }
        while let Some(((number, group), (choice, made_in))) = if planted!(PumpByGroup) {
            let first = offers.keys().min_by_key(|(_, group)| *group).copied();
            first.and_then(|key| offers.remove_entry(&key))
        } else {
            offers.pop_first()
        } {
            if self.leases.is_full() {
                self.pool.touch(group);
                continue;
            }
            if made_in < round && !planted!(StaleOffer) {
                offers.extend(self.offer(group, round));
                continue;
            }
            self.grant_waiting(now, number, choice);
            round += 1;
            if planted!(PumpGrantsOnce) {
                continue;
            }
            offers.extend(self.offer(group, round));
        }
    }

    /// The oldest waiter of a group that can run now, with the candidate it gets.
    fn offer(&mut self, group: GroupKey, round: u64) -> Option<((TicketNo, GroupKey), (Choice, u64))> {
        let (pool, examined) = (&self.pool, &mut self.counters.candidates_examined);
        let (number, choice) = self.queue.oldest(group, |wish| pool.choose(wish, examined))?;
        Some(((number, group), (choice, round)))
    }

    fn grant_waiting(&mut self, now: Moment, number: TicketNo, choice: Choice) {
        let Some(Waiting { mut ticket, wish, since, .. }) = self.dequeue(number) else { return };
        ticket.waited = ticket.waited.saturating_add(now.since(since));
        self.grant(now, ticket, wish.shape.long, choice);
    }

    fn grant(&mut self, now: Moment, ticket: Ticket, long: bool, choice: Choice) {
        let Some(dispatch) = self.pool.take(choice, long) else { return };
        self.counters.granted += 1;
        let slot = Slot { provider: choice.provider, long };
        self.give(now, ticket, Hold::Slot(slot), dispatch);
    }

    /// A request that no group serves, which `reason` says: it goes to a Node at once, or is refused at once (POL-12).
    fn dispatch_directly(&mut self, now: Moment, ticket: Ticket, reason: Refusal) {
        let request = ticket.admit.request;
        if reason != Refusal::UnknownModel || !self.direct.serves(&ticket.admit.group) {
            self.refuse(request, reason);
        } else if self.leases.is_full() {
            self.refuse(request, Refusal::Busy);
        } else if let Some(dispatch) = self.direct.take(&ticket.admit.group) {
            self.counters.direct_granted += 1;
            let hold = Hold::Direct(Arc::clone(&dispatch.binding.node));
            self.give(now, ticket, hold, dispatch);
        } else {
            self.refuse(request, Refusal::NoNode);
        }
    }

    fn give(&mut self, now: Moment, mut ticket: Ticket, hold: Hold, dispatch: Dispatch) {
        ticket.attempts = ticket.attempts.saturating_add(1);
        let (request, queued_for, attempt) = (ticket.admit.request, ticket.waited, ticket.attempts);
        let direct = matches!(hold, Hold::Direct(_));
        let (live, Binding { node, provider, adapter, target }) = (dispatch.live, dispatch.binding.clone());
        let lease = self.leases.grant(now, ticket, hold, dispatch.binding, live);
        self.emit(Effect::Grant(Grant {
            request,
            lease,
            connection: live.connection,
            generation: live.generation,
            node,
            direct,
            provider,
            adapter,
            target,
            stall_timeout: dispatch.stall_timeout,
            request_timeout: dispatch.request_timeout,
            queued_for,
            attempt,
        }));
    }
}
