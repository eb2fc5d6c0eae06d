//! What a provider says instead of an answer: an error body, or an error in a stream, in the forms that engines have (api.md §1.6, §3).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Longest words of a provider that are told, in characters.
pub const WORDS_CHARS_MAX: usize = 300;
/// Longest error body that is looked into, in bytes; of a longer one only the status is told.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// Why a provider does not serve a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderError {
    /// Status of its answer, or the one that its words amount to: 400 to 599.
    pub status: u16,
    /// What of it every surface has a word for.
    pub kind: ProviderErrorKind,
    /// What it says: one line of at most [`WORDS_CHARS_MAX`] characters, or nothing. Never of a refused credential, which providers
    /// quote from.
    pub words: String,
}

/// What clients act upon beside the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderErrorKind {
    /// The request has more tokens than the model takes.
    ContextTooLong,
    /// It has no such model.
    ModelNotFound,
    /// No more of them for a while that waiting does not end.
    Quota,
    /// Nothing else than the status says.
    Other,
}

impl ProviderError {
    /// It failed, and says no more than that.
    #[must_use]
    pub const fn silent() -> Self {
        Self { status: 502, kind: ProviderErrorKind::Other, words: String::new() }
    }
}

/// Reads the answer of this status, which is no success. Another status than one of an error is a provider that does not do what it
/// is asked.
#[must_use]
pub fn of_body(status: u16, body: &[u8]) -> ProviderError {
    let told = Told::read(body);
    let status = if (400..=599).contains(&status) { status } else { 502 };
    told.into_error(status)
}

/// Reads an error that stands in the place of a chunk.
#[must_use]
pub fn of_event(data: &[u8]) -> ProviderError {
    let told = Told::read(data);
    let status = told.status();
    told.into_error(status)
}

/// What is told, in whichever form.
#[derive(Debug, Default)]
struct Told<'a> {
    message: Cow<'a, str>,
    kind: Cow<'a, str>,
    code: Cow<'a, str>,
}

/// `{"error": {…}}`, `{"error": "…"}`, `{"object": "error", "message": …}`, `{"detail": "…"}`.
#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    detail: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    code: Option<&'a RawValue>,
}

impl<'a> Told<'a> {
    fn read(body: &'a [u8]) -> Self {
        let Some(mut body) = Self::object(body) else { return Self::default() };
        if let Some(error) = body.error {
            match Self::object(error.get().as_bytes()) {
                Some(inner) => body = inner,
                None => body.message = Some(error),
            }
        }
        let word = |raw: Option<&'a RawValue>| raw.and_then(word).unwrap_or_default();
        Self { message: word(body.message.or(body.detail)), kind: word(body.kind), code: word(body.code) }
    }

    fn object(json: &'a [u8]) -> Option<Body<'a>> {
        let json = Some(json).filter(|json| json.len() <= BODY_BYTES_MAX)?;
        json.trim_ascii().starts_with(b"{").then(|| serde_json::from_slice(json).ok()).flatten()
    }

    /// The status that an error without one amounts to.
    fn status(&self) -> u16 {
        if let Some(code) = self.code.parse().ok().filter(|code| (400..=599).contains(code)) {
            return code;
        }
        let words = format!("{} {}", self.kind, self.code).to_ascii_lowercase();
        let names = |list: &[&str]| list.iter().any(|word| words.contains(word));
        match () {
            () if self.error_kind(400) == ProviderErrorKind::ContextTooLong => 400,
            () if names(&["rate_limit", "ratelimit", "quota"]) => 429,
            () if names(&["overloaded", "unavailable"]) => 503,
            () if names(&["authentication", "invalid_api_key"]) => 401,
            () if names(&["permission"]) => 403,
            () if names(&["not_found", "notfound"]) => 404,
            () if names(&["timeout"]) => 504,
            () if names(&["invalid_request", "badrequest", "bad_request", "invalid_prompt"]) => 400,
            () => 502,
        }
    }

    fn error_kind(&self, status: u16) -> ProviderErrorKind {
        let message = self.message.to_ascii_lowercase();
        let is_context = is_too_long(&self.kind, &self.code, &message);
        // Some engines say it by a 500.
        if is_context && (matches!(status, 400 | 413 | 422) || status >= 500) {
            return ProviderErrorKind::ContextTooLong;
        }
        let is_model = self.code == "model_not_found" || message.contains("model");
        match status {
            404 if is_model => ProviderErrorKind::ModelNotFound,
            429 if self.kind == "insufficient_quota" || self.code == "insufficient_quota" => {
                ProviderErrorKind::Quota
            }
            _ => ProviderErrorKind::Other,
        }
    }

    fn into_error(self, status: u16) -> ProviderError {
        let kind = self.error_kind(status);
        // A request that is too long is the client's to change, whatever it was answered with.
        let status = if kind == ProviderErrorKind::ContextTooLong { 400 } else { status };
        let words = if matches!(status, 401 | 403 | 407) { String::new() } else { one_line(&self.message) };
        ProviderError { status, kind, words }
    }
}

/// Whether an error is that the request has more tokens than the model takes, by the words that engines have for it (api.md §1.6, §2):
/// OpenAI and vLLM, SGLang, llama.cpp, LM Studio, Ollama and TGI. `message` is in lower case.
pub fn is_too_long(kind: &str, code: &str, message: &str) -> bool {
    const WORDS: [&str; 12] = [
        "context length",
        "context size",
        "context window",
        "prompt is too long",
        "prompt too long",
        "too long to fit into the model",
        "maximum model length",
        "maximum prompt length",
        "maximum allowed length",
        "maximum allowed input length",
        "input is too large to process",
        "`inputs` tokens + `max_new_tokens` must be",
    ];

    code == "context_length_exceeded"
        || kind == "exceed_context_size_error"
        || WORDS.iter().any(|words| message.contains(words))
}

/// A string or a number, as text.
fn word(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

    match raw.get().bytes().next()? {
        b'"' => serde_json::from_str::<Text<'_>>(raw.get()).ok().map(|text| text.0),
        b'0'..=b'9' => Some(raw.get().into()),
        _ => None,
    }
}

/// Without line ends and other controls, and of bounded length.
fn one_line(words: &str) -> String {
    let mut line = String::new();
    for (count, word) in words
        .split(|char: char| char.is_whitespace() || char.is_control())
        .filter(|word| !word.is_empty())
        .enumerate()
    {
        if count > 0 {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > 4 * WORDS_CHARS_MAX {
            break;
        }
    }
    if line.chars().count() > WORDS_CHARS_MAX {
        line = line.chars().take(WORDS_CHARS_MAX - 1).chain(['…']).collect();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, body: &str) -> (u16, ProviderErrorKind, String) {
        let ProviderError { status, kind, words } = of_body(status, body.as_bytes());
        (status, kind, words)
    }

    #[test]
    fn error_bodies_of_every_form_are_understood() {
        use ProviderErrorKind::{ContextTooLong, ModelNotFound, Other, Quota};
        for (status, body, expected, kind, words) in [
            (
                400,
                r#"{"error":{"message":"bad x","type":"BadRequestError","param":"x","code":400}}"#,
                400,
                Other,
                "bad x",
            ),
            (
                400,
                r#"{"object":"error","message":"bad x","type":"BadRequest","code":400}"#,
                400,
                Other,
                "bad x",
            ),
            (422, r#"{"detail":"bad x"}"#, 422, Other, "bad x"),
            (500, r#"{"error":"server busy"}"#, 500, Other, "server busy"),
            (
                404,
                r#"{"error":{"message":"The model `m` does not exist.","code":"model_not_found"}}"#,
                404,
                ModelNotFound,
                "The model `m` does not exist.",
            ),
            (404, r#"{"detail":"Not Found"}"#, 404, Other, "Not Found"),
            (
                429,
                r#"{"error":{"message":"pay","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                429,
                Quota,
                "pay",
            ),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8 tokens.","code":400}}"#,
                400,
                ContextTooLong,
                "This model's maximum context length is 8 tokens.",
            ),
            (
                500,
                r#"{"error":{"code":500,"type":"exceed_context_size_error","message":"too big"}}"#,
                400,
                ContextTooLong,
                "too big",
            ),
            (200, "{}", 502, Other, ""),
            (302, "", 502, Other, ""),
            (503, "<html>no</html>", 503, Other, ""),
            (500, "{\"error\":", 500, Other, ""),
        ] {
            assert_eq!(read(status, body), (expected, kind, words.to_owned()), "{body}");
        }
    }

    // req: CRD-6
    #[test]
    fn a_refused_credential_is_not_quoted() {
        for status in [401, 403] {
            let body =
                r#"{"error":{"message":"Incorrect API key provided: sk-abc***","code":"invalid_api_key"}}"#;
            assert_eq!(read(status, body).2, "");
        }
        let event = br#"{"error":{"message":"sk-abc","type":"authentication_error"}}"#;
        let error = of_event(event);
        assert_eq!((error.status, &*error.words), (401, ""));
    }

    #[test]
    fn words_are_one_line_and_bounded() {
        let long = "wörd\r\n\u{1b}[2J ".repeat(500);
        let body = serde_json::json!({"error": {"message": long}}).to_string();
        let (_, _, words) = read(500, &body);
        assert_eq!(words.chars().count(), WORDS_CHARS_MAX);
        assert!(words.starts_with("wörd [2J wörd") && words.ends_with('…'), "{words}");
        let huge = serde_json::json!({"error": {"message": "x".repeat(BODY_BYTES_MAX)}}).to_string();
        assert_eq!(read(500, &huge).2, "");
    }
}
