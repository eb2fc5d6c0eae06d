//! The candidates of one group that share a capability set, ordered by rank.
//!
//! Selection looks at the best of each bucket that covers a need. The number of buckets is the number of different
//! capability sets in the group: a handful of protocol profiles, whatever the number of providers.

use alloc::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    Avoidance,
    provider::{Rank, Standing},
};
use crate::config::Capabilities;

/// How many members, and how many of them take long requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    all: u32,
    long: u32,
}

impl Tally {
    pub(crate) fn of(self, long: bool) -> u32 {
        if long { self.long } else { self.all }
    }
}

/// One capability set of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bucket {
    pub(crate) capabilities: Capabilities,
    /// Enabled members.
    pub(crate) enabled: Tally,
    /// Live members.
    pub(crate) live: Tally,
    /// Members with a free slot.
    open: BTreeSet<(Rank, u32)>,
    /// Members with a free slot of both kinds.
    open_long: BTreeSet<(Rank, u32)>,
}

impl Bucket {
    pub(crate) fn new(capabilities: Capabilities) -> Self {
        Self { capabilities, ..Self::default() }
    }

    pub(crate) fn enter(&mut self, member: u32, standing: &Standing) {
        self.enabled.all += u32::from(standing.fits(false));
        self.enabled.long += u32::from(standing.fits(true));
        self.live.all += u32::from(standing.is_live(false));
        self.live.long += u32::from(standing.is_live(true));
        if standing.open {
            self.open.insert((standing.rank, member));
        }
        if standing.open_long {
            self.open_long.insert((standing.rank, member));
        }
    }

    /// Undoes [`Self::enter`] with the same arguments.
    pub(crate) fn leave(&mut self, member: u32, standing: &Standing) {
        self.enabled.all -= u32::from(standing.fits(false));
        self.enabled.long -= u32::from(standing.fits(true));
        self.live.all -= u32::from(standing.is_live(false));
        self.live.long -= u32::from(standing.is_live(true));
        if standing.open {
            self.open.remove(&(standing.rank, member));
        }
        if standing.open_long {
            self.open_long.remove(&(standing.rank, member));
        }
    }

    /// The best member with a free slot that is not avoided.
    pub(crate) fn best(&self, long: bool, avoidance: &Avoidance) -> Option<(Rank, u32)> {
        let open = if long { &self.open_long } else { &self.open };
        open.iter().copied().find(|&(_, member)| !avoidance.contains(member))
    }
}
