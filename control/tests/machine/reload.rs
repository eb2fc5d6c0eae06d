//! A new configuration under load.

use sim::world::pool;

use crate::script::run_all;

const CONNECTED: &str = "
    register c1 n1 => accepted c1
    ready c1 n1    => ready c1, connected n1 g1
";

// req: POL-6
#[test]
fn raised_capacity_pumps_and_lowered_capacity_keeps_leases() {
    run_all(
        &[
            pool("node n1 p1 \n group m p1"),
            pool("node n1 p1:cap=3 \n group m p1"),
            pool("node n1 p1:cap=1 \n group m p1"),
        ],
        &format!(
            "{CONNECTED}
            admit r1 m    => grant r1 l1 p1
            admit r2 m    =>
            admit r3 m    =>
            admit r4 m    =>
            wait 2s       =>
            configure 1   => grant r2 l2 p1 after 2s, grant r3 l3 p1 after 2s
            wait 1s       =>
            configure 2   =>
            show          => queued=1 leases=3 cancelling=0, n1 up, p1 on cap=1/1 run=3/0 wait=1/0
            end l1 c1     =>
            end l2 c1     =>
            end l3 c1     => grant r4 l4 p1 after 3s
            "
        ),
    );
}

// req: POL-6
#[test]
fn a_changed_policy_judges_every_waiter_again() {
    run_all(
        &[
            pool("queue 9 30s \n node n1 p1 p2:needs=2 \n group m p1 p2 \n group gone p1 \n group n p1"),
            pool("queue 2 10s \n node n1 p1 p2:needs=2,off \n group m p1 p2 \n group n p1"),
        ],
        &format!(
            "{CONNECTED}
            admit r1 n           => grant r1 l1 p1
            admit r2 m needs=2   => grant r2 l2 p2
            admit r3 m needs=2   =>
            wait 4s              =>
            admit r4 gone        =>
            admit r5 n           =>
            admit r6 n           =>
            admit r7 n           =>
            configure 1          => refuse r3 Unservable, refuse r4 UnknownModel, refuse r7 QueueFull
            wait 9999ms          =>
            wait 1ms             => refuse r5 QueueTimeout, refuse r6 QueueTimeout
            end l2 c1            =>
            "
        ),
    );
}

// req: POL-6
#[test]
fn a_wait_is_measured_from_its_arrival_by_the_new_bound() {
    run_all(
        &[
            pool("queue 9 none \n node n1 p1 \n group m p1"),
            pool("queue 9 5s \n node n1 p1 \n group m p1"),
            pool("queue 9 50s \n node n1 p1 \n group m p1"),
        ],
        "
        admit r1 m    =>
        wait 3s       =>
        admit r2 m    =>
        wait 3s       =>
        configure 1   => refuse r1 QueueTimeout
        configure 2   =>
        wait 46s      =>
        wait 1s       => refuse r2 QueueTimeout
        ",
    );
}

// req: POL-6, POL-9
#[test]
fn added_providers_are_live_at_once_and_removed_ones_finish_their_leases() {
    run_all(
        &[
            pool("node n1 p1:cap=2 \n group m p1"),
            pool("node n1 p2 \n group m p2"),
            pool("node n1 p1:cap=2 p2 \n group m p1 p2"),
        ],
        &format!(
            "{CONNECTED}
            admit r1 m    => grant r1 l1 p1
            admit r2 m    => grant r2 l2 p1
            admit r3 m    =>
            configure 1   => grant r3 l3 p2
            end l1 c1     =>
            admit r4 m    =>
            configure 2   => grant r4 l4 p1
            show          => queued=0 leases=4 cancelling=0, n1 up, p1 on cap=2/2 run=2/0 wait=0/0, p2 on cap=1/1 run=1/0 wait=0/0
            end l4 c1     =>
            configure 1   =>
            end l2 c1     =>
            fail l3 c1    => failed r3 l3
            "
        ),
    );
}

#[test]
fn a_node_that_left_the_configuration_is_fenced_and_closed() {
    run_all(
        &[
            pool("node n1 p1 \n node n2 p2 \n group m p1 \n group k p2"),
            pool("node n1 p1 \n group m p1 \n group k p1"),
        ],
        &format!(
            "{CONNECTED}
            register c2 n2 => accepted c2
            ready c2 n2    => ready c2, connected n2 g2
            admit r1 k     => grant r1 l1 p2
            admit r2 k     =>
            configure 1    => down n2 g2 leases=1, fenced r1 l1, shut c2 Removed, grant r2 l2 p1
            ready c2 n2    => unready c2 Stale
            close c2       =>
            register c3 n2 => rejected c3 UnknownNode
            configure 0    =>
            register c4 n2 => accepted c4
            configure 1    => shut c4 Removed
            "
        ),
    );
}

// req: POL-3
#[test]
fn a_provider_that_moved_to_another_node_is_another_provider() {
    run_all(
        &[pool("node n1 p1 \n node n2 \n group m p1"), pool("node n1 \n node n2 p1 \n group m p1")],
        &format!(
            "{CONNECTED}
            register c2 n2 => accepted c2
            ready c2 n2    => ready c2, connected n2 g2
            admit r1 m     => grant r1 l1 p1
            admit r2 m     =>
            configure 1    => grant r2 l2 p1
            show           => queued=0 leases=2 cancelling=0, n1 up, n2 up, p1 on cap=1/1 run=1/0 wait=0/0
            close c2       => down n2 g2 leases=1, fenced r2 l2
            end l1 c1      =>
            "
        ),
    );
}

#[test]
fn a_requeued_request_is_judged_by_the_configuration_in_force() {
    run_all(
        &[pool("node n1 p1 \n group m p1"), pool("node n1 p1 \n group other p1")],
        &format!(
            "{CONNECTED}
            admit r1 m     => grant r1 l1 p1
            configure 1    =>
            busy l1 c1     => requeued r1 l1, refuse r1 UnknownModel
            gone l1 sent   =>
            "
        ),
    );
}
