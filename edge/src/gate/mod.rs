//! The stream evidence gate: what a provider says is looked at before its client gets it (SEG). Everything here is without I/O.

pub mod active;
pub mod hold;
pub mod provider_error;
pub mod reading;
pub mod rebuild;
pub mod recorder;
pub mod repeat;
pub mod schema;
