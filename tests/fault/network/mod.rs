//! Network: links that stall, lose, throttle, half-close and reset.
//!
//! Proxies stand between Node and Edge, client and Edge, Node and provider. The heartbeat's two constants are shortened by
//! the programs' `test-hooks`, but in [`beat`].

mod absent;
mod beat;
mod client;
mod link;
mod pace;
mod provider;
mod stops;

use std::{
    thread,
    time::{Duration, Instant},
};

use iop_tests::{
    EdgeYaml, ProviderYaml, Site,
    bench::{Bench, NODE, SOON, eventually, hooked_site, provider_at, start_node_with, yaml},
    fault_proxy::{FaultProxy, Segments},
    http::{Answer, Raw},
};

/// The heartbeat here: asked every second, given up after eight.
const INTERVAL: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(8);
/// What a busy machine may add to an end that comes by itself: the farewell's second, and scheduling.
const SLACK: Duration = Duration::from_secs(6);
/// A Node that dials at once and again.
const AT_ONCE: &str = "reconnect: { interval_sec: 0, max_attempts: 100000 }";

/// A bench with proxies in the way.
struct Path {
    /// Between Node and Edge. Declared before the bench: its end is the network's.
    link: FaultProxy,
    /// Between Node and provider.
    upstream: FaultProxy,
    /// Between clients and Edge.
    front: FaultProxy,
    bench: Bench,
}

/// With the short heartbeat.
fn beating() -> anyhow::Result<Site> {
    let mut site = hooked_site()?;
    site.set_env("IOP_TEST_HEARTBEAT_INTERVAL_MS", &INTERVAL.as_millis().to_string());
    site.set_env("IOP_TEST_HEARTBEAT_DEADLINE_MS", &DEADLINE.as_millis().to_string());
    Ok(site)
}

impl Path {
    /// Ready, with as many slots.
    fn start(slots: u32) -> anyhow::Result<Self> {
        Self::with(beating()?, slots, |yaml| yaml)
    }

    fn with(site: Site, slots: u32, change: impl FnOnce(EdgeYaml) -> EdgeYaml) -> anyhow::Result<Self> {
        Self::over(Segments::Ethernet, site, slots, change)
    }

    /// With a link of such segments.
    fn over(
        segments: Segments,
        site: Site,
        slots: u32,
        change: impl FnOnce(EdgeYaml) -> EdgeYaml,
    ) -> anyhow::Result<Self> {
        let provider = site.provider(&[])?;
        let upstream = FaultProxy::start(provider.url.trim_start_matches("http://"))?;
        let base_url = format!("http://{}/v1", upstream.address());
        let yaml = yaml().with(ProviderYaml { capacity: slots, ..provider_at(&base_url) });
        let edge = site.edge(&change(yaml))?;
        let link = FaultProxy::with(&edge.node, segments)?;
        let front = FaultProxy::start(&edge.http)?;
        let (node, node_ops) = start_node_with(&site, NODE, &link.address(), AT_ONCE)?;
        Ok(Self {
            link,
            upstream,
            front,
            bench: Bench { node, node_ops, edge, provider, site, panics: false },
        })
    }

    /// Streams, each on a connection of its own, that have come to their first event.
    fn streams(&self, count: usize, script: &str) -> anyhow::Result<Vec<Raw>> {
        let mut streams = Vec::new();
        for _ in 0..count {
            streams.push(self.bench.begin(true, script)?);
        }
        for stream in &mut streams {
            stream.stream.set_read_timeout(Some(Duration::from_secs(120)))?;
            stream.wait_for("data:")?;
        }
        Ok(streams)
    }

    /// A client behind the proxy in front of the Edge.
    fn far_client(&self, stream: bool, script: &str) -> anyhow::Result<Raw> {
        let mut client = Raw::connect(&self.front.address())?;
        client.send(self.bench.request(stream, script))?;
        Ok(client)
    }

    /// How often the Node became ready.
    fn connections(&self) -> usize {
        self.bench.node.text().matches("node ready").count()
    }

    /// Whether the link is the first one, and nobody thought otherwise.
    fn is_untouched(&self) -> anyhow::Result<()> {
        let log = self.bench.edge.process.text();
        anyhow::ensure!(!log.contains("node link closed") && !log.contains("node fenced"), "{log}");
        anyhow::ensure!(self.connections() == 1, "{}", self.bench.node.text());
        Ok(())
    }

    /// How often a link ended for want of an answer, on either side.
    fn heartbeat_timeouts(&self) -> usize {
        let edge = self.bench.edge.process.text();
        let here = edge
            .lines()
            .filter(|l| l.contains("node link closed") && l.contains("heartbeat_timeout"))
            .count();
        let node = self.bench.node.text();
        here + node
            .lines()
            .filter(|l| l.contains("to the edge lost") && l.contains("heartbeat_timeout"))
            .count()
    }

    /// Everything is as at the start: connected, served, every slot free.
    fn serves_again(&self) -> anyhow::Result<()> {
        let answer = self.bench.chat(true, "events=3")?;
        anyhow::ensure!(answer.is_done() && answer.whole, "{}", answer.text());
        self.bench.settles()?;
        let links = "iop_edge_node_links";
        eventually(SOON, "one link", || Ok(self.bench.metric(links)? == 1.0))
    }
}

/// The rest of a stream.
fn rest(stream: &mut Raw) -> anyhow::Result<Answer> {
    let head = stream.read_head()?;
    stream.body_of(head)
}

/// Checks that a stream either came whole or did not look like it: an error event at most, and a broken end.
#[track_caller]
fn assert_whole_or_broken(answer: &Answer) -> bool {
    if answer.is_done() {
        answer.assert_sealed();
        return true;
    }
    assert!(!answer.whole, "{}", answer.tail());
    assert!(answer.error_events().len() <= 1, "{}", answer.tail());
    false
}

/// Runs the same with each of `all` at once: they mostly wait.
fn side_by_side<T: Sync>(all: &[T], run: impl Fn(&T) -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    thread::scope(|scope| {
        let running: Vec<_> = all.iter().map(|one| scope.spawn(|| run(one))).collect();
        for one in running {
            one.join().map_err(|panic| anyhow::anyhow!("{:?}", panic.downcast_ref::<String>()))??;
        }
        Ok(())
    })
}

/// Checks that `since` lies between `at_least` ago and `at_most` ago.
#[track_caller]
fn assert_took(since: Instant, at_least: Duration, at_most: Duration) {
    let took = since.elapsed();
    assert!(took >= at_least && took <= at_most, "took {took:?}, not {at_least:?} to {at_most:?}");
}
