//! The names of the capability bits that control compares without knowing them (PRF-3).

use control::config::Capabilities;
use proto::message::Operation;

/// `GET /v1/models` of the provider itself.
pub const MODELS: Capabilities = Capabilities(1 << 0);
/// Chat completions.
pub const CHAT: Capabilities = Capabilities(1 << 1);
/// Anthropic's messages.
pub const MESSAGES: Capabilities = Capabilities(1 << 2);
/// OpenAI's responses.
pub const RESPONSES: Capabilities = Capabilities(1 << 3);
/// Answers as a stream of events.
pub const STREAMING: Capabilities = Capabilities(1 << 4);
/// Understands tools.
pub const TOOL_CALLING: Capabilities = Capabilities(1 << 5);
/// Counts tokens without running the model.
pub const COUNT_TOKENS: Capabilities = Capabilities(1 << 6);
/// No capability.
pub const NONE: Capabilities = Capabilities(0);

/// A stream's repetitions can be seen (PRF-7).
pub const OUTPUT_REPEAT_GUARD: Capabilities = Capabilities(1 << 16);
/// Its output can be held against a schema.
pub const OUTPUT_SCHEMA_GATE: Capabilities = Capabilities(1 << 17);
/// Its errors can be told apart.
pub const OUTPUT_PROVIDER_ERROR: Capabilities = Capabilities(1 << 18);

/// What a backend with a language of its own can do by a normalized run. It has no profile to list it.
pub const NATIVE: Capabilities = union(union(CHAT, STREAMING), TOOL_CALLING);

/// What a provider can be asked for, of what it can do itself: chat completions and normalized runs serve the other surfaces as well.
/// Selection goes by this; what travels to a Node, and what a profile lists, is what the provider has itself (PRF-3).
#[must_use]
pub fn reachable(own: Capabilities) -> Capabilities {
    if own.covers(CHAT) { union(own, union(MESSAGES, RESPONSES)) } else { own }
}

/// What the stream evidence gate can do with a provider's output (PRF-7): a namespace of its own, which no profile lists and
/// which never travels. [`super::catalog::Driver::output`] derives it.
pub const OUTPUT: [(&str, Capabilities); 3] = [
    ("output.repeat_guard", OUTPUT_REPEAT_GUARD),
    ("output.schema_gate", OUTPUT_SCHEMA_GATE),
    ("output.provider_error", OUTPUT_PROVIDER_ERROR),
];

/// The closed set of profiles (PRF-3), by the names that stand in the configuration and on the wire.
pub const ALL: [(&str, Capabilities); 7] = [
    ("models", MODELS),
    ("chat", CHAT),
    ("messages", MESSAGES),
    ("responses", RESPONSES),
    ("streaming", STREAMING),
    ("tool_calling", TOOL_CALLING),
    ("count_tokens", COUNT_TOKENS),
];

/// Both sets together.
#[must_use]
pub const fn union(a: Capabilities, b: Capabilities) -> Capabilities {
    Capabilities(a.0 | b.0)
}

/// The bit of a name.
#[must_use]
pub fn named(name: &str) -> Option<Capabilities> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit)
}

/// The names of a set, in the order of [`ALL`].
#[must_use]
pub fn names(set: Capabilities) -> Vec<String> {
    ALL.iter().filter(|(_, bit)| set.covers(*bit)).map(|(name, _)| (*name).to_owned()).collect()
}

/// What a candidate must be able to do for an operation.
#[must_use]
pub const fn of_operation(operation: Operation) -> Capabilities {
    match operation {
        Operation::Models => MODELS,
        Operation::ChatCompletions => CHAT,
        Operation::Messages => MESSAGES,
        Operation::CountTokens => COUNT_TOKENS,
        Operation::Responses => RESPONSES,
    }
}
