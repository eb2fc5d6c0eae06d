//! One request from admission to settlement: a pure machine (`attempt`) and the driver that does its I/O (`session`).

mod attempt;
mod downstream;
mod json_end;
mod keepalive;
mod native;
mod observer;
pub mod reading;
pub mod session;
#[cfg(test)]
mod tests;
mod wait;

pub use session::{Ended, Plan, run};
