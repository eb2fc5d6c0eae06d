//! Messages (api.md §1.4).

use serde_json::Value;

use super::{Ended, Event};

/// Judges the events of a stream.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(events: &[Event], ended: Ended) -> Result<(), String> {
    let (mut open, mut blocks) = (None::<Block>, 0_u64);
    let mut phase = Phase::Before;
    for (number, Event { name, data }) in events.iter().enumerate() {
        let wrong = |what: &str| Err(format!("event {number}: {what}: {name} {data}"));
        if data["type"] != *name.as_str() {
            return wrong("the name is not the type");
        }
        if matches!(phase, Phase::Stopped | Phase::Failed) {
            return wrong("something behind the end");
        }
        match (phase, name.as_str()) {
            (_, "ping") => {}
            (_, "error") => {
                let error = &data["error"];
                if !error["type"].is_string() || !error["message"].is_string() {
                    return wrong("an error without type and message");
                }
                phase = Phase::Failed;
            }
            (Phase::Before, "message_start") => {
                let message = &data["message"];
                let is_new = message["content"] == Value::Array(Vec::new())
                    && message.get("stop_reason") == Some(&Value::Null)
                    && message["usage"]["input_tokens"].is_u64()
                    && message["usage"]["output_tokens"].is_u64();
                let texts = ["id", "model"].iter().all(|key| message[*key].is_string());
                if !is_new || !texts || message["role"] != "assistant" || message["type"] != "message" {
                    return wrong("not the beginning of a message");
                }
                phase = Phase::Blocks;
            }
            (Phase::Blocks, "content_block_start") => {
                if open.is_some() || data["index"] != blocks {
                    return wrong("a block before the last one's end, or out of turn");
                }
                match Block::new(&data["content_block"]) {
                    Ok(block) => open = Some(block),
                    Err(what) => return wrong(&what),
                }
            }
            (Phase::Blocks, "content_block_delta") => {
                let Some(block) = open.as_mut().filter(|_| data["index"] == blocks) else {
                    return wrong("no such block is open");
                };
                block.takes(&data["delta"]).or_else(|what| wrong(&what))?;
            }
            (Phase::Blocks, "content_block_stop") => {
                let Some(block) = open.take().filter(|_| data["index"] == blocks) else {
                    return wrong("no such block is open");
                };
                block.ends().or_else(|what| wrong(&what))?;
                blocks += 1;
            }
            (Phase::Blocks, "message_delta") => {
                let is_end =
                    data["delta"]["stop_reason"].is_string() && data["usage"]["output_tokens"].is_u64();
                if open.is_some() || !is_end {
                    return wrong("not the end of a message");
                }
                phase = Phase::Ending;
            }
            (Phase::Ending, "message_stop") => phase = Phase::Stopped,
            _ => return wrong("an event that does not belong here"),
        }
    }
    let is_well = match ended {
        Ended::Well => phase == Phase::Stopped,
        Ended::Failed => phase == Phase::Failed,
        Ended::NotYet => matches!(phase, Phase::Before | Phase::Blocks | Phase::Ending),
    };
    if is_well { Ok(()) } else { Err(format!("{ended:?} ended {phase:?}")) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Before,
    Blocks,
    Ending,
    Stopped,
    Failed,
}

/// A block that is open.
#[derive(Debug)]
enum Block {
    Text,
    /// Whether it was signed.
    Thinking(bool),
    /// The JSON so far.
    Tool(String),
}

impl Block {
    fn new(block: &Value) -> Result<Self, String> {
        let is = |key: &str, value: Value| block[key] == value;
        let named = |key: &str| block[key].as_str().is_some_and(|text| !text.is_empty());
        match block["type"].as_str() {
            Some("text") if is("text", "".into()) => Ok(Self::Text),
            Some("thinking") if is("thinking", "".into()) && block["signature"].is_string() => {
                Ok(Self::Thinking(false))
            }
            Some("tool_use") if named("id") && named("name") && is("input", serde_json::json!({})) => {
                Ok(Self::Tool(String::new()))
            }
            _ => Err("not an empty block".to_owned()),
        }
    }

    fn takes(&mut self, delta: &Value) -> Result<(), String> {
        let text = |key: &str| delta[key].as_str().ok_or_else(|| format!("no {key}"));
        match (self, delta["type"].as_str()) {
            (Self::Text, Some("text_delta")) => text("text").map(drop),
            (Self::Thinking(false), Some("thinking_delta")) => text("thinking").map(drop),
            (Self::Thinking(signed @ false), Some("signature_delta")) => {
                *signed = true;
                text("signature").map(drop)
            }
            (Self::Tool(json), Some("input_json_delta")) => {
                json.push_str(text("partial_json")?);
                Ok(())
            }
            _ => Err("not of this block".to_owned()),
        }
    }

    fn ends(&self) -> Result<(), String> {
        match self {
            Self::Thinking(false) => Err("a thought that is not signed".to_owned()),
            Self::Tool(json)
                if !json.is_empty() && serde_json::from_str::<serde_json::Map<_, _>>(json).is_err() =>
            {
                Err(format!("no object: {json}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Ended, check};
    use crate::model::{
        Surface,
        messages::stream,
        plot::{End, Piece},
    };

    fn recorded(end: End) -> Vec<String> {
        let pieces = [
            Piece::Thought("hm"),
            Piece::Text("a".into()),
            Piece::Call { name: "f".into(), arguments: json!({"a": 1}) },
            Piece::Text("b".into()),
        ];
        stream(&json!({"model": "m"}), &pieces, end).events
    }

    fn judged(events: &[String], ended: Ended) -> Result<(), String> {
        check(Surface::Messages, events.concat().as_bytes(), ended).map(drop)
    }

    #[test]
    fn the_order_of_anthropics_own_events_holds_and_no_other() {
        assert_eq!(judged(&recorded(End::Stop), Ended::Well), Ok(()));
        assert_eq!(judged(&recorded(End::Error), Ended::Failed), Ok(()));
        assert_eq!(judged(&recorded(End::Cut), Ended::NotYet), Ok(()));
        let good = recorded(End::Stop);
        let optional = |event: &str| {
            event.contains("ping") || event.contains("text_delta") || event.contains("thinking_delta")
        };
        for left_out in (0..good.len()).filter(|index| !optional(&good[*index])) {
            let mut events = good.clone();
            events.remove(left_out);
            assert!(judged(&events, Ended::Well).is_err(), "without {}", good[left_out]);
        }
        for twice in (0..good.len()).filter(|index| !optional(&good[*index])) {
            let mut events = good.clone();
            events.insert(twice, good[twice].clone());
            assert!(judged(&events, Ended::Well).is_err(), "{} twice", good[twice]);
        }
    }
}
