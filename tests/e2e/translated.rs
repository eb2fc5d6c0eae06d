//! Clients of messages and responses at providers that have chat completions only, at native backends, and at groups of all kinds.

use anyhow::{Context, bail, ensure};
use iop_tests::{
    Edge, EdgeYaml, Process, ProviderYaml, Site,
    http::{self, Answer, Raw},
    scripted::{Call, Scripted},
};
use proto::{
    message::{ErrorKind, ExecutionError, Message, Operation, RunEventKind, Usage},
    run_input::{Effort, Role, RunInput, TOOL_CALLS_KEY},
};
use serde_json::{Value, json};

use crate::support::{
    MODEL, NODE, SOON, eventually,
    fake_node::{FakeNode, completed, said},
    metric, provider_at, site, start_node, yaml,
};

/// The surfaces that are translated: path and label.
const SURFACES: [(&str, &str); 2] = [("/v1/messages", "messages"), ("/v1/responses", "responses")];

/// A real Edge and Node, and a provider that has chat completions only.
struct Rig {
    _node: Process,
    edge: Edge,
    site: Site,
    server: Scripted,
}

impl Rig {
    fn start() -> anyhow::Result<Self> {
        Self::with("", "")
    }

    fn with(openai: &str, model_extra: &str) -> anyhow::Result<Self> {
        let (site, server) = (site()?, Scripted::bind()?);
        let file = EdgeYaml { openai: openai.to_owned(), model_extra: model_extra.to_owned(), ..yaml() };
        let edge = site.edge(&file.with(provider_at(&server.base_url()?)))?;
        let (node, _) = start_node(&site, NODE, &edge.node)?;
        Ok(Self { _node: node, edge, site, server })
    }

    fn send(&self, path: &str, body: &Value) -> anyhow::Result<Raw> {
        send(&self.site, &self.edge, path, body)
    }

    /// A request that reaches the provider, and what that is asked.
    fn begin(&mut self, path: &str, body: &Value) -> anyhow::Result<(Raw, Call, Value)> {
        let client = self.send(path, body)?;
        let call = self.server.next_call()?;
        ensure!(call.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{}", call.head);
        let asked = serde_json::from_slice(&call.body)?;
        Ok((client, call, asked))
    }

    /// What a client gets whose provider answers so.
    fn answered(&mut self, path: &str, body: &Value, answer: &str) -> anyhow::Result<Answer> {
        let (mut client, mut call, _) = self.begin(path, body)?;
        call.write(answer.as_bytes())?;
        let answer = client.answer()?;
        self.server.keep(call);
        Ok(answer)
    }

    fn counts(&self, route: &str, outcome: &str, count: f64) -> anyhow::Result<()> {
        let series = format!("iop_edge_requests_total{{outcome=\"{outcome}\",route=\"{route}\"}}");
        eventually(SOON, outcome, || Ok(metric(&self.edge, &series)? == count))
    }
}

fn send(site: &Site, edge: &Edge, path: &str, body: &Value) -> anyhow::Result<Raw> {
    let mut client = Raw::connect(&edge.http)?;
    client.send(http::post(path, site.token(), body.to_string().as_bytes()))?;
    Ok(client)
}

/// A question about the weather, with a function for it, in the words of a surface.
fn question(path: &str, stream: bool) -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    if path == "/v1/messages" {
        json!({"model": MODEL, "stream": stream, "max_tokens": 50, "system": "be brief",
            "messages": [{"role": "user", "content": "Weather?"}],
            "tools": [{"name": "weather", "input_schema": schema}]})
    } else {
        json!({"model": MODEL, "stream": stream, "instructions": "be brief", "input": "Weather?",
            "tools": [{"type": "function", "name": "weather", "parameters": schema, "strict": false}]})
    }
}

/// Thinking, text and a call whose arguments come in pieces, as engines stream them.
fn chunks() -> Vec<Value> {
    let delta = |delta: Value| {
        json!({"id": "x", "object": "chat.completion.chunk", "model": "served",
            "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
    };
    vec![
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"reasoning_content": "hm"})),
        delta(json!({"content": "Let me "})),
        delta(json!({"content": "see."})),
        delta(json!({"tool_calls": [{"index": 0, "id": "call_a", "type": "function",
            "function": {"name": "weather", "arguments": ""}}]})),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"city\""}}]})),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": ":\"Oslo\"}"}}]})),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        json!({"choices": [], "usage": usage()}),
    ]
}

fn usage() -> Value {
    json!({"prompt_tokens": 21, "completion_tokens": 9, "total_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 4}})
}

fn events(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

fn stream_head() -> String {
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        .to_owned()
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

fn streamed() -> String {
    format!("{}{}0\r\n\r\n", stream_head(), chunk(&format!("{}data: [DONE]\n\n", events(&chunks()))))
}

fn with_length(status: &str, more: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\n{more}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn whole() -> String {
    let body = json!({"id": "x", "object": "chat.completion", "model": "served",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant",
            "content": "Let me see.", "reasoning_content": "hm",
            "tool_calls": [{"id": "call_a", "type": "function",
                "function": {"name": "weather", "arguments": "{\"city\":\"Oslo\"}"}}]}}],
        "usage": usage()});
    with_length("200 OK", "", &body.to_string())
}

/// What a client of any surface has understood.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    thinking: String,
    text: String,
    call: Option<(String, String, Value)>,
    reason: String,
    input_tokens: u64,
    output_tokens: u64,
}

fn expected(path: &str) -> Heard {
    Heard {
        thinking: "hm".to_owned(),
        text: "Let me see.".to_owned(),
        call: Some(("call_a".to_owned(), "weather".to_owned(), json!({"city": "Oslo"}))),
        reason: if path == "/v1/messages" { "tool_use" } else { "completed" }.to_owned(),
        input_tokens: if path == "/v1/messages" { 17 } else { 21 },
        output_tokens: 9,
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Reads an answer as the official SDKs put it together; what does not fit its surface's rules is an error.
fn heard(path: &str, answer: &Answer) -> anyhow::Result<Heard> {
    ensure!(answer.status == 200 && answer.whole, "{}\n{}", answer.head, answer.text());
    ensure!(answer.header("x-iop-provider").is_some(), "{}", answer.head);
    let is_stream = answer.header("content-type") == Some("text/event-stream");
    let object = match (path, is_stream) {
        ("/v1/messages", true) => accumulated(answer)?,
        (_, true) => completed_response(answer)?,
        (_, false) => answer.json()?,
    };
    ensure!(object["model"] == MODEL, "as the client named it: {object}");
    let mut heard = Heard {
        input_tokens: object["usage"]["input_tokens"].as_u64().unwrap_or_default(),
        output_tokens: object["usage"]["output_tokens"].as_u64().unwrap_or_default(),
        ..Heard::default()
    };
    if path == "/v1/messages" {
        heard.reason = text(&object["stop_reason"]);
        for block in object["content"].as_array().context("content")? {
            match block["type"].as_str() {
                Some("thinking") => heard.thinking += &text(&block["thinking"]),
                Some("text") => heard.text += &text(&block["text"]),
                Some("tool_use") => {
                    heard.call = Some((text(&block["id"]), text(&block["name"]), block["input"].clone()));
                }
                other => bail!("{other:?}"),
            }
        }
        return Ok(heard);
    }
    heard.reason = text(&object["status"]);
    for item in object["output"].as_array().context("output")? {
        match item["type"].as_str() {
            Some("reasoning") => heard.thinking += &text(&item["content"][0]["text"]),
            Some("message") => heard.text += &text(&item["content"][0]["text"]),
            Some("function_call") => {
                let arguments = serde_json::from_str(item["arguments"].as_str().unwrap_or_default())?;
                heard.call = Some((text(&item["call_id"]), text(&item["name"]), arguments));
            }
            other => bail!("{other:?}"),
        }
    }
    Ok(heard)
}

/// A streamed message, put together by index as Anthropic's SDKs do.
fn accumulated(answer: &Answer) -> anyhow::Result<Value> {
    let mut message = Value::Null;
    let (mut open, mut arguments) = (None, String::new());
    for event in answer.events() {
        let event: Value = serde_json::from_str(&event)?;
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                ensure!(message.is_null(), "begun twice");
                message = event["message"].clone();
            }
            "content_block_start" => {
                let blocks = message["content"].as_array_mut().context("not begun")?;
                ensure!(open.is_none() && event["index"] == blocks.len(), "{event}");
                open = Some(blocks.len());
                arguments.clear();
                blocks.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                let block = &mut message["content"][open.context("no block")?];
                ensure!(event["index"] == open.unwrap_or_default(), "{event}");
                let delta = &event["delta"];
                let (kind, member) = match delta["type"].as_str() {
                    Some("text_delta") => ("text", "text"),
                    Some("thinking_delta") => ("thinking", "thinking"),
                    Some("input_json_delta") => {
                        ensure!(block["type"] == "tool_use", "{event}");
                        arguments += delta["partial_json"].as_str().context("arguments")?;
                        continue;
                    }
                    Some("signature_delta") => continue,
                    other => bail!("{other:?}"),
                };
                ensure!(block["type"] == kind, "{event} in {block}");
                block[member] = format!("{}{}", text(&block[member]), text(&delta[member])).into();
            }
            "content_block_stop" => {
                let block = &mut message["content"][open.take().context("no block")?];
                if block["type"] == "tool_use" && !arguments.is_empty() {
                    block["input"] = serde_json::from_str(&arguments)?;
                }
            }
            "message_delta" => {
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                for (name, value) in event["usage"].as_object().context("usage")? {
                    message["usage"][name] = value.clone();
                }
            }
            "message_stop" => ensure!(open.is_none(), "a block is open"),
            "ping" => {}
            other => bail!("{other}"),
        }
    }
    let last = answer.events().last().cloned().unwrap_or_default();
    ensure!(last.contains("message_stop"), "{last}");
    Ok(message)
}

/// The response that a stream ends with, its events numbered and its deltas the same text.
fn completed_response(answer: &Answer) -> anyhow::Result<Value> {
    ensure!(answer.is_done(), "{}", answer.text());
    let (mut deltas, mut arguments) = (String::new(), String::new());
    let events: Vec<Value> = answer
        .events()
        .iter()
        .filter(|event| *event != "[DONE]")
        .map(|event| Ok(serde_json::from_str(event)?))
        .collect::<anyhow::Result<_>>()?;
    for (number, event) in events.iter().enumerate() {
        ensure!(event["sequence_number"] == number, "{event}");
        match event["type"].as_str() {
            Some("response.output_text.delta") => deltas += &text(&event["delta"]),
            Some("response.function_call_arguments.delta") => arguments += &text(&event["delta"]),
            _ => {}
        }
    }
    ensure!(events[0]["type"] == "response.created" && events[1]["type"] == "response.in_progress");
    let last = events.last().context("no event")?;
    ensure!(last["type"] == "response.completed", "{last}");
    let output = last["response"]["output"].as_array().context("output")?;
    for item in output {
        ensure!(item["type"] != "message" || item["content"][0]["text"] == deltas, "{item} is not {deltas}");
        ensure!(
            item["type"] != "function_call" || item["arguments"] == arguments,
            "{item} is not {arguments}"
        );
    }
    Ok(last["response"].clone())
}

/// Checks an error before the first byte, and gives its type.
fn refused(path: &str, answer: &Answer, status: u16) -> anyhow::Result<String> {
    ensure!(answer.status == status && answer.whole, "{}\n{}", answer.head, answer.text());
    let body = answer.json()?;
    ensure!(body["error"]["message"].as_str().is_some_and(|words| !words.is_empty()), "{body}");
    ensure!(path != "/v1/messages" || body["type"] == "error", "{body}");
    Ok(text(&body["error"]["type"]))
}

// req: POL-7
// Cases 59, 64, 69.
#[test]
fn a_provider_with_chat_alone_serves_messages_and_responses_in_either_form() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    for (path, route) in SURFACES {
        for stream in [true, false] {
            let (mut client, mut call, asked) = rig.begin(path, &question(path, stream))?;
            assert_eq!(asked["model"], MODEL);
            let says = [
                json!({"role": "system", "content": "be brief"}),
                json!({"role": "user", "content": "Weather?"}),
            ];
            assert_eq!(asked["messages"], json!(says), "{route}");
            assert_eq!(asked["tools"][0]["function"]["name"], "weather");
            assert_eq!(asked["tools"][0]["function"]["parameters"]["properties"]["city"]["type"], "string");
            assert_eq!(asked.get("stream"), stream.then_some(&json!(true)));
            assert_eq!(
                asked["stream_options"]["include_usage"],
                if stream { json!(true) } else { Value::Null }
            );
            if route == "messages" {
                assert_eq!(asked["max_tokens"], 50);
            }
            call.write(if stream { streamed() } else { whole() }.as_bytes())?;
            assert_eq!(heard(path, &client.answer()?)?, expected(path), "{route} {stream}");
            rig.server.keep(call);
            // A provider that answers in the other form is understood as well.
            let answer = if stream { whole() } else { streamed() };
            let answer = rig.answered(path, &question(path, stream), &answer)?;
            assert_eq!(heard(path, &answer)?, expected(path), "{route} {stream}");
        }
        rig.counts(route, "ok", 4.0)?;
    }
    Ok(())
}

#[test]
fn what_was_called_and_answered_before_goes_to_the_provider_as_chat_has_it() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    let messages = json!({"model": MODEL, "max_tokens": 9, "messages": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "tool_use", "id": "call_a", "name": "weather", "input": {"city": "Oslo"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_a", "content": "rain"},
            {"type": "text", "text": "and?"}]}]});
    let responses = json!({"model": MODEL, "input": [
        {"role": "user", "content": "Weather?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "call_a", "name": "weather", "arguments": "{\"city\":\"Oslo\"}"},
        {"type": "function_call_output", "call_id": "call_a", "output": "rain"},
        {"role": "user", "content": "and?"}]});
    for (path, body) in [("/v1/messages", messages), ("/v1/responses", responses)] {
        let (mut client, mut call, asked) = rig.begin(path, &body)?;
        let arguments = asked["messages"][1]["tool_calls"][0]["function"]["arguments"].clone();
        let arguments: Value = serde_json::from_str(arguments.as_str().unwrap_or_default())?;
        assert_eq!(arguments, json!({"city": "Oslo"}), "{path}");
        assert_eq!(asked["messages"][1]["tool_calls"][0]["id"], "call_a", "{path}");
        assert_eq!(asked["messages"][1]["reasoning_content"], "hm", "{path}");
        assert_eq!(
            asked["messages"][2],
            json!({"role": "tool", "content": "rain", "tool_call_id": "call_a"})
        );
        assert_eq!(asked["messages"][3], json!({"role": "user", "content": "and?"}), "{path}");
        call.write(whole().as_bytes())?;
        assert_eq!(client.answer()?.status, 200);
        rig.server.keep(call);
    }
    Ok(())
}

// Case 60.
#[test]
fn the_first_piece_of_an_argument_is_passed_on_before_the_rest_is_there() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    let parts = chunks();
    for (path, _) in SURFACES {
        let (mut client, mut call, _) = rig.begin(path, &question(path, true))?;
        call.write(format!("{}{}", stream_head(), chunk(&events(&parts[..6]))).as_bytes())?;
        // Messages hold a key back up to its value.
        client.wait_for(if path == "/v1/messages" { "partial_json\":\"{" } else { "{\\\"city\\\"" })?;
        call.write(
            format!("{}0\r\n\r\n", chunk(&format!("{}data: [DONE]\n\n", events(&parts[6..])))).as_bytes(),
        )?;
        client.wait_for("Oslo")?;
        rig.server.keep(call);
    }
    Ok(())
}

// req: API-1, API-2, CRD-6
#[test]
fn a_provider_that_refuses_is_told_in_the_language_of_the_surface_with_its_status() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    for (path, _) in SURFACES {
        let kind = |openai, anthropic| if path == "/v1/messages" { anthropic } else { openai };
        let invalid = "invalid_request_error";
        for (status, more, body, expected, code, words) in [
            (400, "", r#"{"error":{"message":"bad\nx","code":400}}"#, (invalid, invalid), None, "bad x"),
            (
                400,
                "",
                r#"{"object":"error","message":"maximum context length is 8","code":400}"#,
                (invalid, invalid),
                Some("context_length_exceeded"),
                "maximum context length is 8",
            ),
            (
                404,
                "",
                r#"{"error":{"message":"no model"}}"#,
                (invalid, "not_found_error"),
                Some("model_not_found"),
                "no model",
            ),
            (
                401,
                "",
                r#"{"error":{"message":"key sk-secret"}}"#,
                (invalid, "authentication_error"),
                Some("upstream_error"),
                "credential",
            ),
            (
                429,
                "retry-after: 500\r\n",
                r#"{"error":"slow"}"#,
                ("rate_limit_error", "rate_limit_error"),
                Some("rate_limit_exceeded"),
                "slow",
            ),
            (500, "", "<html>", ("server_error", "api_error"), Some("upstream_error"), "failed"),
            (
                503,
                "retry-after: 3\r\n",
                "",
                ("server_error", "overloaded_error"),
                Some("overloaded"),
                "failed",
            ),
        ] {
            for stream in [true, false] {
                let answer = rig.answered(
                    path,
                    &question(path, stream),
                    &with_length(&format!("{status} X"), more, body),
                )?;
                assert_eq!(refused(path, &answer, status)?, kind(expected.0, expected.1), "{path} {body}");
                let told = answer.json()?;
                assert!(told["error"]["message"].as_str().unwrap_or_default().contains(words), "{told}");
                assert!(!answer.text().contains("sk-secret"), "{told}");
                if path != "/v1/messages" {
                    assert_eq!(told["error"]["code"].as_str(), code, "{told}");
                }
                let after = match status {
                    429 => Some("60"),
                    503 => Some("3"),
                    _ => None,
                };
                assert_eq!(answer.header("retry-after"), after, "{path} {status}");
                assert_eq!(
                    answer.header("x-should-retry"),
                    (status < 429).then_some("false"),
                    "{path} {status}"
                );
                assert_eq!(answer.header("x-iop-provider"), Some("p1"));
            }
        }
        // In the place of the first chunk it has a status as well.
        let event = "data: {\"error\":{\"message\":\"no memory\",\"code\":503}}\n\ndata: [DONE]\n\n";
        let answer = rig.answered(
            path,
            &question(path, true),
            &format!("{}{}0\r\n\r\n", stream_head(), chunk(event)),
        )?;
        assert_eq!(refused(path, &answer, 503)?, kind("server_error", "overloaded_error"));
        // What is no answer at all.
        let answer = rig.answered(path, &question(path, false), &with_length("200 OK", "", "{\"x\":1}"))?;
        assert_eq!(refused(path, &answer, 502)?, kind("server_error", "api_error"));
    }
    Ok(())
}

// req: API-1
#[test]
fn a_stream_that_breaks_after_its_first_word_never_ends_like_one_that_succeeded() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    let begun = events(&chunks()[..4]);
    for (path, route) in SURFACES {
        for (more, outcome) in [
            // Its framing ends well, and its end is not there.
            (String::new(), "upstream_truncated"),
            ("data: {\"error\":{\"message\":\"no memory\"}}\n\n".to_owned(), "provider_failed"),
            ("data: {}}\n\n".to_owned(), "upstream_protocol"),
        ] {
            let (mut client, mut call, _) = rig.begin(path, &question(path, true))?;
            call.write(format!("{}{}", stream_head(), chunk(&begun)).as_bytes())?;
            client.wait_for("see.")?;
            let more = if more.is_empty() { more } else { chunk(&more) };
            call.write(format!("{more}0\r\n\r\n").as_bytes())?;
            let answer = client.answer()?;
            rig.server.keep(call);
            let text = answer.text();
            assert!(answer.status == 200 && !answer.whole, "{text}");
            assert!(text.contains("see."), "what was said is there: {text}");
            if route == "messages" {
                let last = text.trim_end().rsplit("\n\n").next().unwrap_or_default();
                assert!(last.starts_with("event: error\ndata: {\"type\":\"error\""), "{last}");
                assert!(!text.contains("message_stop") && !text.contains("message_delta"), "{text}");
            } else {
                let events: Vec<_> = text.trim_end().rsplit("\n\n").take(3).collect();
                assert_eq!(events[0], "data: [DONE]");
                assert!(events[1].starts_with("event: response.failed\n"), "{text}");
                assert!(events[2].starts_with("event: error\n"), "{text}");
                assert!(!text.contains("response.completed"), "{text}");
            }
            rig.counts(route, outcome, 1.0)?;
        }
        // The connection itself breaks.
        let (mut client, mut call, _) = rig.begin(path, &question(path, true))?;
        call.write(format!("{}{}", stream_head(), chunk(&begun)).as_bytes())?;
        client.wait_for("see.")?;
        drop(call);
        client.wait_for(if route == "messages" { "event: error" } else { "response.failed" })?;
        rig.counts(route, "upstream_truncated", 2.0)?;
    }
    Ok(())
}

// req: TUN-4
#[test]
fn a_client_that_leaves_stops_the_provider_and_one_that_has_its_end_has_its_answer() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    for (path, route) in SURFACES {
        let (mut client, mut call, _) = rig.begin(path, &question(path, true))?;
        call.write(format!("{}{}", stream_head(), chunk(&events(&chunks()[..4]))).as_bytes())?;
        client.wait_for("see.")?;
        drop(client);
        eventually(SOON, "the provider is left", || call.is_left())?;
        rig.counts(route, "client_gone", 1.0)?;

        // The provider's own end is still to come.
        let (mut client, mut call, _) = rig.begin(path, &question(path, true))?;
        let said = format!("{}data: [DONE]\n\n", events(&chunks()));
        call.write(format!("{}{}", stream_head(), chunk(&said)).as_bytes())?;
        client.wait_for(if route == "messages" { "message_stop\"}" } else { "data: [DONE]" })?;
        drop(client);
        rig.counts(route, "ok", 1.0)?;
        rig.counts(route, "client_gone", 1.0)?;
    }
    Ok(())
}

// req: CFG-5
#[test]
fn limits_of_the_model_hold_for_what_the_edge_writes_as_well() -> anyhow::Result<()> {
    let mut rig = Rig::with("", "default_max_tokens: 70, min_max_tokens: 60")?;
    for (path, sent, expected) in [
        ("/v1/messages", json!({"max_tokens": 5}), 60),
        ("/v1/messages", json!({"max_tokens": 500}), 500),
        ("/v1/responses", json!({}), 70),
        ("/v1/responses", json!({"max_output_tokens": 20}), 60),
    ] {
        let mut body = question(path, false);
        for (name, value) in sent.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let (mut client, mut call, asked) = rig.begin(path, &body)?;
        assert_eq!(asked["max_tokens"], expected, "{path} {sent}");
        call.write(whole().as_bytes())?;
        assert_eq!(client.answer()?.status, 200);
        rig.server.keep(call);
    }
    Ok(())
}

// Cases 27, 28: an event of a surface that has one, else a comment, and an event of every surface when it lasts.
#[test]
fn silence_is_broken_by_what_each_surface_has_for_it() -> anyhow::Result<()> {
    let openai = "  keepalive: { comment_ms: 200, event_ms: 1000 }\n";
    let mut rig = Rig::with(openai, "")?;
    for (path, route) in SURFACES {
        let (mut client, mut call, _) = rig.begin(path, &question(path, true))?;
        // Nothing has come from the provider at all.
        if route == "messages" {
            client.wait_for("event: message_start\n")?;
            client.wait_for("event: ping\n")?;
            client.wait_for("event: ping\n")?;
        } else {
            client.wait_for(": ka\n")?;
            client.wait_for("response.in_progress")?;
            client.wait_for(": ka\n")?;
        }
        call.write(streamed().as_bytes())?;
        client.wait_for(if route == "messages" { "message_stop\"}" } else { "data: [DONE]" })?;
        rig.server.keep(call);
    }
    Ok(())
}

#[test]
fn what_cannot_be_carried_is_refused_by_name_before_any_provider_is_called() -> anyhow::Result<()> {
    let mut rig = Rig::start()?;
    for (path, member, value) in [
        ("/v1/messages", "mcp_servers", json!([{"type": "url", "url": "https://x", "name": "x"}])),
        ("/v1/responses", "previous_response_id", json!("resp_1")),
        ("/v1/responses", "background", json!(true)),
    ] {
        let mut body = question(path, true);
        body[member] = value;
        let answer = rig.send(path, &body)?.answer()?;
        assert_eq!(refused(path, &answer, 400)?, "invalid_request_error");
        assert!(answer.text().contains(member), "{}", answer.text());
    }
    // The provider has heard nothing: the next call is this one.
    let (mut client, mut call, _) = rig.begin("/v1/messages", &question("/v1/messages", false))?;
    call.write(whole().as_bytes())?;
    assert_eq!(client.answer()?.status, 200);
    Ok(())
}

fn native_stage() -> anyhow::Result<(Site, Edge, FakeNode)> {
    let site = site()?;
    let provider = ProviderYaml::ollama("p1", NODE, "http://127.0.0.1:9", &[MODEL]);
    let edge = site.edge(&yaml().with(provider))?;
    let node = FakeNode::ready(&site, &edge, NODE)?;
    Ok((site, edge, node))
}

// req: POL-7, RUN-3, RUN-6
// Cases 59, 65, 69.
#[test]
fn a_native_backend_serves_messages_and_responses_in_either_form() -> anyhow::Result<()> {
    let (site, edge, mut node) = native_stage()?;
    let calls = r#"[{"id":"call_a","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]"#;
    for (path, _) in SURFACES {
        for stream in [true, false] {
            let mut body = question(path, stream);
            if path == "/v1/messages" {
                body["thinking"] = json!({"type": "enabled", "budget_tokens": 1000});
            }
            let mut client = send(&site, &edge, path, &body)?;
            let run = node.run_request()?;
            assert_eq!((run.adapter.as_str(), run.target.as_str()), ("p1-adapter", MODEL));
            let input = RunInput::from_json(&run.input)?;
            let turns: Vec<_> = input.messages.iter().map(|turn| (turn.role, turn.text.as_str())).collect();
            assert_eq!(turns, [(Role::System, "be brief"), (Role::User, "Weather?")], "{path}");
            assert_eq!(input.tools[0].name, "weather");
            if path == "/v1/messages" {
                assert_eq!((input.options.max_tokens, input.effort), (Some(50), Some(Effort::Low)));
            }
            let usage = Usage {
                input_tokens: Some(21),
                output_tokens: Some(9),
                cached_input_tokens: Some(4),
                ..Usage::default()
            };
            node.event(run.stream, 0, RunEventKind::Start)?;
            let thought = RunEventKind::Delta { text: String::new(), reasoning: "hm".to_owned() };
            node.event(run.stream, 1, thought)?;
            node.event(run.stream, 2, said("Let me see."))?;
            let finish_reason = "stop".to_owned();
            let end = RunEventKind::Complete { finish_reason, usage: Some(usage) };
            node.event_with(run.stream, 3, end, &[(TOOL_CALLS_KEY, calls)])?;
            assert_eq!(heard(path, &client.answer()?)?, expected(path), "{path} {stream}");
        }
        // A failure before the first word, and one after it.
        let mut client = send(&site, &edge, path, &question(path, true))?;
        let run = node.run_request()?;
        let words = "the model cannot see";
        let refusal = ExecutionError::new(ErrorKind::InvalidRequest, words);
        node.event(run.stream, 0, RunEventKind::Error(refusal))?;
        let answer = client.answer()?;
        assert_eq!(refused(path, &answer, 400)?, "invalid_request_error");
        assert!(answer.text().contains(words));
        let mut client = send(&site, &edge, path, &question(path, true))?;
        let run = node.run_request()?;
        node.event(run.stream, 0, RunEventKind::Start)?;
        node.event(run.stream, 1, said("Let"))?;
        node.event(run.stream, 2, RunEventKind::Error(ExecutionError::new(ErrorKind::Connect, "gone")))?;
        let answer = client.answer()?;
        let end = if path == "/v1/messages" { "event: error\n" } else { "event: response.failed\n" };
        assert!(!answer.whole && answer.text().contains(end), "{}", answer.text());
    }
    Ok(())
}

// req: POL-2, POL-7
#[test]
fn a_group_of_every_kind_takes_turns_and_each_provider_is_asked_in_the_best_way_that_it_has()
-> anyhow::Result<()> {
    let site = site()?;
    let raw = |id: &str, profile: &str| ProviderYaml {
        capacity: 1,
        extra: format!("profile: {profile}"),
        ..ProviderYaml::new(id, NODE, "http://127.0.0.1:9", MODEL)
    };
    let translated =
        ProviderYaml { capacity: 1, ..ProviderYaml::new("chat", NODE, "http://127.0.0.1:9/v1", MODEL) };
    let native =
        ProviderYaml { capacity: 1, ..ProviderYaml::ollama("native", NODE, "http://127.0.0.1:9", &[MODEL]) };
    let file =
        yaml().with(translated).with(raw("claude", "anthropic")).with(raw("gpt", "openai")).with(native);
    let edge = site.edge(&file)?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    let chat = json!({"model": MODEL, "messages": [{"role": "user", "content": "Weather?"}]});
    let message = json!({"id": "msg_1", "type": "message"}).to_string();
    for (path, body, kinds) in [
        ("/v1/messages", question("/v1/messages", false), ["run", "chat", "messages", "chat"]),
        ("/v1/responses", question("/v1/responses", false), ["run", "chat", "responses", "-"]),
        ("/v1/chat/completions", chat, ["run", "chat", "chat", "-"]),
    ] {
        let count = kinds.iter().filter(|kind| **kind != "-").count();
        let mut clients =
            (0..count).map(|_| send(&site, &edge, path, &body)).collect::<anyhow::Result<Vec<_>>>()?;
        let mut found = Vec::new();
        while found.len() < count {
            match node.next()? {
                Message::TunnelRequest(request) => {
                    let answer = whole();
                    let (_, chat) = answer.split_once("\r\n\r\n").unwrap_or_default();
                    let (kind, answer) = match request.operation {
                        Some(Operation::ChatCompletions) => ("chat", chat),
                        Some(Operation::Messages) => ("messages", &*message),
                        Some(Operation::Responses) => ("responses", &*message),
                        other => bail!("{other:?}"),
                    };
                    found.push(kind);
                    node.answer(request.stream, answer)?;
                }
                Message::RunRequest(run) => {
                    found.push("run");
                    node.event(run.stream, 0, said("there"))?;
                    node.event(run.stream, 1, completed("stop"))?;
                }
                Message::Credit(_) => {}
                other => bail!("unexpected: {}", other.name()),
            }
        }
        found.sort_unstable();
        let mut wanted: Vec<_> = kinds.into_iter().filter(|kind| *kind != "-").collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{path}");
        for client in &mut clients {
            assert_eq!(client.answer()?.status, 200, "{path}");
        }
    }
    Ok(())
}
