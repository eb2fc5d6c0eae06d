//! How a slot comes back.

use control::{
    LEASES_MAX, Machine,
    config::Capabilities,
    effect::{Effect, Grant},
    input::{Admit, ConnectionId, Input, LeaseId, Moment, RequestId},
};
use sim::world::pool;

use crate::script::run;

const ONE: &str = "
    queue 2 30s
    node n1 p1
    group m p1
";

const CONNECTED: &str = "
    register c1 n1 => accepted c1
    ready c1 n1    => ready c1, connected n1 g1
";

// req: HND-2
#[test]
fn a_terminal_returns_the_slot_once() {
    let world = run(
        ONE,
        &format!(
            "{CONNECTED}
            admit r1 m     => grant r1 l1 p1
            admit r2 m     =>
            end l1 c1      => grant r2 l2 p1
            end l1 c1      =>
            gone l1 sent   =>
            gone l1 sent   =>
            notsent l1     =>
            admit r3 m     =>
            "
        ),
    );
    assert_eq!((world.machine.counters().granted, world.machine.counters().settled), (2, 1));
}

// req: HND-2
#[test]
fn an_error_of_the_node_is_delivered_to_the_holder() {
    run(
        ONE,
        &format!(
            "{CONNECTED}
            admit r1 m     => grant r1 l1 p1
            admit r2 m     =>
            fail l1 c1     => failed r1 l1, grant r2 l2 p1
            gone l1 sent   =>
            gone l2 sent   =>
            fail l2 c1     =>
            "
        ),
    );
}

// req: POL-11
#[test]
fn a_cancelling_lease_keeps_its_slot_until_the_terminal() {
    let world = run(
        ONE,
        &format!(
            "{CONNECTED}
            admit r1 m     => grant r1 l1 p1
            admit r2 m     =>
            gone l1 sent   =>
            show           => queued=1 leases=1 cancelling=1, n1 up, p1 on cap=1/1 run=1/0 wait=1/0
            wait 9s        =>
            end l1 c1      => grant r2 l2 p1 after 9s
            wait 60s       =>
            "
        ),
    );
    assert_eq!((world.machine.counters().cancelled, world.machine.counters().cancel_bound_reached), (1, 0));
}

// req: POL-11
#[test]
fn a_cancelling_lease_returns_its_slot_after_ten_seconds() {
    let world = run(
        ONE,
        &format!(
            "{CONNECTED}
            admit r1 m     => grant r1 l1 p1
            gone l1 sent   =>
            admit r2 m     =>
            wait 9999ms    =>
            wait 1ms       => grant r2 l2 p1 after 10s
            end l1 c1      =>
            show           => queued=0 leases=1 cancelling=0, n1 up, p1 on cap=1/1 run=1/0 wait=0/0
            "
        ),
    );
    assert_eq!((world.machine.counters().cancel_bound_reached, world.machine.counters().settled), (1, 1));
}

// req: POL-11
#[test]
fn fencing_returns_a_cancelling_slot() {
    run(
        ONE,
        &format!(
            "{CONNECTED}
            admit r1 m     => grant r1 l1 p1
            gone l1 sent   =>
            close c1       => down n1 g1 leases=1
            show           => queued=0 leases=0 cancelling=0, n1 down, p1 offline cap=0/0 run=0/0 wait=0/0
            wait 10s       =>
            "
        ),
    );
}

#[test]
fn a_holder_that_sent_nothing_returns_the_slot_at_once() {
    run(
        ONE,
        &format!(
            "{CONNECTED}
            admit r1 m     => grant r1 l1 p1
            admit r2 m     =>
            gone l1 unsent => grant r2 l2 p1
            end l1 c1      =>
            "
        ),
    );
}

// req: GAT-2
#[test]
fn a_busy_gate_readmits_once_at_the_old_place_and_refuses_the_second_time() {
    let world = run(
        ONE,
        &format!(
            "{CONNECTED}
            admit r1 m     => grant r1 l1 p1
            admit r2 m     =>
            admit r3 m     =>
            wait 2s        =>
            busy l1 c1     => requeued r1 l1, grant r1 l2 p1 try2
            gone l1 sent   =>
            busy l2 c1     => refuse r1 Busy, grant r2 l3 p1 after 2s
            gone l2 sent   =>
            "
        ),
    );
    let counters = world.machine.counters();
    assert_eq!((counters.busy, counters.requeued, counters.refused_busy), (2, 1, 1));
}

// req: GAT-2
#[test]
fn a_node_that_calls_itself_busy_after_it_began_to_answer_has_failed() {
    let world = run(
        ONE,
        &format!(
            "{CONNECTED}
            admit r1 m       => grant r1 l1 p1
            busy-late l1 c1  => failed r1 l1
            gone l1 sent     =>
            admit r2 m       => grant r2 l2 p1
            "
        ),
    );
    assert_eq!(world.machine.counters().requeued, 0);
}

// req: GAT-2, POL-9
#[test]
fn a_readmitted_request_waits_behind_older_and_before_younger_ones() {
    run(
        "
        node n1 p1
        node n2 p2
        group a p1
        group b p2
        group ab p1 p2
        ",
        &format!(
            "{CONNECTED}
            register c2 n2 => accepted c2
            ready c2 n2    => ready c2, connected n2 g2
            admit r1 a     => grant r1 l1 p1
            admit r2 ab    => grant r2 l2 p2
            admit r3 a     =>
            admit r4 ab    =>
            admit r5 b     =>
            wait 1s        =>
            busy l1 c1     => requeued r1 l1, grant r1 l3 p1 try2
            close c2       => down n2 g2 leases=1, fenced r2 l2
            notsent l2     => requeued r2 l2
            end l3 c1      => grant r2 l4 p1 try2
            end l4 c1      => grant r3 l5 p1 after 1s
            end l5 c1      => grant r4 l6 p1 after 1s
            "
        ),
    );
}

// req: GAT-2, POL-5
#[test]
fn a_readmitted_request_keeps_the_time_it_arrived_and_the_queue_its_bound() {
    run(
        ONE,
        &format!(
            "{CONNECTED}
            admit r1 m     => grant r1 l1 p1
            wait 20s       =>
            admit r2 m     =>
            admit r3 m     =>
            close c1       => down n1 g1 leases=1, fenced r1 l1
            notsent l1     => requeued r1 l1, refuse r3 QueueFull
            wait 9999ms    =>
            wait 1ms       => refuse r1 QueueTimeout
            wait 20s       => refuse r2 QueueTimeout
            gone l1 unsent =>
            "
        ),
    );
}

#[test]
fn nothing_is_told_to_a_request_whose_holder_is_gone() {
    run(
        ONE,
        &format!(
            "{CONNECTED}
            admit r1 m     => grant r1 l1 p1
            gone l1 sent   =>
            busy l1 c1     =>
            admit r2 m     => grant r2 l2 p1
            gone l2 sent   =>
            notsent l2     =>
            admit r3 m     => grant r3 l3 p1
            close c1       => down n1 g1 leases=1, fenced r3 l3
            gone l3 sent   =>
            notsent l3     =>
            show           => queued=0 leases=0 cancelling=0, n1 down, p1 offline cap=0/0 run=0/0 wait=0/0
            "
        ),
    );
}

#[test]
fn a_client_that_leaves_after_requeued_withdraws_as_any_waiting_one() {
    run(
        ONE,
        &format!(
            "{CONNECTED}
            admit r1 m     => grant r1 l1 p1
            close c1       => down n1 g1 leases=1, fenced r1 l1
            notsent l1     => requeued r1 l1
            gone l1 unsent =>
            withdraw r1    =>
            register c2 n1 => accepted c2
            ready c2 n1    => ready c2, connected n1 g2
            "
        ),
    );
}

#[test]
fn a_full_lease_table_makes_requests_wait_although_a_slot_is_free() {
    let config = pool(
        "
        node n1 p1:cap=100000
        group m p1
        ",
    );
    let mut machine = Machine::new(config);
    let now = Moment(1);
    let connection = ConnectionId(1);
    machine.handle(
        now,
        Input::Register { connection, certified: "n1".into(), claimed: "n1".into(), token_ok: true },
    );
    machine.handle(now, Input::Ready { connection, claimed: "n1".into() });
    let admit = |id| {
        Input::Admit(Admit {
            request: RequestId(id),
            group: "m".into(),
            needs: Capabilities(0),
            long: false,
            avoid: Vec::new(),
        })
    };
    let max = LEASES_MAX as u64;
    (0..max + 2).for_each(|id| machine.handle(now, admit(id)));
    let granted = |machine: &mut Machine| -> Vec<LeaseId> {
        let lease = |effect| match effect {
            Effect::Grant(Grant { lease, .. }) => Some(lease),
            _ => None,
        };
        std::iter::from_fn(|| machine.poll_effect()).filter_map(lease).collect()
    };
    assert_eq!(granted(&mut machine).len(), LEASES_MAX);
    // A settled record still counts until its holder is gone.
    machine.handle(now, Input::Terminal { connection, lease: LeaseId(5), error: None, sequence: 1 });
    assert_eq!(granted(&mut machine), []);
    machine.handle(now, Input::HolderGone { lease: LeaseId(5), sent: true });
    assert_eq!(granted(&mut machine), [LeaseId(max + 1)]);
    machine.handle(now, Input::HolderGone { lease: LeaseId(7), sent: false });
    assert_eq!(granted(&mut machine), [LeaseId(max + 2)]);
    assert_eq!(machine.audit(), Ok(()));
}
