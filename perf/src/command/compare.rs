//! `iop-perf compare`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use super::Place;
use iop_perf::compare::{self, Gate, SCENARIOS, Scenario};

/// Options of `compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Subjects, by name or by file
    #[arg(long = "subject", value_delimiter = ',', default_value = "direct,ours,nginx")]
    names: Vec<String>,
    #[command(flatten)]
    place: Place,
    /// Loads: paced200, sat64, sat512, prefill1000, short, newconn, idle, or all
    #[arg(long = "scenario", value_delimiter = ',', default_value = "paced200,sat64")]
    scenarios: Vec<String>,
    /// Undisturbed rounds of each load
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The most rounds of each load, when some are disturbed or a gate fails; default: twice --rounds
    #[arg(long)]
    rounds_max: Option<u32>,
    /// The subject that the others are divided by in the table
    #[arg(long, default_value = "nginx")]
    reference: String,
    /// A limit, such as `ours/nginx paced200 cpu <= 2.0`; exit with 1 when it does not hold
    #[arg(long = "gate")]
    gates: Vec<Gate>,
    /// Write everything as JSON to this file (`-` for standard output instead of the table)
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// A subject cannot be measured.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let subjects = args.names.iter().map(|name| args.place.subject(name)).collect::<Result<_, _>>()?;
    let scenarios = if args.scenarios.iter().any(|name| name == "all") {
        SCENARIOS.to_vec()
    } else {
        let find =
            |name: &String| Scenario::find(name).with_context(|| format!("there is no scenario {name}"));
        args.scenarios.iter().map(find).collect::<Result<_, _>>()?
    };
    let (program, bin) = args.place.programs()?;
    let config = compare::Config {
        subjects,
        scenarios,
        rounds: args.rounds,
        rounds_max: args.rounds_max.unwrap_or(args.rounds * 2).max(args.rounds),
        reference: args.reference,
        gates: args.gates,
        program,
        bin,
    };
    stop_on_signals()?;
    let comparison = compare::run(&config, |line| eprintln!("{line}"))?;
    let json = serde_json::to_string_pretty(&comparison).context("write the comparison")?;
    match args.json {
        Some(path) if path.as_os_str() == "-" => println!("{json}"),
        Some(path) => {
            std::fs::write(&path, json + "\n").with_context(|| format!("write {}", path.display()))?;
            print!("{comparison}");
        }
        None => print!("{comparison}"),
    }
    Ok(if comparison.passes() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// SIGINT and SIGTERM end the comparison after the measurement that runs, so that the subjects are ended and their files
/// removed.
pub(super) fn stop_on_signals() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let (Ok(mut terminate), Ok(mut interrupt)) =
                (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
            else {
                return;
            };
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            compare::STOP.store(true, Relaxed);
        });
    });
    Ok(())
}
