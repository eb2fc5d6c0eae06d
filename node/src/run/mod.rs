//! Executions: what every run owns, from the request to its one terminal.
//!
//! | Module | Owns |
//! |---|---|
//! | [`control`] | the runs of a session, and what they can be told |
//! | [`assembly`] | the memory that large request bodies may take |
//! | [`tunnel`] | one tunnel: body, deadline, cancel, terminal |
//! | [`abort`] | the wait for a provider's return from a run that was stopped |
//! | [`terminal`] | exactly one terminal and a freed gate, whatever ends a run |

pub mod abort;
pub mod assembly;
pub mod control;
pub mod terminal;
pub mod tunnel;
