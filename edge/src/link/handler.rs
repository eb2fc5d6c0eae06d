//! What arrives on a Node's connection, passed to whom it concerns.

use std::rc::Rc;

use control::input::{CommandId, Input, LeaseId};
use dataplane::relay::{CloseReason, Handler, Incoming};
use proto::message::{
    Cancel, ErrorKind, ExecutionError, Message, NodeCommandResponse, RegisterRequest, RunEvent, RunEventKind,
    StreamNo, TunnelFrameKind,
};

use super::{NodeLink, streams::Run};
use crate::{
    mail::{Frame, ToControl, ToShard, Told},
    requests,
};

/// Statuses that end the wait for a response (RFC 9110 section 15).
const FINAL_STATUS: std::ops::Range<u16> = 200..600;

/// Registrations and readies of one connection, each a round trip through control, before it is closed. A proper Node
/// needs one of each.
const ASKED_MAX: u32 = 16;

/// The link's handler on its shard.
pub(super) struct Router {
    link: Rc<NodeLink>,
    /// Whether the Node said that it drains; it is heard once.
    draining: bool,
    /// Shards that got mail in this batch and are rung at its end, once each. They are few.
    touched: Vec<usize>,
}

impl Router {
    pub(super) fn new(link: Rc<NodeLink>) -> Self {
        Self { link, draining: false, touched: Vec::new() }
    }

    fn control_message(&mut self, message: Message) {
        let connection = self.link.id;
        match message {
            Message::NodeReadyRequest(_) | Message::RegisterRequest(_) if self.asks_too_often() => {
                self.link.close(CloseReason::ProtocolError);
            }
            Message::RegisterRequest(request) => self.register(&request),
            Message::NodeReadyRequest(request) => {
                // As with a registration: the answer must find its way even to one that never registered (REG-7).
                let state = &self.link.state;
                let input = Input::Ready { connection, claimed: request.node_id.as_str().into() };
                state.tell_control(ToControl::FromLink { shard: state.index, input });
            }
            Message::NodeDraining => {
                if !std::mem::replace(&mut self.draining, true) {
                    tracing::info!(node = %self.link.name, connection = connection.0, "node draining");
                    self.link.state.input(Input::Draining { connection });
                }
            }
            Message::Goodbye(goodbye) => {
                tracing::info!(node = %self.link.name, reason = goodbye.reason, "node says goodbye");
            }
            Message::NodeCommandResponse(response) => self.command_answered(response),
            // The answer to what this Edge does not ask yet; a later Node may send more (WIR-3).
            Message::NodeConfigRefreshResponse(_) | Message::Unknown => {}
            // What only an Edge may say.
            _ => self.link.close(CloseReason::ProtocolError),
        }
    }

    /// Counts what costs a round trip through control.
    fn asks_too_often(&self) -> bool {
        let asked = self.link.asked.get() + 1;
        self.link.asked.set(asked);
        asked > ASKED_MAX
    }

    fn register(&self, request: &RegisterRequest) {
        let state = &self.link.state;
        let token_ok =
            state.settings.node(request.node_id.as_str()).is_some_and(|node| node.token_ok(&request.token));
        let input = Input::Register {
            connection: self.link.id,
            certified: self.link.name.as_str().into(),
            claimed: request.node_id.as_str().into(),
            token_ok,
        };
        tracing::debug!(node = %self.link.name, version = request.agent_version, "node registers");
        state.tell_control(ToControl::FromLink { shard: state.index, input });
    }

    fn command_answered(&self, NodeCommandResponse { request_id, result }: NodeCommandResponse) {
        let (state, command) = (&self.link.state, CommandId(request_id));
        let operator = self.link.commands.borrow_mut().told(command);
        if let Some((shard, token)) = operator {
            return state.tell(shard, token, Told::Answer(result));
        }
        if self.link.commands.borrow_mut().answered(command) {
            state.input(Input::CommandAnswered { connection: self.link.id, command, result });
        } else {
            state.metrics.answers_ignored.inc();
        }
    }

    fn tunnel_frame(&mut self, stream: StreamNo, kind: TunnelFrameKind, cost: usize) {
        if matches!(kind, TunnelFrameKind::Usage(_)) {
            // An observation that nobody here accounts for yet. It costs a Node no credit, so it must not wait anywhere.
            return;
        }
        if matches!(kind, TunnelFrameKind::ResponseStart { status, .. } if !FINAL_STATUS.contains(&status)) {
            // An interim status would leave the client waiting, and what follows on its connection ambiguous.
            return self.refuse_run(stream);
        }
        let Some((run, sequence)) = self.next_of(stream) else { return };
        let Run { lease, request, cancelled, .. } = run;
        let connection = self.link.id;
        let frame = match kind {
            TunnelFrameKind::ResponseStart { status, headers, until_close } => {
                Frame::Start { status, headers, until_close }
            }
            TunnelFrameKind::Body(bytes) => Frame::Body(bytes.to_vec()),
            TunnelFrameKind::Usage(_) => return,
            TunnelFrameKind::End => {
                self.forget(stream);
                let terminal = Input::Terminal { connection, lease, error: None, sequence };
                if cancelled {
                    // Its bound runs.
                    self.link.state.input(terminal);
                } else {
                    // That the slot is free again matters to whoever wants one: control knows whether anyone does.
                    self.link.state.input_unhurried(terminal);
                }
                Frame::End
            }
            TunnelFrameKind::Error(error) => return self.failed(stream, lease, error, sequence),
        };
        if cancelled {
            self.link.handle.release(stream, cost);
            return;
        }
        let shard = requests::shard_of(request);
        self.link.state.post(shard, ToShard::Frame(request, lease, sequence, frame));
        self.touch(shard);
    }

    fn run_event(&mut self, event: RunEvent, cost: usize) {
        let stream = event.stream;
        if matches!(&event.kind, RunEventKind::Delta { .. } if cost == 0) {
            // It says nothing and costs a Node no credit, so it must not wait anywhere.
            return;
        }
        let Some((run, sequence)) = self.next_of(stream) else { return };
        let Run { lease, request, cancelled, .. } = run;
        match event.kind {
            RunEventKind::Error(error) => return self.failed(stream, lease, error, sequence),
            RunEventKind::Cancelled => {
                let error = ExecutionError::new(ErrorKind::Cancelled, "");
                return self.failed(stream, lease, error, sequence);
            }
            RunEventKind::Complete { .. } => {
                let connection = self.link.id;
                self.forget(stream);
                self.link.state.input(Input::Terminal { connection, lease, error: None, sequence });
            }
            RunEventKind::Start | RunEventKind::Delta { .. } | RunEventKind::Usage(_) => {}
        }
        if cancelled {
            self.link.handle.release(stream, cost);
            return;
        }
        let shard = requests::shard_of(request);
        self.link.state.post(shard, ToShard::Frame(request, lease, sequence, Frame::Run(Box::new(event))));
        self.touch(shard);
    }

    /// The run of a number, and the number of its next frame, which is taken by this.
    fn next_of(&self, stream: StreamNo) -> Option<(Run, u64)> {
        let mut streams = self.link.streams.borrow_mut();
        let run = streams.get_mut(stream)?;
        let sequence = run.next_sequence;
        run.next_sequence += 1;
        Some((*run, sequence))
    }

    /// A run ended with an error, which goes by control (HND-2).
    fn failed(&mut self, stream: StreamNo, lease: LeaseId, error: ExecutionError, sequence: u64) {
        // What came before it must be with its reader before control's answer can be.
        self.on_batch_end();
        self.forget(stream);
        let connection = self.link.id;
        self.link.state.input(Input::Terminal { connection, lease, error: Some(error), sequence });
    }

    fn touch(&mut self, shard: usize) {
        if !self.touched.contains(&shard) {
            self.touched.push(shard);
        }
    }

    /// Ends a run whose frames are in order but not to be passed on; its terminal still settles its lease.
    fn refuse_run(&mut self, stream: StreamNo) {
        self.link.state.metrics.stream_violations.inc();
        let Some(run) = self.link.streams.borrow_mut().get_mut(stream).copied() else { return };
        self.link.cancel(run.lease);
        if !run.cancelled {
            let shard = requests::shard_of(run.request);
            let frame = ToShard::Frame(run.request, run.lease, run.next_sequence, Frame::Violation);
            self.link.state.post(shard, frame);
            self.touch(shard);
        }
    }

    /// Breaks off a stream on which nothing can be trusted any more.
    fn violation(&mut self, stream: StreamNo) {
        self.link.state.metrics.stream_violations.inc();
        self.link.handle.send(Message::Cancel(Cancel { stream, run_id: String::new() }));
        self.link.handle.close(stream);
        let Some(run) = self.link.streams.borrow_mut().remove(stream) else { return };
        if !run.cancelled {
            let shard = requests::shard_of(run.request);
            self.link
                .state
                .post(shard, ToShard::Frame(run.request, run.lease, run.next_sequence, Frame::Violation));
            self.touch(shard);
        }
    }

    fn forget(&self, stream: StreamNo) {
        self.link.handle.close(stream);
        self.link.streams.borrow_mut().remove(stream);
    }
}

impl Handler for Router {
    fn on_incoming(&mut self, incoming: Incoming) {
        dataplane::panic_point!("edge.link.handler");
        match incoming {
            Incoming::Control(message) => self.control_message(message),
            Incoming::Data { stream, message: Message::TunnelFrame(frame), cost } => {
                self.tunnel_frame(stream, frame.kind, cost);
            }
            Incoming::Data { message: Message::RunEvent(event), cost, .. } => self.run_event(event, cost),
            Incoming::Data { stream, .. } => self.violation(stream),
            Incoming::StreamFault { stream, fault } => {
                tracing::warn!(node = %self.link.name, stream, %fault, "stream broken off");
                self.violation(stream);
            }
            // Credit for a request body is the mux's own business; a Node cancels nothing.
            Incoming::Credit { .. } | Incoming::Cancel { .. } | Incoming::Ignored => {}
        }
    }

    fn on_batch_end(&mut self) {
        for shard in self.touched.drain(..) {
            self.link.state.ring(shard);
        }
    }
}
