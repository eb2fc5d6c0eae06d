//! Peers that vanish without a word: no FIN, no reset, no acknowledgement. Only the kernel's probes tell.

use std::time::{Duration, Instant};

use iop_tests::bench::{SOON, eventually};

use super::{
    Path, SLACK, assert_took,
    client::{WRITE_STALL, is_gone, path},
    side_by_side,
};

/// The kernel asks after so long a silence, and then every so often.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// The third question without an answer is the last.
const FOUND_OUT: Duration = PROBE_AFTER.saturating_add(PROBE_EVERY.saturating_mul(9));

/// In a silent prefill only probes tell.
fn vanished_in_silence() -> anyhow::Result<()> {
    let path = path()?;
    // Alive and silent for as long: the kernel answers for it.
    let mut patient = path.bench.begin(true, "prefill=50s events=3")?;
    patient.stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let _vanished =
        [path.far_client(true, "prefill=600s")?, path.far_client(false, "prefill=600s late-head")?];
    eventually(SOON, "all run", || Ok(path.bench.seen("requests_open")? == 3))?;
    path.front.vanish()?;
    let since = Instant::now();
    let series = "iop_edge_requests_total{outcome=\"client_gone\",route=\"chat_completions\"}";
    let within = FOUND_OUT + SLACK;
    eventually(within, "both are found out", || Ok(path.bench.metric(series)? == 2.0))?;
    // The kernel last heard of them before they vanished.
    assert_took(since, FOUND_OUT - PROBE_EVERY - SLACK, within);
    patient.answer()?.assert_sealed();
    is_gone(&path, SOON, &["client_gone"], 2.0)
}

/// In a stream, long before the buffers are full.
fn vanished_in_a_stream() -> anyhow::Result<()> {
    let path = path()?;
    let mut client = path.far_client(true, "events=100000 gap=50ms")?;
    client.wait_for("data:")?;
    path.front.vanish()?;
    let since = Instant::now();
    // The kernel gives the connection up, or the write takes too long: whichever is first. Its own arithmetic is rough: it gives
    // up at the last of its retransmissions.
    is_gone(&path, 2 * FOUND_OUT, &["client_gone", "client_stalled"], 1.0)?;
    assert_took(since, WRITE_STALL, 2 * FOUND_OUT);
    Ok(())
}

// req: TUN-4
#[test]
fn a_client_that_vanishes_without_a_word_does_not_hold_its_slot_for_ever() -> anyhow::Result<()> {
    side_by_side(&[vanished_in_silence, vanished_in_a_stream], |run| run())
}

/// In a silent prefill: found out after the Node's deadline for writes (60 s) and what the kernel waits longer (15 s).
pub(super) fn a_vanished_provider_is_found_out() -> anyhow::Result<()> {
    let path = Path::start(2)?;
    let mut silent = path.bench.begin(true, "prefill=600s")?;
    silent.stream.set_read_timeout(Some(Duration::from_secs(200)))?;
    eventually(SOON, "it runs", || Ok(path.bench.seen("requests_open")? == 1))?;
    path.upstream.vanish()?;
    let since = Instant::now();
    // The client has nothing yet.
    let answer = silent.answer()?;
    assert_eq!(answer.status, 502, "{}", answer.head);
    // Silence of 75 s, found at the probe that comes next.
    assert_took(since, Duration::from_secs(70), Duration::from_secs(75 + 15) + SLACK);
    path.is_untouched()?;
    path.upstream.heal()?;
    path.upstream.reset();
    path.serves_again()
}
