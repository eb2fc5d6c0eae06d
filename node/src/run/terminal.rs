//! The one terminal of a run (TUN-2), whatever ends it.
//!
//! A [`Terminal`] is owned by the run's task. Whoever drops it without ending it, a panic above all, ends the run with an
//! `internal` error; so there is exactly one terminal, and no way out that keeps a place at the gate.

use std::rc::Rc;

use bytes::Bytes;
use dataplane::relay::LinkHandle;
use proto::message::{ErrorKind, ExecutionError, Header, Message, StreamNo, TunnelFrame, TunnelFrameKind};

use super::control::Entry;
use crate::{
    gate::Permit,
    metrics::{Metrics, RunOutcome},
};

/// How a tunnel ended without END.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// With an ERROR frame of this kind and these words: no payload, no credential.
    Error(ErrorKind, String),
    /// The session is gone; nobody is there to be told.
    SessionLost,
}

impl Failed {
    /// An error for the Edge.
    pub fn error(kind: ErrorKind, message: impl ToString) -> Self {
        Self::Error(kind, message.to_string())
    }
}

/// The Edge's end of one tunnel.
#[derive(Debug)]
pub struct Terminal {
    link: LinkHandle,
    stream: StreamNo,
    metrics: Rc<Metrics>,
    held: Option<Held>,
}

/// What a run holds for as long as it is not at its end.
#[derive(Debug)]
struct Held {
    _permit: Permit,
    _entry: Entry,
}

impl Terminal {
    /// Takes over what the run holds. The stream is open on `link`.
    #[must_use]
    pub fn new(
        link: LinkHandle,
        stream: StreamNo,
        metrics: Rc<Metrics>,
        permit: Permit,
        entry: Entry,
    ) -> Self {
        metrics.runs_in_flight.inc();
        Self { link, stream, metrics, held: Some(Held { _permit: permit, _entry: entry }) }
    }

    /// Sends RESPONSE_START.
    ///
    /// # Errors
    /// [`Failed`] when the stream is gone.
    pub fn start(&self, status: u16, headers: Vec<Header>, until_close: bool) -> Result<(), Failed> {
        self.queue(TunnelFrameKind::ResponseStart { status, headers, until_close })
    }

    /// Sends body bytes, at most [`Terminal::sendable`] of them.
    ///
    /// # Errors
    /// [`Failed`] when the stream is gone.
    pub fn body(&self, body: Bytes) -> Result<(), Failed> {
        let bytes = body.len();
        self.queue(TunnelFrameKind::Body(body))?;
        self.metrics.response_bytes.inc_by(bytes as u64);
        Ok(())
    }

    /// Body bytes that the Edge takes now (WIR-6).
    #[must_use]
    pub fn sendable(&self) -> usize {
        self.link.sendable(self.stream)
    }

    /// Gives credit back for `bytes` of the request body.
    pub fn release(&self, bytes: usize) {
        self.link.release(self.stream, bytes);
    }

    /// The run is stopped for this reason: what waits to be sent is thrown away where it is of no use any more (STL-9). The end
    /// is still to come.
    pub fn fence(&self, failure: &Failed) {
        if let Failed::Error(kind, _) = failure
            && overtakes_body(*kind)
        {
            self.link.discard(self.stream);
        }
    }

    /// Ends the run. The place at the gate is free before the Edge can know of the end.
    pub fn end(mut self, result: Result<(), Failed>) {
        self.finish(result);
    }

    fn queue(&self, kind: TunnelFrameKind) -> Result<(), Failed> {
        // The mux numbers frames itself as they leave.
        let frame = Message::TunnelFrame(TunnelFrame { stream: self.stream, sequence: 0, kind });
        self.link.queue(self.stream, frame).map_err(|error| {
            if self.link.is_stopping() {
                Failed::SessionLost
            } else {
                Failed::error(ErrorKind::Internal, error)
            }
        })
    }

    fn finish(&mut self, result: Result<(), Failed>) {
        let Some(held) = self.held.take() else { return };
        drop(held);
        self.metrics.runs_in_flight.dec();
        let outcome = match &result {
            Ok(()) => RunOutcome::Completed,
            Err(Failed::Error(kind, _)) => RunOutcome::Failed(*kind),
            Err(Failed::SessionLost) => RunOutcome::SessionLost,
        };
        self.metrics.note_run(outcome);
        let kind = match result {
            Ok(()) => TunnelFrameKind::End,
            Err(Failed::SessionLost) => return self.link.close(self.stream),
            Err(Failed::Error(kind, message)) => {
                TunnelFrameKind::Error(ExecutionError { kind, message, failure: None })
            }
        };
        let _gone = self.queue(kind);
        self.link.finish(self.stream);
    }
}

/// Whether what waits to be sent is of no use to the Edge any more.
const fn overtakes_body(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Cancelled | ErrorKind::Deadline | ErrorKind::CreditExceeded)
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.finish(Err(Failed::error(
            ErrorKind::Internal,
            "the node's task for this run ended by a defect",
        )));
    }
}
