//! When to ask the peer for a sign of life and when to give up on it (HBT-1, HBT-3).
//!
//! Only the answer to an own ping counts: neither other frames, however many, nor an answer nobody asked for.
//!
//! A process that was itself held up (stopped, starved) blames nobody for it: a peer that it has not asked in time is asked
//! first and has as long for its answer as ever, and what came meanwhile is read before the peer is given up.

use std::time::{Duration, Instant};

/// How often a ping is sent.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);
/// How long after the last answer the connection is given up.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(45);
/// A caller so late was held up: the answer may be there unread. It is given the same again to read it, once.
const HELD_UP: Duration = Duration::from_millis(500);

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
        let times = Self { interval: HEARTBEAT_INTERVAL, timeout: HEARTBEAT_TIMEOUT };
        #[cfg(feature = "test-hooks")]
        let times = crate::test_hooks::heartbeat(times);
        times
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
    /// When the first ping left that has no answer.
    asked: Option<Instant>,
    /// Until when what was held up may be read.
    reprieve: Option<Instant>,
}

impl Heartbeat {
    /// Starts at `now`, as if an answer had just come.
    #[must_use]
    pub fn new(times: HeartbeatTimes, now: Instant) -> Self {
        Self { times, next_ping: now + times.interval, last_answer: now, asked: None, reprieve: None }
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
        let dead_at = self.dead_at();
        if self.asked.is_some() && now >= dead_at {
            if self.reprieve.is_none() && now.saturating_duration_since(dead_at) >= HELD_UP {
                self.reprieve = Some(now + HELD_UP);
                return None;
            }
            return Some(Beat::Dead);
        }
        if now < self.next_ping {
            return None;
        }
        self.next_ping = now + self.times.interval;
        self.asked.get_or_insert(now);
        Some(Beat::Ping)
    }

    /// An answer came.
    pub fn handle_pong(&mut self, now: Instant) {
        if self.asked.take().is_some() {
            self.last_answer = now;
            self.reprieve = None;
        }
    }

    /// 45 s after the last answer; more only where we ourselves were late to ask or to read.
    fn dead_at(&self) -> Instant {
        let to_answer = self.times.timeout.saturating_sub(self.times.interval);
        let by_asking = self.asked.map(|asked| asked + to_answer);
        let on_time = self.last_answer + self.times.timeout;
        [by_asking, self.reprieve].into_iter().flatten().fold(on_time, Instant::max)
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

    // req: HBT-1
    #[test]
    fn who_was_held_up_asks_first_and_gives_the_peer_its_time() {
        let start = clock::now();
        let mut beat = Heartbeat::new(HeartbeatTimes::default(), start);
        // Stopped from second 29 to 70: nobody was asked, so nobody failed to answer.
        assert_eq!(beat.handle_timeout(start + s(70)), Some(Beat::Ping));
        assert_eq!(beat.poll_timeout(), start + s(85), "the 15 s that every ping has");
        assert_eq!(beat.handle_timeout(start + s(84)), None);
        assert_eq!(beat.handle_timeout(start + s(85)), Some(Beat::Dead));
    }

    // req: HBT-1
    #[test]
    fn who_was_held_up_reads_first_what_may_be_the_answer() {
        let start = clock::now();
        let mut beat = Heartbeat::new(HeartbeatTimes::default(), start);
        assert_eq!(beat.handle_timeout(start + s(30)), Some(Beat::Ping));
        // Stopped from second 31 to 80. The answer is in the socket.
        let mut read = beat;
        assert_eq!(read.handle_timeout(start + s(80)), None);
        read.handle_pong(start + s(80));
        assert_eq!(read.handle_timeout(start + s(80)), Some(Beat::Ping));
        assert_eq!(read.poll_timeout(), start + s(110));
        // There is none: one reprieve, and not another.
        assert_eq!(beat.handle_timeout(start + s(80)), None);
        assert_eq!(beat.handle_timeout(start + s(80)), Some(Beat::Ping));
        assert_eq!(beat.poll_timeout(), start + s(80) + HELD_UP);
        assert_eq!(beat.handle_timeout(start + s(200)), Some(Beat::Dead));
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
