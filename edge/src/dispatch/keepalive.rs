//! What keeps a client waiting while its model says nothing (api.md §0.1 rules 3 and 20). No I/O, no clock.

use std::time::{Duration, Instant};

/// One line, without a blank one behind it: some clients take that for an event of no data.
pub(super) const COMMENT: &[u8] = b": ka\n";
/// On Messages, where clients count events only, and know this one.
pub(super) const PING: &[u8] = b"event: ping\ndata: {\"type\": \"ping\"}\n\n";

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepAlive {
    /// A comment, for sockets and proxies.
    Comment,
    /// An event without content, for clients whose own timers count events only.
    Event,
}

/// When a client heard something last. Looked at by a timer that stays armed while the stream flows, so that an event costs it
/// nothing but two stores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    comment_after: Duration,
    /// `None` where there is no such event.
    event_after: Option<Duration>,
    heard: Instant,
    event: Instant,
}

impl Silence {
    /// From `now` on.
    pub(super) fn new(comment_after: Duration, event_after: Duration, now: Instant) -> Self {
        Self { comment_after, event_after: Some(event_after), heard: now, event: now }
    }

    /// As [`Silence::new`], of a stream that somebody else makes the events of.
    pub(super) fn of_tunnel(comment_after: Duration, now: Instant) -> Self {
        Self { comment_after, event_after: None, heard: now, event: now }
    }

    /// The client got an event.
    pub(super) fn broken(&mut self, now: Instant) {
        (self.heard, self.event) = (now, now);
    }

    /// What is due, and taken for said by this.
    pub(super) fn due(&mut self, now: Instant) -> Option<KeepAlive> {
        if self.event_after.is_some_and(|after| now >= self.event + after) {
            self.broken(now);
            return Some(KeepAlive::Event);
        }
        if now >= self.heard + self.comment_after {
            self.heard = now;
            return Some(KeepAlive::Comment);
        }
        None
    }

    /// When something may be due next.
    pub(super) fn next(&self) -> Instant {
        let comment = self.heard + self.comment_after;
        self.event_after.map_or(comment, |after| comment.min(self.event + after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_come_in_silence_and_an_event_when_it_lasts() {
        let start = dataplane::clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut silence = Silence::new(Duration::from_secs(15), Duration::from_secs(60), start);
        let mut said = Vec::new();
        for second in 0..=130 {
            if at(second) >= silence.next()
                && let Some(due) = silence.due(at(second))
            {
                said.push((second, due));
            }
        }
        use KeepAlive::{Comment, Event};
        assert_eq!(
            said,
            [
                (15, Comment),
                (30, Comment),
                (45, Comment),
                (60, Event),
                (75, Comment),
                (90, Comment),
                (105, Comment),
                (120, Event)
            ]
        );
    }

    /// What a client hears of a stream that is passed on, second by second: `b` for bytes of the provider that end an event, `p` for
    /// some that do not.
    fn heard(provider: &[(u64, char)], seconds: u64) -> Vec<u64> {
        let start = dataplane::clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut silence = Silence::of_tunnel(Duration::from_secs(15), start);
        let (mut inside, mut said) = (false, Vec::new());
        for second in 0..=seconds {
            if let Some((_, what)) = provider.iter().find(|(when, _)| *when == second) {
                inside = *what == 'p';
                silence.broken(at(second));
            }
            if at(second) >= silence.next() && silence.due(at(second)).is_some() && !inside {
                said.push(second);
            }
        }
        said
    }

    // Cases 27 and 28 of what users of such gateways report.
    #[test]
    fn a_stream_that_is_passed_on_is_never_silent_for_longer_and_never_touched_inside_an_event() {
        // A long prefill: by the clock alone.
        let silent = heard(&[], 960);
        assert_eq!(silent, (1..=64).map(|count| count * 15).collect::<Vec<_>>());
        assert_eq!(heard(&[(10, 'b'), (20, 'b'), (47, 'b')], 70), [35, 62]);
        // An event that is not over keeps everything out until it is.
        assert_eq!(heard(&[(10, 'p'), (100, 'b')], 131), [115, 130]);
    }

    #[test]
    fn nothing_is_due_while_the_stream_flows() {
        let start = dataplane::clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut silence = Silence::new(Duration::from_secs(15), Duration::from_secs(60), start);
        for second in (0..200).step_by(14) {
            assert_eq!(silence.due(at(second)), None, "{second}");
            silence.broken(at(second));
        }
        assert_eq!(silence.next(), at(196 + 15));
        assert_eq!(silence.due(at(196 + 14)), None);
        assert_eq!(silence.due(at(196 + 15)), Some(KeepAlive::Comment));
    }
}
