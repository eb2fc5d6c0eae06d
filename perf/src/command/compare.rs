//! `iop-perf compare`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use super::Place;
use iop_perf::compare::{self, Block, Cell, Demand, Gate, Goals, SCENARIOS, Scenario};
use iop_perf::load::Engine;
use iop_perf::subject::Subject;

/// Options of `compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Subjects, by name or by file
    #[arg(
        long = "subject",
        value_delimiter = ',',
        default_value = "direct,ours,nginx",
        conflicts_with = "goals"
    )]
    names: Vec<String>,
    #[command(flatten)]
    place: Place,
    /// Loads by name, as docs/performance.md lists them, or all
    #[arg(
        long = "scenario",
        value_delimiter = ',',
        default_value = "paced200,sat64",
        conflicts_with = "goals"
    )]
    scenarios: Vec<String>,
    /// Undisturbed rounds of each load
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000), conflicts_with = "goals")]
    rounds: u32,
    /// The most rounds of each load, when some are disturbed or a gate fails; default: twice --rounds
    #[arg(long, conflicts_with = "goals")]
    rounds_max: Option<u32>,
    /// The subject that the others are divided by in the table
    #[arg(long, default_value = "nginx", conflicts_with = "goals")]
    reference: String,
    /// A limit, such as `ours/nginx paced200 cpu <= 2.0`; exit with 1 when it does not hold
    #[arg(long = "gate", conflicts_with = "goals")]
    gates: Vec<Gate>,
    /// Measure what this file asks for, on the subjects that it speaks of, and judge by it; such as perf/goals.yaml
    #[arg(long)]
    goals: Option<PathBuf>,
    /// What the load generator runs on
    #[arg(long, value_enum, default_value_t)]
    engine: Engine,
    /// Write everything as JSON to this file (`-` for standard output instead of the table)
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write a page with tables and charts to this file
    #[arg(long)]
    html: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// A subject cannot be measured.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = config(&args)?;
    stop_on_signals()?;
    let comparison = compare::run(&config, |line| eprintln!("{line}"))?;
    if let Some(path) = &args.html {
        write(path, &compare::page(&comparison, &command_line()))?;
    }
    let json = serde_json::to_string_pretty(&comparison).context("write the comparison")?;
    match &args.json {
        Some(path) if path.as_os_str() == "-" => println!("{json}"),
        Some(path) => {
            write(path, &(json + "\n"))?;
            print!("{comparison}");
        }
        None => print!("{comparison}"),
    }
    Ok(if comparison.passes() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// This program's own command line, as a shell would take it.
fn command_line() -> String {
    let quote = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    let words = std::env::args_os().map(|word| quote(word.to_string_lossy().into_owned()));
    words.collect::<Vec<_>>().join(" ")
}

/// What the options ask for.
fn config(args: &Args) -> anyhow::Result<compare::Config> {
    let (program, bin) = args.place.programs()?;
    let peers = args.place.peers()?;
    let subjects = |names: &[String]| {
        names.iter().map(|name| args.place.subject(name)).collect::<anyhow::Result<Vec<Subject>>>()
    };
    if let Some(path) = &args.goals {
        let goals = Goals::read(path)?;
        let blocks = goals.blocks()?;
        let mut names: Vec<String> = Vec::new();
        for name in blocks.iter().flat_map(|block| &block.cells).flat_map(|cell| &cell.subjects) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        return Ok(compare::Config {
            subjects: subjects(&names)?,
            blocks,
            demands: goals.demands()?,
            reference: goals.reference,
            engine: args.engine,
            program,
            bin,
            peers,
        });
    }
    let subjects = subjects(&args.names)?;
    let names: Vec<String> = subjects.iter().map(|subject| subject.name.clone()).collect();
    let cell = |scenario: Scenario| Cell { scenario, subjects: names.clone() };
    Ok(compare::Config {
        blocks: vec![Block {
            cells: scenarios(&args.scenarios)?.into_iter().map(cell).collect(),
            rounds: args.rounds,
            rounds_max: args.rounds_max.unwrap_or(args.rounds * 2).max(args.rounds),
        }],
        subjects,
        reference: args.reference.clone(),
        engine: args.engine,
        demands: args.gates.iter().cloned().map(Demand::from).collect(),
        program,
        bin,
        peers,
    })
}

fn scenarios(names: &[String]) -> anyhow::Result<Vec<Scenario>> {
    if names.iter().any(|name| name == "all") {
        return Ok(SCENARIOS.to_vec());
    }
    let find = |name: &String| Scenario::find(name).with_context(|| format!("there is no scenario {name}"));
    names.iter().map(find).collect()
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
