//! The status document: what `/status` answers and `iop-edge status` reads. Ids, counts, states and times, and nothing else:
//! no address, no token, nothing of the transport (SNP-4).
//!
//! Every time in it is an age or a wait in milliseconds, so that it means the same to whoever reads it.

use std::{sync::Arc, time::Duration};

use control::{
    effect::{
        LeaseSnapshot, LeaseState, NodeSnapshot, NodeState, OverlaySnapshot, ProviderSnapshot,
        ProviderStatus, Snapshot, WaiterSnapshot,
    },
    input::Moment,
};
use serde::{Deserialize, Serialize};

use crate::{metrics::status_word, requests, shard_state::ShardState};

/// The whole document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Workload name of the Edge.
    pub edge: String,
    /// Version of the program.
    pub version: String,
    /// Generation of the configuration in force.
    pub config_generation: u64,
    /// Whether the Edge takes no new requests.
    pub draining: bool,
    /// Requests that wait for a slot.
    pub queued: usize,
    /// Lease records.
    pub leases: usize,
    /// Leases whose client is gone and whose slot is not back yet.
    pub cancelling: usize,
    /// Nodes in the order of the configuration.
    pub nodes: Vec<NodeLine>,
    /// The oldest waiting requests, oldest first: at most [`control::limits::DETAIL_MAX`] of `queued`.
    pub queue: Vec<QueueLine>,
    /// The oldest leases, oldest first: at most as many of `leases`.
    pub runs: Vec<RunLine>,
}

/// One Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLine {
    /// Its name.
    pub id: String,
    /// Whether it gets requests.
    pub connected: bool,
    /// `disconnected`, `pending`, `ready` or `draining`.
    pub state: String,
    /// For how long; `null` = it has not been connected since the Edge started.
    pub state_ms: Option<u64>,
    /// Its providers in the order of the configuration.
    pub providers: Vec<ProviderLine>,
}

/// One provider (SNP-1..3, HND-6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderLine {
    /// Its id.
    pub id: String,
    /// `available`, `unavailable` or `disabled`.
    pub status: String,
    /// `healthy`, `unavailable`, `offline` or `disabled`.
    pub health: String,
    /// Why it gets no requests: `disabled`, `node_disconnected`, `node_pending`, `node_draining`, `overlaid`; `null` when it
    /// does.
    pub reason: Option<String>,
    /// Slots; 0 unless available.
    pub capacity: u32,
    /// Slots taken.
    pub in_flight: u32,
    /// Waiting requests that it could serve.
    pub queued: u32,
    /// Slots for long requests; 0 unless available.
    pub long_context_capacity: u32,
    /// Those taken.
    pub long_in_flight: u32,
    /// The long ones of `queued`.
    pub long_queued: u32,
    /// Its Node has found it unavailable. Also there when `reason` is another one, which outranks it.
    pub overlay: Option<OverlayLine>,
}

/// Why and since when a provider is out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlayLine {
    /// For how long.
    pub since_ms: u64,
    /// Adapter instance that failed last.
    pub adapter: String,
    /// Served model that failed last.
    pub target: String,
    /// Probes sent.
    pub probes: u32,
    /// Wait for the next one; `null` = none is planned, while the Node drains.
    pub next_probe_ms: Option<u64>,
}

/// One waiting request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueLine {
    /// Place, from 1.
    pub position: usize,
    /// The Edge's own number of the request.
    pub request: String,
    /// What its client asked for.
    pub model: String,
    /// Whether it needs a slot for long requests.
    pub long: bool,
    /// Since it first asked for a slot.
    pub age_ms: u64,
    /// How often it had one.
    pub attempts: u32,
    /// Providers that could serve it and are busy; empty = there is none now.
    pub waits_for: Vec<String>,
}

/// One lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLine {
    /// Number of the lease.
    pub lease: u64,
    /// The Edge's own number of the request.
    pub request: String,
    /// Node.
    pub node: String,
    /// Provider id; of a direct route the id that its use is attributed to.
    pub provider: String,
    /// Whether it is of a direct route, and so holds no slot.
    pub direct: bool,
    /// Whether it holds a slot for long requests.
    pub long: bool,
    /// Since it was granted.
    pub age_ms: u64,
    /// `active`; `cancelling`: its client is gone and its end is awaited; `fenced`: its Node was lost; `settled`: it is over.
    pub state: String,
}

impl Status {
    /// The document of a snapshot.
    pub(super) fn of(state: &ShardState, snapshot: &Snapshot) -> Self {
        let now = snapshot.now;
        Self {
            edge: state.settings.edge.name.as_str().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config_generation: snapshot.config_generation,
            draining: state.draining.is_closed(),
            queued: snapshot.queued,
            leases: snapshot.leases,
            cancelling: snapshot.cancelling,
            nodes: snapshot.nodes.iter().map(|node| NodeLine::of(node, now)).collect(),
            queue: snapshot.queue.iter().map(|waiter| QueueLine::of(waiter, now)).collect(),
            runs: snapshot.holds.iter().map(|lease| RunLine::of(lease, now)).collect(),
        }
    }
}

impl NodeLine {
    fn of(node: &NodeSnapshot, now: Moment) -> Self {
        let state = match node.state {
            NodeState::Disconnected => "disconnected",
            NodeState::Pending => "pending",
            NodeState::Ready => "ready",
            NodeState::Draining => "draining",
        };
        Self {
            id: node.id.to_string(),
            connected: node.connected,
            state: state.to_owned(),
            state_ms: node.since.map(|since| millis(now.since(since))),
            providers: node.providers.iter().map(|it| ProviderLine::of(it, node.state, now)).collect(),
        }
    }
}

impl ProviderLine {
    fn of(provider: &ProviderSnapshot, node: NodeState, now: Moment) -> Self {
        let health = match provider.status {
            ProviderStatus::Available => "healthy",
            ProviderStatus::Offline => "offline",
            ProviderStatus::Disabled => "disabled",
            ProviderStatus::Unavailable => "unavailable",
        };
        let reason = match (provider.status, node) {
            (ProviderStatus::Available, _) => None,
            (ProviderStatus::Disabled, _) => Some("disabled"),
            (ProviderStatus::Unavailable, _) => Some("overlaid"),
            (ProviderStatus::Offline, NodeState::Pending) => Some("node_pending"),
            (ProviderStatus::Offline, NodeState::Draining) => Some("node_draining"),
            (ProviderStatus::Offline, NodeState::Disconnected | NodeState::Ready) => {
                Some("node_disconnected")
            }
        };
        Self {
            id: provider.id.to_string(),
            status: status_word(provider.status).to_owned(),
            health: health.to_owned(),
            reason: reason.map(str::to_owned),
            capacity: provider.capacity,
            in_flight: provider.in_flight,
            queued: provider.queued,
            long_context_capacity: provider.long_capacity,
            long_in_flight: provider.long_in_flight,
            long_queued: provider.long_queued,
            overlay: provider.overlay.as_ref().map(|overlay| OverlayLine::of(overlay, now)),
        }
    }
}

impl OverlayLine {
    fn of(overlay: &OverlaySnapshot, now: Moment) -> Self {
        Self {
            since_ms: millis(now.since(overlay.since)),
            adapter: overlay.adapter.to_string(),
            target: overlay.target.to_string(),
            probes: overlay.probes,
            next_probe_ms: overlay.next_probe.map(|at| millis(at.since(now))),
        }
    }
}

impl QueueLine {
    fn of(waiter: &WaiterSnapshot, now: Moment) -> Self {
        Self {
            position: waiter.position,
            request: requests::label(waiter.request),
            model: waiter.group.to_string(),
            long: waiter.long,
            age_ms: millis(now.since(waiter.since)),
            attempts: waiter.attempts,
            waits_for: waiter.waits_for.iter().map(Arc::to_string).collect(),
        }
    }
}

impl RunLine {
    fn of(lease: &LeaseSnapshot, now: Moment) -> Self {
        let state = match lease.state {
            LeaseState::Active => "active",
            LeaseState::Cancelling => "cancelling",
            LeaseState::Fenced => "fenced",
            LeaseState::Settled => "settled",
        };
        Self {
            lease: lease.lease.0,
            request: requests::label(lease.request),
            node: lease.node.to_string(),
            provider: lease.provider.to_string(),
            direct: lease.direct,
            long: lease.long,
            age_ms: millis(now.since(lease.since)),
            state: state.to_owned(),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
