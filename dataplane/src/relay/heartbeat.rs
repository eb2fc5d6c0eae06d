//! When to ask the peer for a sign of life and when to give up on it (HBT-1, HBT-3).
//!
//! Only the answer to an own ping counts: neither other frames, however many, nor an answer nobody asked for.

use std::time::{Duration, Instant};

/// How often a ping is sent.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);
/// How long after the last answer the connection is given up.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(45);

/// The two constants of the transport. They stand in code, not in a configuration or on the wire; tests hand in shorter
/// ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatTimes {
    /// Between two pings.
    pub interval: Duration,
    /// From the last answer to the end.
    pub timeout: Duration,
}

impl Default for HeartbeatTimes {
    fn default() -> Self {
        Self { interval: HEARTBEAT_INTERVAL, timeout: HEARTBEAT_TIMEOUT }
    }
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// Send a ping.
    Ping,
    /// Close with `heartbeat_timeout`.
    Dead,
}

/// One side's heartbeat.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat {
    times: HeartbeatTimes,
    next_ping: Instant,
    last_answer: Instant,
    unanswered: bool,
}

impl Heartbeat {
    /// Starts at `now`, as if an answer had just come.
    #[must_use]
    pub fn new(times: HeartbeatTimes, now: Instant) -> Self {
        Self { times, next_ping: now + times.interval, last_answer: now, unanswered: false }
    }

    /// Starts anew: the 45 s run from registration at first (HBT-3).
    pub fn restart(&mut self, now: Instant) {
        *self = Self::new(self.times, now);
    }

    /// When [`Self::handle_timeout`] has something to say next.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        self.next_ping.min(self.dead_at())
    }

    /// What is due at `now`. A late caller gets one ping, not one for each missed interval.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Beat> {
        if now >= self.dead_at() {
            return Some(Beat::Dead);
        }
        if now < self.next_ping {
            return None;
        }
        self.next_ping = now + self.times.interval;
        self.unanswered = true;
        Some(Beat::Ping)
    }

    /// An answer came.
    pub fn handle_pong(&mut self, now: Instant) {
        if std::mem::take(&mut self.unanswered) {
            self.last_answer = now;
        }
    }

    fn dead_at(&self) -> Instant {
        self.last_answer + self.times.timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Runs a heartbeat to `until` seconds with answers at the given seconds; gives the seconds of pings and of the end.
    fn check(answers: &[u64], until: u64) -> (Vec<u64>, Option<u64>) {
        let start = clock::now();
        let mut beat = Heartbeat::new(HeartbeatTimes::default(), start);
        let mut pings = Vec::new();
        for second in 0..=until {
            let now = start + s(second);
            if answers.contains(&second) {
                beat.handle_pong(now);
            }
            let due = now >= beat.poll_timeout();
            match beat.handle_timeout(now) {
                Some(Beat::Dead) => return (pings, Some(second)),
                Some(Beat::Ping) => pings.push(second),
                None => assert!(!due, "poll_timeout announced something for second {second}"),
            }
        }
        (pings, None)
    }

    // req: HBT-1, HBT-3
    #[test]
    fn the_connection_ends_45_seconds_after_the_last_answer_and_not_before() {
        let table: [(&[u64], &[u64], u64); 6] = [
            // Silence: the 45 s run from the start.
            (&[], &[30], 45),
            (&[31], &[30, 60], 76),
            (&[44], &[30, 60], 89),
            (&[31, 61], &[30, 60, 90], 106),
            // Nobody asked: an answer before the first ping, or a second one to the same ping, counts for nothing.
            (&[5, 20], &[30], 45),
            (&[31, 40, 50], &[30, 60], 76),
        ];
        for (answers, pings, end) in table {
            assert_eq!(check(answers, 500), (pings.to_vec(), Some(end)), "answers at {answers:?}");
        }
    }

    // req: HBT-1
    #[test]
    fn a_peer_that_answers_is_asked_every_30_seconds_for_ever() {
        let answers: Vec<u64> = (1..=100).map(|n| n * 30 + 1).collect();
        let (pings, end) = check(&answers, 3000);
        assert_eq!(end, None);
        assert_eq!(pings, (1..=100).map(|n| n * 30).collect::<Vec<_>>());
    }

    // req: HBT-3
    #[test]
    fn a_restart_counts_from_registration() {
        let start = clock::now();
        let mut beat = Heartbeat::new(HeartbeatTimes::default(), start);
        beat.restart(start + s(20));
        assert_eq!(beat.handle_timeout(start + s(49)), None);
        assert_eq!(beat.handle_timeout(start + s(50)), Some(Beat::Ping));
        assert_eq!(beat.handle_timeout(start + s(64)), None);
        assert_eq!(beat.handle_timeout(start + s(65)), Some(Beat::Dead));
    }
}
