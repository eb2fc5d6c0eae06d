//! The commands of an operator to a running Edge: the Unix socket that the Edge serves them on, and their own end of it.
//!
//! The socket's file is its only guard: mode 0600, so that nobody but the user the Edge runs as (and root) can open it.

pub mod client;
pub mod node;
mod page;
pub mod socket;
pub mod status;
mod table;
