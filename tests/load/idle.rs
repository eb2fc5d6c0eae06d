//! What a Node costs that has nothing to do.

use std::time::{Duration, Instant};

use anyhow::ensure;
use iop_tests::{
    ProviderYaml,
    bench::{Bench, eventually},
    http::PATIENCE,
    procfs::{resident, run_time},
};

/// Streams that have begun and are silent.
const STREAMS: u32 = 100;
/// How long it is watched: several heartbeats, and every timer that comes again and again.
const WINDOW: Duration = Duration::from_secs(10);
/// Of a core.
const SHARE: f64 = 0.005;
const MEMORY: usize = 30 << 20;

#[test]
fn a_node_with_a_hundred_idle_streams_takes_next_to_no_time_and_little_memory() -> anyhow::Result<()> {
    let bench = Bench::with(&[], |provider| ProviderYaml { capacity: STREAMS, ..provider }, |edge| edge)?;
    // An event comes, and the next one would after the test.
    let clients =
        (0..STREAMS).map(|_| bench.begin(true, "events=2 gap=200s")).collect::<anyhow::Result<Vec<_>>>()?;
    eventually(PATIENCE, "all streams have begun", || {
        Ok(bench.seen("events_written")? >= u64::from(STREAMS)
            && bench.seen("requests_open")? == u64::from(STREAMS))
    })?;
    let pid = bench.node.pid();
    // Whatever the beginning of a stream leaves behind is done. Then the time is the kernel's count of what this process alone
    // was running: what else the machine does makes it no longer.
    std::thread::sleep(Duration::from_secs(2));
    let (before, started) = (run_time(pid)?, Instant::now());
    std::thread::sleep(WINDOW);
    let (used, watched) = (run_time(pid)? - before, started.elapsed());
    let share = used.as_secs_f64() / watched.as_secs_f64();
    let memory = resident(pid)?;
    println!(
        "{STREAMS} idle streams: {used:?} of {watched:?} ({:.3} % of a core), {} KiB",
        share * 100.0,
        memory / 1024
    );
    assert_eq!(bench.seen("requests_open")?, u64::from(STREAMS), "they are still there");
    assert_eq!(bench.node_metric("iop_node_runs_in_flight")?, f64::from(STREAMS));
    ensure!(share < SHARE, "{:.3} % of a core", share * 100.0);
    ensure!(memory < MEMORY, "{} KiB", memory / 1024);
    drop(clients);
    Ok(())
}
