//! The data plane: thread-per-core shards and everything that moves bytes on them.
//!
//! It knows sockets, frames, streams and credit. It does not know what a lease, model or tenant is.

pub mod clock;
pub mod drain;
pub mod http;
pub mod local;
pub mod mailbox;
pub mod net;
pub mod relay;
pub mod shard;
pub mod time;
pub mod tls;
