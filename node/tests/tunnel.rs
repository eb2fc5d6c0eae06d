//! Tunnels to a provider on a raw socket, asked for by an Edge that a test plays.
#![allow(clippy::unwrap_used, reason = "a test ends where something unexpected begins")]

mod support;

use std::io::{Read, Write};

use bytes::Bytes;
use dataplane::{
    clock,
    http::client::abort::{CLOSE_GRACE, Return},
};
use iop_node::metrics::RunOutcome;
use proto::message::{ErrorKind, Header, Operation, TunnelFrameKind, TunnelRequest};
use support::{
    PATIENCE, QUIET,
    certs::Pki,
    edge::Edge,
    node::{Node, Setup, chat, config},
    provider::{Provider, next_request},
};

fn ready(capacity: u32) -> (Edge, Node, Provider) {
    ready_with(capacity, |_| ())
}

fn ready_with(capacity: u32, change: impl FnOnce(&mut Setup)) -> (Edge, Node, Provider) {
    let pki = Pki::new();
    let edge = Edge::start(pki.edge_tls("edge-1"));
    let provider = Provider::start();
    let mut setup = Setup::new(edge.address, pki.node_tls("box1", "edge-1"));
    change(&mut setup);
    let node = Node::start(setup);
    edge.make_ready(config(provider.address, capacity));
    (edge, node, provider)
}

/// A request whose body of `body.len()` bytes follows in chunks.
fn upload(stream: u64, body: &Bytes) -> TunnelRequest {
    TunnelRequest { body: Bytes::new(), body_bytes: body.len() as u64, ..chat(stream, "") }
}

fn pattern(len: usize) -> Bytes {
    (0..len).map(|at| (at * 31 % 251) as u8).collect::<Vec<_>>().into()
}

// req: TUN-1, TUN-3
#[test]
fn the_profile_decides_the_request_line_and_the_body_arrives_byte_for_byte() {
    let (edge, _node, provider) = ready(1);
    let body = "{\"model\":\"qwen3\", \"odd\":  \"\\u00e9 \u{e9}\"}";
    let request =
        TunnelRequest { method: "DELETE".to_owned(), path: "/admin?x=1".to_owned(), ..chat(1, body) };
    edge.open(request, Bytes::new());
    let call = provider.call();
    assert_eq!(call.asked.line(), "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(call.asked.field("host").unwrap(), provider.address.to_string());
    assert_eq!(call.asked.field("x-static"), Some("configured"));
    assert_eq!(call.asked.field("accept-encoding"), Some("identity"));
    assert_eq!(call.asked.field("content-type"), Some("application/json"));
    assert_eq!(call.asked.body, body.as_bytes());
    call.answer("200 OK", "{}");
    let response = edge.response(1);
    assert_eq!((response.status, &response.body[..], response.result), (200, &b"{}"[..], Ok(())));
}

// req: TUN-2, TUN-3
#[test]
fn a_stream_arrives_as_it_is_written_and_ends_with_one_terminal() {
    let (edge, _node, provider) = ready(1);
    edge.open(chat(1, "{}"), Bytes::new());
    let mut call = provider.call();
    call.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    let start = edge.frame();
    let TunnelFrameKind::ResponseStart { status: 200, headers, .. } = start.kind else { panic!("{start:?}") };
    assert_eq!(headers, [Header::new("content-type", "text/event-stream").unwrap()]);
    for (number, event) in ["data: {\"a\":1}\n\n", ": comment\r\n\r\n", "data: [DONE]\n\n"].iter().enumerate()
    {
        call.say(format!("{:x}\r\n{event}\r\n", event.len()));
        let frame = edge.frame();
        assert_eq!(frame.sequence, number as u64 + 1);
        assert!(matches!(frame.kind, TunnelFrameKind::Body(body) if body == event.as_bytes()));
    }
    call.say("0\r\n\r\n");
    assert_eq!(edge.frame().kind, TunnelFrameKind::End);
    edge.is_quiet();
}

// req: TUN-6
#[test]
fn fields_of_one_hop_cross_in_neither_direction() {
    let (edge, _node, provider) = ready(1);
    let headers =
        [("connection", "x-hop"), ("x-hop", "1"), ("te", "trailers"), ("x-kept", "yes"), ("x-iop-run", "1")];
    let headers = headers.map(|(name, value)| Header::new(name, value).unwrap()).to_vec();
    edge.open(TunnelRequest { headers, ..chat(1, "{}") }, Bytes::new());
    let mut call = provider.call();
    for gone in ["x-hop", "te", "x-iop-run"] {
        assert_eq!(call.asked.field(gone), None, "{gone}");
    }
    assert_eq!(call.asked.field("x-kept"), Some("yes"));
    call.say(
        "HTTP/1.1 200 OK\r\nConnection: x-secret\r\nX-Secret: 1\r\nX-Kept: 2\r\nContent-Length: 0\r\n\r\n",
    );
    let response = edge.response(1);
    let names: Vec<_> = response.headers.iter().map(|header| header.name.as_str()).collect();
    assert!(
        names.contains(&"x-kept") && !names.contains(&"x-secret") && !names.contains(&"connection"),
        "{names:?}"
    );
}

// req: TUN-1
#[test]
fn a_request_that_names_nothing_of_the_profile_is_refused_without_a_dial() {
    let (edge, node, provider) = ready(1);
    let path = |path: &str| TunnelRequest { operation: None, path: path.to_owned(), ..chat(0, "{}") };
    let requests = [
        path("/v1/../admin"),
        path("http://169.254.169.254/latest"),
        TunnelRequest { operation: Some(Operation::Messages), ..chat(0, "{}") },
        TunnelRequest { adapter: "nobody".to_owned(), ..chat(0, "{}") },
    ];
    let count = requests.len() as u64;
    for (stream, request) in (1..).zip(requests) {
        edge.open(TunnelRequest { stream, ..request }, Bytes::new());
        let error = edge.response(stream).result.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidRequest);
    }
    provider.is_quiet();
    assert_eq!(node.metrics.runs(RunOutcome::Failed(ErrorKind::InvalidRequest)), count);
    // The same path as an operation's own is fine.
    edge.open(TunnelRequest { stream: 9, ..path("/v1/chat/completions") }, Bytes::new());
    provider.call().answer("200 OK", "");
    assert_eq!(edge.response(9).result, Ok(()));
}

// req: GAT-1, GAT-2
#[test]
fn a_full_gate_answers_busy_before_the_provider_is_called() {
    let (edge, node, provider) = ready(1);
    edge.open(chat(1, "{}"), Bytes::new());
    let call = provider.call();
    edge.open(chat(2, "{}"), Bytes::new());
    let error = edge.response(2).result.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy);
    provider.is_quiet();
    let stream = call.answer("200 OK", "one");
    edge.response(1);
    // The place is free as soon as the Edge knows of the end.
    edge.open(chat(3, "{}"), Bytes::new());
    next_request(stream, 0).answer("200 OK", "three");
    assert_eq!(&edge.response(3).body[..], b"three");
    assert!(node.metrics.text().contains("iop_node_gate_busy_total 1"));
}

// req: CAN-1, TUN-4, PRE-3
#[test]
fn a_cancel_ends_that_run_only_and_not_before_its_provider_has_returned() {
    let (edge, node, provider) = ready(2);
    edge.open(chat(1, "{\"n\":1}"), Bytes::new());
    let mut first = provider.call();
    edge.open(chat(2, "{\"n\":2}"), Bytes::new());
    let second = provider.call();
    first.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
    assert!(matches!(edge.frame().kind, TunnelFrameKind::ResponseStart { .. }));
    assert!(matches!(edge.frame().kind, TunnelFrameKind::Body(_)));
    edge.cancel(77);
    edge.cancel(1);
    // It is told, and still at work: nothing new comes to it.
    let working = first.wait_for_close();
    edge.is_quiet();
    edge.open(chat(3, "{}"), Bytes::new());
    assert_eq!(edge.response(3).result.unwrap_err().kind, ErrorKind::Busy);
    edge.cancel(1);
    assert!(node.metrics.text().contains("iop_node_runs_aborting 1"));
    drop(working);
    let last = edge.frame();
    assert_eq!(last.stream, 1);
    assert!(matches!(last.kind, TunnelFrameKind::Error(error) if error.kind == ErrorKind::Cancelled));
    assert_eq!(node.metrics.aborts(Return::Confirmed), 1);
    edge.cancel(1);
    edge.is_quiet();
    second.answer("200 OK", "two");
    assert_eq!(&edge.response(2).body[..], b"two");
}

// req: TUN-8
#[test]
fn the_hard_deadline_is_an_error_of_its_own() {
    let (edge, _node, provider) = ready(1);
    edge.open(TunnelRequest { timeout_sec: 1, ..chat(1, "{}") }, Bytes::new());
    let call = provider.call();
    drop(call.wait_for_close());
    let error = edge.response(1).result.unwrap_err();
    assert_eq!((error.kind, error.failure), (ErrorKind::Deadline, None));
}

// req: PRE-3, POL-11
#[test]
fn a_provider_that_ignores_the_end_keeps_its_place_for_the_close_grace_and_no_longer() {
    let (edge, node, provider) = ready(1);
    edge.open(chat(1, "{}"), Bytes::new());
    let call = provider.call();
    edge.cancel(1);
    let told = clock::now();
    let _at_work = call.wait_for_close();
    edge.open(chat(2, "{}"), Bytes::new());
    assert_eq!(edge.response(2).result.unwrap_err().kind, ErrorKind::Busy);
    assert_eq!(edge.response(1).result.unwrap_err().kind, ErrorKind::Cancelled);
    assert!(clock::now() - told >= CLOSE_GRACE - QUIET, "{:?}", clock::now() - told);
    assert_eq!(node.metrics.aborts(Return::Unconfirmed), 1);
    edge.open(chat(3, "{}"), Bytes::new());
    provider.call().answer("200 OK", "free");
    assert_eq!(&edge.response(3).body[..], b"free");
}

// req: WIR-9
#[test]
fn a_large_body_arrives_whole_through_a_small_window() {
    let (edge, _node, provider) = ready(1);
    let body = pattern(5 * 1024 * 1024 + 17);
    let mut request = upload(1, &body);
    request.window_bytes = 128 * 1024;
    edge.open(request, body.clone());
    let call = provider.call();
    assert_eq!(call.asked.field("content-length").unwrap(), body.len().to_string());
    assert!(call.asked.body == body, "the body differs");
    call.answer("200 OK", "done");
    assert_eq!(&edge.response(1).body[..], b"done");
}

// req: WIR-9
#[test]
fn bodies_over_the_memory_bound_are_answered_with_busy() {
    let (edge, _node, provider) = ready_with(4, |setup| setup.assembling_bytes_max = 100_000);
    let body = pattern(100_001);
    edge.open(upload(1, &body), body);
    assert_eq!(edge.response(1).result.unwrap_err().kind, ErrorKind::Busy);
    provider.is_quiet();
    let body = pattern(100_000);
    edge.open(upload(2, &body), body);
    provider.call().answer("200 OK", "fits");
    assert_eq!(&edge.response(2).body[..], b"fits");
}

// req: WIR-6
#[test]
fn a_slow_client_stops_its_provider_and_delays_nobody_else() {
    let (edge, _node, provider) = ready(2);
    let window = 64 * 1024;
    edge.open(TunnelRequest { window_bytes: window, ..chat(1, "{\"n\":1}") }, Bytes::new());
    let mut call = provider.call();
    let whole = pattern(16 * 1024 * 1024);
    let expected = whole.clone();
    let mut stream = call.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        call.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", whole.len()));
        call.stream.set_write_timeout(Some(PATIENCE)).unwrap();
        call.stream.write_all(&whole).unwrap();
    });
    let mut body = Vec::new();
    while body.len() < window as usize {
        if let TunnelFrameKind::Body(piece) = edge.frame().kind {
            body.extend_from_slice(&piece);
        }
    }
    // Nothing more comes while nothing is given back, and the provider cannot write on.
    edge.is_quiet();
    assert_eq!(body.len(), window as usize);
    assert!(!writer.is_finished());
    edge.open(chat(2, "{\"n\":2}"), Bytes::new());
    provider.call().answer("200 OK", "quick");
    assert_eq!(&edge.response(2).body[..], b"quick");
    edge.release(1, body.len());
    let rest = edge.response(1);
    body.extend_from_slice(&rest.body);
    assert!(body == expected, "the body differs");
    assert_eq!(rest.result, Ok(()));
    writer.join().unwrap();
    // The connection was kept for the next request.
    stream.set_read_timeout(Some(QUIET)).unwrap();
    assert!(stream.read(&mut [0]).is_err());
}

// req: TUN-7
#[test]
fn connections_are_reused_and_a_stale_one_is_replaced_once() {
    let (edge, node, provider) = ready(1);
    edge.open(chat(1, "{\"n\":1}"), Bytes::new());
    let stream = provider.call().answer("200 OK", "one");
    edge.response(1);
    edge.open(chat(2, "{\"n\":2}"), Bytes::new());
    let again = next_request(stream, 0);
    assert_eq!(again.asked.body, b"{\"n\":2}");
    let stream = again.answer("200 OK", "two");
    edge.response(2);
    // The third request is read and not answered: a keep-alive that ran out on the provider's side.
    edge.open(chat(3, "{\"n\":3}"), Bytes::new());
    drop(next_request(stream, 0));
    let fresh = provider.call();
    assert_eq!(fresh.asked.body, b"{\"n\":3}");
    // On a fresh connection there is no second try.
    drop(fresh);
    assert_eq!(edge.response(3).result.unwrap_err().kind, ErrorKind::UpstreamTruncated);
    provider.is_quiet();
    assert_eq!(node.metrics.runs(RunOutcome::Completed), 2);
}

// req: TUN-2
#[test]
fn every_way_a_provider_fails_has_its_own_kind_and_one_terminal() {
    let (edge, _node, provider) = ready(1);
    for (stream, said, kind) in [
        (1, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", ErrorKind::UpstreamTruncated),
        (
            2,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            ErrorKind::UpstreamTruncated,
        ),
        (3, "HTTP/1.1 200 O", ErrorKind::UpstreamTruncated),
        (4, "", ErrorKind::UpstreamTruncated),
        (5, "SSH-2.0-OpenSSH\r\n\r\n", ErrorKind::UpstreamProtocol),
        (6, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", ErrorKind::UpstreamProtocol),
        (7, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", ErrorKind::UpstreamProtocol),
    ] {
        edge.open(chat(stream, "{}"), Bytes::new());
        let mut call = provider.call();
        call.say(said);
        drop(call);
        let response = edge.response(stream);
        assert_eq!(response.result.unwrap_err().kind, kind, "{said:?}");
    }
    edge.is_quiet();
}

// req: TUN-2
#[test]
fn a_provider_that_is_not_there_is_a_connect_error() {
    let pki = Pki::new();
    let edge = Edge::start(pki.edge_tls("edge-1"));
    let _node = Node::start(Setup::new(edge.address, pki.node_tls("box1", "edge-1")));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    edge.make_ready(config(nobody, 1));
    for stream in 1..=2 {
        edge.open(chat(stream, "{}"), Bytes::new());
        assert_eq!(edge.response(stream).result.unwrap_err().kind, ErrorKind::Connect);
    }
}

// req: TUN-6
#[test]
fn errors_and_redirects_of_a_provider_are_passed_through_and_never_followed() {
    let (edge, _node, provider) = ready(1);
    for (stream, status, field) in [
        (1, "302 Found", "Location: http://127.0.0.1:9/elsewhere"),
        (2, "429 Too Many Requests", "Retry-After: 3"),
        (3, "500 Internal Server Error", "X-Why: broken"),
    ] {
        edge.open(chat(stream, "{}"), Bytes::new());
        let mut call = provider.call();
        call.say(format!("HTTP/1.1 {status}\r\n{field}\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno"));
        let response = edge.response(stream);
        assert_eq!(response.status.to_string(), status[..3]);
        assert_eq!((&response.body[..], response.result), (&b"no"[..], Ok(())));
        let (name, value) = field.split_once(": ").unwrap();
        assert!(
            response.headers.contains(&Header::new(name, value.to_owned()).unwrap()),
            "{:?}",
            response.headers
        );
    }
    provider.is_quiet();
}

// req: STL-1
#[test]
fn a_negative_or_overflowing_stall_timeout_is_refused_before_any_call() {
    for timeout in [-1, i64::MIN, i64::MAX / 1_000_000 + 1, i64::MAX] {
        let (edge, _node, provider) = ready(1);
        edge.open(TunnelRequest { response_stall_timeout_ms: timeout, ..chat(1, "{}") }, Bytes::new());
        edge.closed();
        provider.is_quiet();
    }
    let (edge, _node, provider) = ready(1);
    edge.open(TunnelRequest { response_stall_timeout_ms: 0, ..chat(1, "{}") }, Bytes::new());
    provider.call().answer("200 OK", "default");
    assert_eq!(&edge.response(1).body[..], b"default");
}

// req: CAN-1, TUN-4
#[test]
fn a_cancel_at_any_moment_leaves_nothing_behind_for_the_next_request() {
    let (edge, node, provider) = ready(1);
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let said = format!("{head}6\r\nsecret\r\n");
    for (number, at) in [0, 1, head.len() / 2, head.len(), head.len() + 4, said.len()].into_iter().enumerate()
    {
        let stream = 2 * number as u64 + 1;
        edge.open(chat(stream, "{}"), Bytes::new());
        let mut call = provider.call();
        call.say(&said[..at]);
        edge.cancel(stream);
        drop(call.wait_for_close());
        let response = edge.response(stream);
        assert_eq!(response.result.unwrap_err().kind, ErrorKind::Cancelled, "cancelled after {at} bytes");
        edge.open(chat(stream + 1, "{}"), Bytes::new());
        let mut next = provider.call();
        next.say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nnext");
        assert_eq!(&edge.response(stream + 1).body[..], b"next");
    }
    assert_eq!(node.metrics.runs(RunOutcome::Failed(ErrorKind::Cancelled)), 6);
}

// req: TUN-4
#[test]
fn a_cancel_during_an_upload_frees_the_gate_and_dials_nobody() {
    let (edge, _node, provider) = ready(1);
    let body = pattern(1024 * 1024);
    // Nothing of the body follows: the upload never ends.
    edge.open(upload(1, &body), Bytes::new());
    edge.cancel(1);
    assert_eq!(edge.response(1).result.unwrap_err().kind, ErrorKind::Cancelled);
    provider.is_quiet();
    edge.open(chat(2, "{}"), Bytes::new());
    provider.call().answer("200 OK", "free");
    assert_eq!(&edge.response(2).body[..], b"free");
}

// req: WIR-6
#[test]
fn many_streams_arrive_whole_side_by_side() {
    let (edge, _node, provider) = ready(16);
    let bodies: Vec<_> = (1..=16).map(|n| pattern(100_000 + 7919 * n)).collect();
    let mut writers = Vec::new();
    for (index, body) in bodies.iter().enumerate() {
        edge.open(TunnelRequest { window_bytes: 32 * 1024, ..chat(index as u64 + 1, "{}") }, Bytes::new());
        let mut call = provider.call();
        let body = body.clone();
        writers.push(std::thread::spawn(move || {
            call.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
            call.say(&body);
        }));
    }
    let mut received = vec![Vec::new(); 16];
    let mut ended = 0;
    while ended < 16 {
        let frame = edge.frame();
        let at = frame.stream as usize - 1;
        match frame.kind {
            TunnelFrameKind::Body(piece) => {
                edge.release(frame.stream, piece.len());
                received[at].extend_from_slice(&piece);
            }
            TunnelFrameKind::End => ended += 1,
            TunnelFrameKind::ResponseStart { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    for (received, body) in received.iter().zip(&bodies) {
        assert!(received[..] == body[..], "a body differs");
    }
    for writer in writers {
        writer.join().unwrap();
    }
}
