//! What depends on other values: defaults that are none of the table's, and earlier forms written in today's.

use proto::message::AdapterSettings;

use super::{
    Source, profiles,
    yaml::{Entry, Shown, quoted},
};
use crate::config::{
    capability,
    expand::{escape, expand},
    settings::{Node, Provider},
    tree::Item,
};

/// Other names of `openai_compat` (CFG-9).
const ALIASES: [&str; 2] = ["seulgivibe_claude", "seulgivibe_openai"];

/// Completes `root`, which holds every key of the table.
pub(super) fn all(root: &mut Entry, source: &Source<'_>) {
    process(root, source);
    openai(root, source);
    queue(root, source);
    profiles::all(root, source);
    for model in root.at(&["models"]).map(Entry::items_mut).into_iter().flatten() {
        if let Some(mut id) = model.get("id").cloned() {
            id.origin = "the id".to_owned();
            model.set_empty("display_name", id);
        }
    }
    let nodes = root.at(&["nodes"]).map(Entry::items_mut).into_iter().flatten();
    for (index, shown) in nodes.enumerate() {
        let typed = source.root.value.get("nodes").and_then(|nodes| nodes.value.items().get(index));
        let (Some(typed), Some(settings)) = (typed, source.settings.nodes.get(index)) else { continue };
        node(shown, typed, settings, source);
    }
}

fn process(root: &mut Entry, source: &Source<'_>) {
    let settings = source.settings;
    if let Some(edge) = root.at(&["edge"]).filter(|_| !settings.edge.cpus.is_empty()) {
        edge.set("shards", Entry::number(settings.edge.cpus.len(), "one for each of edge.cpus"));
    }
    if let Some(limits) = root.at(&["limits"]) {
        limits.set_empty("body_memory_bytes", Entry::number(settings.limits.body_memory, "default"));
    }
    if let Some((listen, socket)) = root.at(&["listen"]).zip(settings.listen.admin_socket.as_ref()) {
        let text = escape(&socket.to_string_lossy());
        listen.set_empty("admin_socket", Entry::text(&text, "RUNTIME_DIRECTORY"));
    }
}

fn openai(root: &mut Entry, source: &Source<'_>) {
    let settings = &source.settings.openai;
    let Some(openai) = root.at(&["openai"]) else { return };
    let own = openai.get("provider_id").cloned().unwrap_or_else(Entry::missing);
    for route in openai.at(&["model_routes"]).map(Entry::items_mut).into_iter().flatten() {
        route.set_empty("provider_id", Entry::new(own.value.clone(), "openai.provider_id"));
    }
    let Some(gate) = openai.at(&["stream_evidence_gate"]) else { return };
    let most = Entry::number(settings.gate.strategy_recoveries_max, "max_request_fault_recovery");
    gate.set_empty("max_strategy_fault_recovery", most);
    let filters = gate.at(&["filters"]).map(Entry::items_mut).into_iter().flatten();
    for (shown, filter) in filters.zip(&settings.gate.filters) {
        let mut known = capability::ALL.iter().chain(&capability::OUTPUT);
        if let Some((name, _)) = known.find(|(_, bit)| *bit == filter.capability) {
            shown.set_empty("capability", Entry::text(name, "default"));
        }
    }
}

/// One queue policy for all (CFG-8); what providers say beside it counts for nothing.
fn queue(root: &mut Entry, source: &Source<'_>) {
    let pool = &source.settings.pool;
    let is_old = |item: &Item| {
        let providers = item.value.get("providers").map_or(&[][..], |list| list.value.items());
        providers.iter().any(|provider| {
            provider.value.get("max_queue").is_some() || provider.value.get("queue_timeout_ms").is_some()
        })
    };
    let nodes = source.root.value.get("nodes").map_or(&[][..], |list| list.value.items());
    if source.root.value.get("provider_pool").is_none()
        && nodes.iter().any(is_old)
        && let Some(shown) = root.at(&["provider_pool"])
    {
        let origin = "earlier form: the queue settings of the providers";
        let wait = pool.queue_timeout.map_or(0, |wait| wait.as_millis());
        shown.set("max_queue", Entry::number(pool.queue_max, origin));
        shown.set("queue_timeout_ms", Entry::number(wait, origin));
    }
}

fn node(shown: &mut Entry, typed: &Item, settings: &Node, source: &Source<'_>) {
    let mut addresses = Vec::new();
    for adapter in shown.at(&["adapters"]).map(Entry::items_mut).into_iter().flatten() {
        addresses.push(adapter_of_today(adapter));
    }
    let providers = shown.at(&["providers"]).map(Entry::items_mut).into_iter().flatten();
    for (shown, settings_of) in providers.zip(&settings.providers) {
        provider(shown, settings_of, settings, (&addresses, source));
    }
    if typed.value.get("adapters").is_some_and(|item| !item.value.entries().is_empty()) {
        for adapter in shown.at(&["adapters"]).map(Entry::items_mut).into_iter().flatten() {
            if let Some(kind) = adapter.get_mut("type") {
                kind.origin = format!("earlier form: {}", kind.origin);
            }
        }
    }
}

/// Completes an adapter; returns its name and address as they are written.
fn adapter_of_today(shown: &mut Entry) -> (String, Option<Shown>) {
    let kind = shown.get("type").cloned().unwrap_or_else(Entry::missing);
    shown.set_empty("name", Entry::new(kind.value.clone(), "its type"));
    let alias = alias(&kind);
    if let Some(alias) = alias {
        shown.set("type", Entry::text("openai_compat", format!("{alias} is another name of it")));
    }
    let label = alias.map_or_else(|| kind.value.clone(), |alias| Shown::Scalar(alias.to_owned()));
    let name = written(shown, "name");
    let Some(settings) = shown.get_mut("settings") else { return (name, None) };
    // Only an alias is said here: without one the first provider's may still decide.
    if alias.is_some() {
        settings.set_empty("provider", Entry::new(label, "the type as it was typed"));
    }
    one_address(settings);
    let address = settings.get("base_url").filter(|url| !url.is_empty()).map(|url| url.value.clone());
    (name, address)
}

fn provider(
    shown: &mut Entry,
    settings: &Provider,
    node: &Node,
    (addresses, source): (&[(String, Option<Shown>)], &Source<'_>),
) {
    shown.set("max_queue", Entry::missing());
    shown.set("queue_timeout_ms", Entry::missing());
    if let Some(mut capacity) = shown.get("capacity").cloned() {
        capacity.origin = "capacity".to_owned();
        shown.set_empty("long_context_capacity", capacity);
    }
    let kind = shown.get("type").cloned().unwrap_or_else(Entry::missing);
    if let Some(alias) = alias(&kind) {
        shown.set("type", Entry::text("openai_compat", format!("{alias} is another name of it")));
        if let Some(label) = label(node, &settings.adapter) {
            shown.set_empty(
                "provider",
                Entry::text(&escape(label), "the type as it was typed, or the adapter"),
            );
        }
    }
    // The adapter may be named by its type, which may have been written in another way before.
    let adapter = written(shown, "adapter");
    if !settings.adapter.is_empty() && source.expanded(&adapter).as_deref() != Some(&settings.adapter) {
        let name = Entry::text(&escape(&settings.adapter), format!("the only one of type {adapter}"));
        shown.set("adapter", name);
    }
    if !settings.profile.is_empty() {
        shown.set_empty("profile", Entry::text(&escape(&settings.profile), "by type"));
    }
    one_address(shown);
    let of_adapter =
        addresses.iter().find(|(name, _)| source.expanded(name).as_deref() == Some(&settings.adapter));
    let address = match of_adapter {
        Some((name, Some(url))) => Some(Entry::new(url.clone(), format!("adapter {name}"))),
        _ => profiles::address(&settings.profile, source),
    };
    if let Some(address) = address {
        shown.set_empty("base_url", address);
    }
}

/// Two names of one thing are written as one.
fn one_address(shown: &mut Entry) {
    if let Some(endpoint) = shown.get("endpoint").filter(|endpoint| !endpoint.is_empty()).cloned() {
        shown.set_empty("base_url", endpoint);
        shown.set("endpoint", Entry::text("", "as base_url"));
    }
}

/// The label that an adapter has on its Node.
fn label<'a>(node: &'a Node, adapter: &str) -> Option<&'a str> {
    let adapter = node.payload.adapters.iter().find(|it| it.name == adapter)?;
    match &adapter.settings {
        AdapterSettings::OpenAiCompat(config) => Some(&config.provider_label),
        _ => None,
    }
}

fn alias(kind: &Entry) -> Option<&'static str> {
    ALIASES.into_iter().find(|alias| kind.value == Shown::Scalar(quoted(alias)))
}

/// The text of a scalar, without the quotes that it is written with.
fn written(shown: &Entry, key: &str) -> String {
    match shown.get(key).map(|entry| &entry.value) {
        Some(Shown::Scalar(text)) => {
            let document = crate::config::tree::read(&format!("k: {text}\n"));
            let text = document.ok().and_then(|root| Some(root.value.get("k")?.value.text()?.to_owned()));
            text.unwrap_or_default()
        }
        _ => String::new(),
    }
}

impl Source<'_> {
    /// A text as the loader takes it.
    pub(super) fn expanded(&self, text: &str) -> Option<String> {
        expand(text, self.env).ok().map(std::borrow::Cow::into_owned)
    }
}
