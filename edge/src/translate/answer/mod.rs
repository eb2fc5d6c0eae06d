//! From a provider's chat answer to the pieces of an answer, as they come: an event stream, or one object.

mod calls;
mod chunk;
mod events;
mod extent;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use proto::message::Usage;

use self::{
    calls::{CallError, Calls, Fragment},
    chunk::{Choice, Chunk, Delta, Function},
    events::{EventTooLong, Events},
};
use super::refusal::{self, ProviderError};
use crate::openai::normalized::answer::{ANSWER_BYTES_MAX, Finish, FinishReason, Piece};

pub use self::{
    calls::{CALLS_MAX, HELD_BYTES_MAX},
    events::EVENT_BYTES_MAX,
};

/// Longest answer that a provider may give as one object, in bytes: 4 MiB, as it is read in one go.
pub const WHOLE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How a provider's answer comes, which its head says, whatever it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As an event stream of chunks.
    Events,
    /// As one object.
    Whole,
}

/// Why a provider's answer is of no use from here on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It tells of a failure in its place.
    Failed(ProviderError),
    /// It is no chat completion.
    Malformed,
    /// It ended before its end.
    Cut,
    /// It does not end.
    TooLong,
}

impl From<EventTooLong> for Trouble {
    fn from(_: EventTooLong) -> Self {
        Self::TooLong
    }
}

impl From<CallError> for Trouble {
    fn from(error: CallError) -> Self {
        match error {
            CallError::TooMuch => Self::TooLong,
            CallError::Nameless => Self::Malformed,
        }
    }
}

/// Reads one answer.
#[derive(Debug)]
pub struct Reader {
    form: Form,
    events: Events,
    whole: Vec<u8>,
    said: Said,
}

/// What has been said so far.
#[derive(Debug)]
struct Said {
    calls: Calls,
    /// Bytes of text and thinking, and most of them.
    bytes: usize,
    bytes_max: usize,
    /// Of the one choice.
    choice: Option<Option<u64>>,
    reason: Option<FinishReason>,
    usage: Option<Usage>,
    /// `[DONE]` was said.
    done: bool,
}

impl Reader {
    /// Before the first byte. `request` is the identity of the request: calls without one of their own get one that begins with it.
    /// `single_call` = at most one call was asked for. `gathered` = all of the answer is put together somewhere, so it has a bound.
    #[must_use]
    pub fn new(form: Form, request: Arc<str>, single_call: bool, gathered: bool) -> Self {
        let said = Said {
            calls: Calls::new(request, single_call),
            bytes: 0,
            bytes_max: if gathered { ANSWER_BYTES_MAX } else { usize::MAX },
            choice: None,
            reason: None,
            usage: None,
            done: false,
        };
        Self { form, events: Events::default(), whole: Vec::new(), said }
    }

    /// Takes more of the answer, cut anywhere; appends what it says. `Some` at its end, where the answer says that it is
    /// there; what comes after that is nothing.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn push(&mut self, bytes: &[u8], pieces: &mut Vec<Piece>) -> Result<Option<Finish>, Trouble> {
        if self.said.done {
            return Ok(None);
        }
        match self.form {
            Form::Events => {
                let said = &mut self.said;
                self.events.push(bytes, |data| said.event(data, pieces))?;
                if self.said.done { self.said.finish(pieces).map(Some) } else { Ok(None) }
            }
            Form::Whole => {
                if self.whole.len() + bytes.len() > WHOLE_BYTES_MAX {
                    return Err(Trouble::TooLong);
                }
                self.whole.extend_from_slice(bytes);
                Ok(None)
            }
        }
    }

    /// The body is over; appends what that says. `Some` for an answer whose end it is, `None` for one that had ended before.
    ///
    /// # Errors
    /// [`Trouble`].
    pub fn end(&mut self, pieces: &mut Vec<Piece>) -> Result<Option<Finish>, Trouble> {
        if self.said.done {
            return Ok(None);
        }
        let said = &mut self.said;
        match self.form {
            Form::Events => {
                let ended = self.events.end(|data| said.event(data, pieces));
                // The beginning of an event is nothing.
                match ended {
                    Err(Trouble::Malformed) => {}
                    ended => ended?,
                }
                if !said.done && said.reason.is_none() {
                    return Err(Trouble::Cut);
                }
            }
            Form::Whole => said.whole(&std::mem::take(&mut self.whole), pieces)?,
        }
        self.said.done = true;
        self.said.finish(pieces).map(Some)
    }
}

impl Said {
    fn event(&mut self, data: &[u8], pieces: &mut Vec<Piece>) -> Result<(), Trouble> {
        let data = data.trim_ascii();
        if self.done || data.is_empty() {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        let chunk: Chunk<'_> = serde_json::from_slice(data).map_err(|_| Trouble::Malformed)?;
        if chunk.is_error() {
            return Err(Trouble::Failed(refusal::of_event(data)));
        }
        self.count(&chunk);
        for choice in chunk.choices.iter().flatten() {
            let Some(delta) = self.chosen(choice)? else { continue };
            self.speech(delta, pieces)?;
            for fragment in delta.tool_calls.iter().flatten() {
                self.fragment(fragment, pieces)?;
            }
            if let Some(function) = &delta.function_call {
                // The older form, which has one call and nothing to tell it by.
                self.function((Some(0), None), function, pieces)?;
            }
        }
        Ok(())
    }

    fn whole(&mut self, body: &[u8], pieces: &mut Vec<Piece>) -> Result<(), Trouble> {
        let chunk: Chunk<'_> = serde_json::from_slice(body)
            .map_err(|error| if error.is_eof() { Trouble::Cut } else { Trouble::Malformed })?;
        if chunk.is_error() {
            return Err(Trouble::Failed(refusal::of_event(body)));
        }
        self.count(&chunk);
        for choice in chunk.choices.iter().flatten() {
            let Some(message) = self.chosen(choice)? else { continue };
            self.speech(message, pieces)?;
            let calls = message.tool_calls.as_deref().unwrap_or_default();
            for call in calls {
                let (id, name) = (call.id(), call.function.as_ref().and_then(Function::name));
                let arguments = call.function.as_ref().and_then(Function::arguments).unwrap_or_default();
                let call =
                    Fragment { index: None, id: id.as_deref(), name: name.as_deref(), arguments: &arguments };
                self.calls.begin(&call, pieces)?;
            }
            if let Some(function) = message.function_call.as_ref().filter(|_| calls.is_empty()) {
                self.function((Some(0), None), function, pieces)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, chunk: &Chunk<'_>) {
        let Some(now) = chunk.usage() else { return };
        // Every count is of all so far: the last one holds, whichever chunk it stands in.
        let before = self.usage.unwrap_or_default();
        self.usage = Some(Usage {
            input_tokens: now.input_tokens.or(before.input_tokens),
            output_tokens: now.output_tokens.or(before.output_tokens),
            cached_input_tokens: now.cached_input_tokens.or(before.cached_input_tokens),
            reasoning_tokens: now.reasoning_tokens.or(before.reasoning_tokens),
        });
    }

    /// What the one choice says; nothing of others, which nobody asked for.
    fn chosen<'c, 'a>(&mut self, choice: &'c Choice<'a>) -> Result<Option<&'c Delta<'a>>, Trouble> {
        if *self.choice.get_or_insert(choice.index()) != choice.index() {
            return Ok(None);
        }
        if let Some(word) = choice.finish_reason() {
            self.reason = Some(match &*word {
                "length" | "max_tokens" | "model_length" => FinishReason::Length,
                "content_filter" => FinishReason::ContentFilter,
                "error" => return Err(Trouble::Failed(ProviderError::silent())),
                // That calls were made, their being there says.
                _ => FinishReason::Stop,
            });
        }
        Ok(choice.said())
    }

    fn speech(&mut self, delta: &Delta<'_>, pieces: &mut Vec<Piece>) -> Result<(), Trouble> {
        if let Some(text) = delta.reasoning() {
            self.note(text.len())?;
            self.calls.speech(Piece::Reasoning(text.into_owned()), pieces)?;
        }
        for text in [delta.content(), delta.refusal()].into_iter().flatten() {
            self.note(text.len())?;
            self.calls.speech(Piece::Text(text.into_owned()), pieces)?;
        }
        Ok(())
    }

    fn fragment(&mut self, fragment: &chunk::Fragment<'_>, pieces: &mut Vec<Piece>) -> Result<(), Trouble> {
        let id = fragment.id();
        match &fragment.function {
            Some(function) => self.function((fragment.index(), id.as_deref()), function, pieces),
            None => {
                let bare = Fragment { index: fragment.index(), id: id.as_deref(), name: None, arguments: "" };
                Ok(self.calls.fragment(&bare, pieces)?)
            }
        }
    }

    fn function(
        &mut self,
        (index, id): (Option<u64>, Option<&str>),
        function: &Function<'_>,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), Trouble> {
        let (name, arguments) = (function.name(), function.arguments().unwrap_or_default());
        self.note(arguments.len())?;
        let fragment = Fragment { index, id, name: name.as_deref(), arguments: &arguments };
        Ok(self.calls.fragment(&fragment, pieces)?)
    }

    fn note(&mut self, bytes: usize) -> Result<(), Trouble> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.bytes_max { Err(Trouble::TooLong) } else { Ok(()) }
    }

    fn finish(&mut self, pieces: &mut Vec<Piece>) -> Result<Finish, Trouble> {
        if self.choice.is_none() {
            return Err(Trouble::Malformed);
        }
        self.calls.finish(pieces)?;
        let reason = match self.reason {
            Some(reason @ (FinishReason::Length | FinishReason::ContentFilter)) => reason,
            _ if self.calls.is_any() => FinishReason::ToolCalls,
            _ => FinishReason::Stop,
        };
        Ok(Finish { reason, usage: self.usage })
    }
}
