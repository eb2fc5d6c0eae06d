//! Requests made anew: to go on with an answer, or to have one again that keeps its schema.

use super::{recorder::Recorded, schema::Mismatch};
use crate::surface::Surface;

/// Why a request is not made anew (of `control::recovery`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ineligible {
    /// It asks for what cannot be put together from two answers, or cannot be read.
    Unsupported,
    /// Nobody knows how much the model can take.
    ContextUnknown,
    /// It would be more than the model can take.
    ContextExceeded,
}

/// The request that goes on with an answer: the conversation, what was said so far, and a fixed directive. `ordinal` counts the
/// continuations of this request from 1; `context_window_tokens` is that of the model when the request began.
///
/// # Errors
/// [`Ineligible::Unsupported`], [`Ineligible::ContextUnknown`], [`Ineligible::ContextExceeded`].
pub fn continuation(
    _surface: Surface,
    _body: &[u8],
    _recorded: &Recorded,
    _ordinal: u32,
    _context_window_tokens: Option<u64>,
) -> Result<Vec<u8>, Ineligible> {
    Err(Ineligible::Unsupported)
}

/// The request that asks once more for an answer that keeps its schema: the conversation, the answer that did not, and a fixed
/// directive that says what did not fit.
///
/// # Errors
/// [`Ineligible::Unsupported`].
pub fn schema_repair(
    _surface: Surface,
    _body: &[u8],
    _invalid: &str,
    _why: &Mismatch,
) -> Result<Vec<u8>, Ineligible> {
    Err(Ineligible::Unsupported)
}
