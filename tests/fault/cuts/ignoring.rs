//! Providers that ignore that their client has left: their slot is *cancelling*, they get nothing new, and not for ever.

use std::time::{Duration, Instant};

use anyhow::ensure;
use iop_tests::{
    bench::{Bench, NODE, SOON, assert_broken_stream, eventually, provider_at, site, start_node_with, yaml},
    fault_proxy::FaultProxy,
    http::Raw,
};

use super::{Manner, Rest, in_flight, nothing_runs, the_next_hundred_are_served};

/// How long the Node waits for a provider that neither closes nor sends (STL-4).
const CLOSE_GRACE: Duration = Duration::from_secs(5);
/// When the Edge takes a slot back whatever the Node says (POL-11).
const CANCEL_BOUND: Duration = Duration::from_secs(10);
/// Timers of different processes are compared, and each is asked for its state from outside.
const BLUR: Duration = Duration::from_millis(500);

/// Case 15.
// req: POL-11, PRE-3
#[test]
fn a_provider_that_ignores_the_abort_gets_nothing_new_until_the_grace_is_over_and_then_serves()
-> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let rest = Rest::of(&bench)?;
    let mut client = bench.begin(true, "events=1000 gap=5ms ignore-abort=30s")?;
    client.wait_for("data:")?;
    drop(client);
    let left = Instant::now();
    eventually(SOON, "the provider has seen the abort", || Ok(bench.seen("aborts_seen")? == 1))?;
    is_cancelling(&bench)?;
    let mut next = bench.begin(false, "")?;
    let mut waited = false;
    while bench.seen("requests_started")? == 1 {
        ensure!(left.elapsed() < CANCEL_BOUND + BLUR, "the slot is held longer than POL-11 says");
        // As long as it is not given anything, it is because its slot is taken.
        waited |= bench.metric("iop_edge_queued")? == 1.0 && in_flight(&bench)? == 1.0;
        std::thread::sleep(Duration::from_millis(20));
    }
    let held = left.elapsed();
    ensure!(waited && held >= CLOSE_GRACE - BLUR, "a provider at work was given a run after {held:?}");
    ensure!(bench.seen("requests_open")? >= 1, "the first one still has not returned");
    ensure!(next.answer()?.status == 200);
    println!("ignored: the slot was cancelling for {held:?}");
    ensure!(bench.node_metric("iop_node_aborts_total{return=\"unconfirmed\"}")? == 1.0);
    ensure!(bench.metric("iop_edge_control_events_total{event=\"cancelled\"}")? == 1.0);
    // What the scripted provider ignores it ignores for 30 s; nothing of ours waits for that.
    the_next_hundred_are_served(&bench)?;
    drop(next);
    eventually(SOON * 10, "it has returned at last", || Ok(bench.seen("requests_open")? == 0))?;
    rest.is_back(&bench)
}

/// One slot is taken, by nobody who could be answered; a Node waits for it.
fn is_cancelling(bench: &Bench) -> anyhow::Result<()> {
    eventually(SOON, "the slot is cancelling", || {
        let cancelling = bench.metric("iop_edge_leases_cancelling")?;
        let status = iop_tests::http::get(&bench.edge.ops, "/status", None)?.json()?;
        Ok(cancelling == 1.0
            && status["cancelling"] == 1
            && status["nodes"][0]["providers"][0]["in_flight"] == 1
            && bench.metric("iop_edge_requests_active")? == 0.0
            && bench.node_metric("iop_node_runs_aborting")? == 1.0
            && bench.node_metric("iop_node_runs_in_flight")? == 1.0)
    })
}

// req: POL-11
#[test]
fn the_slot_is_free_when_the_provider_has_returned_however_its_client_left() -> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let rest = Rest::of(&bench)?;
    for (round, script) in [
        "stall-before-headers ignore-abort=3s",
        "stall-after-headers ignore-abort=3s",
        "events=1000 gap=5ms ignore-abort=3s",
    ]
    .into_iter()
    .cycle()
    .take(9)
    .enumerate()
    {
        let asked = bench.seen("requests_started")?;
        let client = bench.begin(script.starts_with("events") || round % 2 == 0, script)?;
        eventually(SOON, "the provider works", || Ok(bench.seen("requests_open")? == 1))?;
        let _half = Manner::of(round).cut(client)?;
        is_cancelling(&bench)?;
        // A request that waits is sent when the provider has returned, and not before.
        let mut next = bench.begin(false, "")?;
        eventually(SOON * 2, "the next one is sent", || {
            let (started, open) = (bench.seen("requests_started")?, bench.seen("requests_open")?);
            ensure!(started == asked + 1 || open <= 1, "two at a time with one slot");
            Ok(started == asked + 2)
        })?;
        ensure!(next.answer()?.status == 200, "{script}");
    }
    ensure!(bench.stats()?["requests_open_peak"] == 1, "never two at a time with one slot");
    ensure!(bench.node_metric("iop_node_aborts_total{return=\"confirmed\"}")? == 9.0);
    nothing_runs(&bench)?;
    rest.is_back(&bench)
}

// req: TUN-4
#[test]
fn a_provider_that_only_notices_failing_writes_is_stopped_too() -> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let rest = Rest::of(&bench)?;
    let scripts =
        ["events=100000 gap=20ms deaf", "events=10000000 deaf", "events=10000000 bytes=100k gap=1ms deaf"];
    for (round, script) in scripts.into_iter().cycle().take(9).enumerate() {
        let mut client = bench.begin(true, script)?;
        client.wait_for("data:")?;
        let _half = Manner::of(round).cut(client)?;
        let expected = round as u64 + 1;
        eventually(SOON, "a write of it has failed", || Ok(bench.seen("aborts_seen")? == expected))?;
        nothing_runs(&bench)?;
    }
    ensure!(bench.node_metric("iop_node_aborts_total{return=\"still_sending\"}")? == 9.0);
    the_next_hundred_are_served(&bench)?;
    rest.is_back(&bench)
}

// req: TUN-8, PRE-3
#[test]
fn a_deadline_keeps_the_slot_of_a_provider_that_has_not_returned() -> anyhow::Result<()> {
    let bench = Bench::with(
        &[],
        |provider| iop_tests::ProviderYaml {
            capacity: 1,
            extra: "request_timeout_ms: 1000".to_owned(),
            ..provider
        },
        |edge| edge,
    )?;
    let rest = Rest::of(&bench)?;
    let mut late = bench.begin(false, "prefill=60s ignore-abort=1500ms")?;
    eventually(SOON, "it runs", || Ok(bench.seen("requests_open")? == 1))?;
    let mut next = bench.begin(false, "")?;
    let answer = late.answer()?;
    ensure!(answer.status == 504, "{}", answer.head);
    ensure!(next.answer()?.status == 200);
    drop((late, next));
    ensure!(bench.stats()?["requests_open_peak"] == 1, "never two at a time with one slot");
    nothing_runs(&bench)?;
    rest.is_back(&bench)
}

/// A Node that loses its Edge does not wait for a provider that ignores the end, neither with dialling nor with ending what else
/// ran; and what it has of that provider does not follow it into the next session.
// req: PRE-2
#[test]
fn a_provider_that_ignores_the_end_does_not_hold_up_a_reconnect() -> anyhow::Result<()> {
    const AT_ONCE: &str = "reconnect: { interval_sec: 0, max_attempts: 100000 }";
    let site = site()?;
    let provider = site.provider(&[])?;
    let yaml = yaml().with(iop_tests::ProviderYaml { capacity: 2, ..provider_at(&provider.base_url()) });
    let edge = site.edge(&yaml)?;
    let link = FaultProxy::start(&edge.node)?;
    let (node, node_ops) = start_node_with(&site, NODE, &link.address(), AT_ONCE)?;
    let bench = Bench { node, node_ops, edge, provider, site, panics: false };
    let mut runs = bench.begin(true, "events=100000 gap=5ms")?;
    runs.wait_for("data:")?;
    let mut client = bench.begin(true, "events=1000 gap=5ms ignore-abort=20s")?;
    client.wait_for("data:")?;
    drop(client);
    let left = Instant::now();
    eventually(SOON, "the slot is cancelling", || {
        Ok(bench.metric("iop_edge_leases_cancelling")? == 1.0
            && bench.node_metric("iop_node_runs_aborting")? == 1.0)
    })?;
    link.reset();
    let connections = || bench.node.text().matches("node ready").count();
    eventually(SOON, "the node is back", || Ok(connections() == 2))?;
    let back = left.elapsed();
    println!("back {back:?} after the client had left");
    ensure!(back < CLOSE_GRACE, "it waited for the provider: {back:?}");
    ensure!(bench.seen("requests_open")? >= 1, "the provider still ignores the end");
    let head = runs.read_head()?;
    assert_broken_stream(&runs.body_of(head)?, "upstream_error");
    eventually(SOON, "the Edge has both slots back", || Ok(bench.metric("iop_edge_leases")? == 0.0))?;
    ensure!(bench.chat(true, "events=2")?.is_done(), "the next one is served");
    eventually(SOON, "what ran has been stopped too", || Ok(bench.seen("aborts_seen")? == 2))?;
    ensure!(connections() == 2, "the connection stays");
    eventually(SOON * 10, "it has returned at last", || Ok(bench.seen("requests_open")? == 0))?;
    nothing_runs(&bench)
}

/// A Node that is told to stop, twice, does not wait for it either.
#[test]
fn a_provider_that_ignores_the_end_does_not_hold_up_a_stop() -> anyhow::Result<()> {
    let mut bench = Bench::one_slot()?;
    let mut client = bench.begin(true, "events=1000 gap=5ms ignore-abort=60s")?;
    client.wait_for("data:")?;
    drop(client);
    is_cancelling(&bench)?;
    // A second signal ends it at once.
    bench.node.signal(libc::SIGTERM);
    bench.node.wait_for("node draining")?;
    bench.node.signal(libc::SIGTERM);
    ensure!(bench.node.wait_exit(SOON * 2)? == 0);
    eventually(SOON, "the Edge has its slot back", || Ok(bench.metric("iop_edge_leases")? == 0.0))
}

/// A provider that goes on after its own `[DONE]` for a client that has what it wanted.
#[test]
fn a_provider_that_goes_on_after_done_is_stopped_a_moment_later() -> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let rest = Rest::of(&bench)?;
    for round in 0..3 {
        let mut client = bench.begin(true, "events=100000 gap=5ms done-after=2")?;
        client.wait_for("[DONE]")?;
        let _half: Option<Raw> = Manner::of(round).cut(client)?;
        eventually(SOON, "it is stopped", || Ok(bench.seen("aborts_seen")? == round as u64 + 1))?;
        nothing_runs(&bench)?;
    }
    ensure!(bench.outcomes("ok")? == 3.0, "the clients had their answers");
    rest.is_back(&bench)
}
