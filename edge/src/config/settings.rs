//! What a configuration means: validated, complete, immutable. Shared by `Arc`; nothing here is ever edited.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use control::{
    config::{Capabilities, PoolConfig},
    effect::Grant,
    recovery::Category,
};
use dataplane::tls::server::MinVersion;
use proto::{
    identity::Name,
    message::{AdapterSettings, NodeConfigPayload, Operation, ProtocolProfile},
};

use super::{
    catalog::Driver, dialect::ChatDialect, error::LoadError, gate::Gate, generation::GenerationFields,
    place::Place, secret::SecretDigest,
};
use crate::{surface::cors::Cors, token::PrincipalToken};

/// One configuration generation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Generation of the configuration; the first load of a process is 1.
    pub generation: u64,
    /// The file it was loaded from.
    pub source: PathBuf,
    /// Where the addresses of `listen` were typed, with their key paths; defaults stand where their section does.
    pub listeners: Vec<(SocketAddr, Place, String)>,
    /// Things that are right but surely not meant, for the log at start.
    pub warnings: Vec<LoadError>,
    /// `edge`
    pub edge: EdgeSettings,
    /// `listen`
    pub listen: Listen,
    /// `identity`
    pub identity: IdentityFiles,
    /// `limits`
    pub limits: Limits,
    /// `logging`
    pub logging: Logging,
    /// `metrics.enabled`
    pub metrics_enabled: bool,
    /// `bootstrap.advertise`: where a Node's join bundle points, `host:port`.
    pub advertise: Option<Arc<str>>,
    /// `openai`, without the tokens.
    pub openai: OpenAi,
    /// `openai.principal_tokens`: who may call.
    pub principals: Vec<PrincipalToken>,
    /// `long_context_threshold_tokens`, at least 1 (POL-4).
    pub long_context_threshold_tokens: u64,
    /// What control decides by.
    pub pool: Arc<PoolConfig>,
    /// `models`, in the order of the file.
    pub models: Vec<Model>,
    /// `nodes`, in the order of the file.
    pub nodes: Vec<Node>,
    pub(super) index: Index,
}

/// Positions by id.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    pub(super) models: HashMap<Arc<str>, usize>,
    /// Models of direct routes.
    pub(super) routes: HashSet<Arc<str>>,
    pub(super) nodes: HashMap<Arc<str>, usize>,
    /// Node and position within it.
    pub(super) providers: HashMap<Arc<str>, (usize, usize)>,
}

impl Settings {
    /// The place of an address of `listen` as messages have it: `edge.yaml:3:10: listen.http[0]`.
    #[must_use]
    pub fn listener(&self, address: SocketAddr) -> String {
        let file = self.source.display();
        match self.listeners.iter().find(|(known, ..)| *known == address) {
            Some((_, at, path)) => format!("{file}:{}:{}: {path}", at.line, at.column),
            None => format!("{file}: listen"),
        }
    }

    /// The model that clients ask for by `id`.
    #[must_use]
    pub fn model(&self, id: &str) -> Option<&Model> {
        self.index.models.get(id).and_then(|at| self.models.get(*at))
    }

    /// The model of a direct route (CFG-4), as in the pool's routes.
    #[must_use]
    pub fn direct_model(&self, id: &str) -> Option<&Arc<str>> {
        self.index.routes.get(id)
    }

    /// A configured Node.
    #[must_use]
    pub fn node(&self, id: &str) -> Option<&Node> {
        self.index.nodes.get(id).and_then(|at| self.nodes.get(*at))
    }

    /// What the usage of a run is attributed to: the provider that ran it, and by its model's rule either that one or the model
    /// (CFG-5, CFG-13). Both are names of this file; neither travels to a Node. `None` for names that are not configured.
    #[must_use]
    pub fn attribution(&self, model: &str, provider: &str) -> Option<Attribution> {
        let model = self.model(model)?;
        let (_, provider) = self.provider(provider)?;
        let usage = match model.usage_attribution {
            UsageAttribution::Provider => provider.id.clone(),
            UsageAttribution::ModelGroup => model.id.clone(),
        };
        Some(Attribution { provider: provider.id.clone(), kind: model.usage_attribution, usage })
    }

    /// Whether what was granted is a backend with a language of its own, which gets normalized runs (POL-7).
    #[must_use]
    pub fn is_native(&self, grant: &Grant) -> bool {
        if grant.direct {
            // Its provider is an attribution id and no provider: the adapter decides (POL-12).
            let adapters = self.node(&grant.node).map(|node| &node.payload.adapters);
            let adapter = adapters.and_then(|adapters| adapters.iter().find(|it| it.name == *grant.adapter));
            return adapter.is_some_and(|adapter| is_native(&adapter.settings));
        }
        self.provider(&grant.provider).is_some_and(|(_, provider)| provider.native)
    }

    /// Whether the server that was granted has this operation.
    #[must_use]
    pub fn offers(&self, grant: &Grant, operation: Operation) -> bool {
        self.granted_profile(grant)
            .is_some_and(|profile| profile.operations.iter().any(|offered| offered.operation == operation))
    }

    /// The dialect of the server that was granted; `None` for a backend with a language of its own.
    #[must_use]
    pub fn driver(&self, grant: &Grant) -> Option<Driver> {
        let profile = self.granted_profile(grant)?;
        Driver::ALL.into_iter().find(|(name, _)| *name == profile.driver).map(|(_, driver)| driver)
    }

    fn granted_profile(&self, grant: &Grant) -> Option<&ProtocolProfile> {
        let adapters = &self.node(&grant.node)?.payload.adapters;
        match &adapters.iter().find(|adapter| adapter.name == *grant.adapter)?.settings {
            AdapterSettings::OpenAiCompat(config) => Some(&config.profile),
            _ => None,
        }
    }

    /// A provider and its Node.
    #[must_use]
    pub fn provider(&self, id: &str) -> Option<(&Node, &Provider)> {
        let (node, provider) = self.index.providers.get(id)?;
        let node = self.nodes.get(*node)?;
        Some((node, node.providers.get(*provider)?))
    }
}

/// `edge`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeSettings {
    /// Workload identity name; must be the name in the Edge's certificate (IDN-1).
    pub name: Name,
    /// Number of shards; `None` = chosen by [`EdgeSettings::shard_count`].
    pub shards: Option<NonZeroUsize>,
    /// One CPU for each shard, or empty: not pinned.
    pub cpus: Vec<usize>,
}

impl EdgeSettings {
    /// How many shards to start on a machine with `cores` usable cores: at least 1, at most [`super::SHARDS_MAX`].
    #[must_use]
    pub fn shard_count(&self, cores: usize) -> usize {
        self.shards.map_or_else(|| cores.saturating_sub(1).clamp(1, super::SHARDS_MAX), NonZeroUsize::get)
    }
}

/// `listen`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Addresses of plain HTTP for clients. An IPv6 wildcard stands beside the IPv4 one, so it must be bound v6-only.
    pub http: Vec<SocketAddr>,
    /// Addresses of HTTPS for clients; none without [`tls`](Self::tls). One of the two lists has one.
    pub https: Vec<SocketAddr>,
    /// What clients are presented there.
    pub tls: Option<TlsFiles>,
    /// Addresses for Nodes, at least one; mutual TLS always.
    pub node: Vec<SocketAddr>,
    /// Address of the ops listener.
    pub ops: SocketAddr,
    /// Admin socket; `None` when neither the file nor `RUNTIME_DIRECTORY` says where.
    pub admin_socket: Option<PathBuf>,
}

/// `listen.tls`: paths of PEM files, absolute or relative to the working directory. They are read at the start, and watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain for clients, and where its name was typed.
    pub cert: (PathBuf, Place),
    /// Its private key, likewise.
    pub key: (PathBuf, Place),
    /// The oldest version of TLS that is spoken.
    pub min_version: MinVersion,
}

/// `identity`: paths of PEM files, absolute or relative to the working directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// The Edge's certificate chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The CA that Nodes must be signed by.
    pub node_ca: PathBuf,
}

/// `limits`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest request head of a client in bytes.
    pub head_bytes: usize,
    /// Most header fields of a client's request.
    pub head_fields: usize,
    /// Longest time from the first byte of a head to its end.
    pub head_timeout: Duration,
    /// Longest request body in bytes, decoded.
    pub body_bytes: u64,
    /// Time in which a body must bring its share: the rate below, or its end.
    pub body_timeout: Duration,
    /// Least rate of a body in bytes per second; 0 = any progress.
    pub body_min_rate: u64,
    /// Most memory of all request bodies together in bytes, at least twice `body_bytes`.
    pub body_memory: u64,
    /// Longest idle time of a client connection between requests.
    pub keepalive_idle: Duration,
    /// Most requests at a time on one HTTP/2 connection.
    pub h2_streams: u32,
    /// Longest time without progress of a write to a client.
    pub write_stall: Duration,
    /// Longest time that running requests get when the Edge is told to stop.
    pub drain_grace: Duration,
}

/// `logging`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logging {
    /// Least severe level that is logged.
    pub level: LogLevel,
    /// Form of a line.
    pub format: LogFormat,
}

/// Severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the five usual words")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// The closed set, by name.
    pub const ALL: [(&'static str, Self); 5] = [
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];

    /// Its name, as filters of the logging library spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// `openai`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAi {
    /// Whether the surface is served.
    pub enabled: bool,
    /// `token_ref`s of revoked tokens, one a line; watched (PTK-1).
    pub revoked_tokens_file: Option<PathBuf>,
    /// Attribution fallback; not blank when enabled (CFG-4).
    pub provider_id: Arc<str>,
    /// SSE keep-alive: a comment after this silence.
    pub keepalive_comment: Duration,
    /// SSE keep-alive of normalized runs: an event without content after this silence.
    pub keepalive_event: Duration,
    /// Whether tunnels and what waits for its slot are kept alive too.
    pub keepalive_tunnel: bool,
    /// Whether streamed chat completions are asked for their usage when their clients did not.
    pub usage_require: bool,
    /// How much longer than the run's hard deadline the Edge waits for its end (TUN-8).
    pub response_wait_margin: Duration,
    /// `openai.provider_auth` (CFG-3).
    pub provider_auth: ProviderAuth,
    /// `openai.cors`
    pub cors: Cors,
    /// `openai.stream_evidence_gate` (SEG-1).
    pub gate: Gate,
}

/// `openai.provider_auth`: a client's own credential for the provider, taken from a header of its request (CFG-3). The credential
/// itself is never part of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderAuth {
    /// Whether it is done at all.
    pub enabled: bool,
    /// The client's header, in lower case.
    pub from_header: Arc<str>,
    /// The provider's header, in lower case.
    pub target_header: Arc<str>,
    /// Word in front of the credential; empty = none.
    pub scheme: Arc<str>,
    /// Whether a request without it is refused with 401.
    pub required: bool,
}

/// One of `models`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// What clients ask for.
    pub id: Arc<str>,
    /// For people; the id when none was given.
    pub display_name: Arc<str>,
    /// What a usage record is attributed to (CFG-5).
    pub usage_attribution: UsageAttribution,
    /// Tokens of context; `None` = unknown (POL-4).
    pub context_window_tokens: Option<u64>,
    /// What is filled in and enforced before execution (CFG-5).
    pub generation: GenerationPolicy,
}

/// `usage_attribution`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UsageAttribution {
    /// To the provider that ran it.
    Provider,
    /// To the model.
    ModelGroup,
}

/// What the usage of one run is attributed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribution {
    /// The provider that ran it.
    pub provider: Arc<str>,
    /// By which rule.
    pub kind: UsageAttribution,
    /// What the usage record stands under: the provider's id or the model's.
    pub usage: Arc<str>,
}

/// Token limits that are applied to a request; `None` = untouched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GenerationPolicy {
    /// Filled in when the request has no limit.
    pub default_max_tokens: Option<u64>,
    /// A smaller limit is raised to it.
    pub min_max_tokens: Option<u64>,
    /// Filled in when the request has no thinking budget.
    pub default_thinking_token_budget: Option<u64>,
}

/// One of `nodes`.
#[derive(Clone, Debug)]
pub struct Node {
    /// The name in its certificate.
    pub id: Name,
    /// For people; empty when none was given.
    pub alias: Arc<str>,
    /// The second factor, when the configuration has one.
    pub token: Option<SecretDigest>,
    /// What it is told on registration.
    pub payload: Arc<NodeConfigPayload>,
    /// Its providers, in the order of the file, disabled ones too.
    pub providers: Vec<Provider>,
}

impl Node {
    /// Whether `presented` passes as second factor; without a configured one everything does.
    #[must_use]
    pub fn token_ok(&self, presented: &str) -> bool {
        self.token.as_ref().is_none_or(|token| token.matches(presented))
    }
}

/// One of `nodes[].providers`, as far as the Edge itself needs it; the rest stands in the pool and the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// Unique in the whole configuration.
    pub id: Arc<str>,
    /// Name of the adapter instance on its Node; as typed when a disabled provider names none that exists.
    pub adapter: Arc<str>,
    /// Name of its protocol profile.
    pub profile: Arc<str>,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Whether requests are sent to it.
    pub enabled: bool,
    /// What it calls the token limits of a request.
    pub generation_fields: GenerationFields,
    /// What else it takes in a chat completion that the Edge writes.
    pub dialect: ChatDialect,
    /// It has a language of its own, and gets normalized runs.
    pub native: bool,
    /// What it is: whether a run that was lost may be run again (REC-6).
    pub category: Category,
}

/// Whether an adapter of these settings takes normalized runs.
#[must_use]
pub const fn is_native(adapter: &AdapterSettings) -> bool {
    matches!(adapter, AdapterSettings::Ollama(_) | AdapterSettings::Cli(_))
}
