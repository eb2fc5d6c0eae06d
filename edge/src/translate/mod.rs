//! A client of another surface at a provider that has chat completions and nothing else: its conversation as a chat completion
//! request, and the provider's answer as the pieces that every surface is written from (api.md §1.1, §3, §8). Pure.
//!
//! ```text
//!   Conversation ──request──► chat body ─ ─ ─ Node ─ ─ ─► chat answer ──answer──► Piece… Finish
//!                                                          no answer ──refusal──► ProviderError
//! ```

pub mod answer;
pub mod refusal;
pub mod request;
