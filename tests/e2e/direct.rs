//! Models that go to an adapter directly: past slots, queue and overlay (POL-12).

use std::time::{Duration, Instant};

use iop_tests::{
    Edge, EdgeYaml, ProviderYaml, Site,
    http::{self, Answer, Raw},
};
use proto::message::{ErrorKind, ExecutionError, TunnelFrameKind};
use serde_json::Value;

use crate::support::{
    Bench, MODEL, NODE, SOON, assert_error, eventually, fake_node::FakeNode, metric, provider_at, site, yaml,
};

/// The model of the route.
const DIRECT: &str = "raw";
/// What an answer may take that nobody has to wait for.
const AT_ONCE: Duration = Duration::from_secs(3);

/// A provider of one slot, and a route past it.
fn with_route(yaml: EdgeYaml) -> EdgeYaml {
    let route = format!("model: {DIRECT}, adapter: p1-adapter, target: served-raw, provider_id: attributed");
    EdgeYaml { routes: vec![route], ..yaml }
}

fn edge_of(site: &Site) -> anyhow::Result<Edge> {
    let extra = "response_stall_timeout_ms: 7000".to_owned();
    let provider = ProviderYaml { capacity: 1, extra, ..provider_at("http://127.0.0.1:9/v1") };
    site.edge(&with_route(yaml().with(provider)))
}

fn ask(site: &Site, edge: &Edge, model: &str) -> anyhow::Result<Raw> {
    let mut client = Raw::connect(&edge.http)?;
    client.send(http::chat_request(site.token(), &http::chat_body(model, false, "")))?;
    Ok(client)
}

/// Refused at once, to be sent again in a moment.
fn is_turned_away(site: &Site, edge: &Edge) -> anyhow::Result<Answer> {
    let begun = Instant::now();
    let answer = ask(site, edge, DIRECT)?.answer()?;
    assert_error(&answer, 503, Some("overloaded"));
    let wait: u64 = answer.header("retry-after").unwrap_or_default().parse()?;
    assert!((1..=60).contains(&wait), "{}", answer.head);
    assert!(begun.elapsed() < AT_ONCE, "it waited");
    Ok(answer)
}

// req: POL-12, CFG-4, CFG-13, STL-2
#[test]
fn a_direct_model_takes_no_slot_and_no_place_and_names_its_attribution() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    is_turned_away(&site, &edge)?;

    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    // The pool's only slot is taken, and somebody waits for it.
    let mut pooled = ask(&site, &edge, MODEL)?;
    let first = node.request()?;
    let mut waiting = ask(&site, &edge, MODEL)?;
    eventually(SOON, "it waits", || Ok(metric(&edge, "iop_edge_queued")? == 1.0))?;

    let mut clients = [ask(&site, &edge, DIRECT)?, ask(&site, &edge, DIRECT)?];
    let runs = [node.request()?, node.request()?];
    for run in &runs {
        assert_eq!((run.adapter.as_str(), run.target.as_str()), ("p1-adapter", "served-raw"));
        // The 0 that is sent is the Node's default by the time it is read; the provider's own is for the pool.
        assert_eq!((run.response_stall_timeout_ms, first.response_stall_timeout_ms), (300_000, 7_000));
        let body: Value = serde_json::from_slice(&run.body)?;
        assert_eq!(body["model"], "served-raw");
    }
    let status = http::get(&edge.ops, "/status", None)?.json()?;
    let direct: Vec<_> =
        status["runs"].as_array().into_iter().flatten().filter(|run| run["direct"] == true).collect();
    assert_eq!(direct.len(), 2, "{status:#}");
    assert!(direct.iter().all(|run| run["provider"] == "attributed" && run["node"] == NODE), "{status:#}");
    assert_eq!(status["nodes"][0]["providers"][0]["in_flight"], 1, "{status:#}");
    assert_eq!((metric(&edge, "iop_edge_leases_held")?, metric(&edge, "iop_edge_direct_held")?), (1.0, 2.0));
    for run in &runs {
        node.answer(run.stream, "{}")?;
    }
    for client in &mut clients {
        let answer = client.answer()?;
        let told = (answer.status, answer.header("x-iop-provider"), answer.header("x-iop-attempts"));
        assert_eq!(told, (200, Some("attributed"), Some("1")));
    }

    node.answer(first.stream, "{}")?;
    let second = node.request()?.stream;
    node.answer(second, "{}")?;
    assert_eq!((pooled.answer()?.status, waiting.answer()?.status), (200, 200));
    eventually(SOON, "all is over", || Ok(metric(&edge, "iop_edge_leases")? == 0.0))?;
    let granted = ["iop_edge_leases_granted_total", "iop_edge_direct_granted_total", "iop_edge_direct_held"];
    let [pool, direct, held] = granted.map(|series| metric(&edge, series));
    assert_eq!((pool?, direct?, held?), (2.0, 2.0, 0.0));

    // Full is full: nobody waits for a gate.
    let mut client = ask(&site, &edge, DIRECT)?;
    let run = node.request()?.stream;
    node.frame(run, 0, TunnelFrameKind::Error(ExecutionError::new(ErrorKind::Busy, "full")))?;
    let answer = client.answer()?;
    assert_error(&answer, 503, Some("overloaded"));
    assert_eq!((answer.header("retry-after"), answer.header("x-iop-attempts")), (Some("1"), Some("1")));

    drop(node);
    eventually(SOON, "the node is gone", || {
        Ok(metric(&edge, "iop_edge_node_connected{node=\"box1\"}")? == 0.0)
    })?;
    is_turned_away(&site, &edge)?;
    Ok(())
}

// req: POL-12
#[test]
fn through_a_real_node_a_direct_model_is_served_until_the_nodes_gate_is_full() -> anyhow::Result<()> {
    let bench = Bench::with(&[], |provider| ProviderYaml { capacity: 1, ..provider }, with_route)?;
    let listed = http::get(&bench.edge.http, "/v1/models", Some(bench.site.token()))?.json()?;
    let ids: Vec<_> = listed["data"].as_array().into_iter().flatten().map(|model| &model["id"]).collect();
    assert_eq!(ids, [MODEL, DIRECT]);
    let one = http::get(&bench.edge.http, &format!("/v1/models/{DIRECT}"), Some(bench.site.token()))?;
    assert_eq!((one.status, one.json()?["id"].as_str()), (200, Some(DIRECT)));

    let begin = || -> anyhow::Result<Raw> {
        let mut client = bench.client()?;
        let body = http::chat_body(DIRECT, true, "events=50 gap=10ms");
        client.send(http::chat_request(bench.site.token(), &body))?;
        Ok(client)
    };
    let mut streaming = begin()?;
    streaming.wait_for("data:")?;
    is_turned_away(&bench.site, &bench.edge)?;
    let head = streaming.read_head()?;
    let answer = streaming.body_of(head)?;
    assert!(answer.is_done() && answer.whole, "{}", answer.text());
    assert_eq!(answer.header("x-iop-provider"), Some("attributed"));
    assert!(begin()?.answer()?.is_done());
    bench.settles()
}
