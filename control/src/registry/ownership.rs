//! Which connection owns which Node ID.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

use serde::{Deserialize, Serialize};

use super::{Live, retired::Retired};
use crate::{
    config::NodePolicy,
    effect::{NodeState, ReadinessRefusal, RegistrationRefusal},
    input::{ConnectionId, Moment},
};

/// How far the owner of a Node ID is. No owner is the absence of an [`Owner`].
///
/// ```text
///              accepted Register            Ready          Draining
///  (no owner) ───────────────────► Pending ───────► Ready ───────► Draining
///      ▲                            │  ▲ │           │ │              │ │
///      │ closed, 60 s, removed      │  └─┘           │ │              │ │    a newer accepted Register: the old
///      ├────────────────────────────┘  newer         │ └──────────────│─┴──► owner is superseded, fenced first if it
///      │                               Register      │                │      was Ready or Draining; the Node ID is
///      └── closed, removed: fenced ──────────────────┴────────────────┘      Pending again
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// Claimed, not dispatchable (REG-3).
    Pending {
        /// When it is closed for not being ready (REG-11).
        until: Moment,
    },
    /// Dispatch-ready (REG-4).
    Ready,
    /// Was ready and takes no new runs. Its leases stay, and its end fences its generation as that of a ready one.
    Draining,
}

/// The current owner of a Node ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) connection: ConnectionId,
    /// Strictly rising over all registrations ever accepted.
    pub(crate) generation: u64,
    pub(crate) stage: Stage,
    /// Begin of the stage.
    pub(crate) since: Moment,
}

/// A Node ID, owned or not.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Post {
    owner: Option<Owner>,
    /// When the last owner went; `None` = there was none since the Node was configured.
    left: Option<Moment>,
}

impl Owner {
    /// Whether it takes new runs.
    pub(crate) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    /// Whether runs of its generation may exist.
    pub(crate) fn holds_leases(&self) -> bool {
        matches!(self.stage, Stage::Ready | Stage::Draining)
    }

    /// The deadline of its ready timer, while pending.
    pub(crate) fn pending_until(&self) -> Option<Moment> {
        match self.stage {
            Stage::Pending { until } => Some(until),
            Stage::Ready | Stage::Draining => None,
        }
    }
}

/// What an accepted ready request was.
#[derive(Debug)]
pub(crate) enum Readied {
    /// The first of this generation.
    First {
        /// Node ID.
        node: Arc<str>,
        /// The owner as it was, still pending.
        pending: Owner,
    },
    /// A repetition (REG-6).
    Again,
}

/// Owners by Node ID, and Node IDs by owner. Both hold at most one entry for each configured Node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ownership {
    /// Every configured Node.
    nodes: BTreeMap<Arc<str>, Post>,
    #[serde(with = "crate::pairs")]
    owned: BTreeMap<ConnectionId, Arc<str>>,
    retired: Retired,
    last_generation: u64,
}

impl Ownership {
    /// Whether `connection` may have the Node ID it claims; changes nothing.
    pub(crate) fn check_registration(
        &self,
        connection: ConnectionId,
        certified: &str,
        claimed: &str,
        token_ok: bool,
    ) -> Result<(), RegistrationRefusal> {
        if self.retired.contains(connection) {
            Err(RegistrationRefusal::Stale)
        } else if self.owned.contains_key(&connection) {
            Err(RegistrationRefusal::AlreadyRegistered)
        } else if certified != claimed {
            Err(RegistrationRefusal::IdentityMismatch)
        } else if !self.nodes.contains_key(certified) {
            Err(RegistrationRefusal::UnknownNode)
        } else if token_ok {
            Ok(())
        } else {
            Err(RegistrationRefusal::BadToken)
        }
    }

    /// Makes `connection` the pending owner of a configured Node ID that has no owner.
    pub(crate) fn claim(&mut self, now: Moment, connection: ConnectionId, node: &Arc<str>, until: Moment) {
        if let Some(post) = self.nodes.get_mut(node) {
            if !(planted!(GenerationReused) && connection.0.is_multiple_of(5)) {
                self.last_generation += 1;
            }
            let generation = self.last_generation;
            let stage = Stage::Pending { until };
            post.owner = Some(Owner { connection, generation, stage, since: now });
            self.owned.insert(connection, Arc::clone(node));
        }
    }

    /// A ready request: staleness is decided by who owns the Node ID now, by nothing the peer says (REG-7).
    pub(crate) fn ready(
        &mut self,
        now: Moment,
        connection: ConnectionId,
        claimed: &str,
    ) -> Result<Readied, ReadinessRefusal> {
        let successor: Option<Arc<str>> =
            if planted!(ReadyOfAnotherConnection) { Some(claimed.into()) } else { None };
        let Some(node) = self.owned.get(&connection).or(successor.as_ref()) else {
            return Err(if self.retired.contains(connection) {
                ReadinessRefusal::Stale
            } else {
                ReadinessRefusal::NotRegistered
            });
        };
        if **node != *claimed {
            return Err(ReadinessRefusal::IdentityMismatch);
        }
        let Some(owner) = self.nodes.get_mut(node).and_then(|post| post.owner.as_mut()) else {
            return Err(ReadinessRefusal::Stale);
        };
        if owner.holds_leases() {
            return Ok(Readied::Again);
        }
        let pending = *owner;
        (owner.stage, owner.since) = (Stage::Ready, now);
        Ok(Readied::First { node: Arc::clone(node), pending })
    }

    /// The dispatch-ready owner takes no new runs; which Node that is. `None`: the connection is no such owner.
    pub(crate) fn drain(&mut self, now: Moment, connection: ConnectionId) -> Option<Arc<str>> {
        let node = self.owned.get(&connection)?;
        let owner = self.nodes.get_mut(node)?.owner.as_mut().filter(|owner| owner.is_ready())?;
        (owner.stage, owner.since) = (Stage::Draining, now);
        Some(Arc::clone(node))
    }

    /// Whether a connection is an owner that takes no new runs.
    pub(crate) fn is_draining(&self, connection: ConnectionId) -> bool {
        let owner = self.owned.get(&connection).and_then(|node| self.owner(node));
        owner.is_some_and(|owner| owner.stage == Stage::Draining)
    }

    /// Ends a connection's ownership, if it has one, and remembers the connection as over.
    pub(crate) fn release(&mut self, now: Moment, connection: ConnectionId) -> Option<(Arc<str>, Owner)> {
        if !planted!(RetiredForgotten) {
            self.retired.insert(connection);
        }
        let node = if planted!(LateCloseEndsSuccessor) {
            self.owned.get(&connection).cloned()?
        } else {
            self.owned.remove(&connection)?
        };
        let post = self.nodes.get_mut(&node)?;
        let owner = post.owner.take()?;
        post.left = Some(now);
        Some((node, owner))
    }

    /// Takes over the configured Nodes. Owners of Nodes that left the configuration lose their ownership and come back.
    pub(crate) fn reconfigure(&mut self, nodes: &[NodePolicy]) -> Vec<(Arc<str>, Owner)> {
        let mut old = core::mem::take(&mut self.nodes);
        for node in nodes {
            let post = old.remove(&node.id).unwrap_or_default();
            self.nodes.entry(Arc::clone(&node.id)).or_insert(post);
        }
        let removed: Vec<_> = old.into_iter().filter_map(|(node, post)| Some((node, post.owner?))).collect();
        for (_, owner) in &removed {
            if planted!(RemovedKeepsClaim) {
                continue;
            }
            self.owned.remove(&owner.connection);
            self.retired.insert(owner.connection);
        }
        removed
    }

    pub(crate) fn owner(&self, node: &str) -> Option<&Owner> {
        self.nodes.get(node)?.owner.as_ref()
    }

    /// The dispatch-ready generation of a Node, while it takes new runs.
    pub(crate) fn live(&self, node: &str) -> Option<Live> {
        let owner = self.owner(node).filter(|owner| owner.is_ready())?;
        Some(Live { connection: owner.connection, generation: owner.generation })
    }

    /// How far the connection of a Node is, and since when.
    pub(crate) fn state(&self, node: &str) -> (NodeState, Option<Moment>) {
        let Some(post) = self.nodes.get(node) else { return (NodeState::Disconnected, None) };
        let Some(owner) = &post.owner else { return (NodeState::Disconnected, post.left) };
        let state = match owner.stage {
            Stage::Pending { .. } => NodeState::Pending,
            Stage::Ready => NodeState::Ready,
            Stage::Draining => NodeState::Draining,
        };
        (state, Some(owner.since))
    }

    /// All owners, for audits.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (&Arc<str>, &Owner)> {
        self.nodes.iter().filter_map(|(node, post)| Some((node, post.owner.as_ref()?)))
    }

    /// The Node ID a connection owns, for audits.
    pub(crate) fn owned_by(&self, connection: ConnectionId) -> Option<&Arc<str>> {
        self.owned.get(&connection)
    }

    /// How many connections own a Node ID, for audits.
    pub(crate) fn owned_len(&self) -> usize {
        self.owned.len()
    }
}
