//! Who waits, in which order, and for how long.

use control::{
    Machine,
    effect::{Effect, Refusal},
    input::{Input, Moment, RequestId},
};
use sim::world::{pool, seconds};

use crate::script::run;

const CONNECTED: &str = "
    register c1 n1 => accepted c1
    ready c1 n1    => ready c1, connected n1 g1
";

// req: POL-9
#[test]
fn the_oldest_that_can_run_is_granted_first_whatever_its_model() {
    run(
        "
        node n1 p1 p2
        group a p1
        group b p2
        group ab p1 p2
        ",
        &format!(
            "{CONNECTED}
            admit r1 a   => grant r1 l1 p1
            admit r2 b   => grant r2 l2 p2
            admit r3 a   =>
            admit r4 a   =>
            admit r5 ab  =>
            admit r6 b   =>
            end l2 c1    => grant r5 l3 p2
            end l3 c1    => grant r6 l4 p2
            end l1 c1    => grant r3 l5 p1
            end l5 c1    => grant r4 l6 p1
            "
        ),
    );
}

// req: POL-9
#[test]
fn a_blocked_head_never_stops_a_follower_that_can_run() {
    run(
        "
        node n1 p1:cap=2,long=1,needs=3 p2:needs=1
        group m p1 p2
        ",
        &format!(
            "{CONNECTED}
            admit r1 m long           => grant r1 l1 p1
            admit r2 m needs=3 long   =>
            admit r3 m needs=3        => grant r3 l2 p1
            admit r4 m needs=2        =>
            admit r5 m                => grant r5 l3 p2
            admit r6 m avoid=p2       =>
            admit r7 m                =>
            end l3 c1                 => grant r7 l4 p2
            end l2 c1                 => grant r4 l5 p1
            end l1 c1                 => grant r2 l6 p1
            end l5 c1                 => grant r6 l7 p1
            "
        ),
    );
}

// req: POL-9
#[test]
fn what_waits_behind_a_blocked_head_does_not_overtake_older_ones_of_another_kind() {
    run(
        "
        node n1 p1 p2
        group m p1 p2
        ",
        &format!(
            "{CONNECTED}
            admit r1 m                   => grant r1 l1 p1
            admit r2 m                   => grant r2 l2 p2
            admit r3 m needs=1 avoid=p1  =>
            admit r4 m                   =>
            admit r5 m needs=1           =>
            end l1 c1                    => grant r4 l3 p1
            end l3 c1                    => grant r5 l4 p1
            end l4 c1                    =>
            end l2 c1                    => grant r3 l5 p2
            "
        ),
    );
}

// req: POL-5
#[test]
fn the_bound_counts_all_pending_requests_and_refuses_the_newest_at_once() {
    let world = run(
        "
        queue 2 30s
        node n1 p1 p2
        group a p1
        group b p2
        ",
        &format!(
            "{CONNECTED}
            admit r1 a    => grant r1 l1 p1
            admit r2 a    =>
            admit r3 a    =>
            admit r4 a    => refuse r4 QueueFull
            admit r5 b    => grant r5 l2 p2
            admit r6 b    => refuse r6 QueueFull
            end l1 c1     => grant r2 l3 p1
            admit r7 b    =>
            admit r8 a    => refuse r8 QueueFull
            "
        ),
    );
    assert_eq!(world.machine.counters().queue_full, 3);
}

// req: POL-5
#[test]
fn each_wait_is_bounded_by_the_timeout() {
    let world = run(
        "
        queue 9 5s
        node n1 p1
        group m p1
        ",
        &format!(
            "{CONNECTED}
            admit r1 m    => grant r1 l1 p1
            admit r2 m    =>
            wait 3s       =>
            admit r3 m    =>
            wait 1999ms   =>
            wait 1ms      => refuse r2 QueueTimeout
            end l1 c1     => grant r3 l2 p1 after 2s
            wait 60s      =>
            "
        ),
    );
    assert_eq!((world.machine.counters().queue_timeouts, world.machine.poll_timeout()), (1, None));
}

// req: POL-5
#[test]
fn without_a_timeout_requests_wait_for_ever() {
    let world = run(
        "
        queue 9 none
        node n1 p1
        group m p1
        ",
        "
        admit r1 m     =>
        wait 1000000s  =>
        register c1 n1 => accepted c1
        ready c1 n1    => ready c1, connected n1 g1, grant r1 l1 p1 after 1000000s
        ",
    );
    assert_eq!(world.machine.poll_timeout(), None);
}

// req: POL-5
#[test]
fn a_configured_candidate_that_is_offline_is_waited_for_and_an_impossible_one_is_not() {
    run(
        "
        node n1 p1 p2:off
        node n2 p3:needs=2
        group m p1 p2
        group off p2
        group far p3
        group none
        ",
        &format!(
            "
            admit r1 far           =>
            admit r2 far needs=1   => refuse r2 Unservable
            admit r3 off           => refuse r3 Unservable
            admit r4 none          => refuse r4 Unservable
            admit r5 nothing       => refuse r5 UnknownModel
            {CONNECTED}
            admit r6 m             => grant r6 l1 p1
            admit r7 m avoid=p1    => refuse r7 Unservable
            "
        ),
    );
}

// req: POL-10
#[test]
fn a_client_that_leaves_frees_its_place_at_once() {
    let world = run(
        "
        queue 1 30s
        node n1 p1
        group m p1
        ",
        &format!(
            "{CONNECTED}
            admit r1 m    => grant r1 l1 p1
            admit r2 m    =>
            admit r3 m    => refuse r3 QueueFull
            withdraw r2   =>
            admit r4 m    =>
            withdraw r2   =>
            withdraw r1   =>
            end l1 c1     => grant r4 l2 p1
            withdraw r4   =>
            wait 60s      =>
            show          => queued=0 leases=2 cancelling=0, n1 up, p1 on cap=1/1 run=1/0 wait=0/0
            "
        ),
    );
    assert_eq!((world.machine.counters().withdrawn, world.machine.counters().stale_inputs), (1, 3));
}

// req: POL-5
#[test]
fn a_late_driver_finds_the_timeout_done_before_its_input() {
    let mut machine = Machine::new(pool(
        "
        queue 9 5s
        node n1 p1
        group m p1
        ",
    ));
    let admit = |id| {
        Input::Admit(control::input::Admit {
            request: RequestId(id),
            group: "m".into(),
            needs: control::config::Capabilities(0),
            long: false,
            avoid: Vec::new(),
        })
    };
    machine.handle(Moment(0), admit(1));
    machine.handle(Moment(0).after(seconds(6)), Input::Withdraw { request: RequestId(1) });
    let refusal = Effect::Refuse { request: RequestId(1), reason: Refusal::QueueTimeout };
    assert_eq!((machine.poll_effect(), machine.poll_effect()), (Some(refusal), None));
    // Time that goes backwards counts as the latest: the second wait ends 5 s after the latest moment told.
    machine.handle(Moment(0), admit(2));
    assert_eq!(machine.poll_timeout(), Some(Moment(0).after(seconds(11))));
    // An admission of a request that waits already is void.
    machine.handle(Moment(0), admit(2));
    assert_eq!((machine.counters().admitted, machine.poll_effect()), (2, None));
}
