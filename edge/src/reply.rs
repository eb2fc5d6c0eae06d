//! The only mapping from what can go wrong to what a client of the OpenAI surface is told.
//!
//! A [`Fault`] knows its status, its four error keys, its headers and its metric label; nobody else decides any of them.
//! Messages are ours: nothing of a provider's text, a token or an address is in them. The one exception is a native backend's
//! refusal: what it does not take is the client's to change, and nobody else knows what it was.
//!
//! Retry hints follow the official SDKs: `x-should-retry: false` where another try of the same request certainly fails,
//! `retry-after` of at most a minute where it may well succeed (a longer one makes some SDKs give up).

use std::{borrow::Cow, sync::Arc};

use control::effect::Refusal;
use proto::message::ErrorKind;
use serde::Serialize;

use crate::token::AuthError;

/// Every outcome of a request, for pre-registered metric series; `ok`, [`CLIENT_GONE`], [`CLIENT_STALLED`] and
/// [`Fault::outcome`] draw from it.
pub const OUTCOMES: [&str; 36] = [
    "ok",
    CLIENT_GONE,
    CLIENT_STALLED,
    "bad_framing",
    "bad_json",
    "missing_field",
    "unauthorized",
    "token_revoked",
    "provider_auth",
    "unknown_model",
    "context_too_long",
    "unknown_path",
    "method_not_allowed",
    "request_timeout",
    "body_too_large",
    "unsupported_encoding",
    "expectation_failed",
    "head_too_large",
    "queue_full",
    "queue_timeout",
    "unservable",
    "busy",
    "no_node",
    "no_body_room",
    "draining",
    "node_lost",
    "upstream_connect",
    "upstream_protocol",
    "upstream_truncated",
    "upstream_credential",
    "provider_refused",
    "answer_too_long",
    "deadline",
    "stalled",
    "cancelled",
    "internal",
];
/// Outcome of a request whose client left; no response is written.
pub const CLIENT_GONE: &str = "client_gone";
/// Outcome of a request whose client took nothing of its answer for `limits.write_stall_ms`.
pub const CLIENT_STALLED: &str = "client_stalled";
/// Longest piece of a client's own text that is put into a message, in characters.
const ECHO_CHARS_MAX: usize = 128;

const INVALID_REQUEST: &str = "invalid_request_error";
const RATE_LIMIT: &str = "rate_limit_error";
const SERVER_ERROR: &str = "server_error";
const UPSTREAM: Option<&str> = Some("upstream_error");
const OVERLOADED: Option<&str> = Some("overloaded");
const TIMEOUT: Option<&str> = Some("timeout");

/// What went wrong with one request, as far as its client is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is no valid HTTP, or is framed in a way that cannot be trusted (RFC 9112).
    BadFraming {
        /// What rule it breaks: lower case, no full stop.
        detail: Cow<'static, str>,
    },
    /// The body is no valid JSON, or a field of it is wrong.
    BadJson {
        /// What is wrong: lower case, no full stop.
        detail: Cow<'static, str>,
        /// Which field.
        param: Option<Cow<'static, str>>,
    },
    /// A field that must be there is not.
    MissingField {
        /// Which.
        param: &'static str,
    },
    /// No token, or none that is known. One answer for every reason.
    Unauthorized,
    /// The token was revoked while the request was served (PTK-1). A later one is [`Fault::Unauthorized`] as any other.
    Revoked,
    /// The client's own credential for the provider is missing or not valid (CFG-3).
    ProviderAuth {
        /// The header that it belongs in.
        header: Arc<str>,
        /// What is wrong with it.
        found: &'static str,
    },
    /// No such model.
    UnknownModel {
        /// What was asked for, when it is at hand.
        model: Option<String>,
    },
    /// The request has more tokens than the model's context (POL-4).
    ContextTooLong {
        /// About how many it has.
        tokens: u64,
        /// How many the model takes.
        window: u64,
    },
    /// No such path.
    UnknownPath,
    /// The path exists, with other methods.
    MethodNotAllowed {
        /// These, as the `allow` header lists them.
        allow: &'static str,
    },
    /// The client did not send its request in time.
    RequestTimeout,
    /// The body is longer than the limit.
    BodyTooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The body has a content encoding that is not understood.
    UnsupportedEncoding,
    /// An `expect` other than `100-continue`.
    ExpectationFailed,
    /// The head is longer, or has more fields, than the limit.
    HeadTooLarge,
    /// The queue is full (POL-5).
    QueueFull,
    /// No slot became free in time (POL-5).
    QueueTimeout,
    /// No provider of the model can do what the request needs (POL-5).
    Unservable,
    /// The Node's own gate was full twice (GAT-2).
    Busy,
    /// A direct route, and no Node with its adapter is ready (POL-12).
    NoNode,
    /// The request bodies of all clients together take as much memory as they may.
    NoBodyRoom,
    /// The Edge is about to stop.
    Draining,
    /// The Node was lost while it ran the request (FEN-6).
    NodeLost,
    /// The Node cannot reach the provider.
    UpstreamConnect,
    /// The provider's answer is not valid.
    UpstreamProtocol,
    /// The provider's answer ended before its end.
    UpstreamTruncated,
    /// The credential for the provider was refused.
    UpstreamCredential,
    /// A native backend does not take the request: a model it does not have, a picture it cannot see.
    ProviderRefused {
        /// In the words of the Node, which may quote the backend: one line, bounded.
        words: String,
    },
    /// An answer that is to be given in one piece grew too long.
    AnswerTooLong,
    /// The run's hard deadline, or the Edge's wait for it, passed (TUN-8).
    Deadline,
    /// The provider made no progress for too long (STL-4).
    Stalled,
    /// Ended by us, for instance at the end of the drain grace.
    Cancelled,
    /// A defect of ours.
    Internal,
}

/// Whether the same request may succeed when it is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    /// Certainly not.
    No,
    /// Perhaps, and the client's own back-off is as good as any.
    Unsaid,
    /// Likely, after this many seconds: 1..=60.
    After(u8),
}

/// The fixed part of an answer.
struct Row {
    status: u16,
    kind: &'static str,
    code: Option<&'static str>,
    retry: Retry,
    outcome: &'static str,
}

const fn row(
    status: u16,
    kind: &'static str,
    code: Option<&'static str>,
    retry: Retry,
    outcome: &'static str,
) -> Row {
    Row { status, kind, code, retry, outcome }
}

impl Fault {
    /// The table.
    const fn row(&self) -> Row {
        use Retry::{After, No, Unsaid};
        match self {
            Self::BadFraming { .. } => row(400, INVALID_REQUEST, None, No, "bad_framing"),
            Self::BadJson { .. } => row(400, INVALID_REQUEST, None, No, "bad_json"),
            Self::MissingField { .. } => row(400, INVALID_REQUEST, None, No, "missing_field"),
            Self::Unauthorized => row(401, INVALID_REQUEST, Some("invalid_api_key"), No, "unauthorized"),
            Self::Revoked => row(401, INVALID_REQUEST, Some("invalid_api_key"), No, "token_revoked"),
            Self::ProviderAuth { .. } => {
                row(401, INVALID_REQUEST, Some("provider_authorization"), No, "provider_auth")
            }
            Self::UnknownModel { .. } => {
                row(404, INVALID_REQUEST, Some("model_not_found"), No, "unknown_model")
            }
            Self::ContextTooLong { .. } => {
                row(400, INVALID_REQUEST, Some("context_length_exceeded"), No, "context_too_long")
            }
            Self::UnknownPath => row(404, INVALID_REQUEST, None, No, "unknown_path"),
            Self::MethodNotAllowed { .. } => row(405, INVALID_REQUEST, None, No, "method_not_allowed"),
            Self::RequestTimeout => row(408, INVALID_REQUEST, None, Unsaid, "request_timeout"),
            Self::BodyTooLarge { .. } => row(413, INVALID_REQUEST, None, No, "body_too_large"),
            Self::UnsupportedEncoding => row(415, INVALID_REQUEST, None, No, "unsupported_encoding"),
            Self::ExpectationFailed => row(417, INVALID_REQUEST, None, No, "expectation_failed"),
            Self::HeadTooLarge => row(431, INVALID_REQUEST, None, No, "head_too_large"),
            Self::QueueFull => row(429, RATE_LIMIT, Some("rate_limit_exceeded"), After(2), "queue_full"),
            Self::QueueTimeout => row(503, SERVER_ERROR, OVERLOADED, After(5), "queue_timeout"),
            Self::Unservable => row(503, SERVER_ERROR, OVERLOADED, No, "unservable"),
            Self::Busy => row(503, SERVER_ERROR, OVERLOADED, After(1), "busy"),
            Self::NoNode => row(503, SERVER_ERROR, OVERLOADED, After(5), "no_node"),
            Self::NoBodyRoom => row(503, SERVER_ERROR, OVERLOADED, After(2), "no_body_room"),
            Self::Draining => row(503, SERVER_ERROR, OVERLOADED, After(5), "draining"),
            Self::NodeLost => row(502, SERVER_ERROR, UPSTREAM, Unsaid, "node_lost"),
            Self::UpstreamConnect => row(502, SERVER_ERROR, UPSTREAM, Unsaid, "upstream_connect"),
            Self::UpstreamProtocol => row(502, SERVER_ERROR, UPSTREAM, Unsaid, "upstream_protocol"),
            Self::UpstreamTruncated => row(502, SERVER_ERROR, UPSTREAM, Unsaid, "upstream_truncated"),
            Self::UpstreamCredential => row(502, SERVER_ERROR, UPSTREAM, No, "upstream_credential"),
            Self::ProviderRefused { .. } => row(400, INVALID_REQUEST, None, No, "provider_refused"),
            Self::AnswerTooLong => row(502, SERVER_ERROR, UPSTREAM, No, "answer_too_long"),
            Self::Deadline => row(504, SERVER_ERROR, TIMEOUT, Unsaid, "deadline"),
            Self::Stalled => row(504, SERVER_ERROR, TIMEOUT, Unsaid, "stalled"),
            Self::Cancelled => row(503, SERVER_ERROR, Some("cancelled"), Unsaid, "cancelled"),
            Self::Internal => row(500, SERVER_ERROR, None, Unsaid, "internal"),
        }
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.row().status
    }

    /// `error.type`
    #[must_use]
    pub const fn openai_type(&self) -> &'static str {
        self.row().kind
    }

    /// `error.code`
    #[must_use]
    pub const fn code(&self) -> Option<&'static str> {
        self.row().code
    }

    /// `error.param`
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        match self {
            Self::BadJson { param, .. } => param.as_deref(),
            Self::MissingField { param } => Some(param),
            Self::UnknownModel { .. } => Some("model"),
            Self::ContextTooLong { .. } => Some("messages"),
            _ => None,
        }
    }

    /// Seconds for `retry-after`, 1..=60.
    #[must_use]
    pub const fn retry_after(&self) -> Option<u8> {
        match self.row().retry {
            Retry::After(seconds) => Some(seconds),
            Retry::No | Retry::Unsaid => None,
        }
    }

    /// The label of metrics and logs, one of [`OUTCOMES`].
    #[must_use]
    pub const fn outcome(&self) -> &'static str {
        self.row().outcome
    }

    /// Whether the connection must be closed after the answer, because what follows on it cannot be told apart.
    #[must_use]
    pub const fn closes_connection(&self) -> bool {
        matches!(
            self,
            Self::BadFraming { .. }
                | Self::RequestTimeout
                | Self::BodyTooLarge { .. }
                | Self::NoBodyRoom
                | Self::ExpectationFailed
                | Self::HeadTooLarge
        )
    }

    /// `error.message`: a sentence or two for the person at the client.
    #[must_use]
    pub fn message(&self) -> Cow<'static, str> {
        match self {
            Self::BadFraming { detail } => format!("The HTTP request is malformed: {detail}.").into(),
            Self::BadJson { detail, .. } => format!("The request body is not valid: {detail}.").into(),
            Self::MissingField { param } => {
                format!("The request body has no `{param}`, which is required.").into()
            }
            Self::ProviderAuth { header, found } => {
                format!("The header `{header}`, which carries your credential for the provider, {found}.").into()
            }
            Self::UnknownModel { model: Some(model) } => {
                format!("The model `{}` does not exist. GET /v1/models lists the models.", echo(model)).into()
            }
            Self::ContextTooLong { tokens, window } => format!(
                "This model's maximum context length is {window} tokens. However, your messages resulted in about \
                 {tokens} tokens. Please reduce the length of the messages."
            )
            .into(),
            Self::MethodNotAllowed { allow } => {
                format!("This path does not take this method, but {allow}.").into()
            }
            Self::BodyTooLarge { limit } => format!("The request body is longer than {limit} bytes.").into(),
            Self::ProviderRefused { words } => {
                format!("The provider of the model does not take the request: {}", one_line(words)).into()
            }
            other => other.fixed_message().into(),
        }
    }

    const fn fixed_message(&self) -> &'static str {
        match self {
            Self::Unauthorized => {
                "The API key is missing or not valid. Send it as `Authorization: Bearer KEY`."
            }
            Self::Revoked => "The API key was revoked.",
            Self::UnknownModel { .. } => "The model does not exist. GET /v1/models lists the models.",
            Self::UnknownPath => {
                "There is nothing at this path. There are /v1/chat/completions and /v1/models."
            }
            Self::RequestTimeout => "The request did not arrive in time.",
            Self::UnsupportedEncoding => {
                "The content encoding of the request body is not supported. Send it without `content-encoding`."
            }
            Self::ExpectationFailed => "The only expectation that is met is 100-continue.",
            Self::HeadTooLarge => "The head of the request is too large.",
            Self::QueueFull => "Too many requests are waiting. Try again in a moment.",
            Self::QueueTimeout => {
                "No provider of the model was connected and free in time. Try again in a moment."
            }
            Self::Unservable => "No provider of the model supports this kind of request.",
            Self::Busy => "The provider of the model is busy. Try again in a moment.",
            Self::NoNode => "No node that serves the model is connected. Try again in a moment.",
            Self::NoBodyRoom => "Too many large requests are waiting. Try again in a moment.",
            Self::Draining => "The gateway is about to stop. Try again in a moment.",
            Self::NodeLost => "The connection to the machine that ran the request was lost.",
            Self::UpstreamConnect => "The provider of the model cannot be reached.",
            Self::UpstreamProtocol => "The provider of the model gave no valid answer.",
            Self::UpstreamTruncated => "The provider of the model broke off its answer.",
            Self::UpstreamCredential => "The provider of the model refused the gateway's credential.",
            Self::AnswerTooLong => {
                "The answer of the model is too long to be given in one piece. Ask for a stream."
            }
            Self::Deadline => "The request took longer than its time limit.",
            Self::Stalled => "The provider of the model stopped answering.",
            Self::Cancelled => "The request was cancelled by the gateway.",
            // The arms above this one that carry a value have their message in `message`.
            _ => "The gateway failed to handle the request.",
        }
    }

    /// Headers that belong to this answer, beside those of every JSON answer.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, Cow<'static, str>)> {
        let mut headers = Vec::new();
        match self {
            // RFC 9110 section 11.6.1.
            Self::Unauthorized => headers.push(("www-authenticate", Cow::Borrowed("Bearer"))),
            // RFC 9110 section 15.5.6.
            Self::MethodNotAllowed { allow } => headers.push(("allow", Cow::Borrowed(*allow))),
            _ => {}
        }
        match self.row().retry {
            Retry::After(seconds) => headers.push(("retry-after", seconds.to_string().into())),
            Retry::No => headers.push(("x-should-retry", Cow::Borrowed("false"))),
            Retry::Unsaid => {}
        }
        headers
    }

    /// The body of the answer: one JSON object with all four error keys.
    #[must_use]
    pub fn body_json(&self) -> String {
        let error = ErrorKeys {
            message: &self.message(),
            kind: self.openai_type(),
            param: self.param(),
            code: self.code(),
        };
        // Strings and options cannot fail to serialize.
        serde_json::to_string(&Body { error }).unwrap_or_default()
    }

    /// The event that ends a stream that had begun; no `[DONE]` follows it (API-1).
    #[must_use]
    pub fn stream_event(&self) -> String {
        format!("data: {}\n\n", self.body_json())
    }
}

#[derive(Serialize)]
struct Body<'a> {
    error: ErrorKeys<'a>,
}

#[derive(Serialize)]
struct ErrorKeys<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    param: Option<&'a str>,
    code: Option<&'a str>,
}

/// A client's own text, short enough to be told back.
fn echo(text: &str) -> String {
    let mut shown: String = text.chars().take(ECHO_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// A backend's text, as it may stand in a message.
fn one_line(text: &str) -> String {
    let mut shown = String::new();
    for word in
        text.split(|char: char| char.is_whitespace() || char.is_control()).filter(|word| !word.is_empty())
    {
        if !shown.is_empty() {
            shown.push(' ');
        }
        shown.push_str(word);
    }
    if shown.is_empty() { "it says no reason.".to_owned() } else { shown }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::UnknownModel => Self::UnknownModel { model: None },
            Refusal::Unservable => Self::Unservable,
            Refusal::QueueFull => Self::QueueFull,
            Refusal::QueueTimeout => Self::QueueTimeout,
            Refusal::Busy => Self::Busy,
            Refusal::NoNode => Self::NoNode,
        }
    }
}

impl From<ErrorKind> for Fault {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Busy => Self::Busy,
            ErrorKind::Cancelled => Self::Cancelled,
            ErrorKind::Deadline => Self::Deadline,
            ErrorKind::Connect => Self::UpstreamConnect,
            // A kind of a newer Node is told as what it most likely is.
            ErrorKind::UpstreamProtocol | ErrorKind::Unknown => Self::UpstreamProtocol,
            ErrorKind::UpstreamTruncated => Self::UpstreamTruncated,
            ErrorKind::Credential => Self::UpstreamCredential,
            ErrorKind::Stalled => Self::Stalled,
            // The Edge built the request and the credit, so a Node that refuses either has found a defect of ours.
            ErrorKind::InvalidRequest | ErrorKind::CreditExceeded | ErrorKind::Internal => Self::Internal,
        }
    }
}

impl From<AuthError> for Fault {
    fn from(_: AuthError) -> Self {
        Self::Unauthorized
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::{Value, json};

    use super::*;

    /// One value of every variant.
    fn every() -> Vec<Fault> {
        vec![
            Fault::BadFraming { detail: "two content-length fields".into() },
            Fault::BadJson { detail: "expected an array".into(), param: Some("messages".into()) },
            Fault::MissingField { param: "model" },
            Fault::Unauthorized,
            Fault::Revoked,
            Fault::ProviderAuth { header: "x-key".into(), found: "is missing" },
            Fault::UnknownModel { model: Some("gpt \"x\"".to_owned()) },
            Fault::ContextTooLong { tokens: 9, window: 5 },
            Fault::UnknownPath,
            Fault::MethodNotAllowed { allow: "POST" },
            Fault::RequestTimeout,
            Fault::BodyTooLarge { limit: 5 },
            Fault::UnsupportedEncoding,
            Fault::ExpectationFailed,
            Fault::HeadTooLarge,
            Fault::QueueFull,
            Fault::QueueTimeout,
            Fault::Unservable,
            Fault::Busy,
            Fault::NoNode,
            Fault::NoBodyRoom,
            Fault::Draining,
            Fault::NodeLost,
            Fault::UpstreamConnect,
            Fault::UpstreamProtocol,
            Fault::UpstreamTruncated,
            Fault::UpstreamCredential,
            Fault::ProviderRefused { words: "model\n\"x\" not found".to_owned() },
            Fault::AnswerTooLong,
            Fault::Deadline,
            Fault::Stalled,
            Fault::Cancelled,
            Fault::Internal,
        ]
    }

    fn header(fault: &Fault, name: &str) -> Option<String> {
        fault.headers().into_iter().find(|(known, _)| *known == name).map(|(_, value)| value.into_owned())
    }

    #[test]
    fn every_fault_has_its_status_type_and_code() {
        let got: Vec<_> =
            every().iter().map(|it| (it.outcome(), it.status(), it.openai_type(), it.code())).collect();
        let (invalid, server) = ("invalid_request_error", "server_error");
        let expected = [
            ("bad_framing", 400, invalid, None),
            ("bad_json", 400, invalid, None),
            ("missing_field", 400, invalid, None),
            ("unauthorized", 401, invalid, Some("invalid_api_key")),
            ("token_revoked", 401, invalid, Some("invalid_api_key")),
            ("provider_auth", 401, invalid, Some("provider_authorization")),
            ("unknown_model", 404, invalid, Some("model_not_found")),
            ("context_too_long", 400, invalid, Some("context_length_exceeded")),
            ("unknown_path", 404, invalid, None),
            ("method_not_allowed", 405, invalid, None),
            ("request_timeout", 408, invalid, None),
            ("body_too_large", 413, invalid, None),
            ("unsupported_encoding", 415, invalid, None),
            ("expectation_failed", 417, invalid, None),
            ("head_too_large", 431, invalid, None),
            ("queue_full", 429, "rate_limit_error", Some("rate_limit_exceeded")),
            ("queue_timeout", 503, server, Some("overloaded")),
            ("unservable", 503, server, Some("overloaded")),
            ("busy", 503, server, Some("overloaded")),
            ("no_node", 503, server, Some("overloaded")),
            ("no_body_room", 503, server, Some("overloaded")),
            ("draining", 503, server, Some("overloaded")),
            ("node_lost", 502, server, Some("upstream_error")),
            ("upstream_connect", 502, server, Some("upstream_error")),
            ("upstream_protocol", 502, server, Some("upstream_error")),
            ("upstream_truncated", 502, server, Some("upstream_error")),
            ("upstream_credential", 502, server, Some("upstream_error")),
            ("provider_refused", 400, invalid, None),
            ("answer_too_long", 502, server, Some("upstream_error")),
            ("deadline", 504, server, Some("timeout")),
            ("stalled", 504, server, Some("timeout")),
            ("cancelled", 503, server, Some("cancelled")),
            ("internal", 500, server, None),
        ];
        assert_eq!(got, expected);
    }

    #[test]
    fn every_body_has_all_four_keys_and_a_message_of_its_own() {
        let mut messages = HashSet::new();
        for fault in every() {
            let body: Value = serde_json::from_str(&fault.body_json()).unwrap();
            let error = body["error"].as_object().unwrap();
            let keys: Vec<&str> = error.keys().map(String::as_str).collect();
            assert_eq!(
                keys.iter().copied().collect::<HashSet<_>>(),
                HashSet::from(["message", "type", "param", "code"])
            );
            assert_eq!(keys.len(), 4);
            assert!(error["code"].is_string() || error["code"].is_null(), "{fault:?}");
            assert!(messages.insert(error["message"].as_str().unwrap().to_owned()), "{fault:?}");
            let event = fault.stream_event();
            assert_eq!(event, format!("data: {}\n\n", fault.body_json()));
            assert!(!event.contains("[DONE]") && event.matches('\n').count() == 2, "{fault:?}");
        }
    }

    #[test]
    fn bodies_name_the_field_and_the_model() {
        let body = |fault: Fault| serde_json::from_str::<Value>(&fault.body_json()).unwrap();
        assert_eq!(
            body(Fault::UnknownModel { model: Some("gpt \"x\"\n".to_owned()) }),
            json!({"error": {
                "message": "The model `gpt \"x\"\n` does not exist. GET /v1/models lists the models.",
                "type": "invalid_request_error", "param": "model", "code": "model_not_found"
            }})
        );
        assert_eq!(body(Fault::MissingField { param: "messages" })["error"]["param"], "messages");
        assert_eq!(
            body(Fault::BadJson { detail: "line 1, column 2".into(), param: None })["error"]["param"],
            Value::Null
        );
        let long = body(Fault::UnknownModel { model: Some("m".repeat(9000)) });
        assert!(long["error"]["message"].as_str().unwrap().chars().count() < 250);
    }

    #[test]
    fn outcomes_are_a_closed_set() {
        let known: HashSet<_> = OUTCOMES.into_iter().collect();
        assert_eq!(known.len(), OUTCOMES.len());
        let no_fault = ["ok", CLIENT_GONE, CLIENT_STALLED];
        let used: HashSet<_> = every().iter().map(Fault::outcome).chain(no_fault).collect();
        assert_eq!(used, known);
    }

    // req: POL-5
    #[test]
    fn a_refusal_tells_whether_and_when_to_come_back() {
        for (refusal, status, retry_after, should_retry) in [
            (Refusal::QueueFull, 429, Some("2"), None),
            (Refusal::QueueTimeout, 503, Some("5"), None),
            (Refusal::Busy, 503, Some("1"), None),
            (Refusal::NoNode, 503, Some("5"), None),
            (Refusal::Unservable, 503, None, Some("false")),
            (Refusal::UnknownModel, 404, None, Some("false")),
        ] {
            let fault = Fault::from(refusal);
            assert_eq!(fault.status(), status, "{refusal:?}");
            assert_eq!(header(&fault, "retry-after").as_deref(), retry_after, "{refusal:?}");
            assert_eq!(header(&fault, "x-should-retry").as_deref(), should_retry, "{refusal:?}");
        }
        assert_eq!(Fault::from(ErrorKind::Stalled).status(), 504);
        assert_eq!(Fault::from(ErrorKind::Deadline).status(), 504);
    }

    #[test]
    fn hints_are_within_a_minute_and_never_contradict() {
        for fault in every() {
            if let Some(seconds) = fault.retry_after() {
                assert!((1..=60).contains(&seconds), "{fault:?}");
                assert_eq!(header(&fault, "retry-after"), Some(seconds.to_string()));
                assert_eq!(header(&fault, "x-should-retry"), None, "{fault:?}");
            }
            let told = header(&fault, "x-should-retry").is_some();
            assert!(
                !told
                    || fault.status() < 500
                    || matches!(fault.outcome(), "unservable" | "upstream_credential" | "answer_too_long")
            );
        }
        assert_eq!(header(&Fault::Unauthorized, "www-authenticate").as_deref(), Some("Bearer"));
        assert_eq!(
            header(&Fault::MethodNotAllowed { allow: "GET, HEAD" }, "allow").as_deref(),
            Some("GET, HEAD")
        );
        assert_eq!(header(&Fault::Internal, "www-authenticate"), None);
    }

    #[test]
    fn every_reason_for_no_entry_is_one_answer() {
        let reasons = [AuthError::Missing, AuthError::Malformed, AuthError::Ambiguous, AuthError::Unknown];
        let bodies: HashSet<_> = reasons.map(|reason| Fault::from(reason).body_json()).into_iter().collect();
        assert_eq!(bodies.len(), 1);
    }

    #[test]
    fn every_error_of_a_node_has_a_fault() {
        for (kind, outcome) in [
            (ErrorKind::Busy, "busy"),
            (ErrorKind::Cancelled, "cancelled"),
            (ErrorKind::Deadline, "deadline"),
            (ErrorKind::Connect, "upstream_connect"),
            (ErrorKind::UpstreamProtocol, "upstream_protocol"),
            (ErrorKind::UpstreamTruncated, "upstream_truncated"),
            (ErrorKind::InvalidRequest, "internal"),
            (ErrorKind::Credential, "upstream_credential"),
            (ErrorKind::Stalled, "stalled"),
            (ErrorKind::Internal, "internal"),
            (ErrorKind::CreditExceeded, "internal"),
            (ErrorKind::Unknown, "upstream_protocol"),
        ] {
            assert_eq!(Fault::from(kind).outcome(), outcome);
        }
    }
}
