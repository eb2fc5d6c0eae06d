//! Health evidence as a Node sends it: text pairs, of which each must be there and fit, or nothing is believed.

use alloc::{collections::BTreeMap, string::String};

use proto::message::{ErrorKind, ExecutionError};

use crate::effect::ProviderHealth;

/// What was seen of a provider, and when: numbers rise on one connection over everything that is observed there (STL-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) health: ProviderHealth,
    pub(crate) sequence: u64,
}

/// What an error terminal is, as far as health goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stall {
    /// Another failure: it says nothing about health (STL-6).
    Other,
    /// It claims to be a stall, and something is missing or does not fit (HND-2).
    Rejected,
    /// A validated and bound stall (HND-3).
    Bound(Observation),
}

/// Reads the terminal of a run that was dispatched to `adapter` and `target`.
pub(crate) fn stall(error: &ExecutionError, adapter: &str, target: &str) -> Stall {
    let Some(failure) = &error.failure else {
        return if error.kind == ErrorKind::Stalled { Stall::Rejected } else { Stall::Other };
    };
    let fields = &failure.metadata;
    let is_stall = error.kind == ErrorKind::Stalled && failure.failure_code == "response_stalled";
    let is_ours =
        is(fields, "adapter", adapter) && (is(fields, "target", target) || planted!(WrongTargetBelieved));
    match (pair(fields), sequence(fields)) {
        (Some(health), Some(sequence)) if is_stall && is_ours => {
            Stall::Bound(Observation { health, sequence })
        }
        _ => Stall::Rejected,
    }
}

/// Reads the answer to a CAPABILITIES command for `adapter` and `target` (CAP-1). `adapter` and `instance_key` of an answer
/// are for people and not looked at.
pub(crate) fn answer(fields: &BTreeMap<String, String>, adapter: &str, target: &str) -> Option<Observation> {
    if !is(fields, "adapter_key", adapter) || !is(fields, "target", target) {
        return None;
    }
    let health = match fields.get("provider_status")?.as_str() {
        "available" => ProviderHealth::Available,
        "unavailable" => ProviderHealth::Unavailable,
        "unknown" => ProviderHealth::Unknown,
        _ => return None,
    };
    Some(Observation { health, sequence: sequence(fields)? })
}

fn is(fields: &BTreeMap<String, String>, key: &str, value: &str) -> bool {
    fields.get(key).is_some_and(|found| found == value)
}

/// The closed three (STL-5).
fn pair(fields: &BTreeMap<String, String>) -> Option<ProviderHealth> {
    match (fields.get("provider_health")?.as_str(), fields.get("liveness_classification")?.as_str()) {
        ("available", "request_stalled") => Some(ProviderHealth::Available),
        ("unavailable", "provider_unhealthy") => Some(ProviderHealth::Unavailable),
        ("unknown", "health_unknown") => Some(ProviderHealth::Unknown),
        _ => None,
    }
}

/// A positive decimal number in its only spelling: digits, no sign, no leading zero.
fn sequence(fields: &BTreeMap<String, String>) -> Option<u64> {
    let text = fields.get("health_observation_seq")?;
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    if plain { text.parse().ok() } else { None }
}
