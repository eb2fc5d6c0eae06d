//! Scenario tables: one input and the effects it must have, a line.
//!
//! ```text
//! register c1 n1          => accepted c1
//! ready c1 n1             => ready c1, connected n1 g1
//! admit r1 m              => grant r1 l1 p1
//! ```
//!
//! | Input | Meaning |
//! |---|---|
//! | `register cN NODE [as NAME] [badtoken]` | the certificate says NODE, the claim NAME |
//! | `ready cN NODE`, `drain cN`, `close cN` | |
//! | `admit rN GROUP [long] [needs=BITS] [avoid=PROVIDER[+],…] [fallback]`, `withdraw rN` | `+`: this one is permitted without an alternate; `fallback`: each is |
//! | `gone lN sent`, `gone lN unsent`, `notsent lN` | |
//! | `end lN cN`, `busy lN cN`, `fail lN cN` | terminals; their sequence number is 9 |
//! | `stall lN cN HEALTH SEQ PROVIDER GROUP` | a terminal with evidence of a stall; adapter and target are those of the named ones |
//! | `answer kN cN STATUS SEQ PROVIDER GROUP`, `answer kN cN error` | to a probe |
//! | `configure I` | the I-th of the configurations given, from 0 |
//! | `wait 10s` | time passes, every timeout is handled at its moment |
//! | `show` | the snapshot |

use std::{collections::BTreeMap, sync::Arc};

use control::{
    config::{Capabilities, PoolConfig},
    effect::{Effect, ProviderHealth, ProviderStatus, Snapshot},
    input::{Admit, Avoided, CommandId, ConnectionId, Input, LeaseId, RequestId},
};
use proto::message::{ErrorKind, ExecutionError, ExecutionFailure};
use sim::world::{World, duration, pool};

/// Runs a table against a new machine with one configuration.
#[track_caller]
pub(crate) fn run(config: &str, table: &str) -> World {
    run_all(&[pool(config)], table)
}

/// Runs a table against a new machine that begins with the first configuration.
#[track_caller]
pub(crate) fn run_all(configs: &[Arc<PoolConfig>], table: &str) -> World {
    let mut world = World::new(&configs[0]);
    for (number, line) in table.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty()) {
        let (step, expected) = line.split_once("=>").unwrap_or((line, ""));
        let expected: Vec<&str> =
            expected.split(',').map(str::trim).filter(|effect| !effect.is_empty()).collect();
        let effects = step_of(&mut world, configs, step.trim());
        assert_eq!(effects, expected, "line {number}: {line}");
    }
    world
}

fn step_of(world: &mut World, configs: &[Arc<PoolConfig>], step: &str) -> Vec<String> {
    let words: Vec<&str> = step.split_whitespace().collect();
    let effects = match words[..] {
        ["wait", by] => world.wait(duration(by)),
        ["show"] => return show(&world.snapshot()),
        ["configure", index] => {
            world.tell(Input::Configure(Arc::clone(&configs[index.parse::<usize>().unwrap()])))
        }
        _ => world.tell(input(&words)),
    };
    effects.iter().filter(|effect| !matches!(effect, Effect::HealthObserved(_))).map(render).collect()
}

fn input(words: &[&str]) -> Input {
    match *words {
        ["register", c, node, ref rest @ ..] => Input::Register {
            connection: connection(c),
            certified: node.into(),
            claimed: rest.iter().skip_while(|word| **word != "as").nth(1).copied().unwrap_or(node).into(),
            token_ok: !rest.contains(&"badtoken"),
        },
        ["ready", c, node] => Input::Ready { connection: connection(c), claimed: node.into() },
        ["drain", c] => Input::Draining { connection: connection(c) },
        ["close", c] => Input::ConnectionClosed { connection: connection(c) },
        ["admit", r, group, ref rest @ ..] => Input::Admit(admit(r, group, rest)),
        ["withdraw", r] => Input::Withdraw { request: RequestId(id(r)) },
        ["gone", l, how] => Input::HolderGone { lease: lease(l), sent: how == "sent" },
        ["notsent", l] => Input::NotSent { lease: lease(l) },
        ["end", l, c] => terminal(l, c, None, 9),
        ["busy", l, c] => terminal(l, c, Some(ErrorKind::Busy), 0),
        ["busy-late", l, c] => terminal(l, c, Some(ErrorKind::Busy), 9),
        ["fail", l, c] => terminal(l, c, Some(ErrorKind::Connect), 9),
        ["stall", l, c, health, sequence, provider, group] => Input::Terminal {
            connection: connection(c),
            lease: lease(l),
            error: Some(stall(health, sequence, provider, group)),
            sequence: 9,
        },
        ["answer", k, c, ref rest @ ..] => Input::CommandAnswered {
            connection: connection(c),
            command: CommandId(id(k)),
            result: match *rest {
                ["error"] => Err("not now".to_owned()),
                [status, sequence, provider, group] => Ok(answer(status, sequence, provider, group)),
                _ => panic!("cannot read {words:?}"),
            },
        },
        _ => panic!("cannot read {words:?}"),
    }
}

/// Well-formed evidence of a stall of a run on `provider` for `group`.
pub(crate) fn stall(health: &str, sequence: &str, provider: &str, group: &str) -> ExecutionError {
    let classification = match health {
        "available" => "request_stalled",
        "unavailable" => "provider_unhealthy",
        _ => "health_unknown",
    };
    let metadata = pairs(&[
        ("provider_health", health),
        ("liveness_classification", classification),
        ("adapter", &format!("{provider}-adapter")),
        ("target", &format!("{group}@{provider}")),
        ("health_observation_seq", sequence),
        ("fence", "confirmed"),
        ("idle_ms", "300000"),
    ]);
    let failure_code = "response_stalled".to_owned();
    let failure = ExecutionFailure { failure_code, retryable: true, metadata };
    ExecutionError { kind: ErrorKind::Stalled, message: String::new(), failure: Some(failure) }
}

/// A well-formed answer to a probe of `provider` for `group`.
pub(crate) fn answer(status: &str, sequence: &str, provider: &str, group: &str) -> BTreeMap<String, String> {
    pairs(&[
        ("adapter_key", &format!("{provider}-adapter")),
        ("target", &format!("{group}@{provider}")),
        ("provider_status", status),
        ("health_observation_seq", sequence),
        ("instance_key", "whatever"),
    ])
}

pub(crate) fn pairs(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn admit(request: &str, group: &str, rest: &[&str]) -> Admit {
    let value = |key| rest.iter().find_map(|word| word.strip_prefix(key));
    Admit {
        request: RequestId(id(request)),
        group: group.into(),
        needs: Capabilities(value("needs=").map_or(0, |bits| bits.parse().unwrap())),
        long: rest.contains(&"long"),
        avoid: value("avoid=").map_or_else(Vec::new, |list| list.split(',').map(avoided(rest)).collect()),
    }
}

fn avoided(rest: &[&str]) -> impl Fn(&str) -> Avoided {
    let all = rest.contains(&"fallback");
    move |name| {
        let plain = name.trim_end_matches('+');
        Avoided { provider: plain.into(), allow_fallback: all || plain != name }
    }
}

fn terminal(l: &str, c: &str, error: Option<ErrorKind>, sequence: u64) -> Input {
    Input::Terminal { connection: connection(c), lease: lease(l), error: error.map(failure), sequence }
}

pub(crate) fn failure(kind: ErrorKind) -> ExecutionError {
    ExecutionError { kind, message: String::new(), failure: None }
}

fn connection(text: &str) -> ConnectionId {
    ConnectionId(id(text))
}

fn lease(text: &str) -> LeaseId {
    LeaseId(id(text))
}

fn id(text: &str) -> u64 {
    text[1..].parse().unwrap()
}

/// `accepted c1`, `rejected c1 UnknownNode`, `ready c1`, `unready c1 Stale`, `shut c1 Superseded`, `connected n1 g1`,
/// `down n1 g1 leases=2`, `grant r1 l1 p1 [on n1, if direct] [try2] [after 3s]`, `refuse r1 QueueFull`, `fenced r1 l1`, `failed r1 l1`,
/// `requeued r1 l1`, `lowered p1`, `cleared p1`, `probe k1 c1 p1 m@p1`.
///
/// What failed with a handoff says so: `failed r1 l1 handoff=unavailable`. Observations of health are left out of tables.
fn render(effect: &Effect) -> String {
    match effect {
        Effect::Registration { connection, outcome: Ok(()) } => format!("accepted c{}", connection.0),
        Effect::Registration { connection, outcome: Err(why) } => {
            format!("rejected c{} {why:?}", connection.0)
        }
        Effect::Readiness { connection, outcome: Ok(()) } => format!("ready c{}", connection.0),
        Effect::Readiness { connection, outcome: Err(why) } => format!("unready c{} {why:?}", connection.0),
        Effect::CloseConnection { connection, reason } => format!("shut c{} {reason:?}", connection.0),
        Effect::NodeConnected { node, generation } => format!("connected {node} g{generation}"),
        Effect::NodeFenced { node, generation, leases } => {
            format!("down {node} g{generation} leases={leases}")
        }
        Effect::Grant(grant) => {
            let mut text = format!("grant r{} l{} {}", grant.request.0, grant.lease.0, grant.provider);
            if grant.direct {
                text += &format!(" on {}", grant.node);
            }
            if grant.attempt > 1 {
                text += &format!(" try{}", grant.attempt);
            }
            if !grant.queued_for.is_zero() {
                text += &format!(" after {:?}", grant.queued_for);
            }
            text
        }
        Effect::Refuse { request, reason } => format!("refuse r{} {reason:?}", request.0),
        Effect::Fenced { lease, request } => format!("fenced r{} l{}", request.0, lease.0),
        Effect::Failed { lease, request, error, sequence, handoff } => {
            let echoed = matches!(error.kind, ErrorKind::Connect | ErrorKind::Busy | ErrorKind::Stalled);
            assert!(echoed, "echoed as received");
            assert_eq!(*sequence, 9, "echoed as received");
            let handoff = handoff.as_ref().map_or("", |handoff| match handoff.health {
                ProviderHealth::Available => " handoff=available",
                ProviderHealth::Unavailable => " handoff=unavailable",
                ProviderHealth::Unknown => " handoff=unknown",
            });
            format!("failed r{} l{}{handoff}", request.0, lease.0)
        }
        Effect::Requeued { lease, request } => format!("requeued r{} l{}", request.0, lease.0),
        Effect::HealthObserved(seen) => format!("observed {} {:?}", seen.provider, seen.verdict),
        Effect::OverlayLowered { provider, .. } => format!("lowered {provider}"),
        Effect::OverlayCleared { provider, .. } => format!("cleared {provider}"),
        Effect::Probe(probe) => {
            assert_eq!(*probe.adapter, format!("{}-adapter", probe.provider), "its adapter");
            format!("probe k{} c{} {} {}", probe.command.0, probe.connection.0, probe.provider, probe.target)
        }
        Effect::Snapshot { snapshot, .. } => show(snapshot).join("; "),
    }
}

/// `queued=0 leases=0 cancelling=0`, then `n1 up` or `n1 down`, then for each provider
/// `p1 on cap=2/1 run=1/0 wait=0/0` (all / long).
fn show(snapshot: &Snapshot) -> Vec<String> {
    let Snapshot { queued, leases, cancelling, .. } = snapshot;
    let mut lines = vec![format!("queued={queued} leases={leases} cancelling={cancelling}")];
    for node in &snapshot.nodes {
        lines.push(format!("{} {}", node.id, if node.connected { "up" } else { "down" }));
        for p in &node.providers {
            let status = match p.status {
                ProviderStatus::Available => "on",
                ProviderStatus::Offline => "offline",
                ProviderStatus::Disabled => "disabled",
                ProviderStatus::Unavailable => "out",
            };
            lines.push(format!(
                "{} {status} cap={}/{} run={}/{} wait={}/{}",
                p.id, p.capacity, p.long_capacity, p.in_flight, p.long_in_flight, p.queued, p.long_queued
            ));
        }
    }
    lines
}
