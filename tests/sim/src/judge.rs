//! A machine with everything that judges it: the oracle's books, the reference model, the machine's own audit.

use std::sync::Arc;

use control::{
    Machine,
    config::PoolConfig,
    effect::{Effect, Snapshot},
    input::{Input, Moment},
};

use crate::{
    Reference,
    invariants::{Broken, Checked, Oracle},
};

/// How often the checks are made that cost the size of everything.
#[derive(Clone, Copy, Debug)]
pub struct Depth {
    /// `Machine::audit` and a comparison with the snapshot, once in so many steps.
    pub full: u64,
}

impl Depth {
    /// At every step.
    pub const ALWAYS: Self = Self { full: 1 };
    /// Not at all.
    pub const NEVER: Self = Self { full: u64::MAX };
}

/// One machine under judgement.
pub struct Judge {
    /// The machine.
    pub machine: Machine,
    /// The books.
    pub oracle: Oracle,
    reference: Reference,
    /// What the reference model waits for.
    reference_due: Option<Moment>,
    /// What the last step gave.
    pub effects: Vec<Effect>,
    expected: Vec<Effect>,
    depth: Depth,
    /// Steps taken and checked.
    pub steps: u64,
    now: Moment,
}

impl Judge {
    /// A new machine that decides by `config`.
    pub fn new(config: &Arc<PoolConfig>, depth: Depth) -> Self {
        Self {
            machine: Machine::new(Arc::clone(config)),
            oracle: Oracle::new(Arc::clone(config)),
            reference: Reference::new(Arc::clone(config)),
            reference_due: None,
            effects: Vec::new(),
            expected: Vec::new(),
            depth,
            steps: 0,
            now: Moment(0),
        }
    }

    /// Takes one fact, or lets time pass (`None`), and checks everything. The effects are in [`Self::effects`].
    ///
    /// # Errors
    /// The first check that does not hold; the machine must not be used further.
    pub fn step(&mut self, at: Moment, input: Option<&Input>) -> Checked {
        self.steps += 1;
        self.now = self.now.max(at);
        let full = self.steps.is_multiple_of(self.depth.full);
        let unchanging = input.filter(|input| full && self.oracle.is_stale(input));
        let before = unchanging.map(|_| {
            // What is due anyway is no change of the fact's.
            (self.machine.poll_timeout().is_none_or(|due| due > self.now)).then(|| self.snapshot())
        });
        self.effects.clear();
        match input {
            Some(input) => self.machine.handle(at, input.clone()),
            None => self.machine.handle_timeout(at),
        }
        while let Some(effect) = self.machine.poll_effect() {
            self.effects.push(effect);
        }
        // What came of time alone stands first.
        self.expected.clear();
        if self.reference_due.is_some_and(|due| due <= self.now) {
            self.expected.extend(self.reference.handle_timeout(at));
        }
        let of_time = self.expected.len().min(self.effects.len());
        if let Some(input) = input {
            self.expected.extend(self.reference.handle(at, input.clone()));
        }
        self.judge(input, of_time)?;
        if let Some(Some(before)) = before {
            let after = self.snapshot();
            crate::invariants::hold!(
                "I7 stale",
                before == after,
                "{input:?} changed {before:?} to {after:?}"
            );
        }
        if full { self.full() } else { Ok(()) }
    }

    fn judge(&mut self, input: Option<&Input>, of_time: usize) -> Checked {
        let (of_time, of_fact) = self.effects.split_at(of_time);
        if input.is_none() || !of_time.is_empty() || self.oracle.has_due(self.now) {
            self.oracle.step(self.now, None, of_time)?;
        }
        match input {
            Some(Input::Inspect { .. }) | None => {}
            Some(input) => self.oracle.step(self.now, Some(input), of_fact)?,
        }
        self.oracle.settle(self.machine.counters(), self.machine.poll_timeout())?;
        // What a picture shows is compared by `full`; the reference makes none.
        self.effects.retain(|effect| !matches!(effect, Effect::Snapshot { .. }));
        if self.effects != self.expected {
            let differs = self.effects.iter().zip(&self.expected).position(|(ours, theirs)| ours != theirs);
            let at = differs.unwrap_or(self.effects.len().min(self.expected.len()));
            let detail = format!(
                "effect {at} of {input:?} is {:?}, the reference has {:?}",
                self.effects.get(at),
                self.expected.get(at)
            );
            return Err(Broken { check: "reference", detail });
        }
        self.reference_due = self.reference.next_timeout();
        let (ours, theirs) = (self.machine.poll_timeout(), self.reference_due);
        crate::invariants::hold!(
            "reference timeout",
            ours == theirs,
            "next timeout {ours:?}, the reference has {theirs:?}"
        );
        Ok(())
    }

    /// The checks that cost the size of everything.
    ///
    /// # Errors
    /// The first check that does not hold.
    pub fn full(&mut self) -> Checked {
        if let Err(error) = self.machine.audit() {
            return Err(Broken { check: "audit", detail: error.to_string() });
        }
        let snapshot = self.snapshot();
        self.oracle.compare(&snapshot)
    }

    /// When the machine has something to do next.
    pub fn due(&self) -> Option<Moment> {
        self.machine.poll_timeout()
    }

    /// The detailed picture, asked for beside the books: it changes nothing.
    ///
    /// # Panics
    /// The machine gives something else.
    pub fn snapshot(&mut self) -> Snapshot {
        self.machine.handle(self.now, Input::Inspect { token: 77, detail: true });
        match (self.machine.poll_effect(), self.machine.poll_effect()) {
            (Some(Effect::Snapshot { token: 77, snapshot }), None) => snapshot,
            other => panic!("no snapshot alone: {other:?}"),
        }
    }
}
