//! What goes into the machine.

use alloc::{collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use core::time::Duration;

use proto::message::ExecutionError;
use serde::{Deserialize, Serialize};

use crate::config::{Capabilities, PoolConfig};

/// Monotonic time in nanoseconds since an arbitrary start of the process; handed in, never read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Moment(pub u64);

impl Moment {
    /// `self + by`, saturating.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// `self - earlier`, zero when `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// One accepted Node connection, unique in the process's life; chosen by the Edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConnectionId(pub u64);

/// One client request, unique in the process's life; chosen by the Edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// One lease, chosen by control, strictly rising from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

/// One command to a Node, chosen by control, strictly rising from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CommandId(pub u64);

/// A fact for the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// A new policy snapshot is in force.
    Configure(Arc<PoolConfig>),
    /// A connection asks for a Node ID (REG-1, IDN-3).
    Register {
        /// Which connection.
        connection: ConnectionId,
        /// The name in its certificate: what counts.
        certified: Arc<str>,
        /// The name it claims.
        claimed: Arc<str>,
        /// Whether the optional second factor, if the Node's configuration has one, matched (compared by the Edge).
        token_ok: bool,
    },
    /// A connection says it is ready (REG-4).
    Ready {
        /// Which connection.
        connection: ConnectionId,
        /// The name it repeats.
        claimed: Arc<str>,
    },
    /// A connection's Node takes no new runs; what it runs goes on. Of any other than the current dispatch-ready owner, and
    /// said again: nothing.
    Draining {
        /// Which connection.
        connection: ConnectionId,
    },
    /// A connection is gone; also valid for one that never registered.
    ConnectionClosed {
        /// Which connection.
        connection: ConnectionId,
    },
    /// A client request wants a slot.
    Admit(Admit),
    /// A queued request's client left (POL-10). A no-op when the request was granted meanwhile: the lease's own return path applies.
    Withdraw {
        /// Which request.
        request: RequestId,
    },
    /// The holder of a lease is gone: the value was dropped. Exactly once per granted lease, whatever else happened to it.
    HolderGone {
        /// Which lease.
        lease: LeaseId,
        /// Whether the request was handed to the Node's connection; `false` returns the slot at once.
        sent: bool,
    },
    /// The grant could not be sent because its connection was gone (FEN-7): return the slot and admit the request again,
    /// at its old place. Also valid after [`crate::effect::Effect::Fenced`] took the slot back, while the lease is held;
    /// void once its run ended otherwise.
    NotSent {
        /// Which lease.
        lease: LeaseId,
    },
    /// The Node's terminal arrived on `connection` (HND-1, HND-2).
    Terminal {
        /// Connection on which it was received.
        connection: ConnectionId,
        /// Which lease.
        lease: LeaseId,
        /// `None` = END or COMPLETE; otherwise why it failed.
        error: Option<ExecutionError>,
        /// Sequence number of the terminal frame, echoed in the effect so that no body byte is overtaken.
        sequence: u64,
    },
    /// The Node answered the command of a [`crate::effect::Probe`] (CAP-2). Of a command that is not outstanding, or on
    /// another connection than it was sent on: nothing.
    CommandAnswered {
        /// Connection on which the answer was received.
        connection: ConnectionId,
        /// Which command.
        command: CommandId,
        /// The answer's fields as received, or why there are none.
        result: Result<BTreeMap<String, String>, String>,
    },
    /// Someone wants a [`crate::effect::Snapshot`].
    Inspect {
        /// Echoed.
        token: u64,
        /// Whether the lists of waiting requests and leases are wanted too.
        detail: bool,
    },
}

/// A request for admission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admit {
    /// Which request.
    pub request: RequestId,
    /// External model id: a [`crate::config::Group::id`] of the current snapshot, else the model of one of its routes, which
    /// looks at none of the fields below (POL-12), else refused as unknown.
    pub group: Arc<str>,
    /// Capabilities a candidate must have.
    pub needs: Capabilities,
    /// Whether it takes a long slot too (POL-4).
    pub long: bool,
    /// Prefer any provider that is not in this list (POL-8): the providers that failed this request, oldest first. Of more
    /// than [`crate::limits::AVOIDED_MAX`] the oldest are not looked at.
    pub avoid: Vec<Avoided>,
}

/// A provider that failed a request before (POL-8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Avoided {
    /// Which; one that is no candidate is avoided anyway.
    pub provider: Arc<str>,
    /// Permit it when no live alternate exists, that is, none that is not in the list. One that is in the list twice is
    /// permitted only if it is so twice.
    pub allow_fallback: bool,
}

impl Input {
    /// Bytes of text it holds on to, for bounds of memory.
    pub(crate) fn text_bytes(&self) -> usize {
        let pairs =
            |map: &BTreeMap<String, String>| map.iter().map(|(key, value)| key.len() + value.len()).sum();
        match self {
            Self::Configure(config) => {
                let providers: usize = config.nodes.iter().map(|node| 1 + node.providers.len()).sum();
                let members: usize = config.groups.iter().map(|group| 1 + group.members.len()).sum();
                // About what each takes with its names.
                (providers + members + config.routes.len()) * 256
            }
            Self::Register { certified, claimed, .. } => certified.len() + claimed.len(),
            Self::Ready { claimed, .. } => claimed.len(),
            Self::Admit(admit) => {
                admit.group.len() + admit.avoid.iter().map(|avoided| avoided.provider.len()).sum::<usize>()
            }
            Self::Terminal { error: Some(error), .. } => {
                let failure = error.failure.as_ref();
                error.message.len() + failure.map_or(0, |it| it.failure_code.len() + pairs(&it.metadata))
            }
            Self::CommandAnswered { result, .. } => match result {
                Ok(fields) => pairs(fields),
                Err(why) => why.len(),
            },
            Self::Draining { .. }
            | Self::ConnectionClosed { .. }
            | Self::Withdraw { .. }
            | Self::HolderGone { .. }
            | Self::NotSent { .. }
            | Self::Terminal { error: None, .. }
            | Self::Inspect { .. } => 0,
        }
    }
}
