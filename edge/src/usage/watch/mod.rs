//! Finds what a provider counted in the answer that passes by.
//!
//! An event costs next to nothing: the piece that holds it takes the place of the one before, and is looked at when the answer is
//! over. Only on Messages, where the counts come before the last event, the first bytes of each are compared.

use dataplane::http::sse::Splitter;
use memchr::{memchr, memmem};

use super::{Counts, Observed, events::events, json};
use crate::surface::Surface;

/// Bytes of an event, or of a whole answer, that are looked at: its last ones. Behind the counts stand a few members at most.
const TAIL_BYTES: usize = 16 * 1024;

/// What the splitter made of some bytes of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    /// Whether an event had ended before them.
    pub began_at_boundary: bool,
    /// Behind the last event that ended in them.
    pub boundary: Option<usize>,
    /// How many events with data ended in them.
    pub events: u64,
}

impl Split {
    /// Lets `splitter` go on by these bytes.
    pub fn of(splitter: &mut Splitter, bytes: &[u8]) -> Self {
        let (began_at_boundary, events) = (splitter.at_boundary(), splitter.events());
        let boundary = splitter.push(bytes);
        Self { began_at_boundary, boundary, events: splitter.events() - events }
    }
}

/// Follows one answer.
#[derive(Debug)]
pub struct Watch {
    kind: Kind,
    /// Of a stream, the piece that the last whole events stand in; of another answer, its end.
    last: Vec<u8>,
    /// Whether `last` begins inside a data line.
    last_is_cut: bool,
    /// What has come of events that are not over.
    open: Vec<u8>,
    open_is_cut: bool,
    counts: Counts,
    events: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One JSON text.
    Whole,
    /// Events, of which the last one counts.
    Last,
    /// Events, of which those with these names count.
    Named(&'static [u8]),
}

impl Watch {
    /// Of an answer in one piece.
    #[must_use]
    pub fn whole() -> Self {
        Self::new(Kind::Whole)
    }

    /// Of a stream of this surface.
    #[must_use]
    pub fn stream(surface: Surface) -> Self {
        Self::new(match surface {
            Surface::Messages => Kind::Named(b"message_"),
            _ => Kind::Last,
        })
    }

    fn new(kind: Kind) -> Self {
        Self {
            kind,
            last: Vec::new(),
            last_is_cut: false,
            open: Vec::new(),
            open_is_cut: false,
            counts: Counts::default(),
            events: 0,
        }
    }

    /// The next bytes of an answer in one piece.
    pub fn body(&mut self, bytes: Vec<u8>) {
        if bytes.len() >= TAIL_BYTES || self.last.is_empty() {
            self.last = bytes;
            return;
        }
        self.last.extend_from_slice(&bytes);
        if self.last.len() > 4 * TAIL_BYTES {
            cut(&mut self.last);
        }
    }

    /// The next bytes of a stream.
    pub fn stream_bytes(&mut self, bytes: Vec<u8>, split: Split) {
        self.events += split.events;
        if !split.began_at_boundary || split.boundary != Some(bytes.len()) {
            return self.broken(&bytes, split);
        }
        if split.events == 0 {
            return;
        }
        match self.kind {
            Kind::Named(name) if split.events > 1 || may_be(name, &bytes) => self.look(&bytes, false),
            Kind::Named(_) => {}
            Kind::Last | Kind::Whole => self.keep_last(bytes, false),
        }
    }

    /// Bytes that do not begin and end with events.
    fn broken(&mut self, bytes: &[u8], split: Split) {
        let (over, rest) = bytes.split_at(split.boundary.unwrap_or_default());
        if split.boundary.is_some() {
            self.open.extend_from_slice(over);
            let whole = std::mem::take(&mut self.open);
            let is_cut = std::mem::take(&mut self.open_is_cut);
            if split.events > 0 {
                match self.kind {
                    Kind::Named(_) => self.look(&whole, is_cut),
                    Kind::Last | Kind::Whole => self.keep_last(whole, is_cut),
                }
            }
        }
        self.open.extend_from_slice(rest);
        if self.open.len() > 4 * TAIL_BYTES {
            self.open_is_cut = true;
            cut(&mut self.open);
        }
    }

    /// Keeps events in the place of the ones before. `[DONE]` has no brace. An answer may last long: no more of it is held than
    /// is looked at.
    fn keep_last(&mut self, events: Vec<u8>, is_cut: bool) {
        // As nearly every chunk begins.
        let has_json = events.starts_with(b"data: {") || memchr(b'{', &events).is_some();
        if !has_json {
            return;
        }
        (self.last, self.last_is_cut) = (events, is_cut);
        if self.last.len() > TAIL_BYTES {
            self.last_is_cut = true;
            cut(&mut self.last);
        }
    }

    /// Takes the counts of events that say some.
    fn look(&mut self, bytes: &[u8], is_cut: bool) {
        let Kind::Named(name) = self.kind else { return };
        if memmem::find(bytes, name).is_none() {
            return;
        }
        for event in events(bytes, is_cut).iter().filter(|event| memmem::find(&event.data, name).is_some()) {
            if let Some(counts) = json::counts(&event.data) {
                self.counts = self.counts.followed_by(counts);
            }
        }
    }

    /// The answer is over, or broke off.
    #[must_use]
    pub fn end(&self, is_whole: bool) -> Observed {
        let found = match self.kind {
            Kind::Named(_) => Some(self.counts),
            Kind::Whole => json::counts(tail(&self.last)),
            Kind::Last => {
                let said = events(&self.last, self.last_is_cut);
                said.iter().rev().find_map(|event| json::counts(&event.data))
            }
        };
        // A role, an end and the counts are no content yet, and neither are the four events of an empty message.
        Observed::new(found.unwrap_or_default(), is_whole, self.events > 4)
    }
}

/// Whether a lone event has this name. One that does not begin by its name is looked at.
fn may_be(name: &[u8], event: &[u8]) -> bool {
    match event.strip_prefix(b"event:") {
        Some(rest) => rest.strip_prefix(b" ").unwrap_or(rest).starts_with(name),
        None => true,
    }
}

fn tail(bytes: &[u8]) -> &[u8] {
    bytes.get(bytes.len().saturating_sub(TAIL_BYTES)..).unwrap_or_default()
}

/// Leaves the tail alone, in memory of its size.
fn cut(bytes: &mut Vec<u8>) {
    *bytes = tail(bytes).to_vec();
}

#[cfg(test)]
mod tests;
