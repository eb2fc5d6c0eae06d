//! What stands in a chat chunk, and in a whole chat completion, as far as an answer is read from it. Members that are not what they
//! usually are count as absent, where the answer has a meaning without them.

use std::borrow::Cow;

use proto::message::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A chunk, a completion, or an error in the place of either.
#[derive(Debug, Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

impl Chunk<'_> {
    /// Whether it tells of a failure: by a member of its own, or flat.
    pub(super) fn is_error(&self) -> bool {
        self.error.is_some() || self.object.is_some_and(|object| text(object).as_deref() == Some("error"))
    }

    /// The tokens that are counted in it.
    pub(super) fn usage(&self) -> Option<Usage> {
        let usage: Tokens = serde_json::from_str(self.usage?.get()).ok()?;
        Some(Usage {
            input_tokens: usage.prompt_tokens,
            output_tokens: usage.completion_tokens,
            cached_input_tokens: usage.prompt_tokens_details.and_then(|details| details.cached_tokens),
            reasoning_tokens: usage.completion_tokens_details.and_then(|details| details.reasoning_tokens),
        })
    }
}

#[derive(Debug, Deserialize)]
struct Tokens {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Debug, Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

/// A choice; there is one where nobody asked for more.
#[derive(Debug, Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    message: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
}

impl<'a> Choice<'a> {
    pub(super) fn index(&self) -> Option<u64> {
        self.index.and_then(number)
    }

    /// What it adds, or all that it says.
    pub(super) fn said(&self) -> Option<&Delta<'a>> {
        self.delta.as_ref().or(self.message.as_ref())
    }

    /// Why it ended, where it has.
    pub(super) fn finish_reason(&self) -> Option<Cow<'a, str>> {
        self.finish_reason.and_then(text).filter(|word| !word.is_empty())
    }
}

/// What is said.
#[derive(Debug, Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<Fragment<'a>>>,
    #[serde(borrow)]
    pub(super) function_call: Option<Function<'a>>,
}

impl<'a> Delta<'a> {
    /// The thinking, by either of its names: an engine that uses both says the same twice.
    pub(super) fn reasoning(&self) -> Option<Cow<'a, str>> {
        [self.reasoning_content, self.reasoning].into_iter().flatten().find_map(said)
    }

    pub(super) fn content(&self) -> Option<Cow<'a, str>> {
        self.content.and_then(|raw| said(raw).or_else(|| parts(raw)))
    }

    /// Words with which the model declines: text as any other to whoever reads it.
    pub(super) fn refusal(&self) -> Option<Cow<'a, str>> {
        self.refusal.and_then(said)
    }
}

/// Of a call.
#[derive(Debug, Deserialize)]
pub(super) struct Fragment<'a> {
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) function: Option<Function<'a>>,
}

impl<'a> Fragment<'a> {
    pub(super) fn index(&self) -> Option<u64> {
        self.index.and_then(number)
    }

    pub(super) fn id(&self) -> Option<Cow<'a, str>> {
        self.id.and_then(said)
    }
}

/// A function and its arguments, or some of these.
#[derive(Debug, Deserialize)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl<'a> Function<'a> {
    pub(super) fn name(&self) -> Option<Cow<'a, str>> {
        self.name.and_then(said)
    }

    /// A string that holds JSON; some engines send the object itself.
    pub(super) fn arguments(&self) -> Option<Cow<'a, str>> {
        let raw = self.arguments?;
        if raw.get().starts_with('{') { Some(raw.get().into()) } else { said(raw) }
    }
}

fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

    let is_string = raw.get().starts_with('"');
    is_string.then(|| serde_json::from_str::<Text<'_>>(raw.get()).ok().map(|text| text.0)).flatten()
}

fn said(raw: &RawValue) -> Option<Cow<'_, str>> {
    text(raw).filter(|text| !text.is_empty())
}

fn number(raw: &RawValue) -> Option<u64> {
    text(raw).map_or_else(|| raw.get().parse().ok(), |text| text.parse().ok())
}

/// The text of a list of parts.
fn parts(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Part<'a> {
        #[serde(borrow)]
        text: Option<&'a RawValue>,
    }

    let parts: Vec<Part<'_>> = raw.get().starts_with('[').then(|| serde_json::from_str(raw.get()).ok())??;
    let all: String = parts.iter().filter_map(|part| part.text.and_then(text)).collect();
    (!all.is_empty()).then(|| all.into())
}
