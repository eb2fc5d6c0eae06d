//! `iop-perf idle`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use iop_perf::idle::{self, Plan, Silence};
use iop_perf::load::CONCURRENCY_MAX;
use iop_perf::provider::PAUSE_MAX;

use super::aim::Aim;

/// Options of `idle`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Streams, open at once
    #[arg(long, default_value_t = 1000)]
    streams: usize,
    /// How long all are silent together
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Streams opened per second
    #[arg(long, default_value_t = 500.0)]
    rate: f64,
    /// Seconds from one reading of the processes to the next
    #[arg(long, default_value_t = 10)]
    every: u32,
    #[command(flatten)]
    aim: Aim,
}

/// Runs it.
///
/// # Errors
/// The streams cannot be opened here.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    ensure!((1..=CONCURRENCY_MAX).contains(&args.streams), "--streams is 1 to {CONCURRENCY_MAX}");
    ensure!(args.rate > 0.0 && args.rate.is_finite(), "--rate is a number above 0");
    ensure!(args.seconds > 0 && args.every > 0, "--seconds and --every are at least 1");
    let plan = Plan {
        streams: args.streams,
        silence: Duration::from_secs(args.seconds.into()),
        per_second: args.rate,
        every: Duration::from_secs(args.every.into()),
    };
    ensure!(
        plan.prefill() <= PAUSE_MAX,
        "opening and silence together last at most {} s",
        PAUSE_MAX.as_secs()
    );
    let config = args.aim.config();
    args.aim.run(Some(args.streams as u64), |gauge| idle::run(&plan, config, gauge), Silence::is_clean)
}
