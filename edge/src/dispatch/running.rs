//! A run that has been sent out.

use std::{rc::Rc, time::Instant};

use control::input::{ConnectionId, LeaseId};

use crate::{mail::ToShard, shard_state::ShardState};

/// A dispatched run; dropping it stops it, unless the Node has said that it is over.
pub(super) struct Run {
    pub(super) shard: Rc<ShardState>,
    pub(super) connection: ConnectionId,
    pub(super) lease: LeaseId,
    /// How long the Edge itself waits for its end.
    pub(super) deadline: Instant,
    pub(super) over: bool,
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.over {
            self.shard.to_connection(self.connection, ToShard::Cancel(self.connection, self.lease));
        }
    }
}
