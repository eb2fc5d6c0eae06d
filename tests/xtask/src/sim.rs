//! `cargo xtask sim`: the decision machine and the watchdogs of Nodes in simulated worlds, every step checked.

use anyhow::Context;

use crate::cmd;

/// Options of `sim`.
#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// Decides everything; drawn and printed when it is left out
    seed: Option<u64>,
    /// Events to check
    #[arg(long, default_value = "10000000")]
    events: String,
    /// Threads, each with runs of its own; as many as there are cores when it is left out
    #[arg(long)]
    jobs: Option<usize>,
    /// SEED is that of a single run, as a failure prints it
    #[arg(long, requires = "seed")]
    one: bool,
    /// The watchdogs of Nodes alone; otherwise they are a tenth of the events
    #[arg(long)]
    watchdogs: bool,
    /// Step through a list of inputs that a failure, or a running Edge, has written
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "one"])]
    replay: Option<String>,
}

/// What CI checks: that the simulation finds every planted fault, then ten million events of a seed that nobody knows
/// before.
///
/// # Errors
/// A fault is not found, or a check does not hold.
pub fn ci() -> anyhow::Result<()> {
    // The whole workspace is selected so that no dependency is built anew, as in `test`.
    let faults =
        ["test", "--workspace", "--features=iop-sim/planted-faults", "--test=faults", "--", "--nocapture"];
    cmd::run("cargo", &faults)?;
    run(&Options { events: "10000000".to_owned(), ..Options::default() })
}

/// Runs it.
///
/// # Errors
/// A check does not hold.
pub fn run(options: &Options) -> anyhow::Result<()> {
    cmd::run("cargo", &["build", "--workspace", "--bin=iop-sim", "--test=seeds"])?;
    let program = cmd::target_dir().join("debug/iop-sim");
    let program = program.to_str().context("a target directory that is not UTF-8")?;
    let mut args = Vec::new();
    let (seed, jobs) = (options.seed.map(|seed| seed.to_string()), options.jobs.map(|jobs| jobs.to_string()));
    args.extend(seed.as_deref());
    args.extend(["--events", &options.events]);
    if let Some(jobs) = &jobs {
        args.extend(["--jobs", jobs]);
    }
    if options.one {
        args.push("--one");
    }
    if options.watchdogs {
        args.push("--watchdogs");
    }
    if let Some(file) = &options.replay {
        args.extend(["--replay", file]);
    }
    cmd::run(program, &args)
}
