//! What users of such gateways reported about clients that leave and slots that do not come back: cases 11 to 14 and 16 to 18.
//! Case 15 is in `ignoring`.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use iop_tests::{
    EdgeYaml, ProviderYaml,
    bench::{Bench, MODEL, SOON, eventually},
    http::{self, Raw},
    random::Random,
};

use super::{Asker, Manner, Rest, how_long, nothing_runs, the_next_hundred_are_served};

fn with_slots(slots: u32, waiting: usize) -> anyhow::Result<Bench> {
    Bench::with(
        &[],
        |provider| ProviderYaml { capacity: slots, ..provider },
        |edge| EdgeYaml { pool: format!("max_queue: {waiting}"), ..edge },
    )
}

/// Cases 11 and 12: a client that leaves during a long silence, whether or not it asked for a stream.
// req: TUN-4
#[test]
fn a_client_that_leaves_during_a_silent_minute_is_noticed_at_once() -> anyhow::Result<()> {
    for (stream, script, patience) in
        [(false, "prefill=60s", 1), (true, "prefill=60s", 2), (true, "prefill=60s late-head", 2)]
    {
        let bench = Bench::one_slot()?;
        let client = bench.begin(stream, script)?;
        eventually(SOON, "the provider works", || Ok(bench.seen("requests_open")? == 1))?;
        // The client's own patience, as in the report.
        thread::sleep(Duration::from_secs(patience));
        let mut stats = Asker::stats(&bench)?;
        ensure!(stats.count("requests_open")? == 1 && bench.metric("iop_edge_leases")? == 1.0);
        drop(client);
        let seen = how_long("the provider sees the abort", || Ok(stats.count("aborts_seen")? == 1))?;
        let free = seen + how_long("the slot is free", || Ok(bench.metric("iop_edge_leases")? == 0.0))?;
        println!("stream {stream}, {script}: abort seen after {seen:?}, slot free after {free:?}");
        ensure!(seen < SOON && free < SOON);
        nothing_runs(&bench)?;
    }
    Ok(())
}

/// Case 13.
#[test]
fn a_hundred_clients_that_drop_at_once_leave_nothing_open() -> anyhow::Result<()> {
    let bench = with_slots(100, 0)?;
    let rest = Rest::of(&bench)?;
    let scripts =
        ["stall-before-headers", "stall-after-headers", "events=100000 gap=10ms", "prefill=60s ping=20ms"];
    let crowd: Vec<Raw> = (0..100)
        .map(|n| bench.begin(n % 8 != 0, scripts.get(n % scripts.len()).copied().unwrap_or_default()))
        .collect::<Result<_, _>>()?;
    eventually(SOON * 2, "all of them run", || Ok(bench.seen("requests_open")? == 100))?;
    ensure!(bench.node_metric("iop_node_runs_in_flight")? == 100.0);
    let mut stats = Asker::stats(&bench)?;
    drop(crowd);
    let took = how_long("no request is open", || Ok(stats.count("requests_open")? == 0))?;
    println!("a hundred dropped at once: provider free after {took:?}");
    ensure!(stats.count("aborts_seen")? == 100);
    drop(stats);
    nothing_runs(&bench)?;
    rest.is_back(&bench)
}

/// Case 14: also where the Node has tried a kept connection and is on its second, fresh one, nothing more is tried.
// req: POL-10, TUN-7
#[test]
fn nothing_is_tried_for_a_client_that_left_while_it_waited_or_its_request_was_tried_again()
-> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let rest = Rest::of(&bench)?;
    for round in 1..=20 {
        // The provider will drop the connection of this one when it is used again.
        ensure!(bench.chat(false, "drop-next-reused")?.status == 200);
        let again = bench.begin(false, "stall-before-headers")?;
        eventually(SOON, "it is tried on a fresh connection", || {
            Ok(bench.seen("connections_dropped_on_reuse")? == round && bench.seen("requests_open")? == 1)
        })?;
        let waiting = bench.begin(true, "")?;
        eventually(SOON, "one waits", || Ok(bench.metric("iop_edge_queued")? == 1.0))?;
        let manner = Manner::of(usize::try_from(round)?);
        let _halves = (manner.cut(waiting)?, manner.cut(again)?);
        eventually(SOON, "it is stopped", || Ok(bench.seen("aborts_seen")? == round))?;
        nothing_runs(&bench)?;
        ensure!(bench.seen("requests_started")? == 2 * round, "something was started for nobody");
    }
    rest.is_back(&bench)
}

/// Case 16: an assistant that opens a stream to be quick, drops it, and asks properly.
// req: TUN-4
#[test]
fn a_thousand_speculative_streams_that_are_dropped_leave_a_slot_for_every_proper_request()
-> anyhow::Result<()> {
    const ROUNDS: usize = 1000;
    let bench = Bench::one_slot()?;
    let rest = Rest::of(&bench)?;
    let begun = Instant::now();
    let mut proper = bench.client()?;
    for round in 0..ROUNDS {
        let mut speculative = bench.begin(true, "events=100000 gap=1ms")?;
        speculative.wait_for("\"content\":\"")?;
        let _half = Manner::of(round).cut(speculative)?;
        // No wait in between.
        proper.send(bench.request(round % 2 == 0, "events=2"))?;
        let answer = proper.answer()?;
        ensure!(
            (answer.status, answer.whole) == (200, true),
            "round {round}: {} {}",
            answer.head,
            answer.text()
        );
    }
    println!("{ROUNDS} rounds in {:?}", begun.elapsed());
    drop(proper);
    nothing_runs(&bench)?;
    ensure!(bench.seen("aborts_seen")? == ROUNDS as u64);
    ensure!(bench.seen("requests_open_peak")? == 1, "never two at a time with one slot");
    the_next_hundred_are_served(&bench)?;
    rest.is_back(&bench)
}

/// Case 17: a storm of failures of the provider.
#[test]
fn after_five_hundred_failures_of_the_provider_the_next_request_is_served_at_once() -> anyhow::Result<()> {
    const SLOTS: u32 = 10;
    const EACH: usize = 50;
    let faults = [
        ("status=502", 502),
        ("status=504 error-body=html", 504),
        ("status=503 retry-after=1", 503),
        ("no-reply", 502),
        ("rst-before-headers", 502),
        ("garbage", 502),
        ("rst-after=3", 0),
        ("truncate-after=3", 0),
        ("stall-before-headers", 504),
        ("stall-after=2", 0),
    ];
    let bench = Bench::with(
        &[],
        |provider| ProviderYaml { capacity: SLOTS, extra: "request_timeout_ms: 3000".to_owned(), ..provider },
        |edge| EdgeYaml { pool: "max_queue: 100".to_owned(), ..edge },
    )?;
    let rest = Rest::of(&bench)?;
    thread::scope(|storm| -> anyhow::Result<()> {
        let clients: Vec<_> = (0..faults.len())
            .map(|first| {
                let (edge, token, faults) = (&bench.edge.http, bench.site.token(), &faults);
                storm.spawn(move || -> anyhow::Result<()> {
                    for number in 0..EACH {
                        let (script, status) = faults[(first + number) % faults.len()];
                        let body = http::chat_body(MODEL, status == 0, script);
                        let answer = http::chat(edge, token, &body)?;
                        let expected = if status == 0 { 200 } else { status };
                        ensure!(answer.status == expected, "{script}: {} {}", answer.head, answer.text());
                        ensure!(
                            status != 0 || (!answer.whole && !answer.is_done()),
                            "{script}: not a failure"
                        );
                    }
                    Ok(())
                })
            })
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?)
    })?;
    let begun = Instant::now();
    ensure!(bench.chat(true, "events=2")?.is_done());
    println!("{} failures; the next request took {:?}", faults.len() * EACH, begun.elapsed());
    ensure!(bench.metric("iop_edge_queue_wait_seconds_count")? >= 501.0);
    nothing_runs(&bench)?;
    the_next_hundred_are_served(&bench)?;
    rest.is_back(&bench)
}

/// Case 18: the moment of the cut is moved through the whole life of a request, in steps and at random, so that it falls on
/// every point at which a task of Edge or Node waits.
// req: FEN-2, TUN-4
#[test]
fn a_cut_at_any_moment_returns_its_lease_exactly_once() -> anyhow::Result<()> {
    const ROUNDS: u64 = 400;
    const STEP: Duration = Duration::from_micros(40);
    let bench = with_slots(2, 64)?;
    let rest = Rest::of(&bench)?;
    let mut random = Random::for_test("cuts at any moment");
    let large = "x".repeat(300_000);
    let mut held = Vec::new();
    for round in 0..ROUNDS {
        let script = match random.within(0..6) {
            0 => "events=3",
            1 => "events=50 gap=200us",
            2 => "prefill=5ms events=2",
            3 => "events=200 bytes=2000 split=100",
            4 => "late-head prefill=3ms events=1 connection-close",
            _ => "events=2 drop-next-reused",
        };
        let mut body = http::chat_body(MODEL, random.within(0..3) > 0, script);
        if random.within(0..4) == 0 {
            body["messages"][0]["content"] = large.clone().into();
        }
        let request = http::chat_request(bench.site.token(), &body);
        let sent = if random.within(0..10) == 0 {
            random.within(0..request.len() as u64)
        } else {
            request.len() as u64
        };
        let mut client = bench.client()?;
        client.send(request.get(..usize::try_from(sent)?).context("a part")?)?;
        // Busy, because a sleep's own error is larger than a step.
        let until = Instant::now() + STEP * u32::try_from(round % 200)? + random.before(STEP);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        held.extend(Manner::of(usize::try_from(random.within(0..3))?).cut(client)?);
        if held.len() > 8 {
            held.clear();
        }
    }
    drop(held);
    nothing_runs(&bench)?;
    let event = |event: &str| bench.metric(&format!("iop_edge_control_events_total{{event=\"{event}\"}}"));
    println!(
        "{ROUNDS} cuts: {} granted, {} cancelled, {} withdrawn; aborts seen {}",
        event("granted")?,
        event("cancelled")?,
        event("withdrawn")?,
        bench.seen("aborts_seen")?
    );
    ensure!(event("granted")? > 0.0 && event("cancelled")? > 0.0);
    the_next_hundred_are_served(&bench)?;
    rest.is_back(&bench)
}

/// What a client has sent behind the request that it gives up is given up with it.
#[test]
fn a_request_behind_one_that_is_cut_is_never_started() -> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let rest = Rest::of(&bench)?;
    for round in 1..=20 {
        let mut client = bench.client()?;
        client.send([bench.request(true, "events=1000 gap=5ms"), bench.request(true, "")].concat())?;
        client.wait_for("data:")?;
        // A half-close is no exception: what waits behind it is for an answer that is not wanted any more.
        let _half = Manner::of(round).cut(client)?;
        eventually(SOON, "it is stopped", || Ok(bench.seen("aborts_seen")? == round as u64))?;
        nothing_runs(&bench)?;
        ensure!(bench.seen("requests_started")? == round as u64);
    }
    the_next_hundred_are_served(&bench)?;
    rest.is_back(&bench)
}
