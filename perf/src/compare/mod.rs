//! Subjects under the same loads, interleaved in rounds on one machine in the same minutes.
//!
//! What counts is the ratio of two subjects within a round: what disturbs a round disturbs both. A round in which other
//! programs took the machine is repeated, within a bound; the geometric mean of the rounds' ratios is held against gates.
//!
//! Reading order: [`Scenario`] says what the loads are, [`Gate`] what is demanded; this file drives; `summary` makes the
//! rows, `table` prints them, `figures` does the arithmetic.

mod figures;
mod gate;
mod rounds;
mod scenario;
mod summary;
mod table;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;

use crate::load::{self, Report};
use crate::procfs::{self, Process};
use crate::subject::{Place, Running, Subject, end};
pub use figures::Spread;
pub use gate::{Figure, Gate, GateError, Verdict};
use rounds::Rounds;
pub use scenario::{SCENARIOS, Scenario, USUAL, Unit};
pub use summary::{Row, Table};

/// Set from outside: stop after the measurement that runs.
pub static STOP: AtomicBool = AtomicBool::new(false);

/// What is compared.
#[derive(Debug, Clone)]
pub struct Config {
    /// The subjects.
    pub subjects: Vec<Subject>,
    /// The loads.
    pub scenarios: Vec<Scenario>,
    /// Undisturbed rounds wanted of each load.
    pub rounds: u32,
    /// The most rounds of each load, disturbed ones included.
    pub rounds_max: u32,
    /// The subject that the others are divided by in the table.
    pub reference: String,
    /// What must hold.
    pub gates: Vec<Gate>,
    /// This program, which is also the provider.
    pub program: PathBuf,
    /// The directory of the subjects' `@bin@`.
    pub bin: PathBuf,
}

/// One load on one subject.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measurement {
    /// The round, from 1 on.
    pub round: u32,
    /// The scenario's name.
    pub scenario: &'static str,
    /// The subject's name.
    pub subject: String,
    /// CPU that programs other than the subjects and the instruments took meanwhile. Unit: cores.
    pub others_cores: f64,
    /// What the load saw.
    pub report: Report,
}

/// Everything that a comparison found.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The machine.
    pub machine: String,
    /// The subjects' command lines.
    pub commands: BTreeMap<String, Vec<String>>,
    /// The figures, by scenario and subject.
    pub tables: Vec<Table>,
    /// What became of the gates.
    pub verdicts: Vec<Verdict>,
    /// Every single measurement.
    pub measurements: Vec<Measurement>,
}

impl Comparison {
    /// Whether every gate holds.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.pass)
    }
}

/// Starts the subjects, measures, ends them.
///
/// # Errors
/// A subject does not start or dies; a reply fails its checks or its size differs between subjects.
pub fn run(config: &Config, mut progress: impl FnMut(&str)) -> anyhow::Result<Comparison> {
    check(config)?;
    let mut stage = Stage::open(config)?;
    for subject in &config.subjects {
        progress(&format!("starting {}", subject.name));
        stage.start(subject)?;
    }
    let mut measurements = Vec::new();
    let mut rounds = Rounds::new(config.rounds, config.rounds_max);
    let mut round = 0;
    loop {
        let due: Vec<Scenario> = config
            .scenarios
            .iter()
            .copied()
            .filter(|s| rounds.is_due(s.name, all_pass(config, &measurements, &rounds, s.name)))
            .collect();
        if due.is_empty() {
            break;
        }
        round += 1;
        for scenario in due {
            let cell = stage.measure(scenario, round)?;
            let others = cell.iter().map(|m| m.others_cores).fold(0.0, f64::max);
            let costs: Vec<String> = cell.iter().filter_map(brief).collect();
            progress(&format!(
                "round {round} {:<10} {}   others {others:.2} cores",
                scenario.name,
                costs.join("   ")
            ));
            rounds.ran(scenario.name, round, others);
            measurements.extend(cell);
        }
    }
    drop(stage);
    Ok(Comparison {
        machine: machine(),
        commands: config.subjects.iter().map(|s| (s.name.clone(), s.commands())).collect(),
        tables: summary::tables(config, &measurements, &rounds),
        verdicts: summary::verdicts(&config.gates, &measurements, &rounds),
        measurements,
    })
}

fn check(config: &Config) -> anyhow::Result<()> {
    ensure!(config.rounds > 0 && config.rounds_max >= config.rounds, "there must be rounds");
    let known = |name: &str| config.subjects.iter().any(|subject| subject.name == name);
    for gate in &config.gates {
        for name in [&gate.subject, &gate.reference] {
            ensure!(known(name), "a gate speaks of {name}, which is not measured");
        }
        let measured = config.scenarios.iter().any(|scenario| scenario.name == gate.scenario);
        ensure!(measured, "a gate speaks of {}, which is not measured", gate.scenario);
    }
    Ok(())
}

/// Whether the gates about a scenario hold by what is known so far.
fn all_pass(config: &Config, measurements: &[Measurement], rounds: &Rounds, scenario: &str) -> bool {
    let gates: Vec<Gate> = config.gates.iter().filter(|gate| gate.scenario == scenario).cloned().collect();
    summary::verdicts(&gates, measurements, rounds).iter().all(|verdict| verdict.pass)
}

/// One measurement in a few words.
fn brief(measurement: &Measurement) -> Option<String> {
    let scenario = Scenario::find(measurement.scenario)?;
    let cost = summary::cost(measurement, scenario.unit)?;
    Some(format!("{} {cost:.2} us", measurement.subject))
}

/// The provider and the subjects that run.
struct Stage<'a> {
    config: &'a Config,
    provider: Child,
    place: Place,
    running: BTreeMap<String, Running>,
}

impl<'a> Stage<'a> {
    fn open(config: &'a Config) -> anyhow::Result<Self> {
        let (provider, address) = start_provider(&config.program)?;
        let place =
            Place { bin: config.bin.clone(), provider: address, wrapper: Vec::new(), env: Vec::new() };
        Ok(Self { config, provider, place, running: BTreeMap::new() })
    }

    fn start(&mut self, subject: &Subject) -> anyhow::Result<()> {
        // The one before must be gone first: it may hold what this one needs.
        self.running.remove(&subject.name);
        self.running.insert(subject.name.clone(), Running::start(subject, &self.place)?);
        Ok(())
    }

    /// One round of one load: every subject, beginning with another one each time.
    fn measure(&mut self, scenario: Scenario, round: u32) -> anyhow::Result<Vec<Measurement>> {
        let subjects = &self.config.subjects;
        let shift = usize::try_from(round).unwrap_or(0) % subjects.len().max(1);
        let mut cell = Vec::new();
        for subject in subjects.iter().cycle().skip(shift).take(subjects.len()) {
            if scenario.memory_at.is_some() {
                self.start(subject)?;
            }
            cell.push(self.measure_one(scenario, round, &subject.name)?);
        }
        let size = |m: &Measurement| m.report.body_bytes.checked_div(m.report.ok);
        if let Some(first) = cell.first() {
            for other in &cell {
                ensure!(
                    size(first) == size(other),
                    "{}: replies through {} have another size than through {}",
                    scenario.name,
                    other.subject,
                    first.subject
                );
            }
        }
        Ok(cell)
    }

    fn measure_one(&mut self, scenario: Scenario, round: u32, name: &str) -> anyhow::Result<Measurement> {
        if STOP.load(Relaxed) {
            bail!("stopped");
        }
        let running = self.running.get_mut(name).context("a subject that does not run")?;
        running.check_alive()?;
        let config = load::Config {
            target: running.target.clone(),
            token: running.token.clone(),
            model: running.model.clone(),
            processes: running.processes(),
            ..scenario.load()
        };
        let (started, busy, own) = (Instant::now(), procfs::machine_busy_us(), self.own_us());
        let report = load::run(&config).context("run the load")?;
        let (busy, own) = (procfs::machine_busy_us() - busy, self.own_us().saturating_sub(own));
        let others_cores = busy.saturating_sub(own) as f64 / 1e6 / started.elapsed().as_secs_f64();
        if !report.is_clean() || report.sealed != report.ok {
            bail!("{} under {}: not every reply was whole and exact\n{report}", name, scenario.name);
        }
        Ok(Measurement { round, scenario: scenario.name, subject: name.to_owned(), others_cores, report })
    }

    /// CPU time of the instruments and all subjects so far.
    fn own_us(&self) -> u64 {
        let provider = Process { name: String::new(), pid: self.provider.id() };
        let subjects = self.running.iter().flat_map(|(name, running)| {
            let named = move |p: Process| Process { name: format!("{name}/{}", p.name), ..p };
            running.processes().into_iter().map(named)
        });
        let all: Vec<Process> = subjects.chain([provider]).collect();
        procfs::own_cpu_us() + procfs::sample(&all).values().map(|sample| sample.cpu_us).sum::<u64>()
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.running.clear();
        end(&mut self.provider);
    }
}

/// Starts the scripted provider on a free port; it ends with this process's hold on its standard input.
fn start_provider(program: &std::path::Path) -> anyhow::Result<(Child, SocketAddr)> {
    use std::io::BufRead as _;
    let mut child = Command::new(program)
        .args(["provider", "--listen", "127.0.0.1:0", "--until-stdin-closes"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let mut line = String::new();
    let out = child.stdout.take().context("the provider's output")?;
    let read = std::io::BufReader::new(out).read_line(&mut line);
    let address = line.trim().strip_prefix("listening http://").and_then(|address| address.parse().ok());
    let Some(address) = address else {
        end(&mut child);
        bail!("the provider did not say where it listens: {line:?} ({read:?})");
    };
    Ok((child, address))
}

/// Processor, number of cores, kernel.
#[must_use]
pub fn machine() -> String {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{}, {cores} cores, Linux {}", procfs::cpu_model(), kernel.trim())
}
