//! One channel's text: where it began to repeat itself, and for how long.
//!
//! Of the text so far the fingerprints of its last [`RING`] beginnings are kept, from which those of any window of [`WINDOW`] runes
//! follow. A window that was seen `p` runes ago says that the last `WINDOW` runes repeat what is `p` runes before them. As a window is
//! as long as the longest unit, its last place gives the shortest period and no multiple or part of it (Fine and Wilf, "Uniqueness
//! theorems for periodic functions", 1965), so one look is enough, however the unit is built. From then on every rune costs
//! one comparison, until one differs or there are too many.

use super::{
    Channel,
    bound::{UNIT_RUNES_MAX, Unit},
    fence::Fence,
    fingerprint::{Fingerprint, Span},
    recent::{self, Recent},
};

/// Runes of a window: as many as the longest unit has.
const WINDOW: u64 = UNIT_RUNES_MAX as u64;
const WINDOW_SPAN: Span = Span::of(UNIT_RUNES_MAX);

/// Fingerprints that are kept; a power of two. Two windows that are [`WINDOW`] apart, and some to look for their exact beginning.
const RING: u64 = 2048;

const _: () = assert!(2 * WINDOW + 2 * recent::EVERY < RING && recent::REACH >= WINDOW);

/// The text of one channel.
#[derive(Debug)]
pub(super) struct Rounds {
    channel: Channel,
    runes: u64,
    text: Fingerprint,
    /// Of the text's beginnings, each at its length modulo [`RING`]. It grows with the text, so a short one costs little.
    beginnings: Vec<Fingerprint>,
    /// There from the first whole window on.
    recent: Option<Box<Recent>>,
    fence: Fence,
    run: Option<Run>,
}

/// A stretch of the text that repeats what is `unit` runes before.
#[derive(Debug)]
struct Run {
    unit: u64,
    /// Its first rune.
    begins: u64,
    made_of: Unit,
    /// Length at which it is a loop; unknown until `made_of` is whole.
    bound: Option<u64>,
}

/// A run that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loop {
    pub(super) unit: u64,
    pub(super) begins: u64,
}

impl Rounds {
    pub(super) fn new(channel: Channel) -> Self {
        Self {
            channel,
            runes: 0,
            text: Fingerprint::default(),
            beginnings: vec![Fingerprint::default()],
            recent: None,
            fence: Fence::default(),
            run: None,
        }
    }

    /// Runes so far.
    pub(super) const fn runes(&self) -> u64 {
        self.runes
    }

    /// Of all runes so far.
    pub(super) const fn text(&self) -> Fingerprint {
        self.text
    }

    /// The loop that [`Rounds::push`] told of.
    pub(super) fn run(&self) -> Option<Loop> {
        self.run.as_ref().map(|run| Loop { unit: run.unit, begins: run.begins })
    }

    /// Takes the next rune; whether the text is a loop now.
    pub(super) fn push(&mut self, rune: char) -> bool {
        self.fence.push(rune, self.runes);
        self.text = self.text.with(rune);
        self.runes += 1;
        match self.beginnings.get_mut((self.runes % RING) as usize) {
            Some(oldest) => *oldest = self.text,
            None => self.beginnings.push(self.text),
        }
        if self.runes < WINDOW {
            return false;
        }
        let window = self.window(self.runes);
        let goes_on = self.run.as_ref().is_some_and(|run| self.window(self.runes - run.unit) == window);
        if !goes_on {
            let seen = self.recent.as_ref().and_then(|recent| recent.last(window));
            // Not in one assignment: that would copy a whole run for every rune of every text.
            if self.run.is_some() {
                self.run = None;
            }
            if let Some(end) = seen {
                self.run = self.begin(end);
            }
        }
        if self.runes.is_multiple_of(recent::EVERY) {
            self.recent.get_or_insert_with(|| Box::new(Recent::new())).keep(window, self.runes);
        }
        goes_on && self.go_on(rune)
    }

    fn go_on(&mut self, rune: char) -> bool {
        let Some(run) = &mut self.run else { return false };
        if run.bound.is_none() {
            run.made_of.push(rune);
            if run.made_of.runes() == run.unit {
                let first_copy = run.begins - run.unit;
                let in_fence = self.fence.open_since().is_some_and(|opened| opened <= first_copy);
                run.bound = Some(run.made_of.bound(self.channel, in_fence));
            }
        }
        run.bound.is_some_and(|bound| self.runes - run.begins >= bound)
    }

    /// The last window was seen before, with its end at rune `seen`.
    #[cold]
    fn begin(&self, seen: u64) -> Option<Run> {
        let unit = self.runes - seen;
        if unit > WINDOW {
            return None;
        }
        // Windows are kept at intervals, so the run may be longer by up to one of them.
        let mut end = self.runes;
        let earliest = end.saturating_sub(recent::EVERY).max(WINDOW + unit);
        while end > earliest && self.window(end - 1) == self.window(end - 1 - unit) {
            end -= 1;
        }
        Some(Run { unit, begins: end - WINDOW, made_of: Unit::default(), bound: None })
    }

    /// What it holds on the heap.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.beginnings.capacity() * size_of::<Fingerprint>()
            + self.recent.as_ref().map_or(0, |_| size_of::<Recent>())
    }

    /// Of the window that ends at rune `end`, at most [`RING`] - [`WINDOW`] runes ago.
    fn window(&self, end: u64) -> Fingerprint {
        let beginning =
            |runes: u64| self.beginnings.get((runes % RING) as usize).copied().unwrap_or_default();
        beginning(end).since(beginning(end.saturating_sub(WINDOW)), WINDOW_SPAN)
    }
}
