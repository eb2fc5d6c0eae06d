//! Resolving `nodes`: adapters, providers, and what a Node is told.

use std::{collections::HashMap, sync::Arc, time::Duration};

use control::{
    config::{NodePolicy, ProviderPolicy},
    recovery::Category,
};
use proto::{
    identity::Name,
    limits::FRAME_BYTES_MAX,
    message::{Message, NodeConfigPayload, ProviderConfig, RegisterResponse},
};

use super::{
    adapter::{self, Adapter},
    context::{Context, quoted},
    listen,
    profile::Profiles,
    provider::Provider,
};
use crate::config::{
    SLOTS_MAX,
    error::LoadError,
    place::{Place, Typed},
    secret::SecretDigest,
    settings::{self, Index},
    typed,
};

/// Most Nodes.
const NODES_MAX: usize = 4096;
/// Most providers of one Node: its configuration travels in one frame.
const PROVIDERS_MAX: usize = 1024;
/// Longest second factor in bytes, as the wire bounds it.
const TOKEN_BYTES_MAX: usize = 512;

/// Every Node of the file.
pub(super) struct Fleet {
    nodes: Vec<Node>,
    /// Node and position within it.
    providers: HashMap<String, (usize, usize)>,
    generation: u64,
    /// Whether all of it could be read.
    is_read: bool,
}

/// One Node. `None` stands for a wrong value, which has been reported.
struct Node {
    at: Place,
    id: Option<Name>,
    alias: String,
    token: Option<SecretDigest>,
    concurrency: u32,
    adapters: Vec<Adapter>,
    providers: Vec<Provider>,
}

impl Fleet {
    pub(super) fn resolve(
        context: &mut Context<'_>,
        profiles: &Profiles,
        list: &typed::List<typed::Node>,
        generation: u64,
    ) -> Self {
        let is_read = !context.report.is_poisoned("nodes");
        let mut fleet = Self { nodes: Vec::new(), providers: HashMap::new(), generation, is_read };
        let Some(list) = list else { return fleet };
        if list.value.len() > NODES_MAX {
            context.error(list.at, "nodes", format!("expected at most {NODES_MAX} nodes"));
            return fleet;
        }
        let mut ids: HashMap<Name, usize> = HashMap::new();
        for (index, typed) in list.value.iter().enumerate() {
            for path in [format!("nodes[{index}]"), format!("nodes[{index}].providers")] {
                fleet.is_read &= !context.report.is_poisoned(&path);
            }
            let node = Node::resolve(context, profiles, typed, index);
            if let Some(id) = &node.id
                && let Some(first) = ids.insert(id.clone(), index)
            {
                let at = typed.value.id.as_ref().map_or(typed.at, |key| key.at);
                context.error(
                    at,
                    format!("nodes[{index}].id"),
                    format!("nodes[{first}] has the same id: expected one of its own"),
                );
            }
            fleet.nodes.push(node);
            fleet.index_providers(context, index);
        }
        fleet.check_slots(context);
        fleet
    }

    /// Provider ids are unique in the whole file (CFG-6).
    fn index_providers(&mut self, context: &mut Context<'_>, node: usize) {
        let Some(providers) = self.nodes.get(node).map(|node| &node.providers) else { return };
        for (index, provider) in providers.iter().enumerate() {
            let Some(id) = &provider.id else { continue };
            if let Some((n, p)) = self.providers.get(id) {
                let message = format!(
                    "nodes[{n}].providers[{p}] has the same id: expected one that is unique in the whole file"
                );
                context.error(provider.at, format!("nodes[{node}].providers[{index}].id"), message);
            } else {
                self.providers.insert(id.clone(), (node, index));
            }
        }
    }

    /// Every lease that can exist has its place in fixed tables, so the sum of all slots is bounded.
    fn check_slots(&self, context: &mut Context<'_>) {
        let mut slots = 0;
        for (n, node) in self.nodes.iter().enumerate() {
            for (p, provider) in node.providers.iter().enumerate() {
                let before = slots;
                slots += i64::from(provider.capacity);
                if before <= SLOTS_MAX && slots > SLOTS_MAX {
                    let message = format!(
                        "expected at most {SLOTS_MAX} slots in all providers together, this one makes {slots}"
                    );
                    context.error(provider.at, format!("nodes[{n}].providers[{p}].capacity"), message);
                }
            }
        }
    }

    /// The provider of an id.
    pub(super) fn provider(&self, id: &str) -> Option<&Provider> {
        self.locate(id).map(|(_, _, provider)| provider)
    }

    /// The same with the position of its Node, and its own on it.
    pub(super) fn locate(&self, id: &str) -> Option<(usize, usize, &Provider)> {
        let (node, provider) = *self.providers.get(id)?;
        Some((node, provider, self.at(node, provider)?))
    }

    /// The provider at this position of a Node.
    pub(super) fn at(&self, node: usize, provider: usize) -> Option<&Provider> {
        self.nodes.get(node)?.providers.get(provider)
    }

    /// Every adapter instance.
    pub(super) fn adapters(&self) -> impl Iterator<Item = &Adapter> {
        self.nodes.iter().flat_map(|node| &node.adapters)
    }

    /// Whether every provider could be read so far that its id is known. Otherwise a name that nobody has is no error of its own.
    pub(super) fn is_complete(&self) -> bool {
        self.is_read && self.nodes.iter().flat_map(|node| &node.providers).all(|it| it.id.is_some())
    }

    /// The enabled providers, with their own queue settings.
    pub(super) fn enabled_providers(&self) -> impl Iterator<Item = (&Provider, String)> {
        self.nodes.iter().enumerate().flat_map(|(n, node)| {
            let enabled = node.providers.iter().enumerate().filter(|(_, provider)| provider.enabled);
            enabled.map(move |(p, provider)| (provider, format!("nodes[{n}].providers[{p}]")))
        })
    }

    /// A warning for the first provider with queue settings of its own.
    pub(super) fn old_queue_keys(&self, is_set_for_all: bool) -> Option<LoadError> {
        let (at, n, p) = self.nodes.iter().enumerate().find_map(|(n, node)| {
            let found = node.providers.iter().enumerate().find_map(|(p, it)| Some((it.queue.0?, p)));
            found.map(|(at, p)| (at, n, p))
        })?;
        let message = if is_set_for_all {
            "max_queue and queue_timeout_ms of providers count for nothing beside provider_pool: take them away"
        } else {
            "max_queue and queue_timeout_ms now stand in provider_pool, once for all"
        };
        let path = format!("nodes[{n}].providers[{p}].max_queue");
        Some(LoadError { at, path, message: message.to_owned() })
    }

    /// Every provider id.
    pub(super) fn provider_ids(&self) -> impl Iterator<Item = &str> {
        self.providers.keys().map(String::as_str)
    }

    /// What control decides by.
    pub(super) fn policies(&self) -> Vec<NodePolicy> {
        self.nodes
            .iter()
            .filter_map(|node| {
                let providers = node.providers.iter().filter_map(policy).collect();
                let told = node.adapters.iter().filter(|adapter| adapter.is_told());
                let adapters = told.map(|adapter| adapter.name.as_str().into()).collect();
                Some(NodePolicy { id: node.id.as_ref()?.as_str().into(), providers, adapters })
            })
            .collect()
    }

    /// The Nodes as settings, and where everything is. With nothing wrong so far, what each of them is told is checked against
    /// the rules of the wire, so that no configuration loads that a Node would refuse.
    pub(super) fn into_settings(self, context: &mut Context<'_>) -> (Vec<settings::Node>, Index) {
        let mut index = Index::default();
        let mut nodes = Vec::new();
        let complete = context.report.is_empty();
        for (position, node) in self.nodes.into_iter().enumerate() {
            let node_at = node.at;
            let Some(settings) = node.into_settings(self.generation) else { continue };
            if let Some(message) = unsendable(&settings).filter(|_| complete) {
                context.error(node_at, format!("nodes[{position}]"), message);
            }
            let at = nodes.len();
            for (position, provider) in settings.providers.iter().enumerate() {
                index.providers.insert(provider.id.clone(), (at, position));
            }
            index.nodes.insert(settings.id.as_str().into(), at);
            nodes.push(settings);
        }
        (nodes, index)
    }
}

/// Why a Node's configuration cannot travel.
fn unsendable(node: &settings::Node) -> Option<String> {
    let config = NodeConfigPayload::clone(&node.payload);
    let message = Message::RegisterResponse(RegisterResponse::Accepted { node_id: node.id.clone(), config });
    if let Err(error) = message.validate() {
        return Some(format!("what this node would be told breaks a rule of the wire: {error}"));
    }
    let bytes = message.encoded_len();
    let fits = bytes <= FRAME_BYTES_MAX;
    (!fits).then(|| {
        format!("what this node would be told takes {bytes} bytes, expected at most {FRAME_BYTES_MAX}")
    })
}

fn policy(provider: &Provider) -> Option<ProviderPolicy> {
    Some(ProviderPolicy {
        id: provider.id.as_deref()?.into(),
        adapter: provider.adapter_name.as_str().into(),
        enabled: provider.enabled,
        capacity: provider.capacity,
        long_capacity: provider.long_capacity,
        priority: provider.priority,
        capabilities: provider.abilities(),
        stall_timeout: provider.stall_timeout,
        request_timeout: provider.request_timeout,
    })
}

impl Node {
    fn resolve(
        context: &mut Context<'_>,
        profiles: &Profiles,
        typed: &Typed<typed::Node>,
        index: usize,
    ) -> Self {
        let at = typed.at;
        let typed = &typed.value;
        let path = |key: &str| format!("nodes[{index}].{key}");
        let id = match typed.id.as_ref() {
            Some(key) => listen::name(context, key, &path("id")),
            None => {
                context.error(
                    at,
                    path("id"),
                    "expected the name in the Node's certificate, but the key is missing",
                );
                None
            }
        };
        let concurrency = typed.runtime.as_ref().and_then(|runtime| runtime.value.concurrency.as_ref());
        let concurrency =
            context.count(concurrency, &path("runtime.concurrency"), 0..=i64::from(u32::MAX), 0);
        let mut adapters = adapter::resolve(context, &typed.adapters, index);
        let mut providers = Vec::new();
        if let Some(list) = &typed.providers {
            if list.value.len() > PROVIDERS_MAX {
                context.error(
                    list.at,
                    path("providers"),
                    format!("expected at most {PROVIDERS_MAX} providers"),
                );
            }
            for (position, entry) in list.value.iter().enumerate().take(PROVIDERS_MAX) {
                let path = format!("nodes[{index}].providers[{position}]");
                let provider = Provider::resolve(context, profiles, &adapters, entry, &path);
                adapter::attach(context, &mut adapters, &provider, (position, entry), &path);
                providers.push(provider);
            }
        }
        Self {
            at,
            id,
            alias: context.label(typed.alias.as_ref(), &path("alias")).unwrap_or_default(),
            token: token(context, typed, &path),
            concurrency: u32::try_from(concurrency).unwrap_or(u32::MAX),
            adapters,
            providers,
        }
    }

    fn into_settings(self, generation: u64) -> Option<settings::Node> {
        let providers = self.providers.iter().filter_map(|provider| {
            Some(settings::Provider {
                id: provider.id.as_deref()?.into(),
                adapter: provider.adapter_name.as_str().into(),
                profile: provider.profile.as_ref().map_or("", |profile| &profile.id).into(),
                capabilities: provider.capabilities(),
                native: provider.is_native(),
                enabled: provider.enabled,
                generation_fields: provider
                    .profile
                    .as_ref()
                    .map(|profile| profile.generation_fields)
                    .unwrap_or_default(),
                dialect: provider.profile.as_ref().map(|profile| profile.dialect).unwrap_or_default(),
                category: category(provider.category),
            })
        });
        let payload = NodeConfigPayload {
            config_generation: generation,
            concurrency: self.concurrency,
            adapters: self.adapters.iter().filter_map(adapter::config).collect(),
            // A disabled provider that names no adapter has nothing to run on.
            providers: self
                .providers
                .iter()
                .filter(|it| it.adapter.is_some())
                .filter_map(provider_config)
                .collect(),
        };
        Some(settings::Node {
            id: self.id?,
            alias: self.alias.into(),
            token: self.token,
            payload: Arc::new(payload),
            providers: providers.collect(),
        })
    }
}

/// A word that is missing has been reported.
fn category(word: &str) -> Category {
    match word {
        "cli" => Category::Cli,
        "local_inference" => Category::LocalInference,
        _ => Category::Api,
    }
}

fn provider_config(provider: &Provider) -> Option<ProviderConfig> {
    let millis = |timeout: Duration| i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
    Some(ProviderConfig {
        id: provider.id.clone()?,
        adapter: provider.adapter_name.clone(),
        category: provider.category.to_owned(),
        models: provider.served(),
        enabled: provider.enabled,
        capacity: provider.capacity,
        response_stall_timeout_ms: millis(provider.stall_timeout),
        request_timeout_ms: millis(provider.request_timeout),
        health: provider.health.clone(),
    })
}

/// The second factor: typed, from the environment, or from a file; never quoted in a message.
fn token(
    context: &mut Context<'_>,
    typed: &typed::Node,
    path: &dyn Fn(&str) -> String,
) -> Option<SecretDigest> {
    let inline = typed.token.as_ref().filter(|key| !key.value.expose().is_empty());
    let file = typed.token_file.as_ref().filter(|key| !key.value.is_empty());
    let (token, at, path) = match (inline, file) {
        (None, None) => return None,
        (Some(_), Some(file)) => {
            context.error(file.at, path("token_file"), "expected only one of token and token_file");
            return None;
        }
        (Some(key), None) => {
            let path = path("token");
            (context.expanded(key.value.expose(), key.at, &path)?, key.at, path)
        }
        (None, Some(key)) => {
            let path = path("token_file");
            let name = context.file(Some(key), &path)?;
            match read_token(&name) {
                Ok(token) => (token, key.at, path),
                Err(error) => {
                    context.error(key.at, path, format!("cannot read {}: {error}", quoted(key)));
                    return None;
                }
            }
        }
    };
    if token.is_empty()
        || token.len() > TOKEN_BYTES_MAX
        || token.contains(|char: char| !char.is_ascii_graphic())
    {
        context.error(at, path, format!("expected 1 to {TOKEN_BYTES_MAX} visible ASCII characters"));
        return None;
    }
    Some(SecretDigest::of(&token))
}

/// The text of a token file without the line break that editors add.
fn read_token(name: &std::path::Path) -> std::io::Result<String> {
    use std::io::Read;

    let mut text = String::new();
    // One byte and a line break more than is valid, so that a longer file is seen to be too long.
    std::fs::File::open(name)?.take(TOKEN_BYTES_MAX as u64 + 3).read_to_string(&mut text)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
