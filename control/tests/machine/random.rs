//! Random inputs to the machine, its reference model and the oracle at once.
//!
//! Operations carry small numbers that are read against the present state (the third open lease, the second
//! connection), so that most inputs mean something, and every prefix and subsequence of a failing run is a run.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use control::{
    Machine,
    config::{Capabilities, Group, Member, NodePolicy, PoolConfig, ProviderPolicy, Route},
    effect::{Effect, RegistrationRefusal},
    input::{Admit, Avoided, CommandId, ConnectionId, Input, LeaseId, RequestId},
};
use proptest::prelude::*;
use proto::message::{ErrorKind, ExecutionError, ExecutionFailure};
use sim::{Reference, World, oracle::Stage};

use crate::script::{failure, pairs};

/// One step of a random run.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Register {
        node: u8,
        reuse: Option<u8>,
        flaw: u8,
    },
    Ready {
        connection: u8,
        flaw: u8,
    },
    Drain {
        connection: u8,
    },
    Close {
        connection: u8,
    },
    Admit {
        group: u8,
        needs: u8,
        long: bool,
        /// Of which provider, and whether it is permitted without an alternate.
        avoid: Vec<(u8, bool)>,
    },
    Withdraw {
        request: u8,
    },
    HolderGone {
        lease: u8,
        sent: bool,
    },
    NotSent {
        lease: u8,
    },
    Terminal {
        lease: u8,
        error: u8,
        stray: u8,
    },
    Stall {
        lease: u8,
        health: u8,
        sequence: u8,
        flaw: u8,
    },
    Answer {
        probe: u8,
        status: u8,
        sequence: u8,
        flaw: u8,
    },
    Configure {
        index: u8,
    },
    Wait {
        millis: u16,
    },
    /// Until the next timeout.
    Due,
}

impl Op {
    /// For how long it lets time pass.
    pub(crate) fn waits(&self, world: &World) -> Option<Duration> {
        match self {
            Self::Wait { millis } => Some(Duration::from_millis(u64::from(*millis))),
            Self::Due => Some(world.machine.poll_timeout()?.since(world.now)),
            _ => None,
        }
    }
}

fn op() -> impl Strategy<Value = Op> {
    let byte = any::<u8>;
    let avoid =
        || prop_oneof![6 => Just(vec![]), 4 => proptest::collection::vec((0..5_u8, any::<bool>()), 0..=4)];
    prop_oneof![
        2 => (0..4_u8, proptest::option::weighted(0.1, byte()), 0..12_u8)
            .prop_map(|(node, reuse, flaw)| Op::Register { node, reuse, flaw }),
        4 => (byte(), 0..12_u8).prop_map(|(connection, flaw)| Op::Ready { connection, flaw }),
        1 => byte().prop_map(|connection| Op::Drain { connection }),
        1 => byte().prop_map(|connection| Op::Close { connection }),
        12 => (prop_oneof![20 => 0..4_u8, 1 => Just(4), 4 => Just(5)], 0..8_u8, proptest::bool::weighted(0.3), avoid()).prop_map(
            |(group, needs, long, avoid)| Op::Admit { group, needs, long, avoid }
        ),
        1 => byte().prop_map(|request| Op::Withdraw { request }),
        5 => (byte(), any::<bool>()).prop_map(|(lease, sent)| Op::HolderGone { lease, sent }),
        2 => byte().prop_map(|lease| Op::NotSent { lease }),
        9 => (byte(), 0..4_u8, 0..8_u8).prop_map(|(lease, error, stray)| Op::Terminal { lease, error, stray }),
        7 => (byte(), 0..7_u8, 0..6_u8, 0..24_u8)
            .prop_map(|(lease, health, sequence, flaw)| Op::Stall { lease, health, sequence, flaw }),
        6 => (byte(), 0..5_u8, 0..6_u8, 0..24_u8)
            .prop_map(|(probe, status, sequence, flaw)| Op::Answer { probe, status, sequence, flaw }),
        1 => (0..3_u8).prop_map(|index| Op::Configure { index }),
        3 => Just(Op::Due),
        3 => prop_oneof![9 => 0..9000_u16, 1 => 0..62_000_u16].prop_map(|millis| Op::Wait { millis }),
    ]
}

/// A run: mostly connected Nodes at first, then anything.
pub(crate) fn run(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(), len).prop_map(|ops| {
        let register = (0..3).map(|node| Op::Register { node, reuse: None, flaw: 9 });
        let ready = (0..3).map(|connection| Op::Ready { connection, flaw: 9 });
        register.chain(ready).chain(ops).collect()
    })
}

/// Provider ids are shared by all configurations of a run, so that a reload finds some again, on the same Node or on
/// another one.
pub(crate) fn config() -> impl Strategy<Value = Arc<PoolConfig>> {
    let provider =
        (0..4_usize, any::<bool>(), 1..4_u32, 0..4_u32, 0..2_u32, prop_oneof![Just(1_u32), Just(3)]);
    let providers = proptest::collection::vec(provider, 5);
    let groups = proptest::collection::vec(1..32_u8, 4);
    let timeout = proptest::option::weighted(0.8, 1..20_u64);
    (providers, groups, 0..6_usize, timeout, 1..1000_u64).prop_map(
        |(providers, groups, queue_max, timeout, generation)| {
            let adapters = |node: u64| {
                let first = (generation >> node) & 1 == 0;
                let second = generation % 3 != node;
                let named = [(first, "x0"), (second, "x1")].into_iter().filter(|(has, _)| *has);
                named.map(|(_, adapter)| adapter.into()).collect()
            };
            let node = |node| NodePolicy {
                id: format!("n{node}").into(),
                providers: Vec::new(),
                adapters: adapters(node),
            };
            let mut nodes: Vec<NodePolicy> = (0..3).map(node).collect();
            for (index, (node, off, capacity, long, priority, capabilities)) in
                providers.into_iter().enumerate()
            {
                // The fourth Node does not exist: its providers are named by groups and not configured.
                let Some(node) = nodes.get_mut(node) else { continue };
                node.providers.push(ProviderPolicy {
                    id: format!("p{index}").into(),
                    adapter: "a".into(),
                    enabled: !off || index < 3,
                    capacity,
                    long_capacity: long.min(capacity),
                    priority,
                    capabilities: Capabilities(capabilities),
                    stall_timeout: Duration::from_secs(index as u64),
                    request_timeout: Duration::from_secs(600),
                });
            }
            nodes.retain(|node| node.id.as_ref() != "n2" || generation % 2 == 0);
            // Providers with the same adapter and target cannot be told apart by evidence.
            let target = |group: usize, p: usize| match generation % 3 {
                0 => format!("m{group}"),
                1 => format!("m{}@p{p}", group / 2),
                _ => format!("m{group}@p{p}"),
            };
            let member = |group: usize, p: usize| Member {
                provider: format!("p{p}").into(),
                target: target(group, p).into(),
            };
            let groups = groups.into_iter().enumerate().map(|(group, bits)| Group {
                id: format!("m{group}").into(),
                members: (0..5).filter(|p| bits & (1 << p) != 0).map(|p| member(group, p)).collect(),
            });
            let groups = groups.skip(usize::from(generation % 5 == 0)).collect();
            let queue_timeout = timeout.map(Duration::from_secs);
            // A model that is a group in another configuration, or in this one, and one that never is.
            let route = |(model, adapter): (&str, &str)| Route {
                model: model.into(),
                adapter: adapter.into(),
                target: format!("{model}-{generation}").into(),
                provider: "direct".into(),
                stall_timeout: Duration::ZERO,
                request_timeout: Duration::from_secs(generation),
            };
            let routes = [("m0", "x0"), ("m5", "x1"), ("m5", "x0")].map(route);
            let routes = routes[..2 + usize::from(generation % 2 == 0)].to_vec();
            Arc::new(PoolConfig { generation, queue_max, queue_timeout, nodes, groups, routes })
        },
    )
}

/// Turns operations into inputs; remembers what connections and requests exist.
pub(crate) struct Reader {
    configs: Vec<Arc<PoolConfig>>,
    connections: Vec<(ConnectionId, Arc<str>)>,
    requests: u64,
    sequence: u64,
    observed: u64,
}

impl Reader {
    pub(crate) fn new(configs: &[Arc<PoolConfig>]) -> Self {
        Self { configs: configs.to_vec(), connections: Vec::new(), requests: 0, sequence: 0, observed: 0 }
    }

    /// `None` when the operation means nothing now, or is a wait.
    pub(crate) fn read(&mut self, op: &Op, world: &World) -> Option<Input> {
        let held: Vec<LeaseId> = world.oracle.leases.keys().copied().collect();
        let pick = |list: &[LeaseId], at: u8| (!list.is_empty()).then(|| list[usize::from(at) % list.len()]);
        Some(match *op {
            Op::Register { node, reuse, flaw } => {
                let name: Arc<str> = format!("n{node}").into();
                let connection = match reuse.and_then(|at| self.connection(at)) {
                    Some((connection, _)) => connection,
                    None => {
                        let connection = ConnectionId(self.connections.len() as u64 + 1);
                        self.connections.push((connection, name.clone()));
                        connection
                    }
                };
                let claimed = if flaw == 0 { "n0".into() } else { name.clone() };
                Input::Register { connection, certified: name, claimed, token_ok: flaw != 1 }
            }
            Op::Ready { connection, flaw } => {
                let (connection, name) = self.connection(connection)?;
                Input::Ready { connection, claimed: if flaw == 0 { "n0".into() } else { name } }
            }
            Op::Drain { connection } => Input::Draining { connection: self.connection(connection)?.0 },
            Op::Close { connection } => {
                Input::ConnectionClosed { connection: self.connection(connection)?.0 }
            }
            Op::Admit { group, needs, long, ref avoid } => {
                self.requests += 1;
                Input::Admit(Admit {
                    request: RequestId(self.requests),
                    group: format!("m{group}").into(),
                    needs: Capabilities(if needs == 3 { 3 } else { u32::from(needs & 1) }),
                    long,
                    avoid: avoid
                        .iter()
                        .map(|&(p, allow_fallback)| Avoided {
                            provider: format!("p{p}").into(),
                            allow_fallback,
                        })
                        .collect(),
                })
            }
            Op::Withdraw { request } => {
                Input::Withdraw { request: RequestId(self.requests.checked_sub(u64::from(request) % 8)?) }
            }
            Op::HolderGone { lease, sent } => Input::HolderGone { lease: pick(&held, lease)?, sent },
            Op::NotSent { lease } => Input::NotSent { lease: pick(&held, lease)? },
            Op::Terminal { lease, error, stray } => {
                let lease = pick(&held, lease)?;
                let connection = match stray {
                    0 => ConnectionId(world.oracle.leases[&lease].connection.0 + 1),
                    _ => world.oracle.leases[&lease].connection,
                };
                let lease = if stray == 1 { LeaseId(lease.0 + 1000) } else { lease };
                let error = match error {
                    0 => None,
                    1 => Some(failure(ErrorKind::Connect)),
                    _ => Some(failure(ErrorKind::Busy)),
                };
                self.sequence += 1;
                // A busy Node has sent nothing before; one in eight lies.
                let is_busy = error.as_ref().is_some_and(|error| error.kind == ErrorKind::Busy);
                let sequence = if is_busy && !self.sequence.is_multiple_of(8) { 0 } else { self.sequence };
                Input::Terminal { connection, lease, error, sequence }
            }
            Op::Stall { lease, health, sequence, flaw } => {
                // An old observation is of interest where one was applied.
                let old: Vec<_> = if sequence < 3 { Vec::new() } else { on_overlaid(world) };
                let lease = pick(&old, lease).or_else(|| pick(&held, lease))?;
                let held = &world.oracle.leases[&lease];
                let connection = ConnectionId(held.connection.0 + u64::from(flaw == 0));
                let (health, classification) = match health {
                    0 => ("available", "request_stalled"),
                    1 => ("unknown", "health_unknown"),
                    _ => ("unavailable", "provider_unhealthy"),
                };
                let observed = self.observation(sequence);
                let mut metadata = pairs(&[
                    ("provider_health", health),
                    ("liveness_classification", classification),
                    ("adapter", &held.adapter),
                    ("target", &held.target),
                    ("health_observation_seq", &observed),
                ]);
                spoil(&mut metadata, flaw);
                let failure_code = if flaw == 1 { "other" } else { "response_stalled" }.to_owned();
                let kind = if flaw == 2 { ErrorKind::Busy } else { ErrorKind::Stalled };
                let failure = Some(ExecutionFailure { failure_code, retryable: true, metadata });
                let error = Some(ExecutionError { kind, message: String::new(), failure });
                Input::Terminal { connection, lease, error, sequence: u64::from(flaw % 2) }
            }
            Op::Answer { probe, status, sequence, flaw } => {
                self.answer(world, probe, status, sequence, flaw)?
            }
            Op::Configure { index } => Input::Configure(self.configs[usize::from(index)].clone()),
            Op::Wait { .. } | Op::Due => return None,
        })
    }

    /// An answer to one of the latest probes.
    fn answer(&mut self, world: &World, probe: u8, status: u8, sequence: u8, flaw: u8) -> Option<Input> {
        let probes = &world.oracle.probes;
        let latest = probes.len().checked_sub(1 + usize::from(probe) % 3)?;
        let probe = probes[latest].clone();
        let connection = ConnectionId(probe.connection.0 + u64::from(flaw == 0));
        let command = CommandId(probe.command.0 + u64::from(flaw == 1));
        let observed = self.observation(sequence);
        let mut fields = pairs(&[
            ("adapter_key", &probe.adapter),
            ("target", &probe.target),
            ("provider_status", ["unavailable", "unknown", "available"][usize::from(status).min(2)]),
            ("health_observation_seq", &observed),
        ]);
        spoil(&mut fields, flaw);
        let result = if matches!(flaw, 2 | 12 | 13) { Err("no".to_owned()) } else { Ok(fields) };
        Some(Input::CommandAnswered { connection, command, result })
    }

    /// A new observation's number, or an older one.
    fn observation(&mut self, sequence: u8) -> String {
        self.observed += 1;
        let back = [0, 0, 0, 1, 4, self.observed - 1][usize::from(sequence) % 6];
        self.observed.saturating_sub(back).to_string()
    }

    /// One of the latest connections.
    fn connection(&self, at: u8) -> Option<(ConnectionId, Arc<str>)> {
        let recent = &self.connections[self.connections.len().saturating_sub(6)..];
        (!recent.is_empty()).then(|| recent[usize::from(at) % recent.len()].clone())
    }
}

/// Open leases of providers that are taken out.
fn on_overlaid(world: &World) -> Vec<LeaseId> {
    let leases = world.oracle.leases.iter().filter(|(_, held)| held.open);
    let overlaid = leases.filter(|(_, held)| world.oracle.is_overlaid(held));
    overlaid.map(|(&lease, _)| lease).collect()
}

/// Breaks one field, for some of the flaws.
fn spoil(fields: &mut BTreeMap<String, String>, flaw: u8) {
    let Some(key) = fields.keys().nth(usize::from(flaw).wrapping_sub(3)).cloned() else { return };
    if flaw.is_multiple_of(2) {
        fields.remove(&key);
    } else {
        fields.insert(key, "0x".to_owned());
    }
}

/// Whether the input speaks of something that is over, unknown or not its sender's (I7).
fn is_stale(input: &Input, world: &World) -> bool {
    match input {
        Input::Terminal { connection, lease, .. } => {
            let held = world.oracle.leases.get(lease);
            held.is_none_or(|held| !held.open || held.connection != *connection)
        }
        Input::NotSent { lease } => world.oracle.leases.get(lease).is_none_or(|held| {
            !held.open && world.oracle.requests[&held.request].stage != Stage::Lost(*lease)
        }),
        Input::Draining { connection } => !world.oracle.takes_runs(*connection),
        Input::HolderGone { lease, .. } => world.oracle.leases.get(lease).is_none_or(|held| !held.holder),
        _ => false,
    }
}

/// Whether the input was refused as a whole (I7).
fn is_refused(effects: &[Effect]) -> bool {
    matches!(
        effects,
        [Effect::Registration { outcome: Err(_), .. } | Effect::Readiness { outcome: Err(_), .. }]
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    // req: POL-2, POL-6, POL-8, POL-9, FEN-2, FEN-3, HND-1, HND-2, REG-8, GAT-2
    #[test]
    fn the_machine_does_what_the_reference_model_does(
        configs in proptest::collection::vec(config(), 3),
        ops in run(1..120),
    ) {
        let mut world = World::new(&configs[0]);
        let mut model = Reference::new(configs[0].clone());
        let mut reader = Reader::new(&configs);
        for op in &ops {
            if let Some(by) = op.waits(&world) {
                let end = world.now.after(by);
                let effects = world.wait(by);
                let mut expected = Vec::new();
                while let Some(at) = model.next_timeout().filter(|&at| at <= end) {
                    expected.extend(model.handle_timeout(at));
                }
                prop_assert_eq!(effects, expected);
            } else if let Some(input) = reader.read(op, &world) {
                let before = (world.snapshot(), world.machine.poll_timeout());
                let stale_before = is_stale(&input, &world);
                let stale_inputs = world.machine.counters().stale_inputs;
                let effects = world.tell(input.clone());
                prop_assert_eq!(&effects, &model.handle(world.now, input.clone()), "{:?}", input);
                let is_idle_answer = matches!(input, Input::CommandAnswered { .. }) && effects.is_empty();
                if stale_before || is_refused(&effects) || is_idle_answer {
                    prop_assert_eq!(before, (world.snapshot(), world.machine.poll_timeout()), "I7: {:?}", input);
                }
                prop_assert!(!stale_before || world.machine.counters().stale_inputs == stale_inputs + 1);
            }
            prop_assert_eq!(world.machine.poll_timeout(), model.next_timeout());
        }
    }

    #[test]
    fn a_late_driver_delays_effects_and_changes_none(
        configs in proptest::collection::vec(config(), 3),
        ops in run(1..60),
    ) {
        // The world only tells the reader what exists; it is as late as the machine under test.
        let mut world = World::new(&configs[0]);
        let mut late = Machine::new(configs[0].clone());
        let mut reader = Reader::new(&configs);
        for op in &ops {
            if let Some(by) = op.waits(&world) {
                world.now = world.now.after(by);
            } else if let Some(input) = reader.read(op, &world) {
                let mut expected = world.timeout();
                expected.extend(world.tell(input.clone()));
                late.handle(world.now, input);
                let effects: Vec<_> = std::iter::from_fn(|| late.poll_effect()).collect();
                prop_assert_eq!(effects, expected);
            }
        }
    }
}

/// More by `PROPTEST_CASES`; a debug build does a thousand in a few seconds.
pub(crate) fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400)
}

/// The generators must reach what they are meant to test.
#[test]
fn random_runs_reach_every_outcome() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut total = [0_u64; 30];
    let mut refusals = Vec::new();
    for _ in 0..250 {
        let configs = proptest::collection::vec(config(), 3).new_tree(&mut runner).unwrap().current();
        let ops = run(120..121).new_tree(&mut runner).unwrap().current();
        let mut world = World::new(&configs[0]);
        let mut reader = Reader::new(&configs);
        for op in &ops {
            let effects = match (op.waits(&world), reader.read(op, &world)) {
                (Some(by), _) => world.wait(by),
                (_, Some(input)) => world.tell(input),
                (_, None) => Vec::new(),
            };
            refusals.extend(effects.iter().filter_map(|effect| match effect {
                Effect::Registration { outcome: Err(refusal), .. } => Some(*refusal),
                _ => None,
            }));
        }
        let c = world.machine.counters();
        let reached = [
            c.ready,
            c.ready_timeouts,
            c.superseded,
            c.draining,
            c.leases_fenced,
            c.granted,
            c.cancelled,
            c.cancel_bound_reached,
            c.failed,
            c.requeued,
            c.refused_unknown_model,
            c.refused_unservable,
            c.refused_busy,
            c.queue_full,
            c.queue_timeouts,
            c.withdrawn,
            c.stale_inputs,
            c.direct_granted,
            c.direct_returned,
            c.refused_no_node,
            c.handoffs,
            c.evidence_rejected,
            c.evidence_stale,
            c.overlays_lowered,
            c.overlays_dropped,
            c.probes.sent,
            c.probes.rejected,
            c.probes.failed,
            c.probes.stray,
            c.probes.unavailable + c.probes.cleared,
        ];
        total.iter_mut().zip(reached).for_each(|(sum, reached)| *sum += reached);
    }
    assert!(total.iter().all(|&sum| sum >= 5), "{total:?}");
    for refusal in [
        RegistrationRefusal::IdentityMismatch,
        RegistrationRefusal::UnknownNode,
        RegistrationRefusal::BadToken,
        RegistrationRefusal::AlreadyRegistered,
        RegistrationRefusal::Stale,
    ] {
        assert!(refusals.contains(&refusal), "{refusal:?}");
    }
}
