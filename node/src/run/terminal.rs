//! The one terminal of an execution, tunnel or normalized run (TUN-2, RUN-1), whatever ends it.
//!
//! A [`Terminal`] is owned by the execution's task. Whoever drops it without ending it, a panic above all, ends the execution with
//! an `internal` error; so there is exactly one terminal, and no way out that keeps a place at the gate.

use std::{collections::BTreeMap, rc::Rc};

use bytes::Bytes;
use dataplane::relay::LinkHandle;
use prometheus::IntGauge;
use proto::message::{
    ErrorKind, ExecutionError, Header, Message, RunEvent, RunEventKind, StreamNo, TunnelFrame,
    TunnelFrameKind, Usage,
};

use super::control::Entry;
use crate::{
    gate::Permit,
    metrics::{Metrics, RunOutcome},
};

/// What an execution is: it decides what its frames are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// Frames of a provider's own answer.
    Tunnel,
    /// Events of a normalized run.
    Run,
}

impl Execution {
    /// Both, for registering counters.
    pub const ALL: [Self; 2] = [Self::Tunnel, Self::Run];

    /// The word for logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Tunnel => "tunnel",
            Self::Run => "run",
        }
    }

    /// The terminal of an execution that failed. The link numbers frames itself as they leave.
    #[must_use]
    pub fn failure(self, stream: StreamNo, error: ExecutionError) -> Message {
        match self {
            Self::Tunnel => tunnel_frame(stream, TunnelFrameKind::Error(error)),
            Self::Run if error.kind == ErrorKind::Cancelled => {
                run_event(stream, RunEventKind::Cancelled, BTreeMap::new())
            }
            Self::Run => run_event(stream, RunEventKind::Error(error), BTreeMap::new()),
        }
    }

    fn success(stream: StreamNo, end: End) -> Message {
        match end {
            End::Answered => tunnel_frame(stream, TunnelFrameKind::End),
            End::Completed(completion) => {
                let Completion { finish_reason, usage, metadata } = *completion;
                run_event(stream, RunEventKind::Complete { finish_reason, usage }, metadata)
            }
        }
    }
}

/// How an execution ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A tunnel: the provider's answer came to its proper end.
    Answered,
    /// A normalized run.
    Completed(Box<Completion>),
}

/// What COMPLETE says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Why the model stopped.
    pub finish_reason: String,
    /// Final counts.
    pub usage: Option<Usage>,
    /// Under the keys of [`proto::run_input`].
    pub metadata: BTreeMap<String, String>,
}

/// How an execution ended otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// With an error of this kind and these words: no payload, no credential.
    Error(ErrorKind, String),
    /// It stalled (STL-4): the whole terminal.
    Stalled(Box<ExecutionError>),
    /// The session is gone; nobody is there to be told.
    SessionLost,
}

impl Failed {
    /// An error for the Edge.
    pub fn error(kind: ErrorKind, message: impl ToString) -> Self {
        Self::Error(kind, message.to_string())
    }
}

/// The Edge's end of one execution.
#[derive(Debug)]
pub struct Terminal {
    execution: Execution,
    link: LinkHandle,
    stream: StreamNo,
    metrics: Rc<Metrics>,
    held: Option<Held>,
}

/// What a run holds for as long as it, or its provider, is not at its end. Its drop gives everything back.
#[derive(Debug)]
pub struct Held {
    _permit: Permit,
    _entry: Entry,
    _in_flight: InFlight,
}

/// Counts a run as in flight.
#[derive(Debug)]
struct InFlight(IntGauge);

impl InFlight {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Terminal {
    /// Takes over what the run holds. The stream is open on `link`.
    #[must_use]
    pub fn new(
        execution: Execution,
        link: LinkHandle,
        stream: StreamNo,
        metrics: Rc<Metrics>,
        permit: Permit,
        entry: Entry,
    ) -> Self {
        let held =
            Held { _permit: permit, _entry: entry, _in_flight: InFlight::new(&metrics.runs_in_flight) };
        Self { execution, link, stream, metrics, held: Some(held) }
    }

    /// Sends RESPONSE_START.
    ///
    /// # Errors
    /// [`Failed`] when the stream is gone.
    pub fn start(&self, status: u16, headers: Vec<Header>, until_close: bool) -> Result<(), Failed> {
        self.queue(tunnel_frame(self.stream, TunnelFrameKind::ResponseStart { status, headers, until_close }))
    }

    /// Sends body bytes, at most [`Terminal::sendable`] of them.
    ///
    /// # Errors
    /// [`Failed`] when the stream is gone.
    pub fn body(&self, body: Bytes) -> Result<(), Failed> {
        let bytes = body.len();
        self.queue(tunnel_frame(self.stream, TunnelFrameKind::Body(body)))?;
        self.metrics.response_bytes.inc_by(bytes as u64);
        Ok(())
    }

    /// Sends an event of a run that is no terminal; a delta has at most [`Terminal::sendable`] bytes.
    ///
    /// # Errors
    /// [`Failed`] when the stream is gone.
    pub fn event(&self, kind: RunEventKind, metadata: BTreeMap<String, String>) -> Result<(), Failed> {
        let bytes = if let RunEventKind::Delta { text, reasoning } = &kind {
            text.len() + reasoning.len()
        } else {
            0
        };
        self.queue(run_event(self.stream, kind, metadata))?;
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

    /// Ends the execution. The place at the gate is free before the Edge can know of the end.
    pub fn end(mut self, result: Result<End, Failed>) {
        if let Some(held) = self.held.take() {
            self.finish(Some(held), result);
        }
    }

    /// Ends the execution towards the Edge, and gives back what it holds on: its provider has not returned (PRE-3).
    #[must_use]
    pub fn end_holding(mut self, result: Result<End, Failed>) -> Option<Held> {
        let held = self.held.take()?;
        self.finish(None, result);
        Some(held)
    }

    fn queue(&self, message: Message) -> Result<(), Failed> {
        self.link.queue(self.stream, message).map_err(|error| {
            if self.link.is_stopping() {
                Failed::SessionLost
            } else {
                Failed::error(ErrorKind::Internal, error)
            }
        })
    }

    /// Gives `held` back, then tells.
    fn finish(&self, held: Option<Held>, result: Result<End, Failed>) {
        drop(held);
        let outcome = match &result {
            Ok(_) => RunOutcome::Completed,
            Err(Failed::Error(kind, _)) => RunOutcome::Failed(*kind),
            Err(Failed::Stalled(error)) => RunOutcome::Failed(error.kind),
            Err(Failed::SessionLost) => RunOutcome::SessionLost,
        };
        self.metrics.note_run(self.execution, outcome);
        let message = match result {
            Ok(end) => Execution::success(self.stream, end),
            Err(Failed::SessionLost) => return self.link.close(self.stream),
            Err(Failed::Error(kind, message)) => {
                self.execution.failure(self.stream, ExecutionError { kind, message, failure: None })
            }
            Err(Failed::Stalled(error)) => self.execution.failure(self.stream, *error),
        };
        let _gone = self.queue(message);
        self.link.finish(self.stream);
    }
}

fn tunnel_frame(stream: StreamNo, kind: TunnelFrameKind) -> Message {
    Message::TunnelFrame(TunnelFrame { stream, sequence: 0, kind })
}

fn run_event(stream: StreamNo, kind: RunEventKind, metadata: BTreeMap<String, String>) -> Message {
    Message::RunEvent(RunEvent { stream, sequence: 0, kind, run_id: String::new(), metadata })
}

/// Whether what waits to be sent is of no use to the Edge any more.
const fn overtakes_body(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Cancelled | ErrorKind::Deadline | ErrorKind::CreditExceeded)
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let defect = Failed::error(ErrorKind::Internal, "the node's task for this run ended by a defect");
        self.finish(Some(held), Err(defect));
    }
}
