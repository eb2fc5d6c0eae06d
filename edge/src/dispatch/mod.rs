//! One request from admission to settlement: a pure machine (`attempt`) and the driver that does its I/O (`session`).

mod attempt;
pub mod session;

pub use session::{Ended, Plan, run};
