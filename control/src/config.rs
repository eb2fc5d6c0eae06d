//! The immutable policy snapshot the machine decides by.

use alloc::{sync::Arc, vec::Vec};
use core::time::Duration;

use serde::{Deserialize, Serialize};

/// Everything control needs of one configuration generation. Built and validated by the Edge's loader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolConfig {
    /// Generation of the configuration file.
    pub generation: u64,
    /// Bound of all pending requests (POL-5); at least 1.
    pub queue_max: usize,
    /// Bound of each wait; `None` = none.
    pub queue_timeout: Option<Duration>,
    /// Configured Nodes.
    pub nodes: Vec<NodePolicy>,
    /// Model groups.
    pub groups: Vec<Group>,
    /// Direct routes (POL-12). A model that is a group as well is a group.
    pub routes: Vec<Route>,
}

/// One configured Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePolicy {
    /// Node ID, equal to the name in its certificate.
    pub id: Arc<str>,
    /// Its providers.
    pub providers: Vec<ProviderPolicy>,
    /// Its adapter instances: what direct routes may name.
    pub adapters: Vec<Arc<str>>,
}

/// One configured provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderPolicy {
    /// Unique in the whole configuration.
    pub id: Arc<str>,
    /// Adapter instance on its Node.
    pub adapter: Arc<str>,
    /// A disabled provider is no candidate.
    pub enabled: bool,
    /// Slots; at least 1.
    pub capacity: u32,
    /// Slots for long requests; 0..=capacity.
    pub long_capacity: u32,
    /// Lower wins a tie of in_flight.
    pub priority: u32,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Effective stall timeout (STL-10), copied into grants (STL-2).
    pub stall_timeout: Duration,
    /// Hard deadline of a run (TUN-8), copied into grants.
    pub request_timeout: Duration,
}

/// A set of capabilities as bits; the Edge gives the bits their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Capabilities(pub u32);

impl Capabilities {
    /// Whether every bit of `needed` is in `self`.
    pub fn covers(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }
}

/// One model group: what clients name by `model`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// External model id.
    pub id: Arc<str>,
    /// Candidates in configured order.
    pub members: Vec<Member>,
}

/// One candidate of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// A [`ProviderPolicy::id`].
    pub provider: Arc<str>,
    /// The model name that provider serves for this group (PRF-5).
    pub target: Arc<str>,
}

/// One direct route: a model that goes to an adapter instance of any Node, without slot, queue, overlay and replay (POL-12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// External model id.
    pub model: Arc<str>,
    /// Adapter instance; a Node that has it is a candidate.
    pub adapter: Arc<str>,
    /// Served model.
    pub target: Arc<str>,
    /// Attribution id (CFG-4); it need not name a configured provider.
    pub provider: Arc<str>,
    /// Copied into grants.
    pub stall_timeout: Duration,
    /// Hard deadline of a run (TUN-8), copied into grants.
    pub request_timeout: Duration,
}
