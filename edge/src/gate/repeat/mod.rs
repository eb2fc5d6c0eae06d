//! Output that goes round in circles (SEG-4).
//!
//! Two things are looked for, rune by rune, so that it does not matter how a stream is cut:
//!
//! - a text that repeats a unit of 1 to [`UNIT_RUNES_MAX`] runes exactly and without a gap, for longer than anything of its kind does
//!   on purpose ([`SHORT`], [`PHRASE`], [`LONG`], [`MADE`]; the reasons are in `bound`). Something that counts (`1. foo`, `2. foo`)
//!   does not repeat itself, and is never found;
//! - an answer that begins with all of a text that the assistant said at least twice before in the same conversation ([`History`]).
//!
//! Nothing of a text is kept but fingerprints, counts and offsets: of each channel at most 2048 fingerprints of its latest beginnings
//! and 64 of its latest windows, 20 KB for each. A rune costs constant time.

mod bound;
mod fence;
mod fingerprint;
mod history;
mod recent;
mod rounds;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use bound::{LONG, MADE, PHRASE, SHORT, UNIT_PHRASE, UNIT_RUNES_MAX, UNIT_SHORT};
use history::Sign;
pub use history::{HISTORY_BYTES_MAX, HISTORY_RUNES, HISTORY_RUNES_MIN, HISTORY_TEXTS_MAX, History};
use rounds::Rounds;

use super::reading::Channel;

/// Looks at one answer from its first rune on. An attempt that goes on with an answer has its own, with an empty history, as it
/// does not start where the answer does.
#[derive(Debug)]
pub struct RepeatGuard {
    /// What is still to be compared, the nearest last.
    signs: Vec<Sign>,
    content: Rounds,
    reasoning: Rounds,
    arguments: Rounds,
    is_done: bool,
}

impl RepeatGuard {
    /// For an answer to the request with that history, of which at most `hold_runes` runes are held back from the client: a text of
    /// the history that is longer than [`HISTORY_RUNES`] is compared as a whole where it can be held, and by that many otherwise.
    #[must_use]
    pub fn new(history: Arc<History>, hold_runes: usize) -> Self {
        let mut signs = history.signs(hold_runes);
        signs.reverse();
        let rounds = Rounds::new;
        Self {
            signs,
            content: rounds(Channel::Content),
            reasoning: rounds(Channel::Reasoning),
            arguments: rounds(Channel::Arguments),
            is_done: false,
        }
    }

    /// Takes the next text of a channel. The first finding is the only one: afterwards nothing is looked at any more.
    pub fn push(&mut self, channel: Channel, text: &str) -> Option<Repetition> {
        if self.is_done {
            return None;
        }
        let found = match channel {
            Channel::Content => self.push_content(text),
            Channel::Reasoning => push(&mut self.reasoning, text),
            Channel::Arguments => push(&mut self.arguments, text),
        };
        self.is_done = found.is_some();
        found
    }

    fn push_content(&mut self, text: &str) -> Option<Repetition> {
        for rune in text.chars() {
            let is_loop = self.content.push(rune);
            let runes = self.content.runes();
            while let Some(sign) = self.signs.pop_if(|sign| sign.runes == runes) {
                if sign.fingerprint == self.content.text().bits() {
                    return Some(Repetition {
                        unit_runes: usize::try_from(runes).unwrap_or(usize::MAX),
                        repeats: sign.times.saturating_add(1),
                        begins_at_rune: 0,
                        found_at_rune: runes,
                    });
                }
            }
            if is_loop {
                return found(&self.content);
            }
        }
        None
    }
}

fn push(rounds: &mut Rounds, text: &str) -> Option<Repetition> {
    if text.chars().any(|rune| rounds.push(rune)) { found(rounds) } else { None }
}

fn found(rounds: &Rounds) -> Option<Repetition> {
    let run = rounds.run()?;
    let repeated = (rounds.runes() - run.begins) / run.unit.max(1);
    Some(Repetition {
        unit_runes: usize::try_from(run.unit).unwrap_or(usize::MAX),
        repeats: u32::try_from(repeated).unwrap_or(u32::MAX).saturating_add(1),
        begins_at_rune: run.begins,
        found_at_rune: rounds.runes(),
    })
}

/// A part of an answer that goes round in circles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// Length in runes of what is said again and again.
    pub unit_runes: usize,
    /// How often it was said in full, the first time included; for a text of the history, in the conversation.
    pub repeats: u32,
    /// Rune of that channel's text where the second copy begins: what is before it is worth keeping. 0 for a text of the history.
    pub begins_at_rune: u64,
    /// Runes of that channel's text when it was found.
    pub found_at_rune: u64,
}
