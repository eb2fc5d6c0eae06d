//! Keys of `nodes`, their adapters and providers.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{List, Opt};
use crate::config::{
    place::{Entries, Typed},
    secret::Secret,
    shape::{Reader, Shape, section},
    tree::{Item, Value},
};

/// Types of adapters and providers.
macro_rules! kinds {
    () => {
        ["openai_compat", "vllm", "ollama", "cli", "seulgivibe_claude", "seulgivibe_openai"]
    };
}

section! {
    /// A machine that dials in.
    pub struct Node {
        /// The name in the Node's certificate, unique.
        #[schemars(extend("x-required" = true, "x-kind" = "name"))]
        pub id: Opt<String>,
        /// For people.
        #[schemars(extend("default" = ""))]
        pub alias: Opt<String>,
        /// Optional second factor beside the certificate, at most 512 visible ASCII characters.
        #[schemars(extend("default" = ""))]
        pub token: Opt<Secret>,
        /// The same, from a file.
        #[schemars(extend("default" = "", "x-kind" = "file"))]
        pub token_file: Opt<String>,
        /// Passed on to the Node.
        pub runtime: Opt<NodeRuntime>,
        /// What talks to providers on this Node. Earlier files have a mapping by type here, such as `vllm: { base_url: … }`.
        #[schemars(extend("default" = []))]
        pub adapters: Opt<Adapters>,
        /// What runs models on this Node.
        #[schemars(extend("default" = []))]
        pub providers: List<Provider>,
    }
}

section! {
    /// Passed on to the Node.
    pub struct NodeRuntime {
        /// Passed on; limits nothing.
        #[schemars(range(min = 0, max = 4_294_967_295_i64), extend("default" = 0))]
        pub concurrency: Opt<i64>,
    }
}

section! {
    /// An instance of what talks to providers.
    pub struct Adapter {
        /// Name of the instance, unique on the Node.
        #[schemars(extend("x-default" = "its type"))]
        pub name: Opt<String>,
        /// What it speaks. `seulgivibe_claude` and `seulgivibe_openai` are other names of `openai_compat`. `ollama` speaks Ollama's own API, `cli` runs a program.
        #[schemars(extend("x-required" = true, "x-words" = kinds!()))]
        pub r#type: Opt<String>,
        /// Whether providers may use it.
        #[schemars(extend("default" = true))]
        pub enabled: Opt<bool>,
        /// What its providers have in common.
        pub settings: Opt<AdapterSettings>,
    }
}

section! {
    /// What the providers of an adapter have in common.
    pub struct AdapterSettings {
        /// Label for people and metrics.
        #[schemars(extend("x-default" = "the type"))]
        pub provider: Opt<String>,
        /// Another name of `base_url`.
        #[schemars(extend("default" = "", "x-kind" = "URL"))]
        pub endpoint: Opt<String>,
        /// Address for its providers that have none of their own.
        #[schemars(extend("default" = "", "x-kind" = "URL"))]
        pub base_url: Opt<String>,
        /// Sent with every request to the provider. No credentials.
        #[schemars(extend("default" = {}))]
        pub headers: Opt<Entries<Typed<Secret>>>,
    }
}

section! {
    /// The single instance of a type, as earlier files have it: its settings stand beside `enabled`.
    pub struct LegacyAdapter {
        /// Whether providers may use it.
        #[schemars(extend("default" = true))]
        pub enabled: Opt<bool>,
        /// Label for people and metrics.
        pub provider: Opt<String>,
        /// Another name of `base_url`.
        #[schemars(extend("x-kind" = "URL"))]
        pub endpoint: Opt<String>,
        /// Address for its providers that have none of their own.
        #[schemars(extend("x-kind" = "URL"))]
        pub base_url: Opt<String>,
        /// Sent with every request to the provider. No credentials.
        pub headers: Opt<Entries<Typed<Secret>>>,
    }
}

/// `nodes[].adapters`: a list of instances. The legacy mapping by type is read as one instance without a name for each type
/// (CFG-10, CFG-12).
#[derive(Clone, Debug, Default)]
pub struct Adapters(pub Vec<Typed<Adapter>>);

impl Shape for Adapters {
    fn read(item: &Item, reader: &mut Reader<'_>) -> Option<Self> {
        if matches!(item.value, Value::Mapping(_)) {
            let legacy = Entries::<Option<Typed<LegacyAdapter>>>::read(item, reader)?;
            return Some(Self(legacy.0.into_iter().map(|(key, entry)| named(key, entry)).collect()));
        }
        Vec::read(item, reader).map(Self)
    }
}

fn named(kind: Typed<String>, entry: Option<Typed<LegacyAdapter>>) -> Typed<Adapter> {
    let at = kind.at;
    let (entry, entry_at) = entry.map_or_else(|| (LegacyAdapter::default(), at), |it| (it.value, it.at));
    let LegacyAdapter { enabled, provider, endpoint, base_url, headers } = entry;
    let settings = AdapterSettings { provider, endpoint, base_url, headers };
    let settings = Some(Typed { value: settings, at: entry_at });
    Typed { value: Adapter { name: None, r#type: Some(kind), enabled, settings }, at }
}

impl JsonSchema for Adapters {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Adapters".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let legacy = generator.subschema_for::<Option<Typed<LegacyAdapter>>>();
        let properties: serde_json::Map<_, _> =
            kinds!().into_iter().map(|kind| (kind.to_owned(), legacy.clone().into())).collect();
        json_schema!({
            "anyOf": [
                generator.subschema_for::<Vec<Typed<Adapter>>>(),
                { "type": "object", "properties": properties, "additionalProperties": false },
            ],
        })
    }
}

section! {
    /// Something that runs models.
    pub struct Provider {
        /// Unique in the whole file.
        #[schemars(extend("x-required" = true))]
        pub id: Opt<String>,
        /// As for adapters.
        #[schemars(extend("x-required" = true, "x-words" = kinds!()))]
        pub r#type: Opt<String>,
        /// What kind of resource it is; `cli` needs an adapter of that type.
        #[schemars(extend("x-required" = true, "x-words" = ["api", "cli", "local_inference"]))]
        pub category: Opt<String>,
        /// Name of an enabled adapter of the Node; a type also names its only enabled instance.
        #[schemars(extend("x-required" = true))]
        pub adapter: Opt<String>,
        /// A protocol profile: built in, or one of `protocol_profiles`. Types `ollama` and `cli` have none.
        #[schemars(extend("x-default" = "by type: `vllm` for type `vllm`, else `openai_compat`"))]
        pub profile: Opt<String>,
        /// What it serves; a mapped model by either of its names.
        #[schemars(extend("x-required" = true))]
        pub models: List<String>,
        /// A disabled one gets no requests, and its `adapter` is not checked.
        #[schemars(extend("default" = true))]
        pub enabled: Opt<bool>,
        /// Concurrent requests.
        #[schemars(range(min = 1, max = 32_768), extend("default" = 1))]
        pub capacity: Opt<i64>,
        /// Concurrent long requests among them, at most `capacity`.
        #[schemars(range(min = 0, max = 32_768), extend("x-default" = "`capacity`"))]
        pub long_context_capacity: Opt<i64>,
        /// When set: at least `context_window_tokens` × `long_context_capacity` of every model it serves.
        #[schemars(range(min = 0), extend("default" = 0))]
        pub total_context_tokens: Opt<i64>,
        /// The lower one wins between equally loaded providers.
        #[schemars(range(min = 0, max = 4_294_967_295_i64), extend("default" = 0))]
        pub priority: Opt<i64>,
        /// Longest time without progress.
        #[schemars(range(min = 0, max = 9_223_372_036_854_i64), extend("default" = 300_000, "x-zero" = 300_000))]
        pub response_stall_timeout_ms: Opt<i64>,
        /// Hard deadline of a run.
        #[schemars(range(min = 0, max = 4_000_000_000_000_i64), extend("default" = 3_600_000, "x-zero" = 3_600_000))]
        pub request_timeout_ms: Opt<i64>,
        /// Earlier name of `provider_pool.max_queue`: counts only where there is no `provider_pool`, and must then be the same at
        /// every enabled provider.
        #[schemars(range(min = 0, max = 65_536), extend("x-default" = "`provider_pool`"))]
        pub max_queue: Opt<i64>,
        /// Earlier name of `provider_pool.queue_timeout_ms`, likewise.
        #[schemars(range(min = 0, max = 86_400_000), extend("x-default" = "`provider_pool`"))]
        pub queue_timeout_ms: Opt<i64>,
        /// How a provider that stalls is probed, beside its list of models.
        pub health: Opt<Health>,
        /// Label for people and metrics; wins over the adapter's.
        #[schemars(extend("x-default" = "of the adapter"))]
        pub provider: Opt<String>,
        /// Another name of `base_url`.
        #[schemars(extend("default" = "", "x-kind" = "URL"))]
        pub endpoint: Opt<String>,
        /// Wins over the adapter's and the profile's address.
        #[schemars(extend("x-default" = "of the adapter, else of the profile", "x-kind" = "URL"))]
        pub base_url: Opt<String>,
        /// As for adapters; wins over theirs.
        #[schemars(extend("default" = {}))]
        pub headers: Opt<Entries<Typed<Secret>>>,
        /// Program of type `cli`, an absolute path on the Node: runs once for each request, with the prompt on its standard input.
        #[schemars(extend("default" = ""))]
        pub command: Opt<String>,
        /// Its arguments, as they are: there is no shell.
        #[schemars(extend("default" = []))]
        pub args: List<String>,
        /// Its environment beside the little that the Node passes on.
        #[schemars(extend("default" = {}))]
        pub env: Opt<Entries<Typed<Secret>>>,
        /// How it is run; empty = `stdin`, once for each request.
        #[schemars(extend("default" = "", "x-words" = ["stdin"]))]
        pub mode: Opt<String>,
        /// Always empty: nothing is resumed.
        #[schemars(extend("default" = []))]
        pub resume_args: List<String>,
        /// What it writes; empty = `text`.
        #[schemars(extend("default" = "", "x-words" = ["text", "json", "stream-json"]))]
        pub output_format: Opt<String>,
        /// Context of type `ollama` in tokens (`num_ctx`); 0 = the server's own.
        #[schemars(range(min = 0, max = 4_294_967_295_i64), extend("default" = 0))]
        pub context_size: Opt<i64>,
    }
}

section! {
    /// How a provider that stalls is probed, beside its list of models.
    pub struct Health {
        /// Path that must answer with 2xx as well, from the root of the provider's address, such as `/health`; empty = none.
        #[schemars(extend("default" = "", "x-kind" = "path"))]
        pub path: Opt<String>,
        /// Whether the provider must also generate one token of the model: servers may answer everything else over a dead engine.
        /// It costs what a request of one token costs, and a place at the server that `capacity` does not count.
        #[schemars(extend("default" = false))]
        pub generation: Opt<bool>,
    }
}
