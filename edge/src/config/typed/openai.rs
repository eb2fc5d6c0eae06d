//! Keys of the OpenAI surface: `openai`.

use super::{List, Opt};
use crate::config::{secret::Secret, shape::section};

section! {
    /// The OpenAI surface.
    pub struct OpenAi {
        /// Whether the surface is served; without it `listen.http` stays closed.
        #[schemars(extend("default" = true))]
        pub enabled: Opt<bool>,
        /// What usage is attributed to when nothing else is known; it need not be the id of a provider.
        #[schemars(extend("x-default" = "required while enabled"))]
        pub provider_id: Opt<String>,
        /// Who may call. `iop-edge token new` prints an entry.
        #[schemars(extend("default" = []))]
        pub principal_tokens: List<PrincipalToken>,
        /// The list of [revoked tokens](security.md#revoked-tokens), relative to the configuration file: one `token_ref` a line,
        /// `#` begins a comment. It must exist when the Edge starts, and is watched.
        #[schemars(extend("default" = "", "x-kind" = "file"))]
        pub revoked_tokens_file: Opt<String>,
        /// The client's own credential for the provider, taken from a header. Later release.
        pub provider_auth: Opt<ProviderAuth>,
        /// Which pages may call from a browser.
        pub cors: Opt<Cors>,
        /// Models that are sent to an adapter directly, past slots and queue.
        #[schemars(extend("default" = []))]
        pub model_routes: List<ModelRoute>,
        /// What a silent stream is kept alive by.
        pub keepalive: Opt<Keepalive>,
        /// What is known of the tokens of an answer.
        pub usage: Opt<UsageOptions>,
        /// How much longer than the run's hard deadline the Edge waits.
        #[schemars(range(min = 1, max = 86_400_000), extend("default" = 15_000))]
        pub response_wait_margin_ms: Opt<i64>,
        /// The gate that looks at what providers send and recovers what went wrong.
        pub stream_evidence_gate: Opt<StreamEvidenceGate>,
    }
}

section! {
    /// A token that may call.
    pub struct PrincipalToken {
        /// Name of the token, unique: the unit of usage breakdown. It does not begin with `#`.
        #[schemars(extend("x-required" = true))]
        pub token_ref: Opt<String>,
        /// SHA-256 of the token, unique. The token itself stands nowhere.
        #[schemars(extend("x-required" = true, "x-kind" = "64 hex digits"))]
        pub token_hash_sha256: Opt<Secret>,
        /// Who owns the token; several tokens may share one.
        #[schemars(extend("x-required" = true))]
        pub principal_ref: Opt<String>,
        /// For people.
        #[schemars(extend("default" = ""))]
        pub principal_alias: Opt<String>,
    }
}

section! {
    /// The client's own credential for the provider, taken from a header. Never together with `auth` of a profile.
    pub struct ProviderAuth {
        /// Clients bring [their own credential for the provider](api.md#credentials-for-the-provider).
        #[schemars(extend("default" = false))]
        pub enabled: Opt<bool>,
        /// Header of the client's request that holds it; none of those that hold the token for the Edge.
        #[schemars(extend("default" = "X-IOP-Provider-Authorization", "x-kind" = "header name"))]
        pub from_header: Opt<String>,
        /// Header of the request to the provider that it is put in.
        #[schemars(extend("default" = "Authorization", "x-kind" = "header name"))]
        pub target_header: Opt<String>,
        /// Word in front of the token; empty = none.
        #[schemars(extend("default" = "Bearer"))]
        pub scheme: Opt<String>,
        /// Whether a request without it is refused with 401.
        #[schemars(extend("default" = true))]
        pub required: Opt<bool>,
    }
}

section! {
    /// Which pages may call from a browser. They need a token like everybody else.
    pub struct Cors {
        /// Origins as browsers write them (`https://chat.example`), or `*` for all; empty = none.
        #[schemars(extend("default" = ["*"]))]
        pub allowed_origins: List<String>,
    }
}

section! {
    /// A model that is sent to an adapter directly.
    pub struct ModelRoute {
        /// What clients ask for; a name of its own, and none of `models[]`. See [direct routes](#direct-routes).
        #[schemars(extend("x-required" = true))]
        pub model: Opt<String>,
        /// Name of an adapter instance, exactly. It must be enabled, and a provider must be on it.
        #[schemars(extend("x-required" = true))]
        pub adapter: Opt<String>,
        /// What the server calls the model.
        #[schemars(extend("x-required" = true))]
        pub target: Opt<String>,
        /// What its use is attributed to, and `x-iop-provider`. It names no provider; not blank.
        #[schemars(extend("x-default" = "`openai.provider_id`"))]
        pub provider_id: Opt<String>,
    }
}

section! {
    /// What a silent stream is kept alive by.
    pub struct Keepalive {
        /// Silence after which a stream gets a comment, or a ping on Messages.
        #[schemars(range(min = 1, max = 86_400_000), extend("default" = 15_000))]
        pub comment_ms: Opt<i64>,
        /// Silence after which a normalized stream gets an event without content.
        #[schemars(range(min = 1, max = 86_400_000), extend("default" = 60_000))]
        pub event_ms: Opt<i64>,
        /// Whether streams that are passed on get comments too, and [what waits for its slot](api.md#silence).
        #[schemars(extend("default" = false))]
        pub tunnel: Opt<bool>,
    }
}

section! {
    /// What is known of the tokens of an answer.
    pub struct UsageOptions {
        /// Whether a streamed chat completion counts its tokens also where the client [did not ask for it](api.md#tokens).
        #[schemars(extend("default" = false))]
        pub require: Opt<bool>,
    }
}

section! {
    /// The gate that looks at what providers send. `docs/recovery.md` says what it does.
    pub struct StreamEvidenceGate {
        /// Whether requests go through it. What is recovered without it is in recovery.md.
        #[schemars(extend("default" = false))]
        pub enabled: Opt<bool>,
        /// Most recoveries of one request; 0 = none.
        #[schemars(range(min = 0, max = 3), extend("default" = 3))]
        pub max_request_fault_recovery: Opt<i64>,
        /// Most recoveries of one request by each of exact replay, continuation repair and schema repair, at most
        /// `max_request_fault_recovery`; 0 = none.
        #[schemars(range(min = 0, max = 3), extend("x-default" = "`max_request_fault_recovery`"))]
        pub max_strategy_fault_recovery: Opt<i64>,
        /// Largest request in bytes that is kept for a recovery.
        #[schemars(range(min = 0, max = 16_777_216), extend("default" = 16_777_216, "x-zero" = 16_777_216))]
        pub max_ingress_snapshot_bytes: Opt<i64>,
        /// Where this Edge runs: what selectors by environment go by.
        #[schemars(extend("default" = "dev", "x-words" = ["dev", "dev-corp"]))]
        pub environment: Opt<String>,
        /// What is looked for; each filter at most once.
        #[schemars(extend("default" = []))]
        pub filters: List<Filter>,
    }
}

section! {
    /// Something that the gate looks for.
    pub struct Filter {
        /// Which.
        #[schemars(extend("x-required" = true, "x-words" = ["repeat_guard", "schema_gate", "provider_error"]))]
        pub filter: Opt<String>,
        /// Whether it looks; a selector can switch a disabled one on.
        #[schemars(extend("default" = true))]
        pub enabled: Opt<bool>,
        /// Whether what it finds stops the stream, or is only recorded.
        #[schemars(extend("default" = "blocking", "x-words" = ["blocking", "observe_only"]))]
        pub enforcement: Opt<String>,
        /// What a provider must be able to do for a blocking filter: `output.<filter>` or one of the capabilities of profiles.
        #[schemars(extend("x-default" = "`output.<filter>`"))]
        pub capability: Opt<String>,
        /// Characters that are held back until they are judged.
        #[schemars(range(min = 0, max = 1_048_576), extend("default" = 500, "x-zero" = 500))]
        pub hold_evidence_runes: Opt<i64>,
        /// Longest time that they are held back.
        #[schemars(range(min = 0, max = 86_400_000), extend("default" = 5000, "x-zero" = 5000))]
        pub timeout_ms: Opt<i64>,
        /// Exceptions; the more specific one wins: environment, model group, model, provider.
        #[schemars(extend("default" = []))]
        pub selectors: List<Selector>,
    }
}

section! {
    /// An exception of a filter for exactly one environment, model group, model or provider.
    pub struct Selector {
        /// Where this Edge runs.
        #[schemars(extend("default" = "", "x-words" = ["dev", "dev-corp"]))]
        pub environment: Opt<String>,
        /// One of `models[].id`.
        #[schemars(extend("default" = ""))]
        pub model_group: Opt<String>,
        /// A model as its provider calls it.
        #[schemars(extend("default" = ""))]
        pub model: Opt<String>,
        /// One of `nodes[].providers[].id`.
        #[schemars(extend("default" = ""))]
        pub provider: Opt<String>,
        /// Whether the filter looks there.
        #[schemars(extend("x-default" = "of the filter"))]
        pub enabled: Opt<bool>,
        /// Whether what it finds there stops the stream.
        #[schemars(extend("x-default" = "of the filter", "x-words" = ["blocking", "observe_only"]))]
        pub enforcement: Opt<String>,
    }
}
