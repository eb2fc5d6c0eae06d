//! Connections between Nodes and the Edge: each direction keeps its order, whatever happens to it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use control::{
    config::PoolConfig,
    input::{CommandId, LeaseId},
};
use dataplane::relay::heartbeat::{Heartbeat, HeartbeatTimes};
use proto::message::ExecutionError;

use super::{
    Event, Simulation,
    edge::Run,
    session::{Asked, Said},
};

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    Up,
    Down,
}

/// From a Node.
#[derive(Clone, Debug)]
pub(super) enum Up {
    Register {
        claimed: Arc<str>,
        token_ok: bool,
    },
    Ready {
        claimed: Arc<str>,
    },
    Draining,
    /// What a run says, in order.
    Talk {
        lease: LeaseId,
        talk: Vec<Said>,
    },
    Terminal {
        lease: LeaseId,
        error: Option<ExecutionError>,
        sequence: u64,
    },
    Forged {
        lease: LeaseId,
        error: Option<ExecutionError>,
        sequence: u64,
    },
    Answer {
        command: CommandId,
        result: Result<BTreeMap<String, String>, String>,
    },
    Ping,
    Pong,
    Closed,
}

/// From the Edge.
#[derive(Clone, Debug)]
pub(super) enum Down {
    /// Accepted, with the configuration; or not.
    Registered(Option<Arc<PoolConfig>>),
    Readiness(bool),
    Open {
        lease: LeaseId,
        adapter: Arc<str>,
        target: Arc<str>,
        stall_timeout: u64,
        request_timeout: u64,
        asked: Asked,
    },
    Cancel(LeaseId),
    Probe {
        command: CommandId,
        adapter: Arc<str>,
        target: Arc<str>,
    },
    Refresh(Arc<PoolConfig>),
    Ping,
    Pong,
    Closed,
}

/// One direction.
#[derive(Debug)]
pub(super) struct Pipe<F> {
    frames: VecDeque<(u64, F)>,
    last: u64,
    armed: bool,
    /// Nothing comes through before; `u64::MAX`: until it is mended.
    held: u64,
}

impl<F> Pipe<F> {
    const fn new() -> Self {
        Self { frames: VecDeque::new(), last: 0, armed: false, held: 0 }
    }

    /// Sends a frame that would be there at `due`; when its delivery must be planned.
    pub(super) fn push(&mut self, due: u64, frame: F) -> Option<u64> {
        self.last = self.last.max(due);
        self.frames.push_back((self.last, frame));
        self.arm()
    }

    fn arm(&mut self) -> Option<u64> {
        if self.armed || self.held == u64::MAX {
            return None;
        }
        let due = self.frames.front()?.0.max(self.held);
        self.armed = true;
        Some(due)
    }

    fn pop(&mut self, now: u64) -> Option<F> {
        self.armed = false;
        let due = self.frames.front()?.0.max(self.held);
        if due > now { None } else { self.frames.pop_front().map(|(_, frame)| frame) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EdgeEnd {
    Up,
    Closing,
    Gone,
}

/// One connection; its number is its place in the list.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) node: usize,
    /// In the certificate.
    pub(super) name: Arc<str>,
    pub(super) shard: usize,
    pub(super) up: Pipe<Up>,
    pub(super) down: Pipe<Down>,
    edge: EdgeEnd,
    pub(super) registered: bool,
    pub(super) ready: bool,
    pub(super) asked: u32,
    pub(super) heard_draining: bool,
    /// An end that closes has not read a part of an answer.
    deaf: bool,
    /// Generation of the configuration that the Node was given.
    pub(super) config: u64,
    pub(super) runs: BTreeMap<LeaseId, Run>,
    pub(super) beat: Heartbeat,
    /// Whether a process on the Node's side still listens.
    pub(super) node_end: bool,
}

impl Link {
    pub(super) fn new(node: usize, name: Arc<str>, shard: usize, now: Instant) -> Self {
        Self {
            node,
            name,
            shard,
            up: Pipe::new(),
            down: Pipe::new(),
            edge: EdgeEnd::Up,
            registered: false,
            ready: false,
            asked: 0,
            heard_draining: false,
            deaf: false,
            config: 0,
            runs: BTreeMap::new(),
            beat: Heartbeat::new(HeartbeatTimes::default(), now),
            node_end: true,
        }
    }

    /// Whether the Edge's end sends and listens.
    pub(super) fn is_up(&self) -> bool {
        self.edge == EdgeEnd::Up
    }

    /// Whether the Edge has forgotten it.
    pub(super) fn is_gone(&self) -> bool {
        self.edge == EdgeEnd::Gone
    }

    pub(super) fn start_closing(&mut self) -> bool {
        let starts = self.is_up();
        if starts {
            self.edge = EdgeEnd::Closing;
        }
        starts
    }

    pub(super) fn end(&mut self) {
        self.edge = EdgeEnd::Gone;
        self.runs.clear();
    }
}

impl Simulation {
    pub(super) fn deliver(&mut self, link: usize, way: Way) {
        match way {
            Way::Up => {
                let frame = self.links[link].up.pop(self.now);
                // An end that closes still reads what is on its way, or does not.
                let end = &self.links[link];
                let reads = end.is_up() || !end.is_gone() && !end.deaf && self.rng.chance(0.5);
                // No answer has a hole: what comes behind a part that was not read is not read either.
                self.links[link].deaf |= !reads && matches!(frame, Some(Up::Talk { .. }));
                if let Some(frame) = frame.filter(|_| reads) {
                    self.hear_node(link, frame);
                }
                if let Some(due) = self.links[link].up.arm() {
                    self.at(due, Event::Frame(link, way));
                }
            }
            Way::Down => {
                let frame = self.links[link].down.pop(self.now);
                if let Some(frame) = frame.filter(|_| self.links[link].node_end) {
                    self.hear_edge(link, frame);
                }
                if let Some(due) = self.links[link].down.arm() {
                    self.at(due, Event::Frame(link, way));
                }
            }
        }
    }

    pub(super) fn send_up(&mut self, link: usize, frame: Up) {
        let delay = self.rng.around(self.swarm.link_delay);
        if let Some(due) = self.links[link].up.push(self.now + delay, frame) {
            self.at(due, Event::Frame(link, Way::Up));
        }
    }

    /// Nothing comes through in these directions until then; `u64::MAX`: until it is mended.
    pub(super) fn hold_link(&mut self, link: usize, up: bool, down: bool, until: u64) {
        let link = &mut self.links[link];
        if up {
            link.up.held = until;
        }
        if down {
            link.down.held = until;
        }
    }

    pub(super) fn mend(&mut self, link: usize) {
        self.hold_link(link, true, true, 0);
        if let Some(due) = self.links[link].up.arm() {
            self.at(due, Event::Frame(link, Way::Up));
        }
        if let Some(due) = self.links[link].down.arm() {
            self.at(due, Event::Frame(link, Way::Down));
        }
    }
}
