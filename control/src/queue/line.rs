//! The waiters of one group and shape, split into lines whose members are interchangeable.
//!
//! Within a line all tickets wish for exactly the same, so when its head cannot run, none can. `heads` orders the
//! lines by their oldest ticket: finding the oldest runnable waiter means to walk over heads, not over waiters.

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::TicketNo;
use crate::registry::Avoidance;

/// Lines of one shape, by what they avoid. Never empty while it is in the queue's table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lines {
    #[serde(with = "crate::pairs")]
    lines: BTreeMap<Avoidance, BTreeSet<TicketNo>>,
    /// `(oldest ticket, line)` of every line.
    heads: BTreeSet<(TicketNo, Avoidance)>,
}

impl Lines {
    pub(crate) fn insert(&mut self, avoidance: Avoidance, number: TicketNo) {
        self.edit(avoidance, |line| line.insert(number));
    }

    pub(crate) fn remove(&mut self, avoidance: Avoidance, number: TicketNo) {
        self.edit(avoidance, |line| line.remove(&number));
    }

    /// Changes one line and keeps its head right.
    fn edit(&mut self, avoidance: Avoidance, change: impl FnOnce(&mut BTreeSet<TicketNo>) -> bool) {
        let line = self.lines.entry(avoidance).or_default();
        let before = line.first().copied();
        change(line);
        let after = line.first().copied();
        if after.is_none() {
            self.lines.remove(&avoidance);
        }
        if before == after {
            return;
        }
        if let Some(head) = before {
            self.heads.remove(&(head, avoidance));
        }
        if let Some(head) = after.filter(|_| before.is_none() || !planted!(NextInLineForgotten)) {
            self.heads.insert((head, avoidance));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The oldest ticket of each line, oldest first.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (TicketNo, Avoidance)> {
        self.heads.iter().copied()
    }

    /// How many wait in each line.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = (Avoidance, usize)> {
        self.lines.iter().map(|(&avoidance, line)| (avoidance, line.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn avoiding(member: u32) -> Avoidance {
        let mut avoidance = Avoidance::default();
        avoidance.add(member, false);
        avoidance
    }

    #[test]
    fn heads_follow_every_change_of_a_line() {
        let mut lines = Lines::default();
        for (line, number) in [(1, 7), (1, 3), (2, 5), (1, 9)] {
            lines.insert(avoiding(line), TicketNo(number));
        }
        let heads = |lines: &Lines| lines.heads().map(|(n, a)| (n.0, a)).collect::<alloc::vec::Vec<_>>();
        assert_eq!(heads(&lines), [(3, avoiding(1)), (5, avoiding(2))]);
        lines.remove(avoiding(1), TicketNo(3));
        assert_eq!(heads(&lines), [(5, avoiding(2)), (7, avoiding(1))]);
        lines.remove(avoiding(2), TicketNo(5));
        lines.remove(avoiding(1), TicketNo(9));
        assert_eq!(heads(&lines), [(7, avoiding(1))]);
        lines.remove(avoiding(1), TicketNo(7));
        assert!(lines.is_empty() && heads(&lines).is_empty());
    }
}
