//! The life of one lease.

use alloc::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    input::{ConnectionId, Moment, RequestId},
    queue::Ticket,
    registry::ProviderKey,
};

/// One slot of one provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slot {
    pub(crate) provider: ProviderKey,
    /// Whether a long slot is held too (POL-2).
    pub(crate) long: bool,
}

/// What a lease holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Hold {
    /// A slot of the pool.
    Slot(Slot),
    /// Nothing: a direct route's run on this Node (POL-12).
    Direct(Arc<str>),
}

/// What a run was dispatched to (HND-2).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Binding {
    pub(crate) node: Arc<str>,
    pub(crate) provider: Arc<str>,
    pub(crate) adapter: Arc<str>,
    pub(crate) target: Arc<str>,
}

/// One lease. Everything but `state` is fixed at the grant (HND-2).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) request: RequestId,
    pub(crate) hold: Hold,
    pub(crate) binding: Binding,
    /// Only what arrives on this connection can settle it (HND-1).
    pub(crate) connection: ConnectionId,
    pub(crate) generation: u64,
    pub(crate) granted: Moment,
    pub(crate) state: State,
}

/// Where a lease is in its life.
///
/// ```text
///                    HolderGone, sent          terminal, fenced, 10 s
///   grant ► Active ────────────────► Cancelling ────────────────────► (forgotten)
///             │ │ │
///             │ │ └─ HolderGone, not sent ──────────────────────────► (forgotten)
///             │ │                                    HolderGone
///             │ └─ terminal, not sent ─────► Settled ───────────────► (forgotten)
///             │                                 ▲
///             │                                 │ not sent (FEN-7)
///             └─ fenced ─────────────► Fenced ──┘
///                                        └───────────── HolderGone ─► (forgotten)
/// ```
///
/// The slot, if it is not a direct one, is held in `Active` and `Cancelling`, and returned on the way out of these two. The record lives until the
/// slot is returned *and* the holder is gone, so that a late or repeated input finds what it speaks of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum State {
    /// Slot held, holder present. Keeps the ticket, should the request have to wait again.
    Active(Ticket),
    /// Slot held, holder gone (POL-11).
    Cancelling {
        /// When the slot is returned without a terminal.
        until: Moment,
    },
    /// Slot returned by fencing, holder present; it may still say that it never sent the request.
    Fenced(Ticket),
    /// Slot returned, holder present; nothing can happen but its departure.
    Settled,
}

impl State {
    /// Whether the slot is held.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Active(_) | Self::Cancelling { .. } => true,
            Self::Fenced(_) | Self::Settled => false,
        }
    }
}
