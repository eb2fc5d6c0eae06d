//! The Edge: accepts clients and Nodes, decides who runs what, and relays.
//!
//! `boot` is the wiring; `connection` → `dispatch` → `link` is a request's way; `control_loop` is the one place where the
//! decision machine meets the data plane.

pub mod admin;
pub mod anthropic;
pub mod boot;
pub mod config;
pub mod connection;
pub mod control_loop;
pub mod conversation;
pub mod dispatch;
pub mod gate;
pub mod https;
mod intake;
pub mod lease;
pub mod link;
pub mod log_line;
pub mod logging;
pub mod mail;
pub mod marks;
pub mod metrics;
pub mod openai;
pub mod ops;
pub mod pki;
pub mod provider_auth;
pub mod reply;
pub mod request_id;
pub mod requests;
pub mod response;
pub mod revocation;
pub mod shard_state;
pub mod surface;
pub mod token;
pub mod translate;
pub mod usage;
