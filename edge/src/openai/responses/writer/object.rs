//! The response object.

use proto::message::Usage;
use serde::Serialize;

use super::{Shape, items::Items, write};
use crate::{
    openai::normalized::answer::{Finish, FinishReason},
    reply::Failure,
};

/// How far a response is.
#[derive(Debug)]
pub(super) enum State<'a> {
    /// Not at its end. Nothing of what was said is told.
    InProgress,
    /// At its end.
    Ended(&'a Finish),
    /// It will have no proper end.
    Failed(&'a Failure),
}

impl State<'_> {
    /// `status`
    pub(super) const fn status(&self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Failed(_) => "failed",
            Self::Ended(_) if self.incomplete().is_some() => "incomplete",
            Self::Ended(_) => "completed",
        }
    }

    /// Why it was broken off: `incomplete_details.reason`
    const fn incomplete(&self) -> Option<&'static str> {
        let Self::Ended(finish) = self else { return None };
        match finish.reason {
            FinishReason::Stop | FinishReason::ToolCalls => None,
            FinishReason::Length => Some("max_output_tokens"),
            FinishReason::ContentFilter => Some("content_filter"),
        }
    }
}

/// What of a response is the same in all its events.
#[derive(Debug)]
pub(super) struct Object {
    /// Up to the members that change.
    head: Vec<u8>,
    pub(super) completed_at: Option<u64>,
}

impl Object {
    pub(super) fn new(shape: &Shape) -> Self {
        let mut head = b"{\"id\":".to_vec();
        write(&mut head, &shape.id);
        head.extend_from_slice(b",\"object\":\"response\",\"created_at\":");
        write(&mut head, &shape.created);
        head.extend_from_slice(b",\"model\":");
        write(&mut head, &shape.model);
        head.push(b',');
        head.extend_from_slice(shape.echo.members());
        Self { head, completed_at: None }
    }

    pub(super) fn write(&self, state: &State<'_>, items: &Items, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        out.extend_from_slice(b",\"status\":\"");
        out.extend_from_slice(state.status().as_bytes());
        let is_complete = matches!(state, State::Ended(_)) && state.incomplete().is_none();
        out.extend_from_slice(b"\",\"completed_at\":");
        write(out, &self.completed_at.filter(|_| is_complete));
        out.extend_from_slice(b",\"error\":");
        match state {
            State::Failed(failure) => {
                write(out, &Error { code: failure.code, message: &failure.message });
            }
            State::InProgress | State::Ended(_) => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"incomplete_details\":");
        write(out, &state.incomplete().map(|reason| Details { reason }));
        out.extend_from_slice(b",\"output\":[");
        if !matches!(state, State::InProgress) {
            items.write(out);
        }
        out.extend_from_slice(b"],\"usage\":");
        let usage = if let State::Ended(finish) = state { finish.usage } else { None };
        write(out, &usage.map(Tokens::from));
        out.push(b'}');
    }
}

#[derive(Serialize)]
struct Error<'a> {
    code: &'static str,
    message: &'a str,
}

#[derive(Serialize)]
struct Details {
    reason: &'static str,
}

/// Usage as the surface has it: every number is there, 0 for what was not counted.
#[derive(Serialize)]
struct Tokens {
    input_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    total_tokens: u64,
}

#[derive(Serialize)]
struct InputDetails {
    cached_tokens: u64,
    /// Nobody here tells of it, and the schema wants it.
    cache_write_tokens: u64,
}

#[derive(Serialize)]
struct OutputDetails {
    reasoning_tokens: u64,
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Self {
        let (input, output) =
            (usage.input_tokens.unwrap_or_default(), usage.output_tokens.unwrap_or_default());
        Self {
            input_tokens: input,
            input_tokens_details: InputDetails {
                cached_tokens: usage.cached_input_tokens.unwrap_or_default(),
                cache_write_tokens: 0,
            },
            output_tokens: output,
            output_tokens_details: OutputDetails {
                reasoning_tokens: usage.reasoning_tokens.unwrap_or_default(),
            },
            total_tokens: input.saturating_add(output),
        }
    }
}
