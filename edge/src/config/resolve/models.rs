//! Resolving `models`: what clients ask for, and who serves it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use control::config::{Group, Member};

use super::{
    context::{Context, MODEL_BYTES_MAX, quoted},
    node::Fleet,
    provider::Provider,
};
use crate::config::{
    catalog::builtin,
    nearest::hint,
    place::{Place, Typed},
    settings::{GenerationPolicy, Model, UsageAttribution},
    typed,
};

/// Most model groups.
const MODELS_MAX: usize = 4096;
/// `usage_attribution`
const ATTRIBUTIONS: [(&str, UsageAttribution); 2] =
    [("provider", UsageAttribution::Provider), ("model_group", UsageAttribution::ModelGroup)];

/// Every model of the file.
#[derive(Default)]
pub(super) struct Groups {
    /// For control.
    pub(super) groups: Vec<Group>,
    /// For the surfaces.
    pub(super) models: Vec<Model>,
    /// Models whose every provider is disabled: where, and their key path.
    pub(super) idle: Vec<(Place, String)>,
}

impl Groups {
    pub(super) fn resolve(
        context: &mut Context<'_>,
        fleet: &Fleet,
        list: &typed::List<typed::Model>,
    ) -> Self {
        let mut groups = Self::default();
        let Some(list) = list else { return groups };
        if list.value.len() > MODELS_MAX {
            context.error(list.at, "models", format!("expected at most {MODELS_MAX} models"));
            return groups;
        }
        let mut ids: HashMap<String, usize> = HashMap::new();
        for (index, typed) in list.value.iter().enumerate() {
            let path = |key: &str| format!("models[{index}].{key}");
            let id = context.id(typed.value.id.as_ref(), typed.at, &path("id"), MODEL_BYTES_MAX);
            if let Some(id) = &id
                && let Some(first) = ids.insert(id.clone(), index)
            {
                let at = typed.value.id.as_ref().map_or(typed.at, |key| key.at);
                context.error(
                    at,
                    path("id"),
                    format!("models[{first}] has the same id: expected one entry with all its providers"),
                );
            }
            groups.add(context, fleet, id.map(Arc::from), typed, index);
        }
        groups
    }

    /// Every model as a provider calls it.
    pub(super) fn targets(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().flat_map(|group| group.members.iter().map(|member| &*member.target))
    }

    fn add(
        &mut self,
        context: &mut Context<'_>,
        fleet: &Fleet,
        id: Option<Arc<str>>,
        typed: &Typed<typed::Model>,
        index: usize,
    ) {
        let at = typed.at;
        let typed = &typed.value;
        let path = |key: &str| format!("models[{index}].{key}");
        let mut tokens = |key: Option<&Typed<i64>>, name: &str| {
            Some(context.count(key, &path(name), 0..=i64::MAX, 0)).filter(|tokens| *tokens > 0)
        };
        let context_window_tokens = tokens(typed.context_window_tokens.as_ref(), "context_window_tokens");
        let generation = GenerationPolicy {
            default_max_tokens: tokens(typed.default_max_tokens.as_ref(), "default_max_tokens"),
            min_max_tokens: tokens(typed.min_max_tokens.as_ref(), "min_max_tokens"),
            default_thinking_token_budget: tokens(
                typed.default_thinking_token_budget.as_ref(),
                "default_thinking_token_budget",
            ),
        };
        let attribution =
            context.word(typed.usage_attribution.as_ref(), &path("usage_attribution"), &ATTRIBUTIONS);
        let display_name = context.label(typed.display_name.as_ref(), &path("display_name"));
        let providers = providers(context, fleet, typed, at, &path("providers"));
        let Some(id) = id else { return };
        let mut members = Vec::new();
        for (key, path, provider) in &providers {
            members.extend(member(context, &id, key, path, provider));
            check_total_context(context, &id, context_window_tokens, provider);
        }
        if !providers.is_empty() && providers.iter().all(|(_, _, provider)| !provider.enabled) {
            self.idle.push((at, path("providers")));
        }
        self.groups.push(Group { id: id.clone(), members });
        self.models.push(Model {
            display_name: display_name.map_or_else(|| id.clone(), Arc::from),
            id,
            usage_attribution: attribution.ok().flatten().unwrap_or(UsageAttribution::Provider),
            context_window_tokens,
            generation,
        });
    }
}

/// The providers that a model names, each with its place and key path.
fn providers<'a>(
    context: &mut Context<'_>,
    fleet: &'a Fleet,
    typed: &'a typed::Model,
    parent: Place,
    path: &str,
) -> Vec<(&'a Typed<String>, String, &'a Provider)> {
    let Some(list) = typed.providers.as_ref().filter(|list| !list.value.is_empty()) else {
        let at = typed.providers.as_ref().map_or(parent, |list| list.at);
        context.error(at, path, "expected the id of at least one of nodes[].providers");
        return Vec::new();
    };
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for (index, key) in list.value.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let Some(name) = context.text(Some(key), &path) else { continue };
        if let Some(provider) = fleet.provider(&name) {
            if seen.insert(name) {
                found.push((key, path, provider));
            } else {
                context.error(key.at, path, format!("provider {} is already in the list", quoted(key)));
            }
        } else if fleet.is_complete() {
            let hint = match fleet.provider_ids().next() {
                Some(_) => hint(&name, fleet.provider_ids()),
                None => "; there is no provider yet".to_owned(),
            };
            context.error(
                key.at,
                path,
                format!("no provider of nodes[].providers has id {}{hint}", quoted(key)),
            );
        }
    }
    found
}

/// The served name of the model at this provider, which must be among its models (PRF-5).
fn member(
    context: &mut Context<'_>,
    model: &str,
    key: &Typed<String>,
    path: &str,
    provider: &Provider,
) -> Option<Member> {
    let target = provider.map_model(model);
    let served = provider.served();
    if served.is_empty() {
        return None;
    }
    if !served.iter().any(|served| served == target) {
        let mapping = match &provider.profile {
            None => String::new(),
            Some(profile) if builtin(&profile.id).is_some() => {
                format!(
                    ", or map it to one by `model_mapping` in a profile of your own with `base: {}`",
                    profile.id
                )
            }
            Some(profile) => format!(", or map it to one by `model_mapping` in profile `{}`", profile.id),
        };
        let message = format!(
            "provider {} does not serve `{target}`: its models are {}; use one of these names{mapping}",
            quoted(key),
            provider.models.join(", "),
        );
        context.error(key.at, path, message);
        return None;
    }
    Some(Member { provider: provider.id.as_deref()?.into(), target: target.into() })
}

/// The budget of context must hold every long request at its longest (CFG-7); without a budget there is nothing to check.
fn check_total_context(context: &mut Context<'_>, model: &str, window: Option<u64>, provider: &Provider) {
    let (Some(window), Some((total, at, path))) = (window, &provider.total_context) else { return };
    let needed = u128::from(window) * u128::from(provider.long_capacity);
    if u128::from(*total) < needed {
        let message = format!(
            "expected at least {needed}: {window} context_window_tokens of model `{model}` × {} long_context_capacity, found {total}",
            provider.long_capacity
        );
        context.error(*at, path.as_str(), message);
    }
}
