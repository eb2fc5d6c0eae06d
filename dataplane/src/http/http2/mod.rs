//! HTTP/2 (RFC 9113) for clients: one connection, many requests at a time.
//!
//! The `h2` crate has the protocol: frames, HPACK, windows, the states of streams. Here is what stands around it. [`Server`] drives
//! one connection and gives each stream as a [`server::Connection`](super::server::Connection), whose owner need not know by
//! which protocol its request came; a task of its own answers each. `wire` lies below the crate, carries its bytes and sees the
//! head of every frame, for `flood` to judge; `exchange` is a stream's end, `head` translates heads.
//!
//! ```text
//! socket <-> wire <-> h2 <-> Server (one task)  -- Connection --> a task for each stream
//!              \ frames -> flood                \ <-- data, resets --/
//! ```

mod body;
mod exchange;
mod flood;
mod frames;
mod head;
mod limits;
mod piece;
mod server;
#[cfg(test)]
mod tests;
mod wire;

pub(super) use exchange::{Exchange, Stream};
pub use frames::ErrorCode;
pub use limits::Http2Limits;
pub use server::{Ending, Notice, Server};

/// The beginning of the client's preface (RFC 9113 section 3.4), which HTTP/1 would take for a head.
pub(super) const PREFACE_HEAD: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";
