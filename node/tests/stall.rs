//! Stalled tunnels, over real sockets: a Node, a provider on a raw socket, and an Edge that a test plays.
#![allow(clippy::unwrap_used, reason = "a test ends where something unexpected begins")]

mod support;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use dataplane::{
    clock,
    http::client::abort::{CLOSE_GRACE, Return},
    relay::CloseReason,
};
use iop_node::{metrics::RunOutcome, run::pulse::TICK};
use proto::message::{ErrorKind, Header, RunEventKind, RunRequest, TunnelFrameKind, TunnelRequest};
use support::{
    PATIENCE, QUIET,
    certs::Pki,
    edge::{Edge, Response},
    log,
    node::{Node, Setup, chat, config, config_with_ollama, run},
    provider::{Call, Provider},
};

/// The stall timeout of these tests.
const TIMEOUT: Duration = Duration::from_millis(400);
/// How much later than it should a machine under load may be.
const SLACK: Duration = Duration::from_millis(900);
const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn ready(capacity: u32) -> (Edge, Node, Provider) {
    let pki = Pki::new();
    let edge = Edge::start(pki.edge_tls("edge-1"));
    let provider = Provider::start();
    let node = Node::start(Setup::new(edge.address, pki.node_tls("box1", "edge-1")));
    edge.make_ready(config(provider.address, capacity));
    (edge, node, provider)
}

fn stalling(stream: u64) -> TunnelRequest {
    TunnelRequest { response_stall_timeout_ms: TIMEOUT.as_millis() as i64, ..chat(stream, "{}") }
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// Answers the probe that is on its way as a server that has the model.
fn healthy(probe: Call) {
    assert_eq!(probe.asked.line(), "GET /v1/models HTTP/1.1");
    probe.answer("200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"qwen3\",\"object\":\"model\"}]}");
}

fn stall(response: &Response) -> BTreeMap<String, String> {
    let error = response.result.clone().unwrap_err();
    let failure = error.failure.unwrap();
    assert_eq!((error.kind, failure.failure_code.as_str()), (ErrorKind::Stalled, "response_stalled"));
    assert_eq!(failure.retryable, failure.metadata["fence"] == "confirmed");
    failure.metadata
}

fn took(since: Instant, least: Duration) {
    let took = clock::now() - since;
    assert!(took >= least && took <= least + TICK + SLACK, "{took:?} instead of {least:?}");
}

/// How far the provider gets before it falls silent.
const STOPS: [(&str, &str); 4] = [
    ("before its head", ""),
    ("behind its head", "HEAD"),
    ("behind some events", "HEAD+data: 1\n\n"),
    ("behind its last event", "HEAD+data: [DONE]\n\n"),
];

// req: STL-3, STL-4, STL-5, STL-7
#[test]
fn a_provider_that_falls_silent_ends_in_one_stall_wherever_it_stops() {
    let (edge, node, provider) = ready(1);
    for ((stream, (stops, said)), number) in (1..).zip(STOPS).zip(1_u64..) {
        edge.open(stalling(stream), Bytes::new());
        let mut call = provider.call();
        if let Some(events) = said.strip_prefix("HEAD") {
            call.say(STREAM);
            if let Some(events) = events.strip_prefix('+') {
                call.say(chunk(events));
            }
        }
        let begun = clock::now();
        healthy(provider.call());
        took(begun, TIMEOUT - QUIET);
        // It returns as soon as it is told.
        drop(call.wait_for_close());
        let response = edge.response(stream);
        let told = stall(&response);
        assert_eq!(told["provider_health"], "available", "{stops}");
        assert_eq!(told["liveness_classification"], "request_stalled");
        assert_eq!(told["fence"], "confirmed");
        assert_eq!(told["health_observation_seq"], number.to_string());
        assert_eq!((told["adapter"].as_str(), told["target"].as_str()), ("vllm-1", "qwen3"));
        let idle: u64 = told["idle_ms"].parse().unwrap();
        assert!(u128::from(idle) >= TIMEOUT.as_millis(), "{idle}");
        assert!(told["node_attempt_id"].starts_with(&told["node_run_id"]) && told.len() == 9, "{told:?}");
        assert!(!told.values().any(|value| value.contains("run-")), "the run id is the Edge's: {told:?}");
        edge.is_quiet();
    }
    assert_eq!(node.metrics.runs(RunOutcome::Failed(ErrorKind::Stalled)), 4);
    assert_eq!(node.metrics.aborts(Return::Confirmed), 4);
}

// req: STL-3
#[test]
fn comments_keep_no_stream_alive_and_events_do() {
    let (edge, _node, provider) = ready(1);
    edge.open(stalling(1), Bytes::new());
    let mut call = provider.call();
    call.say(STREAM);
    let pause = TIMEOUT / 4;
    let events = clock::now();
    while clock::now() - events < 3 * TIMEOUT {
        call.say(chunk("data: 1\n\n"));
        pauses(&edge, pause);
    }
    let comments = clock::now();
    let mut writer = call.stream.try_clone().unwrap();
    let talker = std::thread::spawn(move || {
        // Until the node has closed.
        while std::io::Write::write_all(&mut writer, chunk(": ping\n\n").as_bytes()).is_ok() {
            std::thread::park_timeout(TIMEOUT / 8);
        }
    });
    healthy(provider.call());
    took(comments, TIMEOUT - pause - QUIET);
    let told = stall(&edge.response(1));
    // It went on sending and was reset: it is not known to be done.
    assert_eq!(told["fence"], "unconfirmed");
    talker.join().unwrap();
}

/// Lets frames come for a while, and gives their credit back.
fn pauses(edge: &Edge, pause: Duration) {
    let until = clock::now() + pause;
    while let Some(frame) = edge.frame_until(until) {
        if let TunnelFrameKind::Body(body) = frame.kind {
            edge.release(frame.stream, body.len());
        }
    }
}

// req: STL-3, WIR-6
#[test]
fn a_client_that_takes_nothing_is_no_stall_of_the_provider() {
    let (edge, _node, provider) = ready(1);
    let window = 4096;
    edge.open(TunnelRequest { window_bytes: window, ..stalling(1) }, Bytes::new());
    let mut call = provider.call();
    let body = "x".repeat(3 * window as usize);
    call.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    let mut taken = 0;
    while taken < window as usize {
        if let TunnelFrameKind::Body(piece) = edge.frame().kind {
            taken += piece.len();
        }
    }
    assert!(edge.frame_until(clock::now() + 3 * TIMEOUT).is_none());
    edge.release(1, taken);
    let response = edge.response(1);
    assert_eq!((response.result, taken + response.body.len()), (Ok(()), body.len()));
}

// req: PRE-3, STL-4, STL-9
#[test]
fn a_provider_that_does_not_return_keeps_its_place_behind_the_terminal_until_it_does() {
    let (edge, node, provider) = ready(1);
    edge.open(stalling(1), Bytes::new());
    let mut call = provider.call();
    call.say(STREAM);
    healthy(provider.call());
    let claimed = clock::now();
    let mut working = call.wait_for_close();
    let told = stall(&edge.response(1));
    took(claimed, CLOSE_GRACE - QUIET);
    assert_eq!((told["fence"].as_str(), told["provider_health"].as_str()), ("unconfirmed", "available"));
    // The Edge may take the place as free; the gate knows better.
    edge.open(chat(2, "{}"), Bytes::new());
    assert_eq!(edge.response(2).result.unwrap_err().kind, ErrorKind::Busy);
    edge.cancel(1);
    assert!(node.metrics.text().contains("iop_node_runs_aborting 1"));
    assert!(node.metrics.text().contains("iop_node_runs_in_flight 1"));
    // Late output goes nowhere.
    std::io::Write::write_all(&mut working, chunk("data: late\n\n").as_bytes()).unwrap();
    drop(working);
    wait_for(|| node.metrics.text().contains("iop_node_runs_in_flight 0"));
    edge.is_quiet();
    edge.open(chat(3, "{}"), Bytes::new());
    provider.call().answer("200 OK", "free");
    assert_eq!(&edge.response(3).body[..], b"free");
    assert_eq!(node.metrics.runs(RunOutcome::Failed(ErrorKind::Stalled)), 1);
}

// req: PRE-2, PRE-3
#[test]
fn a_lost_session_gives_back_what_is_held_for_a_provider() {
    let (edge, node, provider) = ready(1);
    edge.open(stalling(1), Bytes::new());
    let call = provider.call();
    healthy(provider.call());
    let _working = call.wait_for_close();
    stall(&edge.response(1));
    edge.shutdown(CloseReason::Draining);
    wait_for(|| node.metrics.text().contains("iop_node_runs_in_flight 0"));
    wait_for(|| node.metrics.aborts(Return::Unconfirmed) == 1);
}

// req: PRE-1
#[test]
fn a_deadline_at_the_timeout_keeps_its_own_outcome() {
    let (edge, node, provider) = ready(1);
    edge.open(
        TunnelRequest { timeout_sec: 1, response_stall_timeout_ms: 1000, ..chat(1, "{}") },
        Bytes::new(),
    );
    drop(provider.call().wait_for_close());
    let error = edge.response(1).result.unwrap_err();
    assert_eq!((error.kind, error.failure), (ErrorKind::Deadline, None));
    provider.is_quiet();
    assert_eq!(node.metrics.runs(RunOutcome::Failed(ErrorKind::Stalled)), 0);
}

// req: STL-6
#[test]
fn other_failures_carry_no_evidence() {
    let (edge, _node, provider) = ready(1);
    edge.open(stalling(1), Bytes::new());
    drop(provider.call());
    let error = edge.response(1).result.unwrap_err();
    assert_eq!((error.kind, error.failure), (ErrorKind::UpstreamTruncated, None));
}

// req: STL-5, STL-7
#[test]
fn a_provider_that_is_gone_is_unavailable_and_the_numbers_rise() {
    let (edge, _node, provider) = ready(1);
    for sequence in ["1", "2"] {
        let stream = sequence.parse().unwrap();
        edge.open(stalling(stream), Bytes::new());
        let call = provider.call();
        let probe = provider.call();
        probe.answer("503 Service Unavailable", "");
        drop(call.wait_for_close());
        let told = stall(&edge.response(stream));
        assert_eq!(told["provider_health"], "unavailable");
        assert_eq!(told["liveness_classification"], "provider_unhealthy");
        assert_eq!(told["health_observation_seq"], sequence);
    }
}

fn wait_for(holds: impl Fn() -> bool) {
    let until = clock::now() + PATIENCE;
    while !holds() {
        assert!(clock::now() < until, "it did not come");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

// req: STL-3, STL-4, STL-9
#[test]
fn a_normalized_run_stalls_as_a_tunnel_does() {
    let pki = Pki::new();
    let edge = Edge::start(pki.edge_tls("edge-1"));
    let provider = Provider::start();
    let node = Node::start(Setup::new(edge.address, pki.node_tls("box1", "edge-1")));
    edge.make_ready(config_with_ollama(provider.address, 1, 0));
    let request = RunRequest {
        response_stall_timeout_ms: TIMEOUT.as_millis() as i64,
        ..run(1, r#"{"messages":[{"role":"user","text":"hi"}]}"#)
    };
    edge.open_run(request, Bytes::new());
    let mut call = provider.call();
    call.say("HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n");
    call.say(chunk("{\"message\":{\"content\":\"a\"},\"done\":false}\n"));
    let begun = clock::now();
    // Lines without a text keep no run alive.
    let mut writer = call.stream.try_clone().unwrap();
    let talker = std::thread::spawn(move || {
        let line = chunk("{\"message\":{\"content\":\"\"},\"done\":false}\n");
        while std::io::Write::write_all(&mut writer, line.as_bytes()).is_ok() {
            std::thread::park_timeout(TIMEOUT / 8);
        }
    });
    let outcome = edge.outcome(1);
    assert!(clock::now() - begun >= TIMEOUT - QUIET);
    assert_eq!(outcome.text, "a");
    let RunEventKind::Error(error) = outcome.end.unwrap().kind else { panic!("no error") };
    let failure = error.failure.unwrap();
    assert_eq!((error.kind, failure.failure_code.as_str()), (ErrorKind::Stalled, "response_stalled"));
    assert_eq!(
        (failure.metadata["adapter"].as_str(), failure.metadata["target"].as_str()),
        ("ollama-1", "qwen3:8b")
    );
    assert_eq!(failure.metadata["health_observation_seq"], "1");
    talker.join().unwrap();
    let line = "iop_node_response_stalls_total{execution=\"run\",fence=\"unconfirmed\"";
    assert!(node.metrics.text().lines().any(|found| found.starts_with(line) && found.ends_with(" 1")));
}

// req: OBS-1, OBS-4, STL-5
#[test]
fn nothing_of_a_client_is_in_what_is_told_of_a_stall() {
    let log = log::taken();
    let (edge, node, provider) = ready(1);
    let secret = |name: &str| Header::new(name, "sentinel-credential").unwrap();
    let request = TunnelRequest {
        run_id: "sentinel-run".to_owned(),
        session_id: "sentinel-session".to_owned(),
        metadata: BTreeMap::from([("sentinel-key".to_owned(), "sentinel-value".to_owned())]),
        path: "/sentinel-path".to_owned(),
        headers: vec![secret("x-client")],
        provider_auth: Some(secret("authorization")),
        ..stalling(1)
    };
    let body = Bytes::from_static(b"{\"sentinel-payload\":1}");
    edge.open(TunnelRequest { body: body.clone(), body_bytes: body.len() as u64, ..request }, Bytes::new());
    let mut call = provider.call();
    assert_eq!(call.asked.field("authorization"), Some("sentinel-credential"), "it did arrive");
    call.say(STREAM);
    call.say(chunk("data: sentinel-answer\n\n"));
    let probe = provider.call();
    assert_eq!(probe.asked.field("authorization"), None, "a probe has nothing of a client");
    healthy(probe);
    drop(call.wait_for_close());
    let error = edge.response(1).result.unwrap_err();
    let metrics = node.metrics.text();
    let logged = log::text(&log);
    let lines: Vec<_> =
        logged.lines().filter(|line| line.contains("node_response_stall_observation")).collect();
    let words = ["execution=\"tunnel\"", "provider_health=\"available\"", "fence=\"confirmed\"", "idle_ms="];
    assert!(lines.iter().any(|line| words.iter().all(|word| line.contains(word))), "{logged}");
    for told in [&metrics, &logged, &format!("{error:?}")] {
        assert!(!told.contains("sentinel"), "{told}");
    }
    let counted = "iop_node_response_stalls_total{execution=\"tunnel\",fence=\"confirmed\",provider_health=\"available\"} 1";
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    let measured = "iop_node_response_stall_duration_seconds_count{execution=\"tunnel\",fence=\"confirmed\",provider_health=\"available\"} 1";
    assert!(metrics.lines().any(|line| line == measured), "{metrics}");
}
