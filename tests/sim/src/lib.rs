//! The decision machine from outside, with what judges it beside it.
//!
//! | Module | What it is |
//! |---|---|
//! | [`reference`] | the machine once more, written for obviousness: it must give the same effects |
//! | [`oracle`] | invariants that hold after each step, checked from inputs and effects alone |
//! | [`world`] | a machine with a clock and an oracle, and configurations written as text |
//!
//! For tests and simulations: a check that does not hold panics.

pub mod oracle;
pub mod reference;
pub mod world;

pub use oracle::Oracle;
pub use reference::Reference;
pub use world::World;
