//! Runs at a real socket, from a Node that does with them what the real one never would.

use std::time::Duration;

use bytes::Bytes;
use iop_tests::http::{self, Raw};
use proto::message::{Credit, ErrorKind, ExecutionError, Message, TunnelFrameKind};

use crate::support::{
    MODEL, SOON, assert_broken_stream, assert_error, eventually,
    fake_node::{FakeNode, SSE, ask, stage, start, still_serves},
    metric, node_status,
};

fn data(text: &'static str) -> TunnelFrameKind {
    TunnelFrameKind::Body(Bytes::from_static(text.as_bytes()))
}

fn error(kind: ErrorKind) -> TunnelFrameKind {
    TunnelFrameKind::Error(ExecutionError::new(kind, "as the test says"))
}

// req: TUN-2
#[test]
fn a_gap_in_the_frames_ends_that_run_as_a_protocol_error_and_no_other() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
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
    let (site, edge, mut node) = stage()?;
    let mut client = ask(&site, &edge, false)?;
    let stream = node.request()?.stream;
    node.answer(stream, "{}")?;
    node.frame(stream, 3, data("late"))?;
    node.frame(stream, 4, TunnelFrameKind::End)?;
    let answer = client.answer()?;
    assert_eq!((answer.status, answer.text().as_str(), answer.whole), (200, "{}", true));
    still_serves(&site, &edge, &mut node)?;
    eventually(SOON, "no lease is held", || Ok(metric(&edge, "iop_edge_leases")? == 0.0))?;
    assert_eq!(node_status(&edge)?["connected"], true);
    Ok(())
}

// req: WIR-6
#[test]
fn an_upload_stops_at_the_window_of_a_node_that_grants_nothing_and_holds_up_nobody() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
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
    let (site, edge, mut node) = stage()?;
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
    let answer = client.answer()?;
    assert!(!answer.whole, "its client sees a broken end");
    Ok(())
}

// req: TUN-4, WIR-10, CAN-1
#[test]
fn a_client_that_leaves_is_a_cancel_for_the_number_of_its_run() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
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
    eventually(SOON, "it is being cancelled", || Ok(metric(&edge, "iop_edge_leases_cancelling")? == 1.0))?;
    assert_eq!(metric(&edge, "iop_edge_leases")?, 2.0);
    node.cancelled(leaving.stream, 0)?;
    eventually(SOON, "the slot is free", || Ok(metric(&edge, "iop_edge_leases")? == 1.0))?;
    drop(stays);
    Ok(())
}

// req: TUN-1, TUN-6
#[test]
fn a_tunnel_request_carries_what_the_node_needs_and_no_more() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    let _client = ask(&site, &edge, true)?;
    let request = node.request()?;
    assert_eq!((&*request.adapter, &*request.target), ("p1-adapter", MODEL));
    assert_eq!(request.operation, Some(proto::message::Operation::ChatCompletions));
    assert!(request.stream_response);
    assert_eq!(request.timeout_sec, 3600);
    assert_eq!(request.response_stall_timeout_ms, 300_000);
    assert_eq!(request.window_bytes, 256 * 1024);
    assert!(request.credential.is_none());
    let names: Vec<_> = request.headers.iter().map(|header| header.name.as_str()).collect();
    assert_eq!(names, ["content-type"], "no credential of the client's, nothing of its connection");
    assert_eq!(request.body, http::chat_body(MODEL, true, "").to_string());
    assert!(!request.run_id.is_empty());
    Ok(())
}

// req: API-1
#[test]
fn a_failure_inside_an_event_breaks_the_stream_off_without_a_second_one() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    let mut client = ask(&site, &edge, true)?;
    let stream = node.request()?.stream;
    node.frame(stream, 0, start(SSE))?;
    node.frame(stream, 1, data("data: {\"n\":1}\n\ndata: {\"cut\":"))?;
    node.frame(stream, 2, error(ErrorKind::UpstreamTruncated))?;
    let answer = client.answer()?;
    assert_eq!(
        answer.text(),
        "data: {\"n\":1}\n\ndata: {\"cut\":",
        "every byte that came, and none of ours in it"
    );
    assert!(!answer.whole);

    // After `[DONE]` an error is for the log alone: the client has its answer, and must not read an event behind it.
    let mut client = ask(&site, &edge, true)?;
    let stream = node.request()?.stream;
    node.frame(stream, 0, start(SSE))?;
    node.frame(stream, 1, data("data: {\"n\":1}\n\ndata: [DONE]\n\n"))?;
    node.frame(stream, 2, error(ErrorKind::UpstreamTruncated))?;
    let answer = client.answer()?;
    assert!(answer.is_done() && answer.error_events().is_empty(), "{}", answer.text());
    still_serves(&site, &edge, &mut node)
}

// req: TUN-2, TUN-8
#[test]
fn every_kind_of_error_that_a_node_reports_has_its_status_and_code() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    for (kind, status, code) in [
        (ErrorKind::Connect, 502, Some("upstream_error")),
        (ErrorKind::UpstreamProtocol, 502, Some("upstream_error")),
        (ErrorKind::UpstreamTruncated, 502, Some("upstream_error")),
        (ErrorKind::Credential, 502, Some("upstream_error")),
        (ErrorKind::Deadline, 504, Some("timeout")),
        (ErrorKind::Stalled, 504, Some("timeout")),
        (ErrorKind::Internal, 500, None),
    ] {
        for has_begun in [false, true] {
            let mut client = ask(&site, &edge, true)?;
            let stream = node.request()?.stream;
            if has_begun {
                node.frame(stream, 0, start(SSE))?;
                node.frame(stream, 1, data("data: 1\n\n"))?;
                node.frame(stream, 2, error(kind))?;
                let answer = client.answer()?;
                assert!(!answer.whole && !answer.is_done(), "{kind:?}: {}", answer.text());
                assert_eq!(answer.error_events().len(), 1, "{kind:?}: {}", answer.text());
                assert_eq!(answer.error_events()[0]["code"].as_str(), code, "{kind:?}");
                assert_eq!(answer.events()[0], "1", "{kind:?}: what came first is passed on first");
            } else {
                node.frame(stream, 0, error(kind))?;
                let answer = client.answer()?;
                assert_error(&answer, status, code);
                assert!(!answer.text().contains("as the test says"), "a Node's words are for the log");
            }
        }
    }
    eventually(SOON, "no lease is held", || Ok(metric(&edge, "iop_edge_leases")? == 0.0))?;
    still_serves(&site, &edge, &mut node)
}

// req: GAT-2
#[test]
fn a_busy_node_is_asked_once_more_and_then_the_client_is_told() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    let mut client = ask(&site, &edge, false)?;
    let first = node.request()?;
    node.frame(first.stream, 0, error(ErrorKind::Busy))?;
    let second = node.request()?;
    assert!(second.stream > first.stream && second.run_id == first.run_id);
    node.answer(second.stream, "{}")?;
    let answer = client.answer()?;
    assert_eq!((answer.status, answer.header("x-iop-attempts")), (200, Some("2")));

    let mut client = ask(&site, &edge, false)?;
    for _ in 0..2 {
        let stream = node.request()?.stream;
        node.frame(stream, 0, error(ErrorKind::Busy))?;
    }
    let answer = client.answer()?;
    assert_error(&answer, 503, Some("overloaded"));
    assert!(answer.header("retry-after").is_some());
    Ok(())
}

#[test]
fn an_interim_status_from_a_node_is_no_answer() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    for status in [100, 101, 199, 600] {
        let mut client = ask(&site, &edge, false)?;
        let stream = node.request()?.stream;
        node.frame(
            stream,
            0,
            TunnelFrameKind::ResponseStart { status, headers: Vec::new(), until_close: false },
        )?;
        let answer = client.answer()?;
        assert_error(&answer, 502, Some("upstream_error"));
        // The run goes on at the Node until it has taken the cancel; its terminal frees the slot.
        node.cancelled(stream, 1)?;
    }
    eventually(SOON, "no lease is held", || Ok(metric(&edge, "iop_edge_leases")? == 0.0))?;
    still_serves(&site, &edge, &mut node)
}

// req: GAT-2
#[test]
fn a_node_that_calls_itself_busy_after_it_began_to_answer_is_not_believed() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    let mut client = ask(&site, &edge, true)?;
    let stream = node.request()?.stream;
    node.frame(stream, 0, start(SSE))?;
    node.frame(stream, 1, data("data: 1\n\n"))?;
    node.frame(stream, 2, error(ErrorKind::Busy))?;
    let answer = client.answer()?;
    assert_broken_stream(&answer, "overloaded");
    assert_eq!(answer.events()[0], "1");
    assert_eq!(metric(&edge, "iop_edge_control_events_total{event=\"requeued\"}")?, 0.0);
    still_serves(&site, &edge, &mut node)
}
