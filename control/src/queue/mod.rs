//! The bounded waiting line: who waits, in which order, and which of them are worth a look when a slot becomes free.
//!
//! It knows no provider and no time: whether a request can run now is asked of the caller. The bound itself is policy
//! and is kept by `machine`; the queue only counts.

mod line;
mod ticket;
mod waiting;

pub(crate) use ticket::{Ticket, TicketNo, Waiting};
pub(crate) use waiting::Queue;
