//! Direct routes: to a Node that has the adapter, past pool, queue and overlay.

use std::time::Duration;

use control::{
    effect::{Effect, Grant},
    input::{Admit, Avoided, ConnectionId, Input, LeaseId, RequestId},
};
use sim::world::pool;

use crate::script::{run, run_all};

const CONNECTED: &str = "
    register c1 n1 => accepted c1
    ready c1 n1    => ready c1, connected n1 g1
    register c2 n2 => accepted c2
    ready c2 n2    => ready c2, connected n2 g2
";

const ROUTES: &str = "
    queue 1 10s
    node n1 p1 +a
    node n2 p2 +a +b
    node n3 +c
    group m p1
    route x a served attr
    route y b other attr2
    route z c third attr3
";

// req: POL-12
#[test]
fn the_node_with_the_fewest_direct_runs_gets_it_and_ties_rotate() {
    run(
        ROUTES,
        &format!(
            "{CONNECTED}
            admit r1 x  => grant r1 l1 attr on n1
            admit r2 x  => grant r2 l2 attr on n2
            admit r3 y  => grant r3 l3 attr2 on n2
            admit r4 x  => grant r4 l4 attr on n1
            admit r5 x  => grant r5 l5 attr on n2
            end l1 c1   =>
            gone l1 sent =>
            admit r6 x  => grant r6 l6 attr on n1
            end l4 c1   =>
            end l6 c1   =>
            admit r7 x  => grant r7 l7 attr on n1
            admit r8 x  => grant r8 l8 attr on n1
            "
        ),
    );
}

// req: POL-12
#[test]
fn it_takes_no_slot_and_no_place_and_waits_for_nobody() {
    let world = run(
        ROUTES,
        &format!(
            "{CONNECTED}
            admit r1 m  => grant r1 l1 p1
            admit r2 m  =>
            admit r3 m  => refuse r3 QueueFull
            admit r4 x  => grant r4 l2 attr on n1
            admit r5 x  => grant r5 l3 attr on n2
            admit r6 x  => grant r6 l4 attr on n1
            show        => queued=1 leases=4 cancelling=0, n1 up, p1 on cap=1/1 run=1/0 wait=1/0, n2 up, p2 on cap=1/1 run=0/0 wait=0/0, n3 down
            end l2 c1   =>
            end l1 c1   => grant r2 l5 p1
            "
        ),
    );
    let counters = world.machine.counters();
    assert_eq!((counters.granted, counters.settled), (2, 1));
    assert_eq!((counters.direct_granted, counters.direct_returned), (3, 1));
}

// req: POL-12, STL-2
#[test]
fn a_direct_grant_says_what_its_route_says() {
    let mut world = run(ROUTES, CONNECTED);
    let admit = Admit {
        request: RequestId(7),
        group: "y".into(),
        needs: control::config::Capabilities(5),
        long: true,
        avoid: vec![Avoided { provider: "attr2".into(), allow_fallback: false }],
    };
    let expected = Grant {
        request: RequestId(7),
        lease: LeaseId(1),
        connection: ConnectionId(2),
        generation: 2,
        node: "n2".into(),
        direct: true,
        provider: "attr2".into(),
        adapter: "b".into(),
        target: "other".into(),
        stall_timeout: Duration::from_secs(100),
        request_timeout: Duration::from_secs(200),
        queued_for: Duration::ZERO,
        attempt: 1,
    };
    assert_eq!(world.tell(Input::Admit(admit)), [Effect::Grant(expected)]);
}

// req: POL-12, REG-5
#[test]
fn without_a_ready_node_it_is_refused_at_once() {
    let world = run(
        ROUTES,
        "
        admit r1 x     => refuse r1 NoNode
        register c1 n1 => accepted c1
        admit r2 x     => refuse r2 NoNode
        ready c1 n1    => ready c1, connected n1 g1
        admit r3 x     => grant r3 l1 attr on n1
        admit r4 y     => refuse r4 NoNode
        admit r5 z     => refuse r5 NoNode
        drain c1       =>
        admit r6 x     => refuse r6 NoNode
        close c1       => down n1 g1 leases=1, fenced r3 l1
        admit r7 x     => refuse r7 NoNode
        admit r8 w     => refuse r8 UnknownModel
        ",
    );
    let counters = world.machine.counters();
    assert_eq!((counters.refused_no_node, counters.direct_returned, counters.leases_fenced), (6, 1, 0));
}

// req: POL-12, GAT-2
#[test]
fn busy_is_an_answer_and_not_a_reason_to_try_again() {
    run(
        ROUTES,
        &format!(
            "{CONNECTED}
            admit r1 x  => grant r1 l1 attr on n1
            busy l1 c1  => refuse r1 Busy
            admit r2 x  => grant r2 l2 attr on n2
            drain c2    =>
            busy l2 c2  => refuse r2 Busy
            "
        ),
    );
}

// req: POL-12, FEN-7
#[test]
fn what_was_not_sent_goes_to_another_node_at_once() {
    run(
        ROUTES,
        &format!(
            "{CONNECTED}
            admit r1 x   => grant r1 l1 attr on n1
            close c1     => down n1 g1 leases=1, fenced r1 l1
            notsent l1   => requeued r1 l1, grant r1 l2 attr on n2 try2
            gone l1 sent =>
            notsent l2   => requeued r1 l2, grant r1 l3 attr on n2 try3
            close c2     => down n2 g2 leases=1, fenced r1 l3
            notsent l3   => requeued r1 l3, refuse r1 NoNode
            "
        ),
    );
}

// req: POL-12, FEN-2, FEN-6, POL-11
#[test]
fn its_lease_lives_and_ends_as_any_other() {
    let world = run(
        ROUTES,
        &format!(
            "{CONNECTED}
            admit r1 x     => grant r1 l1 attr on n1
            admit r2 x     => grant r2 l2 attr on n2
            admit r3 y     => grant r3 l3 attr2 on n2
            admit r4 x     => grant r4 l4 attr on n1
            gone l1 sent   =>
            end l1 c2      =>
            wait 9s        =>
            show           => queued=0 leases=4 cancelling=1, n1 up, p1 on cap=1/1 run=0/0 wait=0/0, n2 up, p2 on cap=1/1 run=0/0 wait=0/0, n3 down
            wait 1s        =>
            end l1 c1      =>
            fail l4 c1     => failed r4 l4
            gone l4 sent   =>
            gone l2 unsent =>
            gone l3 sent   =>
            register c3 n2 => down n2 g2 leases=1, shut c2 Superseded, accepted c3
            "
        ),
    );
    let counters = world.machine.counters();
    assert_eq!((counters.direct_granted, counters.direct_returned), (4, 4));
    assert_eq!((counters.granted, counters.settled, counters.stale_inputs), (0, 0, 2));
}

// req: POL-12, HND-3
#[test]
fn its_stalls_are_no_evidence() {
    let world = run(
        "node n1 p1 \n group m p1 \n route x p1-adapter m@p1 p1",
        "
        register c1 n1                 => accepted c1
        ready c1 n1                    => ready c1, connected n1 g1
        admit r1 x                     => grant r1 l1 p1 on n1
        stall l1 c1 unavailable 3 p1 m => failed r1 l1
        admit r2 m                     => grant r2 l2 p1
        stall l2 c1 unavailable 1 p1 m => lowered p1, failed r2 l2 handoff=unavailable
        admit r3 x                     => grant r3 l3 p1 on n1
        ",
    );
    assert_eq!(world.machine.counters().evidence_rejected, 0);
}

// req: POL-12, POL-6
#[test]
fn a_new_configuration_moves_models_between_pool_and_routes() {
    run_all(
        &[
            pool(ROUTES),
            pool("node n1 p1 +a \n group x p1 \n route m a served attr \n route y a served attr"),
            pool("node n2 p2 +a"),
        ],
        &format!(
            "{CONNECTED}
            admit r1 m  => grant r1 l1 p1
            wait 1s     =>
            admit r2 m  =>
            admit r3 x  => grant r3 l2 attr on n1
            wait 1s     =>
            configure 1 => down n2 g2 leases=0, shut c2 Removed, grant r2 l3 attr on n1 after 1s
            notsent l2  => requeued r3 l2
            admit r4 y  => grant r4 l4 attr on n1
            end l1 c1   => grant r3 l5 p1 try2
            configure 2 => down n1 g1 leases=3, fenced r2 l3, fenced r4 l4, fenced r3 l5, shut c1 Removed
            notsent l3  => requeued r2 l3, refuse r2 UnknownModel
            "
        ),
    );
}

// req: POL-12
#[test]
fn a_name_that_is_both_is_a_group() {
    run(
        "node n1 p1 +a \n group m p1 \n route m a served attr",
        "
        register c1 n1 => accepted c1
        ready c1 n1    => ready c1, connected n1 g1
        admit r1 m     => grant r1 l1 p1
        admit r2 m     =>
        ",
    );
}
