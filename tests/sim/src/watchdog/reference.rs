//! The watchdog once more, written for obviousness: it keeps everything that happened and decides from all of it each time.

use dataplane::http::client::abort::Return;
use node::run::{
    control::Stop,
    watchdog::{Effects, Fence, Outcome, Seen, Stall},
};
use std::time::Duration;

use super::provider::GRACE;

/// Something that changes how long an execution has been quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The provider is called.
    Called,
    /// It made progress.
    Progress,
    /// It may not be read.
    Blocked,
    /// It may be read again.
    Unblocked,
}

/// One execution.
#[derive(Clone, Debug)]
pub struct Reference {
    timeout: u64,
    deadline: Option<u64>,
    marks: Vec<(u64, Mark)>,
    /// When it was decided how it ends, how, and how long it had been quiet.
    decided: Option<(u64, Why, u64)>,
    returned: Option<Return>,
    probe: Option<node::run::watchdog::Observation>,
    told: bool,
    freed: bool,
    /// A step has seen that the session is lost.
    lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Stopped(Stop),
    Finished,
    Deadline,
    Stall,
}

impl Reference {
    /// Of an execution whose provider is not called yet. Nanoseconds.
    pub fn new(timeout: u64, deadline: Option<u64>) -> Self {
        Self {
            timeout,
            deadline,
            marks: Vec::new(),
            decided: None,
            returned: None,
            probe: None,
            told: false,
            freed: false,
            lost: false,
        }
    }

    /// Writes down what happened.
    pub fn mark(&mut self, at: u64, mark: Mark) {
        if mark == Mark::Progress {
            // What was before has no say any more, but for whether it may be read.
            let last = self.marks.iter().rev().map(|(_, mark)| *mark).find(|mark| *mark != Mark::Progress);
            let blocked = last.filter(|mark| *mark == Mark::Blocked);
            self.marks = [Some(Mark::Called), blocked].into_iter().flatten().map(|mark| (at, mark)).collect();
            return;
        }
        self.marks.push((at, mark));
    }

    /// How long it has been quiet at `now`, by adding up the times in which it could have made progress and did not.
    pub fn quiet(&self, now: u64) -> u64 {
        let (mut sum, mut runs, mut since) = (0, false, 0);
        for &(at, mark) in &self.marks {
            if runs {
                sum += at - since;
            }
            since = at;
            match mark {
                Mark::Called => (sum, runs) = (0, true),
                Mark::Progress => sum = 0,
                Mark::Blocked => runs = false,
                Mark::Unblocked => runs = true,
            }
        }
        if runs { sum + (now - since) } else { sum }
    }

    /// Whether nothing was decided yet.
    pub fn is_watching(&self) -> bool {
        self.decided.is_none()
    }

    /// What a step at `now` must do.
    pub fn step(&mut self, now: u64, seen: Seen) -> Effects {
        let mut effects = Effects::default();
        let mut fresh = false;
        if self.decided.is_none() {
            let quiet = self.quiet(now);
            let late = self.deadline.is_some_and(|deadline| deadline <= now);
            let why = [
                seen.stop.map(Why::Stopped),
                seen.finished.then_some(Why::Finished),
                late.then_some(Why::Deadline),
                (quiet >= self.timeout).then_some(Why::Stall),
            ];
            let Some(why) = why.into_iter().flatten().next() else { return effects };
            self.decided = Some((now, why, quiet));
            effects.fence = why != Why::Finished;
            effects.probe = why == Why::Stall;
            fresh = why == Why::Stall;
        }
        if fresh {
            return effects;
        }
        self.returned = self.returned.or(seen.returned);
        self.probe = self.probe.or(seen.probe);
        let Some((since, why, quiet)) = self.decided else { return effects };
        let over = now >= since + GRACE;
        let ends = match why {
            Why::Stall => over || self.returned.is_some() && self.probe.is_some(),
            _ => self.returned.is_some(),
        };
        let was_told = self.told;
        if ends && !self.told {
            self.told = true;
            effects.terminal = Some(match why {
                Why::Stopped(stop) => Outcome::Stopped(stop),
                Why::Finished => Outcome::Finished,
                Why::Deadline => Outcome::Deadline,
                Why::Stall => Outcome::Stalled(Stall {
                    idle: Duration::from_nanos(quiet),
                    fence: match self.returned {
                        Some(Return::Confirmed) => Fence::Confirmed,
                        _ => Fence::Unconfirmed,
                    },
                    observation: self.probe,
                }),
            });
        }
        // A session that is lost while the terminal is waited for is given back right behind it.
        self.lost = was_told && seen.stop == Some(Stop::SessionLost);
        if self.told && !self.freed && (self.returned.is_some() || self.lost) {
            self.freed = true;
            effects.free = true;
        }
        effects
    }
}
