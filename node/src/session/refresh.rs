//! What a new configuration changes, and whether a running Node can take it (REF-1). Pure: compares two payloads.
//!
//! A running Node can change the size of a gate and whether an adapter or provider takes work. Everything else is built
//! when a session is established. A payload that holds both kinds of changes is not applied at all, and the answer says
//! so (CLS-5).

use std::collections::BTreeMap;

use proto::{
    limits::{REFRESH_PIECES_MAX, TEXT_BYTES_MAX},
    message::{AdapterConfig, NodeConfigPayload, ProviderConfig, RefreshOutcome, RefreshPiece},
};

/// What became of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// [`RefreshOutcome::Applied`] when the new payload can be put in place of the old one at once.
    pub outcome: RefreshOutcome,
    /// For people.
    pub reason: String,
    /// One piece per changed adapter and provider, in the order of their names, at most [`REFRESH_PIECES_MAX`].
    pub pieces: Vec<RefreshPiece>,
}

/// How one key may be changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Live,
    Restart,
}

struct Change {
    path: String,
    class: Class,
    what: String,
}

/// Compares the configuration in force with a new one.
#[must_use]
pub fn compare(old: &NodeConfigPayload, new: &NodeConfigPayload) -> Verdict {
    let mut changes = Vec::new();
    compare_sets(
        &mut changes,
        "adapters",
        by_key(&old.adapters, |adapter| &adapter.name),
        by_key(&new.adapters, |adapter| &adapter.name),
        compare_adapters,
    );
    compare_sets(
        &mut changes,
        "providers",
        by_key(&old.providers, |provider| &provider.id),
        by_key(&new.providers, |provider| &provider.id),
        compare_providers,
    );
    let restart = changes.iter().any(|change| change.class == Class::Restart);
    let (outcome, reason) = if restart {
        (
            RefreshOutcome::RestartRequired,
            "nothing was applied: the node takes these changes when it connects anew",
        )
    } else {
        (RefreshOutcome::Applied, "")
    };
    let pieces = changes.into_iter().take(REFRESH_PIECES_MAX).map(|change| piece(change, restart)).collect();
    Verdict { outcome, reason: reason.to_owned(), pieces }
}

fn piece(change: Change, restart: bool) -> RefreshPiece {
    let mut reason = change.what;
    if restart && change.class == Class::Live {
        reason.push_str("; not applied because of the other changes");
    }
    if reason.len() > TEXT_BYTES_MAX {
        reason.truncate(reason.floor_char_boundary(TEXT_BYTES_MAX));
    }
    let outcome = if restart { RefreshOutcome::RestartRequired } else { RefreshOutcome::Applied };
    RefreshPiece { path: change.path, outcome, reason }
}

fn by_key<T>(items: &[T], key: fn(&T) -> &String) -> BTreeMap<&str, &T> {
    items.iter().map(|item| (key(item).as_str(), item)).collect()
}

fn compare_sets<T>(
    changes: &mut Vec<Change>,
    set: &str,
    old: BTreeMap<&str, &T>,
    new: BTreeMap<&str, &T>,
    compare: fn(&T, &T) -> Option<Changed>,
) {
    let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).copied().collect();
    for key in keys {
        let change = match (old.get(key), new.get(key)) {
            (Some(old), Some(new)) => {
                compare(old, new).map(|(class, fields)| (class, format!("changed: {}", fields.join(", "))))
            }
            (None, Some(_)) => Some((Class::Restart, "added".to_owned())),
            (Some(_), None) => Some((Class::Restart, "removed".to_owned())),
            (None, None) => None,
        };
        if let Some((class, what)) = change {
            changes.push(Change { path: format!("{set}[{key}]"), class, what });
        }
    }
}

fn compare_adapters(old: &AdapterConfig, new: &AdapterConfig) -> Option<Changed> {
    classify(&[
        ("enabled", Class::Live, old.enabled != new.enabled),
        ("capacity", Class::Live, old.capacity != new.capacity),
        ("settings", Class::Restart, old.settings != new.settings),
    ])
}

fn compare_providers(old: &ProviderConfig, new: &ProviderConfig) -> Option<Changed> {
    classify(&[
        ("enabled", Class::Live, old.enabled != new.enabled),
        ("capacity", Class::Live, old.capacity != new.capacity),
        ("adapter", Class::Restart, old.adapter != new.adapter),
        ("category", Class::Restart, old.category != new.category),
        ("models", Class::Restart, old.models != new.models),
        (
            "response_stall_timeout_ms",
            Class::Restart,
            old.response_stall_timeout_ms != new.response_stall_timeout_ms,
        ),
        ("request_timeout_ms", Class::Restart, old.request_timeout_ms != new.request_timeout_ms),
        ("health", Class::Restart, old.health != new.health),
    ])
}

/// The names of changed fields, and the hardest class among them.
type Changed = (Class, Vec<&'static str>);

fn classify(fields: &[(&'static str, Class, bool)]) -> Option<Changed> {
    let changed: Vec<_> = fields.iter().filter(|(_, _, changed)| *changed).collect();
    let class = if changed.iter().any(|(_, class, _)| *class == Class::Restart) {
        Class::Restart
    } else {
        Class::Live
    };
    (!changed.is_empty()).then(|| (class, changed.iter().map(|(name, _, _)| *name).collect()))
}

#[cfg(test)]
mod tests {
    use proto::message::{AdapterSettings, HealthCheck, OpenAiCompatConfig};

    use super::*;

    fn payload() -> NodeConfigPayload {
        NodeConfigPayload {
            config_generation: 1,
            concurrency: 0,
            adapters: vec![AdapterConfig {
                name: "vllm-1".to_owned(),
                enabled: true,
                capacity: 4,
                settings: AdapterSettings::OpenAiCompat(OpenAiCompatConfig::default()),
            }],
            providers: vec![ProviderConfig {
                id: "box1-vllm".to_owned(),
                adapter: "vllm-1".to_owned(),
                category: "local_inference".to_owned(),
                models: vec!["qwen3".to_owned()],
                enabled: true,
                capacity: 4,
                response_stall_timeout_ms: 300_000,
                request_timeout_ms: 0,
                health: HealthCheck::default(),
            }],
        }
    }

    // req: REF-1
    #[test]
    fn capacities_and_switches_are_applied_and_anything_else_needs_a_restart() {
        type Edit = fn(&mut NodeConfigPayload);
        let table: [(Edit, RefreshOutcome, &[&str]); 11] = [
            (|new| new.config_generation = 2, RefreshOutcome::Applied, &[]),
            (|new| new.concurrency = 9, RefreshOutcome::Applied, &[]),
            (|new| new.adapters[0].capacity = 8, RefreshOutcome::Applied, &["adapters[vllm-1]"]),
            (|new| new.adapters[0].enabled = false, RefreshOutcome::Applied, &["adapters[vllm-1]"]),
            (|new| new.providers[0].enabled = false, RefreshOutcome::Applied, &["providers[box1-vllm]"]),
            (
                |new| new.adapters[0].settings = AdapterSettings::Unknown("x".to_owned()),
                RefreshOutcome::RestartRequired,
                &["adapters[vllm-1]"],
            ),
            (
                |new| new.providers[0].models.push("b".to_owned()),
                RefreshOutcome::RestartRequired,
                &["providers[box1-vllm]"],
            ),
            (|new| new.providers.clear(), RefreshOutcome::RestartRequired, &["providers[box1-vllm]"]),
            (
                |new| new.adapters[0].name = "vllm-2".to_owned(),
                RefreshOutcome::RestartRequired,
                &["adapters[vllm-1]", "adapters[vllm-2]"],
            ),
            (
                |new| new.providers[0].response_stall_timeout_ms = 1,
                RefreshOutcome::RestartRequired,
                &["providers[box1-vllm]"],
            ),
            (
                |new| new.providers[0].health.generation = true,
                RefreshOutcome::RestartRequired,
                &["providers[box1-vllm]"],
            ),
        ];
        for (index, (edit, outcome, paths)) in table.into_iter().enumerate() {
            let mut new = payload();
            edit(&mut new);
            let verdict = compare(&payload(), &new);
            assert_eq!(verdict.outcome, outcome, "row {index}");
            let found: Vec<_> = verdict.pieces.iter().map(|piece| piece.path.as_str()).collect();
            assert_eq!(found, paths, "row {index}");
        }
    }

    // req: REF-1
    #[test]
    fn a_payload_with_both_kinds_of_changes_says_of_each_piece_that_it_was_not_applied() {
        let mut new = payload();
        new.adapters[0].capacity = 8;
        new.providers[0].category = "api".to_owned();
        let verdict = compare(&payload(), &new);
        assert_eq!(verdict.outcome, RefreshOutcome::RestartRequired);
        assert!(verdict.pieces.iter().all(|piece| piece.outcome == RefreshOutcome::RestartRequired));
        assert_eq!(verdict.pieces[0].reason, "changed: capacity; not applied because of the other changes");
        assert_eq!(verdict.pieces[1].reason, "changed: category");
        assert!(verdict.reason.starts_with("nothing was applied"));
    }
}
