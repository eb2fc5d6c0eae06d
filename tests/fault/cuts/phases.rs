//! A hundred cuts in each phase of a request. No cut is made before its phase has been seen from outside.

use std::{
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use iop_tests::{
    EdgeYaml, Provider, ProviderYaml,
    bench::{Bench, SOON, eventually},
    http::{self, Raw},
    procfs,
    sockets::{self, SYN_SENT},
};

use super::{
    Asker, Manner, Rest, Times, how_long, in_flight, nothing_runs, stand::Stand, the_next_hundred_are_served,
};

const CUTS: usize = 100;
/// From the cut to the provider's having no open request, for 99 of 100 cuts.
const P99: Duration = Duration::from_millis(100);
/// In turn with them the same cuts are made at the provider itself, without us in between. On a machine that is slow at that
/// moment they show how slow: this many times their own 99th is allowed on top.
const SLOWNESS: u32 = 10;

/// Where a request is when its client leaves.
#[derive(Clone, Copy)]
struct Phase {
    stream: bool,
    script: &'static str,
    /// What the client has seen of the answer by then.
    seen: fn(&mut Raw) -> anyhow::Result<()>,
}

fn nothing(client: &mut Raw) -> anyhow::Result<()> {
    client.stream.set_nonblocking(true)?;
    let peeked = client.stream.peek(&mut [0]);
    client.stream.set_nonblocking(false)?;
    let silent = peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    ensure!(silent, "an answer has begun, or the connection has ended");
    Ok(())
}

/// Of the provider itself its head may have come; the Edge holds it back.
fn no_event(client: &mut Raw) -> anyhow::Result<()> {
    if nothing(client).is_err() {
        let head = client.read_head()?;
        ensure!(head.starts_with("HTTP/1.1 200 ") && client.buffered().is_empty(), "{head}");
    }
    Ok(())
}

fn first_events(client: &mut Raw) -> anyhow::Result<()> {
    client.wait_for("data:")
}

/// Three content events, which is all that there are, and not `[DONE]`.
fn all_but_done(client: &mut Raw) -> anyhow::Result<()> {
    while String::from_utf8_lossy(client.buffered()).matches("\"content\":\"").count() < 4 {
        ensure!(client.fill()? > 0, "the answer ended early");
    }
    ensure!(!String::from_utf8_lossy(client.buffered()).contains("[DONE]"));
    Ok(())
}

const BEFORE_HEADERS: Phase = Phase { stream: true, script: "stall-before-headers", seen: nothing };
const NO_STREAM: Phase = Phase { stream: false, script: "prefill=60s", seen: nothing };
const BEFORE_FIRST_BYTE: Phase = Phase { stream: true, script: "stall-after-headers", seen: no_event };
const MID_STREAM: Phase = Phase { stream: true, script: "events=100000 gap=5ms", seen: first_events };
const FAST_STREAM: Phase = Phase { stream: true, script: "events=10000000 bytes=4000", seen: first_events };
const AT_THE_END: Phase = Phase { stream: true, script: "events=3 stall-after=3", seen: all_but_done };

/// Cuts a hundred requests of one slot, one behind the other, and checks what is left of each and of all.
fn cut(phase: Phase) -> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let rest = Rest::of(&bench)?;
    let mut stats = Asker::stats(&bench)?;
    let (mut times, mut direct) = (Times::default(), Times::default());
    for round in 0..CUTS {
        let manner = Manner::of(round);
        let here = || format!("round {round}, {manner:?}");
        direct.push(directly(&bench, &bench.provider, &mut stats, phase, round)?);
        let mut client = bench.begin(phase.stream, phase.script)?;
        how_long("the provider works on it", || Ok(stats.count("requests_open")? == 1)).with_context(here)?;
        (phase.seen)(&mut client).with_context(here)?;
        ensure!(stats.count("requests_open")? == 1 && in_flight(&bench)? == 1.0, "{}: it runs", here());
        let _half = manner.cut(client)?;
        times.push(
            how_long("no request is open", || Ok(stats.count("requests_open")? == 0)).with_context(here)?,
        );
        nothing_runs(&bench).with_context(here)?;
    }
    ensure!(stats.count("requests_started")? == 2 * CUTS as u64, "each was sent to it once");
    ensure!(stats.count("aborts_seen")? == 2 * CUTS as u64, "it saw {} aborts", stats.count("aborts_seen")?);
    ensure!(bench.outcomes("client_gone")? == CUTS as f64);
    are_soon(phase.script, &times, &direct)?;
    drop(stats);
    the_next_hundred_are_served(&bench)?;
    rest.is_back(&bench)
}

/// Tells the times, and checks them.
fn are_soon(what: &str, times: &Times, direct: &Times) -> anyhow::Result<()> {
    println!(
        "{what}: {CUTS} cuts, all free after p50 {:?} p99 {:?}; without us p50 {:?} p99 {:?}",
        times.quantile(50),
        times.quantile(99),
        direct.quantile(50),
        direct.quantile(99)
    );
    let bound = P99 + SLOWNESS * direct.quantile(99);
    ensure!(times.quantile(99) <= bound, "p99 {:?} is over {bound:?}", times.quantile(99));
    Ok(())
}

/// The same cut at a provider itself, whose counters `stats` are.
fn directly(
    bench: &Bench,
    provider: &Provider,
    stats: &mut Asker,
    phase: Phase,
    round: usize,
) -> anyhow::Result<Duration> {
    // A half-close is for us to translate: this provider may be one that knows half-closed clients.
    let manner = if round.is_multiple_of(2) { Manner::Close } else { Manner::Reset };
    let here = || format!("at the provider itself, round {round}, {manner:?}");
    let mut client = Raw::connect(provider.url.trim_start_matches("http://"))?;
    client.send(bench.request(phase.stream, phase.script))?;
    how_long("the provider works on it", || Ok(stats.count("requests_open")? == 1)).with_context(here)?;
    (phase.seen)(&mut client).with_context(here)?;
    manner.cut(client)?;
    how_long("no request is open", || Ok(stats.count("requests_open")? == 0)).with_context(here)
}

// req: TUN-4, POL-11
#[test]
fn a_hundred_cuts_before_the_headers() -> anyhow::Result<()> {
    cut(BEFORE_HEADERS)
}

// req: TUN-4, POL-11
#[test]
fn a_hundred_cuts_of_requests_that_are_no_streams() -> anyhow::Result<()> {
    cut(NO_STREAM)
}

// req: TUN-4, POL-11
#[test]
fn a_hundred_cuts_between_the_providers_headers_and_its_first_byte() -> anyhow::Result<()> {
    cut(BEFORE_FIRST_BYTE)
}

// req: TUN-4, POL-11
#[test]
fn a_hundred_cuts_in_mid_stream() -> anyhow::Result<()> {
    cut(MID_STREAM)
}

// req: TUN-4, POL-11
#[test]
fn a_hundred_cuts_in_streams_at_full_speed() -> anyhow::Result<()> {
    cut(FAST_STREAM)
}

/// A client that has stopped reading: the Edge cannot write, and what the client says is behind nothing that it could read.
// req: TUN-4, POL-11
#[test]
fn a_client_that_has_stopped_reading_and_leaves_is_noticed_at_once() -> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let rest = Rest::of(&bench)?;
    let mut stats = Asker::stats(&bench)?;
    for (round, manner) in
        [Manner::Half, Manner::Close, Manner::Reset].into_iter().cycle().take(6).enumerate()
    {
        let here = || format!("round {round}, {manner:?}");
        let mut client = bench.begin(true, FAST_STREAM.script)?;
        first_events(&mut client)?;
        bench.stands_still().with_context(here)?;
        ensure!(stats.count("requests_open")? == 1 && in_flight(&bench)? == 1.0, "{}: it runs", here());
        let _half = manner.cut(client)?;
        // Long before the limit for a write, which is a minute.
        let took =
            how_long("no request is open", || Ok(stats.count("requests_open")? == 0)).with_context(here)?;
        println!("{manner:?} of a client that does not read: provider free after {took:?}");
        ensure!(took < SOON, "{}: {took:?}", here());
        nothing_runs(&bench).with_context(here)?;
        ensure!(bench.outcomes("client_gone")? == round as f64 + 1.0, "{}: the outcome", here());
        ensure!(stats.count("aborts_seen")? == round as u64 + 1, "{}: the provider was told", here());
    }
    drop(stats);
    the_next_hundred_are_served(&bench)?;
    rest.is_back(&bench)
}

// req: TUN-4, POL-11
#[test]
fn a_hundred_cuts_between_the_last_event_and_done() -> anyhow::Result<()> {
    cut(AT_THE_END)
}

#[test]
fn a_hundred_cuts_after_done_are_no_cuts() -> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let rest = Rest::of(&bench)?;
    for round in 0..CUTS {
        // In every second one the body's end is still to come: it is cut in two, with a pause between.
        let script = if round % 2 == 0 { "events=3" } else { "events=1 split-at=1 split-gap=10ms" };
        let mut client = bench.begin(true, script)?;
        client.wait_for("[DONE]")?;
        let _half = Manner::of(round).cut(client)?;
        // The next one comes while the end of this one may still be on its way.
        let answer = bench.chat(round % 2 == 0, "events=1")?;
        ensure!((answer.status, answer.whole) == (200, true), "round {round}: {}", answer.text());
    }
    nothing_runs(&bench)?;
    ensure!(bench.seen("aborts_seen")? == 0, "whole answers were taken for aborts");
    ensure!(bench.outcomes("ok")? == 2.0 * CUTS as f64, "{} ok", bench.outcomes("ok")?);
    the_next_hundred_are_served(&bench)?;
    rest.is_back(&bench)
}

// req: POL-10
#[test]
fn a_hundred_cuts_in_the_queue() -> anyhow::Result<()> {
    const WAVE: usize = 25;
    let bench = Bench::with(
        &[],
        |provider| ProviderYaml { capacity: 1, ..provider },
        |edge| EdgeYaml { pool: format!("max_queue: {WAVE}"), ..edge },
    )?;
    let rest = Rest::of(&bench)?;
    let holder = bench.begin(true, "prefill=600s")?;
    eventually(SOON, "the slot is taken", || Ok(bench.seen("requests_open")? == 1))?;
    // The first provider has its holder: the comparison is with one that nobody else uses.
    let other = bench.site.provider(&[])?;
    let mut stats = Asker::new(other.url.trim_start_matches("http://"), "/stats")?;
    let (mut times, mut direct) = (Times::default(), Times::default());
    for wave in 0..CUTS / WAVE {
        for round in 0..WAVE {
            direct.push(directly(&bench, &other, &mut stats, BEFORE_HEADERS, round)?);
        }
        let waiting = (0..WAVE).map(|n| bench.begin(n % 2 == 0, "")).collect::<Result<Vec<_>, _>>()?;
        eventually(SOON, "all of them wait", || Ok(bench.metric("iop_edge_queued")? == WAVE as f64))?;
        ensure!(bench.provider_status()?["queued"] == WAVE, "/status says so too");
        let halves: Vec<_> =
            waiting.into_iter().enumerate().map(|(n, client)| Manner::of(n + wave).cut(client)).collect();
        times.push(how_long("nobody waits", || Ok(bench.metric("iop_edge_queued")? == 0.0))?);
        ensure!(bench.provider_status()?["queued"] == 0 && bench.provider_status()?["in_flight"] == 1);
        drop(halves);
    }
    are_soon("queued, in waves", &times, &direct)?;
    ensure!(bench.seen("requests_started")? == 1, "none of them reached the provider");
    ensure!(bench.outcomes("client_gone")? == CUTS as f64);
    ensure!(bench.metric("iop_edge_control_events_total{event=\"withdrawn\"}")? == CUTS as f64);
    ensure!(bench.seen("requests_open")? == 1, "the holder runs");
    drop(holder);
    nothing_runs(&bench)?;
    the_next_hundred_are_served(&bench)?;
    rest.is_back(&bench)
}

/// A bench whose one slot is behind a stand.
fn behind(stand: &Stand) -> anyhow::Result<Bench> {
    let base_url = stand.base_url();
    Bench::with(&[], |provider| ProviderYaml { capacity: 1, base_url, ..provider }, |edge| edge)
}

// req: TUN-4, POL-11
#[test]
fn a_hundred_cuts_while_the_node_connects() -> anyhow::Result<()> {
    let mut stand = Stand::start()?;
    let port = stand.port();
    let bench = behind(&stand)?;
    let rest = Rest::of(&bench)?;
    stand.fill()?;
    // The kernel's list is slow to read when it is long: it tells what the Node does, and its descriptors tell when.
    let asking = || sockets::towards(port, Some(SYN_SENT)).map(|asking| asking.len());
    eventually(SOON * 2, "our own last try is over", || Ok(asking()? == 0))?;
    let node_fds = || procfs::fds(bench.node.pid());
    let mut stats = Asker::stats(&bench)?;
    let (mut times, mut direct) = (Times::default(), Times::default());
    for round in 0..CUTS {
        direct.push(directly(&bench, &bench.provider, &mut stats, BEFORE_HEADERS, round)?);
        let client = bench.begin(round % 2 == 0, "")?;
        eventually(SOON * 2, "the Node asks for a connection", || Ok(asking()? == 1))?;
        ensure!(in_flight(&bench)? == 1.0 && bench.node_metric("iop_node_runs_in_flight")? == 1.0);
        let manner = Manner::of(round);
        let here = || format!("round {round}, {manner:?}");
        how_long("it has one socket more", || Ok(node_fds()? == rest.node_fds + 1)).with_context(here)?;
        let _half = manner.cut(client)?;
        times.push(how_long("it has closed it", || Ok(node_fds()? == rest.node_fds)).with_context(here)?);
        nothing_runs(&bench).with_context(here)?;
    }
    ensure!(asking()? == 0, "the kernel still asks");
    are_soon("connecting", &times, &direct)?;
    drop(stats);
    let passed_on = stand.open_up(bench.provider.url.trim_start_matches("http://"))?;
    the_next_hundred_are_served(&bench)?;
    let direct = CUTS as u64;
    ensure!(bench.seen("requests_started")? == direct + 100, "nothing of the cut ones came after all");
    rest.is_back(&bench)?;
    eventually(SOON, "no connection is left", || Ok(passed_on.load(SeqCst) == 0))
}

// req: TUN-4, POL-11
#[test]
fn a_hundred_cuts_while_the_node_sends_the_body() -> anyhow::Result<()> {
    const BODY: usize = 6 * 1024 * 1024;
    let stand = Stand::start()?;
    stand.shrink()?;
    let bench = behind(&stand)?;
    let rest = Rest::of(&bench)?;
    let mut body = http::chat_body(iop_tests::bench::MODEL, true, "");
    body["messages"][0]["content"] = "x".repeat(BODY).into();
    let request = http::chat_request(bench.site.token(), &body);
    let mut stats = Asker::stats(&bench)?;
    let (mut times, mut direct) = (Times::default(), Times::default());
    for round in 0..CUTS {
        direct.push(directly(&bench, &bench.provider, &mut stats, BEFORE_HEADERS, round)?);
        let mut client = bench.client()?;
        client.send(&request)?;
        let unread = stand.head()?;
        ensure!(unread.length > BODY);
        // What both kernels hold stands still and is less than the body: the Node has the rest of it.
        let (node, here) = (unread.peer()?, stand.port());
        let mut held = 0;
        eventually(SOON * 2, "the Node can send no more", || {
            let of = |local, remote| move |s: &sockets::Socket| s.local == local && s.remote == remote;
            let all = sockets::all()?;
            let sent = all.iter().copied().find(of(node, here)).context("the Node's socket")?.unsent;
            let arrived = all.iter().copied().find(of(here, node)).context("our socket")?.unread;
            let before = std::mem::replace(&mut held, sent + arrived);
            Ok(sent > 0 && held == before)
        })?;
        ensure!(
            held < unread.length,
            "the Node has sent all {} bytes into the kernels' {held}",
            unread.length
        );
        ensure!(in_flight(&bench)? == 1.0);
        let _half = Manner::of(round).cut(client)?;
        let begun = Instant::now();
        ensure!(unread.wait_for_end(SOON * 2)?, "round {round}: the Node holds on");
        times.push(begun.elapsed());
        drop(unread);
        nothing_runs(&bench).with_context(|| format!("round {round}"))?;
    }
    are_soon("sending the body", &times, &direct)?;
    drop(stats);
    let passed_on = stand.open_up(bench.provider.url.trim_start_matches("http://"))?;
    the_next_hundred_are_served(&bench)?;
    rest.is_back(&bench)?;
    eventually(SOON, "no connection is left", || Ok(passed_on.load(SeqCst) == 0))
}

#[test]
fn a_hundred_cuts_while_the_client_sends_its_body() -> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let rest = Rest::of(&bench)?;
    let request = bench.request(true, "");
    let cut_at = request.len() - 20;
    for round in 0..CUTS {
        let mut client = bench.client()?;
        client.send(&request[..cut_at])?;
        let manner = Manner::of(round);
        let here = || format!("round {round}, {manner:?}");
        let active = |count| Ok(bench.metric("iop_edge_requests_active")? == count);
        how_long("its head is there", || active(1.0)).with_context(here)?;
        ensure!(in_flight(&bench)? == 0.0 && bench.metric("iop_edge_queued")? == 0.0);
        let half = manner.cut(client)?;
        how_long("nothing is active", || active(0.0)).with_context(here)?;
        if let Some(mut half) = half {
            ensure!(half.answer()?.status == 400, "who still listens is told");
        }
    }
    ensure!(bench.seen("requests_started")? == 0);
    the_next_hundred_are_served(&bench)?;
    rest.is_back(&bench)
}
