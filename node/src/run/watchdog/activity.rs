//! When the provider of an execution last made progress (STL-3).
//!
//! Progress comes with every event of a stream, so it stores a time and does nothing else: no timer is touched. Whoever keeps the
//! timer looks here when it fires, and goes on for what is left.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use proto::message::RunEventKind;

/// What a provider can be seen to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The head of its answer came.
    ResponseStart,
    /// Body bytes, or text: how many that are something for the client. Comments of an event stream are not, see
    /// [`comments`](super::comments).
    Content(usize),
    /// Usage before the end.
    Usage,
    /// The end, whatever came with it: a terminal's type outranks its payload.
    Terminal,
}

impl Progress {
    /// What an event of a normalized run is.
    #[must_use]
    pub fn of_event(event: &RunEventKind) -> Self {
        match event {
            RunEventKind::Start => Self::ResponseStart,
            RunEventKind::Delta { text, reasoning } => {
                Self::Content(text.len().saturating_add(reasoning.len()))
            }
            RunEventKind::Usage(_) => Self::Usage,
            RunEventKind::Complete { .. } | RunEventKind::Error(_) | RunEventKind::Cancelled => {
                Self::Terminal
            }
        }
    }

    /// Whether it starts the clock anew.
    #[must_use]
    pub fn counts(self) -> bool {
        match self {
            Self::ResponseStart | Self::Usage => true,
            Self::Content(bytes) => bytes > 0 || planted!(EmptyIsProgress),
            Self::Terminal => false,
        }
    }
}

/// The clock of one execution. It stands still while nothing of the provider may be read, because the Edge takes nothing or
/// has not sent the whole request yet: that is no stall of the provider's.
#[derive(Clone, Debug)]
pub struct Activity {
    last: Cell<Instant>,
    blocked: Cell<Option<Instant>>,
}

impl Activity {
    /// A clock that stands still until [`Activity::start`].
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { last: Cell::new(now), blocked: Cell::new(Some(now)) }
    }

    /// The provider is called now.
    pub fn start(&self, now: Instant) {
        self.last.set(now);
        self.blocked.set(None);
    }

    /// Notes what the provider did.
    pub fn note(&self, now: Instant, progress: Progress) {
        if progress.counts() {
            self.last.set(now);
        }
    }

    /// The provider may not be read from now on.
    pub fn block(&self, now: Instant) {
        if self.blocked.get().is_none() && !planted!(BackPressureCounts) {
            self.blocked.set(Some(now));
        }
    }

    /// It may be read again. The time in between does not count.
    pub fn unblock(&self, now: Instant) {
        let Some(since) = self.blocked.take() else { return };
        if planted!(UnblockIsProgress) {
            return self.last.set(now);
        }
        let last = self.last.get();
        let stood = now.saturating_duration_since(since.max(last));
        self.last.set(last.checked_add(stood).unwrap_or(now));
    }

    /// Whether the clock stands still.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.blocked.get().is_some()
    }

    /// For how long there has been no progress.
    #[must_use]
    pub fn quiet(&self, now: Instant) -> Duration {
        self.blocked.get().unwrap_or(now).saturating_duration_since(self.last.get())
    }
}

#[cfg(test)]
mod tests {
    use dataplane::clock;
    use proto::message::{ErrorKind, ExecutionError, Usage};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    // req: STL-3
    #[test]
    fn only_something_for_the_client_is_progress_and_a_terminal_never_is() {
        let delta = |text: &str, reasoning: &str| {
            Progress::of_event(&RunEventKind::Delta {
                text: text.to_owned(),
                reasoning: reasoning.to_owned(),
            })
        };
        let error = || ExecutionError::new(ErrorKind::Connect, "no");
        let complete =
            RunEventKind::Complete { finish_reason: "stop".to_owned(), usage: Some(Usage::default()) };
        for (progress, counts) in [
            (Progress::of_event(&RunEventKind::Start), true),
            (delta("a", ""), true),
            (delta("", "hm"), true),
            (delta("", ""), false),
            (Progress::of_event(&RunEventKind::Usage(Usage::default())), true),
            (Progress::of_event(&complete), false),
            (Progress::of_event(&RunEventKind::Error(error())), false),
            (Progress::of_event(&RunEventKind::Cancelled), false),
            // Of a tunnel: head and body.
            (Progress::ResponseStart, true),
            (Progress::Content(1), true),
            (Progress::Content(0), false),
        ] {
            assert_eq!(progress.counts(), counts, "{progress:?}");
            let begun = clock::now();
            let activity = Activity::new(begun);
            activity.start(begun);
            activity.note(begun + SECOND, progress);
            let quiet = if counts { SECOND } else { 2 * SECOND };
            assert_eq!(activity.quiet(begun + 2 * SECOND), quiet, "{progress:?}");
        }
    }

    // req: STL-3
    #[test]
    fn the_clock_stands_still_while_the_provider_may_not_be_read() {
        let begun = clock::now();
        let at = |seconds| begun + seconds * SECOND;
        let activity = Activity::new(begun);
        assert_eq!(activity.quiet(at(9)), Duration::ZERO, "the request is not whole");
        activity.start(at(10));
        activity.block(at(12));
        activity.block(at(15));
        assert!(activity.is_blocked());
        assert_eq!(activity.quiet(at(40)), 2 * SECOND);
        activity.unblock(at(40));
        assert_eq!(activity.quiet(at(41)), 3 * SECOND, "what was quiet before goes on counting");
        activity.unblock(at(60));
        assert_eq!(activity.quiet(at(41)), 3 * SECOND);
        activity.note(at(42), Progress::Content(1));
        activity.block(at(42));
        activity.note(at(43), Progress::Content(1));
        activity.unblock(at(44));
        assert_eq!(activity.quiet(at(45)), SECOND, "no more is given back than stood");
    }
}
