//! When a provider whose request was given up counts as returned, without I/O.
//!
//! ```text
//!   sending half closed ─▶ Waiting ── it closes ───────────────────────▶ Confirmed
//!                             │─────── it goes on sending ─────────────▶ StillSending   the connection is reset
//!                             └─────── CLOSE_GRACE passes in silence ──▶ Unconfirmed    the connection is reset
//! ```
//!
//! Servers take the end of a client's sending half for its leaving: uvicorn, Go's net/http, Node.js, hyper, cpp-httplib. What
//! they close afterwards tells that they are done with the request, which a connection that we close ourselves never would.
//! Those that notice only a write that fails, or know half-closed clients, go on sending: a reset makes their next write fail.

use std::time::{Duration, Instant};

/// How long a provider that was told to stop may take to close its side (STL-4). It is well below the 10 s after which the
/// Edge takes a slot back by itself (POL-11), so that the Edge hears first that the Node's place is free: it would meet a full
/// gate otherwise.
pub const CLOSE_GRACE: Duration = Duration::from_secs(5);
/// What arrives this soon after the provider was told may have been on its way.
pub const IN_FLIGHT_TIME: Duration = Duration::from_millis(500);
/// More than this, beyond what had arrived when the provider was told, was not on its way but is being sent by somebody who does
/// not look: about what a kernel holds for a sender.
pub const IN_FLIGHT_BYTES: usize = 1024 * 1024;

/// How an abort ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Return {
    /// The provider closed its side: it is done with the request.
    Confirmed,
    /// It went on sending and was reset; its next write fails.
    StillSending,
    /// It neither closed nor sent anything; it was reset when the grace was over.
    Unconfirmed,
}

impl Return {
    /// Every way, for registering counters.
    pub const ALL: [Self; 3] = [Self::Confirmed, Self::StillSending, Self::Unconfirmed];

    /// The word for logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::StillSending => "still_sending",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

/// What was heard of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// So many bytes of the answer that nobody wants.
    Bytes(usize),
    /// The end of the connection, by FIN or RST.
    End,
}

/// One abort, from the moment that the provider was told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abort {
    told: Instant,
    /// Bytes that may still come without a meaning.
    in_flight: usize,
}

impl Abort {
    /// `unread`: bytes that had arrived by then.
    pub(super) const fn new(told: Instant, unread: usize) -> Self {
        Self { told, in_flight: IN_FLIGHT_BYTES.saturating_add(unread) }
    }

    /// Takes what was heard; `Some` when that is the end.
    pub(super) fn handle(&mut self, now: Instant, heard: Heard) -> Option<Return> {
        match heard {
            Heard::End => Some(Return::Confirmed),
            Heard::Bytes(bytes) => {
                let is_late = now.saturating_duration_since(self.told) >= IN_FLIGHT_TIME;
                let is_more = bytes > self.in_flight;
                self.in_flight = self.in_flight.saturating_sub(bytes);
                (is_late || is_more).then_some(Return::StillSending)
            }
        }
    }

    /// When [`Return::Unconfirmed`] is all there is to say.
    pub(super) fn deadline(&self) -> Instant {
        self.told + CLOSE_GRACE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const TICK: Duration = Duration::from_millis(1);

    #[test]
    fn the_end_of_the_connection_is_the_providers_return_whenever_it_comes() {
        let told = clock::now();
        for after in [Duration::ZERO, IN_FLIGHT_TIME, CLOSE_GRACE - TICK] {
            assert_eq!(Abort::new(told, 0).handle(told + after, Heard::End), Some(Return::Confirmed));
        }
        let mut abort = Abort::new(told, 0);
        assert_eq!(abort.handle(told + TICK, Heard::Bytes(1)), None);
        assert_eq!(abort.handle(told + 2 * TICK, Heard::End), Some(Return::Confirmed));
    }

    #[test]
    fn what_was_on_its_way_is_let_pass_and_what_is_sent_later_or_without_end_is_not() {
        let told = clock::now();
        let mut slow = Abort::new(told, 0);
        assert_eq!(slow.handle(told + IN_FLIGHT_TIME - TICK, Heard::Bytes(1)), None);
        assert_eq!(slow.handle(told + IN_FLIGHT_TIME, Heard::Bytes(1)), Some(Return::StillSending));
        let mut fast = Abort::new(told, 5_000_000);
        assert_eq!(fast.handle(told, Heard::Bytes(5_000_000)), None, "had arrived for a slow client");
        assert_eq!(fast.handle(told, Heard::Bytes(IN_FLIGHT_BYTES)), None);
        assert_eq!(fast.handle(told + TICK, Heard::Bytes(1)), Some(Return::StillSending));
        let mut vast = Abort::new(told, usize::MAX);
        assert_eq!(vast.handle(told, Heard::Bytes(usize::MAX)), None);
    }

    // req: POL-11
    #[test]
    fn silence_is_waited_for_no_longer_than_the_grace_which_ends_before_the_edges_patience() {
        const EDGE_TAKES_ITS_SLOT_BACK: Duration = Duration::from_secs(10);
        let told = clock::now();
        let mut abort = Abort::new(told, 0);
        assert_eq!(abort.handle(told + TICK, Heard::Bytes(1)), None);
        assert_eq!(abort.deadline(), told + CLOSE_GRACE, "bytes do not extend it");
        assert!(CLOSE_GRACE * 3 / 2 < EDGE_TAKES_ITS_SLOT_BACK);
    }
}
