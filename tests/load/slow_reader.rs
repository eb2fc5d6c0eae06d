//! Slow readers: a client that reads nothing costs a window of memory, and nobody else any time.
//!
//! Memory is `RssAnon` of the Edge's and the Node's process, read when the stream under test stands still and compared with a
//! reading after a warm-up of the same shape: what every process touches once (queues, pools, code paths) is not counted,
//! pages that the allocator keeps for later are. Kernel socket buffers are in no process's memory; those of the Edge for its
//! clients are bounded by `TCP_NOTSENT_LOWAT`.

use std::{
    io::Read,
    process::Child,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use iop_tests::{
    EdgeYaml, ProviderYaml,
    bench::{Bench, SOON, eventually, report},
    http::Raw,
    procfs::anonymous_kib,
};
use serde_json::Value;

/// 200 MB, event by event and in large pieces.
const EVENTS: &str = "events=50000 bytes=4000";
const PIECES: &str = "events=50000 bytes=4000 join=16 chunk=64k";

fn bench(slots: u32, write_stall: Duration) -> anyhow::Result<Bench> {
    Bench::with(
        &[],
        |provider| ProviderYaml { capacity: slots, ..provider },
        |edge| EdgeYaml { limits: format!("write_stall_ms: {}", write_stall.as_millis()), ..edge },
    )
}

/// KiB of the Edge and of the Node.
fn memory(bench: &Bench) -> anyhow::Result<[u64; 2]> {
    Ok([anonymous_kib(bench.edge.process.pid())?, anonymous_kib(bench.node.pid())?])
}

fn growth(bench: &Bench, before: [u64; 2]) -> anyhow::Result<[u64; 2]> {
    let now = memory(bench)?;
    Ok([now[0].saturating_sub(before[0]), now[1].saturating_sub(before[1])])
}

/// Waits for the end of so many requests at the limit.
fn stalled(bench: &Bench, count: u32, within: Duration) -> anyhow::Result<()> {
    eventually(within, "the clients are given up", || {
        Ok(bench.outcomes("client_stalled")? >= f64::from(count))
    })?;
    assert_eq!(bench.outcomes("client_stalled")?, f64::from(count));
    bench.settles()
}

/// Whether what is left for a client ends in a reset, after at most `most` bytes.
fn is_reset(mut client: Raw, most: usize) -> bool {
    let (mut buffer, mut read) = (vec![0; 64 * 1024], 0);
    loop {
        match client.stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(n) => read += n,
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset && read <= most,
        }
    }
}

// req: WIR-6
#[test]
fn a_client_that_reads_nothing_of_200_mb_costs_each_end_less_than_2_mib() -> anyhow::Result<()> {
    const EACH_KIB: u64 = 2048;
    let bench = bench(9, Duration::from_secs(2))?;
    let mut ended = 0;
    for script in [EVENTS, PIECES] {
        // One as the warm-up, then one to look at, then eight more than that: a single one may cost a huge page of 2 MiB by
        // chance, or nothing because of one; many cannot.
        for count in [1, 1, 9] {
            let before = memory(&bench)?;
            let clients =
                (0..count).map(|_| bench.begin(true, script)).collect::<anyhow::Result<Vec<_>>>()?;
            bench.stands_still()?;
            let grown = growth(&bench, before)?;
            println!("`{script}`: edge and node grew by {grown:?} KiB for {count}");
            ended += count;
            stalled(&bench, ended, Duration::from_secs(10))?;
            for client in clients {
                assert!(is_reset(client, 8 << 20), "an answer that was cut must not look whole");
            }
            assert_eq!(bench.metric("iop_edge_client_connections")?, 0.0);
            let bound = 8 * EACH_KIB;
            assert!(
                count == 1 || grown.iter().all(|kib| *kib < bound),
                "`{script}`: {grown:?} KiB for {count}"
            );
        }
    }
    assert_eq!(bench.seen("aborts_seen")?, u64::from(ended), "the provider was told each time");
    Ok(())
}

// req: WIR-6
#[test]
fn small_events_that_wait_for_a_client_take_no_more_memory_than_large_ones() -> anyhow::Result<()> {
    // Each event is a read of its own at the Node, and so a frame of its own.
    const SMALL: &str = "events=1000000 bytes=1 gap=20us";
    let bench = bench(8, Duration::from_secs(3))?;
    let mut last = [0, 0];
    for round in 0..2 {
        let before = memory(&bench)?;
        let _clients = (0..4).map(|_| bench.begin(true, SMALL)).collect::<anyhow::Result<Vec<_>>>()?;
        bench.stands_still()?;
        last = growth(&bench, before)?;
        println!("round {round}: edge and node grew by {last:?} KiB for 4 readers");
        stalled(&bench, 4 * (round + 1), Duration::from_secs(15))?;
    }
    assert!(last.iter().all(|kib| *kib < 4 * 2048), "{last:?} KiB");
    Ok(())
}

#[test]
fn a_client_that_stops_reading_is_ended_at_the_configured_limit() -> anyhow::Result<()> {
    const LIMIT: Duration = Duration::from_secs(6);
    let bench = bench(1, LIMIT)?;
    let client = bench.begin(true, EVENTS)?;
    let asked = Instant::now();
    let still = bench.stands_still()?;
    eventually(LIMIT * 3, "the client is given up", || Ok(bench.outcomes("client_stalled")? == 1.0))?;
    let (since_asked, since_still) = (asked.elapsed(), still.elapsed());
    println!("ended {since_asked:?} after the request, {since_still:?} after the provider was held up");
    assert!(since_asked >= LIMIT, "{since_asked:?}");
    assert!(since_still < LIMIT + LIMIT / 8 + SOON, "{since_still:?}");
    // Its slot, the only one, is back.
    bench.settles()?;
    assert!(bench.chat(true, "")?.is_done());
    drop(client);
    Ok(())
}

#[test]
fn a_client_that_reads_slowly_but_steadily_is_no_stall() -> anyhow::Result<()> {
    const LIMIT: Duration = Duration::from_secs(6);
    let bench = bench(1, LIMIT)?;
    // Its kernel is to tell of some KiB that were read, instead of waiting for a segment's worth of them, 64 KiB on the loopback.
    let mut client = Raw::connect_narrow(&bench.edge.http, 16 * 1024)?;
    client.send(bench.request(true, EVENTS))?;
    bench.stands_still()?;
    client.stream.read_exact(&mut vec![0; 512 * 1024])?;
    let started = Instant::now();
    let mut kilobyte = [0; 1024];
    // 8 KiB a second: no write of 64 KiB is over within the limit.
    while started.elapsed() < 3 * LIMIT {
        client.stream.read_exact(&mut kilobyte)?;
        std::thread::sleep(Duration::from_millis(125));
    }
    assert_eq!(bench.outcomes("client_stalled")?, 0.0);
    assert_eq!(bench.seen("requests_open")?, 1);
    stalled(&bench, 1, 3 * LIMIT)
}

/// Fifty streams of 150 events, 20 ms apart.
fn paced(bench: &Bench) -> anyhow::Result<Child> {
    let script = "events=150 gap=20ms stamp";
    bench.load(&["--concurrency", "50", "--requests", "50", "--stagger-ms", "20", "--script", script])
}

/// One number of a report, in µs.
fn figure(report: &Value, (times, which): (&str, &str)) -> anyhow::Result<f64> {
    let of = &report[times];
    ensure!(of["count"].as_u64().context("count")? > 0, "no {times} in {report}");
    of[which].as_f64().with_context(|| format!("no {which} of {times} in {report}"))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

// req: WIR-6
#[test]
fn fifty_streams_keep_their_pace_beside_clients_that_stop_reading() -> anyhow::Result<()> {
    const ROUNDS: usize = 5;
    /// What a scheduler does to one of a hundred events on a machine with few cores, µs: below it nothing is compared.
    const NOISE: f64 = 3000.0;
    // Never reached here: whoever has stopped reading stays until its round is over.
    let bench = bench(64, Duration::from_secs(60))?;
    report(paced(&bench)?)?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(report(paced(&bench)?)?);
        let load = paced(&bench)?;
        // Two stop in the middle of the run. They are gone before the next one, which is to be undisturbed.
        let mut readers = Vec::new();
        for script in [EVENTS, PIECES] {
            std::thread::sleep(Duration::from_millis(700));
            readers.push(bench.begin(true, script)?);
        }
        beside.push(report(load)?);
        assert_eq!(bench.seen("requests_open")?, 2, "both are still there");
        drop(readers);
        bench.settles()?;
    }
    let mut slower = Vec::new();
    for what in [("total_us", "mean"), ("gap_us", "p99"), ("delivery_us", "p99")] {
        let of = |reports: &[Value]| -> anyhow::Result<f64> {
            let figures = reports.iter().map(|report| figure(report, what)).collect::<anyhow::Result<_>>()?;
            Ok(median(figures))
        };
        let (without, with) = (of(&alone)?, of(&beside)?);
        let ratio = with.max(NOISE) / without.max(NOISE);
        println!("{what:?}: {without:.0} µs alone, {with:.0} µs beside, ratio {ratio:.3}");
        if ratio > 1.10 {
            slower.push(format!("{what:?}: {without:.0} µs alone, {with:.0} µs beside"));
        }
    }
    assert!(slower.is_empty(), "{slower:?}");
    Ok(())
}

// req: WIR-6
#[test]
fn a_thousand_clients_that_read_nothing_take_their_windows_and_give_them_back() -> anyhow::Result<()> {
    const READERS: u32 = 1000;
    // A window at the Edge with its output and the rounding of both. At the Node a read, and what of the window still waits there
    // for the link, which a thousand streams share: how much that is depends on who is faster.
    const EACH_KIB: [u64; 2] = [448, 384];
    // More than fits on the way to one client, and little enough for the kernel's memory for all sockets together.
    const SCRIPT: &str = "events=200 bytes=4000";
    let bench = bench(READERS, Duration::from_secs(12))?;
    let mut before = memory(&bench)?;
    for round in 1..=2 {
        let clients = (0..READERS)
            .map(|_| {
                let mut client = Raw::connect_narrow(&bench.edge.http, 2304)?;
                client.send(bench.request(true, SCRIPT))?;
                Ok(client)
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        bench.stands_still()?;
        let grown = growth(&bench, before)?;
        println!("round {round}: edge and node grew by {grown:?} KiB for {READERS} readers");
        for (kib, each) in grown.iter().zip(EACH_KIB) {
            assert!(*kib < u64::from(READERS) * each, "{grown:?} KiB");
        }
        stalled(&bench, READERS * round, Duration::from_secs(30))?;
        assert_eq!(bench.metric("iop_edge_client_connections")?, 0.0, "their sockets are closed");
        drop(clients);
        // Both ends give back what is free every few seconds.
        let mut left = grown;
        let is_back = eventually(Duration::from_secs(20), "the memory is given back", || {
            left = growth(&bench, before)?;
            Ok(left[0] < u64::from(READERS) * 32 && left[1] < u64::from(READERS) * 32)
        });
        println!("round {round}: {left:?} KiB of it are left");
        is_back?;
        if round == 1 {
            before = memory(&bench)?;
        }
    }
    Ok(())
}

// req: WIR-6
#[test]
fn a_node_whose_link_is_stuck_holds_a_window_for_each_stream() -> anyhow::Result<()> {
    const STREAMS: u64 = 16;
    let bench = bench(32, Duration::from_secs(60))?;
    let load = |events: u32| {
        let script = format!("events={events} bytes=4000");
        let count = STREAMS.to_string();
        bench.load(&["--concurrency", &count, "--requests", &count, "--script", &script])
    };
    report(load(2000)?)?;
    let before = memory(&bench)?;
    // 16 MB each.
    let running = load(4000)?;
    eventually(SOON, "all streams run", || Ok(bench.seen("requests_open")? == STREAMS))?;
    let edge = libc::pid_t::try_from(bench.edge.process.pid())?;
    // SAFETY: plain system calls on a child of ours.
    unsafe { libc::kill(edge, libc::SIGSTOP) };
    let still = bench.stands_still();
    let grown = growth(&bench, before);
    // SAFETY: as above.
    unsafe { libc::kill(edge, libc::SIGCONT) };
    still?;
    let [_, node] = grown?;
    println!("the node grew by {node} KiB for {STREAMS} streams");
    assert!(node < STREAMS * 512, "{node} KiB");
    let report = report(running)?;
    assert_eq!((&report["ok"], &report["sealed"]), (&STREAMS.into(), &STREAMS.into()));
    bench.settles()
}
