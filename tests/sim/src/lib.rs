//! The decision machine in simulated worlds, with what judges it beside it.
//!
//! | Module | What it is |
//! |---|---|
//! | [`mod@reference`] | the machine once more, written for obviousness: it must give the same effects |
//! | [`invariants`] | invariants that hold after each step, each a named check on the oracle's own books |
//! | [`judge`] | a machine with both beside it, step by step |
//! | [`world`] | the same with a clock for tests, and configurations written as text |
//! | [`simulation`] | Nodes, links, providers, clients and the Edge's shards around it; a seed decides everything |
//! | [`recovery`] | the owner of a simulated request's liveness under judgement |
//! | [`watchdog`] | the Node's watchdog in a world of its own |
//! | [`run`] | many seeds on several threads |
//! | [`trace`], [`dump`] | inputs that broke a check, made short, and as files |

pub mod dump;
pub mod invariants;
pub mod judge;
pub mod oracle;
#[cfg(feature = "worlds")]
pub mod recovery;
pub mod reference;
pub mod rng;
#[cfg(feature = "worlds")]
pub mod run;
#[cfg(feature = "worlds")]
pub mod simulation;
pub mod trace;
#[cfg(feature = "worlds")]
pub mod watchdog;
pub mod world;

pub use oracle::Oracle;
pub use reference::Reference;
pub use world::World;
