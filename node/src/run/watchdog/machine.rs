//! From the claim of an execution to its one terminal (STL-4) and its provider's return (PRE-3).
//!
//! ```text
//!  Watching ─ work over, cancel, session lost, deadline ─▶ Stopping ─ returned ─────────────▶ Over
//!     └─ no progress for the timeout: claim, fence, probe ─▶ Closing ─ returned + judged ─────▶ Over
//!                                                               └───── close grace + judged ──▶ Held ─ returned ─▶ Over
//! ```
//! The terminal leaves on the way into `Over`, or into `Held`: then what the run holds stays taken until the provider really
//! returns, or the session is lost. Close grace and probe run side by side from the claim, and neither extends the other. How
//! long `Stopping` lasts at most is in [`dataplane::http::client::abort`].
//!
//! All that is known at one moment is given in one step, and the machine decides what came first: a cancel, a lost session and a
//! deadline win a tie against the stall (PRE-1).

use std::time::{Duration, Instant};

use dataplane::http::client::abort::{CLOSE_GRACE, Return};

use super::activity::Activity;
use crate::{health::ProviderHealth, run::control::Stop};

/// How long the probe may take (STL-4). One that is not over by then has found nothing.
pub const PROBE_TIME: Duration = Duration::from_secs(5);
/// How soon a clock that stands still is looked at again, at the least.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// What a probe found, and its number on the connection (STL-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Of the exact target.
    pub health: ProviderHealth,
    /// `None` on a session that is not bound.
    pub sequence: Option<u64>,
}

/// All that is known at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The execution was told to stop.
    pub stop: Option<Stop>,
    /// Its work came to its own end, well or badly.
    pub finished: bool,
    /// The provider returned from the request that was dropped, or was never at it. Only a confirmed return closes the
    /// fence; one that was forced by a reset is the last that is heard of the provider all the same.
    pub returned: Option<Return>,
    /// The probe is over.
    pub probe: Option<Observation>,
}

/// Whether the provider is known to be done with the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// It is.
    Confirmed,
    /// Nobody knows.
    Unconfirmed,
}

/// What a stall's terminal tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// How long there had been no progress at the claim.
    pub idle: Duration,
    /// Whether the provider returned within the close grace.
    pub fence: Fence,
    /// What the probe found; `None` when its time was over first.
    pub observation: Option<Observation>,
}

/// How an execution ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As its work says.
    Finished,
    /// It was told to stop.
    Stopped(Stop),
    /// Its hard deadline passed (TUN-8).
    Deadline,
    /// It made no progress for the timeout.
    Stalled(Stall),
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Stop the attempt: drop its work, and pass on nothing more of it (STL-9).
    pub fence: bool,
    /// Ask whether the provider serves the exact target.
    pub probe: bool,
    /// Send the terminal. Comes once.
    pub terminal: Option<Outcome>,
    /// Give back what the run holds. Comes once, with the terminal or after it.
    pub free: bool,
}

/// The watchdog of one execution.
#[derive(Clone, Debug)]
pub struct Watchdog {
    timeout: Duration,
    deadline: Option<Instant>,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Watching,
    Stopping(Outcome),
    Closing(Closing),
    Held,
    Over,
}

#[derive(Clone, Copy, Debug)]
struct Closing {
    idle: Duration,
    /// End of the close grace.
    grace: Instant,
    returned: Option<Return>,
    /// End of the probe's time.
    probe: Instant,
    observation: Option<Observation>,
}

impl Watchdog {
    /// Of an execution that may be without progress for `timeout`, and must be over by `deadline`.
    #[must_use]
    pub const fn new(timeout: Duration, deadline: Option<Instant>) -> Self {
        Self { timeout, deadline, state: State::Watching }
    }

    /// When a step is due though nothing was seen.
    #[must_use]
    pub fn due(&self, now: Instant, activity: &Activity) -> Option<Instant> {
        match self.state {
            State::Watching => {
                let quiet = if planted!(TimerForgets) { Duration::ZERO } else { activity.quiet(now) };
                let mut rest = self.timeout.saturating_sub(quiet);
                if activity.is_blocked() {
                    rest = rest.max(LOOK_AGAIN);
                }
                // A timeout that no clock reaches is none.
                [self.deadline, now.checked_add(rest)].into_iter().flatten().min()
            }
            State::Closing(closing) => {
                let grace = closing.returned.is_none().then_some(closing.grace);
                let probe = closing.observation.is_none().then_some(closing.probe);
                [grace, probe].into_iter().flatten().min()
            }
            State::Stopping(_) | State::Held | State::Over => None,
        }
    }

    /// Whether the work is still to go on.
    #[must_use]
    pub const fn is_watching(&self) -> bool {
        matches!(self.state, State::Watching)
    }

    /// How the execution ends, once it is stopped by anything but a stall.
    #[must_use]
    pub const fn stopping(&self) -> Option<Outcome> {
        match self.state {
            State::Stopping(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Whether everything is given back.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Takes what is known at `now`. Calling it too often changes nothing.
    pub fn step(&mut self, now: Instant, activity: &Activity, seen: Seen) -> Effects {
        match self.state {
            State::Watching => self.watch(now, activity, seen),
            State::Stopping(outcome) => self.stop(outcome, seen),
            State::Closing(closing) => self.close(now, closing, seen),
            State::Held => self.hold(seen),
            State::Over => Effects::default(),
        }
    }

    fn watch(&mut self, now: Instant, activity: &Activity, seen: Seen) -> Effects {
        let short = Duration::from_nanos(u64::from(planted!(TimeoutShort)));
        let is_stalled = activity.quiet(now) + short >= self.timeout;
        if is_stalled && !seen.finished && planted!(StallWinsTie) {
            return self.claim(now, activity);
        }
        let is_late = self.deadline.is_some_and(|deadline| now >= deadline);
        let outcome = match seen.stop {
            Some(stop) => Outcome::Stopped(stop),
            None if seen.finished => Outcome::Finished,
            None if is_late => Outcome::Deadline,
            None if is_stalled => return self.claim(now, activity),
            None => return Effects::default(),
        };
        let fence = outcome != Outcome::Finished;
        self.state = State::Stopping(outcome);
        Effects { fence, ..self.stop(outcome, seen) }
    }

    fn stop(&mut self, outcome: Outcome, seen: Seen) -> Effects {
        if seen.returned.is_none() {
            return Effects::default();
        }
        self.state = State::Over;
        Effects { terminal: Some(outcome), free: true, ..Effects::default() }
    }

    fn claim(&mut self, now: Instant, activity: &Activity) -> Effects {
        self.state = State::Closing(Closing {
            idle: activity.quiet(now),
            grace: now + CLOSE_GRACE,
            returned: None,
            probe: now + PROBE_TIME,
            observation: None,
        });
        Effects { fence: !planted!(ClaimNotFenced), probe: true, ..Effects::default() }
    }

    fn close(&mut self, now: Instant, mut closing: Closing, seen: Seen) -> Effects {
        closing.returned = closing.returned.or(seen.returned);
        closing.observation = closing.observation.or(seen.probe);
        if seen.probe.is_some() && closing.returned.is_none() && planted!(ProbeExtendsGrace) {
            closing.grace = now + CLOSE_GRACE;
        }
        if seen.returned.is_some() && closing.observation.is_none() && planted!(ReturnExtendsProbe) {
            closing.probe = now + PROBE_TIME;
        }
        self.state = State::Closing(closing);
        if seen.probe.is_some_and(|found| found.health == ProviderHealth::Available) && planted!(ProbeRevives)
        {
            self.state = State::Watching;
            return Effects::default();
        }
        if let (Some(stop), true) = (seen.stop, planted!(LateStopWins)) {
            self.state = State::Over;
            return Effects { terminal: Some(Outcome::Stopped(stop)), free: true, ..Effects::default() };
        }
        let is_closed = closing.returned.is_some()
            || now >= closing.grace
            || planted!(GraceSkipped) && closing.observation.is_some();
        let is_judged = closing.observation.is_some() || now >= closing.probe;
        if !is_closed || !is_judged {
            return Effects::default();
        }
        let is_confirmed = match closing.returned {
            Some(returned) => returned == Return::Confirmed || planted!(ResetConfirms),
            None => {
                let health = closing.observation.map(|found| found.health);
                health == Some(ProviderHealth::Available) && planted!(ProbeConfirms)
            }
        };
        let fence = if is_confirmed { Fence::Confirmed } else { Fence::Unconfirmed };
        let stall = Stall { idle: closing.idle, fence, observation: closing.observation };
        let free = closing.returned.is_some() || planted!(HeldGivenBack);
        self.state = if free { State::Over } else { State::Held };
        Effects { terminal: Some(Outcome::Stalled(stall)), free, ..Effects::default() }
    }

    fn hold(&mut self, seen: Seen) -> Effects {
        let is_lost = seen.stop == Some(Stop::SessionLost) && !planted!(HeldBeyondSession);
        if seen.returned.is_none() && !is_lost {
            return Effects::default();
        }
        self.state = State::Over;
        let terminal = planted!(ReturnEndsAgain).then_some(Outcome::Finished);
        Effects { terminal, free: !planted!(ReturnUnseen), ..Effects::default() }
    }
}

#[cfg(test)]
mod tests {
    use dataplane::clock;

    use super::{super::activity::Progress, *};

    const TIMEOUT: Duration = Duration::from_secs(30);
    const TICK: Duration = Duration::from_millis(1);
    const AVAILABLE: Observation = Observation { health: ProviderHealth::Available, sequence: Some(7) };

    /// A run that is watched, on a clock of its own.
    struct Bench {
        begun: Instant,
        activity: Activity,
        watchdog: Watchdog,
    }

    impl Bench {
        fn new(deadline: Option<Duration>) -> Self {
            let begun = clock::now();
            let activity = Activity::new(begun);
            activity.start(begun);
            let watchdog = Watchdog::new(TIMEOUT, deadline.map(|after| begun + after));
            Self { begun, activity, watchdog }
        }

        /// One that was claimed at the timeout.
        fn claimed() -> Self {
            let mut bench = Self::new(None);
            let effects = bench.at(TIMEOUT, Seen::default());
            assert_eq!(effects, Effects { fence: true, probe: true, ..Effects::default() });
            bench
        }

        fn at(&mut self, after: Duration, seen: Seen) -> Effects {
            self.watchdog.step(self.begun + after, &self.activity, seen)
        }

        fn due(&self, after: Duration) -> Option<Duration> {
            let due = self.watchdog.due(self.begun + after, &self.activity)?;
            Some(due.saturating_duration_since(self.begun))
        }

        fn progress(&self, after: Duration) {
            self.activity.note(self.begun + after, Progress::Content(1));
        }
    }

    fn told(stop: Stop) -> Seen {
        Seen { stop: Some(stop), ..Seen::default() }
    }

    fn returned(how: Return) -> Seen {
        Seen { returned: Some(how), ..Seen::default() }
    }

    fn probed(observation: Observation) -> Seen {
        Seen { probe: Some(observation), ..Seen::default() }
    }

    fn stalled(fence: Fence, observation: Option<Observation>, free: bool) -> Effects {
        let stall = Stall { idle: TIMEOUT, fence, observation };
        Effects { terminal: Some(Outcome::Stalled(stall)), free, ..Effects::default() }
    }

    // req: STL-3
    #[test]
    fn the_timer_is_set_once_and_goes_on_for_what_is_left_after_progress() {
        let mut bench = Bench::new(None);
        assert_eq!(bench.due(Duration::ZERO), Some(TIMEOUT));
        bench.progress(TIMEOUT / 2);
        assert_eq!(bench.at(TIMEOUT, Seen::default()), Effects::default());
        assert_eq!(bench.due(TIMEOUT), Some(TIMEOUT * 3 / 2));
        assert_eq!(bench.at(TIMEOUT * 3 / 2 - TICK, Seen::default()), Effects::default());
        assert!(bench.at(TIMEOUT * 3 / 2, Seen::default()).fence);
    }

    #[test]
    fn a_clock_that_stands_still_is_looked_at_now_and_then_and_claims_nothing() {
        let mut bench = Bench::new(None);
        bench.activity.block(bench.begun + TIMEOUT - TICK);
        let later = TIMEOUT * 5;
        assert_eq!(bench.at(later, Seen::default()), Effects::default());
        assert_eq!(bench.due(later), Some(later + LOOK_AGAIN));
        bench.activity.unblock(bench.begun + later);
        assert_eq!(bench.due(later), Some(later + TICK));
        assert!(bench.at(later + TICK, Seen::default()).probe);
    }

    // req: STL-4
    #[test]
    fn grace_and_probe_run_side_by_side_and_the_later_of_them_brings_the_one_terminal() {
        let after = |millis| TIMEOUT + Duration::from_millis(millis);
        let over = after(5_000);
        type Step = (Duration, Seen, Option<Effects>);
        let table: [&[Step]; 7] = [
            // The provider returns, then the probe answers; and the other way round.
            &[
                (after(10), returned(Return::Confirmed), None),
                (after(20), probed(AVAILABLE), Some(stalled(Fence::Confirmed, Some(AVAILABLE), true))),
            ],
            &[
                (after(10), probed(AVAILABLE), None),
                (
                    over - TICK,
                    returned(Return::Confirmed),
                    Some(stalled(Fence::Confirmed, Some(AVAILABLE), true)),
                ),
            ],
            // Both at one moment.
            &[(
                after(10),
                Seen { returned: Some(Return::Confirmed), probe: Some(AVAILABLE), ..Seen::default() },
                Some(stalled(Fence::Confirmed, Some(AVAILABLE), true)),
            )],
            // Neither: 5 s, not 10.
            &[
                (over - TICK, Seen::default(), None),
                (over, Seen::default(), Some(stalled(Fence::Unconfirmed, None, false))),
            ],
            // A probe that hangs holds nothing up for longer.
            &[
                (after(1), returned(Return::Confirmed), None),
                (over, Seen::default(), Some(stalled(Fence::Confirmed, None, true))),
            ],
            // A late probe does not extend the grace, nor a quick one cut it.
            &[
                (after(1), probed(AVAILABLE), None),
                (over - TICK, Seen::default(), None),
                (over, Seen::default(), Some(stalled(Fence::Unconfirmed, Some(AVAILABLE), false))),
            ],
            // One that goes on sending was reset: nothing more is heard of it, and nothing is known.
            &[
                (after(600), returned(Return::StillSending), None),
                (after(700), probed(AVAILABLE), Some(stalled(Fence::Unconfirmed, Some(AVAILABLE), true))),
            ],
        ];
        for (row, steps) in table.into_iter().enumerate() {
            let mut bench = Bench::claimed();
            for (at, seen, expected) in steps {
                assert_eq!(bench.at(*at, *seen), expected.unwrap_or_default(), "row {row} at {at:?}");
            }
            let everything = Seen { finished: true, probe: Some(AVAILABLE), ..told(Stop::Cancelled) };
            assert_eq!(bench.at(over * 2, everything), Effects::default(), "row {row}: one terminal");
        }
    }

    // req: PRE-1
    #[test]
    fn deadline_cancel_and_lost_session_win_the_tie_and_what_comes_after_the_claim_changes_nothing() {
        for (deadline, seen, outcome) in [
            (None, told(Stop::Cancelled), Outcome::Stopped(Stop::Cancelled)),
            (None, told(Stop::SessionLost), Outcome::Stopped(Stop::SessionLost)),
            (Some(TIMEOUT), Seen::default(), Outcome::Deadline),
            (Some(TIMEOUT), told(Stop::Cancelled), Outcome::Stopped(Stop::Cancelled)),
            (Some(TIMEOUT / 2), Seen::default(), Outcome::Deadline),
            (None, Seen { finished: true, ..Seen::default() }, Outcome::Finished),
        ] {
            let mut bench = Bench::new(deadline);
            let fence = outcome != Outcome::Finished;
            assert_eq!(bench.at(TIMEOUT, seen), Effects { fence, ..Effects::default() }, "{outcome:?}");
            assert_eq!(bench.watchdog.stopping(), Some(outcome));
            assert_eq!(bench.due(TIMEOUT), None);
            let end = Effects { terminal: Some(outcome), free: true, ..Effects::default() };
            assert_eq!(bench.at(TIMEOUT * 2, returned(Return::Confirmed)), end);
            assert!(bench.watchdog.is_over());
        }
        let mut bench = Bench::new(Some(TIMEOUT + TICK));
        assert!(bench.at(TIMEOUT, Seen::default()).probe);
        assert_eq!(bench.at(TIMEOUT + TICK, told(Stop::Cancelled)), Effects::default());
        let both = Seen { probe: Some(AVAILABLE), ..returned(Return::Confirmed) };
        assert_eq!(bench.at(TIMEOUT + 2 * TICK, both), stalled(Fence::Confirmed, Some(AVAILABLE), true));
    }

    // req: PRE-3
    #[test]
    fn without_a_return_everything_stays_held_until_it_comes_or_the_session_is_lost() {
        for (seen, frees) in [
            (returned(Return::Confirmed), true),
            (returned(Return::StillSending), true),
            (told(Stop::SessionLost), true),
            (told(Stop::Cancelled), false),
            (probed(AVAILABLE), false),
            (Seen { finished: true, ..Seen::default() }, false),
        ] {
            let mut bench = Bench::claimed();
            assert_eq!(bench.at(TIMEOUT * 2, Seen::default()), stalled(Fence::Unconfirmed, None, false));
            assert_eq!(bench.due(TIMEOUT * 2), None);
            assert_eq!(bench.at(TIMEOUT * 9, Seen::default()), Effects::default());
            let expected = Effects { free: frees, ..Effects::default() };
            assert_eq!(bench.at(TIMEOUT * 9, seen), expected, "{seen:?}");
            assert_eq!(bench.watchdog.is_over(), frees);
            assert_eq!(bench.at(TIMEOUT * 9, returned(Return::Confirmed)).free, !frees, "once");
        }
    }

    // req: STL-8
    #[test]
    fn what_a_probe_finds_changes_neither_the_clock_nor_the_fence() {
        for health in ProviderHealth::ALL {
            let observation = Observation { health, sequence: Some(1) };
            let mut bench = Bench::new(None);
            assert_eq!(bench.at(TIMEOUT - TICK, probed(observation)), Effects::default());
            assert_eq!(bench.due(TIMEOUT - TICK), Some(TIMEOUT), "no progress");
            assert!(bench.at(TIMEOUT, Seen::default()).fence);
            assert_eq!(bench.at(TIMEOUT + TICK, probed(observation)), Effects::default(), "no return");
            let end = bench.at(TIMEOUT + CLOSE_GRACE, Seen::default());
            assert_eq!(end, stalled(Fence::Unconfirmed, Some(observation), false));
        }
    }
}
