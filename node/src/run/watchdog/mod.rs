//! The activity watchdog of an execution, one for runs and tunnels (STL-3). Pure: time and observations in, effects out.
//!
//! | Module | Owns |
//! |---|---|
//! | [`activity`] | when the provider last made progress, and what counts as progress |
//! | [`comments`] | whether a piece of an event stream is more than comments |
//! | [`machine`] | from the claim of an execution to its one terminal and the provider's return |
//! | [`timeout`] | which timeouts there are (STL-1) |

pub mod activity;
pub mod comments;
pub mod machine;
pub mod timeout;

pub use activity::{Activity, Progress};
pub use machine::{Effects, Fence, Observation, Outcome, Seen, Stall, Watchdog};
