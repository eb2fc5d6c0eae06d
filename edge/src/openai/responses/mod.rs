//! OpenAI's Responses API (api.md §1.2): what a request asks for, and an answer in its form.
//!
//! ```text
//!   body ──request──► Conversation ─ ─ ─ a backend ─ ─ ─► Piece… Finish ──writer──► bytes
//!             └─► Echo, Names ──────────────────────────────────────────────┘
//! ```
//! An answer repeats much of its request ([`Echo`]), and calls tools by the names that the client has for them ([`Names`]).
//! Nothing is stored: what names an earlier response is refused.

mod echo;
mod names;
pub mod request;
mod wire;
pub mod writer;

pub use echo::Echo;
pub use names::{CallForm, Called, Names};
