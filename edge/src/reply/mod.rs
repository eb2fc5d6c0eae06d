//! The only mapping from what can go wrong to what a client is told, whatever its surface.
//!
//! | Module | Owns |
//! |---|---|
//! | `table` | status, types, code, retry hint and metric label of each fault |
//! | `message` | what a person reads |
//! | `provider` | what a provider's own error amounts to |
//! | `openai` | OpenAI's error body, and how a stream of chat completions is broken off |
//! | `responses` | how a stream of responses is broken off |
//! | `anthropic` | Anthropic's error body, and how a stream of messages is broken off |
//!
//! Messages are ours: no token and no address is in them, and of a provider's text only what a native backend, or a provider of a
//! chat completion that we wrote, says against a request: what it does not take is the client's to change, and nobody else knows
//! what it was.
//!
//! Retry hints follow the official SDKs: `x-should-retry: false` where another try of the same request certainly fails,
//! `retry-after` of at most a minute where it may well succeed (a longer one makes some SDKs give up).

mod anthropic;
mod message;
mod openai;
mod provider;
mod responses;
mod table;
#[cfg(test)]
mod tests;

pub use responses::Failure;

use std::{borrow::Cow, sync::Arc};

use control::effect::Refusal;
use proto::message::ErrorKind;

use crate::{surface::Surface, token::AuthError, translate::refusal::ProviderError};

/// Every outcome of a request, for pre-registered metric series; `ok`, [`CLIENT_GONE`], [`CLIENT_STALLED`] and
/// [`Fault::outcome`] draw from it.
pub const OUTCOMES: [&str; 42] = [
    "ok",
    CLIENT_GONE,
    CLIENT_STALLED,
    "bad_framing",
    "bad_json",
    "bad_query",
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
    "bad_coding",
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
    "provider_status",
    "provider_refused",
    "provider_failed",
    "answer_too_long",
    "repetition",
    "schema_mismatch",
    "deadline",
    "stalled",
    "cancelled",
    "internal",
];
/// Outcome of a request whose client left; no response is written.
pub const CLIENT_GONE: &str = "client_gone";
/// Outcome of a request whose client took nothing of its answer for `limits.write_stall_ms`.
pub const CLIENT_STALLED: &str = "client_stalled";
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
    /// A parameter of the query is wrong.
    BadQuery {
        /// Which.
        param: &'static str,
        /// What was expected: lower case, no full stop.
        detail: &'static str,
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
    /// A path of stored responses, of which there are none here.
    NotStored,
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
    /// The body has a content coding that is not understood.
    UnsupportedEncoding,
    /// The body is not what its content coding says.
    BadCoding {
        /// Which coding.
        coding: &'static str,
        /// What is wrong: a clause without a full stop.
        detail: String,
    },
    /// The body becomes too many times as long without its content coding.
    BodyExpands {
        /// Which coding.
        coding: &'static str,
    },
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
    /// The provider refused, after the stream to the client had begun by a sign of life.
    ProviderStatus {
        /// Its HTTP status.
        status: u16,
    },
    /// A native backend does not take the request: a model it does not have, a picture it cannot see.
    ProviderRefused {
        /// In the words of the Node, which may quote the backend: one line, bounded.
        words: String,
    },
    /// What a provider answered to a chat completion of ours is no success. Of one that the client wrote it gets the answer itself.
    Provider {
        /// What it says.
        error: ProviderError,
        /// When it wants to be asked again, in seconds: 1..=60.
        retry_after: Option<u8>,
    },
    /// An answer that is to be given in one piece grew too long.
    AnswerTooLong,
    /// The model's answer went round in circles, and was stopped (SEG-4).
    Repetition,
    /// The model's answer does not keep the JSON Schema that was asked for (SEG-8).
    SchemaMismatch {
        /// What does not fit, for the client of this very request: a sentence without its full stop.
        words: String,
    },
    /// The run's hard deadline, or the Edge's wait for it, passed (TUN-8).
    Deadline,
    /// The provider made no progress for too long (STL-4).
    Stalled,
    /// Ended by us, for instance at the end of the drain grace.
    Cancelled,
    /// A defect of ours.
    Internal,
}

/// Which stream it is that breaks.
#[derive(Clone, Copy, Debug)]
pub struct Broken<'a> {
    /// In which language it was begun.
    pub surface: Surface,
    /// Of the request.
    pub request_id: &'a str,
    /// The model, as the client named it.
    pub model: &'a str,
    /// Seconds since 1970.
    pub now: u64,
    /// How many events came before: the number of the next one, where a surface numbers them.
    pub events: u64,
}

impl Fault {
    /// The body of an answer that is nothing but this fault, as one JSON object.
    #[must_use]
    pub fn body(&self, surface: Surface, request_id: &str) -> String {
        match surface {
            Surface::Chat | Surface::Responses => openai::body(self, surface),
            Surface::Messages => anthropic::body(self, request_id),
        }
    }

    /// The events that end a stream which had begun, each of them whole: such a stream never ends as one that succeeded (API-1).
    #[must_use]
    pub fn stream_end(&self, broken: &Broken<'_>) -> String {
        match broken.surface {
            Surface::Chat => openai::stream_end(self),
            Surface::Responses => responses::stream_end(self, broken),
            Surface::Messages => anthropic::stream_end(self, broken.request_id),
        }
    }

    /// OpenAI's `error.param`.
    #[must_use]
    pub fn param(&self, surface: Surface) -> Option<&str> {
        match self {
            Self::BadJson { param, .. } => param.as_deref(),
            Self::MissingField { param } | Self::BadQuery { param, .. } => Some(param),
            Self::UnknownModel { .. } => Some("model"),
            Self::ContextTooLong { .. } if surface == Surface::Responses => Some("input"),
            Self::ContextTooLong { .. } => Some("messages"),
            _ => None,
        }
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
