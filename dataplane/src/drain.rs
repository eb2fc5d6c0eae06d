//! Graceful stop as a pure machine: which phase a process is in, and when the next one begins.
//!
//! ```text
//!   Serving ──signal──► Draining ──all done, grace over, or second signal──► Stopped
//! ```

use std::time::{Duration, Instant};

/// Phase of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Takes new work.
    Serving,
    /// Takes no new work; what runs may finish.
    Draining,
    /// Ends what is left.
    Stopped,
}

/// The machine.
#[derive(Debug)]
pub struct Drain {
    grace: Duration,
    phase: Phase,
    deadline: Option<Instant>,
    busy: usize,
}

impl Drain {
    /// Serving; `parts` parts (shards) each report once that they have no work left.
    pub fn new(grace: Duration, parts: usize) -> Self {
        Self { grace, phase: Phase::Serving, deadline: None, busy: parts }
    }

    /// The phase now.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// A termination signal: the first one begins the drain, the second one ends it.
    pub fn handle_signal(&mut self, now: Instant) {
        self.phase = match self.phase {
            Phase::Serving => {
                self.deadline = Some(now + self.grace);
                Phase::Draining
            }
            Phase::Draining | Phase::Stopped => Phase::Stopped,
        };
    }

    /// One part has no work left.
    pub fn handle_idle(&mut self) {
        self.busy = self.busy.saturating_sub(1);
        if self.busy == 0 && self.phase == Phase::Draining {
            self.phase = Phase::Stopped;
        }
    }

    /// When [`Drain::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadline.filter(|_| self.phase == Phase::Draining)
    }

    /// Ends the grace when it is over.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.phase = Phase::Stopped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn it_stops_when_all_parts_are_idle_or_the_grace_is_over_or_on_a_second_signal() {
        let (now, grace) = (clock::now(), Duration::from_secs(30));
        let mut idle = Drain::new(grace, 2);
        idle.handle_signal(now);
        assert_eq!((idle.phase(), idle.poll_timeout()), (Phase::Draining, Some(now + grace)));
        idle.handle_idle();
        assert_eq!(idle.phase(), Phase::Draining);
        idle.handle_idle();
        assert_eq!((idle.phase(), idle.poll_timeout()), (Phase::Stopped, None));

        let mut slow = Drain::new(grace, 1);
        slow.handle_signal(now);
        slow.handle_timeout(now + grace - Duration::from_millis(1));
        assert_eq!(slow.phase(), Phase::Draining);
        slow.handle_timeout(now + grace);
        assert_eq!(slow.phase(), Phase::Stopped);

        let mut hasty = Drain::new(grace, 1);
        hasty.handle_signal(now);
        hasty.handle_signal(now);
        assert_eq!(hasty.phase(), Phase::Stopped);
    }
}
