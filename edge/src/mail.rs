//! The only vocabulary between threads: what shards tell control, and what anyone tells a shard.

use std::{collections::BTreeMap, sync::Arc};

use control::{
    effect::{CloseReason, Grant, Handoff, Probe, ReadinessRefusal, Refusal, RegistrationRefusal, Snapshot},
    input::{ConnectionId, Input, LeaseId, RequestId},
    record::Dump,
};
use dataplane::http::body::Body;
use proto::message::{ExecutionError, Header, RunEvent, RunRequest, TunnelRequest};
use rustls::ServerConfig;

use crate::{
    dispatch::reading::Read,
    lease::{Claim, Lease},
};

/// What the control thread receives: an input of the machine, and who asks where an answer has to go somewhere new.
#[derive(Debug)]
pub enum ToControl {
    /// Passed to the machine as it is.
    Input(Input),
    /// A connection's registration, or its word that it is ready; this and later answers about the connection go to `shard`.
    FromLink {
        /// Shard that owns the connection.
        shard: usize,
        /// [`Input::Register`] or [`Input::Ready`].
        input: Input,
    },
    /// Someone wants what the machine was told lately.
    Dump {
        /// Echoed, to the first shard.
        token: u64,
    },
    /// Shut down: no more work will come.
    Stop,
}

/// What a shard receives. One FIFO for all senders, which the order of effects relies on (see `dataplane::mailbox`).
#[derive(Debug)]
pub enum ToShard {
    /// From control, for the request's shard: a slot.
    Granted(Box<Grant>, Lease),
    /// From control, for the request's shard: no slot.
    Refused(RequestId, Refusal),
    /// From control, for the request's shard: nothing ran; wait again.
    Requeued(RequestId, LeaseId),
    /// From control, for the request's shard: the Node was lost.
    Fenced(RequestId, LeaseId),
    /// From control, for the request's shard: the run failed.
    Failed(RequestId, LeaseId, Box<RunFailed>),
    /// From control, for the connection's shard.
    Registration(ConnectionId, Result<(), RegistrationRefusal>),
    /// From control, for the connection's shard.
    Readiness(ConnectionId, Result<(), ReadinessRefusal>),
    /// From control, for the connection's shard.
    CloseConnection(ConnectionId, CloseReason),
    /// From control, for the connection's shard: ask its Node.
    Probe(Box<Probe>),
    /// From control, for whoever asked with this token.
    Snapshot(u64, Arc<Snapshot>),
    /// From control, for whoever asked with this token: what the machine was told lately.
    Dump(u64, Box<Dump>),
    /// From the thread that made it, for whoever asked with this token: the same as text; empty = it could not be made.
    DumpText(u64, Vec<u8>),
    /// From a request's shard, for the connection's shard: start a run.
    Open(Box<Open>),
    /// From a request's shard: its client is gone; stop the run.
    Cancel(ConnectionId, LeaseId),
    /// From a request's shard: so many body bytes were passed on.
    Release(ConnectionId, LeaseId, usize),
    /// From a connection's shard, for the request's shard: one frame of a run, and its number among those passed on.
    Frame(RequestId, LeaseId, u64, Frame),
    /// From a thread that read the body of a request: its input, for this lease.
    Input(RequestId, LeaseId, Read),
    /// From the watch of the list: these tokens are revoked.
    Revoked(Vec<Arc<str>>),
    /// From the watch of the certificate's files: what new connections of HTTPS are presented from now on.
    Https(Arc<ServerConfig>),
    /// From a shard that serves an operator: ask the Node, if its connection is here.
    NodeQuestion(Box<NodeQuestion>),
    /// The answer, for whoever asked with this token.
    NodeTold(u64, Told),
    /// The process drains: no new requests, streams may finish.
    Drain,
    /// The grace is over: end what is left.
    Stop,
}

/// How a run failed, as control has it from the Node.
#[derive(Debug)]
pub struct RunFailed {
    /// As the Node says.
    pub error: ExecutionError,
    /// Set for a stall that control has checked against the run's lease (HND-3).
    pub handoff: Option<Handoff>,
    /// Orders it behind the frames of the run: it is told after those below this number.
    pub sequence: u64,
}

/// A run to start on a Node's connection. Its stream number is its lease number: unique and never reused.
#[derive(Debug)]
pub struct Open {
    /// Where.
    pub connection: ConnectionId,
    /// Which lease.
    pub lease: LeaseId,
    /// Whether it may still be sent.
    pub claim: Claim,
    /// Whose frames they will be.
    pub request: RequestId,
    /// The request, without its body; taken out when it is sent.
    pub request_message: Option<RequestMessage>,
    /// The whole body, or the whole input.
    pub body: Body,
}

/// What a Node is asked, by what its adapter is (POL-7).
#[derive(Debug)]
pub enum RequestMessage {
    /// To pass a body on to a provider that understands it.
    Tunnel(Box<TunnelRequest>),
    /// To run an input on a backend with a language of its own.
    Run(Box<RunRequest>),
}

/// What a request's shard learns of its run.
#[derive(Debug)]
pub enum Frame {
    /// Status and headers of the provider's answer.
    Start {
        /// HTTP status.
        status: u16,
        /// End-to-end headers.
        headers: Vec<Header>,
        /// Its end proves nothing: the provider's connection ends it.
        until_close: bool,
    },
    /// Body bytes, in a buffer of their own: in one of the link's they would keep all of it for as long as their client
    /// takes.
    Body(Vec<u8>),
    /// The answer is complete.
    End,
    /// An event of a normalized run, other than an error. A completion is the end.
    Run(Box<RunEvent>),
    /// The Node broke the frame order; the run is being cancelled.
    Violation,
}

/// An operator's query to a Node (CMD-1).
#[derive(Debug)]
pub struct NodeQuestion {
    /// Echoed with the answer.
    pub token: u64,
    /// Shard that gets it.
    pub from: usize,
    /// Which Node.
    pub node: Arc<str>,
    /// Which command.
    pub command: String,
    /// Adapter instance.
    pub adapter: String,
    /// Target model.
    pub target: String,
    /// Further arguments.
    pub arguments: BTreeMap<String, String>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The Node's answer, or its words for why there is none.
    Answer(Result<BTreeMap<String, String>, String>),
    /// No ready connection of the Node is on this shard.
    NotHere,
    /// It gave way to newer questions to the same Node.
    Busy,
    /// Its connection ended first.
    Lost,
    /// Nothing came in time.
    Late,
}
