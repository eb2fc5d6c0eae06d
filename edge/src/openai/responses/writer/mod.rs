//! An answer as a response: typed events of a stream, or one object (api.md §1.2, §8). Pure.

mod items;
mod object;
mod stream;

use std::sync::Arc;

use serde::Serialize;

use super::{Echo, Names};
use crate::{
    openai::normalized::answer::{AnswerError, Finish, FinishReason, Piece},
    reply::Fault,
    surface::Surface,
};
use items::Items;
use object::{Object, State};
pub use stream::Stream;

/// How the client wants its answer.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Identity of the answer: `resp_…`. Those of its items are made of it.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// As the client named it.
    pub model: Arc<str>,
    /// In events.
    pub stream: bool,
    /// What is repeated of the request.
    pub echo: Echo,
    /// What the client calls its tools.
    pub names: Names,
}

/// Writes one answer.
#[derive(Debug)]
pub enum Responses {
    /// In events.
    Stream(Box<Stream>),
    /// As one object.
    Whole(Box<Whole>),
}

impl Responses {
    /// Before the first piece.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        if shape.stream {
            Self::Stream(Box::new(Stream::new(shape)))
        } else {
            Self::Whole(Box::new(Whole::new(shape)))
        }
    }

    /// Appends what the client gets for a piece; nothing where it gets all at the end.
    ///
    /// # Errors
    /// The answer is over [`ANSWER_BYTES_MAX`](crate::openai::normalized::answer::ANSWER_BYTES_MAX) bytes of JSON, all of which its
    /// last event repeats: it can only fail from here on.
    pub fn piece(&mut self, piece: Piece, out: &mut Vec<u8>) -> Result<(), AnswerError> {
        match self {
            Self::Stream(stream) => stream.piece(piece, out),
            Self::Whole(whole) => whole.items.take(piece, &mut ()),
        }
    }

    /// When the answer ended, in seconds since 1970, for `completed_at`; said before [`Responses::finish`], which tells `null` without.
    pub fn completed_at(&mut self, unix_seconds: u64) {
        match self {
            Self::Stream(stream) => stream.object.completed_at = Some(unix_seconds),
            Self::Whole(whole) => whole.object.completed_at = Some(unix_seconds),
        }
    }

    /// Appends the end of the answer.
    pub fn finish(&mut self, finish: &Finish, out: &mut Vec<u8>) {
        match self {
            Self::Stream(stream) => stream.finish(finish, out),
            Self::Whole(whole) => {
                whole.items.close(last_status(finish.reason), &mut ());
                let state = State::Ended(finish);
                whole.object.write(&state, &whole.items, out);
            }
        }
    }

    /// Appends an event without content, which keeps clients waiting that count events only (Codex, for 300 s).
    pub fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if let Self::Stream(stream) = self {
            stream.keep_alive(out);
        }
    }

    /// Appends the end of an answer that failed (API-1). One in one piece is that error alone, and has its status.
    pub fn failed(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        match self {
            Self::Stream(stream) => stream.failed(fault, out),
            Self::Whole(_) => out.extend_from_slice(fault.body(Surface::Responses, "").as_bytes()),
        }
    }
}

/// An answer that is gathered.
#[derive(Debug)]
pub struct Whole {
    object: Object,
    items: Items,
}

impl Whole {
    fn new(shape: Shape) -> Self {
        Self { object: Object::new(&shape), items: Items::new(&shape.id, shape.names) }
    }
}

/// What the item is that was said when the answer ended so.
const fn last_status(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::ToolCalls => items::COMPLETED,
        FinishReason::Length | FinishReason::ContentFilter => items::INCOMPLETE,
    }
}

/// Our own values and texts cannot fail to serialize.
pub(super) fn write<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let _cannot_fail = serde_json::to_writer(out, value);
}

#[cfg(test)]
mod tests;
