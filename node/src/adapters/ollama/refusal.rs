//! What an answer of Ollama other than 200 means. Pure.
//!
//! Before the first line the status is a real one, with `{"error":"text"}`.

use proto::message::ErrorKind;
use serde::Deserialize;
use serde_json::Value;

use crate::run::terminal::Failed;

/// Bytes of such a body that are read; what is said further is left out.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a backend's words that are passed on.
const WORDS_BYTES_MAX: usize = 512;

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the Edge is told.
    pub failed: Failed,
    /// The model takes no tools: the request may be sent again without them (RUN-4).
    pub of_tools: bool,
}

/// Judges an answer with this status and the beginning of its body.
#[must_use]
pub fn judge(status: u16, body: &[u8]) -> Refusal {
    #[derive(Deserialize)]
    struct Body {
        error: Value,
    }
    let said = serde_json::from_slice::<Body>(body).ok().map(|body| words(&body.error)).unwrap_or_default();
    let kind = match status {
        401 | 403 => ErrorKind::Credential,
        // A full queue: nothing ran. A server that is starting or gone for another reason says something else.
        429 => ErrorKind::Busy,
        503 if said.contains("busy") => ErrorKind::Busy,
        400..=498 => ErrorKind::InvalidRequest,
        _ => ErrorKind::UpstreamProtocol,
    };
    // The words before it are the model's name, which may be anything.
    let lacks_tools = said.split_once("does not support").is_some_and(|(_, what)| what.contains("tools"));
    let of_tools = status == 400 && lacks_tools;
    let colon = if said.is_empty() { "" } else { ": " };
    Refusal { failed: Failed::Error(kind, format!("ollama answered {status}{colon}{said}")), of_tools }
}

/// The words of an `error` member, in one line and bounded.
#[must_use]
pub fn words(error: &Value) -> String {
    match error {
        Value::String(text) => one_line(text),
        Value::Object(members) => match members.get("message") {
            Some(Value::String(text)) => one_line(text),
            _ => one_line(&error.to_string()),
        },
        other => one_line(&other.to_string()),
    }
}

fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(WORDS_BYTES_MAX));
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if line.len() >= WORDS_BYTES_MAX {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line.truncate(line.floor_char_boundary(WORDS_BYTES_MAX));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_become_kinds_with_the_backends_words() {
        let long = format!("{{\"error\":\"{}\"}}", "w\u{e9} ".repeat(2000));
        for (status, body, kind, said, of_tools) in [
            (
                400,
                r#"{"error":"registry.ollama.ai/library/phi:latest does not support tools"}"#,
                ErrorKind::InvalidRequest,
                "ollama answered 400: registry.ollama.ai/library/phi:latest does not support tools",
                true,
            ),
            (
                400,
                "{\"error\":\"\\\"x\\\" does not support thinking\\n\\\"x\\\" does not support tools\"}",
                ErrorKind::InvalidRequest,
                "ollama answered 400: \"x\" does not support thinking \"x\" does not support tools",
                true,
            ),
            (
                400,
                r#"{"error":"\"x\" does not support thinking"}"#,
                ErrorKind::InvalidRequest,
                "ollama answered 400: \"x\" does not support thinking",
                false,
            ),
            (
                400,
                r#"{"error":"\"big-tools\" does not support thinking"}"#,
                ErrorKind::InvalidRequest,
                "ollama answered 400: \"big-tools\" does not support thinking",
                false,
            ),
            (
                500,
                r#"{"error":"does not support tools"}"#,
                ErrorKind::UpstreamProtocol,
                "ollama answered 500: does not support tools",
                false,
            ),
            (
                404,
                r#"{"error":"model 'x' not found"}"#,
                ErrorKind::InvalidRequest,
                "ollama answered 404: model 'x' not found",
                false,
            ),
            (
                401,
                r#"{"error":"unauthorized","signin_url":"u"}"#,
                ErrorKind::Credential,
                "ollama answered 401: unauthorized",
                false,
            ),
            (
                503,
                r#"{"error":"server busy, please try again.  maximum pending requests exceeded"}"#,
                ErrorKind::Busy,
                "ollama answered 503: server busy, please try again. maximum pending requests exceeded",
                false,
            ),
            (503, "<html>", ErrorKind::UpstreamProtocol, "ollama answered 503", false),
            (502, "", ErrorKind::UpstreamProtocol, "ollama answered 502", false),
            (302, "", ErrorKind::UpstreamProtocol, "ollama answered 302", false),
            (
                499,
                r#"{"error":{"message":"request\u0007 canceled"}}"#,
                ErrorKind::UpstreamProtocol,
                "ollama answered 499: request canceled",
                false,
            ),
            (
                500,
                r#"{"error":["a",1]}"#,
                ErrorKind::UpstreamProtocol,
                "ollama answered 500: [\"a\",1]",
                false,
            ),
        ] {
            let refusal = judge(status, body.as_bytes());
            assert_eq!(refusal.failed, Failed::Error(kind, said.to_owned()), "{body}");
            assert_eq!(refusal.of_tools, of_tools, "{body}");
        }
        let Failed::Error(_, words) = judge(400, long.as_bytes()).failed else { panic!() };
        assert!(words.len() < 600 && words.len() > 500 && !words.contains('\n'), "{}", words.len());
    }
}
