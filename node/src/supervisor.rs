//! When to dial, when to wait, when to give up: the one policy of the first dial and of every reconnect (SUP-1).
//!
//! ```text
//!  Idle ──Started──▶ Dialling ───────Ready───────▶ Connected
//!                     ▲    │ Failed                  │ Lost
//!             WaitOver│    ▼                         │
//!                    Waiting ◀───────────────────────┘
//!
//!  Shutdown in any state ──▶ Exited(0)
//!  Failed with a fatal kind, or the last attempt used up ──▶ Exited(1)
//! ```
//!
//! The machine is pure: time and randomness are handed in, and a driver does what a [`Step`] says.

use std::time::{Duration, Instant};

use crate::config::{AttemptLimit, ReconnectPolicy};

/// Jitter is at most this share of the interval, in both directions (SUP-5).
pub const JITTER_PERCENT: u32 = 20;

/// The shortest wait between two dials, before jitter: an interval of 0 means at once, not as fast as the machine can.
pub const WAIT_MIN: Duration = Duration::from_millis(20);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The process has started.
    Started,
    /// The wait of [`Step::Wait`] is over.
    WaitOver,
    /// A dial did not become a ready connection.
    Failed(Failure),
    /// The connection became ready.
    Ready,
    /// A ready connection ended.
    Lost,
    /// Somebody on this machine asked us to stop.
    Shutdown,
}

/// At which step a dial failed; a closed set, also the label of `iop_node_dials_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The name of the Edge cannot be resolved.
    Resolve,
    /// No TCP connection.
    Connect,
    /// The TLS handshake was refused, by either end, or took too long.
    Tls,
    /// The Edge refused the registration, or did not answer it in time.
    Registration,
    /// The configuration that the Edge sent cannot be applied.
    Apply,
    /// The Edge did not acknowledge readiness.
    Readiness,
    /// The connection broke before it was ready.
    Broken,
    /// A fault of this Node's own files or process: retrying cannot help (SUP-2).
    Local,
}

impl Failure {
    /// Every kind, for registering counters.
    pub const ALL: [Self; 8] = [
        Self::Resolve,
        Self::Connect,
        Self::Tls,
        Self::Registration,
        Self::Apply,
        Self::Readiness,
        Self::Broken,
        Self::Local,
    ];

    /// The word for logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Registration => "registration",
            Self::Apply => "apply",
            Self::Readiness => "readiness",
            Self::Broken => "broken",
            Self::Local => "local",
        }
    }

    /// Whether the process ends. Everything that the Edge or the network says is retryable, a refusal of our identity
    /// too: it may be mended there.
    #[must_use]
    pub const fn is_fatal(self) -> bool {
        match self {
            Self::Local => true,
            Self::Resolve
            | Self::Connect
            | Self::Tls
            | Self::Registration
            | Self::Apply
            | Self::Readiness
            | Self::Broken => false,
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Dial now.
    Dial,
    /// Wait, then tell [`Event::WaitOver`].
    Wait(Instant),
    /// Nothing: the connection goes on.
    Stay,
    /// End the process.
    Exit(Exit),
}

/// How the process ends (SUP-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Local shutdown.
    Shutdown,
    /// So many dials in a row did not become ready.
    Exhausted(u32),
    /// The Node's own files.
    Fatal,
}

impl Exit {
    /// The process's exit code: 0 after a local shutdown, else 1.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Shutdown => 0,
            Self::Exhausted(_) | Self::Fatal => 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Dialling,
    Waiting(Instant),
    Connected,
    Exited(Exit),
}

/// The reconnect policy of one Node.
#[derive(Clone, Debug)]
pub struct Supervisor {
    policy: ReconnectPolicy,
    state: State,
    /// Dials since the start or since the last ready connection; `<=` the limit where there is one.
    attempts: u32,
}

impl Supervisor {
    /// A supervisor that waits for [`Event::Started`].
    #[must_use]
    pub const fn new(policy: ReconnectPolicy) -> Self {
        Self { policy, state: State::Idle, attempts: 0 }
    }

    /// Takes one event. `random` is uniform over all of `u32` and decides the jitter of a wait.
    ///
    /// An event that does not fit the state, such as a second loss of one connection, repeats the current step.
    pub fn handle(&mut self, now: Instant, random: u32, event: Event) -> Step {
        match (self.state, event) {
            (State::Exited(exit), _) => Step::Exit(exit),
            (_, Event::Shutdown) => self.exit(Exit::Shutdown),
            (State::Idle, Event::Started) | (State::Waiting(_), Event::WaitOver) => self.dial(),
            (State::Dialling, Event::Failed(failure)) => self.failed(now, random, failure),
            (State::Dialling, Event::Ready) => {
                self.attempts = 0;
                self.state = State::Connected;
                Step::Stay
            }
            (State::Connected, Event::Lost) => self.wait(now, random),
            (State::Waiting(until), _) => Step::Wait(until),
            (State::Dialling, _) => Step::Dial,
            (State::Idle | State::Connected, _) => Step::Stay,
        }
    }

    /// Dials since the start or since the last ready connection.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    fn dial(&mut self) -> Step {
        self.attempts = self.attempts.saturating_add(1);
        self.state = State::Dialling;
        Step::Dial
    }

    fn failed(&mut self, now: Instant, random: u32, failure: Failure) -> Step {
        if failure.is_fatal() {
            return self.exit(Exit::Fatal);
        }
        match self.policy.attempts {
            AttemptLimit::Exactly(limit) if self.attempts >= limit.get() => {
                self.exit(Exit::Exhausted(self.attempts))
            }
            AttemptLimit::Exactly(_) | AttemptLimit::Unlimited => self.wait(now, random),
        }
    }

    fn wait(&mut self, now: Instant, random: u32) -> Step {
        let until = now + jittered(self.policy.interval.max(WAIT_MIN), random);
        self.state = State::Waiting(until);
        Step::Wait(until)
    }

    fn exit(&mut self, exit: Exit) -> Step {
        self.state = State::Exited(exit);
        Step::Exit(exit)
    }
}

/// `interval` moved by at most [`JITTER_PERCENT`] either way: `random` 0 gives the shortest, `u32::MAX` the longest wait.
fn jittered(interval: Duration, random: u32) -> Duration {
    let shortest = interval * (100 - JITTER_PERCENT) / 100;
    let span = interval * (2 * JITTER_PERCENT) / 100;
    shortest + span.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use dataplane::clock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MIDDLE: u32 = u32::MAX / 2;

    fn policy(attempts: u32, interval: Duration) -> ReconnectPolicy {
        let attempts = NonZeroU32::new(attempts).map_or(AttemptLimit::Unlimited, AttemptLimit::Exactly);
        ReconnectPolicy { interval, attempts }
    }

    /// Fails dials until the machine gives up, at most `most` of them; how many there were, and how it ended.
    fn fail_until_exit(machine: &mut Supervisor, most: u32, failure: Failure) -> (u32, Option<Exit>) {
        let mut now = clock::now();
        let mut step = machine.handle(now, MIDDLE, Event::Started);
        let mut dials = 0;
        loop {
            step = match step {
                Step::Dial if dials == most => return (dials, None),
                Step::Dial => {
                    dials += 1;
                    machine.handle(now, MIDDLE, Event::Failed(failure))
                }
                Step::Wait(until) => {
                    now = until;
                    machine.handle(now, MIDDLE, Event::WaitOver)
                }
                Step::Exit(exit) => return (dials, Some(exit)),
                Step::Stay => panic!("nothing is connected"),
            };
        }
    }

    // req: SUP-1, SUP-2
    #[test]
    fn the_first_dial_and_every_reconnect_take_the_same_way() {
        let start = clock::now();
        let mut machine = Supervisor::new(policy(0, 10 * SECOND));
        assert_eq!(machine.handle(start, MIDDLE, Event::Started), Step::Dial);
        let Step::Wait(first) = machine.handle(start, MIDDLE, Event::Failed(Failure::Connect)) else {
            panic!()
        };
        assert_eq!(machine.handle(first, MIDDLE, Event::WaitOver), Step::Dial);
        assert_eq!(machine.handle(first, MIDDLE, Event::Ready), Step::Stay);
        let Step::Wait(second) = machine.handle(first, MIDDLE, Event::Lost) else { panic!() };
        assert_eq!(second - first, first - start);
        // While it waits there is nothing that makes it dial a second time.
        assert_eq!(machine.handle(first, 0, Event::Lost), Step::Wait(second));
        assert_eq!(machine.handle(second, MIDDLE, Event::WaitOver), Step::Dial);
    }

    // req: SUP-3
    #[test]
    fn a_positive_limit_is_exactly_so_many_dials_and_0_is_no_limit() {
        for (limit, interval, expected) in
            [(1, SECOND, 1), (3, SECOND, 3), (10, 10 * SECOND, 10), (3, Duration::ZERO, 3)]
        {
            let mut machine = Supervisor::new(policy(limit, interval));
            let ended = fail_until_exit(&mut machine, 1000, Failure::Connect);
            assert_eq!(ended, (expected, Some(Exit::Exhausted(expected))), "limit {limit}");
        }
        let mut machine = Supervisor::new(policy(0, SECOND));
        assert_eq!(fail_until_exit(&mut machine, 1000, Failure::Connect), (1000, None));
    }

    // req: SUP-2, SUP-4, SUP-5
    #[test]
    fn only_a_fault_of_the_nodes_own_files_ends_it_before_the_attempts_do() {
        for failure in Failure::ALL {
            let mut machine = Supervisor::new(policy(4, SECOND));
            let (dials, exit) = fail_until_exit(&mut machine, 1000, failure);
            let exit = exit.unwrap();
            assert_eq!(exit.code(), 1);
            if failure == Failure::Local {
                assert_eq!((dials, exit), (1, Exit::Fatal));
            } else {
                assert_eq!((dials, exit), (4, Exit::Exhausted(4)), "{failure:?}");
            }
        }
    }

    // req: SUP-4
    #[test]
    fn shutdown_exits_0_from_every_state() {
        let now = clock::now();
        let failed = Event::Failed(Failure::Connect);
        for before in [
            &[][..],
            &[Event::Started],
            &[Event::Started, failed],
            &[Event::Started, Event::Ready],
            &[Event::Started, Event::Ready, Event::Lost],
        ] {
            let mut machine = Supervisor::new(policy(10, SECOND));
            for event in before {
                machine.handle(now, MIDDLE, *event);
            }
            let step = machine.handle(now, MIDDLE, Event::Shutdown);
            assert_eq!(step, Step::Exit(Exit::Shutdown), "{before:?}");
            assert_eq!(machine.handle(now, MIDDLE, Event::WaitOver), Step::Exit(Exit::Shutdown));
        }
        assert_eq!(Exit::Shutdown.code(), 0);
    }

    // req: SUP-5
    #[test]
    fn the_count_restarts_after_a_connection_became_ready() {
        let now = clock::now();
        let mut machine = Supervisor::new(policy(2, SECOND));
        machine.handle(now, MIDDLE, Event::Started);
        machine.handle(now, MIDDLE, Event::Failed(Failure::Registration));
        assert_eq!(machine.handle(now, MIDDLE, Event::WaitOver), Step::Dial);
        assert_eq!(machine.attempts(), 2);
        machine.handle(now, MIDDLE, Event::Ready);
        assert_eq!(machine.attempts(), 0);
        machine.handle(now, MIDDLE, Event::Lost);
        for dial in 1..=2 {
            assert_eq!(machine.handle(now, MIDDLE, Event::WaitOver), Step::Dial);
            let step = machine.handle(now, MIDDLE, Event::Failed(Failure::Connect));
            assert_eq!(step == Step::Exit(Exit::Exhausted(2)), dial == 2, "dial {dial}: {step:?}");
        }
    }

    // req: SUP-5
    #[test]
    fn an_interval_of_0_dials_again_at_once_and_does_not_spin() {
        let now = clock::now();
        for random in [0, MIDDLE, u32::MAX] {
            let mut machine = Supervisor::new(policy(100, Duration::ZERO));
            machine.handle(now, random, Event::Started);
            for event in [Event::Failed(Failure::Connect), Event::Lost] {
                let Step::Wait(until) = machine.handle(now, random, event) else { panic!() };
                let wait = until - now;
                assert!(wait >= WAIT_MIN * 4 / 5 && wait <= WAIT_MIN * 6 / 5, "{event:?}: {wait:?}");
                machine.handle(until, random, Event::WaitOver);
                machine.handle(until, random, Event::Ready);
            }
        }
    }

    // req: SUP-5
    #[test]
    fn waits_spread_over_a_fifth_of_the_interval_either_way_and_no_further() {
        let now = clock::now();
        let mut lengths = Vec::new();
        for random in [0, 1, MIDDLE, u32::MAX - 1, u32::MAX] {
            let mut machine = Supervisor::new(policy(0, 10 * SECOND));
            machine.handle(now, random, Event::Started);
            let Step::Wait(until) = machine.handle(now, random, Event::Failed(Failure::Connect)) else {
                panic!()
            };
            lengths.push(until - now);
        }
        assert!(lengths.is_sorted());
        assert_eq!((lengths[0], lengths[4]), (8 * SECOND, 12 * SECOND));
        assert!(lengths[2].abs_diff(10 * SECOND) < Duration::from_millis(1));
    }
}
