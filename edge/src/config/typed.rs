//! What was typed: the tree of `edge.yaml`, key by key, with the place of every value.
//!
//! Nothing here has a default or a meaning. A missing key and a key with an empty value are both `None`; unknown and
//! duplicate keys are refused while reading. Key docs stand in `docs/configuration.md`; what a value means and which
//! values are right is decided by `super::resolve`.
#![expect(missing_docs, reason = "the fields are the keys of docs/configuration.md, by their own names")]

use serde::{Deserialize, de::IgnoredAny};

use super::{
    place::{Entries, Typed},
    secret::Secret,
};

/// A value that may be missing.
pub type Opt<T> = Option<Typed<T>>;
/// A list that may be missing.
pub type List<T> = Opt<Vec<Typed<T>>>;

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeFile {
    pub edge: Opt<Edge>,
    pub listen: Opt<Listen>,
    pub identity: Opt<Identity>,
    pub limits: Opt<Limits>,
    pub logging: Opt<Logging>,
    pub metrics: Opt<Switch>,
    pub bootstrap: Opt<Bootstrap>,
    pub console: Opt<Switch>,
    pub control_plane: Opt<Switch>,
    pub a2a: Opt<Switch>,
    pub openai: Opt<OpenAi>,
    pub long_context_threshold_tokens: Opt<i64>,
    pub provider_pool: Opt<ProviderPool>,
    pub protocol_profiles: Opt<Entries<Typed<Profile>>>,
    pub models: List<Model>,
    pub nodes: List<Node>,
}

/// `edge`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    pub name: Opt<String>,
    pub shards: Opt<i64>,
    pub cpus: List<i64>,
}

/// `listen`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listen {
    pub http: List<String>,
    pub tls: Opt<ListenTls>,
    pub node: List<String>,
    pub ops: Opt<String>,
    pub admin_socket: Opt<String>,
}

/// `listen.tls`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenTls {
    pub cert_file: Opt<String>,
    pub key_file: Opt<String>,
}

/// `identity`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub cert_file: Opt<String>,
    pub key_file: Opt<String>,
    pub node_ca_file: Opt<String>,
    pub crl_file: Opt<String>,
}

/// `limits`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    pub head_bytes: Opt<i64>,
    pub head_fields: Opt<i64>,
    pub head_timeout_ms: Opt<i64>,
    pub body_bytes: Opt<i64>,
    pub body_timeout_ms: Opt<i64>,
    pub body_min_rate: Opt<i64>,
    pub body_memory_bytes: Opt<i64>,
    pub keepalive_idle_ms: Opt<i64>,
    pub write_stall_ms: Opt<i64>,
    pub drain_grace_ms: Opt<i64>,
}

/// `logging`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Logging {
    pub level: Opt<String>,
    pub format: Opt<String>,
}

/// A section that so far can only be switched: `metrics`, `console`, `control_plane`, `a2a`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    pub enabled: Opt<bool>,
}

/// `bootstrap`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bootstrap {
    pub advertise: Opt<String>,
}

/// `openai`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenAi {
    pub enabled: Opt<bool>,
    pub provider_id: Opt<String>,
    pub principal_tokens: List<PrincipalToken>,
    pub revoked_tokens_file: Opt<String>,
    pub provider_auth: Opt<ProviderAuth>,
    pub model_routes: List<ModelRoute>,
    pub keepalive: Opt<Keepalive>,
    pub response_wait_margin_ms: Opt<i64>,
    pub stream_evidence_gate: Opt<StreamEvidenceGate>,
}

/// One of `openai.principal_tokens`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrincipalToken {
    pub token_ref: Opt<String>,
    pub token_hash_sha256: Opt<Secret>,
    pub principal_ref: Opt<String>,
    pub principal_alias: Opt<String>,
}

/// `openai.provider_auth`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderAuth {
    pub enabled: Opt<bool>,
    pub from_header: Opt<String>,
    pub target_header: Opt<String>,
    pub scheme: Opt<String>,
    pub required: Opt<bool>,
}

/// One of `openai.model_routes`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRoute {
    pub model: Opt<String>,
    pub adapter: Opt<String>,
    pub target: Opt<String>,
    pub provider_id: Opt<String>,
}

/// `openai.keepalive`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keepalive {
    pub comment_ms: Opt<i64>,
    pub event_ms: Opt<i64>,
    pub tunnel: Opt<bool>,
}

/// `openai.stream_evidence_gate`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamEvidenceGate {
    pub enabled: Opt<bool>,
    pub max_request_fault_recovery: Opt<i64>,
    pub max_strategy_fault_recovery: Opt<i64>,
    pub max_ingress_snapshot_bytes: Opt<i64>,
    pub environment: Opt<String>,
    pub filters: List<IgnoredAny>,
}

/// `provider_pool`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderPool {
    pub max_queue: Opt<i64>,
    pub queue_timeout_ms: Opt<i64>,
}

/// One of `protocol_profiles`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub base: Opt<String>,
    pub driver: Opt<String>,
    pub base_url: Opt<String>,
    /// A null value takes the operation away.
    pub operations: Opt<Entries<Opt<String>>>,
    pub auth: Opt<Entries<IgnoredAny>>,
    pub capabilities: List<String>,
    pub model_mapping: Opt<Entries<Typed<String>>>,
    pub extensions: Opt<Entries<IgnoredAny>>,
}

/// One of `models`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub id: Opt<String>,
    pub display_name: Opt<String>,
    pub providers: List<String>,
    pub usage_attribution: Opt<String>,
    pub context_window_tokens: Opt<i64>,
    pub default_max_tokens: Opt<i64>,
    pub min_max_tokens: Opt<i64>,
    pub default_thinking_token_budget: Opt<i64>,
}

/// One of `nodes`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    pub id: Opt<String>,
    pub alias: Opt<String>,
    pub token: Opt<Secret>,
    pub token_file: Opt<String>,
    pub runtime: Opt<NodeRuntime>,
    pub adapters: List<Adapter>,
    pub providers: List<Provider>,
}

/// `nodes[].runtime`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRuntime {
    pub concurrency: Opt<i64>,
}

/// One of `nodes[].adapters`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    pub name: Opt<String>,
    #[serde(rename = "type")]
    pub kind: Opt<String>,
    pub enabled: Opt<bool>,
    pub settings: Opt<AdapterSettings>,
}

/// `nodes[].adapters[].settings`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdapterSettings {
    pub provider: Opt<String>,
    pub endpoint: Opt<String>,
    pub base_url: Opt<String>,
    pub headers: Opt<Entries<Typed<Secret>>>,
}

/// One of `nodes[].providers`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    pub id: Opt<String>,
    #[serde(rename = "type")]
    pub kind: Opt<String>,
    pub category: Opt<String>,
    pub adapter: Opt<String>,
    pub profile: Opt<String>,
    pub models: List<String>,
    pub enabled: Opt<bool>,
    pub capacity: Opt<i64>,
    pub long_context_capacity: Opt<i64>,
    pub total_context_tokens: Opt<i64>,
    pub priority: Opt<i64>,
    pub response_stall_timeout_ms: Opt<i64>,
    pub request_timeout_ms: Opt<i64>,
    pub health: Opt<Health>,
    pub endpoint: Opt<String>,
    pub base_url: Opt<String>,
    pub headers: Opt<Entries<Typed<Secret>>>,
    pub command: Opt<String>,
    pub args: List<String>,
    pub env: Opt<Entries<Typed<Secret>>>,
    pub mode: Opt<String>,
    pub resume_args: List<String>,
    pub output_format: Opt<String>,
    pub context_size: Opt<i64>,
}

/// `nodes[].providers[].health`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Health {
    pub path: Opt<String>,
    pub generation: Opt<bool>,
}
