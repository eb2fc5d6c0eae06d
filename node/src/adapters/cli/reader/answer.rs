//! A JSON object that is an answer, or the end of one. Pure.
//!
//! | Member | Meaning |
//! |---|---|
//! | `result`, `response`, `text`, `content` | the answer: the first of them that is a text, or a list of parts `{"type":"text","text":…}` |
//! | `reasoning`, `thinking` | what was thought before |
//! | `usage` | `input_tokens` or `prompt_tokens`, `output_tokens` or `completion_tokens`, and their shares (see [`usage`]) |
//! | `stop_reason`, `finish_reason` | `max_tokens` and `length` are `length`, `refusal` and `content_filter` are `content_filter`, anything else is `stop` |
//! | `is_error: true`, `status: "error"`, `error` | it failed; the words are the error's, or the answer's |

use proto::message::Usage;
use serde_json::{Map, Value};

use super::super::words::words;

/// What an object says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The answer, if there is one.
    pub text: Option<String>,
    /// What was thought before.
    pub reasoning: String,
    /// Counts.
    pub usage: Option<Usage>,
    /// `stop`, `length` or `content_filter`.
    pub reason: Option<&'static str>,
    /// It failed: in these words, one line, which may be empty.
    pub error: Option<String>,
}

/// Reads an object.
#[must_use]
pub fn read(object: &Map<String, Value>) -> Answer {
    let text = ["result", "response", "text", "content"].iter().find_map(|name| text(object.get(*name)?));
    let reasoning = ["reasoning", "thinking"].iter().find_map(|name| object.get(*name)?.as_str());
    let reason = ["stop_reason", "finish_reason"].iter().find_map(|name| object.get(*name)?.as_str());
    let error = error(object)
        .map(|said| if said.is_empty() { words(text.as_deref().unwrap_or_default()) } else { said });
    Answer {
        reasoning: reasoning.unwrap_or_default().to_owned(),
        usage: object.get("usage").and_then(usage),
        reason: reason.map(finish_reason),
        error,
        text,
    }
}

/// A text, or the texts of a list of parts.
#[must_use]
pub fn text(value: &Value) -> Option<String> {
    parts(value, "text", "text")
}

/// What parts of this type have in this member; a text alone is a part of its own.
pub(super) fn parts(value: &Value, kind: &str, member: &str) -> Option<String> {
    match value {
        Value::String(text) if kind == "text" => Some(text.clone()),
        Value::Array(parts) => {
            let of_kind = |part: &&Value| part.get("type").and_then(Value::as_str) == Some(kind);
            Some(parts.iter().filter(of_kind).filter_map(|part| part.get(member)?.as_str()).collect())
        }
        _ => None,
    }
}

/// Why it failed, if it did; empty when it does not say.
fn error(object: &Map<String, Value>) -> Option<String> {
    let said = object.get("error").filter(|error| !error.is_null() && **error != Value::Bool(false));
    let marked = object.get("is_error") == Some(&Value::Bool(true))
        || object.get("status").and_then(Value::as_str) == Some("error");
    match said {
        Some(error) => Some(error_words(error)),
        None => marked.then(String::new),
    }
}

/// The words of an error: its text, or its `message`.
#[must_use]
pub fn error_words(error: &Value) -> String {
    let text = error.as_str().or_else(|| error.get("message")?.as_str());
    text.map(words).unwrap_or_default()
}

/// Token counts in OpenAI's or Anthropic's names; `None` without any.
#[must_use]
pub fn usage(value: &Value) -> Option<Usage> {
    let count = |names: &[&str]| names.iter().find_map(|name| value.get(*name)?.as_u64());
    let inner = |outer: &str, name: &str| value.get(outer)?.get(name)?.as_u64();
    // Anthropic's counts of a prompt are apart from each other, OpenAI's contain one another.
    let read = count(&["cache_read_input_tokens"]);
    let apart =
        read.unwrap_or_default().saturating_add(count(&["cache_creation_input_tokens"]).unwrap_or_default());
    let usage = Usage {
        input_tokens: count(&["input_tokens", "prompt_tokens"]).map(|input| input.saturating_add(apart)),
        output_tokens: count(&["output_tokens", "completion_tokens"]),
        cached_input_tokens: read
            .or_else(|| count(&["cached_input_tokens"]))
            .or_else(|| inner("prompt_tokens_details", "cached_tokens")),
        reasoning_tokens: count(&["reasoning_output_tokens"])
            .or_else(|| inner("completion_tokens_details", "reasoning_tokens")),
    };
    (usage != Usage::default()).then_some(usage)
}

fn finish_reason(said: &str) -> &'static str {
    match said {
        "max_tokens" | "length" => "length",
        "refusal" | "content_filter" => "content_filter",
        _ => "stop",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Answer {
        read(serde_json::from_str::<Value>(text).unwrap().as_object().unwrap())
    }

    fn counts(input: u64, output: u64, cached: Option<u64>, reasoning: Option<u64>) -> Option<Usage> {
        Some(Usage {
            input_tokens: Some(input),
            output_tokens: Some(output),
            cached_input_tokens: cached,
            reasoning_tokens: reasoning,
        })
    }

    #[test]
    fn an_answer_is_found_under_its_usual_names() {
        for (object, text) in [
            (r#"{"result":"a","text":"b"}"#, Some("a")),
            (r#"{"response":"a","stats":{}}"#, Some("a")),
            (r#"{"text":"a"}"#, Some("a")),
            (r#"{"result":null,"content":"a"}"#, Some("a")),
            (
                r#"{"content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}"#,
                Some("ab"),
            ),
            (r#"{"result":""}"#, Some("")),
            (r#"{"result":7}"#, None),
            ("{}", None),
        ] {
            assert_eq!(parse(object).text.as_deref(), text, "{object}");
        }
        assert_eq!(parse(r#"{"text":"a","thinking":"hm"}"#).reasoning, "hm");
        for (object, reason) in [
            (r#"{"stop_reason":"max_tokens"}"#, Some("length")),
            (r#"{"finish_reason":"content_filter"}"#, Some("content_filter")),
            (r#"{"stop_reason":"end_turn"}"#, Some("stop")),
            (r#"{"stop_reason":null}"#, None),
        ] {
            assert_eq!(parse(object).reason, reason, "{object}");
        }
    }

    // req: RUN-6
    #[test]
    fn counts_are_read_in_either_naming_and_the_parts_of_a_prompt_are_added_where_they_are_apart() {
        for (object, usage) in [
            (r#"{"usage":{"input_tokens":3,"output_tokens":4}}"#, counts(3, 4, None, None)),
            (
                r#"{"usage":{"input_tokens":3,"cache_read_input_tokens":10,"cache_creation_input_tokens":5,"output_tokens":4}}"#,
                counts(18, 4, Some(10), None),
            ),
            (
                r#"{"usage":{"input_tokens":13,"cached_input_tokens":10,"output_tokens":4,"reasoning_output_tokens":2}}"#,
                counts(13, 4, Some(10), Some(2)),
            ),
            (
                r#"{"usage":{"prompt_tokens":13,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":10},"completion_tokens_details":{"reasoning_tokens":1}}}"#,
                counts(13, 4, Some(10), Some(1)),
            ),
            (r#"{"usage":{"input_tokens":-3}}"#, None),
            (r#"{"usage":"many"}"#, None),
            (r#"{"usage":null}"#, None),
        ] {
            assert_eq!(parse(object).usage, usage, "{object}");
        }
        let huge = format!(r#"{{"usage":{{"input_tokens":{0},"cache_read_input_tokens":{0}}}}}"#, u64::MAX);
        assert_eq!(parse(&huge).usage.unwrap().input_tokens, Some(u64::MAX));
    }

    #[test]
    fn a_failure_is_told_in_its_own_words() {
        for (object, error) in [
            (r#"{"is_error":true,"result":"no\nkey"}"#, Some("no key")),
            (r#"{"is_error":true}"#, Some("")),
            (r#"{"is_error":false,"result":"a","error":null}"#, None),
            (r#"{"error":{"type":"x","message":"too long"}}"#, Some("too long")),
            (r#"{"error":"bad","text":"a"}"#, Some("bad")),
            (r#"{"status":"error","error":{"message":"m"}}"#, Some("m")),
            (r#"{"status":"success","response":"a"}"#, None),
        ] {
            assert_eq!(parse(object).error.as_deref(), error, "{object}");
        }
    }
}
