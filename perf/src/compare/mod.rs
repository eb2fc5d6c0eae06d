//! Subjects under the same loads, interleaved in rounds on one machine in the same minutes.
//!
//! What counts is the ratio of two subjects within a round: what disturbs a round disturbs both. A round in which other
//! programs took the machine is repeated, within a bound; the geometric mean of the rounds' ratios is held against gates.
//!
//! Reading order: [`Scenario`] says what the loads are, [`Gate`] what is demanded, [`Goals`] is a file of both; this file
//! drives; `summary` makes the rows, `table` prints them, [`page()`] draws them, `figures` does the arithmetic.

mod chart;
mod figures;
mod gate;
mod goals;
mod page;
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

use crate::load::{self, Engine, Report, Times};
use crate::procfs::{self, Process};
use crate::subject::{Place, Running, Subject, end};
pub use figures::Spread;
pub use gate::{Bound, Demand, Figure, Gate, GateError, Level, Side, Verdict};
pub use goals::Goals;
pub use page::page;
use rounds::Rounds;
pub use scenario::{SCENARIOS, Scenario, USUAL, Unit};
pub use summary::{Replies, Row, Table};

/// Set from outside: stop after the measurement that runs.
pub static STOP: AtomicBool = AtomicBool::new(false);

/// How far the mean sizes of replies may lie apart. The text is proven by its seal; but the provider counts a request's
/// tokens by its size, and a router that adds fields to requests changes the digits of that count. Unit: bytes.
const SIZE_TOLERANCE: u64 = 8;

/// What is compared.
#[derive(Debug, Clone)]
pub struct Config {
    /// The subjects.
    pub subjects: Vec<Subject>,
    /// The loads, and on which subjects each is put. Every load is in one block.
    pub blocks: Vec<Block>,
    /// The subject that the others are divided by in the table.
    pub reference: String,
    /// What the load runs on.
    pub engine: Engine,
    /// What must hold, and what is wished for.
    pub demands: Vec<Demand>,
    /// This program, which is also the provider.
    pub program: PathBuf,
    /// The directory of the subjects' `@bin@`.
    pub bin: PathBuf,
    /// The directory of the subjects' `@peers@`.
    pub peers: PathBuf,
}

/// Loads that alternate round by round. Blocks are run one after the other, each with its own subjects running.
#[derive(Debug, Clone)]
pub struct Block {
    /// The loads.
    pub cells: Vec<Cell>,
    /// Undisturbed rounds wanted of each load.
    pub rounds: u32,
    /// The most rounds of each load, disturbed ones included.
    pub rounds_max: u32,
}

/// A load and the names of the subjects that it is put on.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The load.
    pub scenario: Scenario,
    /// The subjects.
    pub subjects: Vec<String>,
}

impl Block {
    /// The names of its subjects, each once.
    fn subjects(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.cells.iter().flat_map(|cell| &cell.subjects) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }
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

impl Measurement {
    /// Whether every reply was whole and proven exact, or a refusal where refusals are asked for. Else its figures count
    /// nowhere.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.report.sealed > 0 && self.lost() == 0
    }

    /// Replies that were neither exact nor a refusal where refusals are asked for.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.report.requests.saturating_sub(self.report.sealed).saturating_sub(self.refused())
    }

    /// Whole refusals, where the load asks for them.
    #[must_use]
    pub fn refused(&self) -> u64 {
        let asked = Scenario::find(self.scenario).is_some_and(|scenario| scenario.is_overload);
        if asked { self.refusals().map(|times| times.count).sum() } else { 0 }
    }

    /// The times of refusals by status.
    fn refusals(&self) -> impl Iterator<Item = &Times> {
        /// Too many requests; unavailable.
        const REFUSALS: [u16; 2] = [429, 503];
        self.report.refusals.iter().filter(|(status, _)| REFUSALS.contains(status)).map(|(_, times)| times)
    }
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Described {
    /// The subject's name.
    pub name: String,
    /// Which version, as it says itself.
    pub version: Option<String>,
    /// Its command lines.
    pub commands: Vec<String>,
    /// Its file.
    pub file: String,
}

/// Everything that a comparison found.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The machine.
    pub machine: String,
    /// What the load ran on.
    pub engine: Engine,
    /// How long it took. Unit: s.
    pub seconds: f64,
    /// The subjects.
    pub subjects: Vec<Described>,
    /// The figures, by scenario and subject.
    pub tables: Vec<Table>,
    /// What became of the gates.
    pub verdicts: Vec<Verdict>,
    /// The replies of each subject over the whole run.
    pub replies: BTreeMap<String, Replies>,
    /// Every single measurement.
    pub measurements: Vec<Measurement>,
}

impl Comparison {
    /// Whether everything required holds, and no subject that is judged lost a reply. Without a gate all are judged.
    #[must_use]
    pub fn passes(&self) -> bool {
        let required = self.verdicts.iter().filter(|verdict| verdict.demand.level == Level::Required);
        let judged = |name: &String| {
            self.verdicts.is_empty() || self.verdicts.iter().any(|v| v.demand.gate.own.subject == *name)
        };
        required.into_iter().all(|verdict| verdict.pass)
            && self.replies.iter().all(|(name, replies)| replies.lost == 0 || !judged(name))
    }
}

/// Starts the subjects, measures, ends them.
///
/// # Errors
/// A subject does not start or dies; the size of a reply differs between subjects.
pub fn run(config: &Config, mut progress: impl FnMut(&str)) -> anyhow::Result<Comparison> {
    check(config)?;
    let started = Instant::now();
    let mut stage = Stage::open(config)?;
    let mut measurements = Vec::new();
    let mut rounds = Rounds::default();
    for block in &config.blocks {
        stage.set(block, &mut progress)?;
        for cell in &block.cells {
            rounds.plan(cell.scenario.name, block.rounds, block.rounds_max);
        }
        run_block(&mut stage, block, &mut rounds, &mut measurements, &mut progress)?;
    }
    let subjects = config.subjects.iter().map(|subject| describe(subject, &stage.place));
    let subjects = subjects.collect::<anyhow::Result<_>>()?;
    drop(stage);
    Ok(Comparison {
        machine: machine(),
        engine: config.engine,
        seconds: started.elapsed().as_secs_f64(),
        subjects,
        tables: summary::tables(config, &measurements, &rounds),
        verdicts: summary::verdicts(&config.demands, &measurements, &rounds),
        replies: summary::replies(&measurements),
        measurements,
    })
}

/// The rounds of one block.
fn run_block(
    stage: &mut Stage<'_>,
    block: &Block,
    rounds: &mut Rounds,
    measurements: &mut Vec<Measurement>,
    progress: &mut impl FnMut(&str),
) -> anyhow::Result<()> {
    for round in 1.. {
        let due = |cell: &&Cell| {
            let name = cell.scenario.name;
            rounds.is_due(name, all_pass(stage.config, measurements, rounds, name))
        };
        let due: Vec<&Cell> = block.cells.iter().filter(due).collect();
        if due.is_empty() {
            break;
        }
        for cell in due {
            let found = stage.measure(cell, round)?;
            let others = found.iter().map(|m| m.others_cores).fold(0.0, f64::max);
            let costs: Vec<String> = found.iter().filter_map(brief).collect();
            progress(&format!(
                "round {round} {:<10} {}   others {others:.2} cores",
                cell.scenario.name,
                costs.join("   ")
            ));
            for inexact in found.iter().filter(|m| !m.is_exact()) {
                progress(&format!(
                    "{} under {}: not every reply was whole and exact\n{}",
                    inexact.subject, inexact.scenario, inexact.report
                ));
            }
            rounds.ran(cell.scenario.name, round, others);
            measurements.extend(found);
        }
    }
    Ok(())
}

fn describe(subject: &Subject, place: &Place) -> anyhow::Result<Described> {
    Ok(Described {
        name: subject.name.clone(),
        version: place.version(subject)?,
        commands: subject.commands(),
        file: subject.source.clone(),
    })
}

fn check(config: &Config) -> anyhow::Result<()> {
    let cells = || config.blocks.iter().flat_map(|block| &block.cells);
    for block in &config.blocks {
        ensure!(block.rounds > 0 && block.rounds_max >= block.rounds, "there must be rounds");
    }
    for (index, cell) in cells().enumerate() {
        let name = cell.scenario.name;
        ensure!(cells().take(index).all(|other| other.scenario.name != name), "{name} is there twice");
        for subject in &cell.subjects {
            let known = config.subjects.iter().any(|known| known.name == *subject);
            ensure!(known, "there is no subject {subject}");
        }
    }
    for Demand { gate, .. } in &config.demands {
        for side in gate.sides() {
            let measured =
                |cell: &Cell| cell.scenario.name == side.scenario && cell.subjects.contains(&side.subject);
            ensure!(
                cells().any(measured),
                "`{gate}` speaks of {} under {}, which is not measured",
                side.subject,
                side.scenario
            );
        }
    }
    Ok(())
}

/// Whether what is required of a scenario holds by what is known so far.
fn all_pass(config: &Config, measurements: &[Measurement], rounds: &Rounds, scenario: &str) -> bool {
    let speaks = |demand: &&Demand| {
        demand.level == Level::Required && demand.gate.sides().any(|side| side.scenario == scenario)
    };
    let demands: Vec<Demand> = config.demands.iter().filter(speaks).cloned().collect();
    summary::verdicts(&demands, measurements, rounds).iter().all(|verdict| verdict.pass)
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
        let place = Place {
            bin: config.bin.clone(),
            peers: config.peers.clone(),
            provider: address,
            wrapper: Vec::new(),
            env: Vec::new(),
        };
        Ok(Self { config, provider, place, running: BTreeMap::new() })
    }

    /// Has the subjects of a block run, and no others.
    fn set(&mut self, block: &Block, progress: &mut impl FnMut(&str)) -> anyhow::Result<()> {
        let names = block.subjects();
        self.running.retain(|name, _| names.contains(&name.as_str()));
        for name in names {
            if !self.running.contains_key(name) {
                progress(&format!("starting {name}"));
                self.start(name)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, name: &str) -> anyhow::Result<()> {
        let subject = self.config.subjects.iter().find(|subject| subject.name == name);
        let subject = subject.with_context(|| format!("there is no subject {name}"))?;
        // The one before must be gone first: it may hold what this one needs.
        self.running.remove(&subject.name);
        self.running.insert(subject.name.clone(), Running::start(subject, &self.place)?);
        Ok(())
    }

    /// One round of one load: every subject, beginning with another one each time.
    fn measure(&mut self, cell: &Cell, round: u32) -> anyhow::Result<Vec<Measurement>> {
        let Cell { scenario, subjects } = cell;
        let shift = usize::try_from(round).unwrap_or(0) % subjects.len().max(1);
        let mut found = Vec::new();
        for subject in subjects.iter().cycle().skip(shift).take(subjects.len()) {
            if scenario.is_fresh {
                self.start(subject)?;
            }
            found.push(self.measure_one(*scenario, round, subject)?);
        }
        let size = |m: &Measurement| m.report.body_bytes.checked_div(m.report.ok).unwrap_or(0);
        let mut exact = found.iter().filter(|m| m.is_exact());
        if let Some(first) = exact.next() {
            for other in exact {
                ensure!(
                    size(first).abs_diff(size(other)) <= SIZE_TOLERANCE,
                    "{}: replies through {} have {} bytes, through {} {}",
                    scenario.name,
                    other.subject,
                    size(other),
                    first.subject,
                    size(first)
                );
            }
        }
        Ok(found)
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
            engine: self.config.engine,
            ..scenario.load()
        };
        let (started, busy, own) = (Instant::now(), procfs::machine_busy_us(), self.own_us());
        let report = load::run(&config).context("run the load")?;
        let (busy, own) = (procfs::machine_busy_us() - busy, self.own_us().saturating_sub(own));
        let others_cores = busy.saturating_sub(own) as f64 / 1e6 / started.elapsed().as_secs_f64();
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
