//! The invariants of security.md 5.3, each as a named check, from inputs and effects alone.
//!
//! The oracle keeps its own books and knows nothing of how the machine decides, only what must never be seen. What it
//! looks at in a step is what the step changed; [`Oracle::compare`] holds the whole books against a snapshot.
//!
//! | Check | What it says here |
//! |---|---|
//! | I1 capacity | a grant takes a slot that is free: in_flight < capacity, long_in_flight < long capacity for a long one |
//! | I3 one lease | only a waiting request is granted; running requests and held leases are the same pairs |
//! | I4 once | each lease returns its slot once, by the cause the books know; the counters say the same |
//! | I5 dispatch | only to the ready, not draining owner's connection and generation, and to no overlaid provider |
//! | I6 order | register, pending, ready: none is skipped, each accepted or refused as its rule says |
//! | I7 stale | what is over, unknown or not its sender's changes nothing: no effect, no timeout, one count |
//! | I8 owner | one owner of a Node ID; generations and lease numbers rise |
//! | I9 terminal | a request gets one end and nothing after it |
//! | I10 fifo | a grant overtakes no older request that could run |
//! | I11 lost waiter | nobody waits who could run |
//! | I12 bound | the queue keeps its bound and refuses its newest |
//! | I13 conservation | requests and leases are as many as the books have |
//! | I14 gone | who left is not granted |
//! | I15 timers | nothing that is due is left undone |
//! | I16 snapshot | a grant carries the policy in force; overlays follow evidence and nothing else |
//! | I17 refused | a refused registration or ready changes nothing (no configuration is applied half: one input, one policy) |
//! | I19 fencing | a fence returns the leases of its generation, all of them, at once |
//! | I20 names | no effect names what the configuration in force does not have |
//! | I21 again | a request waits again only when nothing ran, once after `busy` of a full gate |
//! | I22 effects | a step has no more effects than its fact and what it set free account for |
//! | I23 memory | what the machine says it holds is what the books hold; the rest is `Machine::audit` |
//! | POL-2 rank | of the eligible candidates the one with the lowest in_flight, then priority |
//!
//! I2 and I18 speak of credentials, which this release has none of. I24 (the same inputs give the same effects) is what
//! [`crate::judge`] and the runner see to: the reference model on every step, and a run's digest twice.

mod books;
mod effects;
mod evidence;
mod facts;
mod picture;
mod policy;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use control::{
    Counters,
    config::PoolConfig,
    effect::{
        CloseReason, Effect, Handoff, HealthObservation, ReadinessRefusal, Refusal, RegistrationRefusal,
    },
    input::{CommandId, ConnectionId, Input, LeaseId, Moment, RequestId},
};

use self::{
    books::{Cause, Claim, Held, Probing, Request, Tally, Wish},
    policy::Policy,
};

pub use self::books::Stage;

/// A check that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which.
    pub check: &'static str,
    /// What was seen.
    pub detail: String,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.check, self.detail)
    }
}

/// What a check gives.
pub type Checked = Result<(), Broken>;

/// Says that a check does not hold.
macro_rules! broken {
    ($check:literal, $($detail:tt)*) => {
        return Err($crate::invariants::Broken { check: $check, detail: format!($($detail)*) })
    };
}
/// Holds a check.
macro_rules! hold {
    ($check:literal, $holds:expr, $($detail:tt)*) => {
        if !$holds {
            $crate::invariants::broken!($check, $($detail)*);
        }
    };
}
pub(crate) use {broken, hold};

/// The books.
#[derive(Debug)]
pub struct Oracle {
    policy: Policy,
    now: Moment,
    claims: BTreeMap<Arc<str>, Claim>,
    owned: BTreeMap<ConnectionId, Arc<str>>,
    retired: BTreeSet<ConnectionId>,
    last_generation: BTreeMap<Arc<str>, u64>,
    generations: BTreeSet<u64>,
    last_lease: u64,
    last_command: u64,
    last_order: u64,
    /// Those that have not ended.
    requests: BTreeMap<RequestId, Request>,
    waiting: BTreeMap<u64, RequestId>,
    /// The waiting ones by what they ask for.
    wishes: BTreeMap<Wish, BTreeSet<u64>>,
    leases: BTreeMap<LeaseId, Held>,
    open: BTreeMap<u64, BTreeSet<LeaseId>>,
    bounds: BTreeSet<(Moment, LeaseId)>,
    /// Outstanding commands.
    probes: BTreeMap<CommandId, Probing>,
    tally: Tally,
    /// Whether a waiting request may have become able to run.
    dirty: bool,
    step: Step,
}

/// What this step's effects must account for.
#[derive(Debug, Default)]
struct Step {
    certified: Option<Arc<str>>,
    /// A ready owner whose connection is gone: its fence must follow.
    to_fence: Vec<(Arc<str>, u64, ConnectionId)>,
    /// Effects that must be seen, and are taken out when they are.
    expected: Vec<Expected>,
    /// Effects beside those that are about one request or one probe.
    others: usize,
    /// Owners whose Node left the configuration.
    owners_removed: usize,
    stale: bool,
    refused: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Expected {
    Registration(ConnectionId, Result<(), RegistrationRefusal>),
    Readiness(ConnectionId, Result<(), ReadinessRefusal>),
    Connected(Arc<str>),
    Closed(ConnectionId, CloseReason),
    Fenced(LeaseId),
    Failed(LeaseId, Option<Handoff>),
    Requeued(LeaseId),
    Lowered(Arc<str>, Arc<str>),
    Cleared(Arc<str>, Arc<str>),
    Observed(HealthObservation),
    Refused(RequestId, Refusal),
}

impl Oracle {
    /// Empty books of a machine that begins with `config`.
    pub fn new(config: Arc<PoolConfig>) -> Self {
        Self {
            policy: Policy::new(config),
            now: Moment(0),
            claims: BTreeMap::new(),
            owned: BTreeMap::new(),
            retired: BTreeSet::new(),
            last_generation: BTreeMap::new(),
            generations: BTreeSet::new(),
            last_lease: 0,
            last_command: 0,
            last_order: 0,
            requests: BTreeMap::new(),
            waiting: BTreeMap::new(),
            wishes: BTreeMap::new(),
            leases: BTreeMap::new(),
            open: BTreeMap::new(),
            bounds: BTreeSet::new(),
            probes: BTreeMap::new(),
            tally: Tally::default(),
            dirty: false,
            step: Step::default(),
        }
    }

    /// Takes one step of the machine: one fact, or time passing, and all that came of it. Time that passes first in
    /// `handle` is a step of its own here.
    ///
    /// # Errors
    /// The first check that does not hold.
    pub fn step(&mut self, now: Moment, input: Option<&Input>, effects: &[Effect]) -> Checked {
        self.now = self.now.max(now);
        self.step = Step::default();
        match input {
            Some(input) => self.fact(input)?,
            None => self.cancel_bounds(),
        }
        for effect in effects {
            self.effect(effect)?;
        }
        if input.is_some() {
            // What a fact takes longer than its time for is due with it.
            self.cancel_bounds();
        }
        if let Some((node, generation, _)) = self.step.to_fence.first() {
            broken!("I19 fencing", "{node} generation {generation} ended and was not fenced");
        }
        if let Some(missing) = self.step.expected.first() {
            broken!("I9 terminal", "nothing came of {input:?}: {missing:?} is missing");
        }
        hold!("I7 stale", !self.step.stale || effects.is_empty(), "{input:?} gave {effects:?}");
        hold!("I17 refused", !self.step.refused || effects.len() == 1, "{input:?} gave {effects:?}");
        hold!("I22 effects", self.step.others <= 4 + self.step.owners_removed * 2, "{effects:?}");
        let by_id = |id| {
            self.requests.get(id).is_some_and(|request| self.policy.route(&request.admit.group).is_some())
        };
        hold!(
            "I9 terminal",
            !self.waiting.values().any(by_id) || self.policy.config.routes.is_empty(),
            "a direct request waits"
        );
        self.no_lost_waiter()
    }

    /// What must hold between two steps: nothing is overdue (I15), and the machine has counted what the books have (I4).
    ///
    /// # Errors
    /// The first check that does not hold.
    pub fn settle(&self, counters: &Counters, timeout: Option<Moment>) -> Checked {
        hold!("I15 timers", timeout.is_none_or(|at| at > self.now), "{timeout:?} is over at {:?}", self.now);
        if let Some((_, oldest)) = self.waiting.first_key_value()
            && let Some(until) = self.policy.config.queue_timeout
        {
            let deadline = self.requests[oldest].arrived.after(until);
            hold!("I15 timers", deadline > self.now, "{oldest:?} waits longer than it may");
        }
        if let Some(&(at, lease)) = self.bounds.first() {
            hold!("I15 timers", at > self.now, "{lease:?} is cancelling for longer than it may");
        }
        let (ours, theirs) = (&self.tally, &counters.returned);
        let by_cause = [
            theirs.completed,
            theirs.failed,
            theirs.busy,
            theirs.not_sent,
            theirs.abandoned,
            theirs.cancelled,
            theirs.cancel_bound,
            theirs.fenced,
        ];
        hold!(
            "I4 once",
            ours.returned == by_cause,
            "returned by cause: {:?}, counted {theirs:?}",
            ours.returned
        );
        hold!(
            "I4 once",
            counters.granted == ours.granted,
            "{} granted, counted {}",
            ours.granted,
            counters.granted
        );
        hold!(
            "I4 once",
            counters.settled == ours.settled(),
            "{} settled, counted {}",
            ours.settled(),
            counters.settled
        );
        let direct = (counters.direct_granted, counters.direct_returned);
        hold!(
            "I4 once",
            direct == (ours.direct_granted, ours.direct_returned),
            "{ours:?}, counted {direct:?}"
        );
        hold!(
            "I13 conservation",
            counters.admitted == ours.admitted,
            "{} admitted, counted {}",
            ours.admitted,
            counters.admitted
        );
        hold!(
            "I13 conservation",
            counters.withdrawn == ours.withdrawn,
            "{} withdrawn, counted {}",
            ours.withdrawn,
            counters.withdrawn
        );
        hold!(
            "I7 stale",
            counters.stale_inputs == ours.stale,
            "{} stale, counted {}",
            ours.stale,
            counters.stale_inputs
        );
        let c = counters;
        let health = (c.handoffs, c.evidence_stale, c.overlays_lowered, c.overlays_cleared);
        hold!(
            "I16 snapshot",
            health == (ours.handoffs, ours.evidence_stale, ours.lowered, ours.cleared),
            "{ours:?}, counted {health:?}"
        );
        Ok(())
    }

    /// Whether a cancel bound is over: a step of time has something to do even without effects.
    pub fn has_due(&self, now: Moment) -> bool {
        self.bounds.first().is_some_and(|&(at, _)| at <= now)
    }

    /// Whether the input speaks of something that is over, unknown or not its sender's (I7).
    pub fn is_stale(&self, input: &Input) -> bool {
        match input {
            Input::Terminal { connection, lease, .. } => {
                self.leases.get(lease).is_none_or(|held| !held.open || held.connection != *connection)
            }
            Input::NotSent { lease } => self.leases.get(lease).is_none_or(|held| {
                let stage = self.requests.get(&held.request).map(|request| request.stage);
                !held.open && stage != Some(Stage::Lost(*lease))
            }),
            Input::Draining { connection } => !self.takes_runs(*connection),
            Input::HolderGone { lease, .. } => self.leases.get(lease).is_none_or(|held| !held.holder),
            Input::Admit(admit) => self.stage(admit.request) == Some(Stage::Waiting),
            Input::Withdraw { request } => self.stage(*request) != Some(Stage::Waiting),
            _ => false,
        }
    }

    /// Where a request is; `None` when it has ended or never was.
    pub fn stage(&self, request: RequestId) -> Option<Stage> {
        self.requests.get(&request).map(|request| request.stage)
    }

    /// Lease records, by number: the connection of each.
    pub fn leases(&self) -> impl Iterator<Item = (LeaseId, ConnectionId)> {
        self.leases.iter().map(|(&id, held)| (id, held.connection))
    }

    /// The open lease that was granted first, and when.
    pub fn oldest_open(&self) -> Option<(LeaseId, Moment)> {
        self.leases.iter().find(|(_, held)| held.open).map(|(&id, held)| (id, held.since))
    }

    /// Whether a connection is an owner that takes new runs.
    pub fn takes_runs(&self, connection: ConnectionId) -> bool {
        let claim = self.owned.get(&connection).and_then(|node| self.claims.get(node));
        claim.is_some_and(Claim::takes_runs)
    }

    /// I11, for what the step may have changed.
    fn no_lost_waiter(&mut self) -> Checked {
        if std::mem::take(&mut self.dirty) {
            for (wish, orders) in &self.wishes {
                hold!("I11 lost waiter", !self.policy.can_run(wish), "{orders:?} could run: {wish:?}");
            }
        }
        hold!(
            "I12 bound",
            self.waiting.len() <= self.policy.config.queue_max,
            "{} wait, {} may",
            self.waiting.len(),
            self.policy.config.queue_max
        );
        Ok(())
    }

    /// The cancel bounds that are over return their slots.
    fn cancel_bounds(&mut self) {
        while let Some(&(at, lease)) = self.bounds.first()
            && at <= self.now
        {
            self.give_back(lease, Cause::CancelBound);
        }
    }

    /// The books count each lease once (I4).
    fn give_back(&mut self, id: LeaseId, cause: Cause) {
        let Some(held) = self.leases.get_mut(&id).filter(|held| held.open) else { return };
        held.open = false;
        let holder = held.holder;
        if let Some(bound) = held.bound.take() {
            self.bounds.remove(&(bound, id));
        }
        if let Some(open) = self.open.get_mut(&held.generation) {
            open.remove(&id);
            if open.is_empty() {
                self.open.remove(&held.generation);
            }
        }
        if held.direct {
            self.tally.direct_returned += 1;
        } else {
            self.tally.returned[cause as usize] += 1;
            let (node, provider) = (Arc::clone(&held.node), Arc::clone(&held.provider));
            self.policy.count(&node, &provider, held.long, -1);
            self.dirty = true;
            if !self.policy.health.is_empty() && !self.policy.exists(&node, &provider, &self.leases) {
                self.policy.health.remove(&(node, provider));
            }
        }
        if !holder {
            self.leases.remove(&id);
        }
    }

    fn start_waiting(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.stage = Stage::Waiting;
        request.since = self.now;
        self.waiting.insert(request.order, id);
        if self.policy.route(&request.admit.group).is_none() {
            self.wishes.entry(Wish::of(&request.admit)).or_default().insert(request.order);
        }
        self.dirty = true;
    }

    fn stop_waiting(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        self.waiting.remove(&request.order);
        let wish = Wish::of(&request.admit);
        if let Some(orders) = self.wishes.get_mut(&wish) {
            orders.remove(&request.order);
            if orders.is_empty() {
                self.wishes.remove(&wish);
            }
        }
    }

    fn end(&mut self, id: RequestId) {
        if self.stage(id) == Some(Stage::Waiting) {
            self.stop_waiting(id);
        }
        self.requests.remove(&id);
    }
}
