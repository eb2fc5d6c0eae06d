//! What comes out of the machine, in order.

use alloc::{sync::Arc, vec::Vec};
use core::time::Duration;
use proto::message::ExecutionError;
use serde::{Deserialize, Serialize};

use crate::input::{CommandId, ConnectionId, LeaseId, Moment, RequestId};

/// Something the driver must do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
        /// Set for a validated, bound stall: `recovery_handoff=confirmed` (HND-3). Never for a direct lease.
        handoff: Option<Handoff>,
    },
    /// A Node said something of a provider's health, and it is decided what of it (OBS-2); for logs. Once for every terminal
    /// that counts as evidence, whether anybody waits for it or not, and once for an answer that clears an overlay; behind
    /// [`Effect::OverlayLowered`] or [`Effect::OverlayCleared`] where there is one.
    HealthObserved(HealthObservation),
    /// A provider was taken out by a fresh `unavailable` of its Node (HND-4); for logs and metrics.
    OverlayLowered {
        /// Node ID.
        node: Arc<str>,
        /// Provider id.
        provider: Arc<str>,
        /// Adapter instance that failed.
        adapter: Arc<str>,
        /// Served model that failed.
        target: Arc<str>,
    },
    /// A probe found a provider available again (CAP-2); for logs and metrics. An overlay that ends with its generation
    /// has no effect of its own.
    OverlayCleared {
        /// Node ID.
        node: Arc<str>,
        /// Provider id.
        provider: Arc<str>,
    },
    /// Send CAPABILITIES (CAP-3). At most one command is outstanding for a provider: this one replaces the one before.
    /// The connection is a dispatch-ready owner now; an answer is told as [`crate::input::Input::CommandAnswered`], and
    /// none is expected of a connection that is gone.
    Probe(Probe),
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

/// A command that asks a Node whether an overlaid provider is available again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Repeated by the answer.
    pub command: CommandId,
    /// Where to.
    pub connection: ConnectionId,
    /// Node ID.
    pub node: Arc<str>,
    /// Provider id; not for the wire.
    pub provider: Arc<str>,
    /// Adapter instance.
    pub adapter: Arc<str>,
    /// Served model (CAP-4).
    pub target: Arc<str>,
}

/// What a Node's evidence says of a provider (STL-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProviderHealth {
    /// It answers; the request alone stalled.
    Available,
    /// It does not answer.
    Unavailable,
    /// Anything doubtful.
    Unknown,
}

/// What was said of a provider's health, and what it was worth (OBS-2). Of what the Node said only values of closed sets
/// are in it; the names are those of the Edge's own lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthObservation {
    /// Node ID.
    pub node: Arc<str>,
    /// Provider id.
    pub provider: Arc<str>,
    /// As the Node found it; `None` where it is not believed.
    pub health: Option<ProviderHealth>,
    /// What came of it.
    pub verdict: HealthVerdict,
}

/// What evidence of a provider's health did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HealthVerdict {
    /// A stall took the provider out (HND-4).
    Lowered,
    /// A stall says newly of a provider that is out that it is unavailable.
    Repeated,
    /// A stall says something that changes nothing: available, unknown, or of a provider that is not configured any more.
    Unchanged,
    /// A stall says that the provider is unavailable, and that is not newer than what was applied (HND-4).
    Stale,
    /// It claims to be a stall, and something is missing or does not fit (HND-2).
    Rejected,
    /// The answer to a probe brought the provider back (CAP-2).
    Cleared,
}

/// A stall that the Edge has checked against its own lease (HND-3). No approval of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handoff {
    /// Provider id of the lease.
    pub provider: Arc<str>,
    /// As the Node found it.
    pub health: ProviderHealth,
}

/// A granted slot, or a direct lease: everything a dispatch needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Whether it is of a direct route: then it holds no slot (POL-12).
    pub direct: bool,
    /// Provider id; of a direct route its attribution id.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReadinessRefusal {
    /// This connection is not the current owner of that Node ID.
    Stale,
    /// It never registered.
    NotRegistered,
    /// It repeats another Node ID than it owns.
    IdentityMismatch,
}

/// Why control closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CloseReason {
    /// A newer registration took the Node ID (REG-8).
    Superseded,
    /// Not ready within 60 s (REG-11).
    ReadyTimeout,
    /// The Node left the configuration.
    Removed,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Refusal {
    /// No such model group, and no such direct route.
    UnknownModel,
    /// No configured, enabled candidate has the capability (POL-5).
    Unservable,
    /// The queue is full (POL-5).
    QueueFull,
    /// Waited too long (POL-5).
    QueueTimeout,
    /// The Node's gate was full a second time (GAT-2), of a direct route the first time (POL-12); or the table of leases is
    /// full and there is no queue to wait in.
    Busy,
    /// A direct route, and no Node with its adapter is ready (POL-12).
    NoNode,
}

/// What the machine holds, for status and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When it was taken; what every other moment in it is to be compared with.
    pub now: Moment,
    /// Configuration generation in force.
    pub config_generation: u64,
    /// Pending requests.
    pub queued: usize,
    /// Lease records in existence, direct ones too.
    pub leases: usize,
    /// Leases whose holder is gone and whose run is not yet over (POL-11).
    pub cancelling: usize,
    /// Configured Nodes in configured order.
    pub nodes: Vec<NodeSnapshot>,
    /// The oldest [`crate::limits::DETAIL_MAX`] pending requests, oldest first; empty unless detail was asked for.
    pub queue: Vec<WaiterSnapshot>,
    /// The oldest [`crate::limits::DETAIL_MAX`] lease records, oldest first; empty unless detail was asked for.
    pub holds: Vec<LeaseSnapshot>,
}

/// One Node in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSnapshot {
    /// Node ID.
    pub id: Arc<str>,
    /// Dispatch-ready; not while it drains.
    pub connected: bool,
    /// How far its connection is.
    pub state: NodeState,
    /// Since when; `None` = it was never connected since it was configured.
    pub since: Option<Moment>,
    /// Its providers.
    pub providers: Vec<ProviderSnapshot>,
}

/// How far the connection of a Node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NodeState {
    /// No connection owns its Node ID.
    Disconnected,
    /// Registered, not ready.
    Pending,
    /// Dispatch-ready.
    Ready,
    /// Was ready and takes no new runs.
    Draining,
}

/// One provider in a snapshot (SNP-1..3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderSnapshot {
    /// Provider id.
    pub id: Arc<str>,
    /// What it is now.
    pub status: ProviderStatus,
    /// Effective capacity; 0 unless available.
    pub capacity: u32,
    /// Effective long capacity; 0 unless available.
    pub long_capacity: u32,
    /// Current leases; 0 while offline or overlaid, although leases may still hold their slots.
    pub in_flight: u32,
    /// Current long leases, likewise.
    pub long_in_flight: u32,
    /// Pending requests that have it as live candidate.
    pub queued: u32,
    /// The long ones among them.
    pub long_queued: u32,
    /// The overlay, whatever outranks it in `status` (HND-7).
    pub overlay: Option<OverlaySnapshot>,
}

/// Effective status of a provider. Disabled outranks offline, offline the overlay (HND-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProviderStatus {
    /// Takes requests.
    Available,
    /// Its Node is pending, draining or disconnected.
    Offline,
    /// Disabled by configuration.
    Disabled,
    /// Overlaid: its Node has found it unavailable (HND-6).
    Unavailable,
}

/// Why and since when a provider is overlaid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlaySnapshot {
    /// When it was lowered.
    pub since: Moment,
    /// Adapter instance that failed last.
    pub adapter: Arc<str>,
    /// Served model that failed last.
    pub target: Arc<str>,
    /// When it is probed next; `None` while its Node drains.
    pub next_probe: Option<Moment>,
    /// Commands sent since it was lowered.
    pub probes: u32,
}

/// One pending request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaiterSnapshot {
    /// Which.
    pub request: RequestId,
    /// Its place in the queue, from 1.
    pub position: usize,
    /// External model id.
    pub group: Arc<str>,
    /// Whether it needs a long slot.
    pub long: bool,
    /// First admission.
    pub since: Moment,
    /// Grants so far.
    pub attempts: u32,
    /// Provider ids of its live candidates, all of them busy; empty = it has none and waits for one.
    pub waits_for: Vec<Arc<str>>,
}

/// One lease record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseSnapshot {
    /// Which.
    pub lease: LeaseId,
    /// Whose.
    pub request: RequestId,
    /// Node ID.
    pub node: Arc<str>,
    /// Provider id, or attribution id of a direct route.
    pub provider: Arc<str>,
    /// Whether it is of a direct route.
    pub direct: bool,
    /// Whether it holds a long slot.
    pub long: bool,
    /// When it was granted.
    pub since: Moment,
    /// How far it is.
    pub state: LeaseState,
}

/// How far a lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LeaseState {
    /// Runs, its holder present.
    Active,
    /// Its holder is gone, its end is awaited (POL-11).
    Cancelling,
    /// Ended by fencing; its holder has not yet answered.
    Fenced,
    /// Over; its holder has not yet gone.
    Settled,
}
