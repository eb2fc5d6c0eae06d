//! Monotonic counts of what the machine did, for metrics.

/// Counts since the machine was made; each only rises. Reading them costs nothing and changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Requests refused because the queue was full (POL-5).
    pub queue_full: u64,
    /// Requests refused because they waited too long (POL-5).
    pub queue_timeouts: u64,
    /// Requests whose client left while they waited (POL-10).
    pub withdrawn: u64,
    /// Inputs that changed nothing because what they speak of is over, unknown or not theirs (FEN-4).
    pub stale_inputs: u64,
    /// Configurations taken over after the first (POL-6).
    pub reloads: u64,
    /// Work of selection: candidate sets looked at. It bounds the cost of an event independently of the machine it
    /// runs on; it does not grow with the number of waiting requests or of providers.
    pub candidates_examined: u64,
}
