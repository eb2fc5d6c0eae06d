//! The order of events, as an automaton that reads any stream and gathers what it said.

use serde_json::{Value, json};

/// What a stream said.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// The items as their last events have them.
    pub(super) items: Vec<Value>,
    /// An item that was begun and never ended, with what was said of it.
    pub(super) open: Option<Value>,
    /// The response of the last event.
    pub(super) response: Value,
    /// Type of the last event.
    pub(super) last: String,
    /// The `error` event, if there was one.
    pub(super) error: Option<Value>,
}

/// Where in an item the stream is.
#[derive(Debug)]
struct Open {
    added: Value,
    text: String,
    /// Behind its last delta.
    done: bool,
    part_is_open: bool,
}

/// The key that an item's text is in, and the events that carry it.
fn speech(item: &Value) -> (&'static str, &'static str, &'static str) {
    match item["type"].as_str().unwrap() {
        "message" => ("text", "response.output_text.delta", "response.output_text.done"),
        "reasoning" => ("text", "response.reasoning_text.delta", "response.reasoning_text.done"),
        "function_call" => {
            ("arguments", "response.function_call_arguments.delta", "response.function_call_arguments.done")
        }
        "custom_tool_call" => {
            ("input", "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done")
        }
        other => panic!("an item of type {other}"),
    }
}

fn has_parts(item: &Value) -> bool {
    matches!(item["type"].as_str(), Some("message" | "reasoning"))
}

/// The text of an item that ended.
fn text_of(item: &Value) -> &str {
    let (key, ..) = speech(item);
    let holder = if has_parts(item) { &item["content"][0] } else { item };
    holder[key].as_str().unwrap()
}

/// The events of a stream, each of which has its type twice and the next number.
pub(super) fn events(stream: &str) -> Vec<Value> {
    let stream = stream.strip_suffix("data: [DONE]\n\n").unwrap_or_else(|| panic!("no end: {stream}"));
    let parse = |(at, event): (usize, &str)| {
        let (name, data) =
            event.strip_prefix("event: ").and_then(|rest| rest.split_once("\ndata: ")).unwrap();
        assert!(!data.contains('\n'), "one line");
        let json: Value = serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
        assert_eq!(json["type"], name);
        assert_eq!(json["sequence_number"], at, "in {data}");
        json
    };
    stream.split_terminator("\n\n").enumerate().map(parse).collect()
}

/// Reads a stream to its end; panics where an event is out of order.
pub(super) fn read(stream: &str) -> Read {
    let events = events(stream);
    let mut read = Read::default();
    let mut open: Option<Open> = None;
    for (at, event) in events.iter().enumerate() {
        let kind = event["type"].as_str().unwrap();
        match (at, kind) {
            (0, "response.created") | (1, "response.in_progress") => {}
            (0 | 1, other) => panic!("event {at} is {other}"),
            (_, "response.created") => panic!("created twice"),
            _ => {}
        }
        let is_last = at + 1 == events.len();
        match kind {
            "response.created" | "response.in_progress" => {
                assert_eq!(event["response"]["status"], "in_progress");
                assert_eq!(event["response"]["output"], json!([]));
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                assert!(is_last, "{kind} is the last event");
                assert_eq!(
                    Some(kind),
                    event["response"]["status"].as_str().map(|s| format!("response.{s}")).as_deref()
                );
                assert!(open.is_none() || kind == "response.failed", "an item is open at the end");
            }
            "error" => {
                assert_eq!(at + 2, events.len(), "only response.failed is behind an error");
                read.error = Some(event.clone());
            }
            _ => {
                assert!(!is_last, "{kind} ends nothing");
                item_event(kind, event, &mut open, &mut read);
            }
        }
        assert!(event.get("response").is_none_or(|response| response["id"] == "resp_ab"));
        if is_last {
            read.last = kind.to_owned();
            read.response = event["response"].clone();
        }
    }
    read.open = open.map(|open| finished(&open, "incomplete"));
    read
}

/// An item as it should be when this was said.
fn finished(open: &Open, status: &str) -> Value {
    let mut item = open.added.clone();
    let (key, ..) = speech(&item);
    if item.get("status").is_some() {
        item["status"] = json!(status);
    }
    match item["type"].as_str().unwrap() {
        "message" => {
            item["content"] =
                json!([{"type": "output_text", "annotations": [], "logprobs": [], "text": open.text}]);
        }
        "reasoning" => item["content"] = json!([{"type": "reasoning_text", "text": open.text}]),
        _ => item[key] = json!(open.text),
    }
    item
}

fn item_event(kind: &str, event: &Value, open: &mut Option<Open>, read: &mut Read) {
    let index = read.items.len();
    assert_eq!(event["output_index"], index, "{event}");
    if kind == "response.output_item.added" {
        assert!(open.is_none(), "an item is begun within another");
        let added = event["item"].clone();
        assert!(added["id"].as_str().is_some_and(|id| read.items.iter().all(|item| item["id"] != id)));
        let empty =
            if has_parts(&added) { added["content"] == json!([]) } else { text_of(&added).is_empty() };
        assert!(empty, "{added}");
        assert!(added.get("status").is_none_or(|status| status == "in_progress"));
        *open = Some(Open { added, text: String::new(), done: false, part_is_open: false });
        return;
    }
    let now = open.as_mut().unwrap_or_else(|| panic!("{kind} outside of an item"));
    let (key, delta, done) = speech(&now.added);
    let with_parts = has_parts(&now.added);
    if kind == "response.output_item.done" {
        assert!(now.done && !now.part_is_open, "the item ends before its text");
        let status = event["item"]["status"].as_str().unwrap_or("completed").to_owned();
        assert_eq!(event["item"], finished(now, &status));
        read.items.push(event["item"].clone());
        *open = None;
        return;
    }
    assert_eq!(event["item_id"], now.added["id"]);
    assert_eq!(event.get("content_index"), with_parts.then_some(&json!(0)));
    match kind {
        "response.content_part.added" => {
            assert!(with_parts && !now.part_is_open && !now.done && now.text.is_empty());
            assert_eq!(event["part"], finished(now, "")["content"][0]);
            now.part_is_open = true;
        }
        "response.content_part.done" => {
            assert!(now.part_is_open && now.done);
            assert_eq!(event["part"], finished(now, "")["content"][0]);
            now.part_is_open = false;
        }
        _ if kind == delta => {
            assert!(!now.done && now.part_is_open == with_parts, "{event}");
            now.text.push_str(event["delta"].as_str().unwrap());
        }
        _ if kind == done => {
            assert!(!now.done && now.part_is_open == with_parts);
            assert_eq!(event[key], now.text);
            if key == "arguments" {
                assert_eq!(event["name"], now.added["name"]);
            }
            now.done = true;
        }
        other => panic!("{other} in {}", now.added),
    }
    let has_logprobs = kind == "response.output_text.delta" || kind == "response.output_text.done";
    assert_eq!(event.get("logprobs"), has_logprobs.then_some(&json!([])), "{event}");
}
