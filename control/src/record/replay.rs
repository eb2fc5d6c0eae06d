//! Running a recording again.

use alloc::{collections::VecDeque, vec::Vec};

use super::{Build, Dump, DumpError, Event, Record, digest};
use crate::{Machine, effect::Effect};

/// A dump that was read: everything needed to run it again.
#[derive(Clone, Debug)]
pub struct Recording {
    /// What made it.
    pub build: Build,
    /// Events before the first one in it.
    pub first_input: u64,
    /// The machine before the first event.
    pub machine: Machine,
    /// The events, the first of which stands in line [`Recording::FIRST_LINE`].
    pub records: Vec<Record>,
}

/// The first event whose effects are others than recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Line of the dump.
    pub line: usize,
    /// The event, with the digest that was recorded.
    pub record: Record,
    /// The digest found.
    pub found: u64,
    /// What came out.
    pub effects: Vec<Effect>,
}

/// What came of running a recording again.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// Events that were run, the differing one included.
    pub events: usize,
    /// Where it went another way; `None` = it did the same.
    pub difference: Option<Difference>,
}

impl Recording {
    /// The line of the dump in which the first event stands.
    pub const FIRST_LINE: usize = 3;

    /// Runs the events until one gives other effects than recorded.
    pub fn replay(self) -> Replayed {
        let mut machine = self.machine;
        let mut events = 0;
        for (line, record) in (Self::FIRST_LINE..).zip(self.records) {
            events += 1;
            let effects: VecDeque<Effect> = step(&mut machine, &record);
            let found = digest::of_effects(effects.iter());
            if found != record.digest {
                let difference = Difference { line, record, found, effects: effects.into() };
                return Replayed { events, difference: Some(difference) };
            }
        }
        Replayed { events, difference: None }
    }
}

/// Tells one recorded event and gives what came out.
fn step(machine: &mut Machine, record: &Record) -> VecDeque<Effect> {
    match &record.event {
        Event::Input(input) => machine.handle(record.at, input.clone()),
        Event::Timeout => machine.handle_timeout(record.at),
    }
    core::iter::from_fn(|| machine.poll_effect()).collect()
}

/// Reads a dump and runs it again: where this build first does something else than the one that was recorded did, if
/// anywhere.
///
/// # Errors
///
/// As [`Dump::read`].
pub fn replay(dump: &str) -> Result<Replayed, DumpError> {
    Ok(Dump::read(dump)?.replay())
}
