//! What comes out of the machine, in order.

use alloc::{sync::Arc, vec::Vec};
use core::time::Duration;
use proto::message::ExecutionError;

use crate::input::{ConnectionId, LeaseId, RequestId};

/// Something the driver must do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Answer a registration. On acceptance the Node ID is claimed, pending (REG-3).
    Registration {
        /// Which connection.
        connection: ConnectionId,
        /// Accepted, or why not. After a refusal of a connection that owns nothing the driver closes it.
        outcome: Result<(), RegistrationRefusal>,
    },
    /// Answer a ready request (REG-4, REG-6, REG-7).
    Readiness {
        /// Which connection.
        connection: ConnectionId,
        /// Ready, or why not; a refused connection is closed by the driver after the answer.
        outcome: Result<(), ReadinessRefusal>,
    },
    /// Close a connection with this reason (REG-8, REG-11).
    CloseConnection {
        /// Which connection.
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
    /// The first ready transition of a generation (`node.connected`).
    NodeConnected {
        /// Node ID.
        node: Arc<str>,
        /// Its new generation.
        generation: u64,
    },
    /// The current ready generation was fenced (FEN-1).
    NodeFenced {
        /// Node ID.
        node: Arc<str>,
        /// Which generation.
        generation: u64,
        /// Leases returned by it.
        leases: usize,
    },
    /// A slot is granted.
    Grant(Grant),
    /// A request is refused; it holds nothing.
    Refuse {
        /// Which request.
        request: RequestId,
        /// Why.
        reason: Refusal,
    },
    /// The lease's generation was fenced: its caller gets a typed error at once (FEN-6). A holder that has not handed
    /// its request to the connection may answer with [`crate::input::Input::NotSent`] instead and waits again (FEN-7).
    Fenced {
        /// Which lease.
        lease: LeaseId,
        /// Whose.
        request: RequestId,
    },
    /// The Node ended the run with an error; deliver it (HND-3).
    Failed {
        /// Which lease.
        lease: LeaseId,
        /// Whose.
        request: RequestId,
        /// As received.
        error: ExecutionError,
        /// As received.
        sequence: u64,
    },
    /// Nothing ran (BUSY or not sent): the request waits again, under the same [`RequestId`], at its old place; the old
    /// lease is settled. A [`Effect::Grant`] or [`Effect::Refuse`] follows, at once or later; until then `Withdraw` is
    /// how its client leaves.
    Requeued {
        /// The settled lease; its holder drops it.
        lease: LeaseId,
        /// Whose.
        request: RequestId,
    },
    /// The answer to [`crate::input::Input::Inspect`].
    Snapshot {
        /// Echoed.
        token: u64,
        /// The picture.
        snapshot: Snapshot,
    },
}

/// A granted slot: everything a dispatch needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// Which request.
    pub request: RequestId,
    /// The lease that must be dropped once.
    pub lease: LeaseId,
    /// Where to.
    pub connection: ConnectionId,
    /// Edge-internal generation of that connection; never on the wire (WIR-5).
    pub generation: u64,
    /// Node ID.
    pub node: Arc<str>,
    /// Provider id.
    pub provider: Arc<str>,
    /// Adapter instance.
    pub adapter: Arc<str>,
    /// Served model.
    pub target: Arc<str>,
    /// Effective stall timeout (STL-2).
    pub stall_timeout: Duration,
    /// Hard deadline (TUN-8).
    pub request_timeout: Duration,
    /// How long the request waited.
    pub queued_for: Duration,
    /// 1 for the first grant of a request, higher after a re-admission.
    pub attempt: u32,
}

/// Why a registration was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegistrationRefusal {
    /// The claimed Node ID is not the certificate's name (IDN-3).
    IdentityMismatch,
    /// The configuration has no such Node.
    UnknownNode,
    /// The second factor is missing or wrong.
    BadToken,
    /// This connection already owns a Node ID (REG-1, REG-11).
    AlreadyRegistered,
    /// The connection was superseded or closed before.
    Stale,
}

/// Why a ready request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadinessRefusal {
    /// This connection is not the current owner of that Node ID.
    Stale,
    /// It never registered.
    NotRegistered,
    /// It repeats another Node ID than it owns.
    IdentityMismatch,
}

/// Why control closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// A newer registration took the Node ID (REG-8).
    Superseded,
    /// Not ready within 60 s (REG-11).
    ReadyTimeout,
    /// The Node left the configuration.
    Removed,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No such model group.
    UnknownModel,
    /// No configured, enabled candidate has the capability (POL-5).
    Unservable,
    /// The queue is full (POL-5).
    QueueFull,
    /// Waited too long (POL-5).
    QueueTimeout,
    /// The Node's gate was full a second time (GAT-2).
    Busy,
}

/// What the machine holds, for status and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Configuration generation in force.
    pub config_generation: u64,
    /// Pending requests.
    pub queued: usize,
    /// Lease records in existence.
    pub leases: usize,
    /// Leases whose holder is gone and whose slot is not yet returned (POL-11).
    pub cancelling: usize,
    /// Configured Nodes in configured order.
    pub nodes: Vec<NodeSnapshot>,
}

/// One Node in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSnapshot {
    /// Node ID.
    pub id: Arc<str>,
    /// Dispatch-ready; not while it drains.
    pub connected: bool,
    /// Its providers.
    pub providers: Vec<ProviderSnapshot>,
}

/// One provider in a snapshot (SNP-1..3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSnapshot {
    /// Provider id.
    pub id: Arc<str>,
    /// What it is now.
    pub status: ProviderStatus,
    /// Effective capacity; 0 unless available.
    pub capacity: u32,
    /// Effective long capacity; 0 unless available.
    pub long_capacity: u32,
    /// Current leases; 0 while offline, although a draining Node's still hold their slots.
    pub in_flight: u32,
    /// Current long leases, likewise.
    pub long_in_flight: u32,
    /// Pending requests that have it as live candidate.
    pub queued: u32,
    /// The long ones among them.
    pub long_queued: u32,
}

/// Effective status of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProviderStatus {
    /// Takes requests.
    Available,
    /// Its Node is pending, draining or disconnected.
    Offline,
    /// Disabled by configuration.
    Disabled,
}
