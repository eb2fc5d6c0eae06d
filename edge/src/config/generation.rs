//! What a provider calls the token limits of a request. Servers agree on the messages and not on these.

/// Member names of a provider's token limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationFields {
    /// The limit of generated tokens.
    pub max_tokens: &'static str,
    /// The limit of thinking among them; `None` = the server has none, or refuses members it does not know.
    pub thinking_budget: Option<&'static str>,
}

impl GenerationFields {
    /// Of the servers that a built-in profile speaks to.
    #[must_use]
    pub fn of_builtin(profile: &str) -> Self {
        match profile {
            // OpenAI's own reasoning models refuse `max_tokens`.
            "openai" => Self { max_tokens: "max_completion_tokens", thinking_budget: None },
            "vllm" => Self { max_tokens: "max_tokens", thinking_budget: Some("thinking_token_budget") },
            "llama_cpp" => Self { max_tokens: "max_tokens", thinking_budget: Some("thinking_budget_tokens") },
            _ => Self::default(),
        }
    }
}

impl Default for GenerationFields {
    fn default() -> Self {
        Self { max_tokens: "max_tokens", thinking_budget: None }
    }
}
