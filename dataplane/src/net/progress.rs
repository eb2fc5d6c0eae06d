//! Whether a peer still reads what it is sent, judged by what it acknowledges. No I/O.
//!
//! A socket becomes writable only once a good part of its buffer is free, which a peer that reads a kilobyte a second takes
//! minutes for; its acknowledgements come all the time.

use std::time::{Duration, Instant};

/// Looks at the acknowledgements within one stall time: the verdict is late by one of these steps at the most.
const LOOKS: u32 = 8;

/// The peer acknowledged nothing for the whole time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stalled;

/// The judgement of one write.
#[derive(Debug)]
pub(crate) struct Progress {
    stall: Duration,
    /// Bytes that were on their way when last looked at, and those handed over since.
    queued: usize,
    /// When the peer last took some, as far as was seen.
    taken: Instant,
    looked: Instant,
}

impl Progress {
    /// A write of which nothing more was taken at `now`, with `queued` bytes unacknowledged.
    pub(crate) fn new(stall: Duration, queued: usize, now: Instant) -> Self {
        Self { stall, queued, taken: now, looked: now }
    }

    /// The socket took so many bytes more.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.queued = self.queued.saturating_add(bytes);
    }

    /// When to look again.
    pub(crate) fn poll_timeout(&self) -> Instant {
        (self.looked + self.stall / LOOKS).min(self.taken + self.stall)
    }

    /// Takes note of what is unacknowledged at `now`.
    pub(crate) fn handle(&mut self, queued: usize, now: Instant) -> Result<(), Stalled> {
        self.looked = now;
        if queued < self.queued {
            self.taken = now;
        }
        self.queued = queued;
        if now.saturating_duration_since(self.taken) < self.stall { Ok(()) } else { Err(Stalled) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const STALL: Duration = Duration::from_secs(60);

    #[test]
    fn a_peer_that_takes_nothing_is_given_up_at_the_limit_and_not_before() {
        let start = clock::now();
        let mut progress = Progress::new(STALL, 1_000, start);
        let mut looks = 0;
        while progress.poll_timeout() < start + STALL {
            let now = progress.poll_timeout();
            assert_eq!(progress.handle(1_000, now), Ok(()));
            looks += 1;
        }
        assert!(looks < 2 * LOOKS, "{looks} looks");
        assert_eq!(progress.poll_timeout(), start + STALL);
        assert_eq!(progress.handle(1_000, start + STALL), Err(Stalled));
    }

    #[test]
    fn a_peer_that_takes_a_little_now_and_then_is_never_given_up() {
        let (mut now, mut queued) = (clock::now(), 1_000_000);
        let mut progress = Progress::new(STALL, queued, now);
        for _ in 0..1_000 {
            queued -= 1;
            now = progress.poll_timeout();
            assert_eq!(progress.handle(queued, now), Ok(()));
            for _ in 0..LOOKS - 2 {
                now = progress.poll_timeout();
                assert_eq!(progress.handle(queued, now), Ok(()));
            }
        }
    }

    #[test]
    fn what_we_hand_over_ourselves_hides_no_acknowledgement_and_is_none() {
        let start = clock::now();
        let mut progress = Progress::new(STALL, 1_000, start);
        // 500 more handed over, of 1,500 only 1,400 are left: 100 were taken.
        progress.sent(500);
        assert_eq!(progress.handle(1_400, start + STALL - Duration::from_secs(1)), Ok(()));
        assert_eq!(progress.handle(1_400, start + STALL), Ok(()));
        // 100 more handed over and all of them still there: nothing was taken.
        progress.sent(100);
        assert_eq!(progress.handle(1_500, start + 2 * STALL), Err(Stalled));
    }
}
