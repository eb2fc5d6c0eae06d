//! Health evidence, the overlay, and the probes that end it.

use std::{collections::BTreeMap, time::Duration};

use control::{
    effect::{Effect, Handoff, HealthObservation, HealthVerdict, ProviderHealth, ProviderStatus},
    input::{CommandId, ConnectionId, Input, LeaseId, Moment},
};
use proto::message::{ErrorKind, ExecutionError};
use sim::{
    World,
    world::{duration, pool},
};

use crate::script::{answer, failure, pairs, run, run_all, stall};

const CONNECTED: &str = "
    register c1 n1 => accepted c1
    ready c1 n1    => ready c1, connected n1 g1
    register c2 n2 => accepted c2
    ready c2 n2    => ready c2, connected n2 g2
";

const TWO_NODES: &str = "
    node n1 p1:cap=3
    node n2 p2
    group m p1 p2
    group one p1
    group two p2
";

/// `p1` is taken out by observation 5, `r1` waits for it.
const LOWERED: &str = "
    register c1 n1                   => accepted c1
    ready c1 n1                      => ready c1, connected n1 g1
    admit r9 one                     => grant r9 l1 p1
    stall l1 c1 unavailable 5 p1 one => lowered p1, failed r9 l1 handoff=unavailable
    gone l1 sent                     =>
    admit r1 one                     =>
";

// req: HND-3, HND-4, HND-6, POL-6
#[test]
fn a_fresh_unavailable_takes_exactly_that_provider_out() {
    let world = run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 one                     => grant r1 l1 p1
            admit r2 one                     => grant r2 l2 p1
            admit r3 two                     => grant r3 l3 p2
            stall l1 c1 unavailable 1 p1 one => lowered p1, failed r1 l1 handoff=unavailable
            show                             => queued=0 leases=3 cancelling=0, n1 up, p1 out cap=0/0 run=0/0 wait=0/0, n2 up, p2 on cap=1/1 run=1/0 wait=0/0
            admit r4 m                       =>
            admit r5 one                     =>
            end l3 c2                        => grant r4 l4 p2
            end l2 c1                        =>
            show                             => queued=1 leases=4 cancelling=0, n1 up, p1 out cap=0/0 run=0/0 wait=0/0, n2 up, p2 on cap=1/1 run=1/0 wait=0/0
            "
        ),
    );
    let counters = world.machine.counters();
    assert_eq!((counters.handoffs, counters.overlays_lowered), (1, 1));
}

// req: HND-3
#[test]
fn every_validated_stall_is_handed_off_whatever_its_health_and_however_old() {
    let world = run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 one                     => grant r1 l1 p1
            admit r2 one                     => grant r2 l2 p1
            admit r3 one                     => grant r3 l3 p1
            stall l1 c1 available 9 p1 one   => failed r1 l1 handoff=available
            stall l2 c1 unknown 10 p1 one    => failed r2 l2 handoff=unknown
            stall l3 c1 unavailable 4 p1 one => lowered p1, failed r3 l3 handoff=unavailable
            "
        ),
    );
    let counters = world.machine.counters();
    assert_eq!((counters.handoffs, counters.evidence_rejected, counters.evidence_stale), (3, 0, 0));
}

// req: HND-3, HND-4
#[test]
fn an_older_or_repeated_observation_lowers_nothing_and_is_handed_off() {
    let world = run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 one                     => grant r1 l1 p1
            admit r2 one                     => grant r2 l2 p1
            admit r3 one                     => grant r3 l3 p1
            stall l1 c1 unavailable 7 p1 one => lowered p1, failed r1 l1 handoff=unavailable
            wait 5s                          => probe k1 c1 p1 one@p1
            answer k1 c1 available 8 p1 one  => cleared p1
            stall l2 c1 unavailable 8 p1 one => failed r2 l2 handoff=unavailable
            stall l3 c1 unavailable 6 p1 one => failed r3 l3 handoff=unavailable
            admit r4 one                     => grant r4 l4 p1
            stall l4 c1 unavailable 9 p1 one => lowered p1, failed r4 l4 handoff=unavailable
            "
        ),
    );
    let counters = world.machine.counters();
    assert_eq!((counters.handoffs, counters.evidence_stale, counters.overlays_lowered), (4, 2, 2));
}

fn observation(provider: &str, health: Option<ProviderHealth>, verdict: HealthVerdict) -> HealthObservation {
    HealthObservation { node: "n1".into(), provider: provider.into(), health, verdict }
}

// req: OBS-2
#[test]
fn each_piece_of_evidence_is_told_of_with_what_came_of_it_whether_anybody_waits_or_not() {
    use HealthVerdict::{Cleared, Lowered, Rejected, Repeated, Stale, Unchanged};
    use ProviderHealth::{Available, Unavailable, Unknown};
    let mut world = run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 one => grant r1 l1 p1
            admit r2 one => grant r2 l2 p1
            admit r3 one => grant r3 l3 p1
            gone l3 sent =>
            "
        ),
    );
    let mut told = |lease: u64, error: ExecutionError| {
        let lease = LeaseId(lease);
        let connection = ConnectionId(1);
        let effects = world.tell(Input::Terminal { connection, lease, error: Some(error), sequence: 9 });
        let seen = effects.iter().filter_map(|effect| match effect {
            Effect::HealthObserved(seen) => Some(seen.clone()),
            _ => None,
        });
        let seen: Vec<_> = seen.collect();
        (seen, effects.iter().any(|effect| matches!(effect, Effect::Failed { .. })))
    };
    let unavailable = |sequence| stall("unavailable", sequence, "p1", "one");
    let of = |health, verdict| vec![observation("p1", health, verdict)];
    assert_eq!(told(1, unavailable("4")), (of(Some(Unavailable), Lowered), true));
    assert_eq!(told(2, unavailable("6")), (of(Some(Unavailable), Repeated), true));
    // Its caller left, and what was seen was seen.
    assert_eq!(told(3, unavailable("5")), (of(Some(Unavailable), Stale), false));
    assert_eq!(told(3, unavailable("7")), (vec![], false), "a second terminal says nothing");

    world.wait(duration("5s"));
    let (connection, command) = (ConnectionId(1), CommandId(1));
    let result = Ok(answer("available", "8", "p1", "one"));
    let effects = world.tell(Input::CommandAnswered { connection, command, result });
    let cleared = Effect::HealthObserved(observation("p1", Some(Available), Cleared));
    assert!(matches!(effects[0], Effect::OverlayCleared { .. }) && effects[1] == cleared, "{effects:?}");

    for (error, expected) in [
        (stall("available", "9", "p1", "one"), of(Some(Available), Unchanged)),
        (stall("unknown", "9", "p1", "one"), of(Some(Unknown), Unchanged)),
        (stall("unavailable", "9", "p2", "one"), of(None, Rejected)),
        (failure(ErrorKind::Connect), vec![]),
    ] {
        let (effects, _) = end_with(error);
        let seen = effects.into_iter().filter_map(|effect| match effect {
            Effect::HealthObserved(seen) => Some(seen),
            _ => None,
        });
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }
}

/// Breaks evidence.
type Spoil = dyn Fn(&mut ExecutionError);

/// Runs one lease to a terminal with this error; gives the effects and the machine.
fn end_with(error: ExecutionError) -> (Vec<Effect>, World) {
    let mut world = run(TWO_NODES, &format!("{CONNECTED}\n admit r1 one => grant r1 l1 p1"));
    let (connection, lease) = (ConnectionId(1), LeaseId(1));
    let effects = world.tell(Input::Terminal { connection, lease, error: Some(error), sequence: 9 });
    (effects, world)
}

// req: HND-2, HND-3, HND-4
#[test]
fn evidence_that_does_not_fit_is_not_believed_and_the_slot_comes_back_all_the_same() {
    let spoilt: [(&str, &Spoil); 26] = [
        ("no failure", &|e| e.failure = None),
        ("another kind", &|e| e.kind = ErrorKind::Connect),
        ("another code", &|e| e.failure.as_mut().unwrap().failure_code = "stalled".to_owned()),
        ("no code", &|e| e.failure.as_mut().unwrap().failure_code.clear()),
        ("no adapter", &|e| drop(fields(e).remove("adapter"))),
        ("empty adapter", &|e| set(e, "adapter", "")),
        ("another adapter", &|e| set(e, "adapter", "p2-adapter")),
        ("no target", &|e| drop(fields(e).remove("target"))),
        ("another target", &|e| set(e, "target", "m@p1")),
        ("a target in other letters", &|e| set(e, "target", "ONE@p1")),
        ("no health", &|e| drop(fields(e).remove("provider_health"))),
        ("an unknown health", &|e| set(e, "provider_health", "down")),
        ("no classification", &|e| drop(fields(e).remove("liveness_classification"))),
        ("a pair that is none", &|e| set(e, "liveness_classification", "request_stalled")),
        ("another pair that is none", &|e| set(e, "provider_health", "available")),
        ("a third pair that is none", &|e| set(e, "provider_health", "unknown")),
        ("no sequence", &|e| drop(fields(e).remove("health_observation_seq"))),
        ("sequence zero", &|e| set(e, "health_observation_seq", "0")),
        ("a sign", &|e| set(e, "health_observation_seq", "+3")),
        ("negative", &|e| set(e, "health_observation_seq", "-3")),
        ("a leading zero", &|e| set(e, "health_observation_seq", "03")),
        ("a space", &|e| set(e, "health_observation_seq", " 3")),
        ("no number", &|e| set(e, "health_observation_seq", "three")),
        ("nothing", &|e| set(e, "health_observation_seq", "")),
        ("a fraction", &|e| set(e, "health_observation_seq", "3.0")),
        ("over 64 bits", &|e| set(e, "health_observation_seq", "18446744073709551616")),
    ];
    for (what, spoil) in spoilt {
        let mut error = stall("unavailable", "3", "p1", "one");
        spoil(&mut error);
        let (effects, mut world) = end_with(error);
        let [Effect::HealthObserved(seen), Effect::Failed { handoff: None, .. }] = &effects[..] else {
            panic!("{what}: {effects:?}")
        };
        let expected = observation("p1", None, HealthVerdict::Rejected);
        assert_eq!(*seen, expected, "{what}");
        let counters = world.machine.counters();
        assert_eq!((counters.settled, counters.evidence_rejected, counters.handoffs), (1, 1, 0), "{what}");
        assert_eq!(world.snapshot().nodes[0].providers[0].status, ProviderStatus::Available, "{what}");
    }
    // The largest number there is is one.
    let (effects, _) = end_with(stall("unavailable", "18446744073709551615", "p1", "one"));
    let [
        Effect::OverlayLowered { node, provider, adapter, target },
        Effect::HealthObserved(_),
        Effect::Failed { handoff, .. },
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!([&**node, &**provider, &**adapter, &**target], ["n1", "p1", "p1-adapter", "one@p1"]);
    let expected = Handoff { provider: "p1".into(), health: ProviderHealth::Unavailable };
    assert_eq!(handoff.as_ref(), Some(&expected));
}

fn fields(error: &mut ExecutionError) -> &mut BTreeMap<String, String> {
    &mut error.failure.as_mut().unwrap().metadata
}

fn set(error: &mut ExecutionError, key: &str, value: &str) {
    fields(error).insert(key.to_owned(), value.to_owned());
}

// req: HND-3, STL-6
#[test]
fn another_failure_says_nothing_about_health() {
    let (effects, world) = end_with(failure(ErrorKind::Connect));
    assert!(matches!(effects[..], [Effect::Failed { handoff: None, .. }]), "{effects:?}");
    assert_eq!(world.machine.counters().evidence_rejected, 0);
}

// req: HND-1, HND-2
#[test]
fn where_evidence_was_received_counts_and_nothing_it_says_of_itself() {
    let mut world = run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 one                       => grant r1 l1 p1
            stall l1 c2 unavailable 3 p1 one   =>
            stall l99 c1 unavailable 3 p1 one  =>
            show                               => queued=0 leases=1 cancelling=0, n1 up, p1 on cap=3/3 run=1/0 wait=0/0, n2 up, p2 on cap=1/1 run=0/0 wait=0/0
            "
        ),
    );
    let mut error = stall("available", "3", "p1", "one");
    for (key, value) in [("node_id", "n2"), ("generation", "7"), ("run_id", "x"), ("provider_id", "p2")] {
        set(&mut error, key, value);
    }
    let (connection, lease) = (ConnectionId(1), LeaseId(1));
    let effects = world.tell(Input::Terminal { connection, lease, error: Some(error.clone()), sequence: 4 });
    let handoff = Some(Handoff { provider: "p1".into(), health: ProviderHealth::Available });
    let request = control::input::RequestId(1);
    let seen = observation("p1", Some(ProviderHealth::Available), HealthVerdict::Unchanged);
    let failed = Effect::Failed { lease, request, error, sequence: 4, handoff };
    assert_eq!(effects, [Effect::HealthObserved(seen), failed]);
}

// req: HND-2, HND-4
#[test]
fn a_terminal_is_evidence_once_and_also_when_nobody_waits_for_it() {
    let world = run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 one                     => grant r1 l1 p1
            gone l1 sent                     =>
            stall l1 c1 unavailable 3 p1 one => lowered p1
            stall l1 c1 unavailable 4 p1 one =>
            admit r2 one                     =>
            "
        ),
    );
    let counters = world.machine.counters();
    assert_eq!((counters.handoffs, counters.returned.cancelled, counters.stale_inputs), (1, 1, 1));
}

// req: HND-4, POL-8, POL-9
#[test]
fn lowering_looks_at_the_queue_again() {
    run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 two                     => grant r1 l1 p2
            admit r2 m avoid=p1 fallback     =>
            stall l1 c2 unavailable 1 p2 two => lowered p2, failed r1 l1 handoff=unavailable, grant r2 l2 p1
            "
        ),
    );
}

// req: CAP-2, CAP-3, CAP-4, POL-6, HND-4
#[test]
fn a_fresh_available_brings_the_provider_back_and_serves_who_waits() {
    let mut world = run(
        TWO_NODES,
        &format!(
            "{LOWERED}
            wait 5s                         => probe k1 c1 p1 one@p1
            answer k1 c1 available 6 p1 one => cleared p1, grant r1 l2 p1 after 5s
            wait 600s                       => 
            "
        ),
    );
    let probes = world.machine.counters().probes;
    assert_eq!((probes.sent, probes.cleared), (1, 1));
    assert_eq!(world.snapshot().nodes[0].providers[0].overlay, None);
}

// req: CAP-3
#[test]
fn probes_come_after_5_10_20_40_and_then_every_60_seconds() {
    let mut world = run(TWO_NODES, LOWERED);
    world.tell(Input::Withdraw { request: control::input::RequestId(1) });
    let mut at = vec![];
    for _ in 0..7 {
        let by = world.machine.poll_timeout().unwrap().since(world.now);
        let effects = world.wait(by);
        assert!(matches!(effects[..], [Effect::Probe(_)]), "{effects:?}");
        at.push(by.as_secs());
    }
    assert_eq!(at, [5, 10, 20, 40, 60, 60, 60]);
    let overlay = world.snapshot().nodes[0].providers[0].overlay.clone().unwrap();
    assert_eq!((overlay.since, overlay.probes), (Moment(0), 7));
    assert_eq!((&*overlay.adapter, &*overlay.target), ("p1-adapter", "one@p1"));
    assert_eq!(overlay.next_probe, Some(world.now.after(Duration::from_secs(60))));
}

/// After `LOWERED`, the first probe was sent: tells this answer, and that nothing came of it. Then the right answer still
/// counts.
fn answer_in_vain(
    what: &str,
    connection: u64,
    command: u64,
    result: Result<BTreeMap<String, String>, String>,
) -> control::counters::Probes {
    let mut world = run(TWO_NODES, &format!("{LOWERED} \n wait 5s => probe k1 c1 p1 one@p1"));
    let before = (world.snapshot(), world.machine.poll_timeout());
    let (connection, command) = (ConnectionId(connection), CommandId(command));
    let effects = world.tell(Input::CommandAnswered { connection, command, result });
    assert_eq!(effects, [], "{what}");
    assert_eq!((world.snapshot(), world.machine.poll_timeout()), before, "{what}");
    let probes = world.machine.counters().probes;
    let (connection, command) = (ConnectionId(1), CommandId(1));
    let result = Ok(answer("available", "6", "p1", "one"));
    let effects = world.tell(Input::CommandAnswered { connection, command, result });
    let cleared =
        matches!(effects[..], [Effect::OverlayCleared { .. }, Effect::HealthObserved(_), Effect::Grant(_)]);
    assert!(cleared, "{what}: {effects:?}");
    probes
}

// req: CAP-2
#[test]
fn an_answer_that_is_not_exactly_the_right_one_changes_nothing() {
    let right = || answer("available", "6", "p1", "one");
    let with = |key: &str, value: &str| {
        let mut fields = right();
        fields.insert(key.to_owned(), value.to_owned());
        fields
    };
    let without = |key: &str| {
        let mut fields = right();
        fields.remove(key);
        fields
    };
    // As many as a strict reader could be lenient about; `adapter` and `instance_key` are no evidence.
    let rejected = [
        ("nothing", BTreeMap::new()),
        ("no adapter key", without("adapter_key")),
        ("empty adapter key", with("adapter_key", "")),
        ("another adapter", with("adapter_key", "p2-adapter")),
        ("adapter instead of adapter key", {
            let mut fields = without("adapter_key");
            fields.extend(pairs(&[("adapter", "p1-adapter"), ("instance_key", "p1-adapter")]));
            fields
        }),
        ("no target", without("target")),
        ("another target", with("target", "m@p1")),
        ("no status", without("provider_status")),
        ("empty status", with("provider_status", "")),
        ("no such status", with("provider_status", "Available")),
        ("no sequence", without("health_observation_seq")),
        ("the sequence that lowered it", with("health_observation_seq", "5")),
        ("an older sequence", with("health_observation_seq", "4")),
        ("sequence zero", with("health_observation_seq", "0")),
        ("a malformed sequence", with("health_observation_seq", "6x")),
        ("a leading zero", with("health_observation_seq", "06")),
        ("over 64 bits", with("health_observation_seq", "99999999999999999999")),
    ];
    for (what, fields) in rejected {
        assert_eq!(answer_in_vain(what, 1, 1, Ok(fields)).rejected, 1, "{what}");
    }
    for status in ["unavailable", "unknown"] {
        // It is newer, and still not applied: the next one needs to be newer than what lowered it, nothing else.
        let probes = answer_in_vain(status, 1, 1, Ok(answer(status, "8", "p1", "one")));
        assert_eq!(probes.unavailable, 1, "{status}");
    }
    assert_eq!(answer_in_vain("an error", 1, 1, Err("not available in this release".to_owned())).failed, 1);
    assert_eq!(answer_in_vain("another connection", 2, 1, Ok(right())).stray, 1);
    assert_eq!(answer_in_vain("a command of nobody", 1, 2, Ok(right())).stray, 1);
    assert_eq!(answer_in_vain("command zero", 1, 0, Ok(right())).stray, 1);
}

// req: CAP-2, CAP-3
#[test]
fn a_newer_probe_replaces_the_older_one() {
    let world = run(
        TWO_NODES,
        &format!(
            "{LOWERED}
            wait 15s                        => probe k1 c1 p1 one@p1, probe k2 c1 p1 one@p1
            answer k1 c1 available 6 p1 one =>
            answer k2 c1 available 7 p1 one => cleared p1, grant r1 l2 p1 after 15s
            answer k2 c1 available 8 p1 one =>
            "
        ),
    );
    assert_eq!(world.machine.counters().probes.stray, 2);
}

// req: CAP-2, CAP-4
#[test]
fn two_providers_that_evidence_cannot_tell_apart_come_back_with_a_new_generation_only() {
    let mut config = (*pool("node n1 p1 p2 \n group one p1 \n group two p2")).clone();
    for policy in &mut config.nodes[0].providers {
        policy.adapter = "p1-adapter".into();
    }
    config.groups[1].members[0].target = "one@p1".into();
    let world = run_all(
        &[config.into()],
        "
        register c1 n1                   => accepted c1
        ready c1 n1                      => ready c1, connected n1 g1
        admit r1 one                     => grant r1 l1 p1
        stall l1 c1 unavailable 5 p1 one => lowered p1, failed r1 l1 handoff=unavailable
        admit r2 two                     => grant r2 l2 p2
        wait 5s                          => probe k1 c1 p1 one@p1
        answer k1 c1 available 6 p1 one  =>
        register c2 n1                   => down n1 g1 leases=1, fenced r2 l2, shut c1 Superseded, accepted c2
        ready c2 n1                      => ready c2, connected n1 g2
        admit r3 one                     => grant r3 l3 p1
        ",
    );
    let counters = world.machine.counters();
    assert_eq!((counters.probes.rejected, counters.overlays_dropped), (1, 1));
}

// req: CAP-2
#[test]
fn the_same_adapter_and_target_on_another_node_is_another_binding() {
    let mut config = (*pool("node n1 p1 \n node n2 p2 \n group one p1 p2")).clone();
    config.nodes[1].providers[0].adapter = "p1-adapter".into();
    config.groups[0].members[1].target = "one@p1".into();
    run_all(
        &[config.into()],
        &format!(
            "{CONNECTED}
            admit r1 one                     => grant r1 l1 p1
            stall l1 c1 unavailable 5 p1 one => lowered p1, failed r1 l1 handoff=unavailable
            wait 5s                          => probe k1 c1 p1 one@p1
            answer k1 c1 available 6 p1 one  => cleared p1
            "
        ),
    );
}

// req: HND-5, CAP-2
#[test]
fn a_new_generation_starts_without_overlay_and_counts_from_the_start() {
    let world = run(
        TWO_NODES,
        &format!(
            "{LOWERED}
            wait 5s                          => probe k1 c1 p1 one@p1
            register c3 n1                   => down n1 g1 leases=0, shut c1 Superseded, accepted c3
            show                             => queued=1 leases=0 cancelling=0, n1 down, p1 offline cap=0/0 run=0/0 wait=0/0, n2 down, p2 offline cap=0/0 run=0/0 wait=0/0
            answer k1 c1 available 6 p1 one  =>
            ready c3 n1                      => ready c3, connected n1 g2, grant r1 l2 p1 after 5s
            answer k1 c3 available 6 p1 one  =>
            wait 20s                         =>
            stall l2 c3 unavailable 1 p1 one => lowered p1, failed r1 l2 handoff=unavailable
            answer k1 c3 available 2 p1 one  =>
            wait 5s                          => probe k2 c3 p1 one@p1
            answer k2 c1 available 2 p1 one  =>
            answer k2 c3 available 2 p1 one  => cleared p1
            "
        ),
    );
    let counters = world.machine.counters();
    assert_eq!((counters.overlays_lowered, counters.overlays_cleared, counters.overlays_dropped), (2, 1, 1));
    assert_eq!(counters.probes.stray, 4);
}

// req: HND-5, FEN-2
#[test]
fn the_end_of_the_connection_ends_overlay_and_probes() {
    run(
        TWO_NODES,
        &format!(
            "{LOWERED}
            close c1       => down n1 g1 leases=0
            withdraw r1    =>
            wait 600s      =>
            register c3 n1 => accepted c3
            ready c3 n1    => ready c3, connected n1 g2
            admit r2 one   => grant r2 l2 p1
            "
        ),
    );
}

// req: HND-7, CAP-2, CAP-3
#[test]
fn a_draining_node_is_not_probed_and_what_it_still_answers_changes_nothing() {
    let mut world = run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r9 one                     => grant r9 l1 p1
            admit r8 one                     => grant r8 l2 p1
            admit r7 one                     => grant r7 l3 p1
            stall l1 c1 unavailable 5 p1 one => lowered p1, failed r9 l1 handoff=unavailable
            gone l1 sent                     =>
            wait 5s                          => probe k1 c1 p1 one@p1
            drain c1                         =>
            answer k1 c1 available 6 p1 one  =>
            stall l2 c1 unavailable 7 p1 one => failed r8 l2 handoff=unavailable
            gone l2 sent                     =>
            wait 600s                        =>
            show                             => queued=0 leases=1 cancelling=0, n1 down, p1 offline cap=0/0 run=0/0 wait=0/0, n2 up, p2 on cap=1/1 run=0/0 wait=0/0
            "
        ),
    );
    let overlay = world.snapshot().nodes[0].providers[0].overlay.clone().unwrap();
    assert_eq!((overlay.next_probe, overlay.probes), (None, 1));
    assert_eq!(world.machine.counters().probes.stray, 1);
}

// req: HND-4, HND-7
#[test]
fn a_provider_of_a_draining_node_is_lowered_without_a_probe() {
    run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 one                     => grant r1 l1 p1
            drain c1                         =>
            stall l1 c1 unavailable 1 p1 one => lowered p1, failed r1 l1 handoff=unavailable
            wait 600s                        =>
            close c1                         => down n1 g1 leases=0
            "
        ),
    );
}

// req: HND-7, CAP-2
#[test]
fn a_new_configuration_keeps_overlay_backoff_command_and_sequence() {
    let configs =
        [pool(TWO_NODES), pool(&format!("generation 2 \n {}", TWO_NODES.replace("cap=3", "cap=5,prio=2")))];
    run_all(
        &configs,
        &format!(
            "{LOWERED}
            wait 5s                         => probe k1 c1 p1 one@p1
            configure 1                     =>
            show                            => queued=1 leases=0 cancelling=0, n1 up, p1 out cap=0/0 run=0/0 wait=0/0, n2 down, p2 offline cap=0/0 run=0/0 wait=0/0
            answer k1 c1 available 5 p1 one =>
            wait 10s                        => probe k2 c1 p1 one@p1
            configure 0                     =>
            answer k1 c1 available 6 p1 one =>
            answer k2 c1 available 6 p1 one => cleared p1, grant r1 l2 p1 after 15s
            "
        ),
    );
}

// req: HND-6, HND-7, SNP-3
#[test]
fn disabled_outranks_offline_and_offline_the_overlay() {
    let configs = [pool(TWO_NODES), pool(&TWO_NODES.replace("cap=3", "cap=3,off"))];
    let mut world = run_all(
        &configs,
        &format!(
            "{CONNECTED}
            admit r9 one                     => grant r9 l1 p1
            admit r8 one                     => grant r8 l2 p1
            stall l1 c1 unavailable 5 p1 one => lowered p1, failed r9 l1 handoff=unavailable
            gone l1 sent                     =>
            show                             => queued=0 leases=1 cancelling=0, n1 up, p1 out cap=0/0 run=0/0 wait=0/0, n2 up, p2 on cap=1/1 run=0/0 wait=0/0
            configure 1                      =>
            show                             => queued=0 leases=1 cancelling=0, n1 up, p1 disabled cap=0/0 run=1/0 wait=0/0, n2 up, p2 on cap=1/1 run=0/0 wait=0/0
            drain c1                         =>
            show                             => queued=0 leases=1 cancelling=0, n1 down, p1 disabled cap=0/0 run=1/0 wait=0/0, n2 up, p2 on cap=1/1 run=0/0 wait=0/0
            configure 0                      =>
            show                             => queued=0 leases=1 cancelling=0, n1 down, p1 offline cap=0/0 run=0/0 wait=0/0, n2 up, p2 on cap=1/1 run=0/0 wait=0/0
            "
        ),
    );
    assert!(world.snapshot().nodes[0].providers[0].overlay.is_some());
}

// req: CAP-4, HND-7
#[test]
fn a_target_that_left_the_provider_is_replaced_by_the_first_it_serves() {
    let configs = [
        pool("node n1 p1 \n group one p1 \n group two p1"),
        pool("node n1 p1 \n group two p1 \n group three p1"),
        pool("node n1 p1"),
    ];
    let world = run_all(
        &configs,
        "
        register c1 n1                    => accepted c1
        ready c1 n1                       => ready c1, connected n1 g1
        admit r9 one                      => grant r9 l1 p1
        stall l1 c1 unavailable 5 p1 one  => lowered p1, failed r9 l1 handoff=unavailable
        wait 5s                           => probe k1 c1 p1 one@p1
        configure 1                       =>
        answer k1 c1 available 6 p1 one   =>
        wait 10s                          => probe k2 c1 p1 two@p1
        configure 2                       =>
        answer k2 c1 available 6 p1 two   =>
        wait 20s                          =>
        configure 1                       =>
        answer k2 c1 available 6 p1 three =>
        wait 40s                          => probe k3 c1 p1 two@p1
        answer k3 c1 available 6 p1 two   => cleared p1
        ",
    );
    assert_eq!(world.machine.counters().probes.rejected, 3);
}

// req: HND-4, CAP-4
#[test]
fn what_failed_last_is_what_is_asked_for() {
    run(
        "node n1 p1:cap=3 \n group one p1 \n group two p1",
        "
        register c1 n1                   => accepted c1
        ready c1 n1                      => ready c1, connected n1 g1
        admit r1 one                     => grant r1 l1 p1
        admit r2 two                     => grant r2 l2 p1
        admit r3 two                     => grant r3 l3 p1
        stall l1 c1 unavailable 5 p1 one => lowered p1, failed r1 l1 handoff=unavailable
        wait 5s                          => probe k1 c1 p1 one@p1
        stall l2 c1 unavailable 6 p1 two => failed r2 l2 handoff=unavailable
        answer k1 c1 available 7 p1 one  =>
        wait 10s                         => probe k2 c1 p1 two@p1
        stall l3 c1 unavailable 7 p1 two => failed r3 l3 handoff=unavailable
        answer k2 c1 available 7 p1 two  =>
        answer k2 c1 available 8 p1 two  => cleared p1
        ",
    );
}

// req: HND-7
#[test]
fn a_provider_that_left_the_configuration_is_not_probed_and_is_forgotten_with_its_last_lease() {
    let configs = [pool(TWO_NODES), pool("node n1 p3 \n group m p3")];
    let world = run_all(
        &configs,
        "
        register c1 n1                   => accepted c1
        ready c1 n1                      => ready c1, connected n1 g1
        admit r1 one                     => grant r1 l1 p1
        admit r2 one                     => grant r2 l2 p1
        admit r3 one                     => grant r3 l3 p1
        stall l1 c1 unavailable 5 p1 one => lowered p1, failed r1 l1 handoff=unavailable
        configure 1                      =>
        wait 300s                        =>
        configure 0                      =>
        admit r4 one                     =>
        wait 10s                         => probe k1 c1 p1 one@p1
        configure 1                      => refuse r4 UnknownModel
        answer k1 c1 available 6 p1 one  =>
        stall l2 c1 unavailable 4 p1 one => failed r2 l2 handoff=unavailable
        stall l3 c1 unavailable 7 p1 one => failed r3 l3 handoff=unavailable
        configure 0                      =>
        admit r5 one                     => grant r5 l4 p1
        wait 300s                        =>
        ",
    );
    let counters = world.machine.counters();
    assert_eq!((counters.handoffs, counters.evidence_stale, counters.overlays_dropped), (3, 1, 1));
}
