//! Resolving `openai.stream_evidence_gate`.

use std::{collections::HashSet, sync::Arc};

use super::{
    context::{Context, ID_BYTES_MAX, MODEL_BYTES_MAX, quoted},
    models::Groups,
    node::Fleet,
};
use crate::config::{
    capability,
    gate::{Enforcement, Environment, Filter, FilterKind, Gate, Policy, Scope, Selector, Target},
    nearest::hint,
    place::{Place, Typed},
    typed::{self, StreamEvidenceGate},
};

const PATH: &str = "openai.stream_evidence_gate";
/// Most recoveries of one request (SEG-1).
const RECOVERIES_MAX: i64 = 3;
/// Largest request that is kept for a recovery, and the default (SEG-1).
const SNAPSHOT_BYTES_MAX: i64 = 16 * 1024 * 1024;
/// Characters held back when the file does not say (SEG-2).
const HOLD_RUNES_DEFAULT: u64 = 500;
/// Most of them: what is held costs memory for each stream.
const HOLD_RUNES_MAX: i64 = 1_048_576;
/// Longest time of holding back in milliseconds when the file does not say (SEG-2).
const TIMEOUT_MS_DEFAULT: u64 = 5000;
/// Longest that may be asked for: one day.
const TIMEOUT_MS_MAX: i64 = 86_400_000;
/// Most selectors of one filter.
const SELECTORS_MAX: usize = 1024;

/// What exists, for selectors to name.
pub(super) struct Known<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) groups: &'a Groups,
}

pub(super) fn resolve(context: &mut Context<'_>, typed: &StreamEvidenceGate, known: &Known<'_>) -> Gate {
    let key = |key: &str| format!("{PATH}.{key}");
    let request = context.count(
        typed.max_request_fault_recovery.as_ref(),
        &key("max_request_fault_recovery"),
        0..=RECOVERIES_MAX,
        RECOVERIES_MAX,
    );
    let most = i64::try_from(request).unwrap_or(RECOVERIES_MAX);
    let strategy = context.count(
        typed.max_strategy_fault_recovery.as_ref(),
        &key("max_strategy_fault_recovery"),
        0..=most,
        most,
    );
    let snapshot = context.count(
        typed.max_ingress_snapshot_bytes.as_ref(),
        &key("max_ingress_snapshot_bytes"),
        0..=SNAPSHOT_BYTES_MAX,
        0,
    );
    let snapshot = if snapshot == 0 { SNAPSHOT_BYTES_MAX.unsigned_abs() } else { snapshot };
    let environment = context.word(typed.environment.as_ref(), &key("environment"), &Environment::ALL);
    let mut filters: Vec<Filter> = Vec::new();
    for (index, entry) in typed.filters.iter().flat_map(|list| list.value.iter()).enumerate() {
        let path = format!("{PATH}.filters[{index}]");
        let Some(filter) = filter(context, entry, known, &path) else { continue };
        if filters.iter().any(|other| other.kind == filter.kind) {
            let at = entry.value.filter.as_ref().map_or(entry.at, |key| key.at);
            context.error(
                at,
                format!("{path}.filter"),
                "this filter stands here a second time: expected each once",
            );
        } else {
            filters.push(filter);
        }
    }
    Gate {
        enabled: typed.enabled.as_ref().is_some_and(|key| key.value),
        request_recoveries_max: u32::try_from(request).unwrap_or(0),
        strategy_recoveries_max: u32::try_from(strategy).unwrap_or(0),
        snapshot_bytes_max: usize::try_from(snapshot).unwrap_or(usize::MAX),
        environment: environment.ok().flatten().unwrap_or(Environment::Dev),
        filters,
    }
}

/// Leaves out of each model the providers of which a blocking filter cannot look into the output: they are no candidates of it
/// (SEG-2). What is needed differs by provider, because selectors do.
pub(super) fn admit(gate: &Gate, groups: &mut Groups, fleet: &Fleet) {
    if !gate.enabled {
        return;
    }
    for group in &mut groups.groups {
        let id = Arc::clone(&group.id);
        group.members.retain(|member| {
            let needed = gate.needed_at(Target {
                environment: gate.environment,
                model_group: &id,
                model: &member.target,
                provider: &member.provider,
            });
            fleet.provider(&member.provider).is_none_or(|provider| provider.abilities().covers(needed))
        });
    }
}

/// One filter; `None` when it is not told which, which has been reported.
fn filter(
    context: &mut Context<'_>,
    entry: &Typed<typed::Filter>,
    known: &Known<'_>,
    path: &str,
) -> Option<Filter> {
    let typed = &entry.value;
    let key = |key: &str| format!("{path}.{key}");
    let kind = context.required_word(typed.filter.as_ref(), entry.at, &key("filter"), &FilterKind::ALL).ok();
    let enforcement = context.word(typed.enforcement.as_ref(), &key("enforcement"), &Enforcement::ALL);
    let capabilities: Vec<_> = capability::ALL.into_iter().chain(capability::OUTPUT).collect();
    let capability = context.word(typed.capability.as_ref(), &key("capability"), &capabilities);
    let or_default = |value: u64, default| if value == 0 { default } else { value };
    let hold =
        context.count(typed.hold_evidence_runes.as_ref(), &key("hold_evidence_runes"), 0..=HOLD_RUNES_MAX, 0);
    let timeout = context.count(typed.timeout_ms.as_ref(), &key("timeout_ms"), 0..=TIMEOUT_MS_MAX, 0);
    let selectors = selectors(context, &typed.selectors, known, &key("selectors"));
    let kind = kind?;
    Some(Filter {
        kind,
        base: Policy {
            enabled: typed.enabled.as_ref().is_none_or(|key| key.value),
            enforcement: enforcement.ok().flatten().unwrap_or(Enforcement::Blocking),
        },
        capability: capability.ok().flatten().unwrap_or(kind.capability()),
        hold_runes: usize::try_from(or_default(hold, HOLD_RUNES_DEFAULT)).unwrap_or(usize::MAX),
        timeout: std::time::Duration::from_millis(or_default(timeout, TIMEOUT_MS_DEFAULT)),
        selectors,
    })
}

fn selectors(
    context: &mut Context<'_>,
    list: &typed::List<typed::Selector>,
    known: &Known<'_>,
    path: &str,
) -> Vec<Selector> {
    let Some(list) = list else { return Vec::new() };
    if list.value.len() > SELECTORS_MAX {
        context.error(list.at, path, format!("expected at most {SELECTORS_MAX} selectors"));
        return Vec::new();
    }
    let mut seen = HashSet::new();
    let mut selectors = Vec::new();
    for (index, entry) in list.value.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let typed = &entry.value;
        let enforcement =
            context.word(typed.enforcement.as_ref(), &format!("{path}.enforcement"), &Enforcement::ALL);
        let enforcement = enforcement.ok().flatten();
        let enabled = typed.enabled.as_ref().map(|key| key.value);
        let Some(scope) = scope(context, entry, known, &path) else { continue };
        if enabled.is_none() && typed.enforcement.is_none() {
            context.error(
                entry.at,
                path,
                "expected `enabled`, `enforcement` or both: this selector changes nothing",
            );
        } else if seen.insert(scope.clone()) {
            selectors.push(Selector { scope, enabled, enforcement });
        } else {
            context.error(entry.at, path, "a selector before this one names the same: expected one for each");
        }
    }
    selectors
}

/// What a selector names: exactly one thing, and one that exists.
fn scope(
    context: &mut Context<'_>,
    entry: &Typed<typed::Selector>,
    known: &Known<'_>,
    path: &str,
) -> Option<Scope> {
    let typed = &entry.value;
    let keys = [
        ("environment", &typed.environment),
        ("model_group", &typed.model_group),
        ("model", &typed.model),
        ("provider", &typed.provider),
    ];
    let given = keys.into_iter().filter_map(|(name, key)| {
        let key = key.as_ref().filter(|key| !key.value.is_empty())?;
        Some((name, key))
    });
    let given: Vec<_> = given.collect();
    let [(name, key)] = given.as_slice() else {
        let message = format!(
            "expected exactly one of environment, model_group, model and provider, found {}",
            if given.is_empty() { "none".to_owned() } else { given.len().to_string() }
        );
        context.error(entry.at, path, message);
        return None;
    };
    let path = format!("{path}.{name}");
    if *name == "environment" {
        let word = context.word(Some(key), &path, &Environment::ALL);
        return word.ok().flatten().map(Scope::Environment);
    }
    let bytes_max = if *name == "provider" { ID_BYTES_MAX } else { MODEL_BYTES_MAX };
    let text = context.id(Some(key), key.at, &path, bytes_max)?;
    let names: Vec<&str> = match *name {
        "model_group" => known.groups.models.iter().map(|model| &*model.id).collect(),
        "model" => known.groups.targets().collect(),
        _ => known.fleet.provider_ids().collect(),
    };
    if !names.contains(&text.as_str()) && known.fleet.is_complete() {
        let what = match *name {
            "model_group" => "no model of models[] has id",
            "model" => "no provider of a model calls it",
            _ => "no provider of nodes[].providers has id",
        };
        unknown(context, key, path, what, names);
        return None;
    }
    Some(match *name {
        "model_group" => Scope::ModelGroup(text.into()),
        "model" => Scope::Model(text.into()),
        _ => Scope::Provider(text.into()),
    })
}

fn unknown(context: &mut Context<'_>, key: &Typed<String>, path: String, what: &str, names: Vec<&str>) {
    let at: Place = key.at;
    let hint = hint(&key.value, names);
    context.error(at, path, format!("{what} {}{hint}", quoted(key)));
}
