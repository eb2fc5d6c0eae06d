//! The runs of one Node connection: which request and lease a stream number belongs to. No I/O.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use control::input::{LeaseId, RequestId};
use dataplane::relay::ByNumber;
use proto::message::StreamNo;

/// How long a cancelled run is remembered for its terminal at the least; looked at when another run is cancelled. Control
/// has returned its slot long before (POL-11), so a Node that never answers costs it nothing but this entry.
const CANCELLED_KEPT: Duration = Duration::from_secs(30);

/// One run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Which lease its terminal settles.
    pub(super) lease: LeaseId,
    /// Whose frames these are.
    pub(super) request: RequestId,
    /// Whether its holder is gone: nothing is passed on any more.
    pub(super) cancelled: bool,
    /// Sequence number of the next frame.
    pub(super) next_sequence: u64,
}

/// The table. Bounded by the link's own bound of open streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    last: StreamNo,
    runs: ByNumber<StreamNo, Run>,
    by_lease: ByNumber<LeaseId, StreamNo>,
    cancelled: VecDeque<(Instant, StreamNo)>,
}

impl Streams {
    /// A number for a new run: strictly rising on this connection (WIR-10).
    pub(super) fn add(&mut self, lease: LeaseId, request: RequestId) -> StreamNo {
        self.last += 1;
        self.runs.insert(self.last, Run { lease, request, cancelled: false, next_sequence: 0 });
        self.by_lease.insert(lease, self.last);
        self.last
    }

    /// The number of a lease's run.
    pub(super) fn of(&self, lease: LeaseId) -> Option<StreamNo> {
        self.by_lease.get(&lease).copied()
    }

    /// The run of a number.
    pub(super) fn get_mut(&mut self, stream: StreamNo) -> Option<&mut Run> {
        self.runs.get_mut(&stream)
    }

    /// Marks a run as cancelled; its number, when it was not so before.
    pub(super) fn cancel(&mut self, lease: LeaseId, now: Instant) -> Option<StreamNo> {
        let stream = self.of(lease)?;
        let run = self.runs.get_mut(&stream)?;
        if std::mem::replace(&mut run.cancelled, true) {
            return None;
        }
        self.cancelled.push_back((now, stream));
        Some(stream)
    }

    /// A cancelled run whose terminal has not come for too long, forgotten by this call.
    pub(super) fn expire(&mut self, now: Instant) -> Option<StreamNo> {
        while let Some((since, stream)) = self.cancelled.front().copied() {
            if self.runs.contains_key(&stream) && now.saturating_duration_since(since) < CANCELLED_KEPT {
                return None;
            }
            self.cancelled.pop_front();
            if self.remove(stream).is_some() {
                return Some(stream);
            }
        }
        None
    }

    /// Forgets a run.
    pub(super) fn remove(&mut self, stream: StreamNo) -> Option<Run> {
        let run = self.runs.remove(&stream)?;
        self.by_lease.remove(&run.lease);
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: WIR-10
    #[test]
    fn numbers_rise_and_a_run_is_cancelled_once() {
        let mut streams = Streams::default();
        let (a, b) = (streams.add(LeaseId(9), RequestId(1)), streams.add(LeaseId(4), RequestId(2)));
        assert_eq!((a, b), (1, 2));
        let now = dataplane::clock::now();
        assert_eq!((streams.cancel(LeaseId(4), now), streams.cancel(LeaseId(4), now)), (Some(b), None));
        assert_eq!(streams.remove(b).map(|r| r.lease), Some(LeaseId(4)));
        assert_eq!((streams.of(LeaseId(4)), streams.cancel(LeaseId(4), now)), (None, None));
        assert_eq!(streams.add(LeaseId(10), RequestId(3)), 3);
    }

    #[test]
    fn a_cancelled_run_is_forgotten_when_its_terminal_does_not_come() {
        let (mut streams, now) = (Streams::default(), dataplane::clock::now());
        let numbers: Vec<_> = (1..=3).map(|lease| streams.add(LeaseId(lease), RequestId(1))).collect();
        for lease in 1..=3 {
            streams.cancel(LeaseId(lease), now);
        }
        streams.remove(numbers[0]);
        assert_eq!(streams.expire(now + CANCELLED_KEPT - Duration::from_millis(1)), None);
        assert_eq!(streams.expire(now + CANCELLED_KEPT), Some(numbers[1]));
        assert_eq!(streams.expire(now + CANCELLED_KEPT), Some(numbers[2]));
        assert_eq!(streams.expire(now + CANCELLED_KEPT), None);
        assert_eq!(streams.of(LeaseId(2)), None);
    }
}
