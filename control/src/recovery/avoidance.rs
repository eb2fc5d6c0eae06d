//! Who failed this request (POL-8).

use alloc::{sync::Arc, vec::Vec};

use crate::{input::Avoided, limits::AVOIDED_MAX};

/// Remembered until the request ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Avoidance(Vec<Avoided>);

impl Avoidance {
    /// Notes that a provider failed. One that may once not have it back never may again.
    pub(super) fn add(&mut self, provider: &Arc<str>, allow_fallback: bool) {
        if let Some(known) = self.0.iter_mut().find(|known| known.provider == *provider) {
            known.allow_fallback &= allow_fallback;
            return;
        }
        if self.0.len() == AVOIDED_MAX {
            self.0.remove(0);
        }
        self.0.push(Avoided { provider: provider.clone(), allow_fallback });
    }

    pub(super) fn list(&self) -> Vec<Avoided> {
        self.0.clone()
    }
}
