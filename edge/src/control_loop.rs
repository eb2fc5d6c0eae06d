//! The control thread: drives `control::Machine`; the one place where control meets the data plane. No policy here.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use control::{
    Machine,
    effect::{Effect, HealthObservation, HealthVerdict, ProviderHealth},
    input::{ConnectionId, Input, Moment, RequestId},
    record::{Build, Recorder},
};
use dataplane::{
    clock,
    mailbox::{Sender, ThreadInbox},
    relay::ByNumber,
};
use prometheus::IntCounter;

use crate::{
    lease::{Lease, Returns},
    mail::{RunFailed, ToControl, ToShard},
    metrics::Metrics,
    requests,
};

/// The commit that the program was built from, where whoever built it says so.
const COMMIT: Option<&str> = option_env!("IOP_BUILD_COMMIT");

/// Everything the thread owns.
#[derive(Debug)]
pub struct ControlLoop {
    machine: Recorder,
    inbox: ThreadInbox<ToControl>,
    returns: Arc<Returns>,
    shards: Vec<Outbox>,
    connections: ByNumber<ConnectionId, usize>,
    metrics: Arc<Metrics>,
}

/// Mail for one shard. What its mailbox has no room for waits here: control never drops an effect. Bounded by what
/// exists: at most a few effects per live request and connection.
#[derive(Debug)]
struct Outbox {
    sender: Sender<ToShard>,
    overflow: VecDeque<ToShard>,
    overflowed: IntCounter,
    pushed: bool,
}

impl Outbox {
    fn push(&mut self, mail: ToShard) {
        self.pushed = true;
        let refused = if self.overflow.is_empty() { self.sender.push(mail).err() } else { Some(mail) };
        if let Some(mail) = refused {
            self.overflowed.inc();
            self.overflow.push_back(mail);
        }
    }

    fn flush(&mut self) {
        while let Some(mail) = self.overflow.pop_front() {
            if let Err(mail) = self.sender.push(mail) {
                self.overflow.push_front(mail);
                break;
            }
        }
        if std::mem::take(&mut self.pushed) || !self.overflow.is_empty() {
            self.sender.ring();
        }
    }
}

impl ControlLoop {
    /// A loop over `machine` that answers to `shards`.
    pub fn new(
        machine: Machine,
        inbox: ThreadInbox<ToControl>,
        returns: Arc<Returns>,
        shards: Vec<Sender<ToShard>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let overflowed = &metrics.mail_overflow;
        let outbox = |sender| Outbox {
            sender,
            overflow: VecDeque::new(),
            overflowed: overflowed.clone(),
            pushed: false,
        };
        let build =
            Build { version: env!("CARGO_PKG_VERSION").into(), commit: COMMIT.unwrap_or("unknown").into() };
        Self {
            machine: Recorder::new(machine, build),
            inbox,
            returns,
            shards: shards.into_iter().map(outbox).collect(),
            connections: ByNumber::default(),
            metrics,
        }
    }

    /// Runs on the calling thread until it is told to stop.
    pub fn run(mut self) {
        self.inbox.adopt();
        while self.turn() {
            let deadline = self.deadline();
            let ready = || !self.returns.is_empty();
            // Of slots that come free it hears at once only where a request waits for one; otherwise with what comes next.
            if self.machine.machine().has_waiting() {
                self.inbox.park(deadline, ready);
            } else {
                self.inbox.doze(deadline, ready);
            }
        }
    }

    /// Takes all that is there and carries out what comes of it; whether it goes on.
    pub(crate) fn turn(&mut self) -> bool {
        dataplane::hold_point!("control.turn");
        let mut goes_on = true;
        // What a holder told before it dropped its lease is in the inbox by now: a run that ended well must not be
        // taken for one whose holder left.
        let returned = self.returns.len();
        let mut questions = Vec::new();
        for _ in 0..self.inbox.len() {
            match self.inbox.try_pop() {
                None => break,
                Some(ToControl::Stop) => goes_on = false,
                // Answered with all that there is to know.
                Some(question @ (ToControl::Dump { .. } | ToControl::Input(Input::Inspect { .. }))) => {
                    questions.push(question)
                }
                Some(mail) => self.take(mail),
            }
        }
        for _ in 0..returned {
            let Some((lease, sent)) = self.returns.pop() else { break };
            self.machine.handle(now(), Input::HolderGone { lease, sent });
        }
        for question in questions {
            self.take(question);
        }
        let now = now();
        if self.machine.poll_timeout().is_some_and(|due| due <= now) {
            self.machine.handle_timeout(now);
        }
        while let Some(effect) = self.machine.poll_effect() {
            self.carry_out(effect);
        }
        for shard in &mut self.shards {
            shard.flush();
        }
        goes_on
    }

    /// What it decides with.
    #[cfg(test)]
    pub(crate) fn machine(&self) -> &Machine {
        self.machine.machine()
    }

    fn take(&mut self, mail: ToControl) {
        dataplane::panic_point!("control");
        match mail {
            ToControl::Input(input) => {
                if let Input::ConnectionClosed { connection } = &input {
                    self.connections.remove(connection);
                }
                self.machine.handle(now(), input);
            }
            ToControl::FromLink { shard, input } => {
                if let Input::Register { connection, .. } | Input::Ready { connection, .. } = &input {
                    self.connections.insert(*connection, shard);
                }
                self.machine.handle(now(), input);
            }
            ToControl::Dump { token } => {
                let dump = Box::new(self.machine.dump());
                self.mail_first(ToShard::Dump(token, dump));
            }
            ToControl::Stop => {}
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Grant(grant) => {
                dataplane::hold_point!("control.grant");
                let lease = Lease::new(grant.lease, &self.returns);
                self.mail_request(grant.request, ToShard::Granted(Box::new(grant), lease));
            }
            Effect::Refuse { request, reason } => {
                self.mail_request(request, ToShard::Refused(request, reason))
            }
            Effect::Requeued { lease, request } => {
                self.mail_request(request, ToShard::Requeued(request, lease))
            }
            Effect::Fenced { lease, request } => self.mail_request(request, ToShard::Fenced(request, lease)),
            Effect::Failed { lease, request, error, sequence, handoff } => {
                let failed = Box::new(RunFailed { error, handoff, sequence });
                self.mail_request(request, ToShard::Failed(request, lease, failed));
            }
            Effect::Registration { connection, outcome } => {
                self.mail_connection(connection, ToShard::Registration(connection, outcome));
            }
            Effect::Readiness { connection, outcome } => {
                self.mail_connection(connection, ToShard::Readiness(connection, outcome));
            }
            Effect::CloseConnection { connection, reason } => {
                self.mail_connection(connection, ToShard::CloseConnection(connection, reason));
            }
            Effect::NodeConnected { node, generation } => {
                self.metrics.node_connected(&node);
                tracing::info!(%node, generation, "node connected");
            }
            Effect::NodeFenced { node, generation, leases } => {
                self.metrics.node_fenced(&node);
                tracing::warn!(%node, generation, leases, "node fenced");
            }
            Effect::HealthObserved(seen) => tell_observation(&seen),
            Effect::OverlayLowered { node, provider, adapter, target } => {
                tracing::warn!(%node, %provider, %adapter, %target, "provider taken out: its node found it unavailable");
            }
            Effect::OverlayCleared { node, provider } => {
                tracing::info!(%node, %provider, "provider is available again");
            }
            Effect::Probe(probe) => {
                tracing::debug!(node = %probe.node, provider = %probe.provider, adapter = %probe.adapter, target = %probe.target, "provider probed");
                self.mail_connection(probe.connection, ToShard::Probe(Box::new(probe)));
            }
            Effect::Snapshot { token, snapshot } => {
                self.metrics.observe_snapshot(&snapshot);
                self.metrics.observe_control(self.machine.counters());
                self.mail_first(ToShard::Snapshot(token, Arc::new(snapshot)));
            }
        }
    }

    fn mail_request(&mut self, request: RequestId, mail: ToShard) {
        if let Some(shard) = self.shards.get_mut(requests::shard_of(request)) {
            shard.push(mail);
        }
    }

    /// For operators, whom the first shard serves.
    fn mail_first(&mut self, mail: ToShard) {
        if let Some(shard) = self.shards.first_mut() {
            shard.push(mail);
        }
    }

    fn mail_connection(&mut self, connection: ConnectionId, mail: ToShard) {
        let Some(&shard) = self.connections.get(&connection) else { return };
        if let Some(shard) = self.shards.get_mut(shard) {
            shard.push(mail);
        }
    }

    /// When to wake: the machine's next timeout; soon while a shard's mailbox is full.
    fn deadline(&self) -> Option<Instant> {
        let soon = std::time::Duration::from_millis(1);
        if self.shards.iter().any(|s| !s.overflow.is_empty()) {
            return Some(clock::now() + soon);
        }
        let due = self.machine.poll_timeout()?;
        Some(clock::now() + due.since(now()))
    }
}

/// One line for each piece of evidence of a provider's health, once it is decided what it is worth (OBS-2). Of what the Node said
/// there is nothing in it but values of closed sets; the names are the configuration's.
fn tell_observation(seen: &HealthObservation) {
    let HealthObservation { node, provider, health, verdict } = seen;
    let provider_health = match health {
        Some(ProviderHealth::Available) => "available",
        Some(ProviderHealth::Unavailable) => "unavailable",
        Some(ProviderHealth::Unknown) => "unknown",
        None => "not_believed",
    };
    let verdict = match verdict {
        HealthVerdict::Lowered => "lowered",
        HealthVerdict::Repeated => "repeated",
        HealthVerdict::Unchanged => "unchanged",
        HealthVerdict::Stale => "stale",
        HealthVerdict::Rejected => "rejected",
        HealthVerdict::Cleared => "cleared",
    };
    tracing::info!(%node, %provider, provider_health, verdict, "edge_provider_health_observation");
}

fn now() -> Moment {
    Moment(clock::monotonic_nanos())
}
