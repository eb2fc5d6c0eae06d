//! A provider that its Node found unavailable: it is taken out, shown, asked again, and comes back by the right answer alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use iop_tests::{
    Edge, EdgeYaml, ProviderYaml, Site, http,
    http::Raw,
    site::{path, tool},
};
use proto::message::{
    ErrorKind, ExecutionError, ExecutionFailure, Message, NodeCommandRequest, NodeCommandResponse,
    TunnelFrameKind,
};
use serde_json::Value;

use crate::support::{
    MODEL, SOON, assert_error, eventually,
    fake_node::{FakeNode, ask},
    metric, site, sum, yaml,
};

/// The first probe comes after 5 s, the second 10 s after it.
const PROBE_WITHIN: Duration = Duration::from_secs(20);
/// A second factor, and a provider's host and port: what no surface may show.
const SENTINELS: [&str; 3] = ["sentinel-token", "sentinel-host", "47119"];
/// Every key of the status document.
const STATUS_KEYS: &str = "
    edge version config_generation draining queued leases cancelling nodes queue runs
    id connected state state_ms providers
    status health reason capacity in_flight long_context_capacity long_in_flight long_queued overlay
    since_ms adapter target probes next_probe_ms
    position request model long age_ms attempts waits_for
    lease node provider direct
";
const ADMIN_SOCKET: &str = "admin.sock";

/// `p1` on `box1`, which is asked first, and `p2` on `box2`, one slot each.
fn two_providers() -> EdgeYaml {
    let on = |id: &str, node: &str, extra: &str| ProviderYaml {
        capacity: 1,
        extra: extra.to_owned(),
        ..ProviderYaml::new(id, node, "http://sentinel-host:47119/v1", MODEL)
    };
    // Who stalls is not asked again elsewhere: these tests are about what is known of it.
    let openai = "  stream_evidence_gate: { max_request_fault_recovery: 0 }\n".to_owned();
    EdgeYaml { admin_socket: ADMIN_SOCKET.to_owned(), openai, ..yaml() }.with(on("p1", "box1", "")).with(on(
        "p2",
        "box2",
        "priority: 1",
    ))
}

/// The evidence of a stall of `p1`'s (STL-5).
fn stalled(sequence: u64) -> TunnelFrameKind {
    let metadata = [
        ("provider_health", "unavailable"),
        ("liveness_classification", "provider_unhealthy"),
        ("adapter", "p1-adapter"),
        ("target", MODEL),
        ("fence", "confirmed"),
        ("health_observation_seq", &sequence.to_string()),
    ];
    let failure = ExecutionFailure {
        failure_code: "response_stalled".to_owned(),
        retryable: true,
        metadata: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
    };
    let error = ExecutionError::new(ErrorKind::Stalled, "no progress");
    TunnelFrameKind::Error(ExecutionError { failure: Some(failure), ..error })
}

/// The answer to a probe (CAP-1).
fn says(status: &str, target: &str, sequence: u64) -> Result<BTreeMap<String, String>, String> {
    let pairs = [
        ("adapter_key", "p1-adapter"),
        ("target", target),
        ("provider_status", status),
        ("health_observation_seq", &sequence.to_string()),
    ];
    Ok(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
}

fn reply(
    node: &mut FakeNode,
    request_id: u64,
    result: Result<BTreeMap<String, String>, String>,
) -> anyhow::Result<()> {
    node.send(&Message::NodeCommandResponse(NodeCommandResponse { request_id, result }))
}

/// Waits for a probe; anything but credit on the way to it is not meant for a provider that is out.
fn probe(node: &mut FakeNode) -> anyhow::Result<NodeCommandRequest> {
    let end = Instant::now() + PROBE_WITHIN;
    while Instant::now() < end {
        match node.poll(Duration::from_millis(200))? {
            Some(Message::NodeCommandRequest(request)) => return Ok(*request),
            None | Some(Message::Credit(_) | Message::Cancel(_)) => {}
            Some(other) => bail!("expected a probe, got {}", other.name()),
        }
    }
    bail!("no probe within {PROBE_WITHIN:?}")
}

/// Has `node` stall the run of a request, with evidence that takes its provider out.
fn stall(site: &Site, edge: &Edge, node: &mut FakeNode, sequence: u64) -> anyhow::Result<()> {
    let mut client = ask(site, edge, false)?;
    let stream = node.request()?.stream;
    node.frame(stream, 0, stalled(sequence))?;
    assert_error(&client.answer()?, 504, Some("timeout"));
    Ok(())
}

fn document(edge: &Edge) -> anyhow::Result<Value> {
    http::get(&edge.ops, "/status", None)?.json()
}

fn p1(document: &Value) -> &Value {
    &document["nodes"][0]["providers"][0]
}

fn reason(edge: &Edge) -> anyhow::Result<Value> {
    Ok(p1(&document(edge)?)["reason"].clone())
}

fn served_by(client: &mut Raw, provider: &str) -> anyhow::Result<()> {
    let answer = client.answer()?;
    ensure!(answer.status == 200, "{}", answer.text());
    assert_eq!(answer.header("x-iop-provider"), Some(provider));
    Ok(())
}

/// Every slot that was given came back for one cause, or is held (I4).
fn is_conserved(edge: &Edge, held: f64) -> anyhow::Result<()> {
    eventually(SOON, "the slots that are held", || Ok(metric(edge, "iop_edge_leases_held")? == held))?;
    let text = http::get(&edge.ops, "/metrics", None)?.text();
    let value = |series: &str| http::metric(&text, series).with_context(|| format!("no {series}"));
    let returned: f64 = text
        .lines()
        .filter(|line| line.starts_with("iop_edge_leases_returned_total{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    assert_eq!(value("iop_edge_leases_granted_total")?, returned + value("iop_edge_leases_held")?, "{text}");
    Ok(())
}

// req: HND-4, HND-6, CAP-2, CAP-3, CAP-4, CMD-1, POL-6, SNP-4
#[test]
fn a_provider_that_is_found_unavailable_is_out_until_the_right_answer_to_a_probe() -> anyhow::Result<()> {
    let site = site()?;
    let config = site.configure(&two_providers())?;
    let text = std::fs::read_to_string(&config)?;
    std::fs::write(&config, text.replace("  - id: box2\n", "  - id: box2\n    alias: second\n"))?;
    let edge = site.edge_on(&config)?;
    let (mut first, mut second) =
        (FakeNode::ready(&site, &edge, "box1")?, FakeNode::ready(&site, &edge, "box2")?);
    stall(&site, &edge, &mut first, 1)?;

    let shown = document(&edge)?;
    let line = p1(&shown);
    let words = ["status", "health", "reason"].map(|key| line[key].as_str().unwrap_or_default());
    assert_eq!(words, ["unavailable", "unavailable", "overlaid"], "{shown:#}");
    for key in ["capacity", "in_flight", "queued", "long_context_capacity", "long_in_flight", "long_queued"] {
        assert_eq!(line[key], 0, "{key}: {shown:#}");
    }
    let overlay = &line["overlay"];
    assert_eq!((&overlay["adapter"], &overlay["target"]), (&"p1-adapter".into(), &MODEL.into()));
    assert!((1..=5000).contains(&overlay["next_probe_ms"].as_u64().unwrap_or_default()), "{shown:#}");
    assert_eq!(metric(&edge, "iop_edge_provider_overlaid{node=\"box1\",provider=\"p1\"}")?, 1.0);

    // The others go on serving; who finds them busy waits for them.
    let mut served = ask(&site, &edge, false)?;
    let running = second.request()?.stream;
    let mut waiting = ask(&site, &edge, false)?;
    eventually(SOON, "it waits", || Ok(metric(&edge, "iop_edge_queued")? == 1.0))?;
    let shown = document(&edge)?;
    assert_eq!(shown["queue"][0]["waits_for"], serde_json::json!(["p2"]), "{shown:#}");
    assert_eq!((&shown["queue"][0]["position"], &shown["queue"][0]["model"]), (&1.into(), &MODEL.into()));
    assert_eq!((&shown["runs"][0]["provider"], &shown["runs"][0]["state"]), (&"p2".into(), &"active".into()));
    shows_no_secret(&site, &edge)?;

    // It is asked about what failed, and nothing else is asked of it.
    let asked = probe(&mut first)?;
    let target = (asked.command.as_str(), asked.adapter.as_str(), asked.target.as_str());
    assert_eq!(target, ("capabilities", "p1-adapter", MODEL));
    let answers = |outcome| metric(&edge, &format!("iop_edge_probe_answers_total{{outcome=\"{outcome}\"}}"));
    let ignored = || metric(&edge, "iop_edge_command_answers_ignored_total");
    // What nobody asked for, and what does not fit; said right at the second time it comes too late.
    reply(&mut first, asked.request_id + 1, says("available", MODEL, 2))?;
    eventually(SOON, "it is ignored", || Ok(ignored()? == 1.0))?;
    reply(&mut first, asked.request_id, says("available", "another", 2))?;
    eventually(SOON, "it is rejected", || Ok(answers("rejected")? == 1.0))?;
    reply(&mut first, asked.request_id, says("available", MODEL, 2))?;
    eventually(SOON, "it is ignored as well", || Ok(ignored()? == 2.0))?;
    assert_eq!(reason(&edge)?, "overlaid");
    assert_eq!(metric(&edge, "iop_edge_queued")?, 1.0, "nothing has changed for who waits");

    let asked = probe(&mut first)?;
    reply(&mut first, asked.request_id, says("available", MODEL, 2))?;
    let stream = first.request()?.stream;
    first.answer(stream, "{}")?;
    served_by(&mut waiting, "p1")?;
    assert_eq!(reason(&edge)?, Value::Null);
    second.answer(running, "{}")?;
    served_by(&mut served, "p2")?;

    assert_eq!((answers("cleared")?, metric(&edge, "iop_edge_probes_sent_total")?), (1.0, 2.0));
    let transitions = |which| {
        metric(&edge, &format!("iop_edge_provider_health_transitions_total{{transition=\"{which}\"}}"))
    };
    assert_eq!((transitions("lowered")?, transitions("cleared")?, transitions("dropped")?), (1.0, 1.0, 0.0));
    assert_eq!(metric(&edge, "iop_edge_provider_overlaid{node=\"box1\",provider=\"p1\"}")?, 0.0);
    assert_eq!(sum(&edge, "iop_edge_provider_health_evidence_total")?, 1.0);
    is_conserved(&edge, 0.0)
}

/// In no surface is there an address, a port, a token or anything of a connection (SNP-4).
fn shows_no_secret(site: &Site, edge: &Edge) -> anyhow::Result<()> {
    let (program, socket) = (site.program("iop-edge"), site.dir().join(ADMIN_SOCKET));
    let command = ["status", "--socket", path(&socket)?];
    let surfaces = [
        http::get(&edge.ops, "/status", None)?.text(),
        http::get(&edge.ops, "/metrics", None)?.text(),
        tool(&program, &command)?,
        tool(&program, &[&command[..], &["--json"]].concat())?,
    ];
    let port = |address: &str| address.rsplit(':').next().unwrap_or_default().to_owned();
    let mut secrets = vec![site.token().to_owned(), "127.0.0.1".to_owned(), port(&edge.node)];
    secrets.extend(SENTINELS.map(str::to_owned));
    for surface in surfaces {
        // The surface is one that shows something at all.
        ensure!(surface.contains("p1") && surface.contains("box2"), "{surface}");
        for secret in &secrets {
            ensure!(!surface.contains(secret), "{secret} in\n{surface}");
        }
    }
    // Nothing has come in that nobody thought of.
    let mut keys = BTreeSet::new();
    keys_of(&document(edge)?, &mut keys);
    let known: BTreeSet<_> = STATUS_KEYS.split_whitespace().map(str::to_owned).collect();
    assert_eq!(keys, known);
    Ok(())
}

fn keys_of(value: &Value, keys: &mut BTreeSet<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        keys.insert(key.clone());
        keys_of(value, keys);
    }
    value.as_array().into_iter().flatten().for_each(|item| keys_of(item, keys));
}

// req: HND-5, CAP-2
#[test]
fn a_new_connection_begins_without_the_overlay_and_owes_no_answers() -> anyhow::Result<()> {
    let site = site()?;
    let edge = site.edge(&two_providers())?;
    let mut old = FakeNode::ready(&site, &edge, "box1")?;
    stall(&site, &edge, &mut old, 1)?;
    assert_eq!(reason(&edge)?, "overlaid");
    let asked = probe(&mut old)?;

    let mut new = FakeNode::ready(&site, &edge, "box1")?;
    assert_eq!(old.wait_closed()?.as_deref(), Some("superseded"));
    assert_eq!(reason(&edge)?, Value::Null);
    reply(&mut new, asked.request_id, says("available", MODEL, 9))?;
    eventually(
        SOON,
        "it is ignored",
        || Ok(metric(&edge, "iop_edge_command_answers_ignored_total")? == 1.0),
    )?;
    let mut client = ask(&site, &edge, false)?;
    let stream = new.request()?.stream;
    new.answer(stream, "{}")?;
    served_by(&mut client, "p1")?;
    // What it sees itself counts anew, from its own first number on.
    stall(&site, &edge, &mut new, 1)?;
    assert_eq!(reason(&edge)?, "overlaid");
    is_conserved(&edge, 0.0)
}

/// What a Node adds to its evidence; no surface of the Edge may show it.
const SENTINEL: &str = "sentinel-of-a-node";

/// `evidence` with the sentinel in every place that is a Node's to fill, and `spoilt`, if anything, in place of the adapter.
fn with_sentinels(evidence: TunnelFrameKind, spoilt: Option<&str>) -> anyhow::Result<TunnelFrameKind> {
    let TunnelFrameKind::Error(mut error) = evidence else { bail!("no error") };
    error.message = format!("{SENTINEL}-message");
    let failure = error.failure.as_mut().context("no failure")?;
    for key in ["provider_id", "node_id", "run_id", "recovery_handoff", "recovery_eligible", SENTINEL] {
        failure.metadata.insert(key.to_owned(), format!("{SENTINEL}-{key}"));
    }
    if let Some(spoilt) = spoilt {
        failure.metadata.insert("adapter".to_owned(), spoilt.to_owned());
        failure.metadata.insert("provider_health".to_owned(), format!("{SENTINEL}-health"));
    }
    Ok(TunnelFrameKind::Error(error))
}

// req: OBS-2, OBS-4
#[test]
fn what_came_of_evidence_is_told_in_closed_words_and_nothing_else_of_it() -> anyhow::Result<()> {
    let site = site()?;
    let edge = site.edge(&two_providers())?;
    let mut node = FakeNode::ready(&site, &edge, "box1")?;
    for (sequence, spoilt) in [(1, Some(SENTINEL)), (2, None)] {
        let mut client = ask(&site, &edge, false)?;
        let stream = node.request()?.stream;
        node.frame(stream, 0, with_sentinels(stalled(sequence), spoilt)?)?;
        // What is confirmed may be tried on the other provider, which is not there.
        if spoilt.is_some() {
            assert_error(&client.answer()?, 504, Some("timeout"));
        }
    }
    eventually(SOON, "the provider is out", || Ok(reason(&edge)? == "overlaid"))?;

    let metrics = http::get(&edge.ops, "/metrics", None)?.text();
    for counted in [
        "iop_edge_provider_health_evidence_total{result=\"rejected\"} 1",
        "iop_edge_provider_health_evidence_total{result=\"confirmed\"} 1",
        "iop_edge_provider_health_transitions_total{transition=\"lowered\"} 1",
    ] {
        ensure!(metrics.lines().any(|line| line == counted), "{counted}\n{metrics}");
    }
    let has = |words: &[&str]| {
        let log = edge.process.text();
        let line = |line: &str| {
            line.contains("edge_provider_health_observation") && words.iter().all(|word| line.contains(word))
        };
        Ok(log.lines().any(line))
    };
    let names = ["node=box1", "provider=p1"];
    for rest in [
        ["provider_health=\"not_believed\"", "verdict=\"rejected\""],
        ["provider_health=\"unavailable\"", "verdict=\"lowered\""],
    ] {
        eventually(SOON, rest[1], || has(&[names, rest].concat()))?;
    }
    let status = http::get(&edge.ops, "/status", None)?.text();
    for told in [metrics, edge.process.text(), status] {
        ensure!(!told.contains(SENTINEL), "{told}");
    }
    Ok(())
}
