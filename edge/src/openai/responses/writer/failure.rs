//! What a failed response says of the failure.

use std::borrow::Cow;

use crate::reply::Fault;

/// Code and words of `response.error`.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: &'static str,
    pub(super) message: Cow<'static, str>,
}

impl From<&Fault> for Failure {
    /// Codex asks again five times, except after a few codes (api.md §1.2): so what certainly fails again has one of those, and what
    /// may well succeed after some seconds is told in the one form that it obeys. SDKs show the code and go by none.
    fn from(fault: &Fault) -> Self {
        let message = fault.message();
        if fault.code() == Some("context_length_exceeded") {
            return Self { code: "context_length_exceeded", message };
        }
        if fault.headers().iter().any(|(name, value)| *name == "x-should-retry" && value == "false") {
            return Self { code: "invalid_prompt", message };
        }
        match fault.retry_after() {
            Some(seconds) => Self {
                code: "rate_limit_exceeded",
                message: format!("{message} Please try again in {seconds}s.").into(),
            },
            None => Self { code: "server_error", message },
        }
    }
}
