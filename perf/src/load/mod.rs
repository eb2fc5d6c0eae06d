//! A load generator that verifies every reply it receives.
//!
//! Closed: each of N workers has one request in flight and sends the next when the last has ended. A slow subject
//! therefore also slows the load down; latencies read from such a run are those at the pace that the subject allows.
//!
//! Open: requests start on a schedule that is fixed before the run, whatever becomes of those before. Their latencies
//! count from the schedule, so what a stalled subject makes later requests wait is in the figures (no coordinated
//! omission).
//!
//! Reading order: [`Arrivals`] is the schedule; `closed` and `open` drive; `connection` carries a request out and
//! `exchange` takes its reply, which `verify` checks; `tally` counts, [`Report`] tells; `engine` is the runtime,
//! one for each thread, and `crew` its tasks.

mod arrivals;
mod attempt;
mod closed;
mod connection;
mod crew;
pub(crate) mod engine;
mod exchange;
mod gauge;
mod open;
mod report;
mod request;
mod tally;
mod target;
mod times;
mod verify;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::procfs::{self, Process};
pub use arrivals::{Arrivals, ArrivalsError, Step};
pub(crate) use connection::Connection;
pub use engine::{Engine, EngineError};
use engine::{Epoll, Glommio, Runtime};
pub use exchange::{Mode, Observer, Reply};
pub use gauge::Gauge;
pub use report::{Readings, Report, Usage};
pub use request::Ask;
use request::Requests;
pub(crate) use request::request;
pub use tally::Tally;
pub use target::{Target, TargetError};
pub use times::{Distributions, Times};
pub use verify::Failure;

/// The most workers of one run, and by default the most requests of an open load in flight.
pub const CONCURRENCY_MAX: usize = 100_000;

/// What a run is started with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the requests go.
    pub target: Target,
    /// The bearer token, if any.
    pub token: Option<String>,
    /// The model asked for.
    pub model: String,
    /// When requests start.
    pub arrivals: Arrivals,
    /// Workers of a closed load, and of the warm-up before an open one: requests in flight.
    pub concurrency: usize,
    /// The most connections of an open load at a time; requests wait for one. `None`: as many as it needs.
    pub connections: Option<usize>,
    /// The most requests of an open load in flight; one that is due then fails as [`Failure::MaxInFlight`].
    pub max_in_flight: usize,
    /// How long the run lasts. An open load also ends with its schedule.
    pub length: Length,
    /// Requests before the run that are not measured, to fill pools and caches.
    pub warmup_requests: u64,
    /// Whether streams are asked for.
    pub stream: bool,
    /// Whether usage is asked for in streams.
    pub include_usage: bool,
    /// Length of the user message. Unit: bytes.
    pub prompt_bytes: usize,
    /// A script for the provider, sent as `user`.
    pub script: Option<String>,
    /// What each request of an open load asks for, in the order of the schedule, in place of prompt and script above;
    /// requests beyond the last are as above. Empty: all are.
    pub asks: Arc<[Ask]>,
    /// Whether a connection serves more than one request.
    pub keep_alive: bool,
    /// Whether a reply without the provider's seal is an error.
    pub seal_demanded: bool,
    /// The limit of one request, from where it counts: its start, in an open load its place in the schedule.
    pub timeout: Duration,
    /// The workers start evenly within this time.
    pub stagger: Duration,
    /// OS threads of the generator.
    pub threads: usize,
    /// What they run on.
    pub engine: Engine,
    /// Processes whose CPU and memory are read.
    pub processes: Vec<Process>,
    /// When memory is read once more within the run.
    pub memory_at: Option<Duration>,
}

impl Default for Config {
    /// One streamed request of the default model to a port that nobody uses.
    fn default() -> Self {
        Self {
            target: Target::nowhere(),
            token: None,
            model: "perf-model".to_owned(),
            arrivals: Arrivals::Closed,
            concurrency: 1,
            connections: None,
            max_in_flight: CONCURRENCY_MAX,
            length: Length::Requests(1),
            warmup_requests: 0,
            stream: true,
            include_usage: true,
            prompt_bytes: 200,
            script: None,
            asks: Arc::new([]),
            keep_alive: true,
            seal_demanded: true,
            timeout: Duration::from_secs(120),
            stagger: Duration::ZERO,
            threads: 1,
            engine: Engine::default(),
            processes: Vec::new(),
            memory_at: None,
        }
    }
}

/// How long a run lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// So many requests.
    Requests(u64),
    /// So long; requests in flight at its end are waited for.
    Time(Duration),
}

/// Runs the load and reports.
///
/// # Errors
/// An [`EngineError`] when the system lacks what the load needs; what it says when a thread cannot be made.
pub fn run(config: &Config) -> std::io::Result<Report> {
    run_watched(config, &Arc::default())
}

/// Runs the load and reports; `gauge` shows meanwhile how it goes on.
///
/// # Errors
/// As [`run`].
pub fn run_watched(config: &Config, gauge: &Arc<Gauge>) -> std::io::Result<Report> {
    let concurrency = if config.arrivals.is_closed() { Some(config.concurrency) } else { config.connections };
    config.engine.prepare(concurrency.unwrap_or(0))?;
    if config.warmup_requests > 0 {
        let closed = Config { arrivals: Arrivals::Closed, memory_at: None, ..config.clone() };
        phase(&closed, Length::Requests(config.warmup_requests), &Arc::default())?;
    }
    let phase = phase(config, config.length, gauge)?;
    let workers = if config.arrivals.is_closed() { config.concurrency as u64 } else { phase.in_flight_peak };
    let report = Report::new(&phase.tally, phase.elapsed, workers, &phase.readings);
    Ok(Report {
        engine: config.engine,
        arrivals: config.arrivals.to_string(),
        in_flight_peak: phase.in_flight_peak,
        ..report
    })
}

/// What one phase came to.
struct Phase {
    tally: Tally,
    readings: Readings,
    elapsed: Duration,
    in_flight_peak: u64,
}

/// Runs the load once, spread over the threads.
fn phase(config: &Config, length: Length, gauge: &Arc<Gauge>) -> std::io::Result<Phase> {
    let most = if config.arrivals.is_closed() {
        config.concurrency
    } else {
        config.connections.unwrap_or(usize::MAX)
    };
    let threads = config.threads.clamp(1, most.max(1));
    let job = Arc::new(Job::new(config, length, Arc::clone(gauge)));
    let (ready, readiness) = mpsc::channel();
    let mut started = Vec::new();
    for thread in 0..threads {
        let (job, ready) = (Arc::clone(&job), ready.clone());
        let (start, starts) = mpsc::channel();
        let share = Share { thread, threads };
        let builder = thread::Builder::new().name(format!("load-{thread}"));
        started.push((start, builder.spawn(move || run_thread(&job, share, &ready, &starts))?));
    }
    drop(ready);
    // One that cannot start ends its channel, and then all the others, whose start is never told.
    for _ in 0..threads {
        readiness.recv().map_err(|_| std::io::Error::other("a load thread panicked"))??;
    }
    let before = procfs::sample(&config.processes);
    let origin = Instant::now();
    for (start, _) in &started {
        // A thread that is gone is found when it is joined.
        let _ = start.send(origin);
    }
    let within = config.memory_at.map(|at| {
        thread::sleep(at.saturating_sub(origin.elapsed()));
        procfs::sample(&config.processes)
    });
    let mut tally = Tally::default();
    for (_, handle) in started {
        tally.merge(&handle.join().map_err(|_| std::io::Error::other("a load thread panicked"))?);
    }
    let elapsed = origin.elapsed();
    let after = procfs::sample(&config.processes);
    let readings = Readings { before, within, after };
    Ok(Phase { tally, readings, elapsed, in_flight_peak: gauge.in_flight_peak() })
}

/// Which of the threads this is.
#[derive(Debug, Clone, Copy)]
struct Share {
    thread: usize,
    threads: usize,
}

impl Share {
    /// This thread's part of `whole`, which all parts add up to.
    fn of(self, whole: usize) -> usize {
        whole / self.threads + usize::from(self.thread < whole % self.threads)
    }
}

/// What all threads of a phase share.
#[derive(Debug)]
struct Job {
    config: Config,
    length: Length,
    requests: Requests,
    /// Requests of a closed load that may still be sent.
    left: AtomicU64,
    gauge: Arc<Gauge>,
}

impl Job {
    fn new(config: &Config, length: Length, gauge: Arc<Gauge>) -> Self {
        let left = match length {
            Length::Requests(count) => count,
            Length::Time(_) => u64::MAX,
        };
        Self {
            requests: Requests::new(config),
            config: config.clone(),
            length,
            left: AtomicU64::new(left),
            gauge,
        }
    }
}

/// One thread: says that it can start, waits for the start, runs its share.
fn run_thread(
    job: &Arc<Job>,
    share: Share,
    ready: &mpsc::Sender<Result<(), EngineError>>,
    start: &mpsc::Receiver<Instant>,
) -> Tally {
    match job.config.engine {
        Engine::Epoll => run_thread_on::<Epoll>(job, share, ready, start),
        Engine::Glommio => run_thread_on::<Glommio>(job, share, ready, start),
    }
}

fn run_thread_on<R: Runtime>(
    job: &Arc<Job>,
    share: Share,
    ready: &mpsc::Sender<Result<(), EngineError>>,
    start: &mpsc::Receiver<Instant>,
) -> Tally {
    let runtime = match R::start() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(error));
            return Tally::default();
        }
    };
    let _ = ready.send(Ok(()));
    let Ok(origin) = start.recv() else { return Tally::default() };
    runtime.run(async {
        if job.config.arrivals.is_closed() {
            closed::run(&runtime, job, share, origin).await
        } else {
            open::run(&runtime, job, share, origin).await
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            target: "http://127.0.0.1:9/v1".parse().unwrap(),
            token: Some("t".to_owned()),
            concurrency: 2,
            length: Length::Requests(3),
            prompt_bytes: 100,
            script: Some("events=3".to_owned()),
            ..Config::default()
        }
    }

    #[test]
    fn nothing_listening_is_counted_as_connect_errors() {
        // A port that was free a moment ago, so that nothing listens there.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for engine in [Engine::Epoll, Engine::Glommio] {
            let target = format!("http://{free}").parse().unwrap();
            let report = run(&Config { target, engine, ..config() }).unwrap();
            assert_eq!((report.requests, report.errors.get("connect")), (3, Some(&3)));
            assert_eq!(report.engine, engine);
        }
    }

    #[test]
    fn the_shares_of_all_threads_are_the_whole() {
        for (whole, threads) in [(7, 3), (3, 3), (1, 4), (0, 2)] {
            let of = |thread| Share { thread, threads }.of(whole);
            assert_eq!((0..threads).map(of).sum::<usize>(), whole);
        }
    }
}
