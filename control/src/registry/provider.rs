//! One provider: its policy, its load, its standing among the candidates.

use alloc::{sync::Arc, vec::Vec};

use serde::{Deserialize, Serialize};

use super::GroupKey;
use crate::{config::ProviderPolicy, input::ConnectionId};

/// One provider of one Node, for as long as it is configured or holds leases; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ProviderKey(pub(crate) u64);

/// The dispatch-ready generation a provider is served by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Live {
    pub(crate) connection: ConnectionId,
    pub(crate) generation: u64,
}

/// Order among eligible candidates, best first (POL-2). Full ties go to the one whose last grant is longest ago, which
/// rotates them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Rank {
    pub(crate) in_flight: u32,
    pub(crate) priority: u32,
    pub(crate) last_grant: u64,
}

/// Everything that decides where a provider stands in its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) rank: Rank,
    /// Enabled by configuration.
    pub(crate) enabled: bool,
    /// Enabled, dispatch-ready and not overlaid (POL-2).
    pub(crate) live: bool,
    /// Takes long requests at all.
    pub(crate) takes_long: bool,
    /// Live with a free slot.
    pub(crate) open: bool,
    /// Live with a free slot of both kinds.
    pub(crate) open_long: bool,
}

impl Standing {
    /// Whether a request that was refused under `before` may be served now: by a new slot, or because this provider
    /// is no live alternate any more (POL-8).
    pub(crate) fn may_unblock(&self, before: &Self) -> bool {
        let lost = before.live && !self.live && !planted!(LostAlternateNotPumped);
        let long = self.open_long && !before.open_long && !planted!(LongSlotFreedUnseen);
        (self.open && !before.open) || long || lost
    }

    /// Whether it is enabled and of the kind asked for.
    pub(crate) fn fits(&self, long: bool) -> bool {
        self.enabled && (self.takes_long || !long)
    }

    /// Whether it is a live candidate of the kind asked for.
    pub(crate) fn is_live(&self, long: bool) -> bool {
        self.live && (self.takes_long || !long)
    }

    /// Whether it can take a request of the kind asked for now.
    pub(crate) fn is_open(&self, long: bool) -> bool {
        if long { self.open_long } else { self.open }
    }
}

/// A place in a group.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub(crate) group: GroupKey,
    pub(crate) bucket: usize,
    pub(crate) member: u32,
}

/// One provider. The load is counted here and nowhere else.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Provider {
    pub(crate) node: Arc<str>,
    pub(crate) policy: ProviderPolicy,
    /// Whether the configuration in force has it; if not, it only waits for its leases to come back.
    pub(crate) configured: bool,
    pub(crate) live: Option<Live>,
    /// Taken out by its health (HND-4), whatever the configuration says.
    pub(crate) overlaid: bool,
    /// Leases that hold a slot; above capacity only after capacity was lowered.
    pub(crate) in_flight: u32,
    /// The long ones among them.
    pub(crate) long_in_flight: u32,
    /// Number of its last grant, 0 = none yet.
    pub(crate) last_grant: u64,
    pub(crate) seats: Vec<Seat>,
}

impl Provider {
    pub(crate) fn standing(&self) -> Standing {
        let policy = &self.policy;
        let live = policy.enabled && self.live.is_some() && !self.overlaid;
        let open = live && self.in_flight < policy.capacity;
        Standing {
            rank: Rank {
                in_flight: if planted!(RankWithoutLoad) { 0 } else { self.in_flight },
                priority: if planted!(RankWithoutPriority) { 0 } else { policy.priority },
                last_grant: self.last_grant,
            },
            enabled: policy.enabled,
            live,
            takes_long: policy.long_capacity > 0,
            open,
            open_long: open && (self.long_in_flight < policy.long_capacity || planted!(LongUnbounded)),
        }
    }
}
