//! An answer as a message: events of a stream, or one object (api.md §1.4, §8).
//!
//! Both are the same list of blocks in the order in which the backend said them: pieces of one kind that follow each other make one
//! block, and any other piece ends it. How a stream that fails ends is said where faults are ([`crate::reply`]).

mod arguments;
mod stream;
mod whole;

use std::{collections::BTreeSet, sync::Arc};

use serde::Serialize;

pub use self::{stream::Stream, whole::Whole};
use crate::openai::normalized::answer::{Finish, FinishReason, Piece};

/// How the client wants its answer.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Identity of the answer: `msg_…`.
    pub id: String,
    /// As the client named it.
    pub model: Arc<str>,
    /// In events.
    pub stream: bool,
    /// About how many tokens the request has: what the client is told until the backend has counted.
    pub input_tokens: u64,
}

/// Writes one answer.
#[derive(Debug)]
pub enum Messages {
    /// In events.
    Stream(Stream),
    /// As one object.
    Whole(Whole),
}

impl Messages {
    /// Before the first piece.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        if shape.stream { Self::Stream(Stream::new(shape)) } else { Self::Whole(Whole::new(shape)) }
    }

    /// Appends what the client gets for a piece; nothing where it gets all at the end.
    pub fn piece(&mut self, piece: Piece, out: &mut Vec<u8>) {
        match self {
            Self::Stream(stream) => stream.piece(&piece, out),
            Self::Whole(whole) => whole.piece(piece),
        }
    }

    /// Appends the end of the answer.
    pub fn finish(&mut self, finish: &Finish, out: &mut Vec<u8>) {
        match self {
            Self::Stream(stream) => stream.finish(finish, out),
            Self::Whole(whole) => whole.finish(finish, out),
        }
    }

    /// Appends an event without content; nothing for an answer in one piece, before which nothing can be said.
    pub fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if let Self::Stream(stream) = self {
            stream.keep_alive(out);
        }
    }
}

/// What a backend that did not count is taken to have said.
#[derive(Clone, Copy, Debug, Default)]
struct Said(u64);

impl Said {
    fn note(&mut self, text: &str) {
        self.0 = self.0.saturating_add(text.len() as u64);
    }

    /// Clients need a number; four bytes a token is the usual guess.
    fn tokens(self) -> u64 {
        self.0.div_ceil(4)
    }
}

/// What the client reads of the end. Calls are waited for by whoever made any, whatever word the backend ends with.
fn stop_reason(reason: FinishReason, has_calls: bool) -> &'static str {
    match reason {
        FinishReason::Length => "max_tokens",
        FinishReason::ContentFilter => "refusal",
        FinishReason::Stop | FinishReason::ToolCalls if has_calls => "tool_use",
        FinishReason::Stop | FinishReason::ToolCalls => "end_turn",
    }
}

/// The calls of one answer.
#[derive(Debug)]
struct Calls {
    /// What makes an identity differ from those of other answers.
    suffix: String,
    ids: BTreeSet<String>,
}

impl Calls {
    fn new(message: &str) -> Self {
        Self { suffix: message.trim_start_matches("msg_").to_owned(), ids: BTreeSet::new() }
    }

    fn are_there(&self) -> bool {
        !self.ids.is_empty()
    }

    /// The identity of the next one. Clients put results to their calls by it, so each call has one of its own, whatever a backend
    /// that counts anew with every call says.
    fn next(&mut self, id: &str) -> String {
        let Self { suffix, ids } = self;
        let own = match id {
            "" => format!("toolu_{suffix}_{}", ids.len()),
            id if ids.contains(id) => format!("{id}_{suffix}_{}", ids.len()),
            id => id.to_owned(),
        };
        ids.insert(own.clone());
        own
    }
}

/// Our own values and texts cannot fail to serialize.
fn write<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let _cannot_fail = serde_json::to_writer(out, value);
}

#[cfg(test)]
mod tests;
