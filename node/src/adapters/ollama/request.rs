//! A conversation as the body of Ollama's `/api/chat`. Pure.
//!
//! What the client leaves open stays open: the model's own parameters count then, not values of ours. `num_ctx` is sent only when
//! it is configured, because another value makes Ollama load the model anew. Ollama has no `tool_choice`: `none` sends no tools, a
//! named function is the only one that is sent, and `required` is left to the model.

use proto::{
    message::ErrorKind,
    run_input::{Effort, Format, Role, RunInput, Tool, ToolChoice, Turn},
};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::run::terminal::Failed;

/// Ollama keeps these in a signed integer.
const COUNT_MAX: u64 = i32::MAX as u64;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Message<'a>>,
    stream: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<FormatOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    think: Option<Think>,
    options: Options<'a>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    thinking: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    images: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallOut<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    tool_name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    tool_call_id: &'a str,
}

#[derive(Serialize)]
struct CallOut<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    function: CalledOut<'a>,
}

#[derive(Serialize)]
struct CalledOut<'a> {
    index: usize,
    name: &'a str,
    arguments: &'a RawValue,
}

#[derive(Serialize)]
struct ToolOut<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: FunctionOut<'a>,
}

#[derive(Serialize)]
struct FunctionOut<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a RawValue,
}

#[derive(Serialize)]
#[serde(untagged)]
enum FormatOut<'a> {
    Word(&'static str),
    Schema(&'a RawValue),
}

#[derive(Serialize)]
#[serde(untagged)]
enum Think {
    Switch(bool),
    Level(&'static str),
}

#[derive(Serialize)]
struct Options<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    num_ctx: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_predict: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
}

/// The functions that the model is told of.
pub fn offered(input: &RunInput) -> impl Iterator<Item = &Tool> {
    input.tools.iter().filter(|tool| match &input.tool_choice {
        ToolChoice::Auto | ToolChoice::Required => true,
        ToolChoice::None => false,
        ToolChoice::Function(name) => tool.name == *name,
    })
}

/// The body for `model`. `context_size` is `num_ctx`, 0 for the server's own.
///
/// # Errors
/// [`ErrorKind::InvalidRequest`]: the arguments of an earlier call are no JSON object.
pub fn body(model: &str, context_size: u32, input: &RunInput) -> Result<Vec<u8>, Failed> {
    let messages =
        input.messages.iter().enumerate().map(|(at, turn)| message(at, turn)).collect::<Result<_, _>>()?;
    // Cannot fail: it is a constant.
    let no_parameters: &RawValue = serde_json::from_str(NO_PARAMETERS).map_err(internal)?;
    let tools = offered(input).map(|tool| ToolOut {
        kind: "function",
        function: FunctionOut {
            name: &tool.name,
            description: &tool.description,
            parameters: tool.parameters.as_deref().unwrap_or(no_parameters),
        },
    });
    let asked = &input.options;
    let count = |value: Option<u64>| value.map(|value| value.min(COUNT_MAX));
    let body = Body {
        model,
        messages,
        stream: true,
        tools: tools.collect(),
        format: match &input.format {
            Format::Text => None,
            Format::JsonObject => Some(FormatOut::Word("json")),
            Format::JsonSchema(schema) => Some(FormatOut::Schema(schema)),
        },
        think: input.effort.map(think),
        options: Options {
            num_ctx: (context_size != 0).then_some(context_size),
            num_predict: count(asked.max_tokens),
            temperature: asked.temperature,
            top_p: asked.top_p,
            top_k: count(asked.top_k),
            min_p: asked.min_p,
            frequency_penalty: asked.frequency_penalty,
            presence_penalty: asked.presence_penalty,
            seed: asked.seed,
            stop: &asked.stop,
        },
    };
    serde_json::to_vec(&body).map_err(internal)
}

const NO_PARAMETERS: &str = r#"{"type":"object","properties":{}}"#;

fn think(effort: Effort) -> Think {
    match effort {
        Effort::None => Think::Switch(false),
        Effort::Minimal | Effort::Low => Think::Level("low"),
        Effort::Medium => Think::Level("medium"),
        Effort::High => Think::Level("high"),
        Effort::Max => Think::Level("max"),
    }
}

fn message(at: usize, turn: &Turn) -> Result<Message<'_>, Failed> {
    let calls = turn.tool_calls.iter().enumerate().map(|(index, call)| {
        let arguments = object(&call.function.arguments).ok_or_else(|| {
            let path = format!("messages[{at}].tool_calls[{index}].function.arguments");
            Failed::Error(ErrorKind::InvalidRequest, format!("{path} is not a JSON object"))
        })?;
        Ok(CallOut { id: &call.id, function: CalledOut { index, name: &call.function.name, arguments } })
    });
    Ok(Message {
        role: role(turn),
        content: &turn.text,
        thinking: &turn.reasoning,
        images: &turn.images,
        tool_calls: calls.collect::<Result<_, Failed>>()?,
        tool_name: &turn.tool_name,
        tool_call_id: &turn.tool_call_id,
    })
}

fn role(turn: &Turn) -> &'static str {
    match turn.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

/// `text` as a JSON object; what is empty is one without members.
#[must_use]
pub fn object(text: &str) -> Option<&RawValue> {
    let text = text.trim();
    let text = if text.is_empty() { "{}" } else { text };
    serde_json::from_str::<&RawValue>(text).ok().filter(|_| text.starts_with('{'))
}

fn internal(error: serde_json::Error) -> Failed {
    Failed::error(ErrorKind::Internal, error)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn mapped(input: Value) -> Value {
        let input = RunInput::from_json(input.to_string().as_bytes()).unwrap();
        serde_json::from_slice(&body("qwen3:8b", 0, &input).unwrap()).unwrap()
    }

    fn user() -> Value {
        json!([{"role": "user", "text": "hi"}])
    }

    #[test]
    fn a_bare_conversation_leaves_everything_else_to_ollama() {
        assert_eq!(
            mapped(json!({ "messages": user() })),
            json!({
                "model": "qwen3:8b", "stream": true, "options": {},
                "messages": [{"role": "user", "content": "hi"}],
            })
        );
    }

    #[test]
    fn options_have_ollamas_names() {
        for (options, mapped_to) in [
            (json!({"max_tokens": 7}), json!({"num_predict": 7})),
            (json!({"max_tokens": u64::MAX}), json!({"num_predict": i32::MAX})),
            (json!({"temperature": 0.25, "top_p": 0.5}), json!({"temperature": 0.25, "top_p": 0.5})),
            (json!({"top_k": 3, "min_p": 0.125}), json!({"top_k": 3, "min_p": 0.125})),
            (json!({"seed": -1}), json!({"seed": -1})),
            (
                json!({"frequency_penalty": 1.5, "presence_penalty": -0.5}),
                json!({"frequency_penalty": 1.5, "presence_penalty": -0.5}),
            ),
            (json!({"stop": ["a", "\n"]}), json!({"stop": ["a", "\n"]})),
        ] {
            let found = mapped(json!({ "messages": user(), "options": options }));
            assert_eq!(found["options"], mapped_to);
        }
        let input = RunInput::default();
        let sized: Value = serde_json::from_slice(&body("m", 8192, &input).unwrap()).unwrap();
        assert_eq!(sized["options"], json!({"num_ctx": 8192}));
        assert!(sized.get("keep_alive").is_none());
    }

    #[test]
    fn effort_and_format_have_ollamas_forms() {
        for (effort, think) in [
            ("none", json!(false)),
            ("minimal", json!("low")),
            ("low", json!("low")),
            ("medium", json!("medium")),
            ("high", json!("high")),
            ("max", json!("max")),
        ] {
            assert_eq!(mapped(json!({ "effort": effort }))["think"], think);
        }
        assert_eq!(mapped(json!({"format": "json_object"}))["format"], json!("json"));
        let input =
            RunInput::from_json(br#"{"format":{"json_schema":{"type":"object","z":1,"a":2}}}"#).unwrap();
        let text = String::from_utf8(body("m", 0, &input).unwrap()).unwrap();
        assert!(text.contains(r#""format":{"type":"object","z":1,"a":2}"#), "{text}");
    }

    #[test]
    fn turns_keep_images_reasoning_calls_and_results() {
        let call = json!({"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": [2]}"}});
        let empty = json!({"id": "", "type": "function", "function": {"name": "g", "arguments": ""}});
        let found = mapped(json!({"messages": [
            {"role": "system", "text": "s"},
            {"role": "user", "text": "look", "images": ["aGk=", "eW8="]},
            {"role": "assistant", "reasoning": "hm", "tool_calls": [call, empty]},
            {"role": "tool", "text": "42", "tool_call_id": "call_1", "tool_name": "f"},
        ]}));
        assert_eq!(
            found["messages"],
            json!([
                {"role": "system", "content": "s"},
                {"role": "user", "content": "look", "images": ["aGk=", "eW8="]},
                {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [
                    {"id": "call_1", "function": {"index": 0, "name": "f", "arguments": {"b": 1, "a": [2]}}},
                    {"function": {"index": 1, "name": "g", "arguments": {}}},
                ]},
                {"role": "tool", "content": "42", "tool_name": "f", "tool_call_id": "call_1"},
            ])
        );
    }

    #[test]
    fn tools_go_as_the_choice_says() {
        let tools = json!([
            {"name": "f", "description": "does", "parameters": {"type": "object", "properties": {"x": {}}}},
            {"name": "g"},
        ]);
        for (choice, names) in [
            (json!("auto"), &["f", "g"][..]),
            (json!("required"), &["f", "g"]),
            (json!("none"), &[]),
            (json!({"function": "g"}), &["g"]),
        ] {
            let found = mapped(json!({"messages": user(), "tools": tools, "tool_choice": choice}));
            let sent = found.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
            let sent: Vec<_> = sent.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
            assert_eq!(sent, names, "{choice}");
            assert!(found.get("tool_choice").is_none());
        }
        let found = mapped(json!({ "tools": tools }));
        assert_eq!(
            found["tools"],
            json!([
                {"type": "function", "function": {"name": "f", "description": "does",
                    "parameters": {"type": "object", "properties": {"x": {}}}}},
                {"type": "function", "function": {"name": "g", "description": "",
                    "parameters": {"type": "object", "properties": {}}}},
            ])
        );
    }

    #[test]
    fn arguments_that_are_no_object_are_refused_by_their_place() {
        for arguments in ["[1]", "\"x\"", "{", "{} {}", "nul"] {
            let call =
                json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}});
            let input = json!({"messages": [{"role": "user"}, {"role": "assistant", "tool_calls": [call]}]});
            let input = RunInput::from_json(input.to_string().as_bytes()).unwrap();
            let words = "messages[1].tool_calls[0].function.arguments is not a JSON object".to_owned();
            assert_eq!(
                body("m", 0, &input),
                Err(Failed::Error(ErrorKind::InvalidRequest, words)),
                "{arguments}"
            );
        }
    }
}
