//! The decisions of one dispatched request, without I/O.
//!
//! ```text
//!             Granted            Frame…            End
//!   Waiting ──────────► Running ────────► Running ─────► Ended
//!      ▲                   │ Requeued, or Fenced before it was sent
//!      └───────────────────┘
//!      └─────────────────────── begin_again (REC-5) ────────── Running, Ended
//! ```
//!
//! Events of a lease that is not the current one are late and change nothing. A failure that control confirms is held
//! back until every frame below its sequence number has passed, so that it overtakes no body byte.

use control::{effect::Grant, effect::Refusal, input::LeaseId};
use proto::message::{Header, RunEvent, RunEventKind};

use super::reading::Read;
use crate::{
    lease::Lease,
    mail::{Frame, RunFailed},
    requests::Event,
};

/// What the driver must do next.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing.
    Nothing,
    /// Send the request out under this grant.
    Dispatch(Box<Grant>),
    /// The input of a native run is there: go on with what was granted.
    Input(Read),
    /// Refuse the client.
    Refused(Refusal),
    /// The provider's status and headers.
    Head { status: u16, headers: Vec<Header>, until_close: bool },
    /// Pass these bytes on.
    Body(Vec<u8>),
    /// What an event of a normalized run says; its completion is the end.
    Run(Box<RunEvent>),
    /// The response is complete.
    Complete,
    /// It is not, and will not be.
    Failed(Cause),
}

/// Why a run failed.
#[derive(Debug)]
pub(super) enum Cause {
    /// As the Node reported, and control has it.
    Execution(Box<RunFailed>),
    /// The Node's generation was fenced after the request was sent (FEN-6).
    NodeLost,
    /// The Node broke the frame order or its credit (TUN-2).
    Violation,
}

/// The machine.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    state: State,
    dispatches: u32,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Waiting,
    Running(Running),
    Ended,
}

#[derive(Debug)]
struct Running {
    lease: Lease,
    next_sequence: u64,
    held_back: Option<Box<RunFailed>>,
}

impl Attempt {
    /// The lease it runs under.
    pub(super) fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Running(running) => Some(&running.lease),
            State::Waiting | State::Ended => None,
        }
    }

    /// Whether it waits for a slot.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting)
    }

    /// How often it was dispatched.
    pub(super) fn dispatches(&self) -> u32 {
        self.dispatches
    }

    /// Gives up: the lease, if there is one, goes back now.
    pub(super) fn abandon(&mut self) {
        self.state = State::Ended;
    }

    /// Goes back to the beginning for another admission, under another number of the request: the lease, if there is one, goes back
    /// now, and what still comes of it is for nobody.
    pub(super) fn begin_again(&mut self) {
        self.state = State::Waiting;
    }

    /// Takes one event. At most one step comes of it; after a body step, ask [`Attempt::poll`].
    pub(super) fn handle(&mut self, event: Event) -> Step {
        match event {
            Event::Granted(grant, lease) => self.granted(grant, lease),
            Event::Refused(reason) => self.refused(reason),
            Event::Requeued(lease) => self.requeued(lease),
            Event::Fenced(lease) => self.fenced(lease),
            Event::Failed(lease, failed) => self.failed(lease, failed),
            // Whether the lease may still be used is its claim's to say: one that was fenced meanwhile comes back unsent.
            Event::Input(lease, read) if self.is_current(lease) => Step::Input(read),
            Event::Input(..) => Step::Nothing,
            Event::Frame(lease, sequence, frame) => self.frame(lease, sequence, frame),
        }
    }

    /// A failure that was held back and is due now.
    pub(super) fn poll(&mut self) -> Option<Step> {
        let State::Running(running) = &mut self.state else { return None };
        if running.held_back.as_ref()?.sequence > running.next_sequence {
            return None;
        }
        let failed = running.held_back.take()?;
        Some(self.end(Step::Failed(Cause::Execution(failed))))
    }

    fn granted(&mut self, grant: Box<Grant>, lease: Lease) -> Step {
        if !self.is_waiting() {
            // Control grants a request once at a time; dropping the lease gives it back.
            return Step::Nothing;
        }
        self.state = State::Running(Running { lease, next_sequence: 0, held_back: None });
        self.dispatches += 1;
        Step::Dispatch(grant)
    }

    fn refused(&mut self, reason: Refusal) -> Step {
        if matches!(self.state, State::Ended) {
            return Step::Nothing;
        }
        self.end(Step::Refused(reason))
    }

    fn requeued(&mut self, lease: LeaseId) -> Step {
        if self.is_current(lease) {
            self.state = State::Waiting;
        }
        Step::Nothing
    }

    /// A fenced run that was never sent is not lost: from now on it cannot be sent, its connection's shard says so to
    /// control, which admits it again and tells us by `Requeued` (FEN-7).
    fn fenced(&mut self, lease: LeaseId) -> Step {
        match &self.state {
            State::Running(running) if running.lease.id() == lease && !running.lease.claim().revoke() => {
                self.end(Step::Failed(Cause::NodeLost))
            }
            _ => Step::Nothing,
        }
    }

    fn failed(&mut self, lease: LeaseId, failed: Box<RunFailed>) -> Step {
        let State::Running(running) = &mut self.state else { return Step::Nothing };
        if running.lease.id() != lease {
            return Step::Nothing;
        }
        running.held_back = Some(failed);
        self.poll().unwrap_or(Step::Nothing)
    }

    fn frame(&mut self, lease: LeaseId, sequence: u64, frame: Frame) -> Step {
        let State::Running(running) = &mut self.state else { return Step::Nothing };
        if running.lease.id() != lease {
            return Step::Nothing;
        }
        running.next_sequence = sequence.saturating_add(1);
        match frame {
            Frame::Start { status, headers, until_close } => Step::Head { status, headers, until_close },
            Frame::Body(bytes) => Step::Body(bytes),
            Frame::End => {
                running.lease.settle();
                self.end(Step::Complete)
            }
            Frame::Run(event) if matches!(event.kind, RunEventKind::Complete { .. }) => {
                self.end(Step::Run(event))
            }
            Frame::Run(event) => Step::Run(event),
            Frame::Violation => self.end(Step::Failed(Cause::Violation)),
        }
    }

    fn is_current(&self, lease: LeaseId) -> bool {
        self.lease().is_some_and(|current| current.id() == lease)
    }

    fn end(&mut self, step: Step) -> Step {
        self.state = State::Ended;
        step
    }
}

#[cfg(test)]
mod tests;
