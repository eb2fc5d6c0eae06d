//! What the events of a run say to a client, whichever surface it came by. Pure.

use std::{collections::BTreeMap, sync::Arc};

use proto::{
    message::{RunEvent, RunEventKind, Usage},
    run_input::{TEXT_TOOL_FALLBACK_KEY, TOOL_CALLS_KEY, ToolCall},
};
use thiserror::Error;

use super::restore::Restorer;

/// Longest answer that is gathered for a client that wants it in one piece, in bytes of text: 16 MiB, many times what any
/// model's window holds.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// One piece of an answer, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Of the thinking before the answer (RUN-6).
    Reasoning(String),
    /// Of the answer.
    Text(String),
    /// A whole call. Text may follow it.
    Call(ToolCall),
    /// The beginning of a call whose arguments come in pieces: they follow at once, up to any other piece or the end.
    CallBegun {
        /// Its identity.
        id: String,
        /// The function.
        name: String,
    },
    /// Of the arguments of the call that has begun: text of one JSON object when all of it is there.
    Arguments(String),
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model was done.
    Stop,
    /// It had no tokens left.
    Length,
    /// It waits for the results of its calls.
    ToolCalls,
    /// The backend held it back.
    ContentFilter,
}

/// The end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Why.
    pub reason: FinishReason,
    /// Tokens, where the backend counted any.
    pub usage: Option<Usage>,
}

/// Why a run's events are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// The calls on the completion are no calls.
    #[error("the tool calls of a completion are malformed")]
    Calls,
    /// It does not end.
    #[error("the answer is longer than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
}

/// What is known of the request.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Identity of the request: calls without an id of their own get one that begins with it.
    pub request: Arc<str>,
    /// The client wants the answer in one piece, so all of it is gathered somewhere.
    pub whole: bool,
    /// At most one call.
    pub single_call: bool,
    /// Names of the functions that may be called.
    pub tools: Vec<String>,
}

/// Follows the events of one run.
#[derive(Debug)]
pub struct Answer {
    asked: Asked,
    /// Of a run whose calls come in its text.
    restorer: Option<Restorer>,
    /// The text of an answer that is gathered, while its run may still say that calls are in it.
    held: String,
    bytes: usize,
    calls: usize,
    usage: Option<Usage>,
}

impl Answer {
    /// Before the first event.
    #[must_use]
    pub fn new(asked: Asked) -> Self {
        Self { asked, restorer: None, held: String::new(), bytes: 0, calls: 0, usage: None }
    }

    /// Takes an event other than an error; appends what it says. `Some` at the end.
    ///
    /// # Errors
    /// The answer is of no use from here on.
    pub fn event(&mut self, event: RunEvent, pieces: &mut Vec<Piece>) -> Result<Option<Finish>, AnswerError> {
        match event.kind {
            RunEventKind::Delta { text, reasoning } => {
                self.bytes = self.bytes.saturating_add(text.len() + reasoning.len());
                if self.asked.whole && self.bytes > ANSWER_BYTES_MAX {
                    return Err(AnswerError::TooLong);
                }
                if !reasoning.is_empty() {
                    pieces.push(Piece::Reasoning(reasoning));
                }
                self.text(text, pieces);
            }
            RunEventKind::Usage(usage) => self.usage = Some(usage),
            RunEventKind::Complete { finish_reason, usage } => {
                self.note_mode(&event.metadata);
                self.end_text(&finish_reason, pieces);
                if let Some(calls) = event.metadata.get(TOOL_CALLS_KEY) {
                    let calls: Vec<ToolCall> = serde_json::from_str(calls).map_err(|_| AnswerError::Calls)?;
                    calls.into_iter().for_each(|call| self.call(call, pieces));
                }
                return Ok(Some(Finish { reason: self.reason(&finish_reason), usage: usage.or(self.usage) }));
            }
            RunEventKind::Start => self.note_mode(&event.metadata),
            // What control tells, not this stream of events.
            RunEventKind::Error(_) | RunEventKind::Cancelled => {}
        }
        Ok(None)
    }

    /// Whether the backend was asked for its calls in text (RUN-4).
    #[must_use]
    pub fn has_text_tools(&self) -> bool {
        self.restorer.is_some()
    }

    /// How often the model wrote a call of a function that the request does not have (api.md §7 rule 5).
    #[must_use]
    pub fn unknown_calls(&self) -> u64 {
        self.restorer.as_ref().map_or(0, Restorer::unknown)
    }

    /// Only a run that is marked has its text looked into (RUN-3, RUN-4). A stream is marked when it starts; text that has been
    /// passed on is not called back.
    fn note_mode(&mut self, metadata: &BTreeMap<String, String>) {
        let is_marked = metadata.get(TEXT_TOOL_FALLBACK_KEY).is_some_and(|value| value == "true");
        let in_time = self.asked.whole || self.bytes == 0;
        if is_marked && in_time && self.restorer.is_none() && !self.asked.tools.is_empty() {
            self.restorer = Some(Restorer::new(self.asked.tools.clone()));
        }
    }

    fn text(&mut self, text: String, pieces: &mut Vec<Piece>) {
        if text.is_empty() {
            return;
        }
        if self.asked.whole && !self.asked.tools.is_empty() {
            self.held.push_str(&text);
        } else if let Some(restorer) = &mut self.restorer {
            let mut restored = Vec::new();
            restorer.push(&text, &mut restored);
            self.take_restored(restored, pieces);
        } else {
            pieces.push(Piece::Text(text));
        }
    }

    /// What was held back.
    fn end_text(&mut self, finish_reason: &str, pieces: &mut Vec<Piece>) {
        let held = std::mem::take(&mut self.held);
        let Some(restorer) = &mut self.restorer else {
            if !held.is_empty() {
                pieces.push(Piece::Text(held));
            }
            return;
        };
        let mut restored = Vec::new();
        restorer.push(&held, &mut restored);
        restorer.finish(finish_reason == "length", &mut restored);
        self.take_restored(restored, pieces);
    }

    fn take_restored(&mut self, restored: Vec<Piece>, pieces: &mut Vec<Piece>) {
        for piece in restored {
            match piece {
                Piece::Call(call) => self.call(call, pieces),
                other => pieces.push(other),
            }
        }
    }

    fn call(&mut self, mut call: ToolCall, pieces: &mut Vec<Piece>) {
        if self.asked.single_call && self.calls > 0 {
            return;
        }
        if call.id.is_empty() {
            let request = self.asked.request.trim_start_matches("req_");
            call.id = format!("call_{request}{}", self.calls);
        }
        if call.function.arguments.is_empty() {
            call.function.arguments.push_str("{}");
        }
        self.calls += 1;
        pieces.push(Piece::Call(call));
    }

    /// A word that nobody here knows is a proper end; one that calls were made says nothing without a call.
    fn reason(&self, word: &str) -> FinishReason {
        match word {
            "length" => FinishReason::Length,
            "content_filter" => FinishReason::ContentFilter,
            _ if self.calls > 0 => FinishReason::ToolCalls,
            _ => FinishReason::Stop,
        }
    }
}

#[cfg(test)]
mod tests;
