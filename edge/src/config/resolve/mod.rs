//! From what was typed to what it means: defaults, rules, references. Every check goes on after an error, so that one load
//! reports everything that is wrong; the order is the order of the page in `docs/configuration.md`.

mod adapter;
pub(super) mod context;
mod gate;
mod headers;
mod listen;
mod models;
mod native;
mod node;
mod openai;
mod profile;
mod provider;
mod routes;
mod warnings;

use std::{path::PathBuf, sync::Arc, time::Duration};

use control::config::PoolConfig;

use self::{context::Context, gate::Known, models::Groups, node::Fleet, profile::Profiles};
use super::{
    error::LoadErrors,
    place::{Place, Typed},
    settings::Settings,
    typed::{EdgeFile, Opt, ProviderPool},
    unavailable,
};

/// Bound of the queue when the file has none (POL-5).
const MAX_QUEUE_DEFAULT: i64 = 16;
/// Largest bound of the queue.
const MAX_QUEUE_MAX: i64 = 65_536;
/// Bound of a wait when the file has none (POL-5).
const QUEUE_TIMEOUT_MS_DEFAULT: i64 = 30_000;
/// Longest wait: one day.
const QUEUE_TIMEOUT_MS_MAX: i64 = 86_400_000;
/// Estimated input tokens that make a request long when the file has none (POL-4).
const LONG_CONTEXT_THRESHOLD_DEFAULT: i64 = 100_000;

/// What the file means.
pub(super) fn resolve(
    mut context: Context<'_>,
    file: &EdgeFile,
    source: PathBuf,
    generation: u64,
) -> Result<Settings, LoadErrors> {
    let context_mut = &mut context;
    let edge = listen::edge(context_mut, &section(&file.edge));
    let (listen, listeners) = listen::listen(context_mut, &section(&file.listen), place(&file.listen));
    let identity = listen::identity(context_mut, &section(&file.identity));
    let limits = listen::limits(context_mut, &section(&file.limits));
    let logging = listen::logging(context_mut, &section(&file.logging));
    let advertise = listen::advertise(context_mut, &section(&file.bootstrap));
    let openai_typed = section(&file.openai);
    let mut openai = openai::surface(context_mut, &openai_typed);
    let principals = openai::principals(context_mut, &openai_typed);
    let profiles_typed = file.protocol_profiles.as_ref().map(|typed| &typed.value);
    openai::one_credential(context_mut, &openai_typed, profiles_typed);
    let long_context_threshold_tokens = context_mut.count(
        file.long_context_threshold_tokens.as_ref(),
        "long_context_threshold_tokens",
        1..=i64::MAX,
        LONG_CONTEXT_THRESHOLD_DEFAULT,
    );
    let queue = file.provider_pool.as_ref().map(|typed| queue(context_mut, &typed.value));
    let profiles = Profiles::resolve(context_mut, profiles_typed);
    let fleet = Fleet::resolve(context_mut, &profiles, &file.nodes, generation);
    let (queue_max, queue_timeout) = policy(queue.unwrap_or_else(|| promoted(context_mut, &fleet)));
    let mut groups = Groups::resolve(context_mut, &fleet, &file.models);
    let routes = routes::resolve(context_mut, &fleet, &groups, &openai_typed.model_routes);
    let known = Known { fleet: &fleet, groups: &groups };
    openai.gate = gate::resolve(context_mut, &section(&openai_typed.stream_evidence_gate), &known);
    gate::admit(&openai.gate, &mut groups, &fleet);
    unavailable::check(file, &mut context.report);
    openai.provider_id = openai::attribution(
        &mut context,
        &openai_typed,
        (place(&file.openai), file.openai.is_some()),
        openai.enabled,
    );

    let nobody_may_call = openai.enabled && principals.is_empty();
    let mut warnings = warnings::all(nobody_may_call, place(&file.openai), &fleet, &groups);
    warnings.extend(fleet.old_queue_keys(file.provider_pool.is_some()));
    let pool = PoolConfig {
        generation,
        queue_max,
        queue_timeout,
        nodes: fleet.policies(),
        groups: groups.groups,
        routes: routes.iter().map(|route| route.policy(&openai.provider_id)).collect(),
    };
    let (nodes, mut index) = fleet.into_settings(&mut context);
    index.models = groups.models.iter().enumerate().map(|(at, model)| (model.id.clone(), at)).collect();
    index.routes = pool.routes.iter().map(|route| route.model.clone()).collect();
    let settings = Settings {
        generation,
        source: source.clone(),
        listeners,
        warnings,
        edge,
        listen,
        identity,
        limits,
        logging,
        metrics_enabled: switched_on(
            file.metrics.as_ref().and_then(|metrics| metrics.value.enabled.as_ref()),
        ),
        advertise,
        openai,
        principals,
        long_context_threshold_tokens,
        pool: Arc::new(pool),
        models: groups.models,
        nodes,
        index,
    };
    context.report.finish(source, settings)
}

/// The section, or an empty one when it is missing.
fn section<T: Clone + Default>(typed: &Opt<T>) -> T {
    typed.as_ref().map(|typed| typed.value.clone()).unwrap_or_default()
}

/// Where a section stands; the start of the file when it is missing.
fn place<T>(typed: &Opt<T>) -> Place {
    typed.as_ref().map_or(Place::START, |typed| typed.at)
}

fn switched_on(key: Option<&Typed<bool>>) -> bool {
    key.is_none_or(|enabled| enabled.value)
}

/// The queue's bound and wait in milliseconds, as `provider_pool` has them.
fn queue(context: &mut Context<'_>, typed: &ProviderPool) -> (i64, i64) {
    let max = context.integer(typed.max_queue.as_ref(), "provider_pool.max_queue", 0..=MAX_QUEUE_MAX, 0);
    let timeout = context.integer(
        typed.queue_timeout_ms.as_ref(),
        "provider_pool.queue_timeout_ms",
        0..=QUEUE_TIMEOUT_MS_MAX,
        QUEUE_TIMEOUT_MS_DEFAULT,
    );
    (max, timeout)
}

/// Queue policy (POL-5): a bound of 0 is the default one, a wait of 0 no bound of the wait.
fn policy((max, timeout): (i64, i64)) -> (usize, Option<Duration>) {
    let max = if max == 0 { MAX_QUEUE_DEFAULT } else { max };
    let timeout = Duration::from_millis(timeout.unsigned_abs());
    (usize::try_from(max).unwrap_or(usize::MAX), Some(timeout).filter(|timeout| !timeout.is_zero()))
}

/// The queue policy of a file that has none for all: what every enabled provider says, a missing value being the default. There is
/// one queue, so two answers are none.
fn promoted(context: &mut Context<'_>, fleet: &Fleet) -> (i64, i64) {
    let default = (MAX_QUEUE_DEFAULT, QUEUE_TIMEOUT_MS_DEFAULT);
    if fleet.enabled_providers().all(|(provider, _)| provider.queue.0.is_none()) {
        return default;
    }
    let mut all = fleet.enabled_providers().map(|(provider, path)| {
        let (at, max, timeout) = provider.queue;
        ((max, timeout), at.unwrap_or(provider.at), path)
    });
    let Some((first, _, first_path)) = all.next() else { return default };
    if let Some((other, at, path)) = all.find(|(other, _, _)| *other != first) {
        let message = format!(
            "max_queue and queue_timeout_ms are {} and {} here, but {} and {} at {first_path}, and there is one queue for all: \
             take them away everywhere and write `provider_pool: {{ max_queue: …, queue_timeout_ms: … }}`",
            other.0, other.1, first.0, first.1
        );
        context.error(at, format!("{path}.max_queue"), message);
    }
    first
}
