//! A whole world in one thread: Nodes, links, providers, clients, an operator and the Edge's shards around one machine,
//! with a clock of its own. A seed decides everything.
//!
//! | Module | What it plays |
//! |---|---|
//! | `swarm` | how this seed's run is: sizes and rates |
//! | `edge` | control's loop, the shards, both ends of a lease: what `edge` does with the machine |
//! | `session` | what a request does when its attempt fails: the owner of its liveness at work |
//! | `links` | connections: delay, order, silence, late ends |
//! | `nodes` | Nodes that dial, register, run, answer, drain, crash; with the real machines of `node` inside |
//! | `lies` | what a Node says that does not keep to the protocol |
//! | `clients` | requests that come and leave |
//! | `operator` | configurations and their changes |
//! | `chaos` | when which fault happens |
//! | `healing` | the second phase: nothing fails any more, and everything must come to rest |
//!
//! Events of the same moment come in an order that is drawn; what a channel keeps in order stays so.

mod chaos;
mod clients;
mod edge;
mod healing;
mod lies;
mod links;
mod nodes;
mod operator;
mod session;
mod swarm;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use control::{
    Counters,
    config::PoolConfig,
    input::{ConnectionId, Input, LeaseId, Moment, RequestId},
};

use self::{
    chaos::Fault,
    clients::Client,
    edge::{Hold, Mail, Shard},
    links::{Link, Way},
    nodes::Node,
    swarm::Swarm,
};
use crate::{
    invariants::{Broken, Checked},
    judge::{Depth, Judge},
    recovery::Tally,
    rng::Rng,
    trace::{Step, Trace},
};

/// Something that happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Control takes a turn.
    Control,
    /// A shard takes a turn.
    Shard(usize),
    /// The next frame of a direction of a link is there.
    Frame(usize, Way),
    /// The Edge's end of a link has a heartbeat due.
    EdgeBeat(usize),
    /// The Edge's end of a link is gone, and control is told.
    EdgeGone(usize),
    /// A link was never registered.
    Unregistered(usize),
    Arrive,
    Leave(RequestId),
    Deadline(RequestId, LeaseId),
    /// A Node dials; the second number is its life, and an event of an earlier life is void.
    Dial(usize, u32),
    Applied(usize, u32),
    AnswerOverdue(usize, u32),
    NodeBeat(usize, u32),
    /// A run says something before its end.
    Talk(usize, u32, LeaseId, u32),
    RunOver(usize, u32, LeaseId, u32),
    Answer(usize, u32, u64),
    DrainOver(usize, u32),
    Reboot(usize, u32),
    /// A link or a provider is whole again.
    Mend(usize),
    Recover(usize, usize),
    Fault(Fault),
    /// Leases are looked at for their age.
    Watch,
}

/// How one seed's run ended, when every check held.
#[derive(Clone, Debug)]
pub struct Done {
    /// Steps of the machine that were checked.
    pub steps: u64,
    /// Of the inputs and effects of all steps: equal for equal runs (I24).
    pub digest: u64,
    /// What the machine counted.
    pub counters: Counters,
    /// What was seen of recovery.
    pub recovery: Tally,
}

/// The world.
pub struct Simulation {
    rng: Rng,
    swarm: Swarm,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    judge: Judge,
    config: Arc<PoolConfig>,
    first_config: Arc<PoolConfig>,
    inbox: VecDeque<Input>,
    returns: VecDeque<(LeaseId, bool)>,
    control_armed: u64,
    shards: Vec<Shard>,
    holds: BTreeMap<LeaseId, Hold>,
    /// By the number that its attempt was admitted under.
    clients: BTreeMap<RequestId, Client>,
    /// Of those with another attempt than their first: by their first number.
    current: BTreeMap<RequestId, RequestId>,
    requests: u64,
    rates: session::Rates,
    /// Of recovery alone.
    dice: Rng,
    recovery: Tally,
    /// What a shard has found, which has nobody to tell.
    broken: Option<Broken>,
    links: Vec<Link>,
    nodes: Vec<Node>,
    /// Commands sent so far, the latest last: liars answer those of others.
    probes: Vec<control::effect::Probe>,
    healed: Option<u64>,
    /// What a clock that starts with the run would read: the Node's machines take such.
    epoch: Instant,
    digest: u64,
    recorded: Option<Vec<Step>>,
}

impl Simulation {
    /// The world of a seed. `recording` keeps every input for [`Self::trace`].
    pub fn new(seed: u64, recording: bool) -> Self {
        let mut rng = Rng::new(seed);
        let swarm = Swarm::draw(&mut rng);
        let config = Arc::new(operator::first_config(&mut rng, &swarm));
        let mut dice = Rng::new(seed.rotate_left(32));
        let rates = session::Rates::draw(&mut dice);
        let depth = Depth { full: *rng.pick(&[1, 20, 100, 500]) };
        let mut world = Self {
            now: 0,
            events: BinaryHeap::new(),
            judge: Judge::new(&config, depth),
            first_config: Arc::clone(&config),
            config,
            inbox: VecDeque::new(),
            returns: VecDeque::new(),
            control_armed: u64::MAX,
            shards: (0..swarm.shards).map(|_| Shard::default()).collect(),
            holds: BTreeMap::new(),
            clients: BTreeMap::new(),
            current: BTreeMap::new(),
            requests: 0,
            rates,
            dice,
            recovery: Tally::default(),
            broken: None,
            links: Vec::new(),
            nodes: Vec::new(),
            probes: Vec::new(),
            healed: None,
            epoch: Instant::now(),
            digest: 0,
            recorded: recording.then(Vec::new),
            rng,
            swarm,
        };
        world.start_nodes();
        world.at(0, Event::Arrive);
        world.at(swarm::SECOND, Event::Watch);
        world.start_faults();
        world
    }

    /// Runs the first phase for so many steps, then heals and runs to rest.
    ///
    /// # Errors
    /// The first check that does not hold.
    pub fn run(&mut self, steps: u64) -> Result<Done, Broken> {
        while self.judge.steps < steps {
            self.next_event()?;
        }
        self.heal();
        self.run_to_rest()?;
        self.judge.full()?;
        Ok(Done {
            steps: self.judge.steps,
            digest: self.digest,
            counters: self.judge.machine.counters().clone(),
            recovery: self.recovery,
        })
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.judge.steps
    }

    /// Everything the machine was told, if it was recorded.
    pub fn trace(&self) -> Option<Trace> {
        let steps = self.recorded.clone()?;
        Some(Trace { config: Arc::clone(&self.first_config), steps })
    }

    fn next_event(&mut self) -> Checked {
        let Some(Reverse((at, _, event))) = self.events.pop() else { return Ok(()) };
        self.now = self.now.max(at);
        match event {
            Event::Control => return self.control_turn(),
            Event::Shard(shard) => self.shard_turn(shard),
            Event::Frame(link, way) => self.deliver(link, way),
            Event::EdgeBeat(link) => self.edge_beat(link),
            Event::EdgeGone(link) => self.edge_gone(link),
            Event::Unregistered(link) => self.unregistered(link),
            Event::Arrive => self.arrive(),
            Event::Leave(request) => self.leave(request),
            Event::Deadline(request, lease) => self.deadline(request, lease),
            Event::Fault(fault) => self.fault(fault),
            Event::Mend(link) => self.mend(link),
            Event::Recover(node, adapter) => self.nodes[node].recover(adapter),
            Event::Watch => return self.watch(),
            Event::Dial(node, life)
            | Event::Applied(node, life)
            | Event::AnswerOverdue(node, life)
            | Event::NodeBeat(node, life)
            | Event::Talk(node, life, ..)
            | Event::RunOver(node, life, ..)
            | Event::Answer(node, life, _)
            | Event::DrainOver(node, life)
            | Event::Reboot(node, life) => {
                if self.nodes[node].life == life {
                    self.node_event(node, event);
                }
            }
        }
        self.broken.take().map_or(Ok(()), Err)
    }

    /// Plans an event, at the next tick.
    fn at(&mut self, at: u64, event: Event) {
        let at = at.max(self.now).next_multiple_of(self.swarm.tick);
        self.events.push(Reverse((at, self.rng.word(), event)));
    }

    fn after(&mut self, by: u64, event: Event) {
        self.at(self.now.saturating_add(by), event);
    }

    /// Tells the machine, and judges.
    fn tell(&mut self, input: Option<Input>) -> Checked {
        let at = Moment(self.now);
        let step = Step { at, input };
        if let Some(recorded) = &mut self.recorded {
            recorded.push(step.clone());
        }
        let judged = self.judge.step(at, step.input.as_ref());
        self.note();
        judged
    }

    /// Mixes what came of a step into the digest: enough to tell two runs apart, cheap enough for every step.
    fn note(&mut self) {
        let counters = self.judge.machine.counters();
        let mix = [
            self.now,
            self.judge.effects.len() as u64,
            counters.granted,
            counters.candidates_examined,
            counters.stale_inputs,
            self.judge.due().map_or(0, |due| due.0),
        ];
        for word in mix {
            self.digest = (self.digest ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
    }

    /// The present as the Node's and the link's machines take it.
    fn instant(&self) -> Instant {
        self.epoch + Duration::from_nanos(self.now)
    }

    fn nanos(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    fn shard_of(&self, request: RequestId) -> usize {
        (request.0 % self.shards.len() as u64) as usize
    }

    fn link_of(connection: ConnectionId) -> usize {
        connection.0 as usize
    }

    fn is_healed(&self) -> bool {
        self.healed.is_some()
    }

    fn post(&mut self, shard: usize, mail: Mail) {
        self.shards[shard].inbox.push_back(mail);
        self.ring(shard);
    }
}
