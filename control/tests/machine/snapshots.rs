//! The picture the machine gives of itself.

use sim::world::pool;

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
