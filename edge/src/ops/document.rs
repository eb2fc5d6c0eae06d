//! The status document: what `/status` answers and `iop-edge status` reads. Ids, counts, states and times, and nothing else:
//! no address, no token, nothing of the transport (SNP-4).
//!
//! Every time in it is an age or a wait in milliseconds, so that it means the same to whoever reads it.

use control::effect::{NodeSnapshot, ProviderSnapshot, ProviderStatus, Snapshot};
use serde::{Deserialize, Serialize};

use crate::{metrics::status_word, shard_state::ShardState};

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
}

/// One Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLine {
    /// Its name.
    pub id: String,
    /// Whether it gets requests.
    pub connected: bool,
    /// Its providers in the order of the configuration.
    pub providers: Vec<ProviderLine>,
}

/// One provider (SNP-1..3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderLine {
    /// Its id.
    pub id: String,
    /// `available`, `unavailable` or `disabled`.
    pub status: String,
    /// `healthy`, `offline` or `disabled`.
    pub health: String,
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
}

impl Status {
    /// The document of a snapshot.
    pub(super) fn of(state: &ShardState, snapshot: &Snapshot) -> Self {
        Self {
            edge: state.settings.edge.name.as_str().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config_generation: snapshot.config_generation,
            draining: state.draining.is_closed(),
            queued: snapshot.queued,
            leases: snapshot.leases,
            cancelling: snapshot.cancelling,
            nodes: snapshot.nodes.iter().map(NodeLine::of).collect(),
        }
    }
}

impl NodeLine {
    fn of(node: &NodeSnapshot) -> Self {
        Self {
            id: node.id.to_string(),
            connected: node.connected,
            providers: node.providers.iter().map(ProviderLine::of).collect(),
        }
    }
}

impl ProviderLine {
    fn of(provider: &ProviderSnapshot) -> Self {
        let health = match provider.status {
            ProviderStatus::Available => "healthy",
            ProviderStatus::Offline => "offline",
            ProviderStatus::Disabled => "disabled",
            ProviderStatus::Unavailable => "unavailable",
        };
        Self {
            id: provider.id.to_string(),
            status: status_word(provider.status).to_owned(),
            health: health.to_owned(),
            capacity: provider.capacity,
            in_flight: provider.in_flight,
            queued: provider.queued,
            long_context_capacity: provider.long_capacity,
            long_in_flight: provider.long_in_flight,
            long_queued: provider.long_queued,
        }
    }
}
