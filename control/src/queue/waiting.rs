//! The table of waiting requests and its index by group and shape.

use alloc::{
    collections::{BTreeMap, btree_map::Entry},
    vec::Vec,
};

use serde::{Deserialize, Serialize};

use super::{Ticket, TicketNo, Waiting, line::Lines};
use crate::{
    input::{Admit, Moment, RequestId},
    registry::{GroupKey, Shape, Wish},
};

/// The waiters of one group, by shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Shapes(#[serde(with = "crate::pairs")] BTreeMap<Shape, Lines>);

/// All pending requests, in order of first admission.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Queue {
    #[serde(with = "crate::pairs")]
    tickets: BTreeMap<TicketNo, Waiting>,
    #[serde(with = "crate::pairs")]
    numbers: BTreeMap<RequestId, TicketNo>,
    /// Groups and shapes somebody waits for; an empty one is removed.
    #[serde(with = "crate::pairs")]
    groups: BTreeMap<GroupKey, Shapes>,
    last: u64,
}

impl Queue {
    /// Draws the next number for a request that is admitted for the first time.
    pub(crate) fn draw(&mut self, admit: Admit, now: Moment) -> Ticket {
        self.last += 1;
        Ticket {
            number: TicketNo(self.last),
            admit,
            arrived: now,
            waited: core::time::Duration::ZERO,
            attempts: 0,
            busy: false,
        }
    }

    /// Puts a request at the place its ticket names.
    pub(crate) fn insert(&mut self, waiting: Waiting) {
        self.index(&waiting);
        self.tickets.insert(waiting.ticket.number, waiting);
    }

    fn index(&mut self, waiting: &Waiting) {
        let number = waiting.ticket.number;
        let Wish { group, shape, avoidance } = waiting.wish;
        self.groups.entry(group).or_default().0.entry(shape).or_default().insert(avoidance, number);
        self.numbers.insert(waiting.ticket.admit.request, number);
    }

    /// Takes a request out.
    pub(crate) fn remove(&mut self, number: TicketNo) -> Option<Waiting> {
        let waiting = self.tickets.remove(&number)?;
        self.numbers.remove(&waiting.ticket.admit.request);
        let Wish { group, shape, avoidance } = waiting.wish;
        if let Entry::Occupied(mut shapes) = self.groups.entry(group) {
            if let Entry::Occupied(mut lines) = shapes.get_mut().0.entry(shape) {
                lines.get_mut().remove(avoidance, number);
                if lines.get().is_empty() {
                    lines.remove();
                }
            }
            if shapes.get().0.is_empty() {
                shapes.remove();
            }
        }
        Some(waiting)
    }

    /// Takes everybody out, oldest first.
    pub(crate) fn drain(&mut self) -> Vec<Waiting> {
        self.numbers.clear();
        self.groups.clear();
        core::mem::take(&mut self.tickets).into_values().collect()
    }

    /// The oldest waiter of a group for whose wish `choose` finds something, with what it found.
    ///
    /// Looks at the heads of lines only. A shape in which even a wish that avoids nothing finds nothing is left at
    /// once, and only lines that avoid every candidate with a free slot are disappointed: the number of looks is that of the
    /// different sets of providers that failed requests which wait, and one where more than
    /// [`crate::limits::AVOIDED_MAX`] candidates have a free slot.
    pub(crate) fn oldest<T>(
        &self,
        group: GroupKey,
        mut choose: impl FnMut(&Wish) -> Option<T>,
    ) -> Option<(TicketNo, T)> {
        let mut best: Option<(TicketNo, T)> = None;
        for (&shape, lines) in &self.groups.get(&group)?.0 {
            let beaten =
                |number, best: &Option<(TicketNo, T)>| best.as_ref().is_some_and(|(b, _)| *b < number);
            if lines.heads().next().is_none_or(|(number, _)| beaten(number, &best))
                || choose(&Wish::any(group, shape)).is_none()
            {
                continue;
            }
            for (number, avoidance) in lines.heads() {
                if beaten(number, &best) {
                    break;
                }
                if let Some(found) = choose(&Wish { group, shape, avoidance }) {
                    best = Some((number, found));
                    break;
                }
            }
        }
        best
    }

    pub(crate) fn number_of(&self, request: RequestId) -> Option<TicketNo> {
        self.numbers.get(&request).copied()
    }

    pub(crate) fn newest(&self) -> Option<TicketNo> {
        self.tickets.last_key_value().map(|(&number, _)| number)
    }

    pub(crate) fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Who waits, by group and shape, for snapshots.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (GroupKey, Shape, &Lines)> {
        self.groups
            .iter()
            .flat_map(|(&group, shapes)| shapes.0.iter().map(move |(&shape, lines)| (group, shape, lines)))
    }

    /// Whether the indexes are what they would be if built now, for audits.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut fresh = Self { last: self.last, ..Self::default() };
        for waiting in self.tickets.values() {
            fresh.index(waiting);
        }
        fresh.numbers == self.numbers
            && fresh.groups == self.groups
            && self
                .tickets
                .iter()
                .all(|(&number, waiting)| number == waiting.ticket.number && number.0 <= self.last)
    }

    /// Everybody, oldest first, for audits.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.tickets.values()
    }
}
