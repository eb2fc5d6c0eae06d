//! The Edge around the machine: control's loop and the shards, as `edge/src/control_loop.rs`, `shard_state.rs`, `lease.rs`
//! and `dispatch/attempt` have them: the same channels, in the same order, and nothing that they could not do.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use control::{
    effect::{Effect, Grant, Probe, ReadinessRefusal, RegistrationRefusal},
    input::{ConnectionId, Input, LeaseId, Moment, RequestId},
};
use proto::message::ExecutionError;

use super::{
    Event, Simulation,
    clients::Stage,
    links::{Down, Up, Way},
};
use crate::invariants::Checked;

/// What a shard is told; one line for all senders.
#[derive(Debug)]
pub(super) enum Mail {
    Granted(Arc<Grant>),
    Refused(RequestId),
    Requeued(RequestId, LeaseId),
    Fenced(RequestId, LeaseId),
    Failed(RequestId, LeaseId),
    Ended(RequestId, LeaseId),
    Registration(ConnectionId, Result<(), RegistrationRefusal>),
    Readiness(ConnectionId, Result<(), ReadinessRefusal>),
    Close(ConnectionId),
    Probe(Probe),
    Open(Arc<Grant>),
    Cancel(ConnectionId, LeaseId),
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) inbox: VecDeque<Mail>,
    armed: bool,
}

/// `edge::lease::Claim`: whether the request of a lease goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    Open,
    Sent,
    Revoked,
}

/// A run on the Edge's end of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    request: RequestId,
    cancelled: bool,
}

/// Registrations and readies of one connection before it is closed.
const ASKED_MAX: u32 = 16;
/// REG-11, for a link that never registers.
pub(super) const REGISTER_WITHIN: u64 = 60 * super::swarm::SECOND;

impl Simulation {
    /// Puts mail into control's inbox.
    pub(super) fn tell_control(&mut self, input: Input) {
        self.inbox.push_back(input);
        let delay = self.rng.around(self.swarm.control_delay);
        self.arm_control(self.now + delay);
    }

    fn arm_control(&mut self, at: u64) {
        let at = at.max(self.now).next_multiple_of(self.swarm.tick);
        if at < self.control_armed {
            self.control_armed = at;
            self.at(at, Event::Control);
        }
    }

    /// One turn of `ControlLoop::run`.
    pub(super) fn control_turn(&mut self) -> Checked {
        if self.now < self.control_armed {
            return Ok(());
        }
        self.control_armed = u64::MAX;
        // What a holder told before it dropped its lease is in the inbox by now.
        let returned = self.returns.len();
        for _ in 0..self.inbox.len() {
            let Some(input) = self.inbox.pop_front() else { break };
            self.tell(Some(input))?;
            self.carry_out();
        }
        for _ in 0..returned {
            let Some((lease, sent)) = self.returns.pop_front() else { break };
            self.tell(Some(Input::HolderGone { lease, sent }))?;
            self.carry_out();
        }
        if self.judge.due().is_some_and(|due| due <= Moment(self.now)) {
            self.tell(None)?;
            self.carry_out();
        }
        if let Some(due) = self.judge.due() {
            let late = self.rng.around(self.swarm.lateness);
            self.arm_control(due.0.saturating_add(late));
        }
        if !self.inbox.is_empty() || !self.returns.is_empty() {
            self.arm_control(self.now);
        }
        Ok(())
    }

    fn carry_out(&mut self) {
        let mut effects = std::mem::take(&mut self.judge.effects);
        for effect in effects.drain(..) {
            let (shard, mail) = match effect {
                Effect::Grant(grant) => {
                    self.holds.insert(grant.lease, Hold::Open);
                    (self.shard_of(grant.request), Mail::Granted(Arc::new(grant)))
                }
                Effect::Refuse { request, .. } => (self.shard_of(request), Mail::Refused(request)),
                Effect::Requeued { lease, request } => {
                    (self.shard_of(request), Mail::Requeued(request, lease))
                }
                Effect::Fenced { lease, request } => (self.shard_of(request), Mail::Fenced(request, lease)),
                Effect::Failed { lease, request, .. } => {
                    (self.shard_of(request), Mail::Failed(request, lease))
                }
                Effect::Registration { connection, outcome } => {
                    (self.links[Self::link_of(connection)].shard, Mail::Registration(connection, outcome))
                }
                Effect::Readiness { connection, outcome } => {
                    (self.links[Self::link_of(connection)].shard, Mail::Readiness(connection, outcome))
                }
                Effect::CloseConnection { connection, .. } => {
                    (self.links[Self::link_of(connection)].shard, Mail::Close(connection))
                }
                Effect::Probe(probe) => {
                    (self.links[Self::link_of(probe.connection)].shard, Mail::Probe(probe))
                }
                Effect::NodeConnected { .. }
                | Effect::NodeFenced { .. }
                | Effect::HealthObserved(_)
                | Effect::OverlayLowered { .. }
                | Effect::OverlayCleared { .. }
                | Effect::Snapshot { .. } => continue,
            };
            self.post(shard, mail);
        }
        self.judge.effects = effects;
    }

    pub(super) fn ring(&mut self, shard: usize) {
        if !std::mem::replace(&mut self.shards[shard].armed, true) {
            let delay = self.rng.around(self.swarm.shard_delay);
            self.after(delay, Event::Shard(shard));
        }
    }

    pub(super) fn shard_turn(&mut self, shard: usize) {
        self.shards[shard].armed = false;
        // A turn takes what is there; sometimes the thread is held up in the middle.
        let mut take = self.shards[shard].inbox.len();
        if take > 1 && self.rng.chance(0.2) {
            take = self.rng.range(1, take as u64) as usize;
        }
        for _ in 0..take {
            let Some(mail) = self.shards[shard].inbox.pop_front() else { break };
            self.take(mail);
        }
        if !self.shards[shard].inbox.is_empty() {
            self.ring(shard);
        }
    }

    fn take(&mut self, mail: Mail) {
        match mail {
            Mail::Granted(grant) => self.granted(grant),
            Mail::Refused(request) => self.forget_client(request),
            Mail::Requeued(request, lease) => match self.clients.get_mut(&request) {
                Some(client) if client.stage == Stage::Running(lease) => {
                    client.stage = Stage::Waiting;
                    self.drop_lease(lease);
                }
                Some(_) => {}
                None => self.tell_control(Input::Withdraw { request }),
            },
            Mail::Fenced(request, lease) => {
                if self.runs_under(request, lease) && !self.revoke(lease) {
                    self.finish(request);
                }
            }
            Mail::Failed(request, lease) | Mail::Ended(request, lease) => {
                if self.runs_under(request, lease) {
                    self.clients.remove(&request);
                    self.drop_lease(lease);
                }
            }
            Mail::Registration(connection, outcome) => self.registration(connection, outcome),
            Mail::Readiness(connection, outcome) => self.readiness(connection, outcome),
            Mail::Close(connection) => self.close_edge(Self::link_of(connection)),
            Mail::Probe(probe) => {
                let link = Self::link_of(probe.connection);
                if self.links[link].is_up() {
                    self.probes.push(probe.clone());
                    self.answer_for_another(&probe);
                    let Probe { command, adapter, target, .. } = probe;
                    self.send_down(link, Down::Probe { command, adapter, target });
                }
            }
            Mail::Open(grant) => self.open(&grant),
            Mail::Cancel(connection, lease) => {
                let link = Self::link_of(connection);
                if let Some(run) = self.links[link].runs.get_mut(&lease) {
                    run.cancelled = true;
                    self.send_down(link, Down::Cancel(lease));
                }
            }
        }
    }

    fn granted(&mut self, grant: Arc<Grant>) {
        let (request, lease) = (grant.request, grant.lease);
        match self.clients.get_mut(&request) {
            Some(client) if client.stage == Stage::Waiting => {
                client.stage = Stage::Running(lease);
                client.connection = grant.connection;
            }
            // Nobody is there any more, or nobody who asked: the drop of the lease is its return.
            _ => return self.drop_lease(lease),
        }
        let margin = Duration::from_secs(1);
        let by = (grant.request_timeout + margin).as_nanos() as u64;
        self.after(by, Event::Deadline(request, lease));
        self.mail_link(request, grant.connection, Mail::Open(grant));
    }

    /// Mail from a request's shard for that of a connection; for the same shard it is carried out at once.
    fn mail_link(&mut self, request: RequestId, connection: ConnectionId, mail: Mail) {
        let shard = self.links[Self::link_of(connection)].shard;
        if shard == self.shard_of(request) {
            self.take(mail);
        } else {
            self.post(shard, mail);
        }
    }

    fn open(&mut self, grant: &Grant) {
        let (link, lease) = (Self::link_of(grant.connection), grant.lease);
        if self.links[link].is_gone() {
            return self.tell_control(Input::NotSent { lease });
        }
        let usable = self.links[link].is_up();
        if usable && self.holds.get(&lease) != Some(&Hold::Open) {
            // Its generation has been fenced, and its request's shard knows.
            return self.tell_control(Input::NotSent { lease });
        }
        if !usable || self.rng.chance(self.swarm.failing * 0.02) {
            self.close_edge(link);
            self.tell_control(Input::ConnectionClosed { connection: grant.connection });
            return self.tell_control(Input::NotSent { lease });
        }
        self.holds.insert(lease, Hold::Sent);
        self.links[link].runs.insert(lease, Run { request: grant.request, cancelled: false });
        self.send_down(
            link,
            Down::Open {
                lease,
                adapter: Arc::clone(&grant.adapter),
                target: Arc::clone(&grant.target),
                stall_timeout: grant.stall_timeout.as_nanos() as u64,
                request_timeout: grant.request_timeout.as_nanos() as u64,
            },
        );
    }

    fn runs_under(&self, request: RequestId, lease: LeaseId) -> bool {
        self.clients.get(&request).is_some_and(|client| client.stage == Stage::Running(lease))
    }

    /// `Claim::revoke`: whether it will not be sent.
    fn revoke(&mut self, lease: LeaseId) -> bool {
        match self.holds.get_mut(&lease) {
            Some(Hold::Sent) => false,
            Some(hold) => {
                *hold = Hold::Revoked;
                true
            }
            None => true,
        }
    }

    /// `Drop` of `edge::lease::Lease`.
    pub(super) fn drop_lease(&mut self, lease: LeaseId) {
        let sent = self.holds.remove(&lease) == Some(Hold::Sent);
        self.returns.push_back((lease, sent));
        let delay = self.rng.around(self.swarm.control_delay);
        self.arm_control(self.now + delay);
    }

    /// A request's task ends while it runs: the run is cancelled, the lease dropped.
    pub(super) fn finish(&mut self, request: RequestId) {
        let Some(client) = self.clients.remove(&request) else { return };
        match client.stage {
            Stage::Waiting => self.tell_control(Input::Withdraw { request }),
            Stage::Running(lease) => {
                self.mail_link(request, client.connection, Mail::Cancel(client.connection, lease));
                self.drop_lease(lease);
            }
        }
    }

    fn forget_client(&mut self, request: RequestId) {
        if let Some(client) = self.clients.remove(&request)
            && let Stage::Running(lease) = client.stage
        {
            self.drop_lease(lease);
        }
    }

    fn registration(&mut self, connection: ConnectionId, outcome: Result<(), RegistrationRefusal>) {
        let link = Self::link_of(connection);
        if self.links[link].is_gone() {
            return;
        }
        let now = self.instant();
        if outcome.is_ok() {
            self.links[link].registered = true;
            self.links[link].beat.restart(now);
            let due = self.nanos(self.links[link].beat.poll_timeout());
            self.at(due, Event::EdgeBeat(link));
            let config = Arc::clone(&self.config);
            self.links[link].config = config.generation;
            self.send_down(link, Down::Registered(Some(config)));
        } else {
            self.send_down(link, Down::Registered(None));
            if !self.links[link].registered {
                self.close_edge(link);
            }
        }
    }

    fn readiness(&mut self, connection: ConnectionId, outcome: Result<(), ReadinessRefusal>) {
        let link = Self::link_of(connection);
        if self.links[link].is_gone() {
            return;
        }
        self.send_down(link, Down::Readiness(outcome.is_ok()));
        if outcome.is_err() {
            self.close_edge(link);
        } else {
            self.links[link].ready = true;
            self.refresh(link);
        }
    }

    /// Pushes the configuration in force to a Node that was given an older one.
    pub(super) fn refresh(&mut self, link: usize) {
        if self.links[link].ready && self.links[link].config != self.config.generation {
            self.links[link].config = self.config.generation;
            let config = Arc::clone(&self.config);
            self.send_down(link, Down::Refresh(config));
        }
    }

    /// What arrives from a Node.
    pub(super) fn hear_node(&mut self, link: usize, frame: Up) {
        let connection = ConnectionId(link as u64);
        match frame {
            Up::Register { .. } | Up::Ready { .. } if self.asks_too_often(link) => self.close_edge(link),
            Up::Register { claimed, token_ok } => {
                let certified = Arc::clone(&self.links[link].name);
                self.tell_control(Input::Register { connection, certified, claimed, token_ok });
            }
            Up::Ready { claimed } => self.tell_control(Input::Ready { connection, claimed }),
            Up::Draining => {
                if !std::mem::replace(&mut self.links[link].heard_draining, true) {
                    self.tell_control(Input::Draining { connection });
                }
            }
            Up::Terminal { lease, error, sequence } => self.terminal(link, lease, error, sequence),
            // What no Edge would pass on, and the machine must not depend on.
            Up::Forged { lease, error, sequence } => {
                self.tell_control(Input::Terminal { connection, lease, error, sequence });
            }
            Up::Answer { command, result } => {
                self.tell_control(Input::CommandAnswered { connection, command, result });
            }
            Up::Ping => self.send_down(link, Down::Pong),
            Up::Pong => {
                let now = self.instant();
                self.links[link].beat.handle_pong(now);
            }
            Up::Closed => self.close_edge(link),
        }
    }

    fn asks_too_often(&mut self, link: usize) -> bool {
        self.links[link].asked += 1;
        self.links[link].asked > ASKED_MAX
    }

    fn terminal(&mut self, link: usize, lease: LeaseId, error: Option<ExecutionError>, sequence: u64) {
        let Some(run) = self.links[link].runs.remove(&lease) else { return };
        let connection = ConnectionId(link as u64);
        let ended = error.is_none();
        self.tell_control(Input::Terminal { connection, lease, error, sequence });
        if ended && !run.cancelled {
            let shard = self.shard_of(run.request);
            self.post(shard, Mail::Ended(run.request, lease));
        }
    }

    /// `Link::shutdown`: the peer is told, and control when the task has ended, which may take its time.
    pub(super) fn close_edge(&mut self, link: usize) {
        if !self.links[link].start_closing() {
            return;
        }
        self.send_down(link, Down::Closed);
        let late = if self.rng.chance(0.1) { 5 * super::swarm::SECOND } else { self.swarm.shard_delay * 2 };
        let delay = self.rng.around(late);
        self.after(delay, Event::EdgeGone(link));
    }

    pub(super) fn edge_gone(&mut self, link: usize) {
        self.links[link].end();
        self.tell_control(Input::ConnectionClosed { connection: ConnectionId(link as u64) });
    }

    pub(super) fn unregistered(&mut self, link: usize) {
        if !self.links[link].registered {
            self.close_edge(link);
        }
    }

    pub(super) fn edge_beat(&mut self, link: usize) {
        if !self.links[link].is_up() {
            return;
        }
        let now = self.instant();
        let due = self.nanos(self.links[link].beat.poll_timeout());
        if due > self.now {
            return self.at(due, Event::EdgeBeat(link));
        }
        match self.links[link].beat.handle_timeout(now) {
            Some(dataplane::relay::heartbeat::Beat::Dead) => return self.close_edge(link),
            Some(dataplane::relay::heartbeat::Beat::Ping) => self.send_down(link, Down::Ping),
            None => {}
        }
        let due = self.nanos(self.links[link].beat.poll_timeout());
        self.at(due, Event::EdgeBeat(link));
    }

    pub(super) fn send_down(&mut self, link: usize, frame: Down) {
        let delay = self.rng.around(self.swarm.link_delay);
        let due = self.links[link].down.push(self.now + delay, frame);
        if let Some(due) = due {
            self.at(due, Event::Frame(link, Way::Down));
        }
    }
}
