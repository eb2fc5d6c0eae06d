//! Nodes as processes: they dial, register, apply, get ready, run, answer, drain, crash and come back.
//!
//! When to dial, how a registration goes, what a gate lets in and when a link is dead is decided by the Node's own
//! machines.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use control::{
    config::PoolConfig,
    input::{CommandId, LeaseId},
};
use dataplane::relay::heartbeat::{Beat, Heartbeat, HeartbeatTimes};
use node::{
    config::{AttemptLimit, ReconnectPolicy},
    gate::{Gate, Permit},
    session::registration::{ANSWER_TIMEOUT, Registration, Step},
    supervisor::{self, Failure, Supervisor},
};
use proto::message::{
    ErrorKind, ExecutionError, Message, NodeConfigPayload, NodeReadyResponse, RegisterResponse,
};

use super::{
    Event, Simulation,
    lies::Lie,
    links::{Down, Link, Up},
    session::{Asked, Said},
    swarm::{MS, SECOND},
};

/// What kind of Node it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Honest,
    /// Applies and answers late, stops no run.
    Slow,
    /// Says what it likes.
    Byzantine,
}

/// Adapter instances of a Node.
pub(super) const ADAPTERS: [&str; 2] = ["a0", "a1"];

#[derive(Debug)]
struct Run {
    adapter: Arc<str>,
    target: Arc<str>,
    fate: Fate,
    /// What it has still to say before its end, and how much of the answer there is then.
    talk: Vec<Said>,
    said: u64,
    /// An end planned for an earlier version is void.
    version: u32,
    _permit: Permit,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Complete,
    Fail,
    Stall,
    Deadline,
    Cancelled,
}

/// One Node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: Arc<str>,
    pub(super) kind: Kind,
    /// Counts connections and processes: what was planned in an earlier one is void.
    pub(super) life: u32,
    pub(super) link: Option<usize>,
    pub(super) serving: bool,
    pub(super) draining: bool,
    /// No process: the next one is still to be started.
    pub(super) down: bool,
    /// Up to when no dial gets through.
    pub(super) unreachable: u64,
    supervisor: Supervisor,
    registration: Option<Registration>,
    /// Until when it waits for an answer to its registration, or to its ready.
    answer_due: Option<u64>,
    gates: Vec<Gate>,
    runs: BTreeMap<LeaseId, Run>,
    /// STL-7: of this connection.
    observations: u64,
    /// The number of what it last found unavailable.
    pub(super) reported: String,
    beat: Heartbeat,
    /// By adapter: whether its provider answers nothing.
    sick: [bool; 2],
    /// Commands to answer.
    answers: BTreeMap<u64, (Arc<str>, Arc<str>)>,
}

impl Node {
    pub(super) fn recover(&mut self, adapter: usize) {
        self.sick[adapter] = false;
    }

    pub(super) fn sicken(&mut self, adapter: usize) {
        self.sick[adapter] = true;
    }

    /// Whether the Edge owes it an answer that is overdue.
    fn awaits_since(&self, now: u64) -> bool {
        !self.serving && self.answer_due.is_some_and(|due| due <= now)
    }

    pub(super) fn last_observation(&self) -> u64 {
        self.observations
    }

    pub(super) fn is_idle(&self) -> bool {
        self.runs.is_empty()
    }

    fn adapter(name: &str) -> Option<usize> {
        ADAPTERS.iter().position(|adapter| *adapter == name)
    }

    /// Gates are as large as the providers of their adapter together (GAT-2); direct runs find room beside.
    fn apply(&mut self, config: &PoolConfig) {
        let policy = config.nodes.iter().find(|node| node.id == self.name);
        for (adapter, gate) in ADAPTERS.iter().zip(&self.gates) {
            let providers = policy.iter().flat_map(|policy| &policy.providers);
            let size: u32 =
                providers.filter(|provider| *provider.adapter == **adapter).map(|p| p.capacity).sum();
            gate.resize(size);
        }
    }
}

fn policy(reconnect: u64) -> ReconnectPolicy {
    ReconnectPolicy { interval: Duration::from_nanos(reconnect), attempts: AttemptLimit::Unlimited }
}

impl Simulation {
    pub(super) fn start_nodes(&mut self) {
        for index in 0..self.swarm.nodes {
            let kind = if self.rng.chance(self.swarm.byzantine) {
                Kind::Byzantine
            } else if self.rng.chance(self.swarm.slow) {
                Kind::Slow
            } else {
                Kind::Honest
            };
            let now = self.instant();
            self.nodes.push(Node {
                name: format!("n{index}").into(),
                kind,
                life: 0,
                link: None,
                serving: false,
                draining: false,
                down: false,
                unreachable: 0,
                supervisor: Supervisor::new(policy(self.swarm.reconnect)),
                registration: None,
                answer_due: None,
                gates: ADAPTERS.iter().map(|_| Gate::new(0)).collect(),
                runs: BTreeMap::new(),
                observations: 0,
                reported: String::new(),
                beat: Heartbeat::new(HeartbeatTimes::default(), now),
                sick: [false; 2],
                answers: BTreeMap::new(),
            });
            self.reboot(index);
        }
    }

    /// A new process.
    pub(super) fn reboot(&mut self, index: usize) {
        let policy = policy(self.swarm.reconnect);
        let node = &mut self.nodes[index];
        node.life += 1;
        node.supervisor = Supervisor::new(policy);
        node.draining = false;
        node.down = false;
        self.decide(index, supervisor::Event::Started);
    }

    /// Tells the Node's supervisor, and does what it says.
    fn decide(&mut self, index: usize, event: supervisor::Event) {
        let (now, random) = (self.instant(), self.rng.word() as u32);
        let life = self.nodes[index].life;
        match self.nodes[index].supervisor.handle(now, random, event) {
            supervisor::Step::Dial => {
                let delay = self.rng.around(self.swarm.link_delay);
                self.after(delay, Event::Dial(index, life));
            }
            supervisor::Step::Wait(until) => {
                let until = self.nanos(until);
                self.at(until, Event::Dial(index, life));
            }
            supervisor::Step::Stay | supervisor::Step::Exit(_) => {}
        }
    }

    pub(super) fn node_event(&mut self, index: usize, event: Event) {
        match event {
            Event::Dial(..) => self.dial(index),
            Event::Applied(..) => self.applied(index),
            Event::AnswerOverdue(..) if self.nodes[index].awaits_since(self.now) => self.lose(index, true),
            Event::NodeBeat(..) => self.node_beat(index),
            Event::Talk(_, _, lease, version) => self.talk(index, lease, version),
            Event::RunOver(_, _, lease, version) => self.run_over(index, lease, version),
            Event::Answer(_, _, command) => self.answer(index, command),
            Event::DrainOver(..) => self.exit(index),
            Event::Reboot(..) => self.reboot(index),
            _ => {}
        }
    }

    fn dial(&mut self, index: usize) {
        if self.nodes[index].link.is_some() {
            return;
        }
        // The end of a wait; of a first dial this repeats it.
        let now = self.instant();
        self.nodes[index].supervisor.handle(now, 0, supervisor::Event::WaitOver);
        if self.nodes[index].unreachable > self.now {
            return self.decide(index, supervisor::Event::Failed(Failure::Connect));
        }
        let link = self.connect(index);
        let node = &mut self.nodes[index];
        node.life += 1;
        node.link = Some(link);
        node.serving = false;
        node.observations = 0;
        let life = node.life;
        let Ok(name) = node.name.parse() else { return };
        let (registration, _) = Registration::start(name, String::new());
        node.registration = Some(registration);
        let claimed = Arc::clone(&node.name);
        let token_ok = node.kind != Kind::Byzantine || self.rng.chance(0.9);
        self.send_up(link, Up::Register { claimed, token_ok });
        self.await_answer(index, life);
        let now = self.instant();
        self.nodes[index].beat = Heartbeat::new(HeartbeatTimes::default(), now);
        self.arm_node_beat(index);
    }

    /// A connection that the Edge has accepted; it says nothing yet.
    pub(super) fn connect(&mut self, index: usize) -> usize {
        let link = self.links.len();
        let shard = self.rng.index(self.shards.len());
        let now = self.instant();
        self.links.push(Link::new(index, Arc::clone(&self.nodes[index].name), shard, now));
        let due = self.nanos(self.links[link].beat.poll_timeout());
        self.at(due, Event::EdgeBeat(link));
        self.after(super::edge::REGISTER_WITHIN, Event::Unregistered(link));
        link
    }

    fn arm_node_beat(&mut self, index: usize) {
        let due = self.nanos(self.nodes[index].beat.poll_timeout());
        self.at(due, Event::NodeBeat(index, self.nodes[index].life));
    }

    fn node_beat(&mut self, index: usize) {
        let now = self.instant();
        let Some(link) = self.nodes[index].link else { return };
        if self.nanos(self.nodes[index].beat.poll_timeout()) <= self.now {
            match self.nodes[index].beat.handle_timeout(now) {
                Some(Beat::Dead) => return self.lose(index, true),
                Some(Beat::Ping) => self.send_up(link, Up::Ping),
                None => {}
            }
        }
        self.arm_node_beat(index);
    }

    /// What arrives from the Edge. An old link's frames go nowhere, but a liar still listens.
    pub(super) fn hear_edge(&mut self, link: usize, frame: Down) {
        let index = self.links[link].node;
        if matches!(frame, Down::Ping) {
            return self.send_up(link, Up::Pong);
        }
        if self.nodes[index].link != Some(link) {
            return;
        }
        match frame {
            Down::Registered(config) => self.registered(index, link, config),
            Down::Readiness(ready) => self.readied(index, ready),
            Down::Open { lease, adapter, target, stall_timeout, request_timeout, asked } => {
                self.start_run(index, lease, adapter, target, (stall_timeout, request_timeout), asked);
            }
            Down::Cancel(lease) => self.cancel_run(index, lease),
            Down::Probe { command, adapter, target } => {
                let usual = self.rng.around(self.swarm.run.min(5 * SECOND));
                let late = if self.nodes[index].kind == Kind::Slow { 30 * usual } else { usual };
                self.nodes[index].answers.insert(command.0, (adapter, target));
                self.after(late, Event::Answer(index, self.nodes[index].life, command.0));
            }
            Down::Refresh(config) => self.nodes[index].apply(&config),
            Down::Pong => {
                let now = self.instant();
                self.nodes[index].beat.handle_pong(now);
            }
            Down::Closed => self.lose(index, false),
            Down::Ping => {}
        }
    }

    fn await_answer(&mut self, index: usize, life: u32) {
        let due = self.now + ANSWER_TIMEOUT.as_nanos() as u64;
        self.nodes[index].answer_due = Some(due);
        self.at(due, Event::AnswerOverdue(index, life));
    }

    fn registered(&mut self, index: usize, link: usize, config: Option<Arc<PoolConfig>>) {
        let node = &mut self.nodes[index];
        let Some(registration) = &mut node.registration else { return };
        // It may take its time to apply.
        node.answer_due = None;
        let response = match (&config, node.name.parse()) {
            (Some(_), Ok(node_id)) => {
                RegisterResponse::Accepted { node_id, config: NodeConfigPayload::default() }
            }
            _ => RegisterResponse::Rejected { reason: String::new() },
        };
        match registration.handle(Message::RegisterResponse(response)) {
            Ok(Step::Apply(_)) => {
                if let Some(config) = config {
                    node.apply(&config);
                }
                let (kind, life) = (node.kind, node.life);
                let takes =
                    if kind == Kind::Slow { self.rng.below(80 * SECOND) } else { self.rng.around(20 * MS) };
                self.after(takes, Event::Applied(index, life));
            }
            Ok(Step::Ready) => {}
            Err(_) if self.nodes[index].kind == Kind::Byzantine && self.rng.chance(0.5) => {
                // It goes on as if nothing had been said.
                let claimed = Arc::clone(&self.nodes[index].name);
                self.send_up(link, Up::Ready { claimed });
            }
            Err(_) => self.lose(index, true),
        }
    }

    fn applied(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let (Some(registration), Some(link)) = (&mut node.registration, node.link) else { return };
        registration.applied();
        let (claimed, life) = (Arc::clone(&node.name), node.life);
        self.send_up(link, Up::Ready { claimed });
        self.await_answer(index, life);
    }

    fn readied(&mut self, index: usize, ready: bool) {
        let node = &mut self.nodes[index];
        let Some(registration) = &mut node.registration else { return };
        let response = NodeReadyResponse { ready, reason: String::new() };
        match registration.handle(Message::NodeReadyResponse(response)) {
            Ok(_) => {
                node.serving = true;
                node.registration = None;
                self.decide(index, supervisor::Event::Ready);
            }
            Err(_) => self.lose(index, true),
        }
    }

    /// The connection is over for this Node; `tells`: the Edge can learn of it at once.
    pub(super) fn lose(&mut self, index: usize, tells: bool) {
        let Some(link) = self.nodes[index].link.take() else { return };
        self.links[link].node_end = false;
        if tells {
            self.send_up(link, Up::Closed);
        }
        let node = &mut self.nodes[index];
        node.life += 1;
        node.runs.clear();
        node.answers.clear();
        node.registration = None;
        let served = std::mem::take(&mut node.serving);
        if node.draining {
            // It was about to end anyway.
            return self.exit(index);
        }
        self.decide(
            index,
            if served { supervisor::Event::Lost } else { supervisor::Event::Failed(Failure::Broken) },
        );
    }

    /// The process ends; another one is started some time later, once everything is whole at once.
    pub(super) fn exit(&mut self, index: usize) {
        let healed = self.is_healed();
        let node = &mut self.nodes[index];
        // What is not there cannot end, nor put off its start by it.
        if std::mem::replace(&mut node.down, true) && !healed {
            return;
        }
        node.life += 1;
        node.runs.clear();
        node.answers.clear();
        node.registration = None;
        node.serving = false;
        if let Some(link) = node.link.take() {
            self.links[link].node_end = false;
            // A machine that vanishes says nothing; a process that ends closes its sockets.
            if self.is_healed() || self.rng.chance(0.7) {
                self.send_up(link, Up::Closed);
            }
        }
        let pause = if self.is_healed() { MS } else { self.rng.around(self.swarm.reconnect) };
        self.after(pause, Event::Reboot(index, self.nodes[index].life));
    }

    /// SIGTERM: it says so, runs what it runs, and ends.
    pub(super) fn start_draining(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let Some(link) = node.link.filter(|_| node.serving && !node.draining) else { return };
        node.draining = true;
        self.send_up(link, Up::Draining);
        let grace = self.rng.below(30 * SECOND);
        self.after(grace, Event::DrainOver(index, self.nodes[index].life));
    }

    fn start_run(
        &mut self,
        index: usize,
        lease: LeaseId,
        adapter: Arc<str>,
        target: Arc<str>,
        (stall_timeout, request_timeout): (u64, u64),
        asked: Asked,
    ) {
        let node = &mut self.nodes[index];
        let refuse = |kind| ExecutionError { kind, message: String::new(), failure: None };
        let Some(which) = Node::adapter(&adapter) else {
            return self.end_run(index, lease, Some(refuse(ErrorKind::InvalidRequest)), 0, None);
        };
        let permit = if node.draining { None } else { node.gates[which].try_enter() };
        let Some(permit) = permit else {
            return self.end_run(index, lease, Some(refuse(ErrorKind::Busy)), 0, None);
        };
        let sick = node.sick[which];
        let (fate, takes) = if sick {
            (Fate::Stall, stall_timeout)
        } else if self.is_healed() {
            (Fate::Complete, self.rng.below(SECOND))
        } else if self.rng.chance(self.swarm.hanging) {
            // It hangs in silence, which the watchdog sees, or talks on.
            if self.stalls() { (Fate::Stall, stall_timeout) } else { (Fate::Deadline, request_timeout) }
        } else if self.rng.chance(self.swarm.failing) {
            (Fate::Fail, self.rng.around(self.swarm.run))
        } else {
            (Fate::Complete, self.rng.around(self.swarm.run))
        };
        let (fate, takes) =
            if takes > request_timeout { (Fate::Deadline, request_timeout) } else { (fate, takes) };
        let talk = if self.is_healed() { Vec::new() } else { self.some_talk(asked) };
        let life = self.nodes[index].life;
        if !talk.is_empty() {
            let begins = self.rng.below(takes.max(1));
            self.after(begins, Event::Talk(index, life, lease, 0));
        }
        let node = &mut self.nodes[index];
        node.runs.insert(
            lease,
            Run { adapter, target, fate, talk, said: asked.from, version: 0, _permit: permit },
        );
        self.after(takes, Event::RunOver(index, self.nodes[index].life, lease, 0));
    }

    fn cancel_run(&mut self, index: usize, lease: LeaseId) {
        let stubborn = match self.nodes[index].kind {
            Kind::Honest => 0.0,
            Kind::Slow | Kind::Byzantine => 0.7,
        };
        let ignores = self.rng.chance(stubborn);
        let takes = self.rng.around(self.swarm.link_delay);
        let node = &mut self.nodes[index];
        let Some(run) = node.runs.get_mut(&lease).filter(|_| !ignores) else { return };
        run.fate = Fate::Cancelled;
        run.version += 1;
        let event = Event::RunOver(index, node.life, lease, run.version);
        self.after(takes, event);
    }

    /// It says what it says before its end.
    fn talk(&mut self, index: usize, lease: LeaseId, version: u32) {
        let node = &mut self.nodes[index];
        let Some(run) = node.runs.get_mut(&lease).filter(|run| run.version == version) else { return };
        let talk = std::mem::take(&mut run.talk);
        run.said += talk.iter().filter(|said| matches!(said, Said::Content(_))).count() as u64;
        if let Some(link) = node.link {
            self.send_up(link, Up::Talk { lease, talk });
        }
    }

    fn run_over(&mut self, index: usize, lease: LeaseId, version: u32) {
        let node = &mut self.nodes[index];
        if node.runs.get(&lease).is_none_or(|run| run.version != version) {
            return;
        }
        let Some(run) = node.runs.remove(&lease) else { return };
        let fail = |kind| Some(ExecutionError { kind, message: String::new(), failure: None });
        let (error, behind) = match run.fate {
            Fate::Complete => (None, true),
            Fate::Fail => (fail(ErrorKind::Connect), self.rng.chance(0.5)),
            Fate::Deadline => (fail(ErrorKind::Deadline), true),
            Fate::Cancelled => (fail(ErrorKind::Cancelled), true),
            Fate::Stall => (Some(self.stalled(index, &run.adapter, &run.target)), self.rng.chance(0.5)),
        };
        if run.fate == Fate::Complete
            && !self.is_empty_answer()
            && let Some(link) = self.nodes[index].link
        {
            // All of the rest at once.
            self.send_up(link, Up::Talk { lease, talk: vec![Said::Content(run.said)] });
        }
        let sequence = if behind { self.rng.range(1, 9) } else { 0 };
        self.end_run(index, lease, error, sequence, Some((run.adapter, run.target)));
        if self.nodes[index].draining && self.nodes[index].is_idle() {
            self.exit(index);
        }
    }

    fn end_run(
        &mut self,
        index: usize,
        lease: LeaseId,
        error: Option<ExecutionError>,
        sequence: u64,
        of: Option<(Arc<str>, Arc<str>)>,
    ) {
        let Some(link) = self.nodes[index].link else { return };
        if self.nodes[index].kind == Kind::Byzantine && self.rng.chance(0.3) {
            return self.lie(index, Lie::Terminal { lease, error, sequence, of });
        }
        self.send_up(link, Up::Terminal { lease, error, sequence });
    }

    /// The next number of what is observed on this connection.
    pub(super) fn observe(&mut self, index: usize) -> u64 {
        self.nodes[index].observations += 1;
        self.nodes[index].observations
    }

    /// STL-4, STL-5: what the Node's own probe finds right after.
    fn stalled(&mut self, index: usize, adapter: &str, target: &str) -> ExecutionError {
        let sick = Node::adapter(adapter).is_some_and(|which| self.nodes[index].sick[which]);
        let pair = match (sick, self.rng.chance(0.1)) {
            (_, true) => ("unknown", "health_unknown"),
            (true, _) => ("unavailable", "provider_unhealthy"),
            (false, _) => ("available", "request_stalled"),
        };
        let number = self.observe(index).to_string();
        if sick {
            self.nodes[index].reported.clone_from(&number);
        }
        let fence = self.some_fence();
        super::lies::stall(pair, adapter, target, fence, &number)
    }

    /// CAP-1.
    fn answer(&mut self, index: usize, command: u64) {
        let Some((adapter, target)) = self.nodes[index].answers.remove(&command) else { return };
        let Some(link) = self.nodes[index].link else { return };
        let sick = Node::adapter(&adapter).is_some_and(|which| self.nodes[index].sick[which]);
        let status = if sick { "unavailable" } else { "available" };
        let number = self.observe(index).to_string();
        let command = CommandId(command);
        if self.nodes[index].kind == Kind::Byzantine && self.rng.chance(0.5) {
            return self.lie(index, Lie::Answer { command, adapter, target });
        }
        let said = [
            ("adapter_key", &*adapter),
            ("target", &*target),
            ("provider_status", status),
            ("health_observation_seq", &number),
        ];
        let said = said.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        self.send_up(link, Up::Answer { command, result: Ok(said) });
    }
}
