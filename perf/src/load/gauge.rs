//! How a run goes on, to be read while it runs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of a run. They are exact one by one, not together.
#[derive(Debug, Default)]
pub struct Gauge {
    in_flight: AtomicU64,
    in_flight_peak: AtomicU64,
    ok: AtomicU64,
    failed: AtomicU64,
}

impl Gauge {
    /// Requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Relaxed)
    }

    /// The most that were in flight at one moment.
    #[must_use]
    pub fn in_flight_peak(&self) -> u64 {
        self.in_flight_peak.load(Relaxed)
    }

    /// Requests that ended well.
    #[must_use]
    pub fn ok(&self) -> u64 {
        self.ok.load(Relaxed)
    }

    /// Requests that ended otherwise.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Counts one more request in flight, unless there are `limit` of them.
    pub(super) fn enter(&self, limit: u64) -> Option<InFlight<'_>> {
        let more = |count| (count < limit).then_some(count + 1);
        let before = self.in_flight.fetch_update(Relaxed, Relaxed, more).ok()?;
        self.in_flight_peak.fetch_max(before + 1, Relaxed);
        Some(InFlight(self))
    }

    /// Counts a request that has ended.
    pub(super) fn end(&self, well: bool) {
        let counter = if well { &self.ok } else { &self.failed };
        counter.fetch_add(1, Relaxed);
    }
}

/// A request in flight, until it is dropped.
pub(super) struct InFlight<'a>(&'a Gauge);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_in_flight_are_bounded_and_their_peak_is_kept() {
        let gauge = Gauge::default();
        let held = [gauge.enter(2).unwrap(), gauge.enter(2).unwrap()];
        assert!(gauge.enter(2).is_none());
        drop(held);
        assert!(gauge.enter(2).is_some());
        assert_eq!((gauge.in_flight(), gauge.in_flight_peak()), (0, 2));
        gauge.end(true);
        gauge.end(false);
        assert_eq!((gauge.ok(), gauge.failed()), (1, 1));
    }
}
