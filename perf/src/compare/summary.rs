//! From measurements to rows and verdicts. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figures::Spread;
use super::gate::{Demand, Figure, Gate, Side, Verdict};
use super::rounds::Rounds;
use super::scenario::{Scenario, Unit};
use super::{Cell, Config, Measurement};
use crate::load::Usage;
use crate::subject::group;

/// One scenario's rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// The scenario's name.
    pub scenario: &'static str,
    /// Its streams or requests in flight.
    pub concurrency: usize,
    /// What costs are divided by.
    pub unit: &'static str,
    /// Rounds that count.
    pub rounds: Vec<u32>,
    /// Rounds that were run.
    pub rounds_run: usize,
    /// CPU that other programs took in the rounds that count. Unit: cores.
    pub others_cores: Option<Spread>,
    /// Whose figures the ratios divide by.
    pub reference: String,
    /// A row for each subject.
    pub rows: Vec<Row>,
}

/// One subject under one load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The subject's name.
    pub subject: String,
    /// CPU time of all its processes per event or request. Unit: µs. None for the provider itself.
    pub cost_us: Option<Spread>,
    /// The median of each process's share of it; those of a count are added up.
    pub processes: Vec<(String, f64)>,
    /// Its cost by the reference's in the same round.
    pub ratio: Option<Spread>,
    /// Events or requests per second of wall time.
    pub per_second: Option<Spread>,
    /// 99 of 100 first events came within. Unit: ms.
    pub first_event_p99_ms: Option<Spread>,
    /// What the subject adds to the way of an event, by the medians of delivery. Unit: ms.
    pub added_p50_ms: Option<Spread>,
    /// The same by the 99th percentiles.
    pub added_p99_ms: Option<Spread>,
    /// Growth of memory per silent stream. Unit: KiB.
    pub memory_kib: Option<Spread>,
    /// Memory of all its processes before the load, and with all streams open and silent: medians. Unit: KiB.
    pub memory_whole_kib: Option<[f64; 2]>,
}

/// The name of the subject that is the provider itself.
pub(super) const DIRECT: &str = "direct";

/// CPU time of all processes per unit. Unit: µs.
pub(super) fn cost(measurement: &Measurement, unit: Unit) -> Option<f64> {
    Some(cost_of(&measurement.report.all_processes?, unit))
}

fn cost_of(usage: &Usage, unit: Unit) -> f64 {
    match unit {
        Unit::Event => usage.cpu_us_per_event,
        Unit::Request => usage.cpu_us_per_request,
    }
}

fn memory(measurement: &Measurement) -> Option<f64> {
    measurement.report.all_processes?.pss_kib_per_stream
}

/// The processes called `name`, those of a count included.
fn processes<'a>(measurement: &'a Measurement, name: &'a str) -> impl Iterator<Item = &'a Usage> {
    measurement.report.processes.iter().filter(move |(other, _)| group(other) == name).map(|(_, usage)| usage)
}

/// CPU time per unit of what a gate speaks of.
fn cost_of_side(measurement: &Measurement, side: &Side, unit: Unit) -> Option<f64> {
    let Some(name) = &side.process else { return cost(measurement, unit) };
    if let Some(thread) = &side.thread {
        let threads = measurement.report.threads_us.iter().filter(|(other, _)| group(other) == name);
        let mut times = threads.filter_map(|(_, threads)| threads.get(thread)).peekable();
        times.peek()?;
        let units = match unit {
            Unit::Event => measurement.report.events,
            Unit::Request => measurement.report.ok,
        };
        return (units > 0).then(|| times.sum::<u64>() as f64 / units as f64);
    }
    let mut costs = processes(measurement, name).map(|usage| cost_of(usage, unit)).peekable();
    costs.peek()?;
    Some(costs.sum())
}

/// A figure of one measurement; `direct` is the bare provider's measurement of the same round.
fn figure(
    measurement: &Measurement,
    direct: Option<&Measurement>,
    side: &Side,
    figure: Figure,
) -> Option<f64> {
    let report = &measurement.report;
    let ms = |us: u64| us as f64 / 1000.0;
    let added = |own: u64, bare: &dyn Fn(&Measurement) -> u64| Some(ms(own) - ms(bare(direct?)));
    match figure {
        Figure::Cpu => cost_of_side(measurement, side, Scenario::find(measurement.scenario)?.unit),
        Figure::Memory => memory(measurement),
        Figure::FirstP99 => Some(ms(report.first_event_us.p99)),
        Figure::AddedP50 => added(report.delivery_us.p50, &|m| m.report.delivery_us.p50),
        Figure::AddedP99 => added(report.delivery_us.p99, &|m| m.report.delivery_us.p99),
        Figure::OverheadP99 => added(report.total_us.p99, &|m| m.report.total_us.p99),
        Figure::Goodput => Some(report.requests_per_second),
        Figure::RefusalP99 => measurement.refusals().map(|times| ms(times.p99)).reduce(f64::max),
        Figure::Pss => report.all_processes.as_ref()?.pss_kib.get(1)?.map(|kib| kib as f64),
    }
}

/// A table for each scenario.
pub(super) fn tables(config: &Config, measurements: &[Measurement], rounds: &Rounds) -> Vec<Table> {
    let cells = config.blocks.iter().flat_map(|block| &block.cells);
    cells
        .map(|Cell { scenario, subjects }| {
            let counted = Counted::new(measurements, rounds, scenario.name);
            Table {
                scenario: scenario.name,
                concurrency: scenario.concurrency(),
                unit: scenario.unit.name(),
                rounds: rounds.counted(scenario.name),
                rounds_run: rounds.count(scenario.name),
                others_cores: Spread::of(counted.all.iter().map(|m| m.others_cores)),
                reference: config.reference.clone(),
                rows: subjects.iter().map(|s| row(&counted, *scenario, s, &config.reference)).collect(),
            }
        })
        .collect()
}

/// The measurements of one scenario in the rounds that count, as far as every reply was exact.
struct Counted<'a> {
    all: Vec<&'a Measurement>,
}

impl<'a> Counted<'a> {
    fn new(measurements: &'a [Measurement], rounds: &Rounds, scenario: &str) -> Self {
        let counted = rounds.counted(scenario);
        let counts = |m: &&Measurement| m.scenario == scenario && m.is_exact() && counted.contains(&m.round);
        Self { all: measurements.iter().filter(counts).collect() }
    }

    fn of<'b>(&'b self, subject: &'b str) -> impl Iterator<Item = &'a Measurement> + 'b {
        self.all.iter().copied().filter(move |m| m.subject == subject)
    }

    fn at(&self, subject: &str, round: u32) -> Option<&'a Measurement> {
        self.of(subject).find(|m| m.round == round)
    }

    /// A figure of a gate's side, by round.
    fn figures(&self, side: &Side, of: Figure) -> BTreeMap<u32, f64> {
        let one = |m: &Measurement| Some((m.round, figure(m, self.at(DIRECT, m.round), side, of)?));
        self.of(&side.subject).filter_map(one).collect()
    }
}

fn row(counted: &Counted<'_>, scenario: Scenario, subject: &str, reference: &str) -> Row {
    let side = |subject: &str| Side {
        subject: subject.to_owned(),
        process: None,
        thread: None,
        scenario: scenario.name.to_owned(),
    };
    let own = side(subject);
    let spread = |of: Figure| Spread::of(counted.figures(&own, of).into_values());
    let added = |of: Figure| spread(of).filter(|_| scenario.is_stamped() && subject != DIRECT);
    let [before, within] = [0, 1].map(|index: usize| {
        let kib = |m: &Measurement| Some(*m.report.all_processes?.pss_kib.get(index)?.as_ref()? as f64);
        Spread::of(counted.of(subject).filter_map(kib)).map(|kib| kib.mid)
    });
    Row {
        subject: subject.to_owned(),
        cost_us: spread(Figure::Cpu),
        processes: process_costs(counted, scenario.unit, subject),
        ratio: Spread::of_ratios(
            ratios(&counted.figures(&own, Figure::Cpu), &counted.figures(&side(reference), Figure::Cpu))
                .filter(|_| subject != reference),
        ),
        per_second: Spread::of(counted.of(subject).map(|m| match scenario.unit {
            Unit::Event => m.report.events_per_second,
            Unit::Request => m.report.requests_per_second,
        })),
        first_event_p99_ms: spread(Figure::FirstP99),
        added_p50_ms: added(Figure::AddedP50),
        added_p99_ms: added(Figure::AddedP99),
        memory_kib: spread(Figure::Memory).filter(|_| scenario.is_fresh),
        memory_whole_kib: before.zip(within).map(|(before, within)| [before, within]),
    }
}

/// Ratios within the rounds; a figure of nothing has no ratio.
fn ratios(own: &BTreeMap<u32, f64>, reference: &BTreeMap<u32, f64>) -> impl Iterator<Item = f64> {
    own.iter().filter_map(|(round, own)| {
        let reference = reference.get(round).filter(|reference| **reference > 0.0)?;
        Some(own / reference)
    })
}

/// The median cost of each of a subject's processes.
fn process_costs(counted: &Counted<'_>, unit: Unit, subject: &str) -> Vec<(String, f64)> {
    let Some(first) = counted.of(subject).next() else { return Vec::new() };
    let mut names: Vec<&str> = first.report.processes.keys().map(|name| group(name)).collect();
    names.dedup();
    names
        .into_iter()
        .filter_map(|name| {
            let sum = |m: &Measurement| processes(m, name).map(|usage| cost_of(usage, unit)).sum();
            let costs: Vec<f64> = counted.of(subject).map(sum).collect();
            Some((name.to_owned(), Spread::of(costs)?.mid))
        })
        .collect()
}

/// What becomes of the demands.
pub(super) fn verdicts(demands: &[Demand], measurements: &[Measurement], rounds: &Rounds) -> Vec<Verdict> {
    let figures = |side: &Side, gate: &Gate| {
        Counted::new(measurements, rounds, &side.scenario).figures(side, gate.figure)
    };
    demands
        .iter()
        .map(|demand| {
            let gate = &demand.gate;
            let own = figures(&gate.own, gate);
            let (measured, pass) = match &gate.reference {
                Some(reference) => gate.judge(ratios(&own, &figures(reference, gate))),
                None => gate.judge(own.into_values()),
            };
            Verdict { demand: demand.clone(), measured, pass }
        })
        .collect()
}

/// Replies of one subject over a whole comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Replies {
    /// All that were asked for.
    pub all: u64,
    /// Of these, refused under a load that asks for refusals.
    pub refused: u64,
    /// Of these, lost, cut short or not exact.
    pub lost: u64,
}

/// The replies of every subject.
pub(super) fn replies(measurements: &[Measurement]) -> BTreeMap<String, Replies> {
    let mut replies: BTreeMap<String, Replies> = BTreeMap::new();
    for m in measurements {
        let of = replies.entry(m.subject.clone()).or_default();
        of.all += m.report.requests;
        of.refused += m.refused();
        of.lost += m.lost();
    }
    replies
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::compare::Block;
    use crate::load::{Engine, Readings, Report, Tally};
    use crate::procfs::Sample;
    use crate::subject::Subject;

    fn measurement(round: u32, subject: &str, cpu_us: u64) -> Measurement {
        let mut tally = Tally::default();
        tally.add(Ok(crate::load::Reply {
            events: 100,
            total_us: 1,
            first_event_us: cpu_us,
            sealed: true,
            ..Default::default()
        }));
        let sample = |cpu_us| {
            let threads_ns = BTreeMap::from([("t".to_owned(), cpu_us * 100)]);
            let half = Sample { cpu_us: cpu_us / 2, threads_ns, ..Sample::default() };
            BTreeMap::from(["p#1", "p#2"].map(|name| (name.to_owned(), half.clone())))
        };
        let readings = match subject {
            DIRECT => Readings::default(),
            _ => Readings { before: sample(0), within: None, after: sample(cpu_us) },
        };
        let report = Report::new(&tally, Duration::from_secs(1), 1, &readings);
        Measurement { round, scenario: "sat64", subject: subject.to_owned(), others_cores: 0.0, report }
    }

    /// Two rounds: ours 10 and 20 µs an event, nginx 10 and 40; a third, disturbed, that must not count.
    pub(in crate::compare) fn example() -> (Config, Vec<Measurement>, Rounds) {
        let mut rounds = Rounds::default();
        rounds.plan("sat64", 2, 3);
        let mut measurements = Vec::new();
        for (round, ours, nginx, others) in [(1, 1000, 1000, 0.0), (2, 2000, 4000, 0.0), (3, 9000, 2, 2.0)] {
            rounds.ran("sat64", round, others);
            measurements.push(measurement(round, DIRECT, 0));
            measurements.push(measurement(round, "ours", ours));
            measurements.push(measurement(round, "nginx", nginx));
        }
        let names = [DIRECT, "ours", "nginx"];
        let cell =
            Cell { scenario: Scenario::find("sat64").unwrap(), subjects: names.map(str::to_owned).to_vec() };
        let config = Config {
            subjects: names.map(|name| Subject::parse(&format!("name: {name}\nurl: x")).unwrap()).to_vec(),
            blocks: vec![Block { cells: vec![cell], rounds: 2, rounds_max: 3 }],
            reference: "nginx".to_owned(),
            engine: Engine::Epoll,
            demands: vec![gate("ours/nginx sat64 cpu <= 0.75").into()],
            program: "p".into(),
            bin: "b".into(),
            peers: "p".into(),
        };
        (config, measurements, rounds)
    }

    fn gate(text: &str) -> Gate {
        text.parse().unwrap()
    }

    fn mid(text: &str) -> Option<f64> {
        let (_, measurements, rounds) = example();
        verdicts(&[gate(text).into()], &measurements, &rounds)[0].measured.map(|measured| measured.mid)
    }

    #[test]
    fn rows_hold_medians_and_ratios_within_the_rounds_that_count() {
        let (config, measurements, rounds) = example();
        let tables = tables(&config, &measurements, &rounds);
        let [direct, ours, nginx] = tables[0].rows.as_slice() else { panic!("{tables:?}") };
        assert_eq!((tables[0].rounds.as_slice(), tables[0].rounds_run), ([1, 2].as_slice(), 3));
        assert_eq!((direct.cost_us, direct.ratio), (None, None));
        assert!((ours.cost_us.unwrap().mid - 15.0).abs() < 1e-9);
        assert!((ours.ratio.unwrap().mid - 0.5_f64.sqrt()).abs() < 1e-9, "{:?}", ours.ratio);
        assert_eq!(nginx.ratio, None);
        assert_eq!(ours.processes, [("p".to_owned(), 15.0)], "those of a count are one");
    }

    #[test]
    fn a_gate_is_held_against_the_rounds_that_count() {
        let (mut config, measurements, rounds) = example();
        assert!(verdicts(&config.demands, &measurements, &rounds)[0].pass);
        config.demands[0].gate.limit = 0.70;
        assert!(!verdicts(&config.demands, &measurements, &rounds)[0].pass);
        assert!(!verdicts(&config.demands, &[], &Rounds::default())[0].pass, "no measurement is no pass");
    }

    #[test]
    fn a_gate_may_speak_of_a_process_or_of_a_time_or_of_the_figure_itself() {
        assert_eq!(mid("ours sat64 cpu <= 1"), Some(15.0));
        assert_eq!(mid("ours.p sat64 cpu <= 1"), Some(15.0));
        assert_eq!(mid("ours.q sat64 cpu <= 1"), None);
        assert_eq!(mid("ours.p:t sat64 cpu <= 1"), Some(3.0), "a thread of both processes");
        assert_eq!(mid("ours.p:u sat64 cpu <= 1"), None);
        assert_eq!(mid("ours sat64 first_p99 <= 1"), Some(1.5));
        assert_eq!(mid("nobody sat64 cpu <= 1"), None);
        assert_eq!(mid("ours sat64 overhead_p99 <= 1"), Some(0.0), "the bare provider's time is taken off");
    }

    #[test]
    fn a_refusal_is_an_answer_where_it_is_asked_for_and_lost_elsewhere() {
        let mut tally = Tally::default();
        tally.add(Ok(crate::load::Reply { events: 1, sealed: true, ..Default::default() }));
        for us in [700, 900] {
            tally.add(Err(crate::load::Failure::Status(503)));
            tally.add_refusal(503, us);
        }
        let report = Report::new(&tally, Duration::from_secs(1), 1, &Readings::default());
        let under = |scenario: &'static str| Measurement {
            scenario,
            report: report.clone(),
            ..measurement(1, "ours", 1)
        };
        assert!(under("overload").is_exact() && !under("sat64").is_exact());
        assert_eq!(replies(&[under("overload")])["ours"], Replies { all: 3, refused: 2, lost: 0 });
        assert_eq!(replies(&[under("sat64")])["ours"], Replies { all: 3, refused: 0, lost: 2 });
        let mut rounds = Rounds::default();
        rounds.plan("overload", 1, 1);
        rounds.ran("overload", 1, 0.0);
        let judged = |text: &str| verdicts(&[gate(text).into()], &[under("overload")], &rounds)[0].measured;
        assert_eq!(judged("ours overload refusal_p99 <= 1").map(|measured| measured.mid), Some(0.9));
        assert_eq!(judged("ours overload goodput >= 1").map(|measured| measured.mid), Some(1.0));
    }

    #[test]
    fn an_inexact_round_counts_nowhere_but_among_the_lost() {
        let (config, mut measurements, rounds) = example();
        measurements[1].report.sealed = 0;
        let verdict = &verdicts(&config.demands, &measurements, &rounds)[0];
        assert_eq!(verdict.measured.map(|measured| (measured.count, measured.mid)), Some((1, 0.5)));
        let replies = replies(&measurements);
        assert_eq!(replies["ours"], Replies { all: 3, refused: 0, lost: 1 });
        assert_eq!(replies["nginx"], Replies { all: 3, refused: 0, lost: 0 });
    }
}
