//! One Node ID, several connections: what the newer one takes over, and from whom "ready" counts.

use std::time::Instant;

use bytes::Bytes;
use iop_tests::{Edge, ProviderYaml, http::Raw};
use proto::message::{Message, RegisterResponse, TunnelFrameKind};

use crate::support::{
    NODE, SOON, assert_broken_stream, assert_error, eventually,
    fake_node::{FakeNode, SSE, ask, edge_of, stage, start, still_serves},
    metric, node_status, provider_at, site, yaml,
};

/// One of control's counters.
fn counted(edge: &Edge, event: &str) -> anyhow::Result<f64> {
    metric(edge, &format!("iop_edge_control_events_total{{event=\"{event}\"}}"))
}

// req: REG-8, FEN-2, FEN-3, FEN-6, API-1, POL-2
#[test]
fn the_newer_connection_ends_what_ran_and_serves_who_waited_with_the_configured_slots_and_no_more()
-> anyhow::Result<()> {
    let site = site()?;
    let provider = ProviderYaml { capacity: 3, ..provider_at("http://127.0.0.1:9/v1") };
    let edge = site.edge(&yaml().with(provider))?;
    let mut old = FakeNode::ready(&site, &edge, NODE)?;
    let client = |stream| ask(&site, &edge, stream);
    // Two streams that have begun, and one request that has not been answered at all.
    // One after the other: which of two requests on two shards comes first is not said anywhere.
    let mut begun = || {
        let mut stream = client(true)?;
        let number = old.request()?.stream;
        old.frame(number, 0, start(SSE))?;
        old.frame(number, 1, TunnelFrameKind::Body(Bytes::from_static(b"data: {\"n\":1}\n\n")))?;
        stream.wait_for("data:")?;
        anyhow::Ok(stream)
    };
    let mut streams = [begun()?, begun()?];
    let mut silent = client(false)?;
    old.request()?;
    let mut waiting = [client(false)?, client(false)?];
    eventually(SOON, "two wait", || Ok(metric(&edge, "iop_edge_queued")? == 2.0))?;

    let mut new = FakeNode::dial(&site, &edge, NODE)?;
    let since = Instant::now();
    assert!(matches!(new.register(NODE)?, RegisterResponse::Accepted { .. }));
    for stream in &mut streams {
        let head = stream.read_head()?;
        assert_broken_stream(&stream.body_of(head)?, "upstream_error");
    }
    assert_error(&silent.answer()?, 502, Some("upstream_error"));
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    assert_eq!(old.wait_closed()?.as_deref(), Some("superseded"));
    assert_eq!((metric(&edge, "iop_edge_queued")?, metric(&edge, "iop_edge_leases")?), (2.0, 0.0));

    assert!(new.ask_ready(NODE)?.ready);
    let mut more = [client(false)?, client(false)?];
    let mut runs = [new.request()?.stream, new.request()?.stream, new.request()?.stream];
    eventually(SOON, "the fourth waits", || Ok(metric(&edge, "iop_edge_queued")? == 1.0))?;
    let shown = node_status(&edge)?["providers"][0].clone();
    assert_eq!((&shown["capacity"], &shown["in_flight"]), (&3.into(), &3.into()));
    // Whatever the Edge has for it comes before its answer to this.
    new.is_heard()?;
    for number in &mut runs {
        new.answer(*number, "{}")?;
    }
    let fourth = new.request()?.stream;
    new.answer(fourth, "{}")?;
    for client in waiting.iter_mut().chain(&mut more) {
        let answer = client.answer()?;
        assert_eq!((answer.status, answer.header("x-iop-attempts")), (200, Some("1")));
    }
    eventually(SOON, "every slot is free", || Ok(metric(&edge, "iop_edge_leases")? == 0.0))?;
    let slots = [counted(&edge, "granted")?, counted(&edge, "settled")?, counted(&edge, "leases_fenced")?];
    assert_eq!(slots, [7.0, 7.0, 3.0]);
    Ok(())
}

// req: REG-6, FEN-3
#[test]
fn ready_from_the_ready_owner_is_true_each_time_and_activates_once() -> anyhow::Result<()> {
    let site = site()?;
    let edge =
        site.edge(&yaml().with(ProviderYaml { capacity: 1, ..provider_at("http://127.0.0.1:9/v1") }))?;
    let mut waiting: [Raw; 2] = [ask(&site, &edge, false)?, ask(&site, &edge, false)?];
    eventually(SOON, "both wait", || Ok(metric(&edge, "iop_edge_queued")? == 2.0))?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    let first = node.request()?.stream;
    for _ in 0..3 {
        assert!(node.ask_ready(NODE)?.ready);
    }
    // The slot is taken: a second activation would have given it anew.
    node.is_heard()?;
    assert_eq!(metric(&edge, "iop_edge_queued")?, 1.0);
    node.answer(first, "{}")?;
    let second = node.request()?.stream;
    node.answer(second, "{}")?;
    for client in &mut waiting {
        assert_eq!(client.answer()?.status, 200);
    }
    assert_eq!((counted(&edge, "ready")?, counted(&edge, "ready_refused")?), (1.0, 0.0));
    assert_eq!(counted(&edge, "generations_fenced")?, 0.0);
    let log = edge.process.text();
    assert_eq!(log.matches("node connected").count(), 1, "{log}");
    Ok(())
}

/// Says that `name` is ready and is refused: with a reason, and with the end of the connection.
fn is_refused(node: &mut FakeNode, name: &str) -> anyhow::Result<()> {
    let answer = node.ask_ready(name)?;
    assert!(!answer.ready && !answer.reason.is_empty(), "{answer:?}");
    node.wait_closed()?;
    Ok(())
}

// req: REG-7
#[test]
fn ready_before_a_registration_or_after_a_refused_one_is_refused_and_closed() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    is_refused(&mut FakeNode::dial(&site, &edge, NODE)?, NODE)?;
    assert_eq!((counted(&edge, "ready")?, counted(&edge, "ready_refused")?), (0.0, 1.0));
    let mut node = FakeNode::dial(&site, &edge, NODE)?;
    assert!(matches!(node.register("box2")?, RegisterResponse::Rejected { .. }));
    // The connection ends with that, whatever it says then.
    node.wait_closed()?;
    assert_eq!(node_status(&edge)?["connected"], false);
    assert_eq!(counted(&edge, "ready")?, 0.0);
    assert!(!edge.process.text().contains("node connected"));
    Ok(())
}

// req: REG-7, REG-1, FEN-4
#[test]
fn ready_under_another_name_is_refused_and_closed_and_makes_nobody_ready() -> anyhow::Result<()> {
    let site = site()?;
    let box2 = ProviderYaml::new("p2", "box2", "http://127.0.0.1:9/v1", "m2");
    let edge = site.edge(&yaml().with(provider_at("http://127.0.0.1:9/v1")).with(box2))?;
    // A pending one.
    let mut node = FakeNode::dial(&site, &edge, NODE)?;
    assert!(matches!(node.register(NODE)?, RegisterResponse::Accepted { .. }));
    is_refused(&mut node, "box2")?;
    assert_eq!((counted(&edge, "ready")?, counted(&edge, "generations_fenced")?), (0.0, 0.0));
    // A ready one, beside the one whose name it uses: that one stays as it is.
    let mut good = FakeNode::ready(&site, &edge, NODE)?;
    let mut bad = FakeNode::ready(&site, &edge, "box2")?;
    is_refused(&mut bad, NODE)?;
    eventually(SOON, "it is fenced", || Ok(counted(&edge, "generations_fenced")? == 1.0))?;
    assert_eq!((counted(&edge, "ready")?, counted(&edge, "ready_refused")?), (2.0, 2.0));
    assert_eq!(node_status(&edge)?["connected"], true);
    still_serves(&site, &edge, &mut good)
}

// req: REG-11, REG-5, FEN-1
#[test]
fn the_end_of_a_pending_connection_frees_the_claim_without_an_event() -> anyhow::Result<()> {
    let (site, edge, mut ready) = stage()?;
    let mut pending = FakeNode::dial(&site, &edge, NODE)?;
    assert!(matches!(pending.register(NODE)?, RegisterResponse::Accepted { .. }));
    assert_eq!(ready.wait_closed()?.as_deref(), Some("superseded"));
    // By TCP alone, and it goes on reading.
    pending.half_close()?;
    pending.wait_closed()?;
    eventually(SOON, "it is closed", || Ok(metric(&edge, "iop_edge_node_links")? == 0.0))?;
    assert_eq!(counted(&edge, "generations_fenced")?, 1.0, "that of the ready one alone");
    assert_eq!(edge.process.text().matches("node connected").count(), 1);
    let mut next = FakeNode::ready(&site, &edge, NODE)?;
    assert_eq!(counted(&edge, "superseded")?, 1.0, "there was nobody to supersede");
    still_serves(&site, &edge, &mut next)?;
    next.send(&Message::NodeDraining)
}
