//! The decision machine of the Edge: registry, queue, leases, overlay.
//!
//! Pure: it is handed time and validated values and gives effects back. It performs no I/O, reads no clock, draws no
//! randomness and iterates no randomly ordered map, so the same inputs give the same effects.
//!
//! | Module | Owns |
//! |---|---|
//! | [`input`], [`effect`] | every fact that can enter, every action that can leave |
//! | [`config`] | the policy snapshot decisions are made by |
//! | [`machine`] | the contract of [`Machine`] and one handler file for each family of inputs |
//! | [`counters`] | monotonic counts for metrics |
//! | [`record`] | a machine that remembers its inputs, dumps of them, and running them again |
//! | [`recovery`] | the owner of one request's liveness: whether a failed attempt may be followed by another |
//! | `fault` | deliberate mistakes for the simulation to find; not without their feature |
//! | [`limits`] | every bound and constant wait |
//! | `registry`, `queue`, `lease`, `overlay`, `timer` | sub-machines: they change their own state and return values; only `machine` emits effects |
#![no_std]

extern crate alloc;

/// Whether a deliberate mistake is made here; `false`, and no code, without the feature.
#[cfg(feature = "planted-faults")]
macro_rules! planted {
    ($fault:ident) => {
        $crate::fault::is($crate::fault::Fault::$fault)
    };
}
#[cfg(not(feature = "planted-faults"))]
macro_rules! planted {
    ($fault:ident) => {
        false
    };
}

pub mod config;
pub mod counters;
pub mod effect;
#[cfg(feature = "planted-faults")]
pub mod fault;
pub mod input;
mod lease;
pub mod limits;
pub mod machine;
mod overlay;
mod pairs;
mod queue;
pub mod record;
pub mod recovery;
mod registry;
mod timer;

pub use counters::Counters;
pub use limits::LEASES_MAX;
pub use machine::Machine;
