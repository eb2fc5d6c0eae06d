//! What `/api/chat` takes, field by field and type by type.
//!
//! A real server is written in Go: it refuses wrong types, and skips names it does not know. This one refuses those, too, because
//! a name that nobody knows is a setting that does nothing.

use serde_json::{Map, Value};

/// A JSON type, for people.
type Check = fn(&Value) -> Result<(), String>;

/// Options that hold whole numbers.
const WHOLE: [&str; 8] =
    ["num_keep", "seed", "num_predict", "top_k", "repeat_last_n", "num_ctx", "num_batch", "num_gpu"];
/// Options that hold numbers.
const NUMBERS: [&str; 7] =
    ["temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty"];

/// Says what is wrong with a body, or nothing.
///
/// # Errors
/// The path of the field, and what was expected there.
pub fn chat(body: &Value) -> Result<(), String> {
    let body = object("the body", body)?;
    fields(
        "",
        body,
        &[
            ("model", text),
            ("messages", list),
            ("stream", truth),
            ("format", format),
            ("keep_alive", keep_alive),
            ("tools", list),
            ("options", options),
            ("think", think),
            ("truncate", truth),
            ("shift", truth),
            ("logprobs", truth),
            ("top_logprobs", whole),
        ],
    )?;
    let model = body.get("model").and_then(Value::as_str).unwrap_or_default();
    if model.is_empty() {
        return Err("model is required".to_owned());
    }
    for (index, tool) in items(body, "tools") {
        at(&format!("tools[{index}]"), definition(tool))?;
    }
    let mut calls = Vec::new();
    for (index, message) in items(body, "messages") {
        at(&format!("messages[{index}]"), turn(message, &mut calls))?;
    }
    Ok(())
}

/// One message; `calls` are the ids and names of the calls in those before it.
fn turn(message: &Value, calls: &mut Vec<(String, String)>) -> Result<(), String> {
    let message = object("a message", message)?;
    fields(
        "",
        message,
        &[
            ("role", role),
            ("content", text),
            ("thinking", text),
            ("images", images),
            ("tool_calls", list),
            ("tool_name", text),
            ("tool_call_id", text),
        ],
    )?;
    let of = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default();
    if of("role").is_empty() {
        return Err("role is required".to_owned());
    }
    for (index, call) in items(message, "tool_calls") {
        calls.push(at(&format!("tool_calls[{index}]"), self::call(call))?);
    }
    if of("role") == "assistant" || of("role") == "tool" {
    } else if message.contains_key("tool_calls") {
        return Err(format!("tool_calls of role {}", of("role")));
    }
    if of("role") == "tool" {
        let (id, name) = (of("tool_call_id"), of("tool_name"));
        if !calls.iter().any(|call| (call.0.as_str(), call.1.as_str()) == (id, name)) {
            return Err(format!("an answer for {name} `{id}`, which nobody called; called were {calls:?}"));
        }
    }
    Ok(())
}

/// A call of the assistant's: its id and its name.
fn call(call: &Value) -> Result<(String, String), String> {
    let call = object("a call", call)?;
    fields("", call, &[("id", text), ("function", anything)])?;
    let function = object("function", call.get("function").unwrap_or(&Value::Null))?;
    fields("function.", function, &[("index", whole), ("name", text), ("arguments", an_object)])?;
    let of = |object: &Map<String, Value>, key: &str| {
        object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    if of(function, "name").is_empty() || !function.contains_key("arguments") {
        return Err("function.name and function.arguments are required".to_owned());
    }
    Ok((of(call, "id"), of(function, "name")))
}

fn definition(tool: &Value) -> Result<(), String> {
    let tool = object("a tool", tool)?;
    fields("", tool, &[("type", text), ("function", anything)])?;
    let function = object("function", tool.get("function").unwrap_or(&Value::Null))?;
    fields("function.", function, &[("name", text), ("description", text), ("parameters", an_object)])?;
    match (tool.get("type").and_then(Value::as_str), function.get("name")) {
        (Some("function"), Some(_)) => Ok(()),
        other => Err(format!("type `function` and a name are required, found {other:?}")),
    }
}

fn options(value: &Value) -> Result<(), String> {
    for (key, value) in object("options", value)? {
        let check: Check = match key.as_str() {
            key if WHOLE.contains(&key) => whole,
            key if NUMBERS.contains(&key) => number,
            "stop" => texts,
            _ => return Err(format!("{key} is no option")),
        };
        at(key, check(value))?;
    }
    Ok(())
}

/// Checks the fields that are there; others may not be.
fn fields(path: &str, object: &Map<String, Value>, known: &[(&str, Check)]) -> Result<(), String> {
    for (key, value) in object {
        let Some((_, check)) = known.iter().find(|(name, _)| name == key) else {
            return Err(format!("{path}{key} is no field"));
        };
        at(&format!("{path}{key}"), check(value))?;
    }
    Ok(())
}

fn at<T>(path: &str, result: Result<T, String>) -> Result<T, String> {
    result.map_err(|error| format!("{path}: {error}"))
}

fn items<'a>(object: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    object.get(key).and_then(Value::as_array).into_iter().flatten().enumerate()
}

fn object<'a>(what: &str, value: &'a Value) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{what} is to be an object, not {value}"))
}

fn expected(is_so: bool, what: &str, value: &Value) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(format!("expected {what}, found {value}")) }
}

fn anything(_: &Value) -> Result<(), String> {
    Ok(())
}

fn text(value: &Value) -> Result<(), String> {
    expected(value.is_string(), "a string", value)
}

fn truth(value: &Value) -> Result<(), String> {
    expected(value.is_boolean(), "true or false", value)
}

fn whole(value: &Value) -> Result<(), String> {
    expected(value.is_i64(), "a whole number", value)
}

fn number(value: &Value) -> Result<(), String> {
    expected(value.is_number(), "a number", value)
}

fn list(value: &Value) -> Result<(), String> {
    expected(value.is_array(), "a list", value)
}

fn an_object(value: &Value) -> Result<(), String> {
    expected(value.is_object(), "an object", value)
}

fn texts(value: &Value) -> Result<(), String> {
    expected(value.as_array().is_some_and(|list| list.iter().all(Value::is_string)), "strings", value)
}

fn images(value: &Value) -> Result<(), String> {
    let is_base64 = |text: &str| {
        let digits = text.trim_end_matches('=');
        let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
        !digits.is_empty()
            && text.len().is_multiple_of(4)
            && text.len() - digits.len() <= 2
            && digits.bytes().all(is_digit)
    };
    let all = value.as_array().is_some_and(|list| list.iter().all(|i| i.as_str().is_some_and(is_base64)));
    expected(all, "texts in base64", value)
}

fn role(value: &Value) -> Result<(), String> {
    let is_known = matches!(value.as_str(), Some("system" | "user" | "assistant" | "tool"));
    expected(is_known, "system, user, assistant or tool", value)
}

fn format(value: &Value) -> Result<(), String> {
    expected(value == "json" || value.is_object(), "`json` or a schema", value)
}

fn think(value: &Value) -> Result<(), String> {
    let is_level = matches!(value.as_str(), Some("low" | "medium" | "high" | "max"));
    expected(value.is_boolean() || is_level, "true, false or a level", value)
}

/// Seconds, or a duration as Go writes them.
fn keep_alive(value: &Value) -> Result<(), String> {
    let is_duration = |text: &str| {
        let digits = text.trim_start_matches('-').trim_end_matches(|c: char| c.is_ascii_alphabetic());
        !digits.is_empty() && digits.len() < text.len() && digits.parse::<f64>().is_ok()
    };
    expected(value.is_number() || value.as_str().is_some_and(is_duration), "seconds or a duration", value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(key: &str, value: Value) -> Value {
        let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
        body[key] = value;
        body
    }

    #[test]
    fn what_the_documents_name_is_taken_and_every_other_name_or_type_is_refused_with_its_path() {
        let call = json!({ "id": "c", "function": { "index": 0, "name": "f", "arguments": {} } });
        let result = |id: &str, name: &str| {
            json!([
                { "role": "assistant", "content": "", "tool_calls": [call] },
                { "role": "tool", "content": "1", "tool_call_id": id, "tool_name": name },
            ])
        };
        for (key, value) in [
            ("stream", json!(true)),
            ("format", json!("json")),
            ("format", json!({ "type": "object" })),
            ("keep_alive", json!("-1m")),
            ("keep_alive", json!(0)),
            ("think", json!("max")),
            ("think", json!(false)),
            ("options", json!({ "stop": ["a"], "num_predict": 5, "temperature": 0, "seed": -1 })),
            ("tools", json!([{ "type": "function", "function": { "name": "f", "parameters": {} } }])),
            ("messages", json!([{ "role": "user", "content": "", "images": ["iVBORw0K"] }])),
            ("messages", result("c", "f")),
        ] {
            assert_eq!(chat(&with(key, value.clone())), Ok(()), "{key}: {value}");
        }
        for (key, value, path) in [
            ("tool_choice", json!("auto"), "tool_choice"),
            ("stream", json!("true"), "stream"),
            ("format", json!("yaml"), "format"),
            ("keep_alive", json!("5"), "keep_alive"),
            ("think", json!("xhigh"), "think"),
            ("options", json!({ "max_tokens": 5 }), "options: max_tokens"),
            ("options", json!({ "num_predict": 5.5 }), "options: num_predict"),
            ("options", json!({ "stop": "a" }), "options: stop"),
            ("tools", json!([{ "function": { "name": "f" } }]), "tools[0]"),
            ("messages", json!([{ "role": "developer", "content": "" }]), "messages[0]: role"),
            ("messages", json!([{ "role": "user", "content": [] }]), "messages[0]: content"),
            (
                "messages",
                json!([{ "role": "user", "images": ["data:image/png;base64,iVBO"] }]),
                "messages[0]",
            ),
            ("messages", result("c", ""), "messages[1]"),
            ("messages", result("d", "f"), "messages[1]"),
        ] {
            let error = chat(&with(key, value.clone())).unwrap_err();
            assert!(error.starts_with(path), "{value}: {error}");
        }
        let mut text = call;
        text["function"]["arguments"] = json!("{}");
        let said = json!([{ "role": "assistant", "content": "", "tool_calls": [text] }]);
        assert!(chat(&with("messages", said)).unwrap_err().contains("arguments"));
    }
}
