//! Connections: registration, readiness, draining, supersession, fencing.

use alloc::sync::Arc;

use super::Machine;
use crate::{
    effect::{CloseReason, Effect},
    input::{ConnectionId, Moment},
    lease::Hold,
    limits::READY_TIMEOUT,
    registry::{Live, Owner, Readied},
    timer::Timer,
};

impl Machine {
    /// A newer accepted registration takes the Node ID in one transition (REG-8): what is left of the old owner is gone
    /// before the new one is told that it owns the ID.
    pub(super) fn handle_register(
        &mut self,
        now: Moment,
        connection: ConnectionId,
        certified: &Arc<str>,
        claimed: &str,
        token_ok: bool,
    ) {
        let outcome = self.ownership.check_registration(connection, certified, claimed, token_ok);
        if outcome.is_err() {
            self.counters.registrations_refused += 1;
            self.emit(Effect::Registration { connection, outcome });
            return;
        }
        if let Some(old) = self.ownership.owner(certified).map(|owner| owner.connection)
            && let Some((node, owner)) = self.ownership.release(now, old)
        {
            self.counters.superseded += 1;
            if !planted!(SupersededNotFenced) {
                self.disown(node, owner);
            }
            self.emit(Effect::CloseConnection { connection: old, reason: CloseReason::Superseded });
        }
        let until = now.after(READY_TIMEOUT);
        self.ownership.claim(now, connection, certified, until);
        self.timers.set(until, Timer::Ready(connection));
        self.counters.registrations_accepted += 1;
        self.emit(Effect::Registration { connection, outcome });
    }

    /// Only the first ready of a generation activates anything (REG-6).
    pub(super) fn handle_ready(&mut self, now: Moment, connection: ConnectionId, claimed: &str) {
        match self.ownership.ready(now, connection, claimed) {
            Ok(Readied::First { node, pending }) => {
                if let Some(until) = pending.pending_until().filter(|_| !planted!(ReadyTimerKept)) {
                    self.timers.cancel(until, Timer::Ready(connection));
                }
                let generation = pending.generation;
                self.counters.ready += 1;
                self.set_live(&node, Some(Live { connection, generation }));
                self.emit(Effect::Readiness { connection, outcome: Ok(()) });
                self.emit(Effect::NodeConnected { node, generation });
            }
            Ok(Readied::Again) if planted!(ReadyAgainConnects) => {
                let live = self.ownership.live(claimed);
                self.emit(Effect::Readiness { connection, outcome: Ok(()) });
                if let Some(Live { generation, .. }) = live {
                    self.emit(Effect::NodeConnected { node: claimed.into(), generation });
                }
            }
            Ok(Readied::Again) => self.emit(Effect::Readiness { connection, outcome: Ok(()) }),
            Err(refusal) => {
                self.counters.ready_refused += 1;
                self.emit(Effect::Readiness { connection, outcome: Err(refusal) });
            }
        }
    }

    /// The providers of a draining Node are no candidates until a newer generation is ready. Its leases stay and settle as
    /// before: nothing is fenced, and who waits goes elsewhere or goes on waiting.
    pub(super) fn handle_draining(&mut self, now: Moment, connection: ConnectionId) {
        match self.ownership.drain(now, connection) {
            Some(node) => {
                self.counters.draining += 1;
                if !planted!(DrainingTakesRuns) {
                    self.pool.set_live(&node, None);
                }
                if !planted!(DirectToDraining) {
                    self.direct.set_live(&node, None);
                }
                if !planted!(DrainingProbed) {
                    self.stop_probes(&node);
                }
            }
            None => self.counters.stale_inputs += 1,
        }
    }

    /// Of the current owner: its claim is free, and its generation fenced if it was ready. Of any other connection:
    /// nothing (FEN-4).
    pub(super) fn handle_connection_closed(&mut self, now: Moment, connection: ConnectionId) {
        if let Some((node, owner)) = self.ownership.release(now, connection) {
            self.disown(node, owner);
        }
    }

    /// Cleans up after an owner that ownership no longer knows.
    pub(super) fn disown(&mut self, node: Arc<str>, owner: Owner) {
        match owner.pending_until() {
            Some(until) => self.timers.cancel(until, Timer::Ready(owner.connection)),
            None if planted!(DrainingNotFenced) && !owner.is_ready() => {}
            None => self.fence(node, owner.generation),
        }
    }

    /// Fences a generation that was dispatch-ready (FEN-2): its providers are offline, every slot it held is back, and
    /// who holds a lease of it is told. The pump at the end of the transition does the rest.
    fn fence(&mut self, node: Arc<str>, generation: u64) {
        self.set_live(&node, None);
        if !planted!(OverlayInherited) {
            self.end_overlays(&node);
        }
        let fenced = self.leases.fence(generation);
        self.counters.generations_fenced += 1;
        self.emit(Effect::NodeFenced { node, generation, leases: fenced.len() });
        for settled in fenced {
            self.counters.leases_fenced += u64::from(matches!(settled.hold, Hold::Slot(_)));
            self.give_back(&settled, |returned| &mut returned.fenced);
            if settled.bound.is_none() && !planted!(FenceTellsNobody) {
                self.emit(Effect::Fenced { lease: settled.lease, request: settled.request });
            }
        }
    }
}
