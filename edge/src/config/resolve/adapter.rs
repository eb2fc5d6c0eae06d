//! Resolving `nodes[].adapters`: instances, and what the providers on them ask of them.

use proto::message::{AdapterConfig, AdapterSettings, Header, OpenAiCompatConfig};

use super::{
    context::{Context, ID_BYTES_MAX},
    headers,
    provider::{Kind, Provider, Upstream, base_url},
};
use crate::config::{
    place::{Place, Typed},
    typed,
};

/// Most adapter instances of one Node.
const ADAPTERS_MAX: usize = 256;

/// One adapter instance.
pub(super) struct Adapter {
    pub(super) name: String,
    pub(super) enabled: bool,
    pub(super) base_url: Option<String>,
    pub(super) headers: Vec<Header>,
    kind: Option<Kind>,
    label: Option<String>,
    /// What its first provider needs, that provider's position, and the label that comes of both.
    upstream: Option<(Upstream, usize, String)>,
    /// Sum of its providers' slots (GAT-2).
    capacity: u32,
}

impl Adapter {
    /// Whether its Node is told of it: a provider has given it address and size, and it is not switched off.
    pub(super) fn is_told(&self) -> bool {
        self.enabled && self.upstream.is_some()
    }

    /// Its type; `None` for a wrong one, which has been reported.
    pub(super) fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// Whether `name` is its type, as typed or as an alias is normalized.
    pub(super) fn has_type(&self, name: &str) -> bool {
        self.kind.is_some_and(|kind| kind.as_str() == name || kind.normalized().as_str() == name)
    }
}

/// The adapters of one Node.
pub(super) fn resolve(
    context: &mut Context<'_>,
    list: &typed::Opt<typed::Adapters>,
    node: usize,
) -> Vec<Adapter> {
    let Some(list) = list else { return Vec::new() };
    if list.value.0.len() > ADAPTERS_MAX {
        let message = format!("expected at most {ADAPTERS_MAX} adapters");
        context.error(list.at, format!("nodes[{node}].adapters"), message);
    }
    let mut adapters: Vec<Adapter> = Vec::new();
    for (index, entry) in list.value.0.iter().enumerate().take(ADAPTERS_MAX) {
        let path = |key: &str| format!("nodes[{node}].adapters[{index}].{key}");
        let typed = &entry.value;
        let kind = context.required_word(typed.r#type.as_ref(), entry.at, &path("type"), &Kind::ALL).ok();
        // Without a name it is the single instance of its type (CFG-12).
        let named = typed.name.as_ref().filter(|key| !key.value.is_empty());
        let name = match named {
            Some(key) => context.id(Some(key), key.at, &path("name"), ID_BYTES_MAX),
            None => kind.map(|kind| kind.as_str().to_owned()),
        };
        if let Some(first) = name.as_ref().and_then(|name| adapters.iter().position(|it| it.name == *name)) {
            let at = named.map_or(entry.at, |key| key.at);
            context.error(
                at,
                path("name"),
                format!("nodes[{node}].adapters[{first}] has the same name: expected one of its own"),
            );
        }
        let default = typed::AdapterSettings::default();
        let settings = typed.settings.as_ref().map_or(&default, |settings| &settings.value);
        let own =
            base_url(context, settings.base_url.as_ref(), settings.endpoint.as_ref(), &path("settings"));
        adapters.push(Adapter {
            name: name.unwrap_or_default(),
            enabled: typed.enabled.as_ref().is_none_or(|enabled| enabled.value),
            base_url: own.unwrap_or_default(),
            headers: headers::resolve(context, settings.headers.as_ref(), &path("settings.headers")),
            kind,
            label: context.label(settings.provider.as_ref(), &path("settings.provider")),
            upstream: None,
            capacity: 0,
        });
    }
    adapters
}

/// Gives the adapter what the provider needs of it. One instance has one set of settings, so its providers must agree.
pub(super) fn attach(
    context: &mut Context<'_>,
    adapters: &mut [Adapter],
    provider: &Provider,
    (position, entry): (usize, &Typed<typed::Provider>),
    path: &str,
) {
    let Some(adapter) = provider.adapter.and_then(|adapter| adapters.get_mut(adapter)) else { return };
    adapter.capacity = adapter.capacity.saturating_add(provider.capacity);
    let Some(upstream) = &provider.upstream else { return };
    match &adapter.upstream {
        None => {
            let label = label(adapter, upstream, provider.kind);
            adapter.upstream = Some((upstream.clone(), position, label));
        }
        Some((first, _, label)) if agrees(first, label, upstream) => {}
        Some((_, first, _)) => {
            let typed = &entry.value;
            let at = [typed.profile.as_ref(), typed.base_url.as_ref(), typed.endpoint.as_ref()];
            let at: Option<Place> = at.into_iter().flatten().map(|key| key.at).next();
            let (others, key) = match upstream {
                Upstream::Tunnel { .. } => ("profile, address, label or headers", "profile"),
                Upstream::Native(AdapterSettings::Cli(_)) => {
                    ("command, args, env, mode or output_format", "command")
                }
                Upstream::Native(_) => ("address or context_size", "base_url"),
            };
            let message = format!(
                "adapter `{}` also serves providers[{first}], which has another {others}: give each an adapter of its own",
                adapter.name
            );
            context.error(at.unwrap_or(entry.at), format!("{path}.{key}"), message);
        }
    }
}

/// Whether one set of settings serves both. A provider without a label of its own takes what there is.
fn agrees(first: &Upstream, label: &str, other: &Upstream) -> bool {
    match (first, other) {
        (
            Upstream::Tunnel { profile, headers, .. },
            Upstream::Tunnel { profile: other, headers: fields, label: own },
        ) => profile == other && headers == fields && own.as_ref().is_none_or(|own| own == label),
        (first, other) => first == other,
    }
}

/// The label of an adapter: of its first provider, its own, an alias that was typed for the type, or the type (CFG-9).
fn label(adapter: &Adapter, upstream: &Upstream, kind: Option<Kind>) -> String {
    let alias_of = |kind: Option<Kind>| kind.filter(|kind| kind.normalized() != *kind);
    let kind = alias_of(adapter.kind).or_else(|| alias_of(kind)).or(adapter.kind);
    let of_provider = match upstream {
        Upstream::Tunnel { label, .. } => label.clone(),
        Upstream::Native(_) => None,
    };
    let own = of_provider.or_else(|| adapter.label.clone());
    own.unwrap_or_else(|| kind.map_or("", Kind::as_str).to_owned())
}

/// An adapter that no provider uses is left out: there is nothing it could be asked to do.
pub(super) fn config(adapter: &Adapter) -> Option<AdapterConfig> {
    let (upstream, _, label) = adapter.upstream.as_ref()?;
    let settings = match upstream {
        Upstream::Tunnel { profile, headers, .. } => AdapterSettings::OpenAiCompat(OpenAiCompatConfig {
            provider_label: label.clone(),
            profile: profile.clone(),
            headers: headers.clone(),
        }),
        Upstream::Native(settings) => settings.clone(),
    };
    Some(AdapterConfig {
        name: adapter.name.clone(),
        enabled: adapter.enabled,
        capacity: adapter.capacity,
        settings,
    })
}
