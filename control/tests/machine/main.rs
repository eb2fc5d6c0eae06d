//! The machine from outside: scenario tables, a naive reference model under random inputs, invariants after each step.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

// The package has another name than the one its dependents give it.
extern crate iop_control as control;

mod cost;
mod direct;
mod draining;
mod fencing;
mod leases;
mod overlay;
mod queueing;
mod random;
mod record;
mod registration;
mod reload;
mod script;
mod selection;
mod snapshots;
