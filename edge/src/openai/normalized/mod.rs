//! Normalized runs: what a client's request means to a native backend, and what the backend's events mean to the client.
//!
//! ```text
//!   chat body ──input──► RunInput ─ ─ ─ Node ─ ─ ─► RunEvent ──answer──► Piece… Finish ──chat──► bytes
//! ```
//! `input` and `chat` are of one surface; a further surface is a sibling of each over the same [`proto::run_input::RunInput`]
//! and the same [`answer::Piece`]s.

pub mod answer;
pub mod chat;
pub mod input;
pub mod restore;
mod wire;
