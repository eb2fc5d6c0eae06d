mod accepted;
mod codex;
mod hostile;
mod refused;

use serde_json::{Value, json};

use super::*;
use crate::conversation::{ImageSource, Part};

/// A request with these members beside the model and an input.
fn with(members: &Value) -> Vec<u8> {
    let mut body = json!({"model": "m", "input": "hi"});
    let more = members.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body.to_string().into_bytes()
}

fn asked(members: &Value) -> Asked {
    read(&with(members)).unwrap_or_else(|error| panic!("{members}: {error:?}"))
}

/// Messages in few words: the role and what is not empty.
fn told(asked: &Asked) -> Value {
    let message = |message: &crate::conversation::Message| {
        let mut told = json!({ "role": message.role });
        let mut put = |key: &str, value: Value, is_empty: bool| {
            if !is_empty {
                told[key] = value;
            }
        };
        let parts: Vec<Value> = message.parts.iter().map(part).collect();
        put("parts", json!(parts), parts.is_empty());
        put("reasoning", json!(message.reasoning), message.reasoning.is_empty());
        let calls: Vec<Value> = message
            .tool_calls
            .iter()
            .map(|call| json!([call.id, call.function.name, call.function.arguments]))
            .collect();
        put("calls", json!(calls), calls.is_empty());
        put("for", json!([message.tool_call_id, message.tool_name]), message.tool_call_id.is_empty());
        told
    };
    asked.conversation.messages.iter().map(message).collect()
}

fn part(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!(text),
        Part::Image(image) => match &image.source {
            ImageSource::Data { media_type, base64 } => {
                json!([media_type, base64, image.detail, image.param])
            }
            ImageSource::Url(url) => json!([url, image.detail, image.param]),
        },
    }
}

fn messages(input: &Value) -> Value {
    told(&asked(&json!({ "input": input })))
}

/// What a response repeats.
fn echoed(asked: &Asked) -> Value {
    let json = [b"{", asked.echo.members(), b"}"].concat();
    serde_json::from_slice(&json).unwrap()
}
