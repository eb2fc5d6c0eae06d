//! Bounds and constant waits of the machine, each with its reason and what happens when it is reached.
//!
//! What the operator may choose (queue length, queue timeout, capacities) is in [`crate::config`].

use core::time::Duration;

/// How long a registered connection may stay pending (REG-11). Reached: it is closed with
/// [`crate::effect::CloseReason::ReadyTimeout`] and its claim is free.
pub const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a slot stays taken after its holder left and before the Node's terminal arrives (POL-11). Reached: the slot
/// is returned without the terminal and [`crate::Counters::cancel_bound_reached`] rises.
pub const CANCEL_BOUND: Duration = Duration::from_secs(10);

/// Lease records that may exist at once, settled or not. The Edge sizes the queue that carries dropped leases by it,
/// so that no lease's return can be lost. Reached: requests wait in the queue although a slot may be free.
pub const LEASES_MAX: usize = 65_536;

/// Connections remembered after they lost their Node ID or were closed, so that what they still say is answered as
/// stale (REG-7). Reached: the oldest is forgotten; what it says then is judged like that of an unregistered
/// connection, which is refused or superseding as any other.
pub const RETIRED_MAX: usize = 4_096;

/// First wait before an overlaid provider is probed (CAP-3); each further wait is twice the one before, at most
/// [`PROBE_WAIT_MAX`].
pub const PROBE_WAIT_MIN: Duration = Duration::from_secs(5);

/// Longest wait between two probes of a provider (CAP-3).
pub const PROBE_WAIT_MAX: Duration = Duration::from_secs(60);

/// Providers that one request avoids (POL-8), as many as may have failed it. Reached: the oldest are candidates as if they
/// had not failed.
pub const AVOIDED_MAX: usize = 4;

/// Events that a [`crate::record::Recorder`] keeps at least, once there were that many; it keeps at most twice as many.
/// Reached: the machine is copied, and what is older than the copy before is forgotten.
pub const RECORDED_MAX: usize = 10_000;

/// Bytes of text in the events of half a recording: twice this is the most that texts of peers can take of it. Reached:
/// as if [`RECORDED_MAX`] were reached.
pub const RECORDED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Pending requests, and lease records, that a detailed snapshot lists. Reached: the younger ones are left out; the
/// totals stand beside.
pub const DETAIL_MAX: usize = 1_000;

/// Recoveries of one request, whatever was configured (SEG-1). Reached: it stays with its failure.
pub const RECOVERIES_MAX: u32 = 3;

/// Attempts of one request whose provider is told to its client. More than its recoveries make: a Node's full gate sends a
/// grant back once for each. Reached: later ones are counted and not named.
pub const ATTEMPTS_TOLD_MAX: usize = 8;
