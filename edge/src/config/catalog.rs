//! The built-in protocol profiles: what well-known servers speak, and where they listen when nobody moved them.
//!
//! A base URL is dialled by the Node, so `127.0.0.1` here is the Node's own machine. Paths carry `/v1`; joining drops it
//! when the base ends in it.

use control::config::Capabilities;
use proto::message::Operation;

use super::capability::{
    CHAT, COUNT_TOKENS, MESSAGES, MODELS, NONE, RESPONSES, STREAMING, TOOL_CALLING, union,
};

/// The dialect of a provider (PRF-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// OpenAI's chat completions and what goes with them.
    OpenAiChat,
    /// OpenAI's responses only.
    OpenAiResponses,
    /// Anthropic's messages.
    AnthropicMessages,
}

impl Driver {
    /// The closed set, by name.
    pub const ALL: [(&'static str, Self); 3] = [
        ("openai_chat", Self::OpenAiChat),
        ("openai_responses", Self::OpenAiResponses),
        ("anthropic_messages", Self::AnthropicMessages),
    ];

    /// Its name in the configuration and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai_chat",
            Self::OpenAiResponses => "openai_responses",
            Self::AnthropicMessages => "anthropic_messages",
        }
    }

    /// The operations that a profile of this driver may offer (PRF-3).
    #[must_use]
    pub const fn operations(self) -> &'static [Operation] {
        match self {
            Self::OpenAiChat => {
                &[Operation::Models, Operation::ChatCompletions, Operation::Responses, Operation::CountTokens]
            }
            Self::OpenAiResponses => &[Operation::Models, Operation::Responses, Operation::CountTokens],
            Self::AnthropicMessages => &[Operation::Models, Operation::Messages, Operation::CountTokens],
        }
    }
}

impl Driver {
    /// What the stream evidence gate can look into of `operation`'s answers (PRF-7): of every surface on which this driver
    /// generates text, all of it. Lists and counts have no output, and another driver's surface is never reached.
    #[must_use]
    pub fn output(self, operation: Operation) -> Capabilities {
        let generates = match operation {
            Operation::ChatCompletions | Operation::Messages | Operation::Responses => true,
            Operation::Models | Operation::CountTokens => false,
        };
        if generates && self.operations().contains(&operation) {
            super::capability::OUTPUT.iter().fold(NONE, |all, (_, bit)| union(all, *bit))
        } else {
            NONE
        }
    }
}

/// The named operations, by the names that stand in the configuration.
pub const OPERATIONS: [(&str, Operation); 5] = [
    ("models", Operation::Models),
    ("chat_completions", Operation::ChatCompletions),
    ("messages", Operation::Messages),
    ("count_tokens", Operation::CountTokens),
    ("responses", Operation::Responses),
];

/// The HTTP method of an operation (PRF-6).
#[must_use]
pub const fn method(operation: Operation) -> &'static str {
    match operation {
        Operation::Models => "GET",
        Operation::ChatCompletions | Operation::Messages | Operation::CountTokens | Operation::Responses => {
            "POST"
        }
    }
}

/// One built-in profile.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// Its name.
    pub id: &'static str,
    /// What it speaks.
    pub driver: Driver,
    /// Where it listens by default; empty = whoever uses the profile must say.
    pub base_url: &'static str,
    /// What it offers, each with its path.
    pub operations: &'static [(Operation, &'static str)],
    /// What it can do.
    pub capabilities: Capabilities,
}

const MODELS_PATH: (Operation, &str) = (Operation::Models, "/v1/models");
const CHAT_PATH: (Operation, &str) = (Operation::ChatCompletions, "/v1/chat/completions");
const RESPONSES_PATH: (Operation, &str) = (Operation::Responses, "/v1/responses");
const INPUT_TOKENS_PATH: (Operation, &str) = (Operation::CountTokens, "/v1/responses/input_tokens");

const BASIC: Capabilities = union(union(MODELS, CHAT), union(STREAMING, TOOL_CALLING));
const CHAT_ALONE: Capabilities = union(CHAT, union(STREAMING, TOOL_CALLING));
const WITH_RESPONSES: Capabilities = union(BASIC, RESPONSES);

/// The catalog.
pub const CATALOG: &[Builtin] = &[
    // The profile of type `openai_compat`: it has no address, since a prompt must never go to a stranger by default.
    Builtin {
        id: "openai_compat",
        driver: Driver::OpenAiChat,
        base_url: "",
        operations: &[MODELS_PATH, CHAT_PATH],
        capabilities: BASIC,
    },
    Builtin {
        id: "openai",
        driver: Driver::OpenAiChat,
        base_url: "https://api.openai.com/v1",
        operations: &[MODELS_PATH, CHAT_PATH, RESPONSES_PATH, INPUT_TOKENS_PATH],
        capabilities: union(WITH_RESPONSES, COUNT_TOKENS),
    },
    Builtin {
        id: "anthropic",
        driver: Driver::AnthropicMessages,
        base_url: "https://api.anthropic.com",
        operations: &[
            MODELS_PATH,
            (Operation::Messages, "/v1/messages"),
            (Operation::CountTokens, "/v1/messages/count_tokens"),
        ],
        capabilities: union(union(MODELS, MESSAGES), union(union(STREAMING, TOOL_CALLING), COUNT_TOKENS)),
    },
    Builtin {
        id: "vllm",
        driver: Driver::OpenAiChat,
        base_url: "http://127.0.0.1:8000/v1",
        operations: &[MODELS_PATH, CHAT_PATH, RESPONSES_PATH],
        capabilities: WITH_RESPONSES,
    },
    Builtin {
        id: "sglang",
        driver: Driver::OpenAiChat,
        base_url: "http://127.0.0.1:30000/v1",
        operations: &[MODELS_PATH, CHAT_PATH, RESPONSES_PATH],
        capabilities: WITH_RESPONSES,
    },
    Builtin {
        id: "llama_cpp",
        driver: Driver::OpenAiChat,
        base_url: "http://127.0.0.1:8080/v1",
        operations: &[MODELS_PATH, CHAT_PATH, RESPONSES_PATH, INPUT_TOKENS_PATH],
        capabilities: union(WITH_RESPONSES, COUNT_TOKENS),
    },
    Builtin {
        id: "lm_studio",
        driver: Driver::OpenAiChat,
        base_url: "http://127.0.0.1:1234/v1",
        operations: &[MODELS_PATH, CHAT_PATH, RESPONSES_PATH],
        capabilities: WITH_RESPONSES,
    },
    Builtin {
        id: "ollama",
        driver: Driver::OpenAiChat,
        base_url: "http://127.0.0.1:11434/v1",
        operations: &[MODELS_PATH, CHAT_PATH, RESPONSES_PATH],
        capabilities: WITH_RESPONSES,
    },
    Builtin {
        id: "openrouter",
        driver: Driver::OpenAiChat,
        base_url: "https://openrouter.ai/api/v1",
        operations: &[MODELS_PATH, CHAT_PATH],
        capabilities: BASIC,
    },
    // Of the servers below the base URLs are what their own documentation says. A path whose page is not named with it is the
    // usual one of its dialect, as are the capabilities: a profile on top corrects what a server does otherwise.
    // api-docs.deepseek.com: "Your First API Call"
    Builtin {
        id: "deepseek",
        driver: Driver::OpenAiChat,
        base_url: "https://api.deepseek.com",
        operations: &[(Operation::ChatCompletions, "/chat/completions")],
        capabilities: CHAT_ALONE,
    },
    // The same page: `base_url (Anthropic)`.
    Builtin {
        id: "deepseek_anthropic",
        driver: Driver::AnthropicMessages,
        base_url: "https://api.deepseek.com/anthropic",
        operations: &[(Operation::Messages, "/v1/messages")],
        capabilities: union(MESSAGES, union(STREAMING, TOOL_CALLING)),
    },
    // console.groq.com/docs/openai
    Builtin {
        id: "groq",
        driver: Driver::OpenAiChat,
        base_url: "https://api.groq.com/openai/v1",
        operations: &[CHAT_PATH, RESPONSES_PATH],
        capabilities: union(CHAT_ALONE, RESPONSES),
    },
    // docs.together.ai/docs/inference/openai-compatibility
    Builtin {
        id: "together",
        driver: Driver::OpenAiChat,
        base_url: "https://api.together.ai/v1",
        operations: &[CHAT_PATH],
        capabilities: CHAT_ALONE,
    },
    // docs.x.ai/developers/rest-api-reference/inference
    Builtin {
        id: "xai",
        driver: Driver::OpenAiChat,
        base_url: "https://api.x.ai/v1",
        operations: &[CHAT_PATH, RESPONSES_PATH],
        capabilities: union(CHAT_ALONE, RESPONSES),
    },
    // huggingface.co/docs/text-generation-inference/reference/api_reference; its container is often published on 8080
    Builtin {
        id: "tgi",
        driver: Driver::OpenAiChat,
        base_url: "http://127.0.0.1:3000/v1",
        operations: &[CHAT_PATH],
        capabilities: CHAT_ALONE,
    },
    // localai.io/docs/basics/try, localai.io/docs/features
    Builtin {
        id: "localai",
        driver: Driver::OpenAiChat,
        base_url: "http://127.0.0.1:8080/v1",
        operations: &[CHAT_PATH],
        capabilities: CHAT_ALONE,
    },
    // docs.litellm.ai/docs/simple_proxy
    Builtin {
        id: "litellm",
        driver: Driver::OpenAiChat,
        base_url: "http://127.0.0.1:4000",
        operations: &[(Operation::ChatCompletions, "/chat/completions")],
        capabilities: CHAT_ALONE,
    },
];

/// The built-in profile of a name.
#[must_use]
pub fn builtin(id: &str) -> Option<&'static Builtin> {
    CATALOG.iter().find(|builtin| builtin.id == id)
}

/// What an offered set of operations permits of `wanted`: a capability without its operation would be a promise that a
/// request cannot use.
#[must_use]
pub fn supported(wanted: Capabilities, operations: impl IntoIterator<Item = Operation>) -> Capabilities {
    let mut by_operation = NONE;
    let mut generates = false;
    for operation in operations {
        by_operation = union(by_operation, super::capability::of_operation(operation));
        generates |=
            matches!(operation, Operation::ChatCompletions | Operation::Messages | Operation::Responses);
    }
    let possible = if generates { union(by_operation, union(STREAMING, TOOL_CALLING)) } else { by_operation };
    Capabilities(wanted.0 & possible.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{capability, url};

    #[test]
    fn every_built_in_profile_keeps_the_rules_of_the_closed_sets() {
        for builtin in CATALOG {
            let offered = builtin.operations.iter().map(|(operation, _)| *operation);
            for operation in offered.clone() {
                assert!(builtin.driver.operations().contains(&operation), "{} {operation:?}", builtin.id);
            }
            assert_eq!(supported(builtin.capabilities, offered), builtin.capabilities, "{}", builtin.id);
            assert!(!capability::names(builtin.capabilities).is_empty(), "{}", builtin.id);
            for (_, path) in builtin.operations {
                assert!(path.starts_with('/'), "{}", builtin.id);
            }
            let base = builtin.base_url;
            assert!(base.is_empty() || url::normalize(base).as_deref() == Ok(base), "{}", builtin.id);
        }
    }

    // req: PRF-3
    #[test]
    fn capabilities_and_the_operations_of_a_driver_are_closed_sets() {
        let names: Vec<_> = capability::ALL.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            names,
            ["models", "chat", "messages", "responses", "streaming", "tool_calling", "count_tokens"]
        );
        for (driver, operations) in [
            ("openai_chat", &["models", "chat_completions", "responses", "count_tokens"][..]),
            ("anthropic_messages", &["models", "messages", "count_tokens"]),
            ("openai_responses", &["models", "responses", "count_tokens"]),
        ] {
            let (_, driver) = Driver::ALL.into_iter().find(|(name, _)| *name == driver).unwrap();
            let named = |wanted| OPERATIONS.into_iter().find(|(_, it)| *it == wanted).unwrap().0;
            let permitted: Vec<_> = driver.operations().iter().map(|it| named(*it)).collect();
            assert_eq!(permitted, operations, "{driver:?}");
        }
    }

    // req: PRF-4, PRF-6
    #[test]
    fn operations_of_hosted_servers_are_called_where_their_documentation_says() {
        for (id, operation, url) in [
            ("openai", Operation::Responses, "https://api.openai.com/v1/responses"),
            ("anthropic", Operation::Messages, "https://api.anthropic.com/v1/messages"),
            ("openrouter", Operation::ChatCompletions, "https://openrouter.ai/api/v1/chat/completions"),
            ("deepseek", Operation::ChatCompletions, "https://api.deepseek.com/chat/completions"),
            ("deepseek_anthropic", Operation::Messages, "https://api.deepseek.com/anthropic/v1/messages"),
            ("groq", Operation::Responses, "https://api.groq.com/openai/v1/responses"),
            ("together", Operation::ChatCompletions, "https://api.together.ai/v1/chat/completions"),
            ("xai", Operation::ChatCompletions, "https://api.x.ai/v1/chat/completions"),
            ("litellm", Operation::ChatCompletions, "http://127.0.0.1:4000/chat/completions"),
        ] {
            let builtin = builtin(id).unwrap();
            let (_, path) = builtin.operations.iter().find(|(known, _)| *known == operation).unwrap();
            let base = url::normalize(builtin.base_url).unwrap();
            assert_eq!(url::join(&base, path).as_deref(), Ok(url), "{id}");
        }
    }

    // req: PRF-6
    #[test]
    fn models_is_get_and_every_other_operation_post() {
        for (name, operation) in OPERATIONS {
            assert_eq!(method(operation), if name == "models" { "GET" } else { "POST" }, "{name}");
        }
    }
}
