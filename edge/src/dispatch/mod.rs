//! One request from admission to settlement: a pure machine (`attempt`) and the driver that does its I/O (`session`).
//!
//! ```text
//!   Way::Raw         body ────────────────────► tunnel ─ ─ Node ─ ─► frames ─────────────────────► client
//!   Way::Normalized  body ──reading──► input ──► run ─ ─ ─ Node ─ ─► events ──┐
//!   Way::Translated  body ──reading──► chat ───► tunnel ─ ─ Node ─ ─► frames ──┴─written, writer──► client
//! ```

mod attempt;
mod downstream;
mod held;
mod json_end;
mod keepalive;
mod observer;
mod outgoing;
pub mod reading;
mod running;
pub mod session;
#[cfg(test)]
mod tests;
mod translated;
mod wait;
mod way;
mod writer;
mod written;

pub use session::{Ended, Plan, run};
