//! What an event costs the machine, to be counted under callgrind: `cargo xtask bench --instructions`.
//!
//! ```text
//! valgrind --tool=callgrind --toggle-collect='*counted*' cost SCENARIO WAITERS ROUNDS [recorded]
//! ```
//!
//! Builds a full machine with so many waiting requests, then does as many rounds, of which alone is counted. A round
//! leaves the machine as crowded as it was.

use std::{env, hint::black_box, process::ExitCode, sync::Arc, time::Duration};

// The package has another name than the one its dependents give it.
use iop_control::{
    LEASES_MAX, Machine,
    config::{Capabilities, Group, Member, NodePolicy, PoolConfig, ProviderPolicy},
    effect::Effect,
    input::{Admit, Avoided, ConnectionId, Input, LeaseId, Moment, RequestId},
    record::{Build, Recorder},
};

const NODES: usize = 50;
const PROVIDERS: usize = 500;
const SLOTS: u32 = 2;

/// How the crowd looks, and what a round is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scenario {
    /// Two groups over all providers in three capability sets, requests of many kinds. A round settles a lease, which
    /// grants the oldest that can run, and admits another request.
    Mixed,
    /// The same, and every request avoids a provider, each another one.
    Avoiding,
    /// Every provider is in 500 groups, each of which somebody waits for.
    Groups,
    /// The queue is full: a round admits a request, which is refused.
    Overflow,
    /// A round loses a Node with its 20 leases and gets it back, which grants 20.
    Fence,
}

impl Scenario {
    fn read(text: &str) -> Option<Self> {
        Some(match text {
            "mixed" => Self::Mixed,
            "avoiding" => Self::Avoiding,
            "groups" => Self::Groups,
            "overflow" => Self::Overflow,
            "fence" => Self::Fence,
            _ => return None,
        })
    }

    fn groups(self) -> usize {
        if self == Self::Groups { 500 } else { 2 }
    }
}

/// The machine, bare or recorded.
enum Subject {
    Bare(Box<Machine>),
    Recorded(Box<Recorder>),
}

impl Subject {
    fn handle(&mut self, now: Moment, input: Input) {
        match self {
            Self::Bare(machine) => machine.handle(now, input),
            Self::Recorded(recorder) => recorder.handle(now, input),
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        match self {
            Self::Bare(machine) => machine.poll_effect(),
            Self::Recorded(recorder) => recorder.poll_effect(),
        }
    }

    fn machine(&self) -> &Machine {
        match self {
            Self::Bare(machine) => machine,
            Self::Recorded(recorder) => recorder.machine(),
        }
    }
}

struct Crowd {
    scenario: Scenario,
    subject: Subject,
    now: Moment,
    requests: u64,
    connections: u64,
    groups: Vec<Arc<str>>,
    providers: Vec<Arc<str>>,
    nodes: Vec<Arc<str>>,
    /// Connection of each Node.
    links: Vec<ConnectionId>,
    running: Vec<(LeaseId, ConnectionId)>,
    refused: u64,
}

impl Crowd {
    fn new(scenario: Scenario, waiters: usize, recorded: bool) -> Self {
        let names = |prefix: &str, count| (0..count).map(|n| format!("{prefix}{n}").into()).collect();
        let (nodes, providers): (Vec<Arc<str>>, Vec<Arc<str>>) = (names("n", NODES), names("p", PROVIDERS));
        let groups: Vec<Arc<str>> = names("g", scenario.groups());
        let queue_max = if scenario == Scenario::Overflow { waiters } else { waiters + LEASES_MAX };
        let config = PoolConfig {
            generation: 1,
            queue_max,
            queue_timeout: Some(Duration::from_secs(3600)),
            nodes: nodes.iter().enumerate().map(|(at, id)| node(at, id, &providers)).collect(),
            groups: groups.iter().map(|id| group(id, &providers)).collect(),
            routes: Vec::new(),
        };
        let machine = Machine::new(Arc::new(config));
        let build = || Build { version: "0".into(), commit: "0".into() };
        let subject = match recorded {
            true => Subject::Recorded(Box::new(Recorder::new(machine, build()))),
            false => Subject::Bare(Box::new(machine)),
        };
        let mut crowd = Self {
            scenario,
            subject,
            now: Moment(0),
            requests: 0,
            connections: 0,
            groups,
            providers,
            links: Vec::new(),
            nodes,
            running: Vec::new(),
            refused: 0,
        };
        (0..NODES).for_each(|node| {
            let link = crowd.connect(node);
            crowd.links.push(link);
        });
        let slots = PROVIDERS * SLOTS as usize;
        (0..slots + waiters).for_each(|_| crowd.admit());
        assert_eq!((crowd.running.len(), crowd.refused), (slots, 0), "every slot is taken");
        crowd
    }

    fn connect(&mut self, node: usize) -> ConnectionId {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        let name = || Arc::clone(&self.nodes[node]);
        let (certified, claimed, repeated) = (name(), name(), name());
        self.tell(Input::Register { connection, certified, claimed, token_ok: true });
        self.tell(Input::Ready { connection, claimed: repeated });
        connection
    }

    fn admit(&mut self) {
        let id = self.requests;
        self.requests += 1;
        let every = |n| id.is_multiple_of(n);
        let avoids = self.scenario == Scenario::Avoiding || every(7);
        let avoided = avoids.then(|| Avoided {
            provider: Arc::clone(&self.providers[(id % PROVIDERS as u64) as usize]),
            allow_fallback: every(2),
        });
        self.tell(Input::Admit(Admit {
            request: RequestId(id),
            group: Arc::clone(&self.groups[(id % self.groups.len() as u64) as usize]),
            needs: Capabilities(u32::from(every(5))),
            long: every(3),
            avoid: avoided.into_iter().collect(),
        }));
    }

    fn tell(&mut self, input: Input) {
        self.now = Moment(self.now.0 + 1_000);
        self.subject.handle(self.now, input);
        while let Some(effect) = self.subject.poll_effect() {
            match effect {
                Effect::Grant(grant) => self.running.push((grant.lease, grant.connection)),
                Effect::Refuse { .. } => self.refused += 1,
                _ => {}
            }
        }
    }

    fn round(&mut self, round: usize) {
        match self.scenario {
            Scenario::Overflow => self.admit(),
            Scenario::Fence => {
                let (node, before) = (round % NODES, self.running.len());
                let connection = self.links[node];
                self.running.retain(|&(_, of)| of != connection);
                let lost = before - self.running.len();
                self.tell(Input::ConnectionClosed { connection });
                self.links[node] = self.connect(node);
                assert_eq!(self.running.len(), before, "as many are granted as were lost");
                (0..lost).for_each(|_| self.admit());
            }
            _ => {
                let (lease, connection) = self.running.swap_remove(round * 31 % self.running.len());
                self.tell(Input::Terminal { connection, lease, error: None, sequence: 0 });
                self.tell(Input::HolderGone { lease, sent: true });
                self.admit();
            }
        }
    }
}

fn node(at: usize, id: &Arc<str>, providers: &[Arc<str>]) -> NodePolicy {
    let mine = providers.iter().enumerate().skip(at).step_by(NODES);
    let provider = |(at, id): (usize, &Arc<str>)| ProviderPolicy {
        id: Arc::clone(id),
        adapter: "a".into(),
        enabled: true,
        capacity: SLOTS,
        long_capacity: SLOTS - 1,
        priority: 0,
        capabilities: Capabilities(1 + (at % 3) as u32),
        stall_timeout: Duration::from_secs(300),
        request_timeout: Duration::from_secs(600),
    };
    NodePolicy { id: Arc::clone(id), providers: mine.map(provider).collect(), adapters: Vec::new() }
}

fn group(id: &Arc<str>, providers: &[Arc<str>]) -> Group {
    let member = |provider: &Arc<str>| Member { provider: Arc::clone(provider), target: Arc::clone(id) };
    Group { id: Arc::clone(id), members: providers.iter().map(member).collect() }
}

/// All that is counted.
#[inline(never)]
fn counted(crowd: &mut Crowd, rounds: usize) {
    for round in 0..rounds {
        crowd.round(black_box(round));
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (scenario, waiters, rounds, recorded) = match words[..] {
        [scenario, waiters, rounds] => (scenario, waiters, rounds, false),
        [scenario, waiters, rounds, "recorded"] => (scenario, waiters, rounds, true),
        _ => ("", "", "", false),
    };
    let (Some(scenario), Ok(waiters), Ok(rounds)) =
        (Scenario::read(scenario), waiters.parse(), rounds.parse())
    else {
        eprintln!("usage: cost mixed|avoiding|groups|overflow|fence WAITERS ROUNDS [recorded]");
        return ExitCode::from(2);
    };
    let mut crowd = Crowd::new(scenario, waiters, recorded);
    counted(&mut crowd, rounds);
    // What was counted was what it says.
    let machine = crowd.subject.machine();
    assert_eq!(machine.audit(), Ok(()));
    assert_eq!(crowd.running.len(), PROVIDERS * SLOTS as usize);
    assert_eq!(crowd.refused, if scenario == Scenario::Overflow { rounds as u64 } else { 0 });
    ExitCode::SUCCESS
}
