//! Responses, as OpenAI speaks them.

use serde_json::{Value, json};

use super::{
    Stream, failure,
    plot::{Asked, End, Format, PROMPT_TOKENS, Piece},
};

/// Reads a request.
///
/// # Errors
/// No server would take it; why not.
pub fn read(body: &Value) -> Result<Asked, String> {
    let mut asked = Asked { model: body["model"].as_str().ok_or("model")?.to_owned(), ..Asked::default() };
    let mut called: Vec<(&str, &str)> = Vec::new();
    match &body["input"] {
        Value::String(text) => asked.user.clone_from(text),
        Value::Array(items) => {
            for item in items {
                match item["type"].as_str() {
                    Some("function_call") => {
                        called.push((
                            item["call_id"].as_str().ok_or("call_id")?,
                            item["name"].as_str().ok_or("name")?,
                        ));
                    }
                    Some("function_call_output") => {
                        let id = item["call_id"].as_str().ok_or("call_id")?;
                        let (_, name) =
                            called.iter().rfind(|(call, _)| *call == id).ok_or("an unknown call")?;
                        asked.results.push(((*name).to_owned(), text(&item["output"])));
                    }
                    _ => {
                        asked.results.clear();
                        if item["role"] == "user" {
                            asked.user = text(&item["content"]);
                        }
                    }
                }
            }
        }
        _ => return Err("input".to_owned()),
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        if tool["type"] == "function" {
            asked
                .tools
                .push((tool["name"].as_str().ok_or("a tool's name")?.to_owned(), tool["parameters"].clone()));
        }
    }
    let format = &body["text"]["format"];
    asked.format = match format["type"].as_str() {
        None | Some("text") => Format::Text,
        Some("json_object") => Format::Json,
        Some("json_schema") => Format::Schema(format["schema"].clone()),
        Some(other) => return Err(format!("format {other}")),
    };
    Ok(asked)
}

fn text(content: &Value) -> String {
    match content {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        text => text.as_str().unwrap_or_default().to_owned(),
    }
}

fn object(body: &Value, status: &str, output: &[Value]) -> Value {
    json!({
        "id": "resp_1", "object": "response", "created_at": 1_796_000_000, "status": status, "model": body["model"],
        "output": output, "error": null, "incomplete_details": null, "instructions": null, "metadata": {},
        "parallel_tool_calls": true, "temperature": 1.0, "top_p": 1.0, "tool_choice": "auto", "tools": [],
        "usage": null,
    })
}

fn ended(body: &Value, pieces: &[Piece], end: End, output: &[Value]) -> Value {
    let (status, reason) = match end {
        End::Length => ("incomplete", Some("max_output_tokens")),
        _ => ("completed", None),
    };
    let mut ended = object(body, status, output);
    if let Some(reason) = reason {
        ended["incomplete_details"] = json!({ "reason": reason });
    }
    let said = pieces.len() as u64;
    ended["usage"] = json!({
        "input_tokens": PROMPT_TOKENS, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": said, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": PROMPT_TOKENS + said,
    });
    ended
}

/// What belongs together: pieces of one item each.
fn items(pieces: &[Piece]) -> Vec<Vec<&Piece>> {
    let mut items: Vec<Vec<&Piece>> = Vec::new();
    for piece in pieces {
        let joins = items.last().and_then(|item| item.last()).is_some_and(|last| {
            matches!((last, piece), (Piece::Thought(_), Piece::Thought(_)) | (Piece::Text(_), Piece::Text(_)))
        });
        match items.last_mut() {
            Some(item) if joins => item.push(piece),
            _ => items.push(vec![piece]),
        }
    }
    items
}

fn part_of(piece: &Piece) -> &str {
    match piece {
        Piece::Thought(part) => part,
        Piece::Text(part) => part,
        Piece::Call { .. } => "",
    }
}

fn item(number: usize, pieces: &[&Piece]) -> Value {
    let text: String = pieces.iter().map(|piece| part_of(piece)).collect();
    match pieces.first() {
        Some(Piece::Call { name, arguments }) => json!({
            "id": format!("fc_{number}"), "type": "function_call", "status": "completed", "name": name,
            "call_id": format!("call_{number}"), "arguments": arguments.to_string(),
        }),
        Some(Piece::Thought(_)) => json!({
            "id": format!("rs_{number}"), "type": "reasoning", "summary": [],
            "content": [{ "type": "reasoning_text", "text": text }],
        }),
        _ => json!({
            "id": format!("msg_{number}"), "type": "message", "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }],
        }),
    }
}

/// The answer in one piece.
#[must_use]
pub fn whole(body: &Value, pieces: &[Piece], end: End) -> Value {
    let output: Vec<_> = items(pieces).iter().enumerate().map(|(n, pieces)| item(n, pieces)).collect();
    ended(body, pieces, end, &output)
}

/// The answer as a stream.
#[must_use]
pub fn stream(body: &Value, pieces: &[Piece], end: End) -> Stream {
    let mut stream = Stream::default();
    let mut sequence = 0;
    let mut say = |name: &str, members: Value| {
        let mut event = json!({ "type": name, "sequence_number": sequence });
        if let (Some(event), Value::Object(members)) = (event.as_object_mut(), members) {
            event.extend(members);
        }
        sequence += 1;
        stream.event(name, &event);
    };
    say("response.created", json!({ "response": object(body, "in_progress", &[]) }));
    say("response.in_progress", json!({ "response": object(body, "in_progress", &[]) }));
    let mut output = Vec::new();
    let is_whole = matches!(end, End::Stop | End::Length);
    let all = items(pieces);
    for (number, pieces) in all.iter().enumerate() {
        let done = item(number, pieces);
        let mut added = done.clone();
        let place = json!({ "item_id": done["id"], "output_index": number, "content_index": 0 });
        let at = |more: Value| {
            let mut members = place.clone();
            if let (Some(members), Value::Object(more)) = (members.as_object_mut(), more) {
                members.extend(more);
            }
            members
        };
        if let Piece::Call { name, arguments } = pieces[0] {
            added["arguments"] = "".into();
            added["status"] = "in_progress".into();
            say("response.output_item.added", json!({ "output_index": number, "item": added }));
            for part in super::halves(&arguments.to_string()) {
                let delta = json!({ "item_id": done["id"], "output_index": number, "delta": part });
                say("response.function_call_arguments.delta", delta);
            }
            let members = json!({ "item_id": done["id"], "output_index": number, "name": name, "arguments": arguments.to_string() });
            say("response.function_call_arguments.done", members);
        } else {
            let is_text = matches!(pieces[0], Piece::Text(_));
            added["content"] = json!([]);
            if is_text {
                added["status"] = "in_progress".into();
            }
            say("response.output_item.added", json!({ "output_index": number, "item": added }));
            let full = done["content"][0].clone();
            let mut empty = full.clone();
            empty["text"] = "".into();
            say("response.content_part.added", at(json!({ "part": empty })));
            let kind = if is_text { "output_text" } else { "reasoning_text" };
            let more = |name: &str, text: &Value| {
                if is_text { json!({ name: text, "logprobs": [] }) } else { json!({ name: text }) }
            };
            for piece in pieces {
                say(&format!("response.{kind}.delta"), at(more("delta", &part_of(piece).into())));
            }
            // What breaks off breaks off inside its item.
            if !is_whole && number + 1 == all.len() {
                break;
            }
            say(&format!("response.{kind}.done"), at(more("text", &full["text"])));
            say("response.content_part.done", at(json!({ "part": full })));
        }
        say("response.output_item.done", json!({ "output_index": number, "item": done }));
        output.push(done);
    }
    match end {
        End::Stop => say("response.completed", json!({ "response": ended(body, pieces, end, &output) })),
        End::Length => say("response.incomplete", json!({ "response": ended(body, pieces, end, &output) })),
        End::Error => {
            let mut failed = object(body, "failed", &output);
            failed["error"] = json!({ "code": "server_error", "message": failure(500)["error"]["message"] });
            say("response.failed", json!({ "response": failed }));
        }
        End::Cut | End::Stall => {}
    }
    stream
}
