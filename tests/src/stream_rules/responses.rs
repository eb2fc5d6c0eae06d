//! Responses (api.md §1.2): the order of its events as an automaton.

use serde_json::Value;

use super::{Ended, Event};

/// The item that is open.
#[derive(Debug)]
struct Open {
    index: u64,
    id: String,
    kind: String,
    /// Whether a part is open, and was.
    part: Option<bool>,
    text: String,
    /// Whether its text or arguments are done.
    done: bool,
}

/// Judges the events of a stream.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(events: &[Event], ended: Ended) -> Result<(), String> {
    let (mut open, mut output) = (None::<Open>, Vec::<Value>::new());
    let (mut terminal, mut done, mut errored) = (None::<&Value>, false, false);
    for (number, Event { name, data }) in events.iter().enumerate() {
        let wrong = |what: &str| Err(format!("event {number}: {what}: {name} {data}"));
        if done {
            return wrong("something behind [DONE]");
        }
        if data == "[DONE]" {
            if !name.is_empty() || terminal.is_none() {
                return wrong("[DONE] is bare and comes behind the last event");
            }
            done = true;
            continue;
        }
        if terminal.is_some() {
            return wrong("something behind the last event");
        }
        if data["type"] != *name.as_str() {
            return wrong("the name is not the type");
        }
        if data["sequence_number"] != number {
            return wrong("the sequence number");
        }
        match (number, name.as_str()) {
            (0, "response.created") | (1, "response.in_progress") => {
                let response = &data["response"];
                if response["status"] != "in_progress" || response["output"] != Value::Array(Vec::new()) {
                    return wrong("not the beginning of a response");
                }
                is_response(response)?;
            }
            (0 | 1, _) => return wrong("a stream begins with created and in_progress"),
            (_, "response.in_progress") => is_response(&data["response"])?,
            (_, "error") => {
                if !data["message"].is_string() {
                    return wrong("an error without a message");
                }
                errored = true;
            }
            (_, "response.completed" | "response.incomplete" | "response.failed") => {
                let response = &data["response"];
                is_response(response)?;
                if *name != format!("response.{}", response["status"].as_str().unwrap_or_default()) {
                    return wrong("the status is not the event's");
                }
                if *name != "response.failed" {
                    if open.is_some() || response["output"] != Value::Array(output.clone()) || errored {
                        return wrong("an item is open, or the output is another one");
                    }
                    if !response["usage"].is_null() && !response["usage"]["output_tokens"].is_u64() {
                        return wrong("usage");
                    }
                } else if !response["error"]["code"].is_string() || !response["error"]["message"].is_string()
                {
                    return wrong("a failure without code and message");
                }
                terminal = Some(data);
            }
            _ if errored => return wrong("something between error and failed"),
            _ => item(&mut open, &mut output, name, data).or_else(|what| wrong(&what))?,
        }
    }
    let failed = terminal.is_some_and(|event| event["type"] == "response.failed");
    let is_well = match ended {
        Ended::Well => done && !failed,
        Ended::Failed => done && failed,
        Ended::NotYet => terminal.is_none(),
    };
    if is_well { Ok(()) } else { Err(format!("{ended:?} ended with [DONE]: {done}, failed: {failed}")) }
}

/// What clients' schemas require of the object.
fn is_response(response: &Value) -> Result<(), String> {
    const KEYS: [&str; 15] = [
        "id",
        "object",
        "created_at",
        "model",
        "output",
        "error",
        "incomplete_details",
        "instructions",
        "metadata",
        "parallel_tool_calls",
        "temperature",
        "top_p",
        "tool_choice",
        "tools",
        "status",
    ];
    match KEYS.iter().find(|key| response.get(*key).is_none()) {
        None if response["object"] == "response" => Ok(()),
        missing => Err(format!("a response without {missing:?}: {response}")),
    }
}

fn item(open: &mut Option<Open>, output: &mut Vec<Value>, name: &str, data: &Value) -> Result<(), String> {
    let of_item = &data["item"];
    if name == "response.output_item.added" {
        if open.is_some() || data["output_index"] != output.len() {
            return Err("an item before the last one's end, or out of turn".to_owned());
        }
        let text = |key: &str| of_item[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let (Some(id), Some(kind)) = (text("id"), text("type")) else { return Err("no item".to_owned()) };
        if kind == "function_call"
            && (text("call_id").is_none() || text("name").is_none() || of_item["arguments"] != "")
        {
            return Err("a call without id, name or empty arguments".to_owned());
        }
        let index = output.len() as u64;
        *open = Some(Open { index, id, kind, part: None, text: String::new(), done: false });
        return Ok(());
    }
    let Some(it) = open else { return Err("no item is open".to_owned()) };
    if data["output_index"] != it.index {
        return Err("of another item".to_owned());
    }
    if name == "response.output_item.done" {
        if of_item["id"] != *it.id || of_item["type"] != *it.kind || it.part == Some(true) {
            return Err("another item, or a part is open".to_owned());
        }
        let text = match it.kind.as_str() {
            "function_call" => of_item["arguments"].as_str(),
            _ => of_item["content"][0]["text"].as_str().or_else(|| of_item["summary"][0]["text"].as_str()),
        };
        if text.unwrap_or_default() != it.text || !it.done {
            return Err("the item is not what its deltas were".to_owned());
        }
        output.push(of_item.clone());
        *open = None;
        return Ok(());
    }
    if data["item_id"] != *it.id {
        return Err("of another item".to_owned());
    }
    let event = name.strip_prefix("response.").unwrap_or_default();
    let of_part = it.kind != "function_call";
    if of_part && data["content_index"] != 0 && data["summary_index"] != 0 {
        return Err("of no part".to_owned());
    }
    let text_kind = match it.kind.as_str() {
        "message" => "output_text",
        "reasoning" => "reasoning_text",
        "function_call" => "function_call_arguments",
        _ => return Err("an unknown item".to_owned()),
    };
    match (event, it.part) {
        ("content_part.added", None) if of_part => it.part = Some(true),
        ("content_part.done", Some(true)) if it.done => {
            if data["part"]["text"] != *it.text {
                return Err("the part is not what its deltas were".to_owned());
            }
            it.part = Some(false);
        }
        (event, part) => {
            if of_part != (part == Some(true)) || it.done {
                return Err("no part is open for it".to_owned());
            }
            if text_kind == "output_text" && !data["logprobs"].is_array() {
                return Err("no logprobs".to_owned());
            }
            match event.strip_prefix(text_kind) {
                Some(".delta") => it.text.push_str(data["delta"].as_str().ok_or("no delta")?),
                Some(".done") => {
                    let key = if of_part { "text" } else { "arguments" };
                    if data[key] != *it.text || (!of_part && !data["name"].is_string()) {
                        return Err("done is not what its deltas were".to_owned());
                    }
                    it.done = true;
                }
                _ => return Err("an event that does not belong here".to_owned()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Ended, check};
    use crate::model::{
        Surface,
        plot::{End, Piece},
        responses::stream,
    };

    fn recorded(end: End) -> Vec<String> {
        let pieces = [
            Piece::Thought("hm"),
            Piece::Text("a".into()),
            Piece::Text("b".into()),
            Piece::Call { name: "f".into(), arguments: json!({"a": 1}) },
        ];
        let mut events = stream(&json!({"model": "m"}), &pieces, end).events;
        if !matches!(end, End::Cut | End::Stall) {
            events.push("data: [DONE]\n\n".to_owned());
        }
        events
    }

    fn judged(events: &[String], ended: Ended) -> Result<(), String> {
        check(Surface::Responses, events.concat().as_bytes(), ended).map(drop)
    }

    #[test]
    fn the_order_of_openais_own_events_holds_and_no_other() {
        assert_eq!(judged(&recorded(End::Stop), Ended::Well), Ok(()));
        assert_eq!(judged(&recorded(End::Length), Ended::Well), Ok(()));
        assert_eq!(judged(&recorded(End::Error), Ended::Failed), Ok(()));
        assert_eq!(judged(&recorded(End::Cut), Ended::NotYet), Ok(()));
        let good = recorded(End::Stop);
        for left_out in 0..good.len() {
            let mut events = good.clone();
            events.remove(left_out);
            assert!(judged(&events, Ended::Well).is_err(), "without {}", good[left_out]);
        }
        for swapped in 1..good.len() {
            let mut events = good.clone();
            events.swap(swapped - 1, swapped);
            assert!(judged(&events, Ended::Well).is_err(), "{} earlier", good[swapped]);
        }
    }
}
