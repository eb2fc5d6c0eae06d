//! The wire at a real socket, spoken by a Node that breaks its rules: frames, registration, readiness.

use std::time::{Duration, Instant};

use bytes::Bytes;
use iop_tests::{Edge, ProviderYaml, http};
use proto::message::{Message, NodeReadyRequest, RegisterResponse, TunnelFrameKind};

use crate::support::{
    NODE, SOON, assert_broken_stream, eventually,
    fake_node::{FakeNode, SSE, ask, edge_of, stage, start, still_serves},
    metric, node_status, provider_at, site, yaml,
};

fn closed_for(edge: &Edge, reason: &str) -> anyhow::Result<()> {
    let series = format!("iop_edge_node_link_closed_total{{reason=\"{reason}\"}}");
    eventually(SOON, &series, || Ok(metric(edge, &series)? == 1.0))?;
    assert!(edge.process.text().contains(reason), "the reason is in the log");
    Ok(())
}

// req: WIR-2
#[test]
fn a_frame_over_the_bound_closes_the_connection_before_its_bytes_come() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    // Only the length: 8 MiB and one byte.
    node.send_raw(&(8 * 1024 * 1024 + 1_u32).to_be_bytes())?;
    assert_eq!(node.wait_closed()?.as_deref(), Some("frame_too_large"));
    closed_for(&edge, "frame_too_large")?;
    assert_eq!(node_status(&edge)?["connected"], false);

    // At the bound it is only a frame that takes long to come.
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    node.send_raw(&(8 * 1024 * 1024_u32).to_be_bytes())?;
    node.send_raw(&[0x2a, 0x80])?;
    assert!(node.poll(Duration::from_millis(300))?.is_none());
    Ok(())
}

// req: WIR-3
#[test]
fn a_malformed_message_closes_that_connection_and_no_other() -> anyhow::Result<()> {
    let site = site()?;
    let box2 = ProviderYaml::new("p2", "box2", "http://127.0.0.1:9/v1", "m2");
    let edge = site.edge(&yaml().with(provider_at("http://127.0.0.1:9/v1")).with(box2))?;
    let mut good = FakeNode::ready(&site, &edge, NODE)?;
    let mut bad = FakeNode::ready(&site, &edge, "box2")?;
    // Field 10 (a tunnel frame), said to be 100 bytes long, with 2.
    bad.send_frame(&[0x52, 100, 1, 2])?;
    bad.wait_closed()?;
    closed_for(&edge, "protocol_error")?;
    still_serves(&site, &edge, &mut good)?;
    let log = edge.process.text();
    assert_eq!(log.matches("node link closed").count(), 1, "{log}");
    Ok(())
}

// req: WIR-3
#[test]
fn unknown_members_and_unknown_fields_are_skipped() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let mut node = FakeNode::dial(&site, &edge, NODE)?;
    // A member of the future, field 1000, before anything else; and an empty envelope.
    node.send_frame(&[0xc2, 0x3e, 3, b'a', b'b', b'c'])?;
    node.send_frame(&[])?;
    // RegisterRequest { node_id: "box1" } with a field 99 of its own and another beside it in the envelope.
    let mut inner = vec![0x0a, 4];
    inner.extend_from_slice(NODE.as_bytes());
    inner.extend_from_slice(&[0x9a, 0x06, 2, b'h', b'i']);
    let mut envelope = vec![0x0a, u8::try_from(inner.len())?];
    envelope.extend_from_slice(&inner);
    envelope.extend_from_slice(&[0xc8, 0x3e, 7]);
    node.send_frame(&envelope)?;
    let answer = node.next()?;
    assert!(
        matches!(answer, Message::RegisterResponse(RegisterResponse::Accepted { .. })),
        "{}",
        answer.name()
    );
    assert!(node.ask_ready(NODE)?.ready);
    still_serves(&site, &edge, &mut node)
}

// req: REG-1, REG-11
#[test]
fn a_second_registration_on_a_connection_is_refused_and_the_first_stays() -> anyhow::Result<()> {
    let site = site()?;
    let box2 = ProviderYaml::new("p2", "box2", "http://127.0.0.1:9/v1", "m2");
    let edge = site.edge(&yaml().with(provider_at("http://127.0.0.1:9/v1")).with(box2))?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    for again in ["box2", NODE] {
        let answer = node.register(again)?;
        assert!(matches!(answer, RegisterResponse::Rejected { .. }), "{again}: {answer:?}");
    }
    let nodes = http::get(&edge.ops, "/status", None)?.json()?["nodes"].clone();
    assert_eq!((&nodes[0]["connected"], &nodes[1]["connected"]), (&true.into(), &false.into()));
    assert_eq!(metric(&edge, "iop_edge_control_events_total{event=\"generations_fenced\"}")?, 0.0);
    still_serves(&site, &edge, &mut node)
}

// req: REG-7
#[test]
fn ready_without_an_accepted_registration_is_refused_and_closed() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let mut node = FakeNode::dial(&site, &edge, NODE)?;
    let answer = node.ask_ready(NODE)?;
    assert!(!answer.ready && !answer.reason.is_empty(), "{answer:?}");
    node.wait_closed()?;
    assert_eq!(node_status(&edge)?["connected"], false);
    Ok(())
}

// req: REG-3, REG-5
#[test]
fn a_pending_node_is_sent_nothing_and_shown_nowhere_until_it_is_ready() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let mut client = ask(&site, &edge, false)?;
    let mut node = FakeNode::dial(&site, &edge, NODE)?;
    let RegisterResponse::Accepted { node_id, config } = node.register(NODE)? else { panic!("refused") };
    assert_eq!((node_id.as_str(), config.providers.len(), &*config.providers[0].id), (NODE, 1, "p1"));
    assert!(node.poll(Duration::from_millis(500))?.is_none(), "nothing before ready");
    assert_eq!(node_status(&edge)?["connected"], false);
    assert_eq!(metric(&edge, &format!("iop_edge_node_connected{{node=\"{NODE}\"}}"))?, 0.0);
    assert!(!edge.process.text().contains("node connected"));

    assert!(node.ask_ready(NODE)?.ready);
    let stream = node.request()?.stream;
    node.answer(stream, "{}")?;
    assert_eq!(client.answer()?.status, 200);
    assert!(edge.process.text().contains("node connected"));
    Ok(())
}

// req: REG-6
#[test]
fn ready_said_twice_is_true_twice_and_happens_once() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    for _ in 0..3 {
        assert!(node.ask_ready(NODE)?.ready);
    }
    still_serves(&site, &edge, &mut node)?;
    let log = edge.process.text();
    assert_eq!(log.matches("node connected").count(), 1, "{log}");
    Ok(())
}

// req: REG-7, REG-8, FEN-4
#[test]
fn a_superseded_connection_is_told_so_and_its_late_words_change_nothing() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let mut old = FakeNode::ready(&site, &edge, NODE)?;
    let mut client = ask(&site, &edge, true)?;
    let stream = old.request()?.stream;
    old.frame(stream, 0, start(SSE))?;
    old.frame(stream, 1, TunnelFrameKind::Body(Bytes::from_static(b"data: {\"n\":1}\n\n")))?;
    client.wait_for("data:")?;

    let mut new = FakeNode::dial(&site, &edge, NODE)?;
    let started = Instant::now();
    assert!(matches!(new.register(NODE)?, RegisterResponse::Accepted { .. }));
    let head = client.read_head()?;
    assert_broken_stream(&client.body_of(head)?, "upstream_error");
    assert!(started.elapsed() < SOON);
    let _closed_already = old.frame(stream, 2, TunnelFrameKind::End);
    assert_eq!(old.wait_closed()?.as_deref(), Some("superseded"));
    assert_eq!(node_status(&edge)?["connected"], false, "the new one is pending");
    assert!(new.ask_ready(NODE)?.ready);
    still_serves(&site, &edge, &mut new)?;
    closed_for(&edge, "superseded")
}

#[test]
fn a_node_that_says_ready_without_end_is_cut_off() -> anyhow::Result<()> {
    let (_site, edge, mut node) = stage()?;
    let again = Message::NodeReadyRequest(NodeReadyRequest { node_id: NODE.parse()? });
    for _ in 0..40 {
        if node.send(&again).is_err() {
            break;
        }
    }
    node.wait_closed()?;
    let series = "iop_edge_node_link_closed_total{reason=\"protocol_error\"}";
    eventually(SOON, series, || Ok(metric(&edge, series)? == 1.0))
}
