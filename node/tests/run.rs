//! Normalized runs against an Ollama that a test plays on a raw socket, asked for by an Edge that it plays, too.
#![allow(clippy::unwrap_used, reason = "a test ends where something unexpected begins")]

mod support;

use std::{collections::BTreeMap, io::Write};

use bytes::Bytes;
use dataplane::{http::client::abort::Return, relay::CloseReason};
use iop_node::metrics::RunOutcome;
use proto::{
    message::{
        ErrorKind, Message, NodeConfigRefreshRequest, RefreshOutcome, RunEventKind, RunRequest, TunnelRequest,
    },
    run_input::{PROMPT_TRUNCATED_KEY, TEXT_TOOL_FALLBACK_KEY, TOOL_CALLS_KEY, ToolCall},
};
use serde_json::{Value, json};
use support::{
    certs::Pki,
    edge::Edge,
    node::{Node, Setup, chat, config_with_ollama, run},
    provider::{Call, Provider, next_request},
};

const HI: &str = r#"{"messages":[{"role":"user","text":"hi"}]}"#;
const DONE: &str = r#"{"done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":2}"#;

fn ready(capacity: u32) -> (Edge, Node, Provider) {
    ready_with(capacity, 0)
}

fn ready_with(capacity: u32, context_size: u32) -> (Edge, Node, Provider) {
    let pki = Pki::new();
    let edge = Edge::start(pki.edge_tls("edge-1"));
    let provider = Provider::start();
    let node = Node::start(Setup::new(edge.address, pki.node_tls("box1", "edge-1")));
    edge.make_ready(config_with_ollama(provider.address, capacity, context_size));
    (edge, node, provider)
}

fn text(text: &str) -> String {
    json!({"message": {"role": "assistant", "content": text}, "done": false}).to_string()
}

/// Begins an answer; [`line`] goes on with it.
fn begin(call: &mut Call) {
    call.say("HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n");
}

fn line(call: &mut Call, line: &str) {
    call.say(format!("{:x}\r\n{line}\n\r\n", line.len() + 1));
}

fn end(mut call: Call) -> std::net::TcpStream {
    call.say("0\r\n\r\n");
    call.stream
}

fn answer(mut call: Call, lines: &[&str]) -> std::net::TcpStream {
    begin(&mut call);
    lines.iter().for_each(|text| line(&mut call, text));
    end(call)
}

fn refuse(call: Call, status: &str, error: &str) -> std::net::TcpStream {
    call.answer(status, &json!({ "error": error }).to_string())
}

fn body(call: &Call) -> Value {
    serde_json::from_slice(&call.asked.body).unwrap()
}

fn with_tools() -> String {
    json!({
        "messages": [{"role": "system", "text": "Be brief."}, {"role": "user", "text": "weather?"}],
        "tools": [{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}],
    })
    .to_string()
}

// req: RUN-1, RUN-2, RUN-5, RUN-6, RUN-7
#[test]
fn a_run_is_one_chat_with_the_target_and_arrives_as_ordered_events() {
    let (edge, node, provider) = ready(2);
    let metadata = BTreeMap::from([
        ("model".to_owned(), "other".to_owned()),
        ("adapter".to_owned(), "vllm-1".to_owned()),
        ("base_url".to_owned(), "http://evil.test".to_owned()),
    ]);
    // Two runs of one session id have nothing to do with each other.
    let request =
        |stream| RunRequest { metadata: metadata.clone(), session_id: "s".to_owned(), ..run(stream, HI) };
    edge.open_run(request(1), Bytes::new());
    let mut call = provider.call();
    edge.open_run(request(2), Bytes::new());
    let other = provider.call();
    assert_eq!(call.asked.line(), "POST /api/chat HTTP/1.1");
    assert_eq!(call.asked.field("content-type"), Some("application/json"));
    assert_eq!(
        body(&call),
        json!({"model": "qwen3:8b", "stream": true, "options": {}, "messages": [{"role": "user", "content": "hi"}]})
    );
    assert_eq!(body(&call), body(&other));
    begin(&mut call);
    let start = edge.event();
    assert_eq!(
        (start.stream, start.sequence, start.kind, start.metadata.len()),
        (1, 0, RunEventKind::Start, 0)
    );
    line(&mut call, r#"{"message":{"content":"","thinking":"hm"},"done":false}"#);
    let delta = edge.event();
    let reasoning = RunEventKind::Delta { text: String::new(), reasoning: "hm".to_owned() };
    assert_eq!((delta.sequence, delta.kind), (1, reasoning));
    for (number, word) in ["Hel", "lo"].iter().enumerate() {
        line(&mut call, &text(word));
        let delta = edge.event();
        let kind = RunEventKind::Delta { text: (*word).to_owned(), reasoning: String::new() };
        assert_eq!((delta.sequence, delta.kind), (number as u64 + 2, kind));
    }
    line(&mut call, DONE);
    let stream = end(call);
    let complete = edge.event();
    let RunEventKind::Complete { finish_reason, usage } = complete.kind else { panic!("{complete:?}") };
    let usage = usage.unwrap();
    assert_eq!((complete.sequence, finish_reason.as_str(), complete.metadata.len()), (4, "stop", 0));
    assert_eq!((usage.input_tokens, usage.output_tokens), (Some(3), Some(2)));
    answer(other, &[&text("two"), DONE]);
    assert_eq!(edge.outcome(2).text, "two");
    edge.is_quiet();
    // The connection was read to its end, and serves the next run.
    edge.open_run(run(3, HI), Bytes::new());
    let again = next_request(stream, 0);
    answer(again, &[DONE]);
    assert_eq!(edge.outcome(3).completion().0, "stop");
    assert!(node.metrics.text().contains("iop_node_normalized_runs_total{outcome=\"completed\"} 3"));
}

// req: RUN-3
#[test]
fn tool_calls_arrive_on_the_completion_and_text_is_never_read_as_one() {
    let (edge, _node, provider) = ready(1);
    edge.open_run(run(1, &with_tools()), Bytes::new());
    let call = provider.call();
    assert_eq!(body(&call)["tools"][0]["function"]["name"], "weather");
    let tag = "<tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>";
    let long = "x".repeat(10_000);
    let calls = json!({"message": {"tool_calls": [
        {"function": {"name": "weather", "arguments": {"city": "Bonn"}}},
        {"id": "call_2", "function": {"name": "weather", "arguments": {"city": long}}},
    ]}, "done": false});
    answer(call, &[&text(tag), &calls.to_string(), DONE]);
    let outcome = edge.outcome(1);
    assert_eq!(outcome.text, tag);
    let (reason, _, metadata) = outcome.completion();
    assert_eq!((reason, metadata.len()), ("tool_calls", 1));
    let calls: Vec<ToolCall> = serde_json::from_str(&metadata[TOOL_CALLS_KEY]).unwrap();
    assert_eq!(calls[0].function.arguments, r#"{"city":"Bonn"}"#);
    assert!(calls[0].id.starts_with("call_") && calls[0].id.len() == 29);
    assert_eq!((calls[1].id.as_str(), calls[1].function.arguments.len()), ("call_2", 10_011));
}

// req: RUN-4
#[test]
fn a_model_without_tools_is_asked_once_more_without_them_and_then_at_once_until_a_refresh() {
    let (edge, node, provider) = ready(1);
    let refusal = "registry.ollama.ai/library/qwen3:8b does not support tools";
    let mark = BTreeMap::from([(TEXT_TOOL_FALLBACK_KEY.to_owned(), "true".to_owned())]);
    let is_text = |call: &Call| {
        let body = body(call);
        let system = body["messages"][0]["content"].as_str().unwrap();
        assert!(system.starts_with("Be brief.\n\n") && system.contains("\"name\":\"weather\""), "{system}");
        assert!(body.get("tools").is_none());
    };
    edge.open_run(run(1, &with_tools()), Bytes::new());
    let stream = refuse(provider.call(), "400 Bad Request", refusal);
    let call = next_request(stream, 0);
    is_text(&call);
    let stream = answer(call, &[&text("<tool_call>{}"), DONE]);
    let outcome = edge.outcome(1);
    assert_eq!((outcome.start.as_ref(), outcome.text.as_str()), (Some(&mark), "<tool_call>{}"));
    assert_eq!((outcome.completion().0, outcome.completion().2), ("stop", &mark));
    // The verdict is remembered, of this model.
    edge.open_run(run(2, &with_tools()), Bytes::new());
    let call = next_request(stream, 0);
    is_text(&call);
    let stream = answer(call, &[DONE]);
    assert_eq!(edge.outcome(2).completion().2, &mark);
    edge.open_run(RunRequest { target: "other".to_owned(), ..run(3, &with_tools()) }, Bytes::new());
    let call = next_request(stream, 0);
    assert!(body(&call).get("tools").is_some());
    let stream = answer(call, &[DONE]);
    assert!(edge.outcome(3).completion().2.is_empty());
    // Without tools there is nothing to say as text.
    edge.open_run(run(4, HI), Bytes::new());
    let call = next_request(stream, 0);
    assert_eq!(body(&call)["messages"].as_array().unwrap().len(), 1);
    let stream = answer(call, &[DONE]);
    assert!(edge.outcome(4).completion().2.is_empty());
    assert!(node.metrics.text().contains("iop_node_text_tool_runs_total 2"));
    // A refresh forgets it.
    let mut config = config_with_ollama(provider.address, 2, 0);
    config.config_generation = 2;
    edge.send(Message::NodeConfigRefreshRequest(NodeConfigRefreshRequest { request_id: 1, config }));
    let Message::NodeConfigRefreshResponse(answer) = edge.message() else { panic!() };
    assert_eq!(answer.outcome, RefreshOutcome::Applied);
    edge.open_run(run(5, &with_tools()), Bytes::new());
    let call = next_request(stream, 0);
    assert!(body(&call).get("tools").is_some());
    let stream = refuse(call, "400 Bad Request", refusal);
    // A second refusal is the end: there is one more try, not two.
    let stream = refuse(next_request(stream, 0), "400 Bad Request", refusal);
    assert_eq!(
        edge.outcome(5).error(),
        (ErrorKind::InvalidRequest, format!("ollama answered 400: {refusal}"))
    );
    drop(stream);
}

// req: RUN-1
#[test]
fn refusals_and_errors_end_the_run_with_their_kind_and_ollamas_words() {
    let (edge, _node, provider) = ready(1);
    for (stream, status, error, kind) in [
        (1, "404 Not Found", "model 'x' not found", ErrorKind::InvalidRequest),
        (2, "503 Service Unavailable", "server busy, please try again", ErrorKind::Busy),
        (3, "500 Internal Server Error", "out of memory", ErrorKind::UpstreamProtocol),
    ] {
        edge.open_run(run(stream, HI), Bytes::new());
        let mut call = provider.call();
        let text = json!({ "error": error }).to_string();
        call.say(format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        ));
        let outcome = edge.outcome(stream);
        assert_eq!(outcome.start, None);
        let words = format!("ollama answered {}: {error}", &status[..3]);
        assert_eq!(outcome.error(), (kind, words));
    }
    for (stream, lines, kind, words) in [
        (
            4,
            &[&text("a")[..], r#"{"error":"runner\nterminated"}"#][..],
            ErrorKind::UpstreamProtocol,
            "ollama broke off: runner terminated",
        ),
        (
            5,
            &[&text("a")[..], "secret"],
            ErrorKind::UpstreamProtocol,
            "line 2 of ollama's answer is malformed in column 1",
        ),
        (6, &[&text("a")[..]], ErrorKind::UpstreamTruncated, "ollama's answer ended without done:true"),
    ] {
        edge.open_run(run(stream, HI), Bytes::new());
        drop(answer(provider.call(), lines));
        let outcome = edge.outcome(stream);
        assert_eq!(outcome.text, "a");
        assert_eq!(outcome.error(), (kind, words.to_owned()));
    }
    edge.open_run(run(7, HI), Bytes::new());
    let mut call = provider.call();
    begin(&mut call);
    line(&mut call, &text("a"));
    drop(call);
    assert_eq!(edge.outcome(7).error().0, ErrorKind::UpstreamTruncated);
    let input = r#"{"messages":[{"role":"wizard"}]}"#;
    edge.open_run(run(8, input), Bytes::new());
    let (kind, words) = edge.outcome(8).error();
    assert_eq!(kind, ErrorKind::InvalidRequest);
    assert!(words.starts_with("the input of the run is malformed"), "{words}");
    provider.is_quiet();
}

// req: RUN-1
#[test]
fn an_answer_that_is_whole_completes_though_its_connection_does_not_end() {
    let (edge, node, provider) = ready(1);
    edge.open_run(run(1, HI), Bytes::new());
    let mut call = provider.call();
    begin(&mut call);
    line(&mut call, &text("all"));
    line(&mut call, DONE);
    let outcome = edge.outcome(1);
    assert_eq!((outcome.text.as_str(), outcome.completion().0), ("all", "stop"));
    drop(call.wait_for_close());
    assert!(node.metrics.text().contains("iop_node_runs_in_flight 0"));
}

// req: GAT-1, GAT-2
#[test]
fn a_full_gate_answers_busy_and_the_other_kind_of_execution_is_refused_in_clear_words() {
    let (edge, node, provider) = ready(1);
    edge.open_run(run(1, HI), Bytes::new());
    let call = provider.call();
    edge.open_run(run(2, HI), Bytes::new());
    assert_eq!(edge.outcome(2).error(), (ErrorKind::Busy, "the adapter's gate is full".to_owned()));
    answer(call, &[DONE]);
    edge.outcome(1);
    // The place is free as soon as the Edge knows of the end.
    edge.open_run(RunRequest { adapter: "ollama".to_owned(), ..run(3, HI) }, Bytes::new());
    let stream = provider_next(&provider, &edge, 3);
    drop(stream);
    edge.open_run(RunRequest { adapter: "vllm-1".to_owned(), ..run(4, HI) }, Bytes::new());
    let (kind, words) = edge.outcome(4).error();
    assert_eq!((kind, words.contains("takes tunnels only")), (ErrorKind::InvalidRequest, true));
    edge.open(TunnelRequest { adapter: "ollama-1".to_owned(), ..chat(5, "{}") }, Bytes::new());
    let error = edge.response(5).result.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidRequest);
    assert!(error.message.contains("takes normalized runs only"), "{}", error.message);
    assert_eq!(node.metrics.runs(RunOutcome::Failed(ErrorKind::InvalidRequest)), 2);
    assert!(node.metrics.text().contains("iop_node_normalized_runs_total{outcome=\"invalid_request\"} 1"));
}

/// The next run's call, on a connection kept or new, answered; its stream.
fn provider_next(provider: &Provider, edge: &Edge, stream: u64) -> std::net::TcpStream {
    let kept = answer(provider.call(), &[DONE]);
    assert_eq!(edge.outcome(stream).completion().0, "stop");
    kept
}

// req: CAN-1, PRE-3
#[test]
fn a_cancel_ends_that_run_only_and_not_before_ollama_has_returned() {
    let (edge, node, provider) = ready(2);
    edge.open_run(run(1, HI), Bytes::new());
    let mut first = provider.call();
    edge.open_run(run(2, HI), Bytes::new());
    let second = provider.call();
    begin(&mut first);
    assert_eq!(edge.event().kind, RunEventKind::Start);
    edge.cancel(77);
    edge.cancel(1);
    let working = first.wait_for_close();
    edge.is_quiet();
    edge.open_run(run(3, HI), Bytes::new());
    assert_eq!(edge.outcome(3).error().0, ErrorKind::Busy);
    assert!(node.metrics.text().contains("iop_node_runs_aborting 1"));
    drop(working);
    let last = edge.event();
    assert_eq!((last.stream, last.sequence, last.kind), (1, 1, RunEventKind::Cancelled));
    assert_eq!(node.metrics.aborts(Return::Confirmed), 1);
    edge.cancel(1);
    edge.is_quiet();
    answer(second, &[&text("two"), DONE]);
    assert_eq!(edge.outcome(2).text, "two");
}

// req: PRE-1, PRE-2
#[test]
fn a_deadline_is_an_error_and_a_lost_session_stops_every_run() {
    let (edge, node, provider) = ready(2);
    edge.open_run(RunRequest { timeout_sec: 1, ..run(1, HI) }, Bytes::new());
    let mut call = provider.call();
    begin(&mut call);
    drop(call.wait_for_close());
    let outcome = edge.outcome(1);
    assert_eq!(outcome.error(), (ErrorKind::Deadline, "timeout_sec has passed".to_owned()));
    edge.open_run(run(2, HI), Bytes::new());
    let call = provider.call();
    edge.shutdown(CloseReason::ConnectionLost);
    drop(call.wait_for_close());
    edge.closed();
    edge.make_ready(config_with_ollama(provider.address, 2, 0));
    edge.open_run(run(1, HI), Bytes::new());
    answer(provider.call(), &[DONE]);
    assert_eq!(edge.outcome(1).completion().0, "stop");
    assert!(node.metrics.text().contains("iop_node_normalized_runs_total{outcome=\"session_lost\"} 1"));
}

// req: WIR-6
#[test]
fn deltas_keep_to_the_credit_and_those_that_wait_are_merged() {
    const WINDOW: u32 = 64;
    let (edge, _node, provider) = ready(2);
    edge.open_run(RunRequest { window_bytes: WINDOW, ..run(1, HI) }, Bytes::new());
    let mut call = provider.call();
    begin(&mut call);
    assert_eq!(edge.event().kind, RunEventKind::Start);
    let word = "w\u{f6}rd ";
    let said = word.repeat(200);
    for _ in 0..200 {
        line(&mut call, &text(word));
    }
    line(&mut call, DONE);
    let kept = end(call);
    let delta = |event: proto::message::RunEvent| match event.kind {
        RunEventKind::Delta { text, .. } => text,
        other => panic!("{other:?}"),
    };
    let mut found = String::new();
    while found.len() < WINDOW as usize {
        found.push_str(&delta(edge.event()));
    }
    assert_eq!(found.len(), WINDOW as usize);
    // Not a byte more without credit, and another run is not held up by it.
    edge.is_quiet();
    edge.open_run(run(2, HI), Bytes::new());
    answer(provider.call(), &[&text("other"), DONE]);
    assert_eq!(edge.outcome(2).text, "other");
    let mut released = 0;
    let mut pieces = 0;
    loop {
        edge.release(1, found.len() - released);
        released = found.len();
        let event = edge.event();
        if matches!(event.kind, RunEventKind::Complete { .. }) {
            break;
        }
        let piece = delta(event);
        assert!(piece.len() <= WINDOW as usize / 2, "{}", piece.len());
        found.push_str(&piece);
        pieces += 1;
    }
    assert_eq!(found, said);
    assert!(pieces < 100, "{pieces} pieces of what waited");
    drop(kept);
    edge.open_run(RunRequest { window_bytes: 4, ..run(3, HI) }, Bytes::new());
    assert_eq!(edge.outcome(3).error().0, ErrorKind::InvalidRequest);
}

// req: WIR-9
#[test]
fn an_input_over_64_kib_arrives_in_chunks_and_a_wrong_length_is_refused() {
    let (edge, _node, provider) = ready(1);
    let long = "l\u{f6}ng ".repeat(50_000);
    let input = Bytes::from(json!({"messages": [{"role": "user", "text": long}]}).to_string());
    let request =
        |stream| RunRequest { input: Bytes::new(), input_bytes: input.len() as u64, ..run(stream, "") };
    edge.open_run(request(1), input.clone());
    let call = provider.call();
    assert_eq!(body(&call)["messages"][0]["content"], long);
    answer(call, &[DONE]);
    assert_eq!(edge.outcome(1).completion().0, "stop");
    edge.open_run(RunRequest { input_bytes: input.len() as u64 + 1, ..request(2) }, input);
    assert_eq!(edge.outcome(2).error().0, ErrorKind::InvalidRequest);
}

#[test]
fn a_prompt_that_was_cut_to_the_context_is_marked() {
    let (edge, node, provider) = ready_with(1, 2048);
    let long = json!({"messages": [{"role": "user", "text": "word ".repeat(4000)}]}).to_string();
    let done = |evaluated: u32| {
        json!({"done": true, "done_reason": "stop", "prompt_eval_count": evaluated}).to_string()
    };
    edge.open_run(run(1, &long), Bytes::new());
    let call = provider.call();
    assert_eq!(body(&call)["options"]["num_ctx"], 2048);
    let stream = answer(call, &[&done(2048)]);
    assert_eq!(edge.outcome(1).completion().2[PROMPT_TRUNCATED_KEY], "true");
    edge.open_run(run(2, &long), Bytes::new());
    let mut stream = answer(next_request(stream, 0), &[&done(1200)]);
    assert!(edge.outcome(2).completion().2.is_empty());
    assert!(node.metrics.text().contains("iop_node_prompts_truncated_total 1"));
    stream.flush().unwrap();

    // What the window is, Ollama says where the configuration does not; asked only when it matters.
    let (edge, _node, provider) = ready(1);
    edge.open_run(run(1, &long), Bytes::new());
    let stream = answer(provider.call(), &[&done(3900)]);
    let ask = next_request(stream, 0);
    assert_eq!(ask.asked.line(), "GET /api/ps HTTP/1.1");
    let loaded = json!({"models": [{"name": "qwen3:8b", "model": "qwen3:8b", "context_length": 4000}]});
    let stream = ask.answer("200 OK", &loaded.to_string());
    assert_eq!(edge.outcome(1).completion().2[PROMPT_TRUNCATED_KEY], "true");
    edge.open_run(run(2, &long), Bytes::new());
    let stream = answer(next_request(stream, 0), &[&done(5000)]);
    assert!(edge.outcome(2).completion().2.is_empty());
    drop(stream);
}
