//! The cost of an event does not grow with the number of waiting requests or of providers.
//!
//! Measured as work done, not as time: [`Counters::candidates_examined`](control::Counters) counts every candidate
//! set the selection looks at. Ordered sets cost the logarithm of their size on top.

use std::{fmt::Write, ops::RangeInclusive};

use control::{
    Machine,
    config::Capabilities,
    effect::Effect,
    input::{Admit, Avoided, ConnectionId, Input, LeaseId, Moment, RequestId},
};
use sim::world::pool;

const NODES: usize = 50;
const PROVIDERS: usize = 500;
const WAITERS: u64 = 10_000;

/// Two groups over all providers, which have three capability sets; every provider is taken, and waiters of many
/// kinds stand in line.
struct Crowd {
    machine: Machine,
    now: Moment,
    next_request: u64,
    running: Vec<(LeaseId, ConnectionId)>,
}

impl Crowd {
    fn new(providers: usize, waiters: u64) -> Self {
        let mut text = format!("queue {} none\n", waiters + 1);
        for node in 0..NODES {
            write!(text, "node n{node}").unwrap();
            (node..providers).step_by(NODES).for_each(|p| write!(text, " p{p}:needs={}", 1 + p % 3).unwrap());
            text += "\n";
        }
        for group in ["a", "b"] {
            write!(text, "group {group}").unwrap();
            (0..providers).for_each(|p| write!(text, " p{p}").unwrap());
            text += "\n";
        }
        let mut crowd =
            Self { machine: Machine::new(pool(&text)), now: Moment(0), next_request: 0, running: vec![] };
        for node in 0..NODES {
            let (connection, name) = (ConnectionId(node as u64), format!("n{node}"));
            let (certified, claimed) = (name.as_str().into(), name.as_str().into());
            crowd.tell(Input::Register { connection, certified, claimed, token_ok: true });
            crowd.tell(Input::Ready { connection, claimed: name.as_str().into() });
        }
        (0..providers as u64 + waiters).for_each(|_| crowd.admit());
        assert_eq!(crowd.running.len(), providers);
        crowd
    }

    fn admit(&mut self) {
        let id = self.next_request;
        self.next_request += 1;
        let every = |n| id.is_multiple_of(n);
        let avoided = every(7).then(|| Avoided {
            provider: format!("p{}", id % PROVIDERS as u64).as_str().into(),
            allow_fallback: every(14),
        });
        self.tell(Input::Admit(Admit {
            request: RequestId(id),
            group: if every(2) { "a".into() } else { "b".into() },
            needs: Capabilities(u32::from(every(5))),
            long: every(3),
            avoid: avoided.into_iter().collect(),
        }));
    }

    /// One event; gives the candidate sets examined and the grants made.
    fn tell(&mut self, input: Input) -> (u64, u64) {
        let before = self.machine.counters().candidates_examined;
        self.machine.handle(self.now, input);
        let mut grants = 0;
        while let Some(effect) = self.machine.poll_effect() {
            if let Effect::Grant(grant) = effect {
                self.running.push((grant.lease, grant.connection));
                grants += 1;
            }
        }
        (self.machine.counters().candidates_examined - before, grants)
    }

    /// The dearest of a thousand settlements, each of which grants the oldest fitting waiter.
    fn dearest_settlement(&mut self) -> u64 {
        let settle = |crowd: &mut Self, round: usize| {
            let (lease, connection) = crowd.running.swap_remove(round * 31 % crowd.running.len());
            let (examined, grants) =
                crowd.tell(Input::Terminal { connection, lease, error: None, sequence: 0 });
            assert_eq!(grants, 1);
            crowd.tell(Input::HolderGone { lease, sent: true });
            examined
        };
        (0..1000).map(|round| settle(self, round)).max().unwrap()
    }

    fn dearest_admission(&mut self) -> u64 {
        let admit = |crowd: &mut Self| {
            let before = crowd.machine.counters().candidates_examined;
            crowd.admit();
            crowd.machine.counters().candidates_examined - before
        };
        (0..100).map(|_| admit(self)).max().unwrap()
    }
}

/// Twice two groups, each with four shapes and three capability sets, and up to three heads for a shape.
const EXAMINED: RangeInclusive<u64> = 1..=300;

#[test]
fn settlement_and_admission_cost_the_same_with_few_and_with_ten_thousand_waiters() {
    let mut small = Crowd::new(100, 2_000);
    let mut large = Crowd::new(PROVIDERS, WAITERS);
    let (few, many) = (small.dearest_settlement(), large.dearest_settlement());
    assert!(EXAMINED.contains(&many) && many <= few + 20, "settlement: {few} grew to {many}");
    let (few, many) = (small.dearest_admission(), large.dearest_admission());
    assert!(EXAMINED.contains(&many) && many <= few + 20, "admission: {few} grew to {many}");
    assert_eq!(large.machine.audit(), Ok(()));
}

#[test]
fn fencing_costs_what_it_returns() {
    let mut crowd = Crowd::new(PROVIDERS, WAITERS);
    let leases = crowd.running.iter().filter(|(_, connection)| connection.0 == 7).count() as u64;
    let (examined, grants) = crowd.tell(Input::ConnectionClosed { connection: ConnectionId(7) });
    assert_eq!((leases, grants), (PROVIDERS as u64 / NODES as u64, 0));
    assert!(examined <= EXAMINED.end() * leases, "{examined} for {leases} leases");
}
