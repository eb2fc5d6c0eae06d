//! Keys of `models`.

use super::{List, Opt};
use crate::config::shape::section;

section! {
    /// Something that clients ask for.
    pub struct Model {
        /// What clients ask for, unique.
        #[schemars(extend("x-required" = true))]
        pub id: Opt<String>,
        /// For people.
        #[schemars(extend("x-default" = "the id"))]
        pub display_name: Opt<String>,
        /// Who serves it: `nodes[].providers[].id`. Each must serve it under its mapped name.
        #[schemars(extend("x-required" = true))]
        pub providers: List<String>,
        /// What usage is attributed to.
        #[schemars(extend("default" = "provider", "x-words" = ["provider", "model_group"]))]
        pub usage_attribution: Opt<String>,
        /// Context of the model in tokens; 0 = unknown. A request whose [estimate](api.md#long-requests) is surely above it is refused
        /// with 400.
        #[schemars(range(min = 0), extend("default" = 0))]
        pub context_window_tokens: Opt<i64>,
        /// Filled in where a request names no limit (`max_tokens`, `max_completion_tokens`; `null` names none); 0 = none.
        #[schemars(range(min = 0), extend("default" = 0))]
        pub default_max_tokens: Opt<i64>,
        /// A limit below it, named or filled in, is raised to it; 0 = none.
        #[schemars(range(min = 0), extend("default" = 0))]
        pub min_max_tokens: Opt<i64>,
        /// Filled in where a request names none and the provider has a name for it: `thinking_token_budget` (profiles on `vllm`),
        /// `thinking_budget_tokens` (on `llama_cpp`); 0 = none.
        #[schemars(range(min = 0), extend("default" = 0))]
        pub default_thinking_token_budget: Opt<i64>,
    }
}
