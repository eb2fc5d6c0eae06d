//! Messages, as Anthropic speaks them.

use serde_json::{Value, json};

use super::{
    Stream,
    plot::{Asked, End, Format, PROMPT_TOKENS, Piece},
};

/// Reads a request.
///
/// # Errors
/// No server would take it; why not.
pub fn read(body: &Value) -> Result<Asked, String> {
    let mut asked = Asked { model: body["model"].as_str().ok_or("model")?.to_owned(), ..Asked::default() };
    let mut called: Vec<(&str, &str)> = Vec::new();
    for message in body["messages"].as_array().ok_or("messages")? {
        let blocks = message["content"].as_array().map_or(&[][..], Vec::as_slice);
        let said = text(&message["content"]);
        let mut results = Vec::new();
        for block in blocks {
            match block["type"].as_str().ok_or("a block's type")? {
                "tool_use" => {
                    called.push((block["id"].as_str().ok_or("id")?, block["name"].as_str().ok_or("name")?));
                }
                "tool_result" => {
                    let id = block["tool_use_id"].as_str().ok_or("tool_use_id")?;
                    let (_, name) = called.iter().rfind(|(call, _)| *call == id).ok_or("an unknown call")?;
                    results.push(((*name).to_owned(), text(&block["content"])));
                }
                _ => {}
            }
        }
        match message["role"].as_str() {
            // Hints of the client's between the turns are not the end of one.
            Some("system") => continue,
            Some("user") if !said.is_empty() => asked.user = said,
            _ => {}
        }
        asked.results = results;
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        asked
            .tools
            .push((tool["name"].as_str().ok_or("a tool's name")?.to_owned(), tool["input_schema"].clone()));
    }
    let format = &body["output_config"]["format"];
    if format["type"] == "json_schema" {
        asked.format = Format::Schema(format["schema"].clone());
    }
    Ok(asked)
}

fn text(content: &Value) -> String {
    match content {
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        text => text.as_str().unwrap_or_default().to_owned(),
    }
}

fn stop_reason(pieces: &[Piece], end: End) -> &'static str {
    let calls = pieces.iter().any(|piece| matches!(piece, Piece::Call { .. }));
    match end {
        End::Length => "max_tokens",
        _ if calls => "tool_use",
        _ => "end_turn",
    }
}

fn message(body: &Value, content: &[Value], stop_reason: Option<&str>, output_tokens: usize) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": content,
        "stop_reason": stop_reason, "stop_sequence": null,
        "usage": {
            "input_tokens": PROMPT_TOKENS, "output_tokens": output_tokens, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    })
}

/// Blocks, each with its parts.
fn blocks(pieces: &[Piece]) -> Vec<(Value, Vec<Value>)> {
    let mut blocks: Vec<(Value, Vec<Value>)> = Vec::new();
    for piece in pieces {
        let (start, delta) = match piece {
            Piece::Thought(part) => (
                json!({ "type": "thinking", "thinking": "", "signature": "" }),
                json!({ "type": "thinking_delta", "thinking": part }),
            ),
            Piece::Text(part) => {
                (json!({ "type": "text", "text": "" }), json!({ "type": "text_delta", "text": part }))
            }
            Piece::Call { name, arguments } => {
                let id = format!("toolu_{}", blocks.len());
                let text = arguments.to_string();
                let parts = super::halves(&text);
                let parts = parts.map(|part| json!({ "type": "input_json_delta", "partial_json": part }));
                blocks
                    .push((json!({ "type": "tool_use", "id": id, "name": name, "input": {} }), parts.into()));
                continue;
            }
        };
        match blocks.last_mut() {
            Some((open, deltas)) if open["type"] == start["type"] => deltas.push(delta),
            _ => blocks.push((start, vec![delta])),
        }
    }
    for (start, deltas) in &mut blocks {
        if start["type"] == "thinking" {
            deltas.push(json!({ "type": "signature_delta", "signature": "c2ln" }));
        }
    }
    blocks
}

/// The answer in one piece.
#[must_use]
pub fn whole(body: &Value, pieces: &[Piece], end: End) -> Value {
    let content: Vec<_> = blocks(pieces)
        .into_iter()
        .map(|(mut block, deltas)| {
            let part =
                |name: &str| deltas.iter().filter_map(|delta| delta[name].as_str()).collect::<String>();
            match block["type"].as_str() {
                Some("text") => block["text"] = part("text").into(),
                Some("thinking") => {
                    block["thinking"] = part("thinking").into();
                    block["signature"] = part("signature").into();
                }
                _ => block["input"] = serde_json::from_str(&part("partial_json")).unwrap_or_default(),
            }
            block
        })
        .collect();
    message(body, &content, Some(stop_reason(pieces, end)), pieces.len())
}

/// The answer as a stream.
#[must_use]
pub fn stream(body: &Value, pieces: &[Piece], end: End) -> Stream {
    let mut stream = Stream::default();
    let mut say = |event: &Value| stream.event(event["type"].as_str().unwrap_or_default(), event);
    say(&json!({ "type": "message_start", "message": message(body, &[], None, 1) }));
    say(&json!({ "type": "ping" }));
    let all = blocks(pieces);
    let is_whole = matches!(end, End::Stop | End::Length);
    for (index, (start, deltas)) in all.iter().enumerate() {
        say(&json!({ "type": "content_block_start", "index": index, "content_block": start }));
        for delta in deltas {
            say(&json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        // What breaks off breaks off inside its block.
        if is_whole || index + 1 < all.len() {
            say(&json!({ "type": "content_block_stop", "index": index }));
        }
    }
    match end {
        End::Stop | End::Length => {
            let delta = json!({ "stop_reason": stop_reason(pieces, end), "stop_sequence": null });
            say(
                &json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": pieces.len() } }),
            );
            say(&json!({ "type": "message_stop" }));
        }
        End::Error => say(&super::anthropic_failure(500)),
        End::Cut | End::Stall => {}
    }
    stream
}
