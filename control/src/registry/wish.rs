//! What a request asks of the pool, resolved against the configuration in force.

use serde::{Deserialize, Serialize};

use crate::{config::Capabilities, limits::AVOIDED_MAX};

/// Index of a model group in the configuration in force; void after a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct GroupKey(pub(crate) usize);

/// What kind of slot is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) needs: Capabilities,
    pub(crate) long: bool,
}

/// Which candidates are not wanted (POL-8). Small and of one form for one meaning: it is part of keys, and compared with
/// every candidate that admission looks at.
///
/// Each entry is twice the candidate's position in the group, and one more if it is permitted when no live alternate exists.
/// In rising order, each candidate once, [`Avoidance::NOBODY`] behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Avoidance([u32; AVOIDED_MAX]);

impl Default for Avoidance {
    fn default() -> Self {
        Self([Self::NOBODY; AVOIDED_MAX])
    }
}

impl Avoidance {
    /// Of no position: a group with 2³¹ members has no place in memory.
    const NOBODY: u32 = u32::MAX;

    /// Adds a candidate. One that is there already is permitted only if both say so; of too many, none is added.
    pub(crate) fn add(&mut self, member: u32, fallback: bool) {
        let Self(entries) = self;
        let entry = member.saturating_mul(2) | u32::from(fallback);
        match entries.iter_mut().find(|there| **there == Self::NOBODY || **there >> 1 == member) {
            Some(there) if *there != Self::NOBODY => *there &= entry,
            Some(free) => *free = entry,
            None => return,
        }
        entries.sort_unstable();
    }

    /// The candidates, each with whether it is permitted when no live alternate exists.
    pub(crate) fn iter(self) -> impl Iterator<Item = (u32, bool)> {
        let entries = self.0.into_iter().take_while(|&entry| entry != Self::NOBODY);
        entries.map(|entry| (entry >> 1, entry & 1 == 1))
    }

    pub(crate) fn contains(&self, member: u32) -> bool {
        self.0.iter().any(|&entry| entry >> 1 == member)
    }
}

/// Two requests with equal wishes are interchangeable to every candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Wish {
    pub(crate) group: GroupKey,
    pub(crate) shape: Shape,
    pub(crate) avoidance: Avoidance,
}

impl Wish {
    /// The wish that avoids nothing.
    pub(crate) fn any(group: GroupKey, shape: Shape) -> Self {
        Self { group, shape, avoidance: Avoidance::default() }
    }
}
