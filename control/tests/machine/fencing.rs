//! What the end of a dispatch-ready connection does.

use crate::script::run;

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

// req: FEN-1, FEN-2, FEN-6
#[test]
fn closing_the_ready_owner_returns_its_leases_and_tells_their_callers() {
    let world = run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 one     => grant r1 l1 p1
            admit r2 one     => grant r2 l2 p1
            admit r3 two     => grant r3 l3 p2
            gone l2 sent     =>
            close c1         => down n1 g1 leases=2, fenced r1 l1
            show             => queued=0 leases=2 cancelling=0, n1 down, p1 offline cap=0/0 run=0/0 wait=0/0, n2 up, p2 on cap=1/1 run=1/0 wait=0/0
            end l1 c1        =>
            end l2 c1        =>
            gone l1 sent     =>
            show             => queued=0 leases=1 cancelling=0, n1 down, p1 offline cap=0/0 run=0/0 wait=0/0, n2 up, p2 on cap=1/1 run=1/0 wait=0/0
            wait 60s         =>
            "
        ),
    );
    let counters = world.machine.counters();
    assert_eq!((counters.leases_fenced, counters.generations_fenced, counters.settled), (2, 1, 2));
    assert_eq!(counters.cancel_bound_reached, 0);
}

// req: FEN-2
#[test]
fn fencing_looks_at_the_queue_again() {
    run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 one                     => grant r1 l1 p1
            admit r2 one                     => grant r2 l2 p1
            admit r3 one                     => grant r3 l3 p1
            admit r4 m avoid=p2 fallback     =>
            admit r5 m avoid=p2              =>
            close c1                         => down n1 g1 leases=3, fenced r1 l1, fenced r2 l2, fenced r3 l3, grant r4 l4 p2
            "
        ),
    );
}

// req: FEN-3
#[test]
fn a_new_generation_pumps_waiters_at_once() {
    run(
        TWO_NODES,
        "
        admit r1 one   =>
        admit r2 m     =>
        admit r3 two   =>
        wait 3s        =>
        register c1 n1 => accepted c1
        ready c1 n1    => ready c1, connected n1 g1, grant r1 l1 p1 after 3s, grant r2 l2 p1 after 3s
        register c2 n2 => accepted c2
        ready c2 n2    => ready c2, connected n2 g2, grant r3 l3 p2 after 3s
        ",
    );
}

// req: FEN-7
#[test]
fn a_grant_that_was_fenced_before_it_was_sent_waits_again_at_its_old_place() {
    run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 one     => grant r1 l1 p1
            admit r2 one     => grant r2 l2 p1
            close c1         => down n1 g1 leases=2, fenced r1 l1, fenced r2 l2
            admit r3 one     =>
            notsent l1       => requeued r1 l1
            gone l1 unsent   =>
            gone l2 sent     =>
            notsent l1       =>
            wait 1s          =>
            register c3 n1   => accepted c3
            ready c3 n1      => ready c3, connected n1 g3, grant r1 l3 p1 try2 after 1s, grant r3 l4 p1 after 1s
            "
        ),
    );
}

// req: FEN-7
#[test]
fn a_grant_that_could_not_be_sent_is_returned_and_readmitted() {
    let world = run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 two     => grant r1 l1 p2
            admit r2 two     =>
            notsent l1       => requeued r1 l1, grant r1 l2 p2 try2
            gone l1 unsent   =>
            notsent l2       => requeued r1 l2, grant r1 l3 p2 try3
            gone l2 unsent   =>
            busy l3 c2       => requeued r1 l3, grant r1 l4 p2 try4
            gone l3 unsent   =>
            end l4 c2        => grant r2 l5 p2
            "
        ),
    );
    assert_eq!(world.machine.counters().requeued, 3);
}

// req: FEN-4, HND-1
#[test]
fn a_terminal_counts_only_on_the_connection_of_its_lease() {
    let world = run(
        TWO_NODES,
        &format!(
            "{CONNECTED}
            admit r1 two     => grant r1 l1 p2
            admit r2 two     =>
            end l1 c1        =>
            busy l1 c1       =>
            end l99 c2       =>
            end l1 c2        => grant r2 l2 p2
            end l1 c2        =>
            gone l1 sent     =>
            end l1 c2        =>
            "
        ),
    );
    assert_eq!(world.machine.counters().stale_inputs, 5);
}
