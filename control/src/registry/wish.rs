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
            Some(there) if *there != Self::NOBODY && planted!(PermissionByEither) => *there |= entry,
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

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn of(list: &[(u32, bool)]) -> Avoidance {
        let mut avoidance = Avoidance::default();
        list.iter().for_each(|&(member, fallback)| avoidance.add(member, fallback));
        avoidance
    }

    fn shown(list: &[(u32, bool)]) -> Vec<(u32, bool)> {
        of(list).iter().collect()
    }

    // req: POL-8
    #[test]
    fn what_is_avoided_has_one_form_whatever_the_order() {
        assert_eq!(of(&[(7, true), (0, false), (3, false)]), of(&[(3, false), (7, true), (0, false)]));
        assert_ne!(of(&[(7, true)]), of(&[(7, false)]));
        assert_ne!(of(&[(7, true)]), of(&[]));
        assert_eq!(shown(&[(7, true), (0, false), (3, false)]), [(0, false), (3, false), (7, true)]);
        assert_eq!(of(&[]), Avoidance::default());
        assert_eq!(shown(&[]), []);
    }

    // req: POL-8
    #[test]
    fn one_that_is_named_twice_is_permitted_only_if_both_say_so() {
        assert_eq!(shown(&[(2, true), (2, true)]), [(2, true)]);
        assert_eq!(shown(&[(2, true), (2, false)]), [(2, false)]);
        assert_eq!(shown(&[(2, false), (1, true), (2, true)]), [(1, true), (2, false)]);
    }

    // req: POL-8
    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let many: Vec<_> = (0..9).map(|member| (member, member % 2 == 0)).collect();
        assert_eq!(shown(&many), many[..AVOIDED_MAX]);
        assert_eq!(shown(&[&many[..], &[(2, false)]].concat())[2], (2, false), "one that is there is found");
        assert!((0..9).all(|member| of(&many).contains(member) == (member < 4)));
        assert!(!of(&[]).contains(0) && !of(&[]).contains(u32::MAX >> 2));
    }
}
