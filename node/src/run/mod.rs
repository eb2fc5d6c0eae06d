//! Executions: what every run owns, from the request to its one terminal.
//!
//! | Module | Owns |
//! |---|---|
//! | [`control`] | the runs of a session, and what they can be told |
//! | [`assembly`] | bodies and inputs that come in parts, and the memory they may take |
//! | [`tunnel`] | one tunnel: body, deadline, cancel, terminal |
//! | [`normalized`] | one normalized run, the same way |
//! | [`output`] | what a run says, within its credit |
//! | [`watchdog`] | when an execution has stalled, and what follows from it; pure |
//! | [`supervise`] | the watchdog's driver: what stops an execution, and when its terminal leaves |
//! | [`stall`] | what a stall tells: its terminal, and the observer before it |
//! | [`pulse`] | the time, cheap enough for every event |
//! | [`abort`] | the wait for a provider's return from a run that was stopped |
//! | [`terminal`] | exactly one terminal and a freed gate, whatever ends a run |

pub mod abort;
pub mod assembly;
pub mod control;
pub mod normalized;
pub mod output;
pub mod pulse;
pub mod stall;
pub mod supervise;
pub mod terminal;
pub mod tunnel;
pub mod watchdog;
