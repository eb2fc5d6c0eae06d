//! What was typed: the tree of `edge.yaml`, key by key, with the place of every value.
//!
//! This is where keys are documented: a field's words are its description, and its attributes say what the page
//! (`docs/configuration.md`) and the JSON Schema (`configs/edge.schema.json`) tell beside it:
//!
//! | attribute | says |
//! |---|---|
//! | `range(min, max)` | bounds of an integer |
//! | `extend("default" = …)` | what a missing key means; tests compare it with what the loader does |
//! | `extend("x-default" = "…")` | the same in words, where it depends on something |
//! | `extend("x-zero" = …)` | what an explicit 0 stands for |
//! | `extend("x-required" = true)` | there is no default |
//! | `extend("x-words" = …)` | the closed set of words |
//! | `extend("x-kind" = "…")` | what a text is: `file`, `address`, `url` … |
//!
//! Which values are right and what they mean is decided by `super::resolve`; whether a changed value counts without a restart by
//! `super::class`. A missing key and a key without a value are both `None`.

mod model;
mod node;
mod openai;
mod process;
mod profile;

pub use self::{
    model::Model,
    node::{Adapter, AdapterSettings, Adapters, Health, LegacyAdapter, Node, NodeRuntime, Provider},
    openai::{
        Cors, Filter, Keepalive, ModelRoute, OpenAi, PrincipalToken, ProviderAuth, Selector,
        StreamEvidenceGate, UsageOptions,
    },
    process::{Bootstrap, Edge, Identity, Limits, Listen, ListenTls, Logging, Metrics, Switch},
    profile::{Anything, Auth, Profile},
};
use super::{
    place::{Entries, Typed},
    shape::section,
};

/// A value that may be missing.
pub type Opt<T> = Option<Typed<T>>;
/// A list that may be missing.
pub type List<T> = Opt<Vec<Typed<T>>>;

section! {
    /// Configuration of an IOP Edge.
    pub struct EdgeFile {
        /// The process itself.
        pub edge: Opt<Edge>,
        /// Where it listens.
        pub listen: Opt<Listen>,
        /// Its certificate, and the CA that Nodes must be signed by.
        pub identity: Opt<Identity>,
        /// Bounds of what clients may do.
        pub limits: Opt<Limits>,
        /// The log on standard error.
        pub logging: Opt<Logging>,
        /// The metrics on the ops listener.
        pub metrics: Opt<Metrics>,
        /// What Nodes are given to join.
        pub bootstrap: Opt<Bootstrap>,
        /// The web console. Later release.
        pub console: Opt<Switch>,
        /// The feed for a control plane. Later release.
        pub control_plane: Opt<Switch>,
        /// The A2A surface. Later release.
        pub a2a: Opt<Switch>,
        /// The OpenAI surface: who may call it, and how it answers.
        pub openai: Opt<OpenAi>,
        /// Estimated input tokens from which on a request is long and takes a long slot too.
        #[schemars(range(min = 1), extend("default" = 100_000))]
        pub long_context_threshold_tokens: Opt<i64>,
        /// The queue: a request whose providers are all busy, or not connected, waits.
        pub provider_pool: Opt<ProviderPool>,
        /// Protocol profiles of this file, by name: overlays over the built-in ones.
        #[schemars(extend("default" = {}))]
        pub protocol_profiles: Opt<Entries<Typed<Profile>>>,
        /// What clients ask for, and who serves it.
        #[schemars(extend("default" = []))]
        pub models: List<Model>,
        /// The machines that dial in, with the providers on them.
        #[schemars(extend("default" = []))]
        pub nodes: List<Node>,
    }
}

section! {
    /// The queue of all models together.
    pub struct ProviderPool {
        /// Most waiting requests, all models together. Above it: 429 at once.
        #[schemars(range(min = 0, max = 65_536), extend("default" = 16, "x-zero" = 16))]
        pub max_queue: Opt<i64>,
        /// Longest wait in milliseconds; an explicit 0 = no bound. After it: 503.
        #[schemars(range(min = 0, max = 86_400_000), extend("default" = 30_000))]
        pub queue_timeout_ms: Opt<i64>,
    }
}
