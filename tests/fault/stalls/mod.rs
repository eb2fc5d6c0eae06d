//! Providers that stop in the middle of an answer, each with a health endpoint that says something else (STL, PRE-3, CAP).
//!
//! All cases stall at the same time, each at a provider of its own on one Node, with the product's own times. What Node and Edge
//! say to each other is read on the way between them.

mod order;
mod scene;
pub mod tap;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use iop_tests::{
    Edge, EdgeYaml, Process, ProviderYaml, Site,
    bench::{NODE, RETRY, SOON, eventually, metric, node_metric, node_ops, site, sum, yaml},
    http::{self, PATIENCE, Raw},
};
use proto::message::{ErrorKind, ExecutionError, Message, RunEventKind, StreamNo, TunnelFrameKind};
use serde_json::{Value, json};

use scene::{Case, DRILL, EVENTS, Health, Kind, Leaves, Scene, Stop};
use tap::{Heard, Tap};

/// `response_stall_timeout_ms` of every provider.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Close grace and probe, side by side (STL-4).
const GRACE: Duration = Duration::from_secs(5);
/// How far from its time a terminal may come.
const TOLERANCE: Duration = Duration::from_secs(1);
/// The Edge asks after 5 s, and 10 s after that.
const PROBED_WITHIN: Duration = Duration::from_secs(25);

const STOPS: [Stop; 5] =
    [Stop::BeforeHeaders, Stop::AfterHeaders, Stop::AfterEvents, Stop::AfterLastByte, Stop::Comments];
const HEALTHS: [Health; 5] = [Health::Healthy, Health::Dead, Health::Lying, Health::Hanging, Health::Absent];

/// Edge, tapped link and Node in front of the providers of all cases.
struct Stand {
    scenes: Vec<Scene>,
    tap: Tap,
    node_ops: String,
    node: Process,
    edge: Edge,
    site: Site,
}

/// What the link carried of one execution.
#[derive(Debug, Default)]
struct Told {
    dispatched: Option<Instant>,
    /// The last that was something for the client.
    progress: Option<Instant>,
    terminals: Vec<(Instant, Option<ExecutionError>)>,
    /// What the client could see.
    text: String,
    after_terminal: usize,
}

impl Stand {
    fn start(cases: impl Iterator<Item = Case>) -> anyhow::Result<Self> {
        Self::with(cases, "health: { generation: true }")
    }

    /// With these further keys of every provider.
    fn with(cases: impl Iterator<Item = Case>, keys: &str) -> anyhow::Result<Self> {
        let site = site()?;
        let scenes = cases.map(Scene::start).collect::<anyhow::Result<Vec<_>>>()?;
        let pool = "max_queue: 100, queue_timeout_ms: 20000".to_owned();
        // This is about one attempt and what is told of it; what may follow it is of the failover drill.
        let openai = "  stream_evidence_gate: { max_request_fault_recovery: 0 }\n".to_owned();
        let yaml = scenes.iter().fold(EdgeYaml { pool, openai, ..yaml() }, |yaml, scene| {
            let (name, url) = (scene.name(), scene.played.url());
            let provider = match scene.case.kind {
                Kind::Tunnel => ProviderYaml::new(name, NODE, &format!("{url}/v1"), name),
                Kind::Run => ProviderYaml::ollama(name, NODE, &url, &[name]),
            };
            let extra = format!("response_stall_timeout_ms: {}, {keys}", TIMEOUT.as_millis());
            yaml.with(ProviderYaml { capacity: 1, extra, ..provider })
        });
        let edge = site.edge(&yaml)?;
        let tap = Tap::start(&site, &edge, NODE)?;
        let extra = format!("{RETRY}\nmetrics: {{ listen: \"127.0.0.1:0\" }}");
        let mut node = site.node_with(NODE, &tap.address, &extra)?;
        node.wait_for("node ready")?;
        let node_ops = node_ops(&node)?;
        Ok(Self { scenes, tap, node_ops, node, edge, site })
    }

    fn ask(&self, scene: &Scene, text: &str) -> anyhow::Result<Raw> {
        let body = json!({
            "model": scene.name(), "stream": true, "messages": [{ "role": "user", "content": text }],
        });
        let mut client = Raw::connect(&self.edge.http)?;
        client.send(http::chat_request(self.site.token(), &body))?;
        Ok(client)
    }

    /// Everything about the executions of each provider, in the order of their dispatch.
    fn told(&self) -> BTreeMap<String, Vec<Told>> {
        let mut of_stream: BTreeMap<StreamNo, (String, Told)> = BTreeMap::new();
        for Heard { at, by_node, message } in self.tap.heard() {
            let dispatch = match &message {
                Message::TunnelRequest(request) => Some((request.stream, request.target.clone())),
                Message::RunRequest(request) => Some((request.stream, request.target.clone())),
                _ => None,
            };
            if let Some((stream, target)) = dispatch {
                of_stream.insert(stream, (target, Told { dispatched: Some(at), ..Told::default() }));
            }
            let (stream, text, terminal) = match message {
                Message::TunnelFrame(frame) if by_node => match frame.kind {
                    TunnelFrameKind::ResponseStart { .. } => (frame.stream, Some(String::new()), None),
                    TunnelFrameKind::Body(body) => {
                        let text = String::from_utf8_lossy(&body).into_owned();
                        let is_comment = text.lines().all(|line| line.is_empty() || line.starts_with(':'));
                        (frame.stream, (!is_comment).then_some(text), None)
                    }
                    TunnelFrameKind::Usage(_) => (frame.stream, Some(String::new()), None),
                    TunnelFrameKind::End => (frame.stream, None, Some(None)),
                    TunnelFrameKind::Error(error) => (frame.stream, None, Some(Some(error))),
                },
                Message::RunEvent(event) if by_node => match event.kind {
                    RunEventKind::Start | RunEventKind::Usage(_) => (event.stream, Some(String::new()), None),
                    RunEventKind::Delta { text, .. } => (event.stream, Some(text), None),
                    RunEventKind::Complete { .. } | RunEventKind::Cancelled => {
                        (event.stream, None, Some(None))
                    }
                    RunEventKind::Error(error) => (event.stream, None, Some(Some(error))),
                },
                _ => continue,
            };
            let Some((_, told)) = of_stream.get_mut(&stream) else { continue };
            told.after_terminal += usize::from(!told.terminals.is_empty());
            if let Some(text) = text {
                told.progress = Some(at);
                told.text.push_str(&text);
            }
            told.terminals.extend(terminal.map(|error| (at, error)));
        }
        let mut by_target: BTreeMap<String, Vec<Told>> = BTreeMap::new();
        for (target, told) in of_stream.into_values() {
            by_target.entry(target).or_default().push(told);
        }
        by_target
    }

    /// The provider of a case as `/status` shows it.
    fn status(&self, name: &str) -> anyhow::Result<Value> {
        let document = http::get(&self.edge.ops, "/status", None)?.json()?;
        let providers = document["nodes"][0]["providers"].as_array().context("providers")?;
        Ok(providers.iter().find(|it| it["id"] == name).with_context(|| name.to_owned())?.clone())
    }

    fn is_overlaid(&self, scene: &Scene) -> anyhow::Result<bool> {
        Ok(self.status(scene.name())?["reason"] == "overlaid")
    }

    /// What the Node answered to CAPABILITIES: target, status and number of each, in order.
    fn answers(&self) -> Vec<[String; 3]> {
        let of = |fields: &BTreeMap<String, String>, key: &str| fields.get(key).cloned().unwrap_or_default();
        let heard = self.tap.heard();
        let answers = heard.iter().filter_map(|heard| match &heard.message {
            Message::NodeCommandResponse(response) => response.result.as_ref().ok(),
            _ => None,
        });
        answers
            .map(|fields| ["target", "provider_status", "health_observation_seq"].map(|key| of(fields, key)))
            .collect()
    }

    fn stalls_once_each(&self) -> anyhow::Result<()> {
        let mut clients = Vec::new();
        for scene in &self.scenes {
            clients.push(self.ask(scene, DRILL)?);
        }
        for scene in &self.scenes {
            eventually(PATIENCE, scene.name(), || Ok(scene.stage.arrived.load(SeqCst) == 1))?;
            if scene.case.health == Health::Dead {
                scene.played.close_door()?;
            }
        }
        for (scene, mut client) in self.scenes.iter().zip(clients) {
            let answer = client.answer()?;
            sees_an_error(scene.case, &answer)
                .with_context(|| format!("{}: {}{}", scene.case, answer.head, answer.text()))?;
        }
        Ok(())
    }
}

/// Nobody looks at how they drain.
impl Drop for Stand {
    fn drop(&mut self) {
        self.node.kill();
        self.edge.process.kill();
    }
}

/// What a client gets: an error instead of an answer, or an answer that is broken off.
fn sees_an_error(case: Case, answer: &http::Answer) -> anyhow::Result<()> {
    // An answer begins with its first content.
    let before = matches!(case.stop, Stop::BeforeHeaders | Stop::AfterHeaders);
    if before {
        ensure!(answer.status == 504 && answer.json()?["error"]["code"] == "timeout", "no 504");
        return Ok(());
    }
    ensure!(answer.status == 200 && !answer.whole, "it looks whole");
    let codes: Vec<_> = answer.error_events().iter().map(|error| error["code"].clone()).collect();
    if case.stop == Stop::AfterLastByte {
        ensure!(
            answer.is_done() && codes.is_empty(),
            "the end that the provider gave, and nothing behind it"
        );
    } else {
        ensure!(!answer.is_done() && codes == ["timeout"], "one error and no more: {codes:?}");
    }
    ensure!(!answer.text().contains("too late"), "output after the fence");
    let seen = answer.text().matches("Hello ").count();
    ensure!(seen == EVENTS, "{seen} events of {EVENTS}");
    Ok(())
}

/// The pair of a health (STL-5, STL-11).
const fn pair(health: Health) -> (&'static str, &'static str) {
    match health {
        Health::Healthy => ("available", "request_stalled"),
        Health::Dead | Health::Absent => ("unavailable", "provider_unhealthy"),
        Health::Lying | Health::Hanging => ("unknown", "health_unknown"),
    }
}

/// One terminal, when it is due, with what it may hold and nothing else; gives its number.
fn is_one_stall(case: Case, told: &Told) -> anyhow::Result<u64> {
    let [(at, Some(error))] = told.terminals.as_slice() else {
        anyhow::bail!("terminals: {:?}", told.terminals);
    };
    ensure!(told.after_terminal == 0, "{} frames after the terminal", told.after_terminal);
    ensure!(!told.text.contains("too late"), "output after the fence");
    let since = told.progress.or(told.dispatched).context("it was dispatched")?;
    let probe_waits = matches!(case.health, Health::Lying | Health::Hanging);
    let due = TIMEOUT + if probe_waits || case.leaves == Leaves::Late { GRACE } else { Duration::ZERO };
    let came = at.duration_since(since);
    ensure!(came + TOLERANCE >= due && came <= due + TOLERANCE, "due after {due:?}, came after {came:?}");

    ensure!(error.kind == ErrorKind::Stalled, "{error:?}");
    let failure = error.failure.as_ref().context("a stall has its failure")?;
    ensure!(failure.failure_code == "response_stalled", "{failure:?}");
    let fence = if case.leaves == Leaves::AtOnce { "confirmed" } else { "unconfirmed" };
    ensure!(failure.retryable == (fence == "confirmed"), "{failure:?}");
    let of = |key: &str| failure.metadata.get(key).map_or("", String::as_str);
    ensure!((of("provider_health"), of("liveness_classification")) == pair(case.health), "{failure:?}");
    ensure!((of("fence"), of("target")) == (fence, case.to_string().as_str()), "{failure:?}");
    ensure!(of("adapter") == format!("{case}-adapter"), "{failure:?}");
    let idle = Duration::from_millis(of("idle_ms").parse()?);
    ensure!(idle >= TIMEOUT && idle <= TIMEOUT + TOLERANCE, "idle for {idle:?}");
    let keys: BTreeSet<_> = failure.metadata.keys().map(String::as_str).collect();
    let allowed = [
        "provider_health",
        "liveness_classification",
        "idle_ms",
        "node_run_id",
        "node_attempt_id",
        "fence",
        "adapter",
        "target",
        "health_observation_seq",
    ];
    ensure!(keys == allowed.into(), "{keys:?}");
    Ok(of("health_observation_seq").parse()?)
}

/// All of it for the cases of one kind.
fn drill(kind: Kind, stops: &[Stop]) -> anyhow::Result<()> {
    let mut cases = Vec::new();
    for (index, stop) in stops.iter().copied().enumerate() {
        for (other, health) in HEALTHS.into_iter().enumerate() {
            // Each stop and each health with both.
            let leaves = if (index + other) % 2 == 0 { Leaves::AtOnce } else { Leaves::Late };
            cases.push(Case { kind, stop, health, leaves });
        }
    }
    let stand = Stand::start(cases.into_iter())?;
    let started = Instant::now();
    let step = |what: &str| println!("{kind:?}, {:?}: {what}", started.elapsed());
    stand.stalls_once_each()?;
    step("all have ended");
    let count = stand.scenes.len();

    // On the wire: one terminal each, and every number once.
    let told = stand.told();
    let mut numbers = BTreeSet::new();
    let mut wrong = Vec::new();
    for scene in &stand.scenes {
        match told.get(scene.name()).map(Vec::as_slice) {
            Some([told]) => match is_one_stall(scene.case, told) {
                Ok(number) => ensure!(numbers.insert(number), "{number} twice"),
                Err(error) => wrong.push(format!("{}: {error:#}", scene.case)),
            },
            other => wrong.push(format!("{}: {other:?}", scene.case)),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(sum(&stand.edge, "iop_edge_requests_total{outcome=\"stalled\"")?, count as f64);
    assert_eq!(sum(&stand.edge, "iop_edge_provider_health_evidence_total")?, count as f64);

    // The Node's gate is held for as long as the provider is at work.
    let late: Vec<_> = stand.scenes.iter().filter(|scene| scene.case.leaves == Leaves::Late).collect();
    let in_flight = || node_metric(&stand.node_ops, "iop_node_runs_in_flight");
    eventually(SOON, "the others are free", || Ok(in_flight()? == late.len() as f64))?;
    let held =
        late.iter().find(|scene| scene.case.health == Health::Healthy).context("a held one that is well")?;
    let answer = stand.ask(held, DRILL)?.answer()?;
    ensure!(answer.status == 503, "a busy gate: {}{}", answer.head, answer.text());
    assert_eq!(held.stage.arrived.load(SeqCst), 1, "the provider was not called");
    assert_eq!(in_flight()?, late.len() as f64);

    step("a held one is busy");
    // Only what is known to be unavailable is out.
    for scene in &stand.scenes {
        let is_out = pair(scene.case.health).0 == "unavailable";
        eventually(SOON, scene.name(), || Ok(stand.is_overlaid(scene)? == is_out))?;
    }

    step("the unavailable ones are out");
    // It comes back by an answer to CAPABILITIES alone, and the one that is still dead does not.
    let still_dead =
        stand.scenes.iter().find(|scene| scene.case.health == Health::Dead).context("a dead one")?;
    for scene in &stand.scenes {
        scene.lets_leave();
        if scene.name() != still_dead.name() {
            scene.recovers()?;
        }
    }
    eventually(SOON, "every gate is free", || Ok(in_flight()? == 0.0))?;
    let is_asked = |name: &str, status: &str| {
        stand.answers().iter().any(|answer| answer[0] == name && answer[1] == status)
    };
    for scene in stand.scenes.iter().filter(|scene| scene.name() != still_dead.name()) {
        eventually(PROBED_WITHIN, scene.name(), || Ok(!stand.is_overlaid(scene)?))?;
        let was_out = pair(scene.case.health).0 == "unavailable";
        assert_eq!(is_asked(scene.name(), "available"), was_out, "{}", scene.name());
        let answer = stand.ask(scene, DRILL)?.answer()?;
        ensure!(answer.status == 200 && answer.is_done(), "{}: {}{}", scene.case, answer.head, answer.text());
        assert_eq!(scene.stage.served.load(SeqCst), 1, "{}", scene.name());
    }
    step("all that are well again have served");
    eventually(PROBED_WITHIN, "the dead one is asked", || Ok(is_asked(still_dead.name(), "unavailable")))?;
    assert!(stand.is_overlaid(still_dead)?);
    for [target, _, number] in stand.answers() {
        ensure!(numbers.insert(number.parse()?), "{number} of {target} twice");
    }
    assert_eq!(numbers.first(), Some(&1), "{numbers:?}");
    observed(&stand, kind, count)?;
    eventually(SOON, "every slot is free", || Ok(metric(&stand.edge, "iop_edge_leases")? == 0.0))
}

/// What operators see of it.
fn observed(stand: &Stand, kind: Kind, count: usize) -> anyhow::Result<()> {
    let metrics = http::get(&stand.node_ops, "/metrics", None)?.text();
    let values = metrics.lines().filter(|line| line.starts_with("iop_node_response_stalls_total{"));
    let total: f64 = values
        .map(|line| Ok(line.rsplit(' ').next().context("a value")?.parse::<f64>()?))
        .sum::<anyhow::Result<_>>()?;
    assert_eq!(total, count as f64, "{metrics}");
    let log = stand.node.text();
    assert_eq!(log.matches("node_response_stall_observation").count(), count, "{kind:?}");
    for text in [&log, &stand.edge.process.text(), &metrics] {
        ensure!(!text.contains("Hello ") && !text.contains("panicked"), "{text}");
        ensure!(!text.contains(stand.site.token()), "a token");
    }
    Ok(())
}

// req: STL-3, STL-4, STL-5, STL-7, STL-8, STL-9, STL-11, PRE-3, HND-4, CAP-1, CAP-2, CAP-3, OBS-1
#[test]
fn every_stall_of_a_tunnel_ends_once_and_in_time_with_what_is_known_of_its_provider() -> anyhow::Result<()> {
    drill(Kind::Tunnel, &STOPS)
}

// req: STL-3, STL-4, STL-5, STL-7, STL-9, STL-11, PRE-3, RUN-1
#[test]
fn every_stall_of_a_run_ends_once_and_in_time_with_what_is_known_of_its_provider() -> anyhow::Result<()> {
    drill(Kind::Run, &[Stop::BeforeHeaders, Stop::AfterHeaders, Stop::AfterEvents])
}
