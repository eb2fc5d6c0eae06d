//! What an engine's chat completions take beyond what all of them take. It matters only where the Edge writes the request itself,
//! for a client of another surface: a client's own chat completion goes as it is.

/// What may stand in a chat completion request that the Edge writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatDialect {
    /// Member of an assistant's message that takes back the reasoning it gave; `None` = a message with one is refused.
    pub reasoning: Option<&'static str>,
    /// Words for how much to think.
    pub effort: EffortWords,
    /// Whether `top_k` and `min_p` are known. Where they are not, a request with them is refused.
    pub wide_sampling: bool,
    /// Whether a system message may stand anywhere. Chat templates of several families of models refuse every one but a single
    /// first one.
    pub late_system: bool,
}

/// How an engine is told how much to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffortWords {
    /// All of OpenAI's words.
    All,
    /// `low`, `medium` and `high`. Not to think at all is an argument of the chat template.
    Three,
    /// Only `none`: the engine refuses every other word for a model that cannot think, and nobody knows which can.
    OnlyNone,
}

impl ChatDialect {
    /// Of the servers that a built-in profile speaks to.
    #[must_use]
    pub fn of_builtin(profile: &str) -> Self {
        let engine = Self::default();
        match profile {
            // OpenAI refuses members that it does not know, in messages as well.
            "openai" => {
                Self { reasoning: None, effort: EffortWords::All, wide_sampling: false, late_system: true }
            }
            "groq" => Self { reasoning: Some("reasoning"), wide_sampling: false, ..engine },
            "xai" | "deepseek" => Self { wide_sampling: false, ..engine },
            "openrouter" => Self { reasoning: Some("reasoning"), ..engine },
            "ollama" => Self { effort: EffortWords::OnlyNone, ..engine },
            _ => engine,
        }
    }
}

impl Default for ChatDialect {
    /// An engine for models of one's own, as most of them are: members that it does not know are skipped, and what a message list
    /// may look like is up to the chat template.
    fn default() -> Self {
        Self {
            reasoning: Some("reasoning_content"),
            effort: EffortWords::Three,
            wide_sampling: true,
            late_system: false,
        }
    }
}
