//! Resolving `openai.model_routes`: models that go to an adapter directly (CFG-4, POL-12).

use std::{collections::HashMap, sync::Arc, time::Duration};

use control::config;

use super::{
    context::{Context, ID_BYTES_MAX, MODEL_BYTES_MAX, quoted},
    models::Groups,
    node::Fleet,
    provider::REQUEST_TIMEOUT_MS_DEFAULT,
};
use crate::config::{
    nearest::hint,
    place::{Place, Typed},
    typed,
};

/// Most direct routes.
const ROUTES_MAX: usize = 4096;

/// One route, whose attribution id may still be the surface's.
pub(super) struct Route {
    model: Arc<str>,
    adapter: Arc<str>,
    target: Arc<str>,
    provider: Option<Arc<str>>,
}

impl Route {
    /// For control, with the attribution id of routes that have none of their own.
    pub(super) fn policy(&self, fallback: &Arc<str>) -> config::Route {
        config::Route {
            model: Arc::clone(&self.model),
            adapter: Arc::clone(&self.adapter),
            target: Arc::clone(&self.target),
            provider: Arc::clone(self.provider.as_ref().unwrap_or(fallback)),
            // The Node's own default holds (STL-2).
            stall_timeout: Duration::ZERO,
            request_timeout: Duration::from_millis(REQUEST_TIMEOUT_MS_DEFAULT.unsigned_abs()),
        }
    }
}

pub(super) fn resolve(
    context: &mut Context<'_>,
    fleet: &Fleet,
    groups: &Groups,
    list: &typed::List<typed::ModelRoute>,
) -> Vec<Route> {
    const PATH: &str = "openai.model_routes";
    let Some(list) = list else { return Vec::new() };
    if list.value.len() > ROUTES_MAX {
        context.error(list.at, PATH, format!("expected at most {ROUTES_MAX} routes"));
        return Vec::new();
    }
    let mut models: HashMap<String, usize> = HashMap::new();
    let mut routes = Vec::new();
    for (index, entry) in list.value.iter().enumerate() {
        let path = |key: &str| format!("{PATH}[{index}].{key}");
        let (typed, at) = (&entry.value, entry.at);
        let model = context.id(typed.model.as_ref(), at, &path("model"), MODEL_BYTES_MAX);
        if let Some(model) = &model {
            let at = place(typed.model.as_ref(), at);
            if let Some(group) = groups.models.iter().position(|group| *group.id == **model) {
                let message = format!("models[{group}] has the same name: one model goes one way");
                context.error(at, path("model"), message);
            }
            if let Some(first) = models.insert(model.clone(), index) {
                context.error(at, path("model"), format!("{PATH}[{first}] has the same name"));
            }
        }
        let adapter = context.id(typed.adapter.as_ref(), at, &path("adapter"), ID_BYTES_MAX);
        if let (Some(adapter), Some(key)) = (&adapter, &typed.adapter) {
            check_adapter(context, fleet, adapter, (key, &path("adapter")));
        }
        let target = context.id(typed.target.as_ref(), at, &path("target"), MODEL_BYTES_MAX);
        // Left out it is the surface's; typed it must say something.
        let own = typed.provider_id.as_ref();
        let provider = own.and_then(|_| context.id(own, at, &path("provider_id"), ID_BYTES_MAX));
        if let (Some(model), Some(adapter), Some(target)) = (model, adapter, target) {
            routes.push(Route {
                model: model.into(),
                adapter: adapter.into(),
                target: target.into(),
                provider: provider.map(Arc::from),
            });
        }
    }
    routes
}

/// The adapter must be one that a Node is told of: its exact name, enabled, and with the address and size that it has from
/// its providers.
fn check_adapter(context: &mut Context<'_>, fleet: &Fleet, name: &str, (key, path): (&Typed<String>, &str)) {
    let found = || fleet.adapters().filter(|adapter| adapter.name == name);
    let message = if found().any(|adapter| adapter.is_told()) {
        return;
    } else if found().any(|adapter| adapter.enabled) {
        format!(
            "no provider is on adapter {}: expected one that has its address and capacity from nodes[].providers",
            quoted(key)
        )
    } else if found().next().is_some() {
        format!("adapter {} is disabled on every node", quoted(key))
    } else {
        let hint = hint(name, fleet.adapters().map(|adapter| adapter.name.as_str()));
        format!("no adapter of nodes[].adapters has name {}{hint}", quoted(key))
    };
    context.error(key.at, path, message);
}

fn place(key: Option<&Typed<String>>, parent: Place) -> Place {
    key.map_or(parent, |key| key.at)
}
