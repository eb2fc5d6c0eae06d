//! What an answer's text goes through on its way to the client: the filters that look at it, and how long the beginning of it is
//! held back for them (SEG-2). No I/O, no clock.

mod history;
pub mod whole;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::history::history;
use super::{
    active::Active,
    reading::Channel,
    repeat::{History, RepeatGuard, Repetition},
    schema::{Mismatch, SchemaGate},
};
use crate::config::gate::{Enforcement, FilterKind};

/// Bytes of content that are kept for the repair of an answer that does not keep its schema; of a longer one none is asked for.
const CONTENT_BYTES_MAX: usize = 256 * 1024;

/// What a filter found.
#[derive(Debug)]
pub enum Finding {
    /// The answer goes round in circles.
    Repetition(Repetition),
    /// The answer does not keep its schema.
    Mismatch(Mismatch),
}

impl Finding {
    /// Which filter it was.
    #[must_use]
    pub const fn filter(&self) -> FilterKind {
        match self {
            Self::Repetition(_) => FilterKind::RepeatGuard,
            Self::Mismatch(_) => FilterKind::SchemaGate,
        }
    }
}

/// A piece of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Said<'a> {
    /// What it is a part of.
    pub channel: Channel,
    /// Which of the answers that were asked for at once.
    pub choice: u32,
    /// Of arguments: which call of that answer.
    pub call: u32,
    /// Of arguments: the name of what is called, where it is known.
    pub name: Option<&'a str>,
    /// The text.
    pub text: &'a str,
}

/// The filters of text of one attempt.
#[derive(Debug)]
pub struct Watch {
    repeat: Option<(RepeatGuard, Enforcement)>,
    schema: Option<(SchemaGate, Enforcement)>,
    /// Characters that are held back; 0 = none.
    hold_runes: usize,
    timeout: Duration,
    runes: usize,
    since: Option<Instant>,
    /// What was held back has gone out, and nothing is any more.
    is_open: bool,
    content: String,
    /// Filters that found something which they may only record.
    observed: Vec<FilterKind>,
}

impl Watch {
    /// The filters that are active and have something to look for; `None` where there are none. `history` is of the conversation,
    /// `schema` what the request promises of its answer.
    #[must_use]
    pub fn new(active: &Active, history: Arc<History>, schema: Option<SchemaGate>) -> Option<Self> {
        let repeat = active
            .repeat
            .map(|looks| (RepeatGuard::new(Arc::clone(&history), looks.hold_runes), looks.enforcement));
        let schema = schema.zip(active.schema).map(|(gate, looks)| (gate, looks.enforcement));
        if repeat.is_none() && schema.is_none() {
            return None;
        }
        let looks = [active.repeat.filter(|_| repeat.is_some()), active.schema.filter(|_| schema.is_some())];
        let blocking = || looks.iter().flatten().filter(|looks| looks.blocks());
        let hold_runes = blocking().map(|looks| looks.hold_runes).max().unwrap_or_default();
        Some(Self {
            repeat,
            schema,
            hold_runes,
            timeout: blocking().map(|looks| looks.timeout).max().unwrap_or_default(),
            runes: 0,
            since: None,
            is_open: hold_runes == 0,
            content: String::new(),
            observed: Vec::new(),
        })
    }

    /// Takes the next piece; what stops the answer there.
    pub fn text(&mut self, said: Said<'_>) -> Option<Finding> {
        self.runes = self.runes.saturating_add(said.text.chars().count());
        if self.schema.is_some() && said.channel == Channel::Content && said.choice == 0 {
            let room = CONTENT_BYTES_MAX.saturating_sub(self.content.len());
            if said.text.len() <= room {
                self.content.push_str(said.text);
            }
        }
        if let Some((guard, enforcement)) = &mut self.repeat
            && let Some(found) = guard.push(said.channel, said.text)
        {
            if *enforcement == Enforcement::Blocking {
                return Some(Finding::Repetition(found));
            }
            self.repeat = None;
            self.observed.push(FilterKind::RepeatGuard);
        }
        let (gate, _) = self.schema.as_mut()?;
        let found = match said.channel {
            Channel::Content => gate.push_choice(said.choice, said.text),
            Channel::Arguments => gate.push_arguments(said.choice, said.call, said.name, said.text),
            Channel::Reasoning => None,
        };
        self.mismatch(found)
    }

    /// The answer is over; what keeps it from being told so.
    pub fn end(&mut self) -> Option<Finding> {
        let (gate, _) = self.schema.as_mut()?;
        let found = gate.end().err();
        self.mismatch(found)
    }

    fn mismatch(&mut self, found: Option<Mismatch>) -> Option<Finding> {
        let found = found?;
        let (_, enforcement) = self.schema.as_ref()?;
        if *enforcement == Enforcement::Blocking {
            return Some(Finding::Mismatch(found));
        }
        self.schema = None;
        self.observed.push(FilterKind::SchemaGate);
        None
    }

    /// Whether what has come of the content is held back.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.is_open && self.runes < self.hold_runes
    }

    /// There is content that is held back, since `now` or earlier.
    pub fn held_at(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// When what is held back goes out in any case.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.since.filter(|_| self.holds()).map(|since| since + self.timeout)
    }

    /// What was held back goes out.
    pub fn open(&mut self) {
        self.is_open = true;
    }

    /// What was said of the content, for a repair.
    #[must_use]
    pub fn content(&self) -> &str {
        &self.content
    }

    /// Filters that found something which they may only record; each is told once.
    pub fn take_observed(&mut self) -> Vec<FilterKind> {
        std::mem::take(&mut self.observed)
    }
}

#[cfg(test)]
mod tests;
