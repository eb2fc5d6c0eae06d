//! What a request asks of the pool, resolved against the configuration in force.

use serde::{Deserialize, Serialize};

use crate::config::Capabilities;

/// Index of a model group in the configuration in force; void after a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct GroupKey(pub(crate) usize);

/// What kind of slot is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) needs: Capabilities,
    pub(crate) long: bool,
}

/// Which candidate is not wanted (POL-8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Avoidance {
    /// Position in the group; `None` when nothing is avoided or what is avoided is no member.
    pub(crate) member: Option<u32>,
    /// Whether it is permitted when no live alternate exists; never set without `member`.
    pub(crate) fallback: bool,
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
