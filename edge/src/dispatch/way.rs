//! How a request runs at what was granted. No client can choose it (POL-7), and selection does not look at it (POL-2).

use control::effect::Grant;
use proto::message::Operation;

use crate::{
    config::{Settings, capability},
    surface::Surface,
};

/// The three ways, the best one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As the client asks, at a provider that speaks its language.
    Raw,
    /// As a run, at a backend with a language of its own.
    Normalized,
    /// As a chat completion that the Edge writes, at a provider that has nothing closer.
    Translated,
}

impl Way {
    /// The best way; `None` for what stands behind a direct route and has none. Of pool candidates control has seen to it.
    pub(super) fn of(settings: &Settings, grant: &Grant, surface: Surface) -> Option<Self> {
        if settings.is_native(grant) {
            return Some(Self::Normalized);
        }
        let has = |operation| match settings.provider(&grant.provider).filter(|_| !grant.direct) {
            // A profile may leave out what its server has.
            Some((_, provider)) => provider.capabilities.covers(capability::of_operation(operation)),
            None => settings.offers(grant, operation),
        };
        if has(surface.operation()) {
            Some(Self::Raw)
        } else {
            has(Operation::ChatCompletions).then_some(Self::Translated)
        }
    }
}
