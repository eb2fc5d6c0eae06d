//! The machine: a thin dispatcher over one handler file for each family of inputs.
//!
//! | File | Inputs |
//! |---|---|
//! | `registration` | `Register`, `Ready`, `Draining`, `ConnectionClosed` |
//! | `admission` | `Admit`, `Withdraw`; the pump, the only place that grants |
//! | `settlement` | `HolderGone`, `NotSent`, `Terminal` |
//! | `overlay` | `CommandAnswered`; health evidence, probes |
//! | `expiry` | time |
//! | `reload` | `Configure` |
//! | `inspect` | `Inspect` |
//! | `audit` | nothing: it checks that all tables agree |

mod admission;
mod audit;
mod expiry;
mod inspect;
mod overlay;
mod registration;
mod reload;
mod settlement;

use alloc::{collections::VecDeque, sync::Arc};

pub use audit::AuditError;
use serde::{Deserialize, Serialize};

use crate::{
    config::PoolConfig,
    counters::Counters,
    effect::{Effect, Refusal},
    input::{Input, Moment, RequestId},
    lease::Leases,
    overlay::Overlays,
    queue::Queue,
    registry::{Direct, Live, Ownership, Pool},
    timer::Timers,
};

/// The decisions of one Edge about its Nodes, its queue and its slots.
///
/// The machine does nothing by itself. Its driver is expected to follow this contract:
///
/// - **Facts in.** [`handle`](Self::handle) takes one fact and the time at which it is told. Facts of one connection
///   come in the order in which they happened, `ConnectionClosed` last. Time never goes backwards; a moment before the
///   last one counts as the last one.
/// - **Actions out.** After every `handle` and `handle_timeout` the driver calls [`poll_effect`](Self::poll_effect)
///   until it gives `None`, and performs the effects in that order. An effect's order matters to whom it concerns:
///   `Fenced` precedes the `Registration` that superseded it, `Readiness` and `NodeConnected` precede the first
///   `Grant` of their generation, `Requeued` precedes the next `Grant` of its request. One call yields at most the
///   effects of its own fact and of what it set free: nothing accumulates when the driver drains.
/// - **Probes.** An [`Effect::Probe`] is a command to be sent on a connection that is a dispatch-ready owner when it is
///   given. Its answer, if one comes, is told as [`Input::CommandAnswered`]; nothing waits for it.
/// - **Time.** [`poll_timeout`](Self::poll_timeout) names the next moment at which
///   [`handle_timeout`](Self::handle_timeout) has something to do. It changes after any `handle`. Time may only end
///   waits: it closes connections that are not ready, refuses requests that waited too long, returns slots of
///   cancelling leases and asks for probes. `handle` first lets its time pass in the same way, so a late driver delays effects but never
///   changes a decision.
/// - **Leases.** Every [`Effect::Grant`] makes one lease whose holder reports [`Input::HolderGone`] exactly once,
///   whatever else happened to it, also after `Fenced`, `Failed`, `Requeued` or a refusal as busy. A grant that can no
///   longer be delivered to its request is reported the same way, with `sent: false`. A holder that learns of
///   `Fenced` before it handed its request to the connection may answer with [`Input::NotSent`] and waits again
///   (FEN-7). Once its holder is gone, a request gets no further effect.
/// - **Requeued.** The request waits as it did before its first grant: should its client leave, `Withdraw` says so.
///
/// The machine panics only when its own tables contradict each other, never because of an input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    config: Arc<PoolConfig>,
    now: Moment,
    ownership: Ownership,
    pool: Pool,
    direct: Direct,
    queue: Queue,
    leases: Leases,
    overlays: Overlays,
    timers: Timers,
    effects: VecDeque<Effect>,
    counters: Counters,
}

impl Machine {
    /// A machine that decides by `config` and knows no connection yet.
    pub fn new(config: Arc<PoolConfig>) -> Self {
        let mut ownership = Ownership::default();
        ownership.reconfigure(&config.nodes);
        let mut pool = Pool::default();
        pool.rebuild(&config, |_| None);
        let mut direct = Direct::default();
        direct.rebuild(&config, |_| None);
        Self {
            config,
            now: Moment::default(),
            ownership,
            pool,
            direct,
            queue: Queue::default(),
            leases: Leases::default(),
            overlays: Overlays::default(),
            timers: Timers::default(),
            effects: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Takes one fact.
    pub fn handle(&mut self, now: Moment, input: Input) {
        let now = self.advance(now);
        if !planted!(TimeAfterFact) {
            self.expire(now);
        }
        let is_unsent = matches!(input, Input::NotSent { .. } | Input::HolderGone { sent: false, .. });
        match input {
            Input::Configure(config) => self.handle_configure(now, config),
            Input::Register { connection, certified, claimed, token_ok } => {
                self.handle_register(now, connection, &certified, &claimed, token_ok);
            }
            Input::Ready { connection, claimed } => self.handle_ready(now, connection, &claimed),
            Input::Draining { connection } => self.handle_draining(now, connection),
            Input::ConnectionClosed { connection } => self.handle_connection_closed(now, connection),
            Input::Admit(admit) => self.handle_admit(now, admit),
            Input::Withdraw { request } => self.handle_withdraw(request),
            Input::HolderGone { lease, sent } => self.handle_holder_gone(now, lease, sent),
            Input::NotSent { lease } => self.handle_not_sent(now, lease),
            Input::Terminal { connection, lease, error, sequence } => {
                self.handle_terminal(now, connection, lease, error, sequence);
            }
            Input::CommandAnswered { connection, command, result } => {
                self.handle_command_answered(connection, command, &result);
            }
            Input::Inspect { token, detail } => self.handle_inspect(token, detail),
        }
        if !(is_unsent && planted!(UnsentNotPumped)) {
            self.pump(now);
        }
        self.expire(now);
        self.refuse_overflow();
    }

    /// The next effect, in order; `None` until there is something new.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do; `None` while nothing waits for time.
    pub fn poll_timeout(&self) -> Option<Moment> {
        self.timers.next()
    }

    /// Lets time pass. A call before the next timeout does nothing.
    pub fn handle_timeout(&mut self, now: Moment) {
        let now = self.advance(now);
        self.expire(now);
    }

    /// A copy that has delivered its effects.
    pub(crate) fn checkpoint(&self) -> Self {
        Self { effects: VecDeque::new(), ..self.clone() }
    }

    /// What [`Self::poll_effect`] will give.
    pub(crate) fn effects(&self) -> &VecDeque<Effect> {
        &self.effects
    }

    /// Whether any request waits for a slot. Where none does, a slot that comes free leads to no effect before the next input.
    pub fn has_waiting(&self) -> bool {
        self.queue.len() > 0
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A Node's providers and direct routes are served by this generation, or take nothing new.
    fn set_live(&mut self, node: &str, live: Option<Live>) {
        self.pool.set_live(node, live);
        self.direct.set_live(node, live);
    }

    fn advance(&mut self, now: Moment) -> Moment {
        self.now = self.now.max(now);
        self.now
    }

    fn emit(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    fn refuse(&mut self, request: RequestId, reason: Refusal) {
        let counter = match reason {
            Refusal::UnknownModel => &mut self.counters.refused_unknown_model,
            Refusal::Unservable => &mut self.counters.refused_unservable,
            Refusal::QueueFull => &mut self.counters.queue_full,
            Refusal::QueueTimeout => &mut self.counters.queue_timeouts,
            Refusal::Busy => &mut self.counters.refused_busy,
            Refusal::NoNode => &mut self.counters.refused_no_node,
        };
        *counter += 1;
        self.emit(Effect::Refuse { request, reason });
    }
}
