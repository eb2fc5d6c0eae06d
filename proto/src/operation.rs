//! Spelling of the closed sets of [`crate::message`]: operations and error kinds.

use core::{fmt, str::FromStr};

use thiserror::Error;

use crate::message::{ErrorKind, Operation};

/// The text names no known operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("unknown operation; known are models, chat_completions, messages, count_tokens, responses")]
pub struct UnknownOperation;

impl Operation {
    /// Every operation, in the order of the ledger (TUN-1).
    pub const ALL: [Self; 5] =
        [Self::Models, Self::ChatCompletions, Self::Messages, Self::CountTokens, Self::Responses];

    /// Its name on the wire and in configuration files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::ChatCompletions => "chat_completions",
            Self::Messages => "messages",
            Self::CountTokens => "count_tokens",
            Self::Responses => "responses",
        }
    }
}

impl FromStr for Operation {
    type Err = UnknownOperation;

    fn from_str(text: &str) -> Result<Self, UnknownOperation> {
        Self::ALL.into_iter().find(|operation| operation.as_str() == text).ok_or(UnknownOperation)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl ErrorKind {
    /// A stable lower-case word for logs, metric labels and error bodies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Cancelled => "cancelled",
            Self::Deadline => "deadline",
            Self::Connect => "connect",
            Self::UpstreamProtocol => "upstream_protocol",
            Self::UpstreamTruncated => "upstream_truncated",
            Self::InvalidRequest => "invalid_request",
            Self::Credential => "credential",
            Self::Stalled => "stalled",
            Self::Internal => "internal",
            Self::CreditExceeded => "credit_exceeded",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
