//! What the assistant said before, for the guard of repetitions (SEG-4): read once, at the start of a request.

use serde_json::Value;

use crate::{gate::repeat::History, surface::Surface};

/// Largest body in bytes that is looked into: a millisecond of its shard. Of a larger one there is no history.
const BODY_BYTES_MAX: usize = 512 * 1024;

/// The history of a conversation. What cannot be read has none: the provider will say so.
#[must_use]
pub fn history(surface: Surface, body: &[u8]) -> History {
    let read = Some(body).filter(|body| body.len() <= BODY_BYTES_MAX);
    let Some(body) = read.and_then(|body| serde_json::from_slice::<Value>(body).ok()) else {
        return History::default();
    };
    let list = match surface {
        Surface::Chat | Surface::Messages => &body["messages"],
        Surface::Responses => &body["input"],
    };
    let turns = list.as_array().into_iter().flatten().filter(|turn| turn["role"] == "assistant");
    let texts: Vec<String> = turns.map(|turn| text_of(&turn["content"])).collect();
    History::of(texts.iter().map(String::as_str).filter(|text| !text.is_empty()))
}

/// A string, or the text of parts.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}
