//! The stream evidence gate as configured: which filters look where, and what they may do (SEG-1, SEG-2). The values of a request
//! are frozen at its start, because nothing of a [`super::Settings`] ever changes.

use std::{sync::Arc, time::Duration};

use control::config::Capabilities;

use super::capability;

/// `openai.stream_evidence_gate`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Whether requests go through the gate at all.
    pub enabled: bool,
    /// Most recoveries of one request; 0 = none.
    pub request_recoveries_max: u32,
    /// Most recoveries of one request by any one strategy, at most the above; 0 = none.
    pub strategy_recoveries_max: u32,
    /// Largest request in bytes that is kept for a recovery.
    pub snapshot_bytes_max: usize,
    /// Where this Edge runs.
    pub environment: Environment,
    /// Every configured filter, disabled ones too: a selector can switch them on.
    pub filters: Vec<Filter>,
}

/// `environment`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "names of places")]
pub enum Environment {
    Dev,
    DevCorp,
}

impl Environment {
    /// The closed set, by name.
    pub const ALL: [(&'static str, Self); 2] = [("dev", Self::Dev), ("dev-corp", Self::DevCorp)];
}

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterKind {
    /// A stream that goes round in circles.
    RepeatGuard,
    /// Output that does not keep the schema that was asked for.
    SchemaGate,
    /// An error of the provider that is known.
    ProviderError,
}

impl FilterKind {
    /// The closed set, by name.
    pub const ALL: [(&'static str, Self); 3] = [
        ("repeat_guard", Self::RepeatGuard),
        ("schema_gate", Self::SchemaGate),
        ("provider_error", Self::ProviderError),
    ];

    /// The capability that a provider needs for it unless the file names another one (PRF-7).
    #[must_use]
    pub const fn capability(self) -> Capabilities {
        match self {
            Self::RepeatGuard => capability::OUTPUT_REPEAT_GUARD,
            Self::SchemaGate => capability::OUTPUT_SCHEMA_GATE,
            Self::ProviderError => capability::OUTPUT_PROVIDER_ERROR,
        }
    }
}

/// What a filter may do with what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Enforcement {
    /// It stops the stream.
    Blocking,
    /// It is recorded and stops nothing.
    ObserveOnly,
}

impl Enforcement {
    /// The closed set, by name.
    pub const ALL: [(&'static str, Self); 2] =
        [("blocking", Self::Blocking), ("observe_only", Self::ObserveOnly)];
}

/// One of `filters`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// What it looks for.
    pub kind: FilterKind,
    /// What holds where no selector says otherwise.
    pub base: Policy,
    /// What a provider must be able to do where it blocks.
    pub capability: Capabilities,
    /// Characters that are held back until they are judged; at least 1.
    pub hold_runes: usize,
    /// Longest time that they are held back.
    pub timeout: Duration,
    /// Exceptions, in the order of the file.
    pub selectors: Vec<Selector>,
}

/// Whether a filter looks, and what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whether it looks.
    pub enabled: bool,
    /// What it may do.
    pub enforcement: Enforcement,
}

/// An exception for one place; what is `None` stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Where it holds.
    pub scope: Scope,
    /// Whether the filter looks there.
    pub enabled: Option<bool>,
    /// What it may do there.
    pub enforcement: Option<Enforcement>,
}

/// What a selector names, from the least to the most specific: that is their order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Where the Edge runs.
    Environment(Environment),
    /// One of `models[].id`.
    ModelGroup(Arc<str>),
    /// A model as its provider calls it.
    Model(Arc<str>),
    /// One of `nodes[].providers[].id`.
    Provider(Arc<str>),
}

impl Scope {
    const fn specificity(&self) -> u8 {
        match self {
            Self::Environment(_) => 0,
            Self::ModelGroup(_) => 1,
            Self::Model(_) => 2,
            Self::Provider(_) => 3,
        }
    }

    fn holds(&self, target: Target<'_>) -> bool {
        match self {
            Self::Environment(environment) => *environment == target.environment,
            Self::ModelGroup(group) => **group == *target.model_group,
            Self::Model(model) => **model == *target.model,
            Self::Provider(provider) => **provider == *target.provider,
        }
    }
}

/// What a stream is judged for. Nothing of it comes from a caller's words: the group was found by them, the rest was chosen.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Where the Edge runs.
    pub environment: Environment,
    /// The model group that was asked for.
    pub model_group: &'a str,
    /// The model as the provider calls it.
    pub model: &'a str,
    /// The provider.
    pub provider: &'a str,
}

impl Filter {
    /// What holds at `target`: the most specific selector that names it wins, separately for whether the filter looks and for
    /// what it may do.
    #[must_use]
    pub fn policy_at(&self, target: Target<'_>) -> Policy {
        let mut policy = self.base;
        let mut found = [None::<u8>; 2];
        for selector in self.selectors.iter().filter(|selector| selector.scope.holds(target)) {
            let specificity = Some(selector.scope.specificity());
            if let Some(enabled) = selector.enabled.filter(|_| specificity > found[0]) {
                (policy.enabled, found[0]) = (enabled, specificity);
            }
            if let Some(enforcement) = selector.enforcement.filter(|_| specificity > found[1]) {
                (policy.enforcement, found[1]) = (enforcement, specificity);
            }
        }
        policy
    }
}

impl Gate {
    /// The gate of a file that says nothing of it.
    #[must_use]
    pub const fn off() -> Self {
        Self {
            enabled: false,
            request_recoveries_max: 3,
            strategy_recoveries_max: 3,
            snapshot_bytes_max: 16 * 1024 * 1024,
            environment: Environment::Dev,
            filters: Vec::new(),
        }
    }

    /// What a provider must be able to do for `target`: of active blocking filters alone.
    #[must_use]
    pub fn needed_at(&self, target: Target<'_>) -> Capabilities {
        let blocks = |filter: &&Filter| {
            let policy = filter.policy_at(target);
            policy.enabled && policy.enforcement == Enforcement::Blocking
        };
        let active = self.filters.iter().filter(|_| self.enabled).filter(blocks);
        active.fold(capability::NONE, |all, filter| capability::union(all, filter.capability))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(scope: Scope, enabled: Option<bool>, enforcement: Option<Enforcement>) -> Selector {
        Selector { scope, enabled, enforcement }
    }

    fn filter(enabled: bool, selectors: Vec<Selector>) -> Filter {
        Filter {
            kind: FilterKind::RepeatGuard,
            base: Policy { enabled, enforcement: Enforcement::Blocking },
            capability: FilterKind::RepeatGuard.capability(),
            hold_runes: 500,
            timeout: Duration::from_secs(5),
            selectors,
        }
    }

    fn target(provider: &str) -> Target<'_> {
        Target { environment: Environment::Dev, model_group: "qwen3", model: "Qwen/Qwen3", provider }
    }

    // req: SEG-2
    #[test]
    fn the_more_specific_selector_wins_in_any_order_of_the_file() {
        let scopes = [
            Scope::Environment(Environment::Dev),
            Scope::ModelGroup("qwen3".into()),
            Scope::Model("Qwen/Qwen3".into()),
            Scope::Provider("p".into()),
        ];
        for (i, less) in scopes.iter().enumerate() {
            for more in &scopes[i + 1..] {
                let pair =
                    [selector(less.clone(), Some(true), None), selector(more.clone(), Some(false), None)];
                for order in [[0, 1], [1, 0]] {
                    let selectors = order.map(|at| pair[at].clone()).to_vec();
                    assert!(!filter(true, selectors).policy_at(target("p")).enabled, "{less:?} {more:?}");
                }
            }
        }
    }

    // req: SEG-2
    #[test]
    fn selectors_adjust_enablement_and_enforcement_apart_and_only_where_they_hold() {
        let selectors = vec![
            selector(Scope::Provider("p".into()), None, Some(Enforcement::ObserveOnly)),
            selector(Scope::ModelGroup("qwen3".into()), Some(true), None),
            selector(Scope::Environment(Environment::DevCorp), Some(false), None),
        ];
        let off = filter(false, selectors);
        let policy = off.policy_at(target("p"));
        assert_eq!(policy, Policy { enabled: true, enforcement: Enforcement::ObserveOnly });
        let policy = off.policy_at(target("q"));
        assert_eq!(policy, Policy { enabled: true, enforcement: Enforcement::Blocking });
        let elsewhere = Target { model_group: "llama", ..target("q") };
        assert!(!off.policy_at(elsewhere).enabled);
    }

    // req: SEG-2, PRF-7
    #[test]
    fn only_active_blocking_filters_ask_for_a_capability() {
        let mut gate = Gate {
            enabled: true,
            request_recoveries_max: 3,
            strategy_recoveries_max: 3,
            snapshot_bytes_max: 1,
            environment: Environment::Dev,
            filters: vec![filter(
                true,
                vec![
                    selector(Scope::Provider("watched".into()), None, Some(Enforcement::ObserveOnly)),
                    selector(Scope::Provider("off".into()), Some(false), None),
                ],
            )],
        };
        assert_eq!(gate.needed_at(target("p")), capability::OUTPUT_REPEAT_GUARD);
        assert_eq!(gate.needed_at(target("watched")), capability::NONE);
        assert_eq!(gate.needed_at(target("off")), capability::NONE);
        gate.enabled = false;
        assert_eq!(gate.needed_at(target("p")), capability::NONE);
    }
}
