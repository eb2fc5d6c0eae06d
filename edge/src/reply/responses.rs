//! How a stream of responses is broken off: by an `error` event, by `response.failed`, and by `[DONE]` (API-1).
//!
//! Codex looks at the second one alone and sends the whole request again unless its code says that this is of no use;
//! openai-node stops at the first one.

use std::borrow::Cow;

use serde::Serialize;

use super::{Broken, Fault, table::Retry};
use crate::surface::Surface;

#[derive(Serialize)]
struct ErrorEvent<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    code: &'a str,
    message: &'a str,
    param: Option<&'a str>,
    sequence_number: u64,
}

#[derive(Serialize)]
struct FailedEvent<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    response: Response<'a>,
    sequence_number: u64,
}

/// The members that OpenAI's specification requires, of a response of which nothing but its failure is known.
#[derive(Serialize)]
struct Response<'a> {
    id: &'a str,
    object: &'static str,
    created_at: u64,
    status: &'static str,
    error: Error<'a>,
    incomplete_details: Option<()>,
    instructions: Option<()>,
    metadata: Empty,
    model: &'a str,
    output: [(); 0],
    parallel_tool_calls: bool,
    temperature: Option<()>,
    tool_choice: &'static str,
    tools: [(); 0],
    top_p: Option<()>,
    usage: Option<()>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct Error<'a> {
    code: &'a str,
    message: &'a str,
}

/// What a failed response says of its failure.
#[derive(Debug)]
pub struct Failure {
    /// `response.error.code`
    pub code: &'static str,
    /// `response.error.message`
    pub message: Cow<'static, str>,
}

impl From<&Fault> for Failure {
    /// Codex asks again five times, except after a few codes (api.md section 1.2): so what certainly fails again has one of those, and
    /// what may well succeed after some seconds is told in the one form that it obeys. SDKs show the code and go by none.
    fn from(fault: &Fault) -> Self {
        let message = fault.message(Surface::Responses);
        match (fault.code(), fault.retry()) {
            (Some(code @ ("context_length_exceeded" | "insufficient_quota")), _) => Self { code, message },
            (_, Retry::No) => Self { code: "invalid_prompt", message },
            (_, Retry::After(seconds)) => Self {
                code: "rate_limit_exceeded",
                message: format!("{message} Please try again in {seconds}s.").into(),
            },
            (_, Retry::Unsaid) => Self { code: "server_error", message },
        }
    }
}

pub(super) fn stream_end(fault: &Fault, broken: &Broken<'_>) -> String {
    let Failure { code, message } = Failure::from(fault);
    let error = ErrorEvent {
        kind: "error",
        code,
        message: &message,
        param: fault.param(Surface::Responses),
        sequence_number: broken.events,
    };
    let id = format!("resp_{}", broken.request_id.trim_start_matches("req_"));
    let response = Response {
        id: &id,
        object: "response",
        created_at: broken.now,
        status: "failed",
        error: Error { code, message: &message },
        incomplete_details: None,
        instructions: None,
        metadata: Empty {},
        model: broken.model,
        output: [],
        parallel_tool_calls: true,
        temperature: None,
        tool_choice: "auto",
        tools: [],
        top_p: None,
        usage: None,
    };
    let failed = FailedEvent { kind: "response.failed", response, sequence_number: broken.events + 1 };
    // Strings, numbers and options cannot fail to serialize.
    let (error, failed) = (
        serde_json::to_string(&error).unwrap_or_default(),
        serde_json::to_string(&failed).unwrap_or_default(),
    );
    format!("event: error\ndata: {error}\n\nevent: response.failed\ndata: {failed}\n\ndata: [DONE]\n\n")
}
