//! Commands of the Edge, which a test plays, about a provider on a raw socket (CMD-1).
#![allow(clippy::unwrap_used, reason = "a test ends where something unexpected begins")]

mod support;

use std::collections::BTreeMap;

use proto::message::{
    AdapterConfig, AdapterSettings, Message, NodeCommandRequest, NodeCommandResponse, OllamaConfig,
};
use support::{
    certs::Pki,
    edge::Edge,
    node::{Node, Setup, chat, config},
    provider::{Call, Provider},
};

/// Commands that a Node carries out beside each other.
const COMMANDS_MAX: u64 = 16;
const LIST: &str = r#"{"object":"list","data":[{"id":"qwen3"}]}"#;

/// A ready Node with the adapters `vllm-1` and `ollama-1`, both at one provider.
fn ready() -> (Edge, Node, Provider) {
    let pki = Pki::new();
    let edge = Edge::start(pki.edge_tls("edge-1"));
    let provider = Provider::start();
    let node = Node::start(Setup::new(edge.address, pki.node_tls("box1", "edge-1")));
    let mut config = config(provider.address, 1);
    let base_url = format!("http://{}", provider.address);
    config.adapters.push(AdapterConfig {
        name: "ollama-1".to_owned(),
        enabled: true,
        capacity: 1,
        settings: AdapterSettings::Ollama(OllamaConfig { base_url, ..OllamaConfig::default() }),
    });
    edge.make_ready(config);
    (edge, node, provider)
}

fn ask(edge: &Edge, request_id: u64, command: &str, adapter: &str, operation: Option<&str>) {
    let argument = operation.map(|operation| ("operation".to_owned(), operation.to_owned()));
    edge.send(Message::NodeCommandRequest(Box::new(NodeCommandRequest {
        request_id,
        command: command.to_owned(),
        adapter: adapter.to_owned(),
        target: "qwen3".to_owned(),
        arguments: argument.into_iter().collect(),
        credential: None,
    })));
}

fn capabilities(edge: &Edge, request_id: u64) {
    ask(edge, request_id, "capabilities", "vllm-1", None);
}

/// The next answer, and which command it is to.
fn answer(edge: &Edge) -> (u64, Result<BTreeMap<String, String>, String>) {
    let Message::NodeCommandResponse(NodeCommandResponse { request_id, result }) = edge.message() else {
        panic!("another message came")
    };
    (request_id, result)
}

/// What is known of the provider, and the number of the observation.
fn observed(edge: &Edge) -> (u64, String, String) {
    let (id, result) = answer(edge);
    let fields = result.unwrap();
    assert_eq!((fields["adapter_key"].as_str(), fields["target"].as_str()), ("vllm-1", "qwen3"));
    (id, fields["provider_status"].clone(), fields["health_observation_seq"].clone())
}

fn found(id: u64, status: &str, sequence: &str) -> (u64, String, String) {
    (id, status.to_owned(), sequence.to_owned())
}

// req: CAP-1, STL-7
#[test]
fn capabilities_asks_the_provider_and_numbers_what_it_observes() {
    let (edge, node, provider) = ready();
    capabilities(&edge, 1);
    let call = provider.call();
    assert_eq!(call.asked.line(), "GET /v1/models HTTP/1.1");
    call.answer("200 OK", LIST);
    assert_eq!(observed(&edge), found(1, "available", "1"));
    capabilities(&edge, 2);
    provider.call().answer("500 Internal Server Error", "{\"secret\":\"of the provider\"}");
    assert_eq!(observed(&edge), found(2, "unavailable", "2"));
    capabilities(&edge, 3);
    provider.call().answer("401 Unauthorized", LIST);
    assert_eq!(observed(&edge), found(3, "unknown", "3"));
    let text = node.metrics.text();
    for line in [
        "iop_node_health_probes_total{health=\"available\",reason=\"serves\"} 1",
        "iop_node_health_probes_total{health=\"unavailable\",reason=\"server_error\"} 1",
        "iop_node_health_probes_total{health=\"unknown\",reason=\"unauthorised\"} 1",
        "iop_node_health_probe_duration_seconds_count 3",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
}

// req: CMD-1
#[test]
fn commands_run_beside_each_other_and_beside_requests_and_delay_neither() {
    let (edge, _node, provider) = ready();
    capabilities(&edge, 1);
    let slow = provider.call();
    capabilities(&edge, 2);
    provider.call().answer("200 OK", LIST);
    assert_eq!(observed(&edge), found(2, "available", "1"));
    ask(&edge, 3, "transport", "", None);
    let (id, told) = answer(&edge);
    let told = told.unwrap();
    assert_eq!((id, told["status"].as_str(), told["provider.box1-vllm"].as_str()), (3, "ready", "ready"));
    // A probe takes no place at the gate, which has one.
    edge.open(chat(1, "{}"), Default::default());
    provider.call().answer("200 OK", "hello");
    assert_eq!(&edge.response(1).body[..], b"hello");
    slow.answer("200 OK", LIST);
    assert_eq!(observed(&edge), found(1, "available", "2"));
}

// req: CMD-1
#[test]
fn more_commands_than_a_connection_may_have_are_refused_and_the_others_are_answered() {
    let (edge, _node, provider) = ready();
    (1..=COMMANDS_MAX).for_each(|id| capabilities(&edge, id));
    let calls: Vec<Call> = (1..=COMMANDS_MAX).map(|_| provider.call()).collect();
    capabilities(&edge, 99);
    let (id, refused) = answer(&edge);
    assert!(id == 99 && refused.unwrap_err().contains("at one time"));
    for call in calls {
        call.answer("200 OK", LIST);
    }
    let mut sequences: Vec<u64> = (1..=COMMANDS_MAX).map(|_| observed(&edge).2.parse().unwrap()).collect();
    sequences.sort_unstable();
    assert_eq!(sequences, (1..=COMMANDS_MAX).collect::<Vec<_>>());
    capabilities(&edge, 100);
    provider.call().answer("200 OK", LIST);
    assert_eq!(observed(&edge).0, 100);
}

// req: CMD-1
#[test]
fn the_ollama_api_is_read_and_nothing_else_of_it_can_be_reached() {
    let (edge, _node, provider) = ready();
    ask(&edge, 1, "ollama", "ollama-1", Some("tags"));
    let call = provider.call();
    assert_eq!((call.asked.line(), call.asked.field("x-static")), ("GET /api/tags HTTP/1.1", None));
    call.answer("200 OK", "{\"models\":[]}");
    let told = answer(&edge).1.unwrap();
    assert_eq!((told["status"].as_str(), told["body"].as_str()), ("200", "{\"models\":[]}"));
    ask(&edge, 2, "ollama", "ollama-1", Some("show"));
    let call = provider.call();
    assert_eq!(
        (call.asked.line(), &call.asked.body[..]),
        ("POST /api/show HTTP/1.1", &br#"{"model":"qwen3"}"#[..])
    );
    let mut stream = call.answer("404 Not Found", "{\"error\":\"model 'qwen3' not found\"}");
    assert_eq!(answer(&edge).1.unwrap()["status"], "404");
    assert_eq!(std::io::Read::read(&mut stream, &mut [0]).unwrap(), 0, "the connection was kept");
    ask(&edge, 3, "ollama", "ollama-1", Some("version"));
    let mut call = provider.call();
    call.say("HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n");
    let _closed = std::io::Write::write_all(&mut call.stream, &vec![b'x'; 9_000_000]);
    assert!(answer(&edge).1.unwrap_err().contains("longer than 1048576 bytes"));
    for (adapter, operation) in
        [("ollama-1", "pull"), ("ollama-1", "delete"), ("ollama-1", ""), ("vllm-1", "tags"), ("none", "tags")]
    {
        ask(&edge, 4, "ollama", adapter, Some(operation));
        assert!(answer(&edge).1.is_err(), "{adapter} {operation}");
    }
    provider.is_quiet();
}
