//! The commands of one Node connection whose answers are awaited (CMD-1). No I/O.
//!
//! At most one for each provider, so the table is bounded by the configuration; it goes with its connection. What a Node says
//! that was not asked for, or says twice, goes no further than here.

use std::{collections::BTreeMap, sync::Arc};

use control::input::CommandId;

/// The table.
#[derive(Debug, Default)]
pub(super) struct Commands {
    awaited: BTreeMap<Arc<str>, CommandId>,
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
}
