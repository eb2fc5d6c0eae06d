//! Monotonic counts of what the machine did, for metrics.

use serde::{Deserialize, Serialize};

/// Counts since the machine was made; each only rises. Reading them costs nothing and changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Registrations accepted (REG-3).
    pub registrations_accepted: u64,
    /// Registrations refused, whatever the reason.
    pub registrations_refused: u64,
    /// First ready transitions: generations that became dispatch-ready (REG-6).
    pub ready: u64,
    /// Ready requests refused (REG-7).
    pub ready_refused: u64,
    /// Pending connections closed by the ready timeout (REG-11).
    pub ready_timeouts: u64,
    /// Connections closed because a newer registration took their Node ID (REG-8).
    pub superseded: u64,
    /// Dispatch-ready generations that take no new runs until they end.
    pub draining: u64,
    /// Dispatch-ready generations fenced (FEN-2).
    pub generations_fenced: u64,
    /// Requests that asked for admission.
    pub admitted: u64,
    /// Slots granted. `granted - settled` is the sum of all `in_flight`.
    pub granted: u64,
    /// Slots returned, each lease once.
    pub settled: u64,
    /// The same by cause.
    pub returned: Returned,
    /// Direct leases granted (POL-12); they hold no slot and are in none of the counts above.
    pub direct_granted: u64,
    /// Direct leases that ended, each once. `direct_granted - direct_returned` is how many run.
    pub direct_returned: u64,
    /// Leases returned by fencing; also in `settled`.
    pub leases_fenced: u64,
    /// Leases that turned to cancelling: the holder left after the request was sent (POL-11).
    pub cancelled: u64,
    /// Slots returned by the cancel bound, without the Node's terminal (POL-11); also in `settled`.
    pub cancel_bound_reached: u64,
    /// Runs the Node ended with an error that was passed on.
    pub failed: u64,
    /// Terminals `busy` of the Node's gate whose lease had a holder (GAT-2).
    pub busy: u64,
    /// Requests put back at their old place after `busy` or an unsent grant (GAT-2, FEN-7).
    pub requeued: u64,
    /// Requests refused because their model is unknown.
    pub refused_unknown_model: u64,
    /// Requests refused because no configured candidate can ever serve them.
    pub refused_unservable: u64,
    /// Requests refused because the gate was full a second time (GAT-2).
    pub refused_busy: u64,
    /// Requests of direct routes refused because no Node with the adapter was ready (POL-12).
    pub refused_no_node: u64,
    /// Requests refused because the queue was full (POL-5).
    pub queue_full: u64,
    /// Requests refused because they waited too long (POL-5).
    pub queue_timeouts: u64,
    /// Requests whose client left while they waited (POL-10).
    pub withdrawn: u64,
    /// Terminals of a stall that were validated and bound to a current pool lease (HND-3).
    pub handoffs: u64,
    /// Terminals that said to be of a stall and were not validated or not bound; their lease was returned all the same (HND-2).
    pub evidence_rejected: u64,
    /// Validated observations `unavailable` that were not newer than the last one applied (HND-4).
    pub evidence_stale: u64,
    /// Providers taken out by a fresh `unavailable` (HND-4).
    pub overlays_lowered: u64,
    /// Providers brought back by a fresh `available` of a probe (CAP-2).
    pub overlays_cleared: u64,
    /// Overlays that ended with their generation or with their provider (HND-5).
    pub overlays_dropped: u64,
    /// What became of probes.
    pub probes: Probes,
    /// Inputs that changed nothing because what they speak of is over, unknown or not theirs (FEN-4).
    pub stale_inputs: u64,
    /// Configurations taken over after the first (POL-6).
    pub reloads: u64,
    /// Work of selection: candidate sets looked at. It bounds the cost of an event independently of the machine it
    /// runs on; it does not grow with the number of waiting requests or of providers.
    pub candidates_examined: u64,
}

/// Slots returned, by cause. The sum is [`Counters::settled`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// The run ended as it should.
    pub completed: u64,
    /// The Node ended it with an error.
    pub failed: u64,
    /// The Node's gate was full, or it drains; nothing ran (GAT-2).
    pub busy: u64,
    /// The grant could not be sent (FEN-7).
    pub not_sent: u64,
    /// The holder left before it sent anything.
    pub abandoned: u64,
    /// The Node's terminal after the holder had left (POL-11).
    pub cancelled: u64,
    /// No terminal within the cancel bound (POL-11).
    pub cancel_bound: u64,
    /// The generation was fenced (FEN-2).
    pub fenced: u64,
}

impl Returned {
    /// All causes together.
    pub fn total(&self) -> u64 {
        let Self { completed, failed, busy, not_sent, abandoned, cancelled, cancel_bound, fenced } = *self;
        [completed, failed, busy, not_sent, abandoned, cancelled, cancel_bound, fenced]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

/// Probes of overlaid providers (CAP-3), and what was answered to them. Each answer is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probes {
    /// Commands sent.
    pub sent: u64,
    /// Answers `available` that ended an overlay (CAP-2).
    pub cleared: u64,
    /// Well-formed fresh answers that say something else than `available`.
    pub unavailable: u64,
    /// Answers with a missing, malformed or mismatched field, an old sequence or an ambiguous binding.
    pub rejected: u64,
    /// The Node could not carry the command out.
    pub failed: u64,
    /// Answers nobody waits for: replaced, of an earlier generation, or on another connection.
    pub stray: u64,
}
