//! A bounded memory of connections that are over.

use alloc::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::{input::ConnectionId, limits::RETIRED_MAX};

/// The last [`RETIRED_MAX`] connections that lost their Node ID or were closed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Retired {
    members: BTreeSet<ConnectionId>,
    /// The same, oldest first.
    order: VecDeque<ConnectionId>,
}

impl Retired {
    pub(crate) fn insert(&mut self, connection: ConnectionId) {
        if !self.members.insert(connection) {
            return;
        }
        self.order.push_back(connection);
        if self.order.len() > RETIRED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.members.remove(&oldest);
        }
    }

    pub(crate) fn contains(&self, connection: ConnectionId) -> bool {
        self.members.contains(&connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_at_the_bound() {
        let mut retired = Retired::default();
        for id in 0..=RETIRED_MAX as u64 {
            retired.insert(ConnectionId(id));
            retired.insert(ConnectionId(id));
        }
        assert!(!retired.contains(ConnectionId(0)));
        assert!(retired.contains(ConnectionId(1)) && retired.contains(ConnectionId(RETIRED_MAX as u64)));
        assert_eq!(retired.order.len(), RETIRED_MAX);
    }
}
