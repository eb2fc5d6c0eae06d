//! The wire at a real socket, spoken by a Node that breaks its rules.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use bytes::Bytes;
use iop_tests::{
    Edge, EdgeYaml, Site,
    http::{self, Answer, Raw},
};
use proto::message::{Credit, Message, RegisterResponse, TunnelFrameKind};

use crate::support::{
    MODEL, NODE, SOON, assert_broken_stream, assert_error, eventually,
    fake_node::{FakeNode, start},
    metric, node_status, provider_at, site, yaml,
};

const SSE: &str = "text/event-stream";

fn edge_of(site: &Site) -> anyhow::Result<Edge> {
    edge_with(site, yaml())
}

fn edge_with(site: &Site, config: EdgeYaml) -> anyhow::Result<Edge> {
    site.edge(&config.with(provider_at("http://127.0.0.1:9/v1")))
}

fn ask(site: &Site, edge: &Edge, stream: bool) -> anyhow::Result<Raw> {
    let mut client = Raw::connect(&edge.http)?;
    client.send(http::chat_request(site.token(), &http::chat_body(MODEL, stream, "")))?;
    Ok(client)
}

/// A request that this Node answers properly: the connection is as good as ever.
fn still_serves(site: &Site, edge: &Edge, node: &mut FakeNode) -> anyhow::Result<()> {
    let mut client = ask(site, edge, false)?;
    let stream = node.request()?.stream;
    node.answer(stream, "{\"fine\":true}")?;
    let answer: Answer = client.answer()?;
    assert_eq!((answer.status, answer.text().as_str()), (200, "{\"fine\":true}"));
    Ok(())
}

fn closed_for(edge: &Edge, reason: &str) -> anyhow::Result<()> {
    let series = format!("iop_edge_node_link_closed_total{{reason=\"{reason}\"}}");
    eventually(SOON, &series, || Ok(metric(edge, &series)? == 1.0))?;
    assert!(edge.process.text().contains(reason), "the reason is in the log");
    Ok(())
}

// req: WIR-2
#[test]
fn a_frame_over_the_bound_closes_the_connection_before_its_bytes_come() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
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
    let box2 = iop_tests::ProviderYaml::new("p2", "box2", "http://127.0.0.1:9/v1", "m2");
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

// req: TUN-2
#[test]
fn a_gap_in_the_frames_ends_that_run_as_a_protocol_error_and_no_other() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    let data = |text: &'static str| TunnelFrameKind::Body(Bytes::from_static(text.as_bytes()));

    // Before the response has begun there is a status for it.
    for broken in [start(SSE), data("x"), TunnelFrameKind::End] {
        let mut client = ask(&site, &edge, true)?;
        let stream = node.request()?.stream;
        let first = if matches!(broken, TunnelFrameKind::ResponseStart { .. }) { 1 } else { 0 };
        node.frame(stream, first, broken)?;
        assert_error(&client.answer()?, 502, Some("upstream_error"));
    }
    // Within a stream: the frames up to the gap, then the error.
    for (sequence, broken) in [
        (3, data("data: lost\n\n")),
        (1, data("data: again\n\n")),
        (2, start(SSE)),
        (3, TunnelFrameKind::End),
    ] {
        let mut client = ask(&site, &edge, true)?;
        let stream = node.request()?.stream;
        node.frame(stream, 0, start(SSE))?;
        node.frame(stream, 1, data("data: {\"n\":1}\n\n"))?;
        node.frame(stream, sequence, broken)?;
        let answer = client.answer()?;
        assert_broken_stream(&answer, "upstream_error");
        assert_eq!(answer.events()[0], "{\"n\":1}");
        assert_eq!(answer.events().len(), 2, "nothing after the gap is passed on: {}", answer.text());
    }
    assert_eq!(metric(&edge, "iop_edge_stream_violations_total")?, 7.0);
    still_serves(&site, &edge, &mut node)
}

// req: TUN-2
#[test]
fn a_frame_after_the_terminal_reaches_nobody() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    let mut client = ask(&site, &edge, false)?;
    let stream = node.request()?.stream;
    node.answer(stream, "{}")?;
    node.frame(stream, 3, TunnelFrameKind::Body(Bytes::from_static(b"late")))?;
    node.frame(stream, 4, TunnelFrameKind::End)?;
    let answer = client.answer()?;
    assert_eq!((answer.status, answer.text().as_str(), answer.whole), (200, "{}", true));
    still_serves(&site, &edge, &mut node)?;
    assert_eq!(metric(&edge, "iop_edge_leases")?, 0.0);
    assert_eq!(node_status(&edge)?["connected"], true);
    Ok(())
}

// req: REG-1, REG-11
#[test]
fn a_second_registration_on_a_connection_is_refused_and_the_first_stays() -> anyhow::Result<()> {
    let site = site()?;
    let box2 = iop_tests::ProviderYaml::new("p2", "box2", "http://127.0.0.1:9/v1", "m2");
    let edge = site.edge(&yaml().with(provider_at("http://127.0.0.1:9/v1")).with(box2))?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    for again in ["box2", NODE] {
        let answer = node.register(again)?;
        assert!(matches!(answer, RegisterResponse::Rejected { .. }), "{again}: {answer:?}");
    }
    let nodes = http::get(&edge.ops, "/status", None)?.json()?["nodes"].clone();
    assert_eq!((&nodes[0]["connected"], &nodes[1]["connected"]), (&true.into(), &false.into()));
    assert_eq!(metric(&edge, "iop_edge_control_events{event=\"generations_fenced\"}")?, 0.0);
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
    let site = site()?;
    let edge = edge_of(&site)?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
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

// req: WIR-6
#[test]
fn an_upload_stops_at_the_window_of_a_node_that_grants_nothing_and_holds_up_nobody() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    let mut body = http::chat_body(MODEL, false, "");
    body["messages"][0]["content"] = "x".repeat(3_000_000).into();
    let mut client = Raw::connect(&edge.http)?;
    client.send(http::chat_request(site.token(), &body))?;
    let request = node.request()?;
    assert_eq!((request.body_bytes, request.body.len()), (body.to_string().len() as u64, 0));

    let mut received = Vec::new();
    let mut last = false;
    let take = |node: &mut FakeNode, received: &mut Vec<u8>, last: &mut bool, wait| -> anyhow::Result<bool> {
        match node.poll(wait)? {
            Some(Message::BodyChunk(chunk)) => {
                assert_eq!(chunk.stream, request.stream);
                received.extend_from_slice(&chunk.data);
                *last |= chunk.last;
                Ok(true)
            }
            Some(other) => panic!("{}", other.name()),
            None => Ok(false),
        }
    };
    while take(&mut node, &mut received, &mut last, Duration::from_millis(700))? {}
    assert_eq!(received.len(), 256 * 1024, "exactly the window, and not more");

    // Another request passes by on the same connection.
    still_serves(&site, &edge, &mut node)?;
    while !last {
        let bytes = u32::try_from(received.len().min(256 * 1024))?;
        node.send(&Message::Credit(Credit { stream: request.stream, bytes }))?;
        assert!(take(&mut node, &mut received, &mut last, SOON)?, "credit sets it going again");
    }
    assert!(received == body.to_string().into_bytes());
    node.answer(request.stream, "{}")?;
    assert_eq!(client.answer()?.status, 200);
    Ok(())
}

// req: WIR-6
#[test]
fn a_node_that_ignores_its_credit_loses_that_run_and_no_other() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    // This client reads nothing, so that nothing is granted once the sockets are full.
    let mut client = ask(&site, &edge, true)?;
    let stream = node.request()?.stream;
    node.frame(stream, 0, start(SSE))?;
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    let mut cancelled = false;
    for sequence in 1..=1024 {
        node.frame(stream, sequence, TunnelFrameKind::Body(piece.clone()))?;
        cancelled = match node.poll(Duration::ZERO)? {
            Some(Message::Cancel(cancel)) => cancel.stream == stream,
            Some(Message::Credit(_)) | None => false,
            Some(other) => panic!("{}", other.name()),
        };
        if cancelled {
            break;
        }
    }
    assert!(cancelled, "64 MiB were taken from a Node without credit for them");
    node.cancelled(stream, 2000)?;
    assert_eq!(metric(&edge, "iop_edge_stream_violations_total")?, 1.0);
    still_serves(&site, &edge, &mut node)?;
    client.stream.flush()?;
    let answer = client.answer()?;
    assert!(!answer.whole, "its client sees a broken end");
    Ok(())
}

// req: TUN-4, WIR-10, CAN-1
#[test]
fn a_client_that_leaves_is_a_cancel_for_the_number_of_its_run() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    let (stays, leaves) = (ask(&site, &edge, false)?, ask(&site, &edge, true)?);
    let (first, second) = (node.request()?, node.request()?);
    assert!(first.stream >= 1 && second.stream > first.stream, "numbers rise");
    let leaving = if first.stream_response { &first } else { &second };
    drop(leaves);
    match node.next()? {
        Message::Cancel(cancel) => assert_eq!(cancel.stream, leaving.stream),
        other => panic!("{}", other.name()),
    }
    // Until the Node's terminal the slot is held (POL-11); then it is free.
    assert_eq!(metric(&edge, "iop_edge_leases_cancelling")?, 1.0);
    node.cancelled(leaving.stream, 0)?;
    eventually(SOON, "the slot is free", || Ok(metric(&edge, "iop_edge_leases")? == 1.0))?;
    drop(stays);
    Ok(())
}

// req: TUN-1
#[test]
fn a_tunnel_request_carries_what_the_node_needs_and_no_more() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    let _client = ask(&site, &edge, true)?;
    let request = node.request()?;
    assert_eq!((&*request.adapter, &*request.target), ("p1-adapter", MODEL));
    assert_eq!(request.operation, Some(proto::message::Operation::ChatCompletions));
    assert!(request.stream_response);
    assert_eq!(request.timeout_sec, 3600);
    assert_eq!(request.response_stall_timeout_ms, 300_000);
    assert_eq!(request.window_bytes, 256 * 1024);
    assert!(request.credential.is_none());
    assert_eq!(request.body, http::chat_body(MODEL, true, "").to_string());
    assert!(!request.run_id.is_empty());
    Ok(())
}
