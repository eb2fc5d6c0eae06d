//! A closed-loop load generator that verifies every reply it receives.
//!
//! Closed loop: each of N workers has one request in flight and sends the next when the last has ended. A
//! slow subject therefore also slows the load down; latencies read from such a run are those at the pace that
//! the subject allows, not those of arrivals at a fixed rate. The open-loop generator, on glommio with pinned
//! cores, comes in a later release; this one runs on tokio and epoll, so that it also runs where io_uring is
//! refused.

mod client;
mod report;
mod target;
mod verify;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use crate::procfs::{self, Process};
pub use client::{Connection, Mode, Observer, Reply};
pub use report::{Readings, Report, Tally, Times, Usage};
pub use target::{Target, TargetError};
pub use verify::Failure;

/// The most workers of one run.
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
    /// Workers: requests in flight.
    pub concurrency: usize,
    /// How long the run lasts.
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
    /// Whether a connection serves more than one request.
    pub keep_alive: bool,
    /// Whether a reply without the provider's seal is an error.
    pub seal_demanded: bool,
    /// The limit of one request.
    pub timeout: Duration,
    /// The workers start evenly within this time.
    pub stagger: Duration,
    /// OS threads of the generator.
    pub threads: usize,
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
            concurrency: 1,
            length: Length::Requests(1),
            warmup_requests: 0,
            stream: true,
            include_usage: true,
            prompt_bytes: 200,
            script: None,
            keep_alive: true,
            seal_demanded: true,
            timeout: Duration::from_secs(120),
            stagger: Duration::ZERO,
            threads: 1,
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
/// What the system says when a thread or its runtime cannot be made.
pub fn run(config: &Config) -> std::io::Result<Report> {
    if config.warmup_requests > 0 {
        phase(config, Length::Requests(config.warmup_requests), None)?;
    }
    let before = procfs::sample(&config.processes);
    let started = Instant::now();
    let (tally, within) = phase(config, config.length, config.memory_at)?;
    let elapsed = started.elapsed();
    let after = procfs::sample(&config.processes);
    let workers = u64::try_from(config.concurrency).unwrap_or(u64::MAX);
    Ok(Report::new(&tally, elapsed, workers, &Readings { before, within, after }))
}

type Samples = std::collections::BTreeMap<String, procfs::Sample>;

/// Runs all workers once, spread over the threads.
fn phase(
    config: &Config,
    length: Length,
    memory_at: Option<Duration>,
) -> std::io::Result<(Tally, Option<Samples>)> {
    let threads = config.threads.clamp(1, config.concurrency.max(1));
    let job = Arc::new(Job {
        request: request(config),
        left: AtomicU64::new(match length {
            Length::Requests(count) => count,
            Length::Time(_) => u64::MAX,
        }),
        end: match length {
            Length::Requests(_) => None,
            Length::Time(time) => Some(Instant::now() + time),
        },
        config: config.clone(),
    });
    let handles: Vec<_> = (0..threads)
        .map(|thread| {
            let job = Arc::clone(&job);
            thread::Builder::new()
                .name(format!("load-{thread}"))
                .spawn(move || run_thread(&job, thread, threads))
        })
        .collect::<Result<_, _>>()?;
    let within = memory_at.map(|at| {
        thread::sleep(at);
        procfs::sample(&config.processes)
    });
    let mut tally = Tally::default();
    for handle in handles {
        let part = handle.join().map_err(|_| std::io::Error::other("a load thread panicked"))?;
        tally.merge(&part?);
    }
    Ok((tally, within))
}

/// What all workers of a phase share.
#[derive(Debug)]
struct Job {
    config: Config,
    request: Vec<u8>,
    left: AtomicU64,
    end: Option<Instant>,
}

impl Job {
    /// Takes the right to send one more request.
    fn take(&self) -> bool {
        self.end.is_none_or(|end| Instant::now() < end)
            && self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

fn run_thread(job: &Arc<Job>, thread: usize, threads: usize) -> std::io::Result<Tally> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tally = Rc::new(RefCell::new(Tally::default()));
    let local = LocalSet::new();
    for worker in (thread..job.config.concurrency).step_by(threads) {
        local.spawn_local(work(Arc::clone(job), worker, Rc::clone(&tally)));
    }
    // A local set ends when all its tasks have.
    runtime.block_on(local);
    Ok(Rc::into_inner(tally).map(RefCell::into_inner).unwrap_or_default())
}

async fn work(job: Arc<Job>, worker: usize, tally: Rc<RefCell<Tally>>) {
    let config = &job.config;
    let start = config.stagger.as_secs_f64() * worker as f64 / config.concurrency as f64;
    sleep(Duration::from_secs_f64(start)).await;
    let mode = Mode { stream: config.stream, seal_demanded: config.seal_demanded };
    let mut kept: Option<Connection> = None;
    while job.take() {
        let connection = kept.take().filter(|connection| {
            let reusable = connection.is_reusable();
            if !reusable {
                tally.borrow_mut().add_reconnect();
            }
            reusable
        });
        let mut observer = Shared(&tally);
        let request = async {
            let mut connection = match connection {
                Some(connection) => connection,
                None => Connection::open(config.target.address).await?,
            };
            let reply = connection.exchange(&job.request, mode, &mut observer).await?;
            Ok((connection, reply))
        };
        let outcome = timeout(config.timeout, request).await.unwrap_or(Err(Failure::Timeout));
        let outcome = outcome.map(|(connection, reply)| {
            kept = Some(connection).filter(|_| config.keep_alive);
            reply
        });
        tally.borrow_mut().add(outcome);
    }
}

/// The thread's tally, borrowed for one observation at a time.
struct Shared<'a>(&'a RefCell<Tally>);

impl Observer for Shared<'_> {
    fn gap(&mut self, us: u64) {
        self.0.borrow_mut().gap(us);
    }

    fn delivery(&mut self, us: u64) {
        self.0.borrow_mut().delivery(us);
    }
}

/// The bytes of the request that every worker sends.
pub(crate) fn request(config: &Config) -> Vec<u8> {
    const SENTENCE: &str = "Tell me about streams of tokens that cross a gateway. ";
    let prompt: String = SENTENCE.chars().cycle().take(config.prompt_bytes).collect();
    let mut body = serde_json::json!({
        "model": config.model,
        "messages": [{"role": "user", "content": prompt}],
        "stream": config.stream,
    });
    if config.stream && config.include_usage {
        body["stream_options"] = serde_json::json!({"include_usage": true});
    }
    if let Some(script) = &config.script {
        body["user"] = format!("perf:{script}").into();
    }
    let body = body.to_string();
    let mut head = format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: */*\r\nuser-agent: iop-perf\r\n\
         content-length: {}\r\n",
        config.target.path,
        config.target.host,
        body.len()
    );
    if let Some(token) = &config.token {
        head.push_str(&format!("authorization: Bearer {token}\r\n"));
    }
    if !config.keep_alive {
        head.push_str("connection: close\r\n");
    }
    head.push_str("\r\n");
    head.push_str(&body);
    head.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            target: "http://127.0.0.1:9/v1".parse().unwrap(),
            token: Some("t".to_owned()),
            model: "m".to_owned(),
            concurrency: 2,
            length: Length::Requests(3),
            warmup_requests: 0,
            stream: true,
            include_usage: true,
            prompt_bytes: 100,
            script: Some("events=3".to_owned()),
            keep_alive: true,
            seal_demanded: true,
            timeout: Duration::from_secs(5),
            stagger: Duration::ZERO,
            threads: 1,
            processes: Vec::new(),
            memory_at: None,
        }
    }

    #[test]
    fn request_carries_token_script_and_an_exact_length() {
        let text = String::from_utf8(request(&config())).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:9\r\n"), "{head}");
        assert!(
            head.contains("authorization: Bearer t")
                && head.contains(&format!("content-length: {}", body.len()))
        );
        let json: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(json["user"], "perf:events=3");
        assert_eq!(json["stream_options"]["include_usage"], true);
        assert_eq!(json["messages"][0]["content"].as_str().unwrap().len(), 100);
    }

    #[test]
    fn nothing_listening_is_counted_as_connect_errors() {
        // A port that was free a moment ago, so that nothing listens there.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let report = run(&Config { target: format!("http://{free}").parse().unwrap(), ..config() }).unwrap();
        assert_eq!((report.requests, report.errors.get("connect")), (3, Some(&3)));
    }
}
