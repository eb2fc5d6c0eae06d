//! The multiplexed link between Edge and Node: one side's machine and its driver, the same code for both sides.
//!
//! ```text
//!             ┌────────────────────────── Link (driver) ──────────────────────────┐
//!  socket ───▶│ Session.receive ─▶ Decoder ─▶ Message ─▶ Mux.handle ─▶ Handler     │──▶ owner
//!  socket ◀───│ Session.send ◀─ Mux.poll_transmit ◀─ queues of control and streams │◀── LinkHandle
//!             └────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! | Module | Owns | Pure |
//! |---|---|---|
//! | [`mux`] | streams of one link: classes, turns, credit, sequence numbers | yes |
//! | [`credit`] | what a frame costs and both ends of a stream's window (WIR-6) | yes |
//! | [`sequence`] | whether what arrives on a stream is a response at all (TUN-2) | yes |
//! | [`heartbeat`] | when to ask and when to give up (HBT-1 to HBT-3) | yes |
//! | [`close`] | the closed list of reasons a link ends | yes |
//! | [`link`] | reads, writes, timers and the order of the end | driver |
//! | [`handshake`] | a socket to an authenticated session | driver |
//!
//! Outbound there are three classes, in this order: heartbeats, control messages with credit, streams. Streams take
//! turns, so that none waits for more than one turn of each other stream that has both data and credit.

pub mod close;
pub mod credit;
pub mod handshake;
pub mod heartbeat;
pub mod link;
pub mod mux;
mod outbox;
pub mod sequence;
mod streams;

#[cfg(test)]
mod tests;

pub use close::CloseReason;
pub use credit::cost;
pub use handshake::{Established, HandshakeError, accept, connect};
pub use heartbeat::HeartbeatTimes;
pub use link::{Handler, Link, LinkHandle, LinkLimits};
pub use mux::{Incoming, LinkFault, Mux, MuxLimits, MuxStats, OpenError, StreamFault};
pub use outbox::QueueError;
pub use sequence::Violation;
pub use streams::ByNumber;
