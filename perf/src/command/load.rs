//! `iop-perf load`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use iop_perf::load::{self, Arrivals, CONCURRENCY_MAX, Config, Length};

use super::aim::{Aim, Bounds};

/// Options of `load`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    aim: Aim,
    #[command(flatten)]
    bounds: Bounds,
    /// When requests start: `closed` (when the one before has ended), or by a schedule that no reply changes:
    /// `poisson:RATE`, `uniform:RATE`, `steps:RATE@SECONDS,RATE@SECONDS…`
    #[arg(long, default_value = "closed")]
    arrivals: Arrivals,
    /// Seed of Poisson arrivals; the report names it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Requests in flight of a closed load, and of the warm-up
    #[arg(long, default_value_t = 1)]
    concurrency: usize,
    /// Requests in all; default: 100, with steps all of theirs
    #[arg(long, conflicts_with = "seconds")]
    requests: Option<u64>,
    /// Send for so many seconds instead of a number of requests
    #[arg(long)]
    seconds: Option<u32>,
    /// Requests before the measured run
    #[arg(long, default_value_t = 0)]
    warmup_requests: u64,
    /// Ask for streams (the default)
    #[arg(long, overrides_with = "no_stream")]
    stream: bool,
    /// Ask for whole replies
    #[arg(long)]
    no_stream: bool,
    /// Length of the user message
    #[arg(long, default_value_t = 200)]
    prompt_bytes: usize,
    /// Script for the scripted provider, sent in the body's `user`
    #[arg(long)]
    script: Option<String>,
    /// Start the workers evenly within so many ms
    #[arg(long, default_value_t = 0)]
    stagger_ms: u32,
}

impl Args {
    /// Whether streams are asked for: the later of the two options wins.
    pub(crate) fn wants_stream(&self) -> bool {
        self.stream || !self.no_stream
    }
}

/// Runs it.
///
/// # Errors
/// The load cannot run.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    ensure!((1..=CONCURRENCY_MAX).contains(&args.concurrency), "--concurrency is 1 to {CONCURRENCY_MAX}");
    let stream = args.wants_stream();
    let arrivals = args.arrivals.with_seed(args.seed);
    let length = match (args.requests, args.seconds) {
        (Some(requests), _) => Length::Requests(requests),
        (None, Some(seconds)) => Length::Time(Duration::from_secs(seconds.into())),
        (None, None) if arrivals.has_end() => Length::Requests(u64::MAX),
        (None, None) => Length::Requests(100),
    };
    let config = Config {
        arrivals,
        concurrency: args.concurrency,
        length,
        warmup_requests: args.warmup_requests,
        stream,
        prompt_bytes: args.prompt_bytes,
        script: args.script,
        stagger: Duration::from_millis(args.stagger_ms.into()),
        ..args.bounds.apply(args.aim.config())?
    };
    let wanted = match length {
        Length::Requests(count) => Some(count).filter(|count| *count < u64::MAX),
        Length::Time(_) => None,
    };
    args.aim.run(wanted, |gauge| load::run_watched(&config, gauge), load::Report::is_clean)
}
