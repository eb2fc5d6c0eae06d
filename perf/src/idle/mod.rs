//! Silent streams: many that are open and say nothing for long, while the memory and the CPU of the subject's processes
//! are read; then every one goes on and must arrive whole.
//!
//! ```text
//! before ──► opening, at a bounded rate ──► silent ──► ending ──► after
//! ```
//! Every stream is silent for as long as all take to open and the silence lasts, so there is a stretch in which all are
//! open at once and none has an event.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::load::{self, Arrivals, Config, Gauge, Length, Report};
use crate::procfs::{self, Process, Sample};

/// Past the last stream's due start, before the silence counts.
const SETTLE: Duration = Duration::from_secs(1);
/// Content events of each stream, once it speaks.
const EVENTS: u64 = 5;
/// What a stream may take beyond its silence.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is asked of the silence.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Streams, open at once.
    pub streams: usize,
    /// How long all are silent together.
    pub silence: Duration,
    /// Streams opened per second.
    pub per_second: f64,
    /// From one reading of the processes to the next.
    pub every: Duration,
}

/// What part of the run a reading belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// No stream is open.
    Before,
    /// Streams are being opened.
    Opening,
    /// All are open and silent.
    Silent,
    /// Streams speak and end.
    Ending,
    /// All have ended.
    After,
}

/// One reading.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reading {
    /// Since the run began. Unit: s.
    pub at_seconds: f64,
    /// The part of the run.
    pub stage: Stage,
    /// Streams open.
    pub open: u64,
    /// Streams that have ended otherwise than well.
    pub failed: u64,
    /// The processes.
    pub processes: BTreeMap<String, Sample>,
}

/// What a process held and took for the silent streams.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Held {
    /// Growth of resident memory up to the last silent reading, by streams. Unit: KiB.
    pub rss_kib_per_stream: f64,
    /// Growth of proportional memory up to the last silent reading, by streams. Unit: KiB.
    pub pss_kib_per_stream: f64,
    /// Resident memory before, at the last silent reading, after. Unit: KiB.
    pub rss_kib: [u64; 3],
    /// Proportional memory at the same times. Unit: KiB.
    pub pss_kib: [u64; 3],
    /// CPU time between the first silent reading and the last. Unit: µs.
    pub silent_cpu_us: u64,
    /// The same by the time between them; 1.0 is one core.
    pub silent_cores: f64,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Silence {
    /// Streams that were to be open.
    pub streams: u64,
    /// The fewest that were open at a silent reading.
    pub open_min: u64,
    /// Streams that did not arrive whole.
    pub dropped: u64,
    /// From the first silent reading to the last. Unit: s.
    pub silent_seconds: f64,
    /// Each process.
    pub held: BTreeMap<String, Held>,
    /// Every reading.
    pub readings: Vec<Reading>,
    /// What the load saw.
    pub report: Report,
}

impl Silence {
    /// Whether all streams were open through the whole silence and every one arrived whole.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.report.is_clean() && self.report.requests == self.streams && self.open_min == self.streams
    }
}

impl Plan {
    /// From the first stream's start to the last one's.
    fn opening(&self) -> Duration {
        Duration::try_from_secs_f64(self.streams as f64 / self.per_second).unwrap_or(Duration::MAX) + SETTLE
    }

    /// How long each stream is silent.
    #[must_use]
    pub fn prefill(&self) -> Duration {
        self.opening() + self.silence
    }

    /// The load of it; `base` says where it goes.
    #[must_use]
    pub fn load(&self, base: Config) -> Config {
        let prefill = self.prefill();
        Config {
            arrivals: Arrivals::Uniform { per_second: self.per_second },
            connections: Some(self.streams),
            max_in_flight: self.streams,
            length: Length::Requests(self.streams as u64),
            warmup_requests: 0,
            stream: true,
            script: Some(format!("prefill={}ms events={EVENTS}", prefill.as_millis())),
            timeout: prefill + PATIENCE,
            memory_at: None,
            ..base
        }
    }

    fn stage(&self, at: Duration) -> Stage {
        let opening = self.opening();
        if at < opening {
            Stage::Opening
        } else if at < opening + self.silence {
            Stage::Silent
        } else {
            Stage::Ending
        }
    }
}

/// Opens the streams, reads the processes, waits for every stream's end.
///
/// # Errors
/// As [`load::run`].
pub fn run(plan: &Plan, base: Config, gauge: &Arc<Gauge>) -> std::io::Result<Silence> {
    let config = plan.load(base);
    let processes = config.processes.clone();
    let mut readings = vec![reading(Instant::now(), |_| Stage::Before, gauge, &processes)];
    let (done, ended) = mpsc::channel();
    let (threads_gauge, started) = (Arc::clone(gauge), Instant::now());
    let load = std::thread::Builder::new().name("idle".to_owned()).spawn(move || {
        let report = load::run_watched(&config, &threads_gauge);
        // Nobody waits any more only when this process is ending.
        let _ = done.send(());
        report
    })?;
    loop {
        // The borders of the silence are read too, however long the pause between readings is.
        let now = started.elapsed();
        let border = [plan.opening(), plan.prefill()].into_iter().find(|border| *border > now);
        let pause = border.map_or(plan.every, |border| plan.every.min(border - now));
        match ended.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {
                readings.push(reading(started, |at| plan.stage(at), gauge, &processes));
            }
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let report = load.join().map_err(|_| std::io::Error::other("the load panicked"))??;
    readings.push(reading(started, |_| Stage::After, gauge, &processes));
    Ok(silence(plan, readings, report))
}

fn reading(
    started: Instant,
    stage: impl Fn(Duration) -> Stage,
    gauge: &Gauge,
    processes: &[Process],
) -> Reading {
    let at = started.elapsed();
    let (open, failed) = (gauge.in_flight(), gauge.failed());
    // Counted on a border it belongs to neither side for certain: then it is not taken for silence.
    let stage = [stage(at), stage(started.elapsed())].into_iter().find(|stage| *stage != Stage::Silent);
    let stage = stage.unwrap_or(Stage::Silent);
    Reading { at_seconds: at.as_secs_f64(), stage, open, failed, processes: procfs::sample(processes) }
}

/// Puts the figures together. Pure.
fn silence(plan: &Plan, readings: Vec<Reading>, report: Report) -> Silence {
    let streams = plan.streams as u64;
    let silent: Vec<&Reading> = readings.iter().filter(|reading| reading.stage == Stage::Silent).collect();
    let silent_seconds = match (silent.first(), silent.last()) {
        (Some(first), Some(last)) => last.at_seconds - first.at_seconds,
        _ => 0.0,
    };
    let held = match (readings.first(), silent.first(), silent.last(), readings.last()) {
        (Some(before), Some(first), Some(last), Some(after)) => before
            .processes
            .keys()
            .map(|name| {
                let of = |reading: &Reading| reading.processes.get(name).cloned().unwrap_or_default();
                (name.clone(), held([of(before), of(first), of(last), of(after)], streams, silent_seconds))
            })
            .collect(),
        _ => BTreeMap::new(),
    };
    Silence {
        streams,
        open_min: silent.iter().map(|reading| reading.open).min().unwrap_or(0),
        dropped: streams - report.ok.min(streams),
        silent_seconds,
        held,
        readings,
        report,
    }
}

fn held([before, first, last, after]: [Sample; 4], streams: u64, seconds: f64) -> Held {
    let growth = |from: u64, to: u64| (to as f64 - from as f64) / streams.max(1) as f64;
    let silent_cpu_us = last.cpu_us.saturating_sub(first.cpu_us);
    Held {
        rss_kib_per_stream: growth(before.rss_kib, last.rss_kib),
        pss_kib_per_stream: growth(before.pss_kib, last.pss_kib),
        rss_kib: [before.rss_kib, last.rss_kib, after.rss_kib],
        pss_kib: [before.pss_kib, last.pss_kib, after.pss_kib],
        silent_cpu_us,
        silent_cores: if seconds > 0.0 { silent_cpu_us as f64 / 1e6 / seconds } else { 0.0 },
    }
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "streams {}   open at least {}   silent {:.1} s   dropped {}\n",
            self.streams, self.open_min, self.silent_seconds, self.dropped
        )?;
        writeln!(
            f,
            "{:<14}{:>14}{:>14}{:>28}{:>16}{:>10}",
            "process", "rss KiB/str", "pss KiB/str", "pss KiB", "silent cpu ms", "cores"
        )?;
        for (name, held) in &self.held {
            let pss = held.pss_kib.map(|kib| kib.to_string()).join(" > ");
            writeln!(
                f,
                "{name:<14}{:>14.2}{:>14.2}{pss:>28}{:>16.1}{:>10.4}",
                held.rss_kib_per_stream,
                held.pss_kib_per_stream,
                held.silent_cpu_us as f64 / 1000.0,
                held.silent_cores
            )?;
        }
        write!(f, "\n{}", self.report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Readings, Tally};
    use crate::provider::{PAUSE_MAX, Script};

    fn plan() -> Plan {
        let silence = Duration::from_secs(1800);
        Plan { streams: 10_000, silence, per_second: 500.0, every: Duration::from_secs(10) }
    }

    #[test]
    fn every_stream_is_silent_from_its_opening_until_all_have_been_silent_together() {
        let load = plan().load(Config::default());
        let script = Script::parse(load.script.as_deref().unwrap()).unwrap();
        // The first is open 20 s before the last.
        assert_eq!(script.prefill, Duration::from_secs(1800 + 20 + 1));
        assert!(script.prefill < PAUSE_MAX && load.timeout > script.prefill);
        let stage = |seconds| plan().stage(Duration::from_secs(seconds));
        assert_eq!(
            [0, 20, 21, 1820, 1821].map(stage),
            [Stage::Opening, Stage::Opening, Stage::Silent, Stage::Silent, Stage::Ending]
        );
    }

    #[test]
    fn memory_is_what_grew_and_cpu_is_that_of_the_silence_alone() {
        let reading = |at_seconds, stage, open, rss_kib, cpu_us| Reading {
            at_seconds,
            stage,
            open,
            failed: 0,
            processes: BTreeMap::from([(
                "edge".to_owned(),
                Sample { rss_kib, pss_kib: rss_kib - 100, cpu_us, ..Sample::default() },
            )]),
        };
        let readings = vec![
            reading(0.0, Stage::Before, 0, 1000, 5),
            reading(10.0, Stage::Opening, 5000, 9000, 1000),
            reading(21.0, Stage::Silent, 10_000, 40_000, 2000),
            reading(31.0, Stage::Silent, 9_999, 41_000, 102_000),
            reading(40.0, Stage::After, 0, 2000, 900_000),
        ];
        let report = Report::new(&Tally::default(), Duration::from_secs(40), 1, &Readings::default());
        let silence = silence(&plan(), readings, report);
        let edge = silence.held["edge"];
        assert!((edge.rss_kib_per_stream - 4.0).abs() < 1e-9 && (edge.pss_kib_per_stream - 4.0).abs() < 1e-9);
        assert_eq!((edge.silent_cpu_us, edge.rss_kib), (100_000, [1000, 41_000, 2000]));
        assert!((edge.silent_cores - 0.01).abs() < 1e-9);
        assert_eq!((silence.open_min, silence.dropped), (9_999, 10_000));
        assert!(!silence.is_clean() && silence.to_string().contains("open at least 9999"));
    }
}
