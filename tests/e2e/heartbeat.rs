//! Silence is not death: a long prefill and a long stream leave the Node connected and healthy.

use std::time::{Duration, Instant};

use crate::support::{Bench, is_matrix_only, node_status};

/// A silent stream of so many seconds beside one that speaks all the time.
fn both_end_well(seconds: u64) -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let started = Instant::now();
    let mut silent = bench.begin(true, &format!("prefill={seconds}s events=5"))?;
    let mut silent_whole = bench.begin(false, &format!("prefill={seconds}s events=5"))?;
    let mut talkative = bench.begin(true, &format!("events={} gap=20ms", (seconds + 2) * 50))?;
    for client in [&silent, &silent_whole, &talkative] {
        client.stream.set_read_timeout(Some(Duration::from_secs(seconds + 30)))?;
    }
    let answer = talkative.answer()?;
    assert!(answer.is_done() && answer.whole);
    assert!(started.elapsed() > Duration::from_secs(seconds), "the stream outlived the silence");
    let answer = silent.answer()?;
    assert!(answer.is_done() && answer.whole, "{}", answer.text());
    assert_eq!(silent_whole.answer()?.status, 200);

    assert_eq!(node_status(&bench.edge)?["connected"], true);
    assert_eq!(bench.provider_status()?["health"], "healthy");
    assert_eq!(bench.node.text().matches("node ready").count(), 1, "it was connected throughout");
    let log = bench.edge.process.text();
    assert!(!log.contains("node link closed") && !log.contains("node fenced"), "{log}");
    assert_eq!(bench.metric("iop_edge_node_link_closed_total{reason=\"heartbeat_timeout\"}")?, 0.0);
    bench.settles()
}

// req: HBT-4
#[test]
fn a_silent_prefill_and_a_stream_beside_it_end_normally() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    both_end_well(12)
}

/// Longer than the heartbeat's deadline, in real time. Run it with
/// `cargo test -p iop-tests --test e2e -- --ignored longer_than_the_heartbeats_deadline`.
// req: HBT-2, HBT-4
#[test]
#[ignore = "takes 90 s"]
fn a_silence_longer_than_the_heartbeats_deadline_ends_normally() -> anyhow::Result<()> {
    both_end_well(90)
}
