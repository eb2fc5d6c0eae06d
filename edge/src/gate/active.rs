//! Which filters look at one attempt, and what they may do (SEG-2).

use std::time::Duration;

use crate::config::gate::{Enforcement, FilterKind, Gate, Target};

/// A filter of text at one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// What it may do.
    pub enforcement: Enforcement,
    /// Characters that are held back until they are judged.
    pub hold_runes: usize,
    /// Longest time that they are held back.
    pub timeout: Duration,
}

impl Looks {
    /// Whether it stops what it finds.
    #[must_use]
    pub fn blocks(self) -> bool {
        self.enforcement == Enforcement::Blocking
    }
}

/// The filters of one attempt. Nothing of a configuration in force changes, so they are those of the request's start (SEG-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Active {
    /// Looks at what a provider says of its failure.
    pub provider_error: Option<Enforcement>,
    /// Looks for output that goes round in circles.
    pub repeat: Option<Looks>,
    /// Looks whether output keeps its schema.
    pub schema: Option<Looks>,
}

impl Active {
    /// Those of `gate` at `target`; none of a gate that is off.
    #[must_use]
    pub fn at(gate: &Gate, target: Target<'_>) -> Self {
        let mut active = Self::default();
        if !gate.enabled {
            return active;
        }
        for filter in &gate.filters {
            let policy = filter.policy_at(target);
            if !policy.enabled {
                continue;
            }
            let looks = Looks {
                enforcement: policy.enforcement,
                hold_runes: filter.hold_runes,
                timeout: filter.timeout,
            };
            match filter.kind {
                FilterKind::ProviderError => active.provider_error = Some(policy.enforcement),
                FilterKind::RepeatGuard => active.repeat = Some(looks),
                FilterKind::SchemaGate => active.schema = Some(looks),
            }
        }
        active
    }

    /// Whether an answer may be gone on with by another attempt (SEG-5).
    #[must_use]
    pub fn continues(&self) -> bool {
        self.repeat.is_some_and(Looks::blocks)
    }

    /// Whether what a provider says of its failure may send the request elsewhere.
    #[must_use]
    pub fn judges_errors(&self) -> bool {
        self.provider_error == Some(Enforcement::Blocking)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::gate::{Environment, Filter, Policy, Scope, Selector};

    // req: SEG-2, SEG-7
    #[test]
    fn filters_are_active_where_the_gate_and_they_are_on_and_what_they_may_do_is_the_places() {
        let filter = |kind: FilterKind, enabled| Filter {
            kind,
            base: Policy { enabled, enforcement: Enforcement::Blocking },
            capability: kind.capability(),
            hold_runes: 7,
            timeout: Duration::from_secs(1),
            selectors: vec![Selector {
                scope: Scope::Provider("watched".into()),
                enabled: Some(true),
                enforcement: Some(Enforcement::ObserveOnly),
            }],
        };
        let filters = vec![filter(FilterKind::ProviderError, true), filter(FilterKind::RepeatGuard, false)];
        let mut gate = Gate { enabled: true, filters, ..Gate::off() };
        let target =
            |provider| Target { environment: Environment::Dev, model_group: "g", model: "m", provider };
        let active = Active::at(&gate, target("p"));
        assert!(active.judges_errors() && active.repeat.is_none() && active.schema.is_none());
        let watched = Active::at(&gate, target("watched"));
        assert!(!watched.judges_errors());
        assert_eq!(watched.provider_error, Some(Enforcement::ObserveOnly));
        let looks =
            Looks { enforcement: Enforcement::ObserveOnly, hold_runes: 7, timeout: Duration::from_secs(1) };
        assert_eq!(watched.repeat, Some(looks));
        gate.enabled = false;
        assert_eq!(Active::at(&gate, target("p")), Active::default());
    }
}
