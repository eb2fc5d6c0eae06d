//! Which candidate a request gets.

use std::time::Duration;

use control::{
    config::Capabilities,
    effect::{Effect, Grant},
    input::{Admit, Avoided, ConnectionId, Input, LeaseId, RequestId},
    limits::AVOIDED_MAX,
};
use sim::world::pool;

use crate::script::{run, run_all};

const CONNECTED: &str = "
    register c1 n1 => accepted c1
    ready c1 n1    => ready c1, connected n1 g1
";

// req: POL-2
#[test]
fn the_lowest_in_flight_wins_then_the_lower_priority_number() {
    run(
        "
        node n1 p1:cap=3,prio=1 p2:cap=3,prio=0
        group m p1 p2
        ",
        &format!(
            "{CONNECTED}
            admit r1 m  => grant r1 l1 p2
            admit r2 m  => grant r2 l2 p1
            admit r3 m  => grant r3 l3 p2
            admit r4 m  => grant r4 l4 p1
            end l2 c1   =>
            end l4 c1   =>
            admit r5 m  => grant r5 l5 p1
            admit r6 m  => grant r6 l6 p1
            admit r7 m  => grant r7 l7 p2
            "
        ),
    );
}

// req: POL-2
#[test]
fn full_ties_rotate() {
    run(
        "
        node n1 p1 p2 p3
        group m p1 p2 p3
        ",
        &format!(
            "{CONNECTED}
            admit r1 m  => grant r1 l1 p1
            end l1 c1   =>
            admit r2 m  => grant r2 l2 p2
            end l2 c1   =>
            admit r3 m  => grant r3 l3 p3
            end l3 c1   =>
            admit r4 m  => grant r4 l4 p1
            end l4 c1   =>
            admit r5 m  => grant r5 l5 p2
            "
        ),
    );
}

// req: POL-2
#[test]
fn a_long_request_takes_a_slot_of_both_kinds() {
    run(
        "
        node n1 p1:cap=2,long=1 p2:cap=2,long=0
        group m p1 p2
        group short p2
        ",
        &format!(
            "{CONNECTED}
            admit r1 m long     => grant r1 l1 p1
            admit r2 m long     =>
            admit r3 m          => grant r3 l2 p2
            admit r4 m          => grant r4 l3 p1
            admit r5 m          => grant r5 l4 p2
            admit r6 m          =>
            admit r7 short long => refuse r7 Unservable
            end l3 c1           => grant r6 l5 p1
            end l1 c1           => grant r2 l6 p1
            "
        ),
    );
}

// req: POL-1
#[test]
fn only_members_of_the_group_are_candidates() {
    run(
        "
        node n1 p1 p2
        group m p1 ghost
        ",
        &format!(
            "{CONNECTED}
            admit r1 m        => grant r1 l1 p1
            admit r2 m        =>
            admit r3 unknown  => refuse r3 UnknownModel
            "
        ),
    );
}

// req: POL-2, POL-5
#[test]
fn capabilities_and_the_enabled_switch_decide_what_is_servable() {
    run(
        "
        node n1 p1:needs=1 p2:needs=3 p3:needs=4,off
        group m p1 p2 p3
        ",
        &format!(
            "{CONNECTED}
            admit r1 m needs=2 => grant r1 l1 p2
            admit r2 m needs=3 =>
            admit r3 m needs=4 => refuse r3 Unservable
            admit r4 m needs=1 => grant r4 l2 p1
            admit r5 m needs=1 =>
            end l2 c1          => grant r5 l3 p1
            end l1 c1          => grant r2 l4 p2
            "
        ),
    );
}

// req: POL-3
#[test]
fn models_on_one_provider_share_its_capacity() {
    run(
        "
        node n1 p1:cap=2,long=1
        group a p1
        group b p1
        ",
        &format!(
            "{CONNECTED}
            admit r1 a long => grant r1 l1 p1
            admit r2 b long =>
            admit r3 b      => grant r3 l2 p1
            admit r4 a      =>
            end l1 c1       => grant r2 l3 p1
            end l2 c1       => grant r4 l4 p1
            "
        ),
    );
}

// req: POL-8
#[test]
fn an_avoided_provider_is_taken_only_by_the_flag_and_without_a_live_alternate() {
    run(
        "
        node n1 p1:cap=9
        node n2 p2
        group m p1 p2
        ",
        &format!(
            "{CONNECTED}
            admit r1 m avoid=p1             =>
            admit r2 m avoid=p1 fallback    => grant r2 l1 p1
            register c2 n2                  => accepted c2
            ready c2 n2                     => ready c2, connected n2 g2, grant r1 l2 p2
            admit r3 m avoid=p1 fallback    =>
            admit r4 m                      => grant r4 l3 p1
            close c2                        => down n2 g2 leases=1, fenced r1 l2, grant r3 l4 p1
            "
        ),
    );
}

// req: POL-8
#[test]
fn a_busy_alternate_is_waited_for_and_an_idle_one_preferred() {
    run(
        "
        node n1 p1:cap=2 p2:cap=1,prio=5 p3:needs=2
        group m p1 p2 p3
        group only p1
        ",
        &format!(
            "{CONNECTED}
            admit r1 m avoid=p1 needs=1             => grant r1 l1 p2
            admit r2 m avoid=p1 needs=1 fallback    =>
            admit r3 m avoid=p1 needs=1             =>
            admit r4 m avoid=p2 needs=1             => grant r4 l2 p1
            admit r5 m avoid=nobody needs=1         => grant r5 l3 p1
            admit r6 only avoid=p1                  => refuse r6 Unservable
            admit r7 only avoid=p1 fallback         =>
            end l2 c1                               => grant r7 l4 p1
            end l1 c1                               => grant r2 l5 p2
            end l5 c1                               => grant r3 l6 p2
            "
        ),
    );
}

// req: POL-8
#[test]
fn several_are_avoided_each_by_its_own_permission() {
    run(
        "
        node n1 p1:cap=9 p2:cap=9 p3:cap=1
        group m p1 p2 p3
        group two p1 p2
        ",
        &format!(
            "{CONNECTED}
            admit r1 m avoid=p1,p2              => grant r1 l1 p3
            admit r2 m avoid=p2+,p1+            =>
            admit r3 m avoid=p3+                => grant r3 l2 p1
            admit r4 m avoid=p1,p3,p2           => refuse r4 Unservable
            admit r5 m avoid=p1,p3,p2+          => grant r5 l3 p2
            admit r6 two avoid=p1+,p2           => grant r6 l4 p1
            admit r7 two avoid=p1,p2+           => grant r7 l5 p2
            admit r8 two avoid=p1,p2            => refuse r8 Unservable
            admit r9 two avoid=p1,nobody+       => grant r9 l6 p2
            admit r10 two avoid=nobody,x,y,p1   => grant r10 l7 p2
            admit r11 m avoid=p1+,p1,p2,p3      => refuse r11 Unservable
            end l1 c1                           => grant r2 l8 p3
            "
        ),
    );
}

// req: POL-8
#[test]
fn of_several_that_are_permitted_the_best_is_taken_and_only_without_a_live_alternate() {
    run(
        "
        node n1 p1:cap=2 p2:cap=2,prio=1
        node n2 p3
        node n3 p4:needs=2
        group m p1 p2 p3 p4
        ",
        &format!(
            "{CONNECTED}
            register c2 n2                      => accepted c2
            ready c2 n2                         => ready c2, connected n2 g2
            admit r1 m needs=1                  => grant r1 l1 p1
            admit r2 m needs=1 avoid=p1,p2      => grant r2 l2 p3
            admit r3 m needs=1 avoid=p1+,p2+    =>
            admit r4 m needs=1 avoid=p1,p2+     =>
            admit r5 m needs=1 avoid=p1,p2      =>
            close c2                            => down n2 g2 leases=1, fenced r2 l2, grant r3 l3 p2, grant r4 l4 p2
            admit r6 m needs=1 avoid=p1+,p2     => grant r6 l5 p1
            admit r7 m needs=1 avoid=p1+,p2+    =>
            register c4 n2                      => accepted c4
            ready c4 n2                         => ready c4, connected n2 g3, grant r5 l6 p3
            end l3 c1                           =>
            end l6 c4                           => grant r7 l7 p3
            "
        ),
    );
}

// req: POL-8
#[test]
fn of_more_than_may_be_avoided_the_oldest_are_not_looked_at() {
    let mut world = run(
        "
        node n1 p1:cap=9 p2:cap=9 p3 p4 p5
        group m p1 p2 p3 p4 p5
        ",
        CONNECTED,
    );
    let names = ["p1", "p2", "p3", "p4", "p5"];
    assert_eq!(names.len(), AVOIDED_MAX + 1);
    let avoid = |name: &str| Avoided { provider: name.into(), allow_fallback: false };
    let admit = Admit {
        request: RequestId(7),
        group: "m".into(),
        needs: Capabilities(0),
        long: false,
        avoid: names.iter().map(|name| avoid(name)).collect(),
    };
    // Beside the oracles, for which a list is what it says.
    world.machine.handle(world.now, Input::Admit(admit));
    let effect = world.machine.poll_effect();
    let Some(Effect::Grant(grant)) = effect else { panic!("{effect:?}") };
    assert_eq!(&*grant.provider, "p1");
}

// req: POL-8
#[test]
fn zero_values_of_avoidance_change_nothing() {
    run(
        "
        node n1 p1 p2
        group m p1
        ",
        &format!(
            "{CONNECTED}
            admit r1 m fallback          => grant r1 l1 p1
            admit r2 m avoid=p2          =>
            admit r3 m                   =>
            admit r4 m avoid=x fallback  =>
            end l1 c1                    => grant r2 l2 p1
            end l2 c1                    => grant r3 l3 p1
            end l3 c1                    => grant r4 l4 p1
            "
        ),
    );
}

// req: STL-2
#[test]
fn a_grant_names_everything_a_dispatch_needs() {
    let mut world = run_all(
        &[pool(
            "
            node n1 p1
            group m p1
            ",
        )],
        CONNECTED,
    );
    let admit = Admit {
        request: RequestId(7),
        group: "m".into(),
        needs: Capabilities(1),
        long: false,
        avoid: Vec::new(),
    };
    let expected = Grant {
        request: RequestId(7),
        lease: LeaseId(1),
        connection: ConnectionId(1),
        generation: 1,
        node: "n1".into(),
        direct: false,
        provider: "p1".into(),
        adapter: "p1-adapter".into(),
        target: "m@p1".into(),
        stall_timeout: Duration::from_secs(300),
        request_timeout: Duration::from_secs(600),
        queued_for: Duration::ZERO,
        attempt: 1,
    };
    assert_eq!(world.tell(Input::Admit(admit)), [Effect::Grant(expected)]);
}
