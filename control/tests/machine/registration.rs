//! Connections: who owns a Node ID, and when it is dispatch-ready.

use crate::script::run;

const TWO_NODES: &str = "
    node n1 p1
    node n2 p2
    group m p1 p2
";

// req: REG-1, REG-11
#[test]
fn a_connection_owns_exactly_one_node_id() {
    run(
        TWO_NODES,
        "
        register c1 n1        => accepted c1
        register c1 n2        => rejected c1 AlreadyRegistered
        register c1 n1        => rejected c1 AlreadyRegistered
        ready c1 n1           => ready c1, connected n1 g1
        register c1 n2        => rejected c1 AlreadyRegistered
        admit r1 m            => grant r1 l1 p1
        close c1              => down n1 g1 leases=1, fenced r1 l1
        ",
    );
}

// req: REG-3, REG-5
#[test]
fn a_pending_node_gets_no_work_and_shows_in_no_snapshot() {
    run(
        TWO_NODES,
        "
        register c1 n1        => accepted c1
        admit r1 m            =>
        show                  => queued=1 leases=0 cancelling=0, n1 down, p1 offline cap=0/0 run=0/0 wait=0/0, n2 down, p2 offline cap=0/0 run=0/0 wait=0/0
        ready c1 n1           => ready c1, connected n1 g1, grant r1 l1 p1
        show                  => queued=0 leases=1 cancelling=0, n1 up, p1 on cap=1/1 run=1/0 wait=0/0, n2 down, p2 offline cap=0/0 run=0/0 wait=0/0
        ",
    );
}

// req: REG-4, REG-6
#[test]
fn only_the_first_ready_of_a_generation_activates_anything() {
    run(
        TWO_NODES,
        "
        register c1 n1        => accepted c1
        ready c1 n1           => ready c1, connected n1 g1
        ready c1 n1           => ready c1
        admit r1 m            => grant r1 l1 p1
        admit r2 m            =>
        ready c1 n1           => ready c1
        ",
    );
}

// req: REG-7, FEN-4
#[test]
fn what_a_stale_connection_says_changes_nothing() {
    run(
        TWO_NODES,
        "
        ready c9 n1           => unready c9 NotRegistered
        register c1 n1        => accepted c1
        register c2 n1        => shut c1 Superseded, accepted c2
        ready c1 n1           => unready c1 Stale
        ready c2 n2           => unready c2 IdentityMismatch
        ready c2 n1           => ready c2, connected n1 g2
        admit r1 m            => grant r1 l1 p1
        ready c1 n1           => unready c1 Stale
        register c1 n1        => rejected c1 Stale
        end l1 c1             =>
        close c1              =>
        ready c2 n1           => ready c2
        end l1 c2             =>
        show                  => queued=0 leases=1 cancelling=0, n1 up, p1 on cap=1/1 run=0/0 wait=0/0, n2 down, p2 offline cap=0/0 run=0/0 wait=0/0
        ",
    );
}

// req: REG-8, FEN-2
#[test]
fn a_newer_registration_fences_and_closes_the_ready_owner_before_it_is_told_so() {
    run(
        "
        node n1 p1:cap=2
        group m p1
        ",
        "
        register c1 n1        => accepted c1
        ready c1 n1           => ready c1, connected n1 g1
        admit r1 m            => grant r1 l1 p1
        admit r2 m            => grant r2 l2 p1
        admit r3 m            =>
        register c2 n1        => down n1 g1 leases=2, fenced r1 l1, fenced r2 l2, shut c1 Superseded, accepted c2
        end l1 c1             =>
        ready c2 n1           => ready c2, connected n1 g2, grant r3 l3 p1
        close c1              =>
        end l3 c2             =>
        ",
    );
}

// req: REG-8
#[test]
fn a_newer_registration_supersedes_a_pending_owner_without_an_event() {
    run(
        TWO_NODES,
        "
        register c1 n1        => accepted c1
        register c2 n1        => shut c1 Superseded, accepted c2
        register c3 n1        => shut c2 Superseded, accepted c3
        wait 60s              => shut c3 ReadyTimeout
        ",
    );
}

// req: IDN-3
#[test]
fn a_certificate_claims_no_other_node() {
    run(
        TWO_NODES,
        "
        register c1 n1        => accepted c1
        ready c1 n1           => ready c1, connected n1 g1
        register c2 n2 as n1  => rejected c2 IdentityMismatch
        register c3 n1 as n2  => rejected c3 IdentityMismatch
        register c4 n3        => rejected c4 UnknownNode
        register c5 n1 badtoken => rejected c5 BadToken
        admit r1 m            => grant r1 l1 p1
        ready c2 n1           => unready c2 NotRegistered
        ",
    );
}

// req: REG-11
#[test]
fn a_pending_owner_that_is_not_ready_in_time_is_closed() {
    let world = run(
        TWO_NODES,
        "
        register c1 n1        => accepted c1
        wait 59s              =>
        wait 1s               => shut c1 ReadyTimeout
        ready c1 n1           => unready c1 Stale
        close c1              =>
        register c2 n1        => accepted c2
        wait 59s              =>
        ready c2 n1           => ready c2, connected n1 g2
        wait 600s             =>
        ",
    );
    assert_eq!(world.machine.poll_timeout(), None);
    assert_eq!(world.machine.counters().ready_timeouts, 1);
}

// req: REG-11
#[test]
fn closing_a_pending_connection_frees_the_claim_without_an_event() {
    let world = run(
        TWO_NODES,
        "
        register c1 n1        => accepted c1
        close c1              =>
        close c1              =>
        close c7              =>
        register c7 n1        => rejected c7 Stale
        register c2 n1        => accepted c2
        close c2              =>
        ",
    );
    assert_eq!(world.machine.poll_timeout(), None);
}

// req: FEN-3
#[test]
fn generations_rise_with_every_accepted_registration() {
    run(
        TWO_NODES,
        "
        register c1 n1        => accepted c1
        register c2 n2        => accepted c2
        ready c2 n2           => ready c2, connected n2 g2
        close c1              =>
        register c3 n1        => accepted c3
        ready c3 n1           => ready c3, connected n1 g3
        close c2              => down n2 g2 leases=0
        register c4 n2        => accepted c4
        ready c4 n2           => ready c4, connected n2 g4
        ",
    );
}
