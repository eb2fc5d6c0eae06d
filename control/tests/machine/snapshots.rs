//! The picture the machine gives of itself.

use std::sync::Arc;

use control::{
    config::Capabilities,
    effect::{Effect, LeaseState, NodeState, Snapshot},
    input::{Admit, ConnectionId, Input, LeaseId, Moment, RequestId},
    limits::DETAIL_MAX,
};
use sim::{
    World,
    world::{pool, seconds},
};

use crate::script::{run, run_all};

const CONNECTED: &str = "
    register c1 n1 => accepted c1
    ready c1 n1    => ready c1, connected n1 g1
";

// req: SNP-1
#[test]
fn load_is_current_leases_and_queued_counts_each_live_candidate_once() {
    run(
        "
        node n1 p1:cap=2,long=1 p2:needs=3,long=0
        node n2 p3
        group a p1 p2 p3
        group b p1
        ",
        &format!(
            "{CONNECTED}
            admit r1 b long            => grant r1 l1 p1
            admit r2 b                 => grant r2 l2 p1
            admit r3 a needs=2         => grant r3 l3 p2
            admit r4 a                 =>
            admit r5 a long            =>
            admit r6 a needs=2         =>
            admit r7 b long            =>
            admit r8 a avoid=p1        =>
            admit r9 a avoid=p2 fallback =>
            show => queued=6 leases=3 cancelling=0, n1 up, p1 on cap=2/1 run=2/1 wait=4/2, p2 on cap=1/0 run=1/0 wait=3/0, n2 down, p3 offline cap=0/0 run=0/0 wait=0/0
            gone l1 sent               =>
            end l3 c1                  => grant r4 l4 p2
            show => queued=5 leases=4 cancelling=1, n1 up, p1 on cap=2/1 run=2/1 wait=3/2, p2 on cap=1/0 run=1/0 wait=2/0, n2 down, p3 offline cap=0/0 run=0/0 wait=0/0
            "
        ),
    );
}

// req: SNP-1, POL-8
#[test]
fn an_avoided_provider_counts_as_candidate_only_while_it_may_be_taken() {
    run(
        "
        node n1 p1
        node n2 p2
        group m p1 p2
        group k p1
        ",
        &format!(
            "{CONNECTED}
            admit r1 k                   => grant r1 l1 p1
            admit r2 m avoid=p1          =>
            admit r3 m avoid=p1 fallback =>
            show => queued=2 leases=1 cancelling=0, n1 up, p1 on cap=1/1 run=1/0 wait=1/0, n2 down, p2 offline cap=0/0 run=0/0 wait=0/0
            "
        ),
    );
}

// req: SNP-2
#[test]
fn an_offline_node_keeps_its_catalog_with_zeros_and_returns_with_its_capacity() {
    run(
        "
        node n1 p1:cap=4,long=2
        group m p1
        ",
        &format!(
            "
            show     => queued=0 leases=0 cancelling=0, n1 down, p1 offline cap=0/0 run=0/0 wait=0/0
            {CONNECTED}
            show     => queued=0 leases=0 cancelling=0, n1 up, p1 on cap=4/2 run=0/0 wait=0/0
            admit r1 m => grant r1 l1 p1
            close c1 => down n1 g1 leases=1, fenced r1 l1
            show     => queued=0 leases=1 cancelling=0, n1 down, p1 offline cap=0/0 run=0/0 wait=0/0
            "
        ),
    );
}

// req: SNP-3
#[test]
fn a_disabled_provider_shows_as_disabled_without_capacity() {
    run_all(
        &[pool("node n1 p1 p2:off \n group m p1"), pool("node n1 p1:off p2:cap=2 \n group m p1")],
        &format!(
            "
            show        => queued=0 leases=0 cancelling=0, n1 down, p1 offline cap=0/0 run=0/0 wait=0/0, p2 disabled cap=0/0 run=0/0 wait=0/0
            {CONNECTED}
            admit r1 m  => grant r1 l1 p1
            configure 1 =>
            show        => queued=0 leases=1 cancelling=0, n1 up, p1 disabled cap=0/0 run=1/0 wait=0/0, p2 on cap=2/2 run=0/0 wait=0/0
            "
        ),
    );
}

#[test]
fn the_picture_names_the_configuration_in_force() {
    let mut world = run_all(
        &[pool("generation 41"), pool("generation 42")],
        "
        configure 1 =>
        ",
    );
    assert_eq!(world.snapshot().config_generation, 42);
}

// req: SNP-2, REG-5
#[test]
fn a_node_says_how_far_it_is_and_since_when() {
    let mut world = run("node n1 p1 \n group m p1", "wait 1s =>");
    let mut seen = vec![];
    let (connection, name): (_, Arc<str>) = (ConnectionId(1), "n1".into());
    let register =
        Input::Register { connection, certified: name.clone(), claimed: name.clone(), token_ok: true };
    for input in [
        Input::Draining { connection },
        register,
        Input::Ready { connection, claimed: name.clone() },
        Input::Ready { connection, claimed: name },
        Input::Draining { connection },
        Input::ConnectionClosed { connection },
    ] {
        world.tell(input);
        world.wait(seconds(1));
        let snapshot = world.snapshot();
        assert_eq!(snapshot.now, world.now);
        let node = &snapshot.nodes[0];
        assert_eq!(node.connected, node.state == NodeState::Ready);
        seen.push((node.state, node.since.map(|since| snapshot.now.since(since).as_secs())));
    }
    let expected = [
        (NodeState::Disconnected, None),
        (NodeState::Pending, Some(1)),
        (NodeState::Ready, Some(1)),
        (NodeState::Ready, Some(2)),
        (NodeState::Draining, Some(1)),
        (NodeState::Disconnected, Some(1)),
    ];
    assert_eq!(seen, expected);
}

/// A snapshot with its lists.
fn detailed(world: &mut World) -> Snapshot {
    match world.tell(Input::Inspect { token: 5, detail: true }).pop() {
        Some(Effect::Snapshot { token: 5, snapshot }) => snapshot,
        other => panic!("no snapshot: {other:?}"),
    }
}

// req: SNP-1
#[test]
fn detail_lists_who_waits_for_what_and_who_holds_what() {
    let mut world = run(
        "
        node n1 p1 p2:needs=3
        node n2 p3
        group m p1 p2 p3
        group off p3
        ",
        &format!(
            "{CONNECTED}
            admit r1 m       => grant r1 l1 p1
            admit r2 m long  => grant r2 l2 p2
            wait 1s          =>
            admit r3 m long  =>
            admit r4 off     =>
            admit r5 m avoid=p1 =>
            wait 1s          =>
            gone l2 sent     =>
            "
        ),
    );
    let snapshot = detailed(&mut world);
    let waiting: Vec<_> = snapshot
        .queue
        .iter()
        .map(|w| (w.request.0, w.position, &*w.group, w.long, w.since, w.attempts, w.waits_for.join(" ")))
        .collect();
    let second = Moment(1_000_000_000);
    let expected = [
        (3, 1, "m", true, second, 0, "p1 p2".to_owned()),
        (4, 2, "off", false, second, 0, String::new()),
        (5, 3, "m", false, second, 0, "p2".to_owned()),
    ];
    assert_eq!(waiting, expected);
    let holds: Vec<_> = snapshot
        .holds
        .iter()
        .map(|h| (h.lease.0, h.request.0, &*h.node, &*h.provider, h.direct, h.long, h.since, h.state))
        .collect();
    let expected = [
        (1, 1, "n1", "p1", false, false, Moment(0), LeaseState::Active),
        (2, 2, "n1", "p2", false, true, Moment(0), LeaseState::Cancelling),
    ];
    assert_eq!(holds, expected);
    assert_eq!((snapshot.queued, snapshot.leases), (3, 2));
    // The other states, and a request that was granted before.
    world.tell(Input::ConnectionClosed { connection: ConnectionId(1) });
    assert_eq!(detailed(&mut world).holds[0].state, LeaseState::Fenced);
    world.tell(Input::NotSent { lease: LeaseId(1) });
    let snapshot = detailed(&mut world);
    assert_eq!(snapshot.holds[0].state, LeaseState::Settled);
    assert_eq!((snapshot.queue[0].request, snapshot.queue[0].attempts), (RequestId(1), 1));
    let plain = world.snapshot();
    assert!(plain.queue.is_empty() && plain.holds.is_empty());
}

#[test]
fn detail_is_bounded_and_the_totals_stand_beside() {
    let mut world = run("queue 2000 none \n node n1 p1:cap=1200 \n group m p1", CONNECTED);
    for request in 0..2_300 {
        // Beside the oracle, which scans everything at each step.
        let admit = Admit {
            request: RequestId(request),
            group: "m".into(),
            needs: Capabilities(0),
            long: false,
            avoid: Vec::new(),
        };
        world.machine.handle(world.now, Input::Admit(admit));
        while world.machine.poll_effect().is_some() {}
    }
    world.machine.handle(world.now, Input::Inspect { token: 1, detail: true });
    let Some(Effect::Snapshot { snapshot, .. }) = world.machine.poll_effect() else { panic!("no snapshot") };
    assert_eq!((snapshot.queue.len(), snapshot.queued), (DETAIL_MAX, 1_100));
    assert_eq!((snapshot.holds.len(), snapshot.leases), (DETAIL_MAX, 1_200));
    assert_eq!(snapshot.queue[0].request, RequestId(1_200));
}
