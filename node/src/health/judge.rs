//! What an answer to a probe, or its absence, says of a provider and a target (STL-11). Pure, and fail-closed: what is not known
//! to mean something means nothing.

use std::borrow::Cow;

use bytes::BytesMut;
use serde::{Deserialize, de::IgnoredAny};

use super::ProviderHealth;

/// Longest answer that is read, in bytes. The list of models of a large broker takes several hundred thousand.
pub const ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What a request of a probe is to prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// That the target stands in the list of models.
    Listed,
    /// That a path answers with a success.
    Answers,
    /// That a token comes.
    Generates,
}

impl Proof {
    /// How much of an answer's body is read for it.
    #[must_use]
    pub const fn bytes_max(self) -> usize {
        match self {
            Self::Answers => 0,
            Self::Listed | Self::Generates => ANSWER_BYTES_MAX,
        }
    }
}

/// An answer with its whole body.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status, never a 1xx.
    pub status: u16,
    /// The body; empty where it is not looked at.
    pub body: BytesMut,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nobody listens at any of its addresses.
    Refused,
    /// Its body is longer than was to be read.
    TooLarge,
    /// Anything else: no address, a broken connection, no HTTP.
    Odd,
}

/// What decided. A closed set: the label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The provider serves the target.
    Serves,
    /// The target is not among its models.
    Absent,
    /// Nobody listens.
    Refused,
    /// A status of 500 or more.
    ServerError,
    /// No whole answer in time.
    TimedOut,
    /// 401 or 403: the provider may be well for those that it knows.
    Unauthorised,
    /// A 3xx, which is never followed.
    Redirected,
    /// The target is there and is being loaded or fetched.
    Loading,
    /// The answer is too long to be read.
    TooLarge,
    /// Another status, not what the operation answers with, or a broken connection.
    Odd,
    /// Too many probes at one time.
    Crowded,
    /// The adapter has nothing to ask.
    NotAskable,
}

impl Reason {
    /// Every one, for registering counters.
    pub const ALL: [Self; 12] = [
        Self::Serves,
        Self::Absent,
        Self::Refused,
        Self::ServerError,
        Self::TimedOut,
        Self::Unauthorised,
        Self::Redirected,
        Self::Loading,
        Self::TooLarge,
        Self::Odd,
        Self::Crowded,
        Self::NotAskable,
    ];

    /// What it means.
    #[must_use]
    pub const fn health(self) -> ProviderHealth {
        match self {
            Self::Serves => ProviderHealth::Available,
            Self::Absent | Self::Refused | Self::ServerError => ProviderHealth::Unavailable,
            Self::TimedOut
            | Self::Unauthorised
            | Self::Redirected
            | Self::Loading
            | Self::TooLarge
            | Self::Odd
            | Self::Crowded
            | Self::NotAskable => ProviderHealth::Unknown,
        }
    }

    /// The word for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serves => "serves",
            Self::Absent => "absent",
            Self::Refused => "refused",
            Self::ServerError => "server_error",
            Self::TimedOut => "timed_out",
            Self::Unauthorised => "unauthorised",
            Self::Redirected => "redirected",
            Self::Loading => "loading",
            Self::TooLarge => "too_large",
            Self::Odd => "odd",
            Self::Crowded => "crowded",
            Self::NotAskable => "not_askable",
        }
    }
}

/// Reads what came of asking for `target`.
#[must_use]
pub fn judge(proof: Proof, target: &str, answer: Result<&Answer, Fault>) -> Reason {
    let Answer { status, body } = match answer {
        Ok(answer) => answer,
        Err(Fault::Refused) => return Reason::Refused,
        Err(Fault::TooLarge) => return Reason::TooLarge,
        Err(Fault::Odd) => return Reason::Odd,
    };
    match status {
        200..=299 => match proof {
            Proof::Answers => Reason::Serves,
            Proof::Listed => listed(body, target),
            Proof::Generates => generated(body),
        },
        300..=399 => Reason::Redirected,
        401 | 403 => Reason::Unauthorised,
        500..=599 => Reason::ServerError,
        _ => Reason::Odd,
    }
}

/// A list of models: OpenAI's and Anthropic's object, or the bare array of some brokers.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    data: Vec<Model<'a>>,
    /// Anthropic's lists come in pages.
    has_more: Option<bool>,
}

#[derive(Deserialize)]
struct Model<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow, default)]
    owned_by: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    status: Option<Status<'a>>,
}

/// llama.cpp's router says what its instance of a model does (api.md 3); a field of this name may be anything elsewhere.
#[derive(Deserialize)]
#[serde(untagged)]
enum Status<'a> {
    Router {
        #[serde(borrow)]
        value: Cow<'a, str>,
    },
    Other(IgnoredAny),
}

fn listed(body: &[u8], target: &str) -> Reason {
    let is_array = body.trim_ascii_start().first() == Some(&b'[');
    let page = if is_array {
        serde_json::from_slice(body).map(|data| Page { data, has_more: None })
    } else {
        serde_json::from_slice(body)
    };
    let Ok(Page { data, has_more }) = page else { return Reason::Odd };
    if let Some(model) = data.iter().find(|model| model.is(target)) {
        return if model.is_loading() { Reason::Loading } else { Reason::Serves };
    }
    match data.as_slice() {
        [only] if only.answers_to_any_name() => Reason::Serves,
        _ if has_more == Some(true) => Reason::Odd,
        _ => Reason::Absent,
    }
}

impl Model<'_> {
    /// Ollama lists a model that was pulled without a tag under `latest`, and takes it without.
    fn is(&self, target: &str) -> bool {
        let id = self.id.as_ref();
        id == target || !target.contains(':') && id.strip_suffix(":latest") == Some(target)
    }

    fn is_of_llama_cpp(&self) -> bool {
        self.owned_by.as_deref() == Some("llamacpp")
    }

    /// A llama.cpp server without a router has one model, listed by its file, and takes requests for any name.
    fn answers_to_any_name(&self) -> bool {
        self.is_of_llama_cpp() && self.status.is_none()
    }

    fn is_loading(&self) -> bool {
        let doing = match &self.status {
            Some(Status::Router { value }) if self.is_of_llama_cpp() => value.as_ref(),
            _ => return false,
        };
        // One that is unloaded or sleeps is loaded by the request for it.
        matches!(doing, "loading" | "downloading")
    }
}

/// Something was generated: the answer of chat completions, messages, responses or Ollama's chat, and no error in its place.
fn generated(body: &[u8]) -> Reason {
    #[derive(Deserialize)]
    struct Generated {
        choices: Option<Vec<IgnoredAny>>,
        content: Option<Vec<IgnoredAny>>,
        output: Option<Vec<IgnoredAny>>,
        message: Option<IgnoredAny>,
        done: Option<bool>,
        error: Option<IgnoredAny>,
    }
    match serde_json::from_slice(body) {
        Ok(Generated { choices, content, output, message, done, error: None }) => {
            let is_ollama = message.is_some() && done == Some(true);
            let has_part = [choices, content, output].iter().flatten().any(|part| !part.is_empty());
            if is_ollama || has_part { Reason::Serves } else { Reason::Odd }
        }
        _ => Reason::Odd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(proof: Proof, status: u16, body: &str) -> Reason {
        judge(proof, "qwen3", Ok(&Answer { status, body: body.into() }))
    }

    // req: STL-11
    #[test]
    fn what_a_list_of_models_says_of_exactly_the_target() {
        for (body, reason) in [
            (r#"{"object":"list","data":[{"id":"other"},{"id":"qwen3","object":"model"}]}"#, Reason::Serves),
            (r#" [{"id":"qwen3","type":"chat"}]"#, Reason::Serves),
            (r#"{"data":[{"id":"qw\u0065n3"}]}"#, Reason::Serves),
            (r#"{"data":[{"id":"qwen3:latest","owned_by":"library"}]}"#, Reason::Serves),
            (r#"{"data":[{"id":"qwen3:8b"}]}"#, Reason::Absent),
            (r#"{"data":[{"id":"qwen3-8b"},{"id":"Qwen3"},{"id":"org/qwen3"},{"id":""}]}"#, Reason::Absent),
            (r#"{"data":[]}"#, Reason::Absent),
            ("[]", Reason::Absent),
            // Anthropic's pages: what is not on the first one may be on another.
            (r#"{"data":[{"id":"a","type":"model"}],"has_more":true,"last_id":"a"}"#, Reason::Odd),
            (r#"{"data":[{"id":"a","type":"model"}],"has_more":false}"#, Reason::Absent),
            // llama.cpp: its one model takes any name, a router's does not.
            (r#"{"data":[{"id":"/models/q3.gguf","owned_by":"llamacpp","meta":{}}]}"#, Reason::Serves),
            (r#"{"data":[{"id":"x","owned_by":"llamacpp","status":{"value":"loaded"}}]}"#, Reason::Absent),
            (
                r#"{"data":[{"id":"a","owned_by":"llamacpp"},{"id":"b","owned_by":"llamacpp"}]}"#,
                Reason::Absent,
            ),
            (r#"{"data":[{"id":"x","owned_by":"vllm"}]}"#, Reason::Absent),
            (
                r#"{"data":[{"id":"qwen3","owned_by":"llamacpp","status":{"value":"loaded"}}]}"#,
                Reason::Serves,
            ),
            (
                r#"{"data":[{"id":"qwen3","owned_by":"llamacpp","status":{"value":"sleeping"}}]}"#,
                Reason::Serves,
            ),
            (
                r#"{"data":[{"id":"qwen3","owned_by":"llamacpp","status":{"value":"unloaded"}}]}"#,
                Reason::Serves,
            ),
            (
                r#"{"data":[{"id":"qwen3","owned_by":"llamacpp","status":{"value":"loading"}}]}"#,
                Reason::Loading,
            ),
            (
                r#"{"data":[{"id":"qwen3","owned_by":"llamacpp","status":{"value":"downloading"}}]}"#,
                Reason::Loading,
            ),
            (r#"{"data":[{"id":"qwen3","status":"loading"}]}"#, Reason::Serves),
            // What is no list.
            ("", Reason::Odd),
            ("ok", Reason::Odd),
            ("<html>qwen3</html>", Reason::Odd),
            (r#"{"data":[{"id":"qwen3"}]"#, Reason::Odd),
            (r#"{"data":[{"id":7}]}"#, Reason::Odd),
            (r#"{"data":{"id":"qwen3"}}"#, Reason::Odd),
            (r#"{"error":{"message":"qwen3"}}"#, Reason::Odd),
            (r#"{"models":[{"name":"qwen3"}]}"#, Reason::Odd),
            ("null", Reason::Odd),
        ] {
            assert_eq!(answered(Proof::Listed, 200, body), reason, "{body}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(answered(Proof::Listed, 200, &deep), Reason::Odd);
    }

    // req: STL-11
    #[test]
    fn what_a_generation_says() {
        for (body, reason) in [
            (r#"{"choices":[{"message":{"content":null},"finish_reason":"length"}]}"#, Reason::Serves),
            (r#"{"type":"message","content":[{"type":"text","text":"p"}]}"#, Reason::Serves),
            (r#"{"object":"response","error":null,"output":[{"type":"reasoning"}]}"#, Reason::Serves),
            (r#"{"model":"qwen3","message":{"role":"assistant","content":"p"},"done":true}"#, Reason::Serves),
            (r#"{"message":{"content":"p"},"done":false}"#, Reason::Odd),
            (r#"{"choices":[]}"#, Reason::Odd),
            (r#"{"choices":[{}],"error":{"message":"engine is dead"}}"#, Reason::Odd),
            (r#"{"error":"engine is dead"}"#, Reason::Odd),
            (r#"{"choices":"qwen3"}"#, Reason::Odd),
            ("data: {\"choices\":[{}]}\n\n", Reason::Odd),
            ("", Reason::Odd),
        ] {
            assert_eq!(answered(Proof::Generates, 200, body), reason, "{body}");
        }
    }

    // req: STL-11
    #[test]
    fn a_status_is_read_the_same_whatever_was_asked_and_doubt_is_unknown() {
        let good = r#"{"data":[{"id":"qwen3"}],"choices":[{}]}"#;
        for proof in [Proof::Listed, Proof::Answers, Proof::Generates] {
            for (status, reason, health) in [
                (200, Reason::Serves, ProviderHealth::Available),
                (299, Reason::Serves, ProviderHealth::Available),
                (300, Reason::Redirected, ProviderHealth::Unknown),
                (307, Reason::Redirected, ProviderHealth::Unknown),
                (400, Reason::Odd, ProviderHealth::Unknown),
                (401, Reason::Unauthorised, ProviderHealth::Unknown),
                (403, Reason::Unauthorised, ProviderHealth::Unknown),
                (404, Reason::Odd, ProviderHealth::Unknown),
                (429, Reason::Odd, ProviderHealth::Unknown),
                (500, Reason::ServerError, ProviderHealth::Unavailable),
                (503, Reason::ServerError, ProviderHealth::Unavailable),
                (599, Reason::ServerError, ProviderHealth::Unavailable),
                (600, Reason::Odd, ProviderHealth::Unknown),
                (999, Reason::Odd, ProviderHealth::Unknown),
            ] {
                let found = answered(proof, status, good);
                assert_eq!((found, found.health()), (reason, health), "{proof:?} {status}");
            }
            for (fault, reason, health) in [
                (Fault::Refused, Reason::Refused, ProviderHealth::Unavailable),
                (Fault::TooLarge, Reason::TooLarge, ProviderHealth::Unknown),
                (Fault::Odd, Reason::Odd, ProviderHealth::Unknown),
            ] {
                let found = judge(proof, "qwen3", Err(fault));
                assert_eq!((found, found.health()), (reason, health), "{proof:?} {fault:?}");
            }
        }
        assert_eq!(Reason::TimedOut.health(), ProviderHealth::Unknown);
        assert_eq!(answered(Proof::Answers, 204, ""), Reason::Serves);
    }
}
