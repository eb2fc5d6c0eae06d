//! A new configuration.

use alloc::sync::Arc;

use super::Machine;
use crate::{
    config::PoolConfig,
    effect::{CloseReason, Effect},
    input::Moment,
    timer::Timer,
};

impl Machine {
    /// Takes over a snapshot: leases stay, every pending request is judged again by the new policy (POL-6).
    ///
    /// A Node that left the configuration is treated as disconnected and its connection closed. A waiting request
    /// keeps its place; its wait is measured from its arrival by the new bound. An overlay stays while its generation lives
    /// (HND-7).
    pub(super) fn handle_configure(&mut self, now: Moment, config: Arc<PoolConfig>) {
        self.counters.reloads += 1;
        for (node, owner) in self.ownership.reconfigure(&config.nodes) {
            self.disown(node, owner);
            let connection = owner.connection;
            self.emit(Effect::CloseConnection { connection, reason: CloseReason::Removed });
        }
        let ownership = &self.ownership;
        let forgotten = self.pool.rebuild(&config, |node| ownership.live(node));
        self.direct.rebuild(&config, |node| ownership.live(node));
        forgotten.into_iter().for_each(|provider| self.forget_overlay(provider));
        if planted!(ReloadEndsOverlay) {
            config.nodes.iter().for_each(|node| self.end_overlays(&node.id));
        }
        self.review_probes(now);
        self.config = config;
        for waiting in self.queue.drain() {
            let number = waiting.ticket.number;
            if let Some(at) = waiting.deadline {
                self.timers.cancel(at, Timer::QueueWait(number));
            }
            if planted!(ReloadKeepsWishes) && self.pool.resolve(&waiting.ticket.admit).is_ok() {
                if let Some(at) = waiting.deadline {
                    self.timers.set(at, Timer::QueueWait(number));
                }
                self.queue.insert(waiting);
                continue;
            }
            self.enqueue(waiting.since, waiting.ticket);
        }
    }
}
