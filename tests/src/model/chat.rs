//! Chat completions, as an engine speaks them that knows nothing else: strict about what it is asked, and `reasoning_content`
//! for what the model thinks.

use serde_json::{Value, json};

use super::{
    Stream, failure,
    plot::{Asked, End, Format, PROMPT_TOKENS, Piece},
};

/// Members that engines of this kind know.
const MEMBERS: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "n",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "metadata",
    "user",
    "store",
    "service_tier",
    "prompt_cache_key",
    "verbosity",
    "chat_template_kwargs",
];

/// Reads a request.
///
/// # Errors
/// No engine would take it; why not.
pub fn read(body: &Value) -> Result<Asked, String> {
    let members = body.as_object().ok_or("no object")?;
    if let Some(unknown) = members.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
        return Err(format!("unknown member {unknown}"));
    }
    let messages = body["messages"].as_array().filter(|m| !m.is_empty()).ok_or("messages")?;
    let mut called: Vec<(&str, &str)> = Vec::new();
    let mut asked = Asked { model: body["model"].as_str().ok_or("model")?.to_owned(), ..Asked::default() };
    for (index, message) in messages.iter().enumerate() {
        let at = |what: &str| format!("messages[{index}]: {what} in {message}");
        let role = message["role"].as_str().ok_or_else(|| at("role"))?;
        let text = text(&message["content"]).map_err(|what| at(&what))?;
        if role != "tool" {
            asked.results.clear();
        }
        match role {
            "system" | "developer" => {}
            "user" => asked.user = text.ok_or_else(|| at("content"))?,
            "assistant" => {
                let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
                if text.is_none() && calls.is_empty() {
                    return Err(at("neither content nor calls"));
                }
                for call in calls {
                    let function = &call["function"];
                    let (id, name) = (call["id"].as_str(), function["name"].as_str());
                    let arguments = function["arguments"].as_str().unwrap_or_default();
                    let is_object = serde_json::from_str::<Value>(arguments).is_ok_and(|a| a.is_object());
                    let (Some(id), Some(name), true, "function") =
                        (id, name, is_object, call["type"].as_str().unwrap_or_default())
                    else {
                        return Err(at("a call"));
                    };
                    called.push((id, name));
                }
            }
            "tool" => {
                let id = message["tool_call_id"].as_str().ok_or_else(|| at("tool_call_id"))?;
                let (_, name) =
                    called.iter().rfind(|(call, _)| *call == id).ok_or_else(|| at("an unknown call"))?;
                asked.results.push(((*name).to_owned(), text.ok_or_else(|| at("content"))?));
            }
            _ => return Err(at("role")),
        }
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        let function = &tool["function"];
        let name = function["name"].as_str().filter(|_| tool["type"] == "function");
        let name = name.ok_or_else(|| format!("no function: {tool}"))?;
        asked.tools.push((name.to_owned(), function["parameters"].clone()));
    }
    if body["tool_choice"] == "none" {
        asked.tools.clear();
    }
    let format = &body["response_format"];
    asked.format = match format["type"].as_str() {
        None | Some("text") => Format::Text,
        Some("json_object") => Format::Json,
        Some("json_schema") => Format::Schema(format["json_schema"]["schema"].clone()),
        Some(other) => return Err(format!("response_format {other}")),
    };
    if body["stream"] != true && !body["stream_options"].is_null() {
        return Err("stream_options without a stream".to_owned());
    }
    Ok(asked)
}

/// Text, and pictures that nobody looks at. `None` is `null`.
fn text(content: &Value) -> Result<Option<String>, String> {
    match content {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Array(parts) => {
            let mut all = String::new();
            for part in parts {
                match part["type"].as_str() {
                    Some("text") => all.push_str(part["text"].as_str().ok_or("a text part")?),
                    Some("image_url") if part["image_url"]["url"].is_string() => {}
                    _ => return Err(format!("part {part}")),
                }
            }
            Ok(Some(all))
        }
        _ => Err("content".to_owned()),
    }
}

fn usage(pieces: &[Piece]) -> Value {
    let said = pieces.len() as u64;
    let thought = pieces.iter().filter(|piece| matches!(piece, Piece::Thought(_))).count();
    json!({
        "prompt_tokens": PROMPT_TOKENS, "completion_tokens": said, "total_tokens": PROMPT_TOKENS + said,
        "completion_tokens_details": { "reasoning_tokens": thought },
    })
}

fn finish(pieces: &[Piece], end: End) -> &'static str {
    let calls = pieces.iter().any(|piece| matches!(piece, Piece::Call { .. }));
    match end {
        End::Length => "length",
        _ if calls => "tool_calls",
        _ => "stop",
    }
}

/// The answer in one piece.
#[must_use]
pub fn whole(body: &Value, pieces: &[Piece], end: End) -> Value {
    let (mut text, mut thought, mut calls) = (String::new(), String::new(), Vec::new());
    for piece in pieces {
        match piece {
            Piece::Thought(part) => thought.push_str(part),
            Piece::Text(part) => text.push_str(part),
            Piece::Call { name, arguments } => calls.push(json!({
                "id": format!("call_{}", calls.len()), "type": "function",
                "function": { "name": name, "arguments": arguments.to_string() },
            })),
        }
    }
    let mut message = json!({ "role": "assistant", "content": text });
    if !thought.is_empty() {
        message["reasoning_content"] = thought.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_796_000_000, "model": body["model"],
        "choices": [{ "index": 0, "message": message, "finish_reason": finish(pieces, end), "logprobs": null }],
        "usage": usage(pieces),
    })
}

/// The answer as a stream.
#[must_use]
pub fn stream(body: &Value, pieces: &[Piece], end: End) -> Stream {
    let mut stream = Stream::default();
    let chunk = |choices: Value| {
        json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_796_000_000, "model": body["model"],
            "choices": choices,
        })
    };
    let delta = |delta: &Value| chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null }]));
    stream.data(&delta(&json!({ "role": "assistant", "content": "" })));
    let mut calls = 0;
    for piece in pieces {
        match piece {
            Piece::Thought(part) => stream.data(&delta(&json!({ "reasoning_content": part }))),
            Piece::Text(part) => stream.data(&delta(&json!({ "content": part }))),
            Piece::Call { name, arguments } => {
                let function = json!({ "name": name, "arguments": "" });
                let first = json!({ "index": calls, "id": format!("call_{calls}"), "type": "function", "function": function });
                stream.data(&delta(&json!({ "tool_calls": [first] })));
                for part in super::halves(&arguments.to_string()) {
                    let more = json!({ "index": calls, "function": { "arguments": part } });
                    stream.data(&delta(&json!({ "tool_calls": [more] })));
                }
                calls += 1;
            }
        }
    }
    match end {
        End::Cut | End::Stall => return stream,
        End::Error => {
            stream.data(&failure(500));
            return stream;
        }
        End::Stop | End::Length => {}
    }
    let last = json!([{ "index": 0, "delta": {}, "finish_reason": finish(pieces, end) }]);
    stream.data(&chunk(last));
    if body["stream_options"]["include_usage"] == true {
        let mut counted = chunk(json!([]));
        counted["usage"] = usage(pieces);
        stream.data(&counted);
    }
    stream.raw("data: [DONE]\n\n");
    stream
}
