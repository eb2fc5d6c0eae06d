//! Edge, Node and provider at addresses that stay theirs, so that each can die and come back.

use std::path::PathBuf;

use anyhow::ensure;
use iop_tests::{
    EdgeYaml, ProviderYaml,
    bench::{Bench, NODE, metric, node_ops, provider_at, site, steady_address, yaml},
    site::{path, with_reconnect},
};

/// Slots of the provider.
pub const SLOTS: usize = 6;

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Node,
    Provider,
    Edge,
}

/// The three of them, and how to start each again.
pub struct Place {
    pub bench: Bench,
    config: PathBuf,
    join: PathBuf,
    provider: String,
}

/// Keys of a Node that dials again at once (finite, or it would not be allowed) and that can be asked for its metrics.
pub const AT_ONCE: &str =
    "reconnect: { interval_sec: 0, max_attempts: 100000 }\nmetrics: { listen: \"127.0.0.1:0\" }";

impl Place {
    /// [`SLOTS`] slots, room for 32 in the queue, and what the closure changes.
    pub fn start(edge_yaml: impl FnOnce(EdgeYaml) -> EdgeYaml) -> anyhow::Result<Self> {
        let site = site()?;
        let listen = steady_address()?;
        let provider = site.provider_on(&listen, &[])?;
        let yaml = EdgeYaml {
            http: steady_address()?,
            node: steady_address()?,
            pool: "max_queue: 32".to_owned(),
            ..yaml()
        };
        let slots = ProviderYaml { capacity: u32::try_from(SLOTS)?, ..provider_at(&provider.base_url()) };
        let config = site.configure(&edge_yaml(yaml).with(slots))?;
        let edge = site.edge_on(&config)?;
        let join = site.join_bundle(NODE, &edge.node)?;
        std::fs::write(&join, with_reconnect(&std::fs::read_to_string(&join)?, AT_ONCE))?;
        let mut node = site.start("node", "iop-node", &["run", "--join", path(&join)?])?;
        node.wait_for("node ready")?;
        let node_ops = node_ops(&node)?;
        Ok(Self {
            bench: Bench { node, node_ops, edge, provider, site, panics: false },
            config,
            join,
            provider: listen,
        })
    }

    /// `kill -9`, and the certainty that it had not died before.
    pub fn kill(&mut self, victim: Victim) -> anyhow::Result<()> {
        let process = match victim {
            Victim::Node => &mut self.bench.node,
            Victim::Provider => &mut self.bench.provider.process,
            Victim::Edge => &mut self.bench.edge.process,
        };
        ensure!(process.is_running()?, "it died before it was killed");
        process.kill();
        Ok(())
    }

    /// Starts it again, at its old address; a Node need not be ready yet.
    pub fn revive(&mut self, victim: Victim) -> anyhow::Result<()> {
        let Bench { node, edge, provider, site, .. } = &mut self.bench;
        // The log of the one that died would be out of `Bench`'s sight.
        let log = match victim {
            Victim::Node => node.text(),
            Victim::Provider => provider.process.text(),
            Victim::Edge => edge.process.text(),
        };
        ensure!(!log.contains("panicked"), "{log}");
        match victim {
            Victim::Node => *node = site.start("node", "iop-node", &["run", "--join", path(&self.join)?])?,
            Victim::Provider => *provider = site.provider_on(&self.provider, &[])?,
            Victim::Edge => *edge = site.edge_on(&self.config)?,
        }
        Ok(())
    }

    /// Waits until a Node that was started again is ready.
    pub fn node_is_back(&mut self) -> anyhow::Result<()> {
        self.bench.node.wait_for("node ready")?;
        self.bench.node_ops = node_ops(&self.bench.node)?;
        Ok(())
    }

    /// How often control counted this.
    pub fn counted(&self, event: &str) -> anyhow::Result<f64> {
        metric(&self.bench.edge, &format!("iop_edge_control_events_total{{event=\"{event}\"}}"))
    }

    /// Waits until nobody holds or waits for anything, and checks the ledger: what was granted has been settled.
    pub fn balances(&self) -> anyhow::Result<()> {
        self.bench.settles()?;
        let (granted, settled) = (self.counted("granted")?, self.counted("settled")?);
        ensure!(granted == settled, "granted {granted}, settled {settled}");
        let runs = self.bench.node_metric("iop_node_runs_in_flight")?;
        ensure!(runs == 0.0, "the node still has {runs} runs");
        Ok(())
    }
}
