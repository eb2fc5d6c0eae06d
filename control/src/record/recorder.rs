//! A machine that remembers.

use alloc::{sync::Arc, vec::Vec};

use serde::{Deserialize, Serialize};

use super::{Dump, digest};
use crate::{
    Counters, Machine,
    effect::Effect,
    input::{Input, Moment},
    limits::{RECORDED_BYTES_MAX, RECORDED_MAX},
};

/// What a dump says of the program that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Version of the program.
    pub version: Arc<str>,
    /// Commit it was built from, or what is known instead.
    pub commit: Arc<str>,
}

/// What a machine was told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// [`Machine::handle`].
    Input(Input),
    /// [`Machine::handle_timeout`].
    Timeout,
}

/// One event and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The time handed in.
    pub at: Moment,
    /// What was told.
    pub event: Event,
    /// Of the effects that came out, in their order; 0 = there were none.
    pub digest: u64,
}

/// A [`Machine`] with the same contract that can say how it came to where it is.
///
/// It keeps at least the last [`RECORDED_MAX`] events, once there were that many, and the machine as it was before them.
/// Fewer when their texts together reach [`RECORDED_BYTES_MAX`]: memory is bounded whatever a peer sends.
#[derive(Debug)]
pub struct Recorder {
    machine: Machine,
    build: Build,
    /// The machine before `older`, and how many events it had seen.
    start: (Arc<Machine>, u64),
    older: Arc<Vec<Record>>,
    /// The machine between `older` and `newer`.
    middle: (Arc<Machine>, u64),
    newer: Vec<Record>,
    /// Bytes of text in `newer`.
    text: usize,
}

impl Recorder {
    /// Records `machine` from now on. Its undelivered effects are its driver's.
    pub fn new(machine: Machine, build: Build) -> Self {
        let checkpoint = Arc::new(machine.checkpoint());
        Self {
            machine,
            build,
            start: (Arc::clone(&checkpoint), 0),
            older: Arc::new(Vec::new()),
            middle: (checkpoint, 0),
            newer: Vec::with_capacity(RECORDED_MAX),
            text: 0,
        }
    }

    /// [`Machine::handle`], recorded.
    pub fn handle(&mut self, now: Moment, input: Input) {
        self.make_room();
        self.text += input.text_bytes();
        let event = Event::Input(input.clone());
        let before = self.machine.effects().len();
        self.machine.handle(now, input);
        self.note(now, event, before);
    }

    /// [`Machine::handle_timeout`], recorded.
    pub fn handle_timeout(&mut self, now: Moment) {
        self.make_room();
        let before = self.machine.effects().len();
        self.machine.handle_timeout(now);
        self.note(now, Event::Timeout, before);
    }

    /// [`Machine::poll_effect`]
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.machine.poll_effect()
    }

    /// [`Machine::poll_timeout`]
    pub fn poll_timeout(&self) -> Option<Moment> {
        self.machine.poll_timeout()
    }

    /// [`Machine::counters`]
    pub fn counters(&self) -> &Counters {
        self.machine.counters()
    }

    /// The machine as it is now.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What is remembered. Costs a copy of at most [`RECORDED_MAX`] events, no text and no machine among it; what follows,
    /// the text, can be made on any thread.
    pub fn dump(&self) -> Dump {
        let (checkpoint, first_input) = self.start.clone();
        let build = self.build.clone();
        Dump::new(build, first_input, checkpoint, Arc::clone(&self.older), self.newer.clone())
    }

    fn note(&mut self, at: Moment, event: Event, before: usize) {
        let digest = digest::of_effects(self.machine.effects().range(before..));
        self.newer.push(Record { at, event, digest });
    }

    /// A full segment becomes the older one, and its checkpoint the start of all.
    fn make_room(&mut self) {
        if self.newer.len() < RECORDED_MAX && self.text < RECORDED_BYTES_MAX {
            return;
        }
        let seen = self.middle.1 + self.newer.len() as u64;
        let full = core::mem::replace(&mut self.newer, Vec::with_capacity(RECORDED_MAX));
        self.older = Arc::new(full);
        let checkpoint = (Arc::new(self.machine.checkpoint()), seen);
        self.start = core::mem::replace(&mut self.middle, checkpoint);
        self.text = 0;
    }
}
