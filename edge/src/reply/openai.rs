//! OpenAI's error body, and how a stream of chat completions is broken off.

use serde::Serialize;

use super::Fault;
use crate::surface::Surface;

/// All four keys are required by OpenAI's specification.
#[derive(Serialize)]
struct Error<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    param: Option<&'a str>,
    code: Option<&'a str>,
}

#[derive(Serialize)]
struct Body<'a> {
    error: Error<'a>,
}

/// The body of an answer.
pub(super) fn body(fault: &Fault, surface: Surface) -> String {
    let error = Error {
        message: &fault.message(surface),
        kind: fault.openai_type(),
        param: fault.param(surface),
        code: fault.code(),
    };
    // Strings and options cannot fail to serialize.
    serde_json::to_string(&Body { error }).unwrap_or_default()
}

/// One event; no `[DONE]` follows it.
pub(super) fn stream_end(fault: &Fault) -> String {
    format!("data: {}\n\n", body(fault, Surface::Chat))
}
