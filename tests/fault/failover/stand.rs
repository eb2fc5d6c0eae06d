//! Edge, two Nodes with a tapped link each, and groups of providers that do what their scripts say: a group for each case, so that
//! all cases of a test go on at the same time.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use iop_tests::{
    Edge, EdgeYaml, Process, ProviderYaml, Site,
    bench::{RETRY, SOON, eventually, metric, node_metric, node_ops, site, sum, yaml},
    http::{self, Answer, PATIENCE, Raw},
};
use proto::message::{Message, RunEventKind, StreamNo, TunnelFrameKind};
use serde_json::{Value, json};

use super::{
    backend::{Act, Backend},
    way::Way,
};
use crate::stalls::tap::Tap;

/// `response_stall_timeout_ms` of every provider, unless a test says otherwise.
pub const STALL: Duration = Duration::from_millis(700);
/// Longest wait for a slot: what ends for want of another provider ends long before that.
pub const QUEUE: Duration = Duration::from_secs(25);
/// What happens without waiting for a slot is over by then; a stall and its question included.
pub const AT_ONCE: Duration = Duration::from_secs(15);
const NODES: [&str; 2] = ["box1", "box2"];

/// A model and those that serve it, the first one first.
#[derive(Clone, Debug)]
pub struct Case {
    pub way: Way,
    /// Of the model, too.
    pub name: String,
    /// One for each provider: what it does with one request after the other.
    pub scripts: Vec<Vec<Act>>,
    /// Whether all of them are on one Node; else they alternate.
    pub on_one_node: bool,
    /// `category` of the providers.
    pub category: &'static str,
}

impl Case {
    /// Two providers: the first does this, the second serves.
    pub fn new(way: Way, name: &str, first: Act) -> Self {
        Self::of(way, name, vec![vec![first], vec![Act::Serve]])
    }

    /// These providers.
    pub fn of(way: Way, name: &str, scripts: Vec<Vec<Act>>) -> Self {
        Self { way, name: format!("{way}-{name}"), scripts, on_one_node: false, category: "local_inference" }
    }
}

/// A case's providers.
pub struct Group {
    pub case: Case,
    pub backends: Vec<Backend>,
}

/// How a stand is set up beside its cases.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Further keys of `openai`.
    pub openai: String,
    /// `response_stall_timeout_ms`.
    pub stall: Duration,
    /// Further keys of every model.
    pub model_extra: String,
    /// Further top-level YAML.
    pub extra: String,
    /// Whether what Edge and Nodes say to each other is read.
    pub is_tapped: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            openai: String::new(),
            stall: STALL,
            model_extra: String::new(),
            extra: String::new(),
            is_tapped: false,
        }
    }
}

impl Setup {
    /// With `openai.stream_evidence_gate` of these keys.
    pub fn gate(keys: &str) -> Self {
        Self { openai: format!("  stream_evidence_gate: {{ {keys} }}\n"), ..Self::default() }
    }
}

/// All of it, running.
pub struct Stand {
    pub groups: Vec<Group>,
    taps: Vec<Tap>,
    /// Of those Nodes that there are.
    pub nodes: Vec<Process>,
    node_ops: Vec<String>,
    pub edge: Edge,
    pub site: Site,
}

/// What a link carried of one execution.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Whether the Edge cancelled it.
    pub cancelled: bool,
    /// What ended it, in the Node's words.
    pub terminals: Vec<String>,
}

impl Stand {
    pub fn start(setup: &Setup, cases: Vec<Case>) -> anyhow::Result<Self> {
        let site = site()?;
        let mut config = EdgeYaml {
            pool: format!("max_queue: 100, queue_timeout_ms: {}", QUEUE.as_millis()),
            openai: setup.openai.clone(),
            model_extra: setup.model_extra.clone(),
            extra: setup.extra.clone(),
            ..yaml()
        };
        let mut groups = Vec::new();
        for case in cases {
            let mut backends = Vec::new();
            for (index, script) in case.scripts.iter().enumerate() {
                let id = format!("{}-{}", case.name, index + 1);
                let backend = Backend::start(&id, &case.name, case.way.api(), script)?;
                let node = NODES[if case.on_one_node { 0 } else { index % NODES.len() }];
                let provider = case.way.provider(&id, node, &backend.played.url(), &case.name);
                // Who is held by the test is silent for as long as it likes.
                let stall = if script.contains(&Act::Held) { 4 * PATIENCE } else { setup.stall };
                let stall = stall.as_millis();
                let more = format!("priority: {index}, response_stall_timeout_ms: {stall}");
                let extra = [provider.extra.as_str(), &more].join(", ");
                let extra = extra.trim_start_matches(", ").to_owned();
                let category = case.category.to_owned();
                config = config.with(ProviderYaml { extra, category, ..provider });
                backends.push(backend);
            }
            groups.push(Group { case, backends });
        }
        let edge = site.edge(&config)?;
        let (mut nodes, mut ops, mut taps) = (Vec::new(), Vec::new(), Vec::new());
        for name in NODES.iter().filter(|name| config.providers.iter().any(|p| p.node == **name)) {
            let mut address = edge.node.clone();
            if setup.is_tapped {
                let tap = Tap::start(&site, &edge, name)?;
                address.clone_from(&tap.address);
                taps.push(tap);
            }
            let extra = format!("{RETRY}\nmetrics: {{ listen: \"127.0.0.1:0\" }}");
            nodes.push(site.node_with(name, &address, &extra)?);
        }
        for node in &mut nodes {
            node.wait_for("node ready")?;
            ops.push(node_ops(node)?);
        }
        Ok(Self { groups, taps, nodes, node_ops: ops, edge, site })
    }

    /// A request to a group's model is sent.
    pub fn begin(&self, group: &Group, more: &Value) -> anyhow::Result<Raw> {
        let mut client = Raw::connect(&self.edge.http)?;
        let way = group.case.way;
        client.send(way.request(self.site.token(), &way.body(&group.case.name, more)))?;
        Ok(client)
    }

    /// One request to each group's model, all at the same time; with their answers.
    pub fn ask_all(&self) -> anyhow::Result<Vec<(&Group, Answer)>> {
        let clients = self
            .groups
            .iter()
            .map(|group| Ok((group, self.begin(group, &json!({}))?)))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let answer = |(group, mut client): (_, Raw)| Ok((group, client.answer()?));
        clients.into_iter().map(answer).collect()
    }

    /// A request to a group's model, and its answer.
    pub fn ask(&self, group: &Group, more: &Value) -> anyhow::Result<Answer> {
        self.begin(group, more)?.answer()
    }

    /// What the links carried of each execution, by provider and in the order of dispatch.
    pub fn told(&self) -> BTreeMap<String, Vec<Told>> {
        let mut by_provider: BTreeMap<String, Vec<Told>> = BTreeMap::new();
        for tap in &self.taps {
            let mut of_stream: BTreeMap<StreamNo, (String, Told)> = BTreeMap::new();
            for heard in tap.heard() {
                let provider = |adapter: &str| adapter.trim_end_matches("-adapter").to_owned();
                let (stream, terminal) = match heard.message {
                    Message::TunnelRequest(request) => {
                        of_stream.insert(request.stream, (provider(&request.adapter), Told::default()));
                        continue;
                    }
                    Message::RunRequest(request) => {
                        of_stream.insert(request.stream, (provider(&request.adapter), Told::default()));
                        continue;
                    }
                    Message::Cancel(cancel) => {
                        if let Some((_, told)) = of_stream.get_mut(&cancel.stream) {
                            told.cancelled = true;
                        }
                        continue;
                    }
                    Message::TunnelFrame(frame) => match frame.kind {
                        TunnelFrameKind::End => (frame.stream, "end".to_owned()),
                        TunnelFrameKind::Error(error) => (frame.stream, format!("{:?}", error.kind)),
                        _ => continue,
                    },
                    Message::RunEvent(event) => match event.kind {
                        RunEventKind::Complete { .. } => (event.stream, "end".to_owned()),
                        RunEventKind::Cancelled => (event.stream, "cancelled".to_owned()),
                        RunEventKind::Error(error) => (event.stream, format!("{:?}", error.kind)),
                        _ => continue,
                    },
                    _ => continue,
                };
                if let Some((_, told)) = of_stream.get_mut(&stream) {
                    told.terminals.push(terminal);
                }
            }
            for (provider, told) in of_stream.into_values() {
                by_provider.entry(provider).or_default().push(told);
            }
        }
        by_provider
    }

    /// The value of one of the Edge's series.
    pub fn metric(&self, series: &str) -> anyhow::Result<f64> {
        metric(&self.edge, series)
    }

    /// The sum over those of the Edge's series that begin so.
    pub fn sum(&self, prefix: &str) -> anyhow::Result<f64> {
        sum(&self.edge, prefix)
    }

    /// Recoveries by `exact_replay` or another strategy that came to this.
    pub fn results(&self, strategy: &str, result: &str) -> anyhow::Result<f64> {
        let series = format!(
            "iop_edge_liveness_recovery_results_total{{result=\"{result}\",strategy=\"{strategy}\"}}"
        );
        self.metric(&series)
    }

    /// How often control counted this.
    pub fn counted(&self, event: &str) -> anyhow::Result<f64> {
        self.metric(&format!("iop_edge_control_events_total{{event=\"{event}\"}}"))
    }

    /// A provider as `/status` shows it.
    pub fn status(&self, provider: &str) -> anyhow::Result<Value> {
        let document = http::get(&self.edge.ops, "/status", None)?.json()?;
        let nodes = document["nodes"].as_array().context("nodes")?;
        let mut providers = nodes.iter().flat_map(|node| node["providers"].as_array().into_iter().flatten());
        Ok(providers.find(|it| it["id"] == provider).with_context(|| provider.to_owned())?.clone())
    }

    /// Nobody holds or waits for anything, and what was granted has been settled (SET, case 18).
    pub fn balances(&self) -> anyhow::Result<()> {
        eventually(SOON, "nobody waits, and nothing is active", || {
            let mut held = 0.0;
            for gauge in
                ["iop_edge_queued", "iop_edge_requests_active", "iop_edge_leases", "iop_edge_leases_held"]
            {
                held += self.metric(gauge)?;
            }
            Ok(held + self.sum("iop_edge_provider_in_flight{")? == 0.0)
        })?;
        let (granted, settled) = (self.counted("granted")?, self.counted("settled")?);
        ensure!(granted == settled, "granted {granted}, settled {settled}");
        for group in &self.groups {
            for backend in &group.backends {
                let status = self.status(&backend.name)?;
                ensure!(status["in_flight"] == 0 && status["queued"] == 0, "{status}");
            }
        }
        for ops in &self.node_ops {
            eventually(PATIENCE, "the Nodes are idle", || {
                Ok(node_metric(ops, "iop_node_runs_in_flight")? == 0.0)
            })?;
        }
        for process in self.nodes.iter().chain([&self.edge.process]) {
            ensure!(!process.text().contains("panicked"), "{}", process.text());
        }
        Ok(())
    }

    /// The Node of this index is killed.
    pub fn kill_node(&mut self, index: usize) -> anyhow::Result<()> {
        let node = self.nodes.get_mut(index).context("such a node")?;
        ensure!(node.is_running()?, "it died before it was killed");
        node.kill();
        self.node_ops.remove(index);
        Ok(())
    }
}

/// Nobody looks at how they drain.
impl Drop for Stand {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            node.kill();
        }
        self.edge.process.kill();
    }
}

/// What an answer says of how it came about: attempts, recovery and providers, from its head or, where that was out before it was
/// known, from its last comment (API-2).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub attempts: String,
    pub recovery: String,
    pub providers: String,
}

impl Origin {
    pub fn of(answer: &Answer) -> Self {
        let comment = answer.text();
        let comment = comment.lines().rev().find_map(|line| line.strip_prefix(": iop ").map(str::to_owned));
        let comment = comment.unwrap_or_default();
        let of = |header: &str, name: &str| {
            let word = comment.split(' ').find_map(|word| word.strip_prefix(&format!("{name}=")));
            word.or_else(|| answer.header(header)).unwrap_or_default().to_owned()
        };
        Self {
            attempts: of("x-iop-attempts", "attempts"),
            recovery: of("x-iop-recovery", "recovery"),
            providers: of("x-iop-providers", "providers"),
        }
    }

    /// What it is to be for these attempts; a recovery is the last one's.
    pub fn new(recovery: &str, providers: &[&str]) -> Self {
        let several = providers.len() > 1;
        Self {
            attempts: providers.len().to_string(),
            recovery: recovery.to_owned(),
            providers: if several { providers.join(",") } else { String::new() },
        }
    }
}

/// Runs over all groups and collects what is wrong instead of stopping at the first.
pub fn each<'a, T>(
    all: impl IntoIterator<Item = (&'a Group, T)>,
    mut check: impl FnMut(&'a Group, T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for (group, of) in all {
        if let Err(error) = check(group, of) {
            wrong.push(format!("{}: {error:#}", group.case.name));
        }
    }
    ensure!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// An answer is what the provider of this index says, whole and by itself; and it tells how it came about.
pub fn is_served_by(group: &Group, index: usize, answer: &Answer, origin: &Origin) -> anyhow::Result<()> {
    let backend = &group.backends[index];
    let text = group.case.way.text(answer)?;
    ensure!(text == format!("{}{}", super::backend::SERVED, backend.name), "{text:?}");
    if !group.case.way.is_written() {
        // Of ids there are only those of the one that served.
        for other in group.backends.iter().filter(|other| other.name != backend.name) {
            ensure!(!answer.text().contains(&format!("_{}\"", other.name)), "{}", answer.text());
            ensure!(!answer.text().contains(&format!("-{}\"", other.name)), "{}", answer.text());
        }
    }
    ensure!(
        Origin::of(answer) == *origin,
        "{:?} is not {origin:?}\n{}{}",
        Origin::of(answer),
        answer.head,
        answer.text()
    );
    Ok(())
}

/// Requests that came to each provider of a group.
pub fn asked(group: &Group) -> Vec<usize> {
    group.backends.iter().map(|backend| backend.asked().len()).collect()
}

/// It does not take longer than that.
pub fn within<T>(limit: Duration, what: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let started = Instant::now();
    let result = what()?;
    ensure!(started.elapsed() < limit, "it took {:?}", started.elapsed());
    Ok(result)
}
