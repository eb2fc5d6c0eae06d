//! Clients that leave, wherever their request is: nothing of it stays, at the Edge, at the Node or at the provider.
//!
//! | Module | |
//! |---|---|
//! | `phases` | a hundred cuts in each phase of a request, each phase seen before the cut |
//! | `reports` | what users of such gateways reported (cases 11 to 18) |
//! | `ignoring` | providers that ignore the end |
//! | `stand` | a provider's address that does not accept, or does not read |

mod ignoring;
mod phases;
mod reports;
mod stand;

use std::{
    net::Shutdown,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use iop_tests::{
    bench::{Bench, NODE, SOON, eventually},
    http::Raw,
    procfs,
    sockets::reset_on_close,
};
use serde_json::Value;

/// Idle connections to providers are kept for 4 s; nothing else outlives a request.
const IDLE_CONNECTIONS_GONE: Duration = Duration::from_secs(20);

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// Closes, as a process that ends does.
    Close,
    /// Closes its sending half and goes on listening.
    Half,
    /// Resets.
    Reset,
}

impl Manner {
    /// Each in turn.
    fn of(round: usize) -> Self {
        [Self::Close, Self::Reset, Self::Half][round % 3]
    }

    /// Cuts. What is given back is to be kept for as long as the client is to stay half there.
    fn cut(self, client: Raw) -> anyhow::Result<Option<Raw>> {
        match self {
            Self::Close => Ok(None),
            Self::Half => {
                client.stream.shutdown(Shutdown::Write)?;
                Ok(Some(client))
            }
            Self::Reset => {
                reset_on_close(&client.stream)?;
                Ok(None)
            }
        }
    }
}

/// A connection on which the same thing is asked again and again: a new one for each question would cost more than what is
/// measured.
struct Asker {
    raw: Raw,
    request: String,
}

impl Asker {
    /// Of `path` at `address`.
    fn new(address: &str, path: &str) -> anyhow::Result<Self> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        Ok(Self { raw: Raw::connect(address)?, request })
    }

    /// Of the provider's `/stats`.
    fn stats(bench: &Bench) -> anyhow::Result<Self> {
        Self::new(bench.provider.url.trim_start_matches("http://"), "/stats")
    }

    fn json(&mut self) -> anyhow::Result<Value> {
        self.raw.send(&self.request)?;
        self.raw.answer()?.json()
    }

    fn count(&mut self, counter: &str) -> anyhow::Result<u64> {
        self.json()?[counter].as_u64().with_context(|| counter.to_owned())
    }
}

/// Asks without a pause until it is so, and gives how long that took.
fn how_long(what: &str, mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    while !is_so()? {
        ensure!(begun.elapsed() < SOON * 2, "never: {what}");
        std::thread::yield_now();
    }
    Ok(begun.elapsed())
}

/// Times of one kind.
#[derive(Debug, Default)]
struct Times(Vec<Duration>);

impl Times {
    fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// The time that `percent` of all did not exceed.
    fn quantile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(index).copied().unwrap_or_default()
    }
}

/// What the processes hold when nothing happens.
struct Rest {
    edge_tasks: f64,
    node_tasks: f64,
    edge_fds: usize,
    node_fds: usize,
}

impl Rest {
    /// As it is now: nobody is connected and nothing has run, or else idle connections are gone.
    fn of(bench: &Bench) -> anyhow::Result<Self> {
        eventually(IDLE_CONNECTIONS_GONE, "idle connections are gone", || {
            Ok(bench.node_metric("iop_node_provider_connections")? == 0.0
                && bench.metric("iop_edge_client_connections")? == 0.0)
        })?;
        Ok(Self {
            edge_tasks: bench.edge_tasks()?,
            node_tasks: bench.node_metric("iop_node_tasks")?,
            edge_fds: fewest_fds(bench.edge.process.pid())?,
            node_fds: fewest_fds(bench.node.pid())?,
        })
    }

    /// Waits until it is so again, and every count of requests is 0.
    fn is_back(&self, bench: &Bench) -> anyhow::Result<()> {
        nothing_runs(bench)?;
        eventually(IDLE_CONNECTIONS_GONE, "tasks and descriptors are back to what they were", || {
            Ok(bench.edge_tasks()? <= self.edge_tasks
                && bench.node_metric("iop_node_tasks")? <= self.node_tasks
                && bench.node_metric("iop_node_provider_connections")? == 0.0
                && bench.metric("iop_edge_client_connections")? == 0.0
                && fewest_fds(bench.edge.process.pid())? <= self.edge_fds
                && fewest_fds(bench.node.pid())? <= self.node_fds)
        })
        .with_context(|| {
            format!(
                "edge: {:?} tasks, {:?} descriptors; node: {:?} tasks, {:?} descriptors",
                bench.edge_tasks(),
                procfs::fds(bench.edge.process.pid()),
                bench.node_metric("iop_node_tasks"),
                procfs::fds(bench.node.pid()),
            )
        })?;
        // Each slot that was given was returned, once.
        let event =
            |event: &str| bench.metric(&format!("iop_edge_control_events_total{{event=\"{event}\"}}"));
        ensure!(
            event("granted")? == event("settled")?,
            "granted {}, settled {}",
            event("granted")?,
            event("settled")?
        );
        ensure!(event("cancel_bound_reached")? == 0.0, "the Node did not confirm an end in time");
        Ok(())
    }
}

/// Descriptors of a process at rest: the connections on which its metrics were asked for close a moment later.
fn fewest_fds(pid: u32) -> anyhow::Result<usize> {
    let mut fewest = procfs::fds(pid)?;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(10));
        fewest = fewest.min(procfs::fds(pid)?);
    }
    Ok(fewest)
}

/// Waits until nothing is held, waits or runs at Edge, Node and provider.
fn nothing_runs(bench: &Bench) -> anyhow::Result<()> {
    bench.settles()?;
    ensure!(bench.metric("iop_edge_leases_cancelling")? == 0.0);
    for gauge in ["iop_node_runs_in_flight", "iop_node_runs_aborting"] {
        ensure!(bench.node_metric(gauge)? == 0.0, "{gauge}");
    }
    Ok(())
}

/// The next 100 requests, one behind the other, are all served: with one slot, none was lost.
fn the_next_hundred_are_served(bench: &Bench) -> anyhow::Result<()> {
    let mut client = bench.client()?;
    for number in 0..100 {
        client.send(bench.request(number % 2 == 0, "events=2"))?;
        let answer = client.answer()?;
        ensure!(answer.status == 200 && answer.whole, "request {number}: {} {}", answer.head, answer.text());
    }
    Ok(())
}

/// The Edge's leases of the provider.
fn in_flight(bench: &Bench) -> anyhow::Result<f64> {
    bench.metric(&format!("iop_edge_provider_in_flight{{node=\"{NODE}\",provider=\"p1\"}}"))
}
