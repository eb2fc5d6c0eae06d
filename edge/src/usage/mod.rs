//! Tokens that a provider says it counted, seen in passing: nothing here changes or delays a byte of an answer, but for
//! [`strip`], which leaves out the one event that only the Edge asked for (api.md section 1.1).
//!
//! [`watch`] keeps what a count may stand in and looks at it once, at the end; [`events`] and [`json`] read it. Pure.

pub mod events;
pub mod json;
pub mod strip;
pub mod watch;

use proto::message::Usage;

/// What was counted, where it was counted. The input includes what came out of a cache, on every surface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tokens that were read, without those that Messages counts apart.
    pub input: Option<u64>,
    /// Of the input, or beside it on Messages: read from a cache.
    pub cached: Option<u64>,
    /// Beside the input on Messages: written to a cache.
    pub cache_written: Option<u64>,
    /// Tokens that were written.
    pub output: Option<u64>,
    /// Of the output: thinking.
    pub reasoning: Option<u64>,
    /// Whether the cache's tokens stand beside the input's.
    pub apart: bool,
}

impl Counts {
    /// Counts are totals: where a later one says something, it counts alone (cases 69 and 70).
    #[must_use]
    pub fn followed_by(self, later: Self) -> Self {
        Self {
            input: later.input.or(self.input),
            cached: later.cached.or(self.cached),
            cache_written: later.cache_written.or(self.cache_written),
            output: later.output.or(self.output),
            reasoning: later.reasoning.or(self.reasoning),
            apart: later.apart || self.apart,
        }
    }

    /// All tokens that were read.
    #[must_use]
    pub fn input_total(&self) -> Option<u64> {
        let beside = if self.apart { [self.cached, self.cache_written] } else { [None, None] };
        let beside = beside.into_iter().flatten().fold(0, u64::saturating_add);
        self.input.map(|input| input.saturating_add(beside))
    }

    fn is_empty(&self) -> bool {
        self.input.or(self.output).is_none()
    }
}

impl From<Usage> for Counts {
    /// What a normalized run has counted.
    fn from(usage: Usage) -> Self {
        Self {
            input: usage.input_tokens,
            output: usage.output_tokens,
            cached: usage.cached_input_tokens,
            reasoning: usage.reasoning_tokens,
            ..Self::default()
        }
    }
}

/// How much an observation is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The provider counted, and the answer is whole.
    Known,
    /// The answer broke off: what was counted by then, if anything.
    Partial,
    /// The provider says zero of an answer that has something, or that it read nothing (case 71).
    Zero,
    /// The answer is whole, and nothing was counted. That is not zero.
    Unknown,
}

impl State {
    /// The closed set, as labels.
    pub const ALL: [Self; 4] = [Self::Known, Self::Partial, Self::Zero, Self::Unknown];

    /// The label of metrics and logs.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Partial => "partial",
            Self::Zero => "zero",
            Self::Unknown => "unknown",
        }
    }
}

/// What is known of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The counts.
    pub counts: Counts,
    /// What they are worth.
    pub state: State,
}

impl Observed {
    /// Of an answer that is whole or not, and certainly said something or not.
    #[must_use]
    pub fn new(counts: Counts, is_whole: bool, said_something: bool) -> Self {
        let state = match counts {
            _ if !is_whole => State::Partial,
            counts if counts.is_empty() => State::Unknown,
            Counts { output: Some(0), .. } if said_something || counts.input_total() == Some(0) => {
                State::Zero
            }
            counts if counts.output.is_none() => State::Unknown,
            _ => State::Known,
        };
        Self { counts, state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_counted_is_unknown_and_zero_of_something_is_told_apart() {
        let counts = |input, output| Counts { input, output, ..Counts::default() };
        for (counts, is_whole, said, expected) in [
            (counts(Some(5), Some(7)), true, true, State::Known),
            (counts(Some(5), Some(0)), true, false, State::Known),
            (counts(Some(5), Some(0)), true, true, State::Zero),
            (counts(Some(0), Some(0)), true, false, State::Zero),
            (counts(None, None), true, true, State::Unknown),
            (counts(Some(5), None), true, true, State::Unknown),
            (counts(Some(5), Some(7)), false, true, State::Partial),
            (counts(None, None), false, false, State::Partial),
        ] {
            assert_eq!(Observed::new(counts, is_whole, said).state, expected, "{counts:?} {is_whole} {said}");
        }
    }

    #[test]
    fn the_input_has_what_came_from_a_cache_on_every_surface() {
        let chat = Counts { input: Some(10), cached: Some(4), ..Counts::default() };
        assert_eq!(chat.input_total(), Some(10));
        let messages = Counts { cache_written: Some(3), apart: true, ..chat };
        assert_eq!(messages.input_total(), Some(17));
        assert_eq!(Counts { apart: true, ..Counts::default() }.input_total(), None);
    }
}
