use std::collections::BTreeMap;

use proto::{
    message::{RunEvent, RunEventKind},
    run_input::TOOL_CALLS_KEY,
};
use serde_json::{Value, json};

use super::*;
use crate::openai::normalized::answer::{Answer, Asked};

fn shape() -> Shape {
    Shape {
        id: "chatcmpl-1".to_owned(),
        created: 7,
        model: "my/model \"x\"".into(),
        stream: true,
        include_usage: false,
        legacy_functions: false,
    }
}

fn event(kind: RunEventKind) -> RunEvent {
    RunEvent { stream: 1, sequence: 0, kind, run_id: String::new(), metadata: BTreeMap::new() }
}

fn delta(text: &str, reasoning: &str) -> RunEvent {
    event(RunEventKind::Delta { text: text.to_owned(), reasoning: reasoning.to_owned() })
}

fn complete(reason: &str, usage: Option<Usage>, calls: &str) -> RunEvent {
    let mut event = event(RunEventKind::Complete { finish_reason: reason.to_owned(), usage });
    if !calls.is_empty() {
        event.metadata.insert(TOOL_CALLS_KEY.to_owned(), calls.to_owned());
    }
    event
}

fn usage(input: u64, output: u64) -> Usage {
    Usage { input_tokens: Some(input), output_tokens: Some(output), ..Usage::default() }
}

/// What the client gets for these events.
fn written(shape: Shape, events: Vec<RunEvent>) -> String {
    let asked = Asked { request: "req_ab".into(), whole: !shape.stream, ..Asked::default() };
    let (mut answer, mut chat) = (Answer::new(asked), Chat::new(shape));
    let (mut pieces, mut out) = (Vec::new(), Vec::new());
    for event in events {
        let finish = answer.event(event, &mut pieces).unwrap();
        pieces.drain(..).for_each(|piece| chat.piece(piece, &mut out));
        if let Some(finish) = finish {
            chat.finish(&finish, &mut out);
        }
    }
    String::from_utf8(out).unwrap()
}

/// The chunks of a stream; the mark of its end is checked and left out.
fn chunks(text: &str) -> Vec<Value> {
    let events = text.strip_suffix("data: [DONE]\n\n").unwrap_or_else(|| panic!("no end: {text}"));
    let json = |event: &str| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
    events.split_terminator("\n\n").map(json).collect()
}

/// Deltas and finish reasons of a stream's chunks, each of which has all that every chunk has.
fn deltas(chunks: &[Value]) -> Vec<(Value, Value)> {
    let one = |chunk: &Value| {
        let kept = json!({"id": chunk["id"], "object": chunk["object"], "created": chunk["created"], "model": chunk["model"]});
        assert_eq!(
            kept,
            json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "my/model \"x\""})
        );
        let choice = &chunk["choices"][0];
        assert_eq!((&choice["index"], &choice["logprobs"]), (&json!(0), &Value::Null));
        (choice["delta"].clone(), choice["finish_reason"].clone())
    };
    chunks.iter().map(one).collect()
}

fn role() -> Value {
    json!({"role": "assistant", "content": ""})
}

const CALLS: &str = r#"[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"","type":"function","function":{"name":"g","arguments":""}}]"#;

// req: RUN-3, RUN-6
#[test]
fn events_become_chunks() {
    let thought = |text: &str| json!({"reasoning_content": text, "reasoning": text});
    let said = |text: &str| json!({ "content": text });
    let first = |index: u64, id: &str, name: &str| json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}]});
    let rest =
        |index: u64, text: &str| json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]});
    let start = || event(RunEventKind::Start);
    for (name, events, deltas_of, reason) in [
        (
            "text",
            vec![start(), delta("a\n\"", ""), delta("b", ""), complete("stop", None, "")],
            vec![said("a\n\""), said("b")],
            "stop",
        ),
        ("nothing", vec![start(), complete("stop", None, "")], vec![], "stop"),
        (
            "a count in between",
            vec![
                start(),
                event(RunEventKind::Usage(usage(1, 1))),
                delta("a", ""),
                complete("length", None, ""),
            ],
            vec![said("a")],
            "length",
        ),
        (
            "thinking",
            vec![start(), delta("", "hm"), delta("so", "m"), complete("stop", None, "")],
            vec![thought("hm"), thought("m"), said("so")],
            "stop",
        ),
        ("a filter", vec![start(), complete("content_filter", None, "")], vec![], "content_filter"),
        ("an unknown word", vec![start(), complete("eos", None, "")], vec![], "stop"),
        ("calls that are none", vec![start(), complete("tool_calls", None, "")], vec![], "stop"),
        (
            "calls after text",
            vec![start(), delta("look: ", ""), complete("tool_calls", None, CALLS)],
            vec![
                said("look: "),
                first(0, "c1", "f"),
                rest(0, "{\"a\":1}"),
                first(1, "call_ab1", "g"),
                rest(1, "{}"),
            ],
            "tool_calls",
        ),
        (
            "calls that a backend ends by the usual word",
            vec![start(), complete("stop", None, CALLS)],
            vec![first(0, "c1", "f"), rest(0, "{\"a\":1}"), first(1, "call_ab1", "g"), rest(1, "{}")],
            "tool_calls",
        ),
        (
            "calls that were cut",
            vec![start(), complete("length", None, CALLS)],
            vec![first(0, "c1", "f"), rest(0, "{\"a\":1}"), first(1, "call_ab1", "g"), rest(1, "{}")],
            "length",
        ),
    ] {
        let chunks = chunks(&written(shape(), events));
        assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()), "{name}: usage was not asked for");
        let mut expected = vec![(role(), Value::Null)];
        expected.extend(deltas_of.into_iter().map(|delta| (delta, Value::Null)));
        expected.push((json!({}), json!(reason)));
        assert_eq!(deltas(&chunks), expected, "{name}");
    }
}

#[test]
fn text_after_a_call_is_delivered() {
    let (mut chat, mut out) = (Chat::new(shape()), Vec::new());
    let call: Vec<ToolCall> = serde_json::from_str(CALLS).unwrap();
    chat.piece(Piece::Call(call[0].clone()), &mut out);
    chat.piece(Piece::Text("after".to_owned()), &mut out);
    chat.finish(&Finish { reason: FinishReason::ToolCalls, usage: None }, &mut out);
    let deltas = deltas(&chunks(std::str::from_utf8(&out).unwrap()));
    assert_eq!(deltas[3].0, json!({"content": "after"}));
    assert_eq!(deltas[4].1, "tool_calls");
}

#[test]
fn usage_has_a_chunk_of_its_own_without_choices_when_it_is_asked_for() {
    let asks = || Shape { include_usage: true, ..shape() };
    let late = vec![
        delta("a", ""),
        event(RunEventKind::Usage(usage(1, 1))),
        complete("stop", Some(usage(3, 4)), ""),
    ];
    let chunks_of = chunks(&written(asks(), late));
    let (last, before) = chunks_of.split_last().unwrap();
    assert!(before.iter().all(|chunk| chunk.get("usage") == Some(&Value::Null)));
    assert_eq!(before.last().unwrap()["choices"][0]["finish_reason"], "stop");
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["id"], "chatcmpl-1");
    assert_eq!(
        last["usage"],
        json!({
            "prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}
        })
    );
    // A count on the way is better than none.
    let early = vec![event(RunEventKind::Usage(usage(5, 6))), complete("stop", None, "")];
    assert_eq!(chunks(&written(asks(), early)).last().unwrap()["usage"]["total_tokens"], 11);
    // Nothing was counted: nothing is claimed.
    let none = chunks(&written(asks(), vec![complete("stop", None, "")]));
    assert_eq!(none.last().unwrap()["choices"][0]["finish_reason"], "stop");
}

// req: RUN-3, RUN-6
#[test]
fn the_whole_answer_is_one_object() {
    let whole = || Shape { stream: false, ..shape() };
    let object = |events| serde_json::from_str::<Value>(&written(whole(), events)).unwrap();
    let counted = Usage { cached_input_tokens: Some(2), reasoning_tokens: Some(1), ..usage(3, 4) };
    let got = object(vec![
        event(RunEventKind::Start),
        delta("", "h"),
        delta("a", "m"),
        delta("b", ""),
        complete("stop", Some(counted), ""),
    ]);
    assert_eq!(
        got,
        json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 7, "model": "my/model \"x\"",
            "choices": [{
                "index": 0,
                "message": {"role": "assistant", "content": "ab", "refusal": null, "reasoning_content": "hm", "reasoning": "hm"},
                "logprobs": null,
                "finish_reason": "stop"
            }],
            "usage": {
                "prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 2}, "completion_tokens_details": {"reasoning_tokens": 1}
            },
            "system_fingerprint": null, "service_tier": null
        })
    );
    let calls = object(vec![complete("stop", None, CALLS)]);
    let message = &calls["choices"][0]["message"];
    assert_eq!(message["content"], Value::Null);
    assert_eq!(message["tool_calls"][0], serde_json::from_str::<Value>(CALLS).unwrap()[0]);
    assert_eq!(message["tool_calls"][1]["id"], "call_ab1");
    assert_eq!(calls["choices"][0]["finish_reason"], "tool_calls");
    assert!(calls.get("usage").is_none() && message.get("reasoning").is_none());
    let empty = object(vec![complete("stop", None, "")]);
    assert_eq!(empty["choices"][0]["message"]["content"], "");
}

#[test]
fn functions_of_the_earlier_form_come_back_in_it() {
    let legacy = |stream| Shape { legacy_functions: true, stream, ..shape() };
    let deltas = deltas(&chunks(&written(legacy(true), vec![complete("stop", None, CALLS)])));
    assert_eq!(deltas[1].0, json!({"function_call": {"name": "f", "arguments": ""}}));
    assert_eq!(deltas[2].0, json!({"function_call": {"arguments": "{\"a\":1}"}}));
    assert_eq!(deltas.last().unwrap().1, "function_call");
    let object: Value =
        serde_json::from_str(&written(legacy(false), vec![complete("stop", None, CALLS)])).unwrap();
    let choice = &object["choices"][0];
    assert_eq!(choice["message"]["function_call"], json!({"name": "f", "arguments": "{\"a\":1}"}));
    assert_eq!(
        (&choice["finish_reason"], choice["message"].get("tool_calls")),
        (&json!("function_call"), None)
    );
}

#[test]
fn an_event_without_content_is_the_first_chunk_or_an_empty_one() {
    let Chat::Stream(mut stream) = Chat::new(shape()) else { panic!("a stream was asked for") };
    let mut out = Vec::new();
    stream.keep_alive(&mut out);
    stream.keep_alive(&mut out);
    stream.finish(&Finish { reason: FinishReason::Stop, usage: None }, &mut out);
    let deltas = deltas(&chunks(std::str::from_utf8(&out).unwrap()));
    assert_eq!(deltas[0].0, role());
    assert_eq!(deltas[1].0, json!({"content": ""}));
    assert_eq!(deltas.len(), 3);
}

#[test]
fn a_call_in_pieces_is_told_as_it_comes_and_is_whole_where_all_is_gathered() {
    let begun = |id: &str| Piece::CallBegun { id: id.to_owned(), name: "f".to_owned() };
    let pieces =
        [begun("a"), Piece::Arguments("{\"x\"".to_owned()), Piece::Arguments(":1}".to_owned()), begun("b")];
    let finish = Finish { reason: FinishReason::ToolCalls, usage: None };
    let say = |shape: Shape| {
        let (mut chat, mut out) = (Chat::new(shape), Vec::new());
        pieces.iter().for_each(|piece| chat.piece(piece.clone(), &mut out));
        chat.finish(&finish, &mut out);
        String::from_utf8(out).unwrap()
    };
    let calls: Vec<Value> = chunks(&say(shape()))
        .iter()
        .filter_map(|chunk| {
            chunk["choices"][0]["delta"]["tool_calls"].as_array().map(|calls| calls[0].clone())
        })
        .collect();
    let begin = |index: u8, id: &str| json!({"index": index, "id": id, "type": "function", "function": {"name": "f", "arguments": ""}});
    let more = |text: &str| json!({"index": 0, "function": {"arguments": text}});
    assert_eq!(calls, [begin(0, "a"), more("{\"x\""), more(":1}"), begin(1, "b")]);
    let whole: Value = serde_json::from_str(&say(Shape { stream: false, ..shape() })).unwrap();
    let calls = &whole["choices"][0]["message"]["tool_calls"];
    assert_eq!((&calls[0]["function"]["arguments"], &calls[1]["id"]), (&json!("{\"x\":1}"), &json!("b")));
}
