//! The surfaces that clients meet: in whose language they ask, and which paths lead there (api.md section 1.0).

pub mod cors;
pub mod router;

use control::config::Capabilities;
use proto::message::Operation;

use crate::config::{GenerationFields, capability};

/// Whose language a client speaks. It decides how a request is read, how its answer ends, and what a failure looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Surface {
    /// OpenAI's chat completions; also whatever names no surface.
    Chat,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
}

impl Surface {
    /// The closed set.
    pub const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Messages];

    /// What a provider is asked to do when it speaks the same language.
    #[must_use]
    pub const fn operation(self) -> Operation {
        match self {
            Self::Chat => Operation::ChatCompletions,
            Self::Responses => Operation::Responses,
            Self::Messages => Operation::Messages,
        }
    }

    /// What a candidate must be able to do.
    #[must_use]
    pub const fn needs(self, stream: bool) -> Capabilities {
        let operation = capability::of_operation(self.operation());
        if stream { capability::union(operation, capability::STREAMING) } else { operation }
    }

    /// What a provider with these fields for chat completions calls the token limits here. Only chat differs from server to server,
    /// and a budget of thinking is a number of its own only there.
    #[must_use]
    pub const fn generation_fields(self, of_chat: GenerationFields) -> GenerationFields {
        match self {
            Self::Chat => of_chat,
            Self::Responses => GenerationFields { max_tokens: "max_output_tokens", thinking_budget: None },
            Self::Messages => GenerationFields { max_tokens: "max_tokens", thinking_budget: None },
        }
    }

    /// The route's label in metrics and logs.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Chat => "chat_completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }
}
