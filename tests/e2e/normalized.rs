//! Normalized runs: a Node with an adapter of a language of its own, by hand, and clients of OpenAI's chat API.

use std::time::Duration;

use anyhow::{bail, ensure};
use iop_tests::{
    Edge, EdgeYaml, ProviderYaml, Site,
    http::{self, Answer, Raw},
};
use proto::{
    message::{Credit, ErrorKind, ExecutionError, Message, RunEventKind, RunRequest, Usage},
    run_input::{RunInput, TEXT_TOOL_FALLBACK_KEY, TOOL_CALLS_KEY},
};
use serde_json::{Value, json};

use crate::support::{
    MODEL, NODE, SOON, assert_broken_stream, assert_error, eventually,
    fake_node::{FakeNode, completed, said},
    provider_at, site, yaml,
};

/// An Edge whose Node has one Ollama server with `capacity` slots, as far as the Edge knows.
fn edge_with(site: &Site, capacity: u32, openai: &str) -> anyhow::Result<Edge> {
    let provider =
        ProviderYaml { capacity, ..ProviderYaml::ollama("o1", NODE, "http://127.0.0.1:9", &[MODEL]) };
    let file = EdgeYaml { openai: openai.to_owned(), ..yaml() };
    site.edge(&file.with(provider))
}

fn stage() -> anyhow::Result<(Site, Edge, FakeNode)> {
    let site = site()?;
    let edge = edge_with(&site, 4, "")?;
    let node = FakeNode::ready(&site, &edge, NODE)?;
    Ok((site, edge, node))
}

fn ask(site: &Site, edge: &Edge, body: &Value) -> anyhow::Result<Raw> {
    let mut client = Raw::connect(&edge.http)?;
    client.send(http::chat_request(site.token(), body))?;
    Ok(client)
}

fn body(stream: bool, more: &Value) -> Value {
    let mut body = http::chat_body(MODEL, stream, "");
    for (key, value) in more.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    body
}

fn input_of(run: &RunRequest) -> anyhow::Result<RunInput> {
    ensure!(run.input.len() as u64 == run.input_bytes, "the input is not whole");
    Ok(RunInput::from_json(&run.input)?)
}

/// The chunks of a stream that came whole.
fn chunks(answer: &Answer) -> anyhow::Result<Vec<Value>> {
    ensure!(answer.whole && answer.is_done(), "{} {}", answer.head, answer.text());
    let events = answer.events();
    events.iter().filter(|event| *event != "[DONE]").map(|event| Ok(serde_json::from_str(event)?)).collect()
}

fn deltas(chunks: &[Value]) -> Vec<Value> {
    chunks.iter().map(|chunk| chunk["choices"][0]["delta"].clone()).collect()
}

fn error(kind: ErrorKind, words: &str) -> RunEventKind {
    RunEventKind::Error(ExecutionError::new(kind, words))
}

// req: POL-7, RUN-2, RUN-6, RUN-7
#[test]
fn a_chat_request_becomes_a_run_and_its_events_a_stream() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    let hostile = json!({"adapter": "other", "target": "other", "working_dir": "/root", "session_id": "x"});
    let more = json!({
        "metadata": hostile, "temperature": 0.5, "stream_options": {"include_usage": true}, "adapter": "other", "target": "other"
    });
    let mut client = ask(&site, &edge, &body(true, &more))?;
    let run = node.run_request()?;
    ensure!((run.adapter.as_str(), run.target.as_str()) == ("o1-adapter", MODEL), "{run:?}");
    ensure!(run.metadata.len() == 4 && run.metadata["adapter"] == "other", "{run:?}");
    ensure!(run.session_id.is_empty() && run.timeout_sec == 3600 && run.response_stall_timeout_ms == 300_000);
    let input = input_of(&run)?;
    ensure!(input.messages[0].text == "Hello" && input.options.temperature == Some(0.5));
    let usage = Usage { input_tokens: Some(3), output_tokens: Some(2), ..Usage::default() };
    node.event(run.stream, 0, RunEventKind::Start)?;
    node.event(run.stream, 1, RunEventKind::Delta { text: "Hi".to_owned(), reasoning: "hm".to_owned() })?;
    node.event(run.stream, 2, RunEventKind::Usage(usage))?;
    node.event(run.stream, 3, said(" there"))?;
    node.event(run.stream, 4, completed("stop"))?;
    let answer = client.answer()?;
    ensure!(
        answer.status == 200 && answer.header("content-type") == Some("text/event-stream"),
        "{}",
        answer.head
    );
    ensure!(answer.header("x-iop-provider") == Some("o1") && answer.header("x-iop-tool-mode").is_none());
    let chunks = chunks(&answer)?;
    let text: String =
        deltas(&chunks).iter().filter_map(|delta| delta["content"].as_str().map(str::to_owned)).collect();
    ensure!(text == "Hi there", "{text}");
    ensure!(deltas(&chunks)[1] == json!({"reasoning_content": "hm", "reasoning": "hm"}), "{chunks:?}");
    ensure!(chunks.iter().all(|chunk| chunk["model"] == MODEL), "as the client named it");
    let last = chunks.last().cloned().unwrap_or_default();
    ensure!(last["choices"] == json!([]) && last["usage"]["total_tokens"] == 5, "{last}");
    // The slot is back and the connection as good as before.
    client.send(http::chat_request(site.token(), &body(false, &json!({}))))?;
    let run = node.run_request()?;
    node.say(run.stream, "again")?;
    let object = client.answer()?;
    ensure!(object.json()?["choices"][0]["message"]["content"] == "again", "{}", object.text());
    ensure!(object.header("content-length").is_some() && object.whole);
    Ok(())
}

// req: POL-7
#[test]
fn the_same_model_is_a_tunnel_at_one_provider_and_a_run_at_another() -> anyhow::Result<()> {
    let site = site()?;
    let tunnel = ProviderYaml { capacity: 1, ..provider_at("http://127.0.0.1:9/v1") };
    let native =
        ProviderYaml { capacity: 1, ..ProviderYaml::ollama("o1", NODE, "http://127.0.0.1:9", &[MODEL]) };
    let edge = site.edge(&yaml().with(tunnel).with(native))?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    for _ in 0..3 {
        let mut clients =
            [ask(&site, &edge, &body(false, &json!({})))?, ask(&site, &edge, &body(false, &json!({})))?];
        let (mut tunnels, mut runs) = (0, 0);
        while tunnels + runs < 2 {
            match node.next()? {
                Message::TunnelRequest(request) => {
                    tunnels += 1;
                    node.answer(request.stream, "{\"by\":\"p1\"}")?;
                }
                Message::RunRequest(run) => {
                    runs += 1;
                    node.say(run.stream, "o1")?;
                }
                Message::Credit(_) => {}
                other => bail!("unexpected: {}", other.name()),
            }
        }
        ensure!((tunnels, runs) == (1, 1), "{tunnels} tunnels, {runs} runs");
        let mut by = Vec::new();
        for client in &mut clients {
            let answer = client.answer()?;
            ensure!(answer.status == 200, "{}", answer.text());
            by.push(answer.header("x-iop-provider").unwrap_or_default().to_owned());
        }
        by.sort();
        ensure!(by == ["o1", "p1"], "{by:?}");
    }
    Ok(())
}

// req: RUN-3
#[test]
fn native_calls_of_a_completion_are_tool_calls_in_either_form() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    let calls = r#"[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]"#;
    let tools =
        json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]});
    for stream in [true, false] {
        let mut client = ask(&site, &edge, &body(stream, &tools))?;
        let run = node.run_request()?;
        ensure!(input_of(&run)?.tools[0].name == "f");
        // What looks like a call in the text of a run that is not marked stays text.
        let written = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
        node.event(run.stream, 0, RunEventKind::Start)?;
        node.event(run.stream, 1, said(written))?;
        node.event_with(run.stream, 2, completed("stop"), &[(TOOL_CALLS_KEY, calls)])?;
        let answer = client.answer()?;
        let (text, call, reason) = if stream {
            let chunks = chunks(&answer)?;
            let deltas = deltas(&chunks);
            let first = &deltas[2]["tool_calls"][0];
            ensure!(
                first["index"] == 0 && first["type"] == "function" && first["function"]["arguments"] == ""
            );
            let mut call = json!({"id": first["id"], "type": "function", "function": {"name": first["function"]["name"]}});
            call["function"]["arguments"] = deltas[3]["tool_calls"][0]["function"]["arguments"].clone();
            let reason = chunks.last().cloned().unwrap_or_default()["choices"][0]["finish_reason"].clone();
            (deltas[1]["content"].clone(), call, reason)
        } else {
            let object = answer.json()?;
            let choice = &object["choices"][0];
            let message = &choice["message"];
            (message["content"].clone(), message["tool_calls"][0].clone(), choice["finish_reason"].clone())
        };
        ensure!(text == written && reason == "tool_calls", "{text} {reason}");
        ensure!(json!([call]) == serde_json::from_str::<Value>(calls)?, "{call}");
    }
    Ok(())
}

// req: RUN-4
#[test]
fn calls_in_the_text_of_a_marked_run_are_tool_calls_and_the_response_says_so() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    let tools = json!({"tools": [{"type": "function", "function": {"name": "f"}}]});
    let mut client = ask(&site, &edge, &body(true, &tools))?;
    let run = node.run_request()?;
    let marked = [(TEXT_TOOL_FALLBACK_KEY, "true")];
    node.event_with(run.stream, 0, RunEventKind::Start, &marked)?;
    let unknown = "<tool_call>{\"name\":\"g\"}</tool_call>";
    for (sequence, part) in (1..).zip([
        "Look: <tool",
        "_call>{\"name\": \"f\", \"argum",
        "ents\": {\"a\": 1}}</tool_call>",
        unknown,
    ]) {
        node.event(run.stream, sequence, said(part))?;
    }
    node.event_with(run.stream, 5, completed("stop"), &marked)?;
    let answer = client.answer()?;
    ensure!(answer.header("x-iop-tool-mode") == Some("text"), "{}", answer.head);
    let chunks = chunks(&answer)?;
    let deltas = deltas(&chunks);
    ensure!(deltas[1]["content"] == "Look: ", "{deltas:?}");
    ensure!(deltas[2]["tool_calls"][0]["function"]["name"] == "f", "{deltas:?}");
    ensure!(deltas[3]["tool_calls"][0]["function"]["arguments"] == "{\"a\":1}", "{deltas:?}");
    ensure!(
        deltas[2]["tool_calls"][0]["id"].as_str().is_some_and(|id| id.starts_with("call_")),
        "{deltas:?}"
    );
    ensure!(deltas[4]["content"] == unknown, "{deltas:?}");
    ensure!(chunks.last().cloned().unwrap_or_default()["choices"][0]["finish_reason"] == "tool_calls");
    let is_counted = || {
        let metrics = http::get(&edge.ops, "/metrics", None)?.text();
        Ok(http::metric(&metrics, "iop_edge_text_tools_unknown_total") == Some(1.0))
    };
    eventually(SOON, "the call of no function of the request is counted", is_counted)
}

// req: API-1
#[test]
fn a_run_that_fails_has_a_status_of_its_own_before_its_first_word_and_a_broken_end_after_it()
-> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    for (kind, status, code) in [
        (ErrorKind::InvalidRequest, 400, None),
        (ErrorKind::Connect, 502, Some("upstream_error")),
        (ErrorKind::Stalled, 504, Some("timeout")),
        (ErrorKind::Deadline, 504, Some("timeout")),
        (ErrorKind::Internal, 500, None),
    ] {
        for started in [false, true] {
            let mut client = ask(&site, &edge, &body(true, &json!({})))?;
            let run = node.run_request()?;
            if started {
                node.event(run.stream, 0, RunEventKind::Start)?;
            }
            node.event(run.stream, u64::from(started), error(kind, "model \"m1\"\nnot found"))?;
            let answer = client.answer()?;
            assert_error(&answer, status, code);
            let told = answer.text().contains("model \\\"m1\\\" not found");
            ensure!(told == (status == 400), "the words are told of a refusal alone: {}", answer.text());
        }
    }
    let mut client = ask(&site, &edge, &body(true, &json!({})))?;
    let run = node.run_request()?;
    node.event(run.stream, 0, RunEventKind::Start)?;
    node.event(run.stream, 1, said("half"))?;
    client.wait_for("half")?;
    node.event(run.stream, 2, error(ErrorKind::UpstreamTruncated, "cut"))?;
    let head = client.read_head()?;
    assert_broken_stream(&client.body_of(head)?, "upstream_error");
    // Nothing of an answer in one piece has been sent, so it has its status still.
    let mut client = ask(&site, &edge, &body(false, &json!({})))?;
    let run = node.run_request()?;
    node.event(run.stream, 0, RunEventKind::Start)?;
    node.event(run.stream, 1, said("half"))?;
    node.event(run.stream, 2, error(ErrorKind::UpstreamTruncated, "cut"))?;
    assert_error(&client.answer()?, 502, Some("upstream_error"));
    Ok(())
}

#[test]
fn what_is_wrong_with_a_request_is_the_clients_to_know_and_takes_no_slot() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_with(&site, 1, "")?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    let image = json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://h/x"}}]}]});
    for (more, param) in [
        (json!({"n": 2}), "n"),
        (image, "messages[0].content[0].image_url.url"),
        (json!({"messages": 5}), "messages"),
    ] {
        let answer = ask(&site, &edge, &body(true, &more))?.answer()?;
        assert_error(&answer, 400, None);
        ensure!(answer.json()?["error"]["param"] == param, "{}", answer.text());
        ensure!(answer.header("x-should-retry") == Some("false"));
    }
    node.is_heard()?;
    let mut client = ask(&site, &edge, &body(false, &json!({})))?;
    let run = node.run_request()?;
    node.say(run.stream, "fine")?;
    ensure!(client.answer()?.status == 200, "the one slot is free");
    Ok(())
}

// req: GAT-2
#[test]
fn a_node_that_is_full_is_asked_once_more() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    let mut client = ask(&site, &edge, &body(true, &json!({})))?;
    let run = node.run_request()?;
    node.event(run.stream, 0, error(ErrorKind::Busy, "full"))?;
    let again = node.run_request()?;
    ensure!(again.stream != run.stream && again.input == run.input, "the same input once more");
    node.say(again.stream, "fine")?;
    let answer = client.answer()?;
    ensure!(answer.is_done() && answer.header("x-iop-attempts") == Some("2"), "{}", answer.head);
    let mut client = ask(&site, &edge, &body(true, &json!({})))?;
    for _ in 0..2 {
        let run = node.run_request()?;
        node.event(run.stream, 0, error(ErrorKind::Busy, "full"))?;
    }
    assert_error(&client.answer()?, 503, Some("overloaded"));
    Ok(())
}

// req: RUN-5
#[test]
fn runs_of_one_session_are_runs_of_their_own() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = Raw::connect(&edge.http)?;
        let request = http::chat_request(site.token(), &body(false, &json!({})));
        let head = b"POST /v1/chat/completions HTTP/1.1\r\n";
        client.send([&head[..], b"x-session-id: ses_1\r\n", &request[head.len()..]].concat())?;
        clients.push(client);
    }
    let runs = [node.run_request()?, node.run_request()?];
    ensure!(runs.iter().all(|run| run.session_id == "ses_1"), "{runs:?}");
    ensure!(runs[0].stream != runs[1].stream && runs[0].run_id != runs[1].run_id);
    // The second one ends first, with a text of its own.
    node.say(runs[1].stream, &runs[1].run_id)?;
    node.say(runs[0].stream, &runs[0].run_id)?;
    for client in &mut clients {
        let answer = client.answer()?;
        let own = answer.header("x-request-id").unwrap_or_default().to_owned();
        ensure!(answer.json()?["choices"][0]["message"]["content"] == *own, "{}", answer.text());
    }
    Ok(())
}

// req: WIR-9, WIR-6
#[test]
fn an_input_over_64_kib_follows_its_request_in_parts_under_credit() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    // The second one is so large that it is read beside its shard.
    for words in [20_000, 200_000] {
        let long = "a word ".repeat(words);
        let more = json!({"messages": [{"role": "user", "content": long}]});
        let mut client = ask(&site, &edge, &body(false, &more))?;
        let run = node.run_request()?;
        ensure!(run.input.is_empty() && run.input_bytes > 7 * words as u64, "{}", run.input_bytes);
        let mut input = Vec::new();
        loop {
            let Message::BodyChunk(chunk) = node.next()? else { continue };
            ensure!(chunk.stream == run.stream);
            input.extend_from_slice(&chunk.data);
            if chunk.last {
                break;
            }
            let bytes = u32::try_from(chunk.data.len())?;
            node.send(&Message::Credit(Credit { stream: run.stream, bytes }))?;
        }
        ensure!(input.len() as u64 == run.input_bytes);
        ensure!(RunInput::from_json(&input)?.messages[0].text == long);
        node.say(run.stream, "read")?;
        ensure!(client.answer()?.status == 200);
        let wrong =
            json!({"messages": [{"role": "user", "content": long}, {"role": "wizard", "content": ""}]});
        let refused = ask(&site, &edge, &body(false, &wrong))?.answer()?;
        assert_error(&refused, 400, None);
        ensure!(refused.json()?["error"]["param"] == "messages[1].role", "{}", refused.text());
    }
    Ok(())
}

// req: WIR-6
#[test]
fn credit_comes_back_as_an_answer_drains_also_one_that_is_gathered() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    let part = "x".repeat(32 * 1024);
    for stream in [true, false] {
        let mut client = ask(&site, &edge, &body(stream, &json!({})))?;
        // A client that does not read would be waited for.
        let reader = std::thread::spawn(move || client.answer());
        let run = node.run_request()?;
        node.event(run.stream, 0, RunEventKind::Start)?;
        let (mut credit, mut sequence, mut sent) = (run.window_bytes as usize, 1, 0);
        while sent < 3 * run.window_bytes as usize {
            if credit >= part.len() {
                node.event(run.stream, sequence, said(&part))?;
                (credit, sequence, sent) = (credit - part.len(), sequence + 1, sent + part.len());
                continue;
            }
            match node.next()? {
                Message::Credit(more) if more.stream == run.stream => credit += more.bytes as usize,
                other => bail!("expected credit, got {}", other.name()),
            }
        }
        node.event(run.stream, sequence, completed("length"))?;
        let answer = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
        let text: String = if stream {
            let deltas = deltas(&chunks(&answer)?);
            deltas.iter().filter_map(|delta| delta["content"].as_str()).collect()
        } else {
            answer.json()?["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
        };
        ensure!(text.len() == sent, "{} of {sent} bytes", text.len());
    }
    Ok(())
}

// req: CAN-1, POL-11
#[test]
fn a_client_that_leaves_stops_its_run() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    for stream in [true, false] {
        let mut client = ask(&site, &edge, &body(stream, &json!({})))?;
        let run = node.run_request()?;
        node.event(run.stream, 0, RunEventKind::Start)?;
        node.event(run.stream, 1, said("word"))?;
        if stream {
            client.wait_for("word")?;
        }
        drop(client);
        loop {
            match node.next()? {
                Message::Cancel(cancel) if cancel.stream == run.stream => break,
                Message::Credit(_) => {}
                other => bail!("expected a cancel, got {}", other.name()),
            }
        }
        // What comes late concerns nobody.
        node.event(run.stream, 2, said("late"))?;
        node.event(run.stream, 3, RunEventKind::Cancelled)?;
        eventually(SOON, "the slot is back", || {
            let metrics = http::get(&edge.ops, "/metrics", None)?.text();
            Ok(http::metric(&metrics, "iop_edge_leases_held") == Some(0.0))
        })?;
    }
    Ok(())
}

#[test]
fn a_silent_stream_is_kept_alive_by_comments_and_empty_events() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_with(&site, 1, "  keepalive: { comment_ms: 100, event_ms: 350 }\n")?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    let mut client = ask(&site, &edge, &body(true, &json!({})))?;
    let run = node.run_request()?;
    node.event(run.stream, 0, RunEventKind::Start)?;
    // The response begins by it, with nothing said by the model.
    client.wait_for(": ka\n")?;
    client.wait_for("\"role\":\"assistant\"")?;
    client.wait_for("\"delta\":{\"content\":\"\"}")?;
    node.event(run.stream, 1, said("word"))?;
    node.event(run.stream, 2, completed("stop"))?;
    let head = client.read_head()?;
    let answer = client.body_of(head)?;
    let text = answer.text();
    ensure!(text.matches(": ka\n").count() >= 3 && !text.contains(": ka\n\n"), "one line each: {text}");
    let said: Vec<_> =
        deltas(&chunks(&answer)?).into_iter().filter(|delta| delta["content"] == "word").collect();
    ensure!(said.len() == 1, "{text}");
    // A failure behind a comment is told as any other.
    let mut client = ask(&site, &edge, &body(true, &json!({})))?;
    let run = node.run_request()?;
    node.event(run.stream, 0, RunEventKind::Start)?;
    client.wait_for(": ka\n")?;
    node.event(run.stream, 1, error(ErrorKind::Stalled, ""))?;
    let head = client.read_head()?;
    assert_broken_stream(&client.body_of(head)?, "timeout");
    // An answer in one piece waits in silence.
    let mut client = ask(&site, &edge, &body(false, &json!({})))?;
    let run = node.run_request()?;
    node.event(run.stream, 0, RunEventKind::Start)?;
    client.stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    ensure!(client.fill().is_err(), "nothing is said before it");
    client.stream.set_read_timeout(Some(http::PATIENCE))?;
    node.event(run.stream, 1, completed("stop"))?;
    ensure!(client.answer()?.status == 200);
    Ok(())
}

#[test]
fn a_node_that_answers_a_run_as_a_tunnel_or_a_tunnel_as_a_run_serves_nothing_by_it() -> anyhow::Result<()> {
    let (site, edge, mut node) = stage()?;
    let mut client = ask(&site, &edge, &body(true, &json!({})))?;
    let run = node.run_request()?;
    node.answer(run.stream, "{}")?;
    assert_error(&client.answer()?, 502, Some("upstream_error"));
    let mut client = ask(&site, &edge, &body(true, &json!({})))?;
    let run = node.run_request()?;
    node.say(run.stream, "fine")?;
    ensure!(client.answer()?.is_done(), "and goes on serving");
    Ok(())
}
