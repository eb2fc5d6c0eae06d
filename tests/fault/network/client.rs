//! Between client and Edge.

use std::time::{Duration, Instant};

use iop_tests::{
    bench::{SOON, eventually},
    fault_proxy::{Flow, Way},
};

use super::{Path, SLACK, beating};

/// `limits.write_stall_ms` here.
pub(super) const WRITE_STALL: Duration = Duration::from_secs(3);

pub(super) fn path() -> anyhow::Result<Path> {
    let limits = format!("write_stall_ms: {}", WRITE_STALL.as_millis());
    Path::with(beating()?, 4, |yaml| iop_tests::EdgeYaml { limits, ..yaml })
}

/// The provider is let go, and so many clients are counted with one of these outcomes.
pub(super) fn is_gone(path: &Path, within: Duration, outcomes: &[&str], gone: f64) -> anyhow::Result<()> {
    eventually(within, "the slot is free", || Ok(path.bench.metric("iop_edge_leases")? == 0.0))?;
    eventually(SOON, "the provider is let go", || Ok(path.bench.seen("requests_open")? == 0))?;
    let counted = || outcomes.iter().map(|outcome| path.bench.outcomes(outcome)).sum::<anyhow::Result<f64>>();
    eventually(SOON, "they are counted", || Ok(counted()? >= gone))?;
    assert_eq!(counted()?, gone, "{outcomes:?}");
    Ok(())
}

// req: TUN-4
#[test]
fn a_client_that_takes_nothing_ends_at_the_write_stall() -> anyhow::Result<()> {
    let path = path()?;
    let mut client = path.far_client(true, "events=1000000 bytes=4000 gap=0")?;
    client.wait_for("data:")?;
    path.front.flow(&[Way::Down], Flow::Hold);
    let since = Instant::now();
    is_gone(&path, WRITE_STALL + SLACK, &["client_stalled"], 1.0)?;
    assert!(since.elapsed() >= WRITE_STALL - Duration::from_millis(500), "{:?}", since.elapsed());
    Ok(())
}

// req: TUN-4, POL-10
#[test]
fn a_reset_or_a_half_close_by_the_client_ends_its_request_at_once() -> anyhow::Result<()> {
    let path = path()?;
    let leave: [&dyn Fn(); 2] = [&|| path.front.reset(), &|| path.front.half_close(Way::Up)];
    for (round, leave) in leave.into_iter().enumerate() {
        let mut streaming = path.far_client(true, "events=100000 gap=5ms")?;
        let _silent = path.far_client(false, "prefill=600s")?;
        streaming.wait_for("data:")?;
        eventually(SOON, "both run", || Ok(path.bench.seen("requests_open")? == 2))?;
        leave();
        is_gone(&path, SOON, &["client_gone"], [2.0, 4.0][round])?;
    }
    path.serves_again()
}
