//! What the rest of a session can tell a run: stop, there is credit, here is a part of the body.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use dataplane::{
    local::{Latch, Queue, Signal},
    relay::ByNumber,
};
use proto::message::{BodyChunk, ErrorKind, StreamNo};

/// Executions of one session at a time: as many as an Edge's configuration can have slots (32,768), and as many again that are
/// being stopped. What reaches it is answered with `busy`.
pub const RUNS_MAX: usize = 65_536;

/// Why a run is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The Edge cancelled it (CAN-1).
    Cancelled,
    /// The connection to the Edge ended (PRE-2).
    SessionLost,
    /// The Edge broke the rules of the run's stream.
    PeerFault(ErrorKind),
}

/// The session's end of one run.
#[derive(Debug, Default)]
pub struct RunControl {
    stop: Cell<Option<Stop>>,
    stopping: Latch,
    /// The session is lost, whatever was said before.
    lost: Signal,
    /// Credit came back.
    pub credit: Signal,
    /// Parts of the request body. At most the stream's receive window of bytes waits here.
    pub chunks: Queue<BodyChunk>,
}

impl RunControl {
    /// Tells the run to stop; the first reason counts.
    pub fn stop(&self, why: Stop) {
        if self.stop.get().is_none() {
            self.stop.set(Some(why));
        }
        self.stopping.close();
        if why == Stop::SessionLost {
            self.lost.set();
        }
    }

    /// Waits until the session is lost. One waiter at a time; may be dropped freely.
    pub async fn lost(&self) {
        self.lost.wait().await;
    }

    /// Waits until somebody said stop. May be dropped freely.
    pub async fn stopped(&self) -> Stop {
        self.stopping.closed().await;
        self.stop.get().unwrap_or(Stop::SessionLost)
    }
}

/// The runs of one session. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct RunTable(Rc<Table>);

#[derive(Debug, Default)]
struct Table {
    runs: RefCell<ByNumber<StreamNo, Rc<RunControl>>>,
    /// The last run has ended.
    idle: Signal,
}

/// A place in the table; its drop frees it.
#[derive(Debug)]
pub struct Entry {
    table: RunTable,
    stream: StreamNo,
}

impl RunTable {
    /// Enters a run; `None` when there are [`RUNS_MAX`] already.
    #[must_use]
    pub fn enter(&self, stream: StreamNo) -> Option<(Entry, Rc<RunControl>)> {
        let mut runs = self.0.runs.borrow_mut();
        if runs.len() >= RUNS_MAX || runs.contains_key(&stream) {
            return None;
        }
        let control = Rc::new(RunControl::default());
        runs.insert(stream, Rc::clone(&control));
        Some((Entry { table: self.clone(), stream }, control))
    }

    /// The run of a stream, if it has not ended.
    #[must_use]
    pub fn find(&self, stream: StreamNo) -> Option<Rc<RunControl>> {
        self.0.runs.borrow().get(&stream).cloned()
    }

    /// Tells every run to stop.
    pub fn stop_all(&self, why: Stop) {
        let runs: Vec<_> = self.0.runs.borrow().values().cloned().collect();
        for run in runs {
            run.stop(why);
        }
    }

    /// Runs that have not ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.runs.borrow().len()
    }

    /// Whether no run is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until no run is there. One waiter at a time; may be dropped freely.
    pub async fn idle(&self) {
        while !self.is_empty() {
            self.0.idle.wait().await;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let table = &self.table.0;
        table.runs.borrow_mut().remove(&self.stream);
        if table.runs.borrow().is_empty() {
            table.idle.set();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    // req: CAN-1
    #[test]
    fn only_the_named_run_is_told_to_stop_and_ended_ones_are_gone() {
        let table = RunTable::default();
        let (first, one) = table.enter(1).unwrap();
        let (_second, two) = table.enter(2).unwrap();
        table.find(2).unwrap().stop(Stop::Cancelled);
        assert_eq!(two.stopped().now_or_never(), Some(Stop::Cancelled));
        assert_eq!(one.stopped().now_or_never(), None);
        drop(first);
        assert!(table.find(1).is_none());
        assert!(table.find(3).is_none());
    }

    // req: PRE-2
    #[test]
    fn a_lost_session_stops_every_run_but_changes_no_earlier_reason() {
        let table = RunTable::default();
        let (_first, one) = table.enter(1).unwrap();
        let (_second, two) = table.enter(2).unwrap();
        one.stop(Stop::Cancelled);
        table.stop_all(Stop::SessionLost);
        assert_eq!(one.stopped().now_or_never(), Some(Stop::Cancelled));
        assert_eq!(two.stopped().now_or_never(), Some(Stop::SessionLost));
        assert!(one.lost().now_or_never().is_some(), "who was stopped before hears of it all the same");
    }

    #[test]
    fn the_table_is_bounded_and_tells_when_the_last_run_has_ended() {
        let table = RunTable::default();
        let entries: Vec<_> = (1..=RUNS_MAX as u64).map(|stream| table.enter(stream).unwrap()).collect();
        assert!(table.enter(RUNS_MAX as u64 + 1).is_none());
        assert!(table.idle().now_or_never().is_none());
        drop(entries);
        assert!(table.idle().now_or_never().is_some());
    }
}
