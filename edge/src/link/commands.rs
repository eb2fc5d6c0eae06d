//! The commands of one Node connection whose answers are awaited (CMD-1). No I/O.
//!
//! Control's: at most one for each provider, so the table is bounded by the configuration. Operators': at most [`ASKED_MAX`]. Both
//! go with their connection. What a Node says that was not asked for, or says twice, goes no further than here.

use std::{collections::BTreeMap, sync::Arc};

use control::input::CommandId;

/// Questions of operators that are awaited of one connection; the oldest gives way to one more. A Node takes twice as many.
pub(super) const ASKED_MAX: usize = 8;
/// The numbers of operators' commands have this bit, those of control do not: it counts from 1.
const OPERATORS: u64 = 1 << 63;

/// An operator who waits: the shard that serves him, and his token there.
pub(super) type Operator = (usize, u64);

/// The table.
#[derive(Debug, Default)]
pub(super) struct Commands {
    awaited: BTreeMap<Arc<str>, CommandId>,
    asked: BTreeMap<u64, Operator>,
    last_asked: u64,
}

impl Commands {
    /// A command about `provider` is sent; it replaces the one before, whose answer is of no use any more.
    pub(super) fn sent(&mut self, provider: Arc<str>, command: CommandId) {
        self.awaited.insert(provider, command);
    }

    /// An answer has come; whether it is awaited. It is no longer then.
    pub(super) fn answered(&mut self, command: CommandId) -> bool {
        let before = self.awaited.len();
        self.awaited.retain(|_, awaited| *awaited != command);
        self.awaited.len() < before
    }

    /// A number for the command of an operator, and who gives way for it: a Node that never answers keeps nobody from asking.
    pub(super) fn ask(&mut self, operator: Operator) -> (CommandId, Option<Operator>) {
        let is_full = self.asked.len() >= ASKED_MAX;
        let displaced = if is_full { self.asked.pop_first() } else { None };
        self.last_asked = self.last_asked.wrapping_add(1);
        let number = OPERATORS | self.last_asked;
        self.asked.insert(number, operator);
        (CommandId(number), displaced.map(|(_, operator)| operator))
    }

    /// An answer has come; the operator who waits for it. He does no longer then.
    pub(super) fn told(&mut self, command: CommandId) -> Option<Operator> {
        self.asked.remove(&command.0)
    }

    /// The connection is over: everybody who still waits.
    pub(super) fn give_up(&mut self) -> Vec<Operator> {
        std::mem::take(&mut self.asked).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: CMD-1
    #[test]
    fn an_answer_counts_once_and_only_for_the_last_command_about_a_provider() {
        let mut commands = Commands::default();
        assert!(!commands.answered(CommandId(1)), "nobody asked");
        commands.sent("p1".into(), CommandId(1));
        commands.sent("p2".into(), CommandId(2));
        commands.sent("p1".into(), CommandId(3));
        assert_eq!(commands.awaited.len(), 2);
        assert!(!commands.answered(CommandId(1)), "replaced");
        assert!(commands.answered(CommandId(3)));
        assert!(!commands.answered(CommandId(3)), "said twice");
        assert!(commands.answered(CommandId(2)));
        assert!(commands.awaited.is_empty());
    }
    // req: CMD-1
    #[test]
    fn an_operators_command_is_told_apart_from_controls_and_answered_once() {
        let mut commands = Commands::default();
        commands.sent("p1".into(), CommandId(1));
        let (first, displaced) = commands.ask((0, 7));
        assert_eq!(displaced, None);
        assert_ne!(first, CommandId(1));
        assert_eq!(commands.told(CommandId(1)), None);
        assert!(!commands.answered(first));
        assert_eq!(commands.told(first), Some((0, 7)));
        assert_eq!(commands.told(first), None);
        assert!(commands.answered(CommandId(1)));
        let asked: Vec<_> = (0..ASKED_MAX as u64).map(|token| commands.ask((1, token)).0).collect();
        assert_eq!(commands.ask((1, 99)).1, Some((1, 0)), "the oldest gives way");
        assert_eq!((commands.told(asked[0]), commands.told(asked[3])), (None, Some((1, 3))));
        assert_eq!(commands.ask((1, 100)).1, None);
        assert_eq!(commands.give_up().len(), ASKED_MAX);
        assert!(commands.give_up().is_empty());
    }
}
