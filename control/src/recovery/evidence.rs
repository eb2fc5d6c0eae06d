//! What can be said against an attempt, and of the request behind it.

use alloc::sync::Arc;

use super::{ErrorClass, Ineligible};
use crate::effect::Handoff;

/// What kind of resource a provider is (`category` in the configuration): what a run there may have done to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// A paid interface: a run that goes on there is billed.
    Api,
    /// A program: what it did cannot be taken back.
    Cli,
    /// An engine of one's own: a run costs time alone.
    LocalInference,
}

/// An attempt that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Provider id of the grant.
    pub provider: Arc<str>,
    /// Its category.
    pub category: Category,
    /// Whether it is of a direct route: then it is never recovered (POL-12).
    pub direct: bool,
    /// Whether the model has no other configured and enabled provider with the capabilities: then some failures may come
    /// back to this one, see [`ErrorClass::may_return_to_sole`].
    pub sole_candidate: bool,
}

/// Whether the Node is sure that the run has stopped at its provider (STL-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fence {
    /// It has.
    Confirmed,
    /// It may go on: at an `api` it may go on to cost.
    Unconfirmed,
}

/// Why an attempt is in question. Nothing of what the provider or the client said is in it (REC-2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The Node's watchdog ended it.
    Stall {
        /// The Edge's own confirmation (HND-3); `None`, or one for another provider: not confirmed.
        handoff: Option<Handoff>,
        /// The Node's.
        fence: Fence,
    },
    /// The Node's generation was fenced after the request was sent (REC-6).
    NodeLost,
    /// A blocking `provider_error` filter matched. An error that no filter matched never comes here (SEG-6).
    ProviderError {
        /// By the table of errors.
        class: ErrorClass,
    },
    /// A blocking `repeat_guard` stopped a loop.
    Repetition,
    /// A blocking `schema_gate` found that the answer is not what was asked for.
    SchemaMismatch,
}

/// What is left of the request that could be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Whether its body is still held.
    pub kept: bool,
    /// Bytes of its body, held or not.
    pub bytes: usize,
    /// Whether a continuation could be built from it and from what was recorded (SEG-5).
    pub continuation: Result<(), Ineligible>,
}
