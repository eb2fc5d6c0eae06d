//! Leases: the Edge's hold on one slot of one provider for one run.
//!
//! The table guarantees that a slot is handed back exactly once, whatever order the Node's terminal, fencing, the
//! holder's departure and the cancel bound come in. It counts no slots itself: each transition returns the slot that
//! became free, and the pool counts. A direct lease goes through the same life and holds no slot.

mod state;
mod table;

pub(crate) use state::{Binding, Hold, Lease, Slot, State};
pub(crate) use table::{Gone, Leases, Settled};
