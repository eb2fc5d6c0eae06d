//! Whether a client asks for more work than its requests are (security.md section 3, row 16): frames that cost us something and
//! bring it nothing. No I/O; time comes in.
//!
//! What the `h2` crate counts by itself is not here: streams reset before they were taken, CONTINUATION, the size of a decoded head,
//! DATA without data.

use std::time::Instant;

use super::{
    frames::Frame,
    limits::{Http2Limits, Rate},
};

/// WINDOW_UPDATE frames that a client may answer one frame of DATA with: the stream's and the connection's, twice.
const UPDATES_PER_DATA: u64 = 4;

/// What there was too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flood {
    /// PING, SETTINGS, PRIORITY and what nobody knows.
    Control,
    /// RST_STREAM (CVE-2023-44487).
    Resets,
    /// What makes us reset streams (CVE-2025-8671).
    OwnResets,
    /// WINDOW_UPDATE.
    Windows,
}

/// A bucket that fills by one for each frame and leaks.
#[derive(Debug)]
struct Bucket {
    rate: Rate,
    /// In thousandths.
    level: u64,
    at: Instant,
}

impl Bucket {
    fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, level: 0, at: now }
    }

    /// Whether one more goes in.
    fn take(&mut self, now: Instant) -> bool {
        let passed = u64::try_from(now.saturating_duration_since(self.at).as_millis()).unwrap_or(u64::MAX);
        if passed > 0 {
            self.level = self.level.saturating_sub(passed.saturating_mul(self.rate.per_second.into()));
            self.at = now;
        }
        self.level = self.level.saturating_add(1000);
        self.level <= u64::from(self.rate.burst) * 1000
    }

    fn give(&mut self, frames: u64) {
        self.level = self.level.saturating_sub(frames.saturating_mul(1000));
    }
}

/// The judgement of one connection.
#[derive(Debug)]
pub(super) struct Judge {
    control: Bucket,
    resets: Bucket,
    own_resets: Bucket,
    windows: Bucket,
}

impl Judge {
    /// Of a connection that begins at `now`.
    pub(super) fn new(limits: &Http2Limits, now: Instant) -> Self {
        let bucket = |rate| Bucket::new(rate, now);
        Self {
            control: bucket(limits.control),
            resets: bucket(limits.resets),
            own_resets: bucket(limits.own_resets),
            windows: bucket(limits.windows),
        }
    }

    /// Takes note of a frame from the client.
    pub(super) fn received(&mut self, frame: Frame, now: Instant) -> Result<(), Flood> {
        let (bucket, flood) = match frame {
            Frame::Data | Frame::Headers | Frame::GoAway(_) => return Ok(()),
            Frame::Settings | Frame::Ping | Frame::Other => (&mut self.control, Flood::Control),
            Frame::Reset(_) => (&mut self.resets, Flood::Resets),
            Frame::WindowUpdate => (&mut self.windows, Flood::Windows),
        };
        if bucket.take(now) { Ok(()) } else { Err(flood) }
    }

    /// Takes note of a frame of ours.
    pub(super) fn sent(&mut self, frame: Frame, now: Instant) -> Result<(), Flood> {
        match frame {
            Frame::Data => self.windows.give(UPDATES_PER_DATA),
            Frame::Reset(code) if code.is_for_the_client() && !self.own_resets.take(now) => {
                return Err(Flood::OwnResets);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;

    fn limits() -> Http2Limits {
        Http2Limits { windows: Rate { burst: 8, per_second: 1 }, ..Http2Limits::default() }
    }

    #[test]
    fn what_comes_at_the_allowed_rate_is_no_flood_and_what_comes_faster_is() {
        let (start, limits) = (clock::now(), limits());
        let mut judge = Judge::new(&limits, start);
        let mut now = start;
        for _ in 0..10_000 {
            now += Duration::from_millis(10);
            assert_eq!(judge.received(Frame::Ping, now), Ok(()), "100 a second");
        }
        let flood = (0..=limits.control.burst).find_map(|_| judge.received(Frame::Settings, now).err());
        assert_eq!(flood, Some(Flood::Control));
        assert_eq!(judge.received(Frame::Ping, now), Err(Flood::Control));
        let later = now + Duration::from_secs(1);
        assert_eq!(judge.received(Frame::Other, later), Ok(()), "it leaks");
    }

    #[test]
    fn a_client_that_opens_windows_for_what_it_got_is_no_flood() {
        let start = clock::now();
        let mut judge = Judge::new(&limits(), start);
        for _ in 0..10_000 {
            assert_eq!(judge.sent(Frame::Data, start), Ok(()));
            for _ in 0..UPDATES_PER_DATA {
                assert_eq!(judge.received(Frame::WindowUpdate, start), Ok(()));
            }
        }
        let flood = (0..9).find_map(|_| judge.received(Frame::WindowUpdate, start).err());
        assert_eq!(flood, Some(Flood::Windows));
    }

    #[test]
    fn resets_of_either_side_are_counted_but_not_those_for_our_own_failures() {
        let (start, limits) = (clock::now(), limits());
        let mut judge = Judge::new(&limits, start);
        let reset = |code: u32| {
            let mut head = vec![0, 0, 4, 3, 0, 0, 0, 0, 1];
            head.extend(code.to_be_bytes());
            let mut frame = None;
            super::super::frames::Scanner::new(0).push(&head, |told| frame = Some(told));
            frame.unwrap()
        };
        for _ in 0..100_000 {
            // NO_ERROR and INTERNAL_ERROR
            assert_eq!(judge.sent(reset(0), start), Ok(()));
            assert_eq!(judge.sent(reset(2), start), Ok(()));
        }
        let own = (0..=limits.own_resets.burst).find_map(|_| judge.sent(reset(1), start).err());
        assert_eq!(own, Some(Flood::OwnResets));
        let theirs = (0..=limits.resets.burst).find_map(|_| judge.received(reset(8), start).err());
        assert_eq!(theirs, Some(Flood::Resets));
    }
}
