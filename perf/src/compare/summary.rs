//! From measurements to rows and verdicts. Pure.

use serde::Serialize;

use super::figures::Spread;
use super::gate::{Figure, Gate, Verdict};
use super::rounds::Rounds;
use super::scenario::{Scenario, Unit};
use super::{Config, Measurement};

/// One scenario's rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// The scenario's name.
    pub scenario: &'static str,
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
    /// The median of each process's share of it.
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
}

/// The name of the subject that is the provider itself.
const DIRECT: &str = "direct";

/// CPU time of all processes per unit. Unit: µs.
pub(super) fn cost(measurement: &Measurement, unit: Unit) -> Option<f64> {
    let usage = measurement.report.all_processes?;
    Some(match unit {
        Unit::Event => usage.cpu_us_per_event,
        Unit::Request => usage.cpu_us_per_request,
    })
}

fn memory(measurement: &Measurement) -> Option<f64> {
    measurement.report.all_processes?.pss_kib_per_stream
}

/// A table for each scenario.
pub(super) fn tables(config: &Config, measurements: &[Measurement], rounds: &Rounds) -> Vec<Table> {
    config
        .scenarios
        .iter()
        .map(|scenario| {
            let counted = Counted::new(measurements, rounds, scenario.name);
            Table {
                scenario: scenario.name,
                unit: scenario.unit.name(),
                rounds: rounds.counted(scenario.name),
                rounds_run: rounds.count(scenario.name),
                others_cores: Spread::of(counted.all.iter().map(|m| m.others_cores)),
                reference: config.reference.clone(),
                rows: config
                    .subjects
                    .iter()
                    .map(|s| row(&counted, *scenario, &s.name, &config.reference))
                    .collect(),
            }
        })
        .collect()
}

/// The measurements of one scenario in the rounds that count.
struct Counted<'a> {
    all: Vec<&'a Measurement>,
}

impl<'a> Counted<'a> {
    fn new(measurements: &'a [Measurement], rounds: &Rounds, scenario: &str) -> Self {
        let counted = rounds.counted(scenario);
        let all = measurements.iter().filter(|m| m.scenario == scenario && counted.contains(&m.round));
        Self { all: all.collect() }
    }

    fn of<'b>(&'b self, subject: &'b str) -> impl Iterator<Item = &'a Measurement> + 'b {
        self.all.iter().copied().filter(move |m| m.subject == subject)
    }

    /// A figure of `subject` and of `other` in the same rounds.
    fn pairs<'b>(
        &'b self,
        subject: &'b str,
        other: &'b str,
        figure: impl Fn(&Measurement) -> Option<f64> + Copy + 'b,
    ) -> impl Iterator<Item = (f64, f64)> + 'b {
        self.of(subject).filter_map(move |own| {
            let other = self.of(other).find(|other| other.round == own.round)?;
            Some((figure(own)?, figure(other)?))
        })
    }

    /// Ratios within the rounds; a figure of nothing has no ratio.
    fn ratios<'b>(
        &'b self,
        subject: &'b str,
        reference: &'b str,
        figure: impl Fn(&Measurement) -> Option<f64> + Copy + 'b,
    ) -> impl Iterator<Item = f64> + 'b {
        self.pairs(subject, reference, figure)
            .filter(|(_, reference)| *reference > 0.0)
            .map(|(own, other)| own / other)
    }
}

fn row(counted: &Counted<'_>, scenario: Scenario, subject: &str, reference: &str) -> Row {
    let unit_cost = |m: &Measurement| cost(m, scenario.unit);
    let spread =
        |figure: &dyn Fn(&Measurement) -> Option<f64>| Spread::of(counted.of(subject).filter_map(figure));
    let added = |quantile: fn(&Measurement) -> u64| {
        let difference = |(own, direct): (f64, f64)| (own - direct) / 1000.0;
        let pairs = counted.pairs(subject, DIRECT, move |m| Some(quantile(m) as f64));
        Spread::of(pairs.map(difference).filter(|_| scenario.is_stamped() && subject != DIRECT))
    };
    Row {
        subject: subject.to_owned(),
        cost_us: spread(&unit_cost),
        processes: process_costs(counted, scenario.unit, subject),
        ratio: Spread::of_ratios(
            counted.ratios(subject, reference, unit_cost).filter(|_| subject != reference),
        ),
        per_second: spread(&|m| {
            Some(match scenario.unit {
                Unit::Event => m.report.events_per_second,
                Unit::Request => m.report.requests_per_second,
            })
        }),
        first_event_p99_ms: spread(&|m| Some(m.report.first_event_us.p99 as f64 / 1000.0)),
        added_p50_ms: added(|m| m.report.delivery_us.p50),
        added_p99_ms: added(|m| m.report.delivery_us.p99),
        memory_kib: spread(&memory),
    }
}

/// The median cost of each of a subject's processes.
fn process_costs(counted: &Counted<'_>, unit: Unit, subject: &str) -> Vec<(String, f64)> {
    let Some(first) = counted.of(subject).next() else { return Vec::new() };
    let names = first.report.processes.keys();
    names
        .filter_map(|name| {
            let costs = counted.of(subject).filter_map(|m| {
                let usage = m.report.processes.get(name)?;
                Some(if unit == Unit::Event { usage.cpu_us_per_event } else { usage.cpu_us_per_request })
            });
            Some((name.clone(), Spread::of(costs)?.mid))
        })
        .collect()
}

/// What becomes of the gates.
pub(super) fn verdicts(gates: &[Gate], measurements: &[Measurement], rounds: &Rounds) -> Vec<Verdict> {
    gates
        .iter()
        .map(|gate| {
            let unit = Scenario::find(&gate.scenario).map_or(Unit::Event, |scenario| scenario.unit);
            let figure = |m: &Measurement| match gate.figure {
                Figure::Cpu => cost(m, unit),
                Figure::Memory => memory(m),
            };
            let counted = Counted::new(measurements, rounds, &gate.scenario);
            gate.judge(counted.ratios(&gate.subject, &gate.reference, figure))
        })
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::load::{Readings, Report, Tally};
    use crate::procfs::Sample;
    use crate::subject::Subject;

    fn measurement(round: u32, subject: &str, cpu_us: u64) -> Measurement {
        let mut tally = Tally::default();
        tally.add(Ok(crate::load::Reply { events: 100, total_us: 1, sealed: true, ..Default::default() }));
        let sample = |cpu_us| BTreeMap::from([("p".to_owned(), Sample { cpu_us, ..Sample::default() })]);
        let readings = match subject {
            DIRECT => Readings::default(),
            _ => Readings { before: sample(0), within: None, after: sample(cpu_us) },
        };
        let report = Report::new(&tally, Duration::from_secs(1), 1, &readings);
        Measurement { round, scenario: "sat64", subject: subject.to_owned(), others_cores: 0.0, report }
    }

    /// Two rounds: ours 10 and 20 µs an event, nginx 10 and 40; a third, disturbed, that must not count.
    pub(in crate::compare) fn example() -> (Config, Vec<Measurement>, Rounds) {
        let mut rounds = Rounds::new(2, 3);
        let mut measurements = Vec::new();
        for (round, ours, nginx, others) in [(1, 1000, 1000, 0.0), (2, 2000, 4000, 0.0), (3, 9000, 1, 2.0)] {
            rounds.ran("sat64", round, others);
            measurements.push(measurement(round, DIRECT, 0));
            measurements.push(measurement(round, "ours", ours));
            measurements.push(measurement(round, "nginx", nginx));
        }
        let subject = |name: &str| Subject::parse(&format!("name: {name}\nurl: x")).unwrap();
        let config = Config {
            subjects: [DIRECT, "ours", "nginx"].map(subject).to_vec(),
            scenarios: vec![Scenario::find("sat64").unwrap()],
            rounds: 2,
            rounds_max: 3,
            reference: "nginx".to_owned(),
            gates: vec!["ours/nginx sat64 cpu <= 0.75".parse().unwrap()],
            program: "p".into(),
            bin: "b".into(),
        };
        (config, measurements, rounds)
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
        assert_eq!(ours.processes, [("p".to_owned(), 15.0)]);
    }

    #[test]
    fn a_gate_is_held_against_the_rounds_that_count() {
        let (mut config, measurements, rounds) = example();
        assert!(verdicts(&config.gates, &measurements, &rounds)[0].pass);
        config.gates[0].limit = 0.70;
        assert!(!verdicts(&config.gates, &measurements, &rounds)[0].pass);
        assert!(!verdicts(&config.gates, &[], &Rounds::new(1, 1))[0].pass, "no measurement is no pass");
    }
}
