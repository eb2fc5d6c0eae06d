//! What a Node says of a provider's health, read once more by the rules of STL-5, HND-2 and CAP-1.

use std::collections::BTreeMap;

use control::effect::ProviderHealth;
use proto::message::{ErrorKind, ExecutionError};

type Fields = BTreeMap<String, String>;

fn field<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).map_or("", String::as_str)
}

fn number(fields: &Fields) -> Option<u64> {
    let number: u64 = field(fields, "health_observation_seq").parse().ok()?;
    // Nothing but the one way to write it.
    (number > 0 && field(fields, "health_observation_seq") == number.to_string()).then_some(number)
}

/// Health and number of a validated and bound stall.
pub(super) fn of_stall(error: &ExecutionError, adapter: &str, target: &str) -> Option<(ProviderHealth, u64)> {
    let failure = error.failure.as_ref().filter(|_| error.kind == ErrorKind::Stalled)?;
    let said = &failure.metadata;
    if failure.failure_code != "response_stalled"
        || field(said, "adapter") != adapter
        || field(said, "target") != target
    {
        return None;
    }
    let pairs = [
        (ProviderHealth::Available, "available", "request_stalled"),
        (ProviderHealth::Unavailable, "unavailable", "provider_unhealthy"),
        (ProviderHealth::Unknown, "unknown", "health_unknown"),
    ];
    let pair = (field(said, "provider_health"), field(said, "liveness_classification"));
    let (health, ..) = pairs.into_iter().find(|(_, health, class)| pair == (*health, *class))?;
    Some((health, number(said)?))
}

/// The number of an answer that says that exactly this is available.
pub(super) fn of_answer(said: &Fields, adapter: &str, target: &str) -> Option<u64> {
    let fits = field(said, "adapter_key") == adapter
        && field(said, "target") == target
        && field(said, "provider_status") == "available";
    if fits { number(said) } else { None }
}
