//! What the oracle writes down.

use std::{collections::BTreeMap, sync::Arc};

use control::{
    config::Capabilities,
    input::{Admit, ConnectionId, LeaseId, Moment, RequestId},
};

/// Where a request is. One that has ended is not in the books any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for a slot.
    Waiting,
    /// It runs under this lease.
    Running(LeaseId),
    /// Its caller was told that the generation is fenced; it may still turn out to be unsent.
    Lost(LeaseId),
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) admit: Admit,
    pub(super) stage: Stage,
    /// Place among all that were ever admitted.
    pub(super) order: u64,
    pub(super) arrived: Moment,
    /// Begin of this stay in the queue.
    pub(super) since: Moment,
    pub(super) waited: std::time::Duration,
    pub(super) grants: u32,
    /// Whether a full gate has sent it back before.
    pub(super) busy: bool,
}

/// What decides which candidates a request has; equal ones are interchangeable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wish {
    pub(super) group: Arc<str>,
    pub(super) needs: Capabilities,
    pub(super) long: bool,
    /// Each avoided provider, and whether it may be taken where no alternate is live.
    pub(super) avoid: BTreeMap<Arc<str>, bool>,
}

impl Wish {
    pub(super) fn of(admit: &Admit) -> Self {
        let mut avoid = BTreeMap::new();
        for it in &admit.avoid {
            *avoid.entry(Arc::clone(&it.provider)).or_insert(true) &= it.allow_fallback;
        }
        Self { group: Arc::clone(&admit.group), needs: admit.needs, long: admit.long, avoid }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) request: RequestId,
    pub(super) connection: ConnectionId,
    pub(super) node: Arc<str>,
    pub(super) provider: Arc<str>,
    pub(super) adapter: Arc<str>,
    pub(super) target: Arc<str>,
    pub(super) generation: u64,
    pub(super) long: bool,
    pub(super) direct: bool,
    pub(super) since: Moment,
    /// Whether the run is not over: of a pool lease, whether the slot is taken.
    pub(super) open: bool,
    /// Whether the holder still exists.
    pub(super) holder: bool,
    pub(super) bound: Option<Moment>,
}

/// The owner of a Node ID.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) connection: ConnectionId,
    pub(super) since: Moment,
    /// Its generation, once ready.
    pub(super) ready: Option<u64>,
    /// It takes no new runs.
    pub(super) draining: bool,
}

impl Claim {
    pub(super) fn takes_runs(&self) -> bool {
        self.ready.is_some() && !self.draining
    }
}

/// What is known of a provider in one generation.
#[derive(Clone, Debug)]
pub(super) struct Health {
    /// Number of the last observation that counted.
    pub(super) applied: u64,
    pub(super) overlay: Option<Overlay>,
}

#[derive(Clone, Debug)]
pub(super) struct Overlay {
    pub(super) adapter: Arc<str>,
    pub(super) target: Arc<str>,
    /// The last probe, or the beginning.
    pub(super) asked: Moment,
    pub(super) probes: u32,
    pub(super) outstanding: Option<control::input::CommandId>,
}

/// An outstanding command.
#[derive(Clone, Debug)]
pub(super) struct Probing {
    pub(super) connection: ConnectionId,
    pub(super) node: Arc<str>,
    pub(super) provider: Arc<str>,
    pub(super) adapter: Arc<str>,
    pub(super) target: Arc<str>,
}

/// Why a slot came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    Completed,
    Failed,
    Busy,
    NotSent,
    Abandoned,
    Cancelled,
    CancelBound,
    Fenced,
}

/// What the machine must have counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) admitted: u64,
    pub(super) granted: u64,
    pub(super) returned: [u64; 8],
    pub(super) direct_granted: u64,
    pub(super) direct_returned: u64,
    pub(super) withdrawn: u64,
    pub(super) handoffs: u64,
    pub(super) evidence_stale: u64,
    pub(super) lowered: u64,
    pub(super) cleared: u64,
    pub(super) stale: u64,
}

impl Tally {
    pub(super) fn settled(&self) -> u64 {
        self.returned.iter().sum()
    }
}

/// Providers' health by Node and provider id.
pub(super) type HealthBook = BTreeMap<(Arc<str>, Arc<str>), Health>;
