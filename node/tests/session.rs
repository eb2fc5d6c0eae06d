//! Registration, reconnect and the end of sessions, against an Edge that a test plays.
#![allow(clippy::unwrap_used, reason = "a test ends where something unexpected begins")]

mod support;

use std::time::Duration;

use dataplane::relay::{CloseReason, HeartbeatTimes, Incoming};
use iop_node::{metrics::RunOutcome, supervisor::Exit};
use proto::message::{
    ErrorKind, Message, NodeCommandRequest, NodeConfigPayload, NodeConfigRefreshRequest, NodeReadyResponse,
    RefreshOutcome, RegisterResponse, RunEventKind, RunRequest, TunnelFrameKind,
};
use support::{
    certs::{Ca, Pki},
    edge::{Edge, Seen},
    node::{Node, Setup, chat, config, policy},
    provider::Provider,
};

const SOON: Duration = Duration::from_millis(20);

fn ready() -> (Edge, Node, Provider) {
    let pki = Pki::new();
    let edge = Edge::start(pki.edge_tls("edge-1"));
    let provider = Provider::start();
    let node = Node::start(Setup::new(edge.address, pki.node_tls("box1", "edge-1")));
    edge.make_ready(config(provider.address, 2));
    (edge, node, provider)
}

/// Waits until the metrics text holds `line`.
fn await_metric(node: &Node, line: &str) {
    for _ in 0..1000 {
        if node.metrics.text().lines().any(|found| found == line) {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    panic!("{line} is missing in\n{}", node.metrics.text());
}

// req: REG-2, REG-4, REG-9
#[test]
fn a_node_takes_everything_it_runs_from_the_edge() {
    let (edge, node, provider) = ready();
    await_metric(&node, "iop_node_connected 1");
    edge.open(chat(1, "{}"), Default::default());
    provider.call().answer("200 OK", "hello");
    assert_eq!(&edge.response(1).body[..], b"hello");
    node.signal();
    assert_eq!(node.exit(), Exit::Shutdown);
}

// req: SUP-1, SUP-6
#[test]
fn a_node_starts_without_an_edge_and_finds_it_again_without_being_restarted() {
    let pki = Pki::new();
    let tls = pki.edge_tls("edge-1");
    // A port that nobody listens on, until an Edge does.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut setup = Setup::new(address, pki.node_tls("box1", "edge-1"));
    setup.policy = policy(0, SOON);
    let node = Node::start(setup);
    for _ in 0..1000 {
        if node.metrics.text().contains("iop_node_dials_total{outcome=\"connect\"} 2") {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    for _ in 0..2 {
        let edge = Edge::start_at(address, tls.clone(), HeartbeatTimes::default());
        edge.make_ready(NodeConfigPayload::default());
        edge.stop();
        assert!(node.is_running());
    }
    let edge = Edge::start_at(address, tls, HeartbeatTimes::default());
    edge.make_ready(NodeConfigPayload::default());
    await_metric(&node, "iop_node_dials_total{outcome=\"ready\"} 3");
    node.signal();
    assert_eq!(node.exit().code(), 0);
}

// req: SUP-3, SUP-4
#[test]
fn a_node_gives_up_after_exactly_its_attempts() {
    let pki = Pki::new();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut setup = Setup::new(address, pki.node_tls("box1", "edge-1"));
    setup.policy = policy(3, Duration::ZERO);
    let node = Node::start(setup);
    let exit = node.exit();
    assert_eq!((exit, exit.code()), (Exit::Exhausted(3), 1));
    assert!(node.metrics.text().contains("iop_node_dials_total{outcome=\"connect\"} 3"));
}

// req: SUP-2, SUP-5, REG-7
#[test]
fn refusals_of_the_edge_close_the_connection_and_are_retried() {
    let pki = Pki::new();
    let edge = Edge::start(pki.edge_tls("edge-1"));
    let node = Node::start(Setup::new(edge.address, pki.node_tls("box1", "edge-1")));
    edge.connected();
    assert!(matches!(edge.message(), Message::RegisterRequest(_)));
    edge.send(Message::RegisterResponse(RegisterResponse::Rejected { reason: "unknown node".to_owned() }));
    edge.closed();
    edge.connected();
    let Message::RegisterRequest(request) = edge.message() else { panic!() };
    let config = NodeConfigPayload::default();
    edge.send(Message::RegisterResponse(RegisterResponse::Accepted { node_id: request.node_id, config }));
    assert!(matches!(edge.message(), Message::NodeReadyRequest(_)));
    edge.send(Message::NodeReadyResponse(NodeReadyResponse {
        ready: false,
        reason: "superseded".to_owned(),
    }));
    edge.closed();
    edge.make_ready(NodeConfigPayload::default());
    for outcome in ["registration", "readiness", "ready"] {
        await_metric(&node, &format!("iop_node_dials_total{{outcome=\"{outcome}\"}} 1"));
    }
}

// req: REG-5
#[test]
fn a_request_before_the_ready_ack_ends_the_connection_and_nothing_runs() {
    let pki = Pki::new();
    let edge = Edge::start(pki.edge_tls("edge-1"));
    let provider = Provider::start();
    let node = Node::start(Setup::new(edge.address, pki.node_tls("box1", "edge-1")));
    edge.connected();
    let Message::RegisterRequest(request) = edge.message() else { panic!() };
    let config = config(provider.address, 1);
    edge.send(Message::RegisterResponse(RegisterResponse::Accepted { node_id: request.node_id, config }));
    assert!(matches!(edge.message(), Message::NodeReadyRequest(_)));
    edge.open(chat(1, "{}"), Default::default());
    edge.closed();
    provider.is_quiet();
    assert_eq!(node.metrics.runs(RunOutcome::Completed), 0);
}

// req: IDN-1, IDN-2
#[test]
fn an_edge_that_is_not_the_expected_one_never_sees_a_registration() {
    let pki = Pki::new();
    let stranger = Pki::new();
    for tls in [pki.edge_tls("edge-2"), stranger.edge_tls("edge-1")] {
        let edge = Edge::start(tls);
        let mut setup = Setup::new(edge.address, pki.node_tls("box1", "edge-1"));
        setup.policy = policy(1, Duration::ZERO);
        let node = Node::start(setup);
        assert_eq!(node.exit(), Exit::Exhausted(1));
        assert!(node.metrics.text().contains("iop_node_dials_total{outcome=\"tls\"} 1"));
        match edge.next() {
            Seen::Refused(_) => {}
            other => panic!("expected a refused handshake, saw {other:?}"),
        }
    }
}

// req: IDN-2, SUP-5
#[test]
fn an_edge_that_refuses_our_certificate_is_dialled_again() {
    let pki = Pki::new();
    let edge = Edge::start(pki.edge_tls("edge-1"));
    // Trusts the right Edge, but is signed by a CA that the Edge does not know.
    let stranger = Pki { edge_ca: pki.edge_ca, node_ca: Ca::new("another node-ca") };
    let mut setup = Setup::new(edge.address, stranger.node_tls("box1", "edge-1"));
    setup.policy = policy(2, Duration::ZERO);
    let node = Node::start(setup);
    assert_eq!(node.exit(), Exit::Exhausted(2));
    assert!(
        node.metrics.text().contains("iop_node_dials_total{outcome=\"tls\"} 2"),
        "{}",
        node.metrics.text()
    );
    for _ in 0..2 {
        assert!(matches!(edge.next(), Seen::Refused(_)));
    }
}

// req: PRE-2
#[test]
fn a_lost_session_cancels_every_run_and_the_node_comes_back() {
    let (edge, node, provider) = ready();
    edge.open(chat(1, "{\"n\":1}"), Default::default());
    let first = provider.call();
    edge.open(chat(2, "{\"n\":2}"), Default::default());
    let second = provider.call();
    edge.shutdown(CloseReason::ConnectionLost);
    drop(first.wait_for_close());
    let at_work = second.wait_for_close();
    await_metric(&node, "iop_node_runs_total{outcome=\"session_lost\"} 1");
    edge.closed();
    // A provider that has not returned yet holds up neither the next session nor its gate.
    edge.make_ready(config(provider.address, 1));
    assert!(node.metrics.text().contains("iop_node_runs_aborting 1"));
    edge.open(chat(1, "{}"), Default::default());
    provider.call().answer("200 OK", "again");
    assert_eq!(&edge.response(1).body[..], b"again");
    drop(at_work);
    await_metric(&node, "iop_node_runs_total{outcome=\"session_lost\"} 2");
    await_metric(&node, "iop_node_runs_in_flight 0");
}

// req: HBT-2
#[test]
fn a_silent_provider_keeps_the_heartbeat_going_and_the_answer_arrives() {
    let pki = Pki::new();
    let beat = HeartbeatTimes { interval: Duration::from_millis(50), timeout: Duration::from_millis(400) };
    let edge = Edge::start_at("127.0.0.1:0".parse().unwrap(), pki.edge_tls("edge-1"), beat);
    let provider = Provider::start();
    let mut setup = Setup::new(edge.address, pki.node_tls("box1", "edge-1"));
    setup.limits.mux.heartbeat = beat;
    let node = Node::start(setup);
    edge.make_ready(config(provider.address, 1));
    edge.open(chat(1, "{}"), Default::default());
    let call = provider.call();
    // Several time-outs long nothing but heartbeats.
    std::thread::park_timeout(Duration::from_millis(1200));
    call.answer("200 OK", "late");
    assert_eq!(&edge.response(1).body[..], b"late");
    assert!(node.metrics.text().contains("iop_node_connected 1"));
    assert!(node.metrics.text().contains("iop_node_dials_total{outcome=\"ready\"} 1"));
}

// req: GAT-2, REF-1
#[test]
fn a_refreshed_capacity_counts_at_once_and_other_changes_are_refused_whole() {
    let (edge, _node, provider) = ready();
    let mut bigger = config(provider.address, 3);
    bigger.config_generation = 2;
    edge.send(Message::NodeConfigRefreshRequest(NodeConfigRefreshRequest {
        request_id: 7,
        config: bigger.clone(),
    }));
    let Message::NodeConfigRefreshResponse(answer) = edge.message() else { panic!() };
    assert_eq!(
        (answer.request_id, answer.config_generation, answer.outcome),
        (7, 2, RefreshOutcome::Applied)
    );
    let calls: Vec<_> = (1..=3)
        .map(|stream| {
            edge.open(chat(stream, "{}"), Default::default());
            provider.call()
        })
        .collect();
    let mut both = bigger;
    both.config_generation = 3;
    both.adapters[0].capacity = 9;
    both.providers[0].category = "api".to_owned();
    edge.send(Message::NodeConfigRefreshRequest(NodeConfigRefreshRequest { request_id: 8, config: both }));
    let Message::NodeConfigRefreshResponse(answer) = edge.message() else { panic!() };
    assert_eq!((answer.config_generation, answer.outcome), (2, RefreshOutcome::RestartRequired));
    edge.open(chat(4, "{}"), Default::default());
    assert!(matches!(edge.frame().kind, TunnelFrameKind::Error(error) if error.kind == ErrorKind::Busy));
    drop(calls);
}

// req: CMD-1
#[test]
fn the_transport_command_is_answered_and_normalized_runs_are_refused() {
    let (edge, _node, provider) = ready();
    let command = |command: &str| NodeCommandRequest {
        request_id: 1,
        command: command.to_owned(),
        adapter: String::new(),
        target: String::new(),
        arguments: Default::default(),
        credential: None,
    };
    edge.send(Message::NodeCommandRequest(Box::new(command("transport"))));
    let Message::NodeCommandResponse(answer) = edge.message() else { panic!() };
    assert_eq!(answer.result.unwrap()["status"], "ready");
    edge.send(Message::NodeCommandRequest(Box::new(command("capabilities"))));
    let Message::NodeCommandResponse(answer) = edge.message() else { panic!() };
    assert!(answer.result.is_err());
    let run = RunRequest {
        stream: 1,
        run_id: "run-1".to_owned(),
        adapter: "vllm-1".to_owned(),
        target: "qwen3".to_owned(),
        input: Default::default(),
        input_bytes: 0,
        metadata: Default::default(),
        session_id: String::new(),
        timeout_sec: 0,
        response_stall_timeout_ms: 300_000,
        window_bytes: 65_536,
        credential: None,
    };
    edge.open_run(run, Default::default());
    match edge.next() {
        Seen::Incoming(Incoming::Data { message: Message::RunEvent(event), .. }) => {
            assert!(
                matches!(event.kind, RunEventKind::Error(error) if error.kind == ErrorKind::InvalidRequest)
            );
        }
        other => panic!("expected a run event, saw {other:?}"),
    }
    provider.is_quiet();
}

// req: SUP-4
#[test]
fn a_signal_lets_running_streams_end_refuses_new_ones_and_exits_0() {
    let (edge, node, provider) = ready();
    edge.open(chat(1, "{}"), Default::default());
    let mut call = provider.call();
    call.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
    assert!(matches!(edge.frame().kind, TunnelFrameKind::ResponseStart { status: 200, .. }));
    node.signal();
    edge.draining();
    edge.is_quiet_but_for_bodies();
    // It crossed the Node's word on the way.
    edge.open(chat(2, "{}"), Default::default());
    let refused = edge.frame();
    assert_eq!(refused.stream, 2);
    assert!(matches!(refused.kind, TunnelFrameKind::Error(error) if error.kind == ErrorKind::Busy));
    assert!(node.is_running());
    call.say("4\r\nlast\r\n0\r\n\r\n");
    let mut body = Vec::new();
    loop {
        match edge.frame().kind {
            TunnelFrameKind::Body(piece) => body.extend_from_slice(&piece),
            TunnelFrameKind::End => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(body, b"last");
    let Message::Goodbye(goodbye) = edge.message() else { panic!("expected a goodbye") };
    assert_eq!(goodbye.reason, "draining");
    assert_eq!(node.exit(), Exit::Shutdown);
}

// req: SUP-4
#[test]
fn a_second_signal_ends_the_node_at_once() {
    let (edge, node, provider) = ready();
    edge.open(chat(1, "{}"), Default::default());
    let call = provider.call();
    node.signal();
    edge.draining();
    edge.is_quiet_but_for_bodies();
    assert!(node.is_running());
    node.signal();
    assert_eq!(node.exit(), Exit::Shutdown);
    call.wait_for_close();
}

// req: SUP-4
#[test]
fn a_drain_ends_with_its_grace() {
    let pki = Pki::new();
    let edge = Edge::start(pki.edge_tls("edge-1"));
    let provider = Provider::start();
    let mut setup = Setup::new(edge.address, pki.node_tls("box1", "edge-1"));
    setup.grace = Duration::from_millis(100);
    let node = Node::start(setup);
    edge.make_ready(config(provider.address, 1));
    edge.open(chat(1, "{}"), Default::default());
    let call = provider.call();
    node.signal();
    assert_eq!(node.exit(), Exit::Shutdown);
    call.wait_for_close();
}
