//! The table: status, types, code, retry hint and metric label of each fault (api.md section 1.6).

use std::borrow::Cow;

use dataplane::http::coding;

use super::{Fault, provider};

/// Whether the same request may succeed when it is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// Certainly not.
    No,
    /// Perhaps, and the client's own back-off is as good as any.
    Unsaid,
    /// Likely, after this many seconds: 1..=60.
    After(u8),
}

/// What a fault is called by those who tell it to clients.
pub(super) struct Kind {
    /// OpenAI's `error.type`.
    openai: &'static str,
    /// OpenAI's `error.code`.
    code: Option<&'static str>,
    /// Anthropic's `error.type`. Claude Code decides by it, against the status, whether it tries again: `overloaded_error` is for
    /// what passes by itself.
    anthropic: &'static str,
}

const fn kind(openai: &'static str, code: Option<&'static str>, anthropic: &'static str) -> Kind {
    Kind { openai, code, anthropic }
}

const INVALID_REQUEST: &str = "invalid_request_error";
const SERVER_ERROR: &str = "server_error";
const AUTHENTICATION: &str = "authentication_error";
const API_ERROR: &str = "api_error";
const OVERLOADED_ERROR: &str = "overloaded_error";

pub(super) const INVALID: Kind = kind(INVALID_REQUEST, None, INVALID_REQUEST);
pub(super) const TOO_LONG: Kind = kind(INVALID_REQUEST, Some("context_length_exceeded"), INVALID_REQUEST);
pub(super) const TOO_LARGE: Kind = kind(INVALID_REQUEST, None, "request_too_large");
const KEY: Kind = kind(INVALID_REQUEST, Some("invalid_api_key"), AUTHENTICATION);
const PROVIDER_KEY: Kind = kind(INVALID_REQUEST, Some("provider_authorization"), AUTHENTICATION);
pub(super) const NO_MODEL: Kind = kind(INVALID_REQUEST, Some("model_not_found"), "not_found_error");
pub(super) const CREDENTIAL: Kind = kind(INVALID_REQUEST, Some("upstream_error"), AUTHENTICATION);
pub(super) const FORBIDDEN: Kind = kind(INVALID_REQUEST, Some("upstream_error"), "permission_error");
pub(super) const QUOTA: Kind = kind("insufficient_quota", Some("insufficient_quota"), "rate_limit_error");
pub(super) const NO_PATH: Kind = kind(INVALID_REQUEST, None, "not_found_error");
pub(super) const RATE: Kind = kind("rate_limit_error", Some("rate_limit_exceeded"), "rate_limit_error");
pub(super) const OVERLOADED: Kind = kind(SERVER_ERROR, Some("overloaded"), OVERLOADED_ERROR);
const UNABLE: Kind = kind(SERVER_ERROR, Some("overloaded"), API_ERROR);
pub(super) const UPSTREAM: Kind = kind(SERVER_ERROR, Some("upstream_error"), API_ERROR);
pub(super) const TIMEOUT: Kind = kind(SERVER_ERROR, Some("timeout"), "timeout_error");
const CANCELLED: Kind = kind(SERVER_ERROR, Some("cancelled"), OVERLOADED_ERROR);
const DEFECT: Kind = kind(SERVER_ERROR, None, API_ERROR);

/// The fixed part of an answer.
pub(super) struct Row {
    status: u16,
    kind: Kind,
    retry: Retry,
    outcome: &'static str,
}

pub(super) const fn row(status: u16, kind: Kind, retry: Retry, outcome: &'static str) -> Row {
    Row { status, kind, retry, outcome }
}

impl Fault {
    /// The table.
    const fn row(&self) -> Row {
        use Retry::{After, No, Unsaid};
        match self {
            Self::BadFraming { .. } => row(400, INVALID, No, "bad_framing"),
            Self::BadJson { .. } => row(400, INVALID, No, "bad_json"),
            Self::BadQuery { .. } => row(400, INVALID, No, "bad_query"),
            Self::MissingField { .. } => row(400, INVALID, No, "missing_field"),
            Self::Unauthorized => row(401, KEY, No, "unauthorized"),
            Self::Revoked => row(401, KEY, No, "token_revoked"),
            Self::ProviderAuth { .. } => row(401, PROVIDER_KEY, No, "provider_auth"),
            Self::UnknownModel { .. } => row(404, NO_MODEL, No, "unknown_model"),
            Self::ContextTooLong { .. } => row(400, TOO_LONG, No, "context_too_long"),
            Self::UnknownPath | Self::NotStored => row(404, NO_PATH, No, "unknown_path"),
            Self::MethodNotAllowed { .. } => row(405, INVALID, No, "method_not_allowed"),
            Self::RequestTimeout => row(408, INVALID, Unsaid, "request_timeout"),
            Self::BodyTooLarge { .. } => row(413, TOO_LARGE, No, "body_too_large"),
            Self::UnsupportedEncoding => row(415, INVALID, No, "unsupported_encoding"),
            Self::BadCoding { .. } => row(400, INVALID, No, "bad_coding"),
            Self::BodyExpands { .. } => row(413, TOO_LARGE, No, "body_too_large"),
            Self::ExpectationFailed => row(417, INVALID, No, "expectation_failed"),
            Self::HeadTooLarge => row(431, INVALID, No, "head_too_large"),
            Self::QueueFull => row(429, RATE, After(2), "queue_full"),
            Self::QueueTimeout => row(503, OVERLOADED, After(5), "queue_timeout"),
            Self::Unservable => row(503, UNABLE, No, "unservable"),
            Self::Busy => row(503, OVERLOADED, After(1), "busy"),
            Self::NoNode => row(503, OVERLOADED, After(5), "no_node"),
            Self::NoBodyRoom => row(503, OVERLOADED, After(2), "no_body_room"),
            Self::Draining => row(503, OVERLOADED, After(5), "draining"),
            Self::NodeLost => row(502, UPSTREAM, Unsaid, "node_lost"),
            Self::UpstreamConnect => row(502, UPSTREAM, Unsaid, "upstream_connect"),
            Self::UpstreamProtocol => row(502, UPSTREAM, Unsaid, "upstream_protocol"),
            Self::UpstreamTruncated => row(502, UPSTREAM, Unsaid, "upstream_truncated"),
            Self::UpstreamCredential => row(502, UPSTREAM, No, "upstream_credential"),
            Self::ProviderStatus { status: 429 } => row(429, RATE, Unsaid, "provider_status"),
            Self::ProviderStatus { status: 400..=499 } => row(400, INVALID, No, "provider_status"),
            Self::ProviderStatus { .. } => row(502, UPSTREAM, Unsaid, "provider_status"),
            Self::ProviderRefused { .. } => row(400, INVALID, No, "provider_refused"),
            Self::Provider { error, retry_after } => provider::row(error, *retry_after),
            Self::AnswerTooLong => row(502, UPSTREAM, No, "answer_too_long"),
            Self::Repetition => row(502, UPSTREAM, Unsaid, "repetition"),
            Self::SchemaMismatch { .. } => row(502, UPSTREAM, Unsaid, "schema_mismatch"),
            Self::Deadline => row(504, TIMEOUT, Unsaid, "deadline"),
            Self::Stalled => row(504, TIMEOUT, Unsaid, "stalled"),
            Self::Cancelled => row(503, CANCELLED, Unsaid, "cancelled"),
            Self::Internal => row(500, DEFECT, Unsaid, "internal"),
        }
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.row().status
    }

    /// OpenAI's `error.type`.
    #[must_use]
    pub const fn openai_type(&self) -> &'static str {
        self.row().kind.openai
    }

    /// OpenAI's `error.code`. What names an earlier response has the one that OpenAI gives where it is not there: clients that can, send
    /// the whole conversation then.
    #[must_use]
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Self::BadJson { param: Some(param), .. } if param == "previous_response_id" => {
                Some("previous_response_not_found")
            }
            _ => self.row().kind.code,
        }
    }

    /// Anthropic's `error.type`.
    #[must_use]
    pub const fn anthropic_type(&self) -> &'static str {
        self.row().kind.anthropic
    }

    /// Whether the same request may succeed when it is sent again.
    pub(super) const fn retry(&self) -> Retry {
        self.row().retry
    }

    /// Seconds for `retry-after`, 1..=60.
    #[must_use]
    pub const fn retry_after(&self) -> Option<u8> {
        match self.retry() {
            Retry::After(seconds) => Some(seconds),
            Retry::No | Retry::Unsaid => None,
        }
    }

    /// The label of metrics and logs, one of [`super::OUTCOMES`].
    #[must_use]
    pub const fn outcome(&self) -> &'static str {
        self.row().outcome
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
            // RFC 9110 section 12.5.3.
            Self::UnsupportedEncoding => {
                headers.push(("accept-encoding", Cow::Borrowed(coding::UNDERSTOOD)));
            }
            _ => {}
        }
        match self.retry() {
            Retry::After(seconds) => headers.push(("retry-after", seconds.to_string().into())),
            Retry::No => headers.push(("x-should-retry", Cow::Borrowed("false"))),
            Retry::Unsaid => {}
        }
        headers
    }
}
