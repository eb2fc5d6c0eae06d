//! Output that goes round in circles (SEG-4).

mod fingerprint;

use std::sync::Arc;

/// What a text of a stream is for.
// TEMP until gate::reading has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// The answer.
    Content,
    /// Thoughts before it.
    Reasoning,
    /// Arguments of a call of a tool.
    Arguments,
}

/// Fingerprints of what the assistant said before, taken once at the start of a request.
#[derive(Debug, Default)]
pub struct History {}

impl History {
    /// Of the assistant's texts, in their order.
    #[must_use]
    pub fn of<'a>(_texts: impl Iterator<Item = &'a str>) -> Self {
        Self {}
    }
}

/// Looks for repetitions in one answer.
#[derive(Debug)]
pub struct RepeatGuard {
    _history: Arc<History>,
    _hold_runes: usize,
}

impl RepeatGuard {
    /// For one answer to a request with that history, of which `hold_runes` runes are held back from the client.
    #[must_use]
    pub fn new(history: Arc<History>, hold_runes: usize) -> Self {
        Self { _history: history, _hold_runes: hold_runes }
    }

    /// Takes the next text of a channel; says it when the answer goes round in circles, once.
    pub fn push(&mut self, _channel: Channel, _text: &str) -> Option<Repetition> {
        None
    }
}

/// A part of an answer that goes round in circles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// Length in runes of what is said again and again.
    pub unit_runes: usize,
    /// How often it was said in full, the first time included.
    pub repeats: u32,
    /// Rune of that channel's text where the second copy begins: what is before it is worth keeping.
    pub begins_at_rune: u64,
    /// Runes of that channel's text when it was found.
    pub found_at_rune: u64,
}
