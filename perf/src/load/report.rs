//! What a load run found: counts, histograms, CPU and memory, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use super::arrivals::Arrivals;
use super::engine::Engine;
use super::tally::Tally;
use super::times::{Distributions, Times, distribution, quantiles};
use crate::procfs::Sample;

/// CPU and memory of one measured process, or of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Usage {
    /// User and system time during the run. Unit: µs.
    pub cpu_us: u64,
    /// CPU time per event. Unit: µs.
    pub cpu_us_per_event: f64,
    /// CPU time per completed request. Unit: µs.
    pub cpu_us_per_request: f64,
    /// Time that threads were ready to run and had no CPU. Unit: µs.
    pub run_delay_us: u64,
    /// CPU time as a share of the run's wall time; 1.0 is one core.
    pub cores: f64,
    /// Resident memory at the end. Unit: KiB.
    pub rss_kib: u64,
    /// The highest resident memory of the process's life. Unit: KiB.
    pub rss_peak_kib: u64,
    /// Proportional memory before, within (`--mem-at-ms`) and after the run. Unit: KiB.
    pub pss_kib: [Option<u64>; 3],
    /// Growth of proportional memory up to `--mem-at-ms`, per worker. Unit: KiB.
    pub pss_kib_per_stream: Option<f64>,
}

/// The readings around one run.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    /// Just before the run.
    pub before: BTreeMap<String, Sample>,
    /// Within the run, if asked for.
    pub within: Option<BTreeMap<String, Sample>>,
    /// Just after the run.
    pub after: BTreeMap<String, Sample>,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What the load ran on.
    pub engine: Engine,
    /// How requests arrived, as the option is written, the seed with it.
    pub arrivals: String,
    /// Requests that ended, well or not.
    pub requests: u64,
    /// Requests whose reply passed every check.
    pub ok: u64,
    /// Of these, how many a seal of the provider proved exact.
    pub sealed: u64,
    /// Failed requests by kind.
    pub errors: BTreeMap<String, u64>,
    /// Kept connections that were found closed before they were used again.
    pub reconnects: u64,
    /// The most requests in flight at one moment.
    pub in_flight_peak: u64,
    /// Wall time. Unit: s.
    pub seconds: f64,
    /// Events of good replies; a reply that is no stream is one event.
    pub events: u64,
    /// Events per second.
    pub events_per_second: f64,
    /// Good replies per second.
    pub requests_per_second: f64,
    /// Bytes of good bodies, without HTTP framing.
    pub body_bytes: u64,
    /// Comment lines in good streams.
    pub comments: u64,
    /// From where the request counts (its start; its schedule in an open load) to the first event.
    pub first_event_us: Times,
    /// Between two events of one stream; events that arrive together have 0 between them.
    pub gap_us: Times,
    /// From where the request counts (its start; its schedule in an open load) to the end of the reply.
    pub total_us: Times,
    /// From the provider's write to the reading of the event, with `stamp`.
    pub delivery_us: Times,
    /// How much later than its schedule each request of an open load was released: the generator's own delay.
    pub lateness_us: Times,
    /// With a bound of connections: how long requests waited for one after their release.
    pub connection_wait_us: Times,
    /// Whole refusals by status: from where the request counts to the end of the reply. They are among the errors too.
    pub refusals: BTreeMap<u16, Times>,
    /// Whole refusals by status and the code of their error object, such as `503 queue_timeout`.
    pub refusal_codes: BTreeMap<String, u64>,
    /// The distributions of the times above, to be drawn.
    pub distributions: Distributions,
    /// CPU time of each process's threads during the run, by their names. Unit: µs.
    pub threads_us: BTreeMap<String, BTreeMap<String, u64>>,
    /// Each measured process.
    pub processes: BTreeMap<String, Usage>,
    /// All of them together.
    pub all_processes: Option<Usage>,
}

impl Report {
    /// Puts the figures of a closed run together; growth of memory is divided by its `workers`, each of which has one
    /// request in flight.
    #[must_use]
    pub fn new(tally: &Tally, elapsed: Duration, workers: u64, readings: &Readings) -> Self {
        let failed: u64 = tally.errors.values().sum();
        let seconds = elapsed.as_secs_f64();
        let usage = |name: Option<&str>| usage(tally, seconds, workers, readings, name);
        let quantiles = quantiles();
        Self {
            engine: Engine::default(),
            arrivals: Arrivals::Closed.to_string(),
            in_flight_peak: workers,
            requests: tally.ok + failed,
            ok: tally.ok,
            sealed: tally.sealed,
            errors: tally.errors.clone(),
            reconnects: tally.reconnects,
            seconds,
            events: tally.events,
            events_per_second: ratio(tally.events as f64, seconds),
            requests_per_second: ratio(tally.ok as f64, seconds),
            body_bytes: tally.body_bytes,
            comments: tally.comments,
            first_event_us: Times::from(&tally.first_event),
            gap_us: Times::from(&tally.gap),
            total_us: Times::from(&tally.total),
            delivery_us: Times::from(&tally.delivery),
            lateness_us: Times::from(&tally.lateness),
            connection_wait_us: Times::from(&tally.connection_wait),
            refusals: tally.refusals.iter().map(|(status, times)| (*status, Times::from(times))).collect(),
            refusal_codes: tally.refusal_codes.clone(),
            distributions: Distributions {
                first_event_us: distribution(&tally.first_event, &quantiles),
                gap_us: distribution(&tally.gap, &quantiles),
                total_us: distribution(&tally.total, &quantiles),
                delivery_us: distribution(&tally.delivery, &quantiles),
                quantiles,
            },
            threads_us: readings
                .after
                .iter()
                .map(|(name, after)| (name.clone(), threads_us(readings.before.get(name), after)))
                .collect(),
            processes: readings.after.keys().map(|name| (name.clone(), usage(Some(name)))).collect(),
            all_processes: (!readings.after.is_empty()).then(|| usage(None)),
        }
    }

    /// Whether there were requests and every one was good.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.requests > 0 && self.ok == self.requests
    }
}

/// The usage of the process called `name`, or of all.
fn usage(tally: &Tally, seconds: f64, workers: u64, readings: &Readings, name: Option<&str>) -> Usage {
    let sum = |samples: &BTreeMap<String, Sample>, field: fn(&Sample) -> u64| -> u64 {
        samples
            .iter()
            .filter(|(key, _)| name.is_none_or(|name| name == *key))
            .map(|(_, sample)| field(sample))
            .sum()
    };
    let cpu = |sample: &Sample| sample.cpu_us;
    let delay = |sample: &Sample| sample.run_delay_ns / 1000;
    let pss = |sample: &Sample| sample.pss_kib;
    let cpu_us = sum(&readings.after, cpu).saturating_sub(sum(&readings.before, cpu));
    let within = readings.within.as_ref().map(|within| sum(within, pss));
    let before = sum(&readings.before, pss);
    Usage {
        cpu_us,
        cpu_us_per_event: ratio(cpu_us as f64, tally.events as f64),
        cpu_us_per_request: ratio(cpu_us as f64, tally.ok as f64),
        run_delay_us: sum(&readings.after, delay).saturating_sub(sum(&readings.before, delay)),
        cores: ratio(cpu_us as f64 / 1e6, seconds),
        rss_kib: sum(&readings.after, |sample| sample.rss_kib),
        rss_peak_kib: sum(&readings.after, |sample| sample.rss_peak_kib),
        pss_kib: [Some(before), within, Some(sum(&readings.after, pss))],
        pss_kib_per_stream: within.map(|within| ratio(within as f64 - before as f64, workers as f64)),
    }
}

/// CPU time of the threads between two readings of a process.
fn threads_us(before: Option<&Sample>, after: &Sample) -> BTreeMap<String, u64> {
    let then = |name: &String| before.and_then(|sample| sample.threads_ns.get(name)).copied().unwrap_or(0);
    let spent = |(name, ns): (&String, &u64)| (name.clone(), ns.saturating_sub(then(name)) / 1000);
    after.threads_ns.iter().map(spent).collect()
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "requests {}   ok {}   sealed {}   reconnects {}   {:.2} s   {:.0} requests/s",
            self.requests, self.ok, self.sealed, self.reconnects, self.seconds, self.requests_per_second
        )?;
        writeln!(
            f,
            "events {}   {:.0} events/s   body bytes {}   comments {}",
            self.events, self.events_per_second, self.body_bytes, self.comments
        )?;
        writeln!(
            f,
            "arrivals {}   in flight at most {}   engine {}",
            self.arrivals, self.in_flight_peak, self.engine
        )?;
        for (kind, count) in &self.errors {
            writeln!(f, "error {kind}: {count}")?;
        }
        for (code, count) in &self.refusal_codes {
            writeln!(f, "refused {code}: {count}")?;
        }
        self.write_times(f)?;
        self.write_processes(f)
    }
}

impl Report {
    fn write_times(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<14}{:>10} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}",
            "ms", "count", "mean", "p50", "p90", "p99", "p99.9", "max"
        )?;
        let named = [
            ("first event", &self.first_event_us),
            ("gap", &self.gap_us),
            ("total", &self.total_us),
            ("delivery", &self.delivery_us),
            ("lateness", &self.lateness_us),
            ("waited", &self.connection_wait_us),
        ];
        let refused = self.refusals.iter().map(|(status, times)| (format!("refused {status}"), times));
        for (name, times) in named.map(|(name, times)| (name.to_owned(), times)).into_iter().chain(refused) {
            if times.count > 0 {
                write!(f, "{name:<14}{:>10} {:>12.3}", times.count, times.mean / 1000.0)?;
                for us in [times.p50, times.p90, times.p99, times.p999, times.max] {
                    write!(f, " {:>12.3}", us as f64 / 1000.0)?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }

    fn write_processes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(all) = &self.all_processes else { return Ok(()) };
        writeln!(
            f,
            "\n{:<14}{:>10}{:>11}{:>11}{:>8}{:>10}{:>10}{:>24}{:>12}",
            "process",
            "cpu ms",
            "us/event",
            "us/request",
            "cores",
            "rss KiB",
            "peak KiB",
            "pss KiB",
            "KiB/stream"
        )?;
        let all = (self.processes.len() > 1).then_some(("all", all));
        for (name, usage) in self.processes.iter().map(|(name, usage)| (name.as_str(), usage)).chain(all) {
            writeln!(f, "{name:<14}{}", usage_row(usage))?;
        }
        Ok(())
    }
}

fn usage_row(usage: &Usage) -> String {
    let mut pss = String::new();
    for (index, kib) in usage.pss_kib.iter().flatten().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(pss, "{}{kib}", if index > 0 { " > " } else { "" });
    }
    let growth = usage.pss_kib_per_stream.map_or_else(|| "-".to_owned(), |kib| format!("{kib:.1}"));
    format!(
        "{:>10}{:>11.2}{:>11.1}{:>8.2}{:>10}{:>10}{pss:>24}{growth:>12}",
        usage.cpu_us / 1000,
        usage.cpu_us_per_event,
        usage.cpu_us_per_request,
        usage.cores,
        usage.rss_kib,
        usage.rss_peak_kib,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::exchange::{Observer as _, Reply};
    use crate::load::verify::Failure;

    fn tally() -> Tally {
        let mut tally = Tally::default();
        for first in [1000, 3000] {
            tally.add(Ok(Reply {
                first_event_us: first,
                total_us: first * 2,
                events: 50,
                body_bytes: 10_000,
                comments: 1,
                sealed: true,
            }));
        }
        tally.add(Err(Failure::Status(503)));
        tally.add_refusal(503, 700);
        tally.gap(20_000);
        tally
    }

    #[test]
    fn merged_tallies_add_up() {
        let mut sum = tally();
        sum.merge(&tally());
        sum.add_refusal(429, 9);
        let report = Report::new(&sum, Duration::from_secs(2), 4, &Readings::default());
        assert_eq!((report.requests, report.ok, report.sealed, report.events), (6, 4, 4, 200));
        assert_eq!(report.errors.get("status_503"), Some(&2));
        assert_eq!((report.refusals[&503].count, report.refusals[&429].max), (2, 9));
        assert_eq!((report.first_event_us.count, report.gap_us.count), (4, 2));
        assert!((report.events_per_second - 100.0).abs() < 1e-9);
        assert!(!report.is_clean());
    }

    #[test]
    fn cpu_and_memory_are_divided_among_events_requests_and_streams() {
        let sample = |cpu_us, pss_kib| {
            BTreeMap::from([("edge".to_owned(), Sample { cpu_us, pss_kib, ..Sample::default() })])
        };
        let readings = Readings {
            before: sample(100, 1000),
            within: Some(sample(150, 1400)),
            after: sample(1100, 1200),
        };
        let report = Report::new(&tally(), Duration::from_millis(1), 4, &readings);
        let edge = report.processes["edge"];
        assert_eq!(edge.cpu_us, 1000);
        assert!((edge.cpu_us_per_event - 10.0).abs() < 1e-9);
        assert!((edge.cpu_us_per_request - 500.0).abs() < 1e-9);
        assert!((edge.cores - 1.0).abs() < 1e-9);
        assert_eq!(edge.pss_kib_per_stream, Some(100.0));
        assert_eq!(report.all_processes, Some(edge));
    }

    #[test]
    fn table_and_json_show_the_same_run() {
        let report = Report::new(&tally(), Duration::from_secs(1), 1, &Readings::default());
        let table = report.to_string();
        assert!(table.contains("error status_503: 1") && table.contains("first event"), "{table}");
        assert!(!table.contains("delivery"), "{table}");
        let json = serde_json::to_value(&report).unwrap();
        assert!(table.contains("engine epoll") && json["engine"] == "epoll", "{table}");
        assert_eq!(json["errors"]["status_503"], 1);
        assert_eq!(json["first_event_us"]["count"], 2);
        assert_eq!(json["refusals"]["503"]["max"], 700);
        assert!(table.contains("refused 503"), "{table}");
    }

    #[test]
    fn no_request_is_not_a_clean_run() {
        assert!(!Report::new(&Tally::default(), Duration::from_secs(1), 1, &Readings::default()).is_clean());
    }
}
