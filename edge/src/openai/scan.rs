//! What routing needs of a request body, found without rebuilding it.
//!
//! The whole body is checked to be one JSON object (depth at most 128); of its members only `model` and `stream` are
//! looked at, and the model name can be replaced in place so that every other byte stays as the client sent it.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Deepest nesting of arrays and objects that is passed on.
const DEPTH_MAX: usize = 128;

/// Facts of a chat completion request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatScan {
    /// The model the client names.
    pub model: String,
    /// Whether it wants a stream.
    pub stream: bool,
    /// Where the model's JSON string stands in the body, quotes included.
    model_span: std::ops::Range<usize>,
}

/// Why a body is refused, for the 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// Not JSON.
    #[error("the body is not valid JSON: {0}")]
    Syntax(String),
    /// A member is missing.
    #[error("`{param}` is missing")]
    Missing {
        /// Its name.
        param: &'static str,
    },
    /// A member is of the wrong type.
    #[error("{message}")]
    Member {
        /// Its name.
        param: &'static str,
        /// What was expected.
        message: &'static str,
    },
}

#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    stream: Option<&'a RawValue>,
}

/// Scans a chat completion body.
///
/// # Errors
/// The body is not a JSON object, or `model` is missing or not a non-empty string, or `stream` is not a boolean.
pub fn chat(body: &[u8]) -> Result<ChatScan, ScanError> {
    if body.iter().find(|b| !b.is_ascii_whitespace()).is_some_and(|b| *b != b'{') {
        return Err(ScanError::Syntax("expected an object".to_owned()));
    }
    if nests_too_deep(body) {
        return Err(ScanError::Syntax(format!("it nests deeper than {DEPTH_MAX} levels")));
    }
    let members: Members<'_> = serde_json::from_slice(body).map_err(|e| ScanError::Syntax(e.to_string()))?;
    let wrong = |param, message| ScanError::Member { param, message };
    let raw = members.model.ok_or(ScanError::Missing { param: "model" })?.get();
    let model: String = serde_json::from_str(raw).map_err(|_| wrong("model", "model must be a string"))?;
    if model.is_empty() {
        return Err(wrong("model", "model must not be empty"));
    }
    let stream = match members.stream.map(RawValue::get) {
        None | Some("false" | "null") => false,
        Some("true") => true,
        Some(_) => return Err(wrong("stream", "stream must be a boolean")),
    };
    // `raw` borrows from `body`, so the distance of their starts is its offset.
    let start = raw.as_ptr().addr().saturating_sub(body.as_ptr().addr());
    Ok(ChatScan { model, stream, model_span: start..start + raw.len() })
}

/// Whether arrays and objects nest deeper than [`DEPTH_MAX`]. Our own parser would not mind, a provider's may.
fn nests_too_deep(body: &[u8]) -> bool {
    let (mut depth, mut rest) = (0_usize, body);
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => rest = after_string(after),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return true;
        }
    }
    false
}

/// What follows the string whose opening quote has been taken.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        let escape = rest.get(at) == Some(&b'\\');
        rest = rest.get(at + if escape { 2 } else { 1 }..).unwrap_or_default();
        if !escape {
            return rest;
        }
    }
    &[]
}

impl ChatScan {
    /// The body with the model replaced by `target` (TUN-5); shares the original when it is the same name.
    pub fn body_for(&self, body: &Bytes, target: &str) -> Bytes {
        if target == self.model {
            return body.clone();
        }
        let name = serde_json::Value::from(target).to_string();
        let (before, after) = (body.get(..self.model_span.start), body.get(self.model_span.end..));
        let (Some(before), Some(after)) = (before, after) else { return body.clone() };
        [before, name.as_bytes(), after].concat().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: TUN-5
    #[test]
    fn only_the_model_name_changes_and_every_other_byte_stays() {
        let body = Bytes::from_static(
            "{ \"stream\" : true,\"n\":1.0, \"messages\":[{\"model\":\"x\"}],\t\"model\": \"a\\u0062\" ,\"t\":\"你\\u597d\"}"
                .as_bytes(),
        );
        let scan = chat(&body).unwrap();
        assert_eq!((scan.model.as_str(), scan.stream), ("ab", true));
        let out = scan.body_for(&body, "Qwen/\"Q\"");
        let expected =
            String::from_utf8(body.to_vec()).unwrap().replace("\"a\\u0062\"", "\"Qwen/\\\"Q\\\"\"");
        assert_eq!(out, expected.as_bytes());
        assert_eq!(scan.body_for(&body, "ab").as_ptr(), body.as_ptr());
    }

    #[test]
    fn bad_bodies_are_refused_with_the_member_that_is_wrong() {
        let param = |body: &str| match chat(body.as_bytes()) {
            Err(ScanError::Member { param, .. } | ScanError::Missing { param }) => param,
            Err(ScanError::Syntax(_)) => "syntax",
            Ok(_) => "ok",
        };
        for (body, expected) in [
            ("", "syntax"),
            ("[]", "syntax"),
            ("{\"model\":\"m\"} x", "syntax"),
            ("{\"model\":\"m\",\"model\":\"n\"}", "syntax"),
            ("{\"model\":\"m\",}", "syntax"),
            ("{}", "model"),
            ("{\"model\":7}", "model"),
            ("{\"model\":\"\"}", "model"),
            ("{\"model\":\"m\",\"stream\":1}", "stream"),
            ("{\"model\":\"m\",\"stream\":null}", "ok"),
            ("{\"model\":\"m\",\"stream\":false,\"x\":{\"model\":1}}", "ok"),
        ] {
            assert_eq!(param(body), expected, "{body}");
        }
        let nested = |levels: usize| {
            format!("{{\"model\":\"m\",\"x\":{}\"]]\\\"[\"{}}}", "[".repeat(levels), "]".repeat(levels))
        };
        assert_eq!((param(&nested(127)), param(&nested(128))), ("ok", "syntax"));
        let deep = format!("{{\"model\":\"m\",\"x\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(param(&deep), "syntax");
    }
}
