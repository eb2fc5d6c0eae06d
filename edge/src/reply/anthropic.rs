//! Anthropic's error body, and how a stream of messages is broken off.

use serde::Serialize;

use super::Fault;
use crate::surface::Surface;

#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    error: Error<'a>,
    request_id: &'a str,
}

#[derive(Serialize)]
struct Error<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    message: &'a str,
}

/// The body of an answer, and the data of the event.
pub(super) fn body(fault: &Fault, request_id: &str) -> String {
    let error = Error { kind: fault.anthropic_type(), message: &fault.message(Surface::Messages) };
    // Strings cannot fail to serialize.
    serde_json::to_string(&Body { kind: "error", error, request_id }).unwrap_or_default()
}

/// One event, with its name: without it Anthropic's SDKs do not see it.
pub(super) fn stream_end(fault: &Fault, request_id: &str) -> String {
    format!("event: error\ndata: {}\n\n", body(fault, request_id))
}
