//! The Anthropic surface: its requests as conversations, answers as its messages (api.md §1.4). Pure.
//!
//! ```text
//!   Messages body ──request──► Conversation ─ ─ ─ backend ─ ─ ─► Piece… Finish ──writer──► bytes
//! ```

pub mod request;
mod wire;
pub mod writer;
