//! What a Node that takes no new runs still does, and what it does not.

use sim::world::pool;

use crate::script::{run, run_all};

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

// req: SNP-2, POL-1
#[test]
fn a_draining_node_keeps_its_leases_and_gets_no_more_although_it_is_the_least_busy() {
    let world = run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 one     => grant r1 l1 p1
            admit r2 one     => grant r2 l2 p1
            drain c1         =>
            show             => queued=0 leases=2 cancelling=0, n1 down, p1 offline cap=0/0 run=0/0 wait=0/0, n2 up, p2 on cap=1/1 run=0/0 wait=0/0
            admit r3 m       => grant r3 l3 p2
            admit r4 m       =>
            show             => queued=1 leases=3 cancelling=0, n1 down, p1 offline cap=0/0 run=0/0 wait=0/0, n2 up, p2 on cap=1/1 run=1/0 wait=1/0
            end l1 c1        =>
            gone l1 sent     =>
            fail l2 c1       => failed r2 l2
            gone l2 sent     =>
            end l3 c2        => grant r4 l4 p2
            close c1         => down n1 g1 leases=0
            "
        ),
    );
    let counters = world.machine.counters();
    assert_eq!((counters.draining, counters.leases_fenced, counters.settled), (1, 0, 3));
}

// req: FEN-3
#[test]
fn a_request_waits_while_its_only_node_drains_and_runs_on_the_one_that_takes_its_place() {
    run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 one     => grant r1 l1 p1
            drain c1         =>
            admit r2 one     =>
            end l1 c1        =>
            gone l1 sent     =>
            close c1         => down n1 g1 leases=0
            wait 2s          =>
            register c3 n1   => accepted c3
            ready c3 n1      => ready c3, connected n1 g3, grant r2 l2 p1 after 2s
            "
        ),
    );
}

// req: FEN-1, FEN-2, REG-8
#[test]
fn what_still_runs_when_a_draining_node_ends_or_is_superseded_is_fenced() {
    run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 one     => grant r1 l1 p1
            admit r2 two     => grant r2 l2 p2
            drain c1         =>
            drain c2         =>
            admit r3 one     =>
            register c3 n1   => down n1 g1 leases=1, fenced r1 l1, shut c1 Superseded, accepted c3
            end l1 c1        =>
            ready c3 n1      => ready c3, connected n1 g3, grant r3 l3 p1
            show             => queued=0 leases=3 cancelling=0, n1 up, p1 on cap=3/3 run=1/0 wait=0/0, n2 down, p2 offline cap=0/0 run=0/0 wait=0/0
            close c2         => down n2 g2 leases=1, fenced r2 l2
            "
        ),
    );
}

// req: POL-8, POL-9
#[test]
fn draining_looks_at_the_queue_again() {
    run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 m avoid=p2          => grant r1 l1 p1
            admit r2 one                 => grant r2 l2 p1
            admit r3 one                 => grant r3 l3 p1
            admit r4 m avoid=p2          =>
            admit r5 m avoid=p2 fallback =>
            drain c1                     => grant r5 l4 p2
            "
        ),
    );
}

// req: GAT-2
#[test]
fn what_was_on_the_way_to_a_draining_node_comes_back_without_using_up_its_second_chance() {
    let world = run(
        "
        node n1 p1:cap=2
        node n2 p2
        group m p1 p2
        group one p1
        ",
        &format!(
            "{CONNECTED}
            admit r1 one     => grant r1 l1 p1
            busy l1 c1       => requeued r1 l1, grant r1 l2 p1 try2
            gone l1 sent     =>
            admit r2 m       => grant r2 l3 p2
            admit r3 m       => grant r3 l4 p1
            drain c1         =>
            busy l2 c1       => requeued r1 l2
            gone l2 sent     =>
            busy l4 c1       => requeued r3 l4
            gone l4 sent     =>
            end l3 c2        => grant r3 l5 p2 try2
            busy l5 c2       => requeued r3 l5, grant r3 l6 p2 try3
            busy l6 c2       => refuse r3 Busy
            register c3 n1   => down n1 g1 leases=0, shut c1 Superseded, accepted c3
            ready c3 n1      => ready c3, connected n1 g3, grant r1 l7 p1 try3
            busy l7 c3       => refuse r1 Busy
            "
        ),
    );
    let counters = world.machine.counters();
    assert_eq!((counters.busy, counters.requeued, counters.refused_busy), (6, 4, 2));
}

// req: FEN-4, REG-6
#[test]
fn only_the_ready_owner_drains_and_only_once() {
    let world = run(
        TWO_NODES,
        "
        drain c1         =>
        register c1 n1   => accepted c1
        drain c1         =>
        ready c1 n1      => ready c1, connected n1 g1
        admit r1 one     => grant r1 l1 p1
        drain c9         =>
        drain c1         =>
        drain c1         =>
        ready c1 n1      => ready c1
        admit r2 one     =>
        register c2 n1   => down n1 g1 leases=1, fenced r1 l1, shut c1 Superseded, accepted c2
        ready c2 n1      => ready c2, connected n1 g2, grant r2 l2 p1
        drain c1         =>
        admit r3 one     => grant r3 l3 p1
        close c1         =>
        close c2         => down n1 g2 leases=2, fenced r2 l2, fenced r3 l3
        drain c2         =>
        ",
    );
    let counters = world.machine.counters();
    assert_eq!((counters.draining, counters.stale_inputs), (1, 6));
}

// req: POL-6, POL-11
#[test]
fn a_new_configuration_wakes_no_draining_node_and_a_cancelled_run_of_it_is_bounded() {
    run_all(
        &[pool("node n1 p1 \n group m p1"), pool("node n1 p1:cap=2 p2 \n group m p1 p2"), pool("node n2 p3")],
        "
        register c1 n1 => accepted c1
        ready c1 n1    => ready c1, connected n1 g1
        admit r1 m     => grant r1 l1 p1
        drain c1       =>
        admit r2 m     =>
        configure 1    =>
        show           => queued=1 leases=1 cancelling=0, n1 down, p1 offline cap=0/0 run=0/0 wait=0/0, p2 offline cap=0/0 run=0/0 wait=0/0
        gone l1 sent   =>
        wait 10s       =>
        show           => queued=1 leases=0 cancelling=0, n1 down, p1 offline cap=0/0 run=0/0 wait=0/0, p2 offline cap=0/0 run=0/0 wait=0/0
        configure 2    => down n1 g1 leases=0, shut c1 Removed, refuse r2 UnknownModel
        ",
    );
}
