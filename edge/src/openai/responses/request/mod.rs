//! From a Responses request to a conversation (api.md §1.2). Pure.
//!
//! What would silently lack in the answer is refused by name: an earlier response or a conversation that is kept elsewhere, a run
//! in the background, a prompt by reference, log probabilities, files that are no text, tools that OpenAI's own service runs. Of
//! the latter, those that Codex sends unasked are left out instead: it must go on working without them.

mod input;
mod part;
mod tools;

use std::collections::BTreeMap;

use proto::run_input::Options;
use serde_json::value::RawValue;

use super::{
    Echo, Names,
    echo::Told,
    wire::{self, is_object, is_string},
};
use crate::{
    conversation::{Checked, Conversation, Format, wrong},
    openai::normalized::input::{metadata, named_effort},
};

/// Nothing of an earlier request is there.
const NOT_STORED: &str = "responses are not stored here: send the whole conversation in `input`";
/// A value that `include` may have and no backend can give.
const LOGPROBS: &str = "message.output_text.logprobs";

/// What a request asks for.
#[derive(Debug)]
pub struct Asked {
    /// Of the model.
    pub conversation: Conversation,
    /// What its response repeats of it.
    pub echo: Echo,
    /// What the client calls its tools.
    pub names: Names,
}

/// Reads a body that is known to be one JSON object.
///
/// # Errors
/// [`InputError`](crate::conversation::InputError) names the first member that is wrong, or that no backend can do.
pub fn read(body: &[u8]) -> Checked<Asked> {
    let request = wire::request(body)?;
    refuse_undoable(&request)?;
    let options = options(&request)?;
    let effort = match request.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_ref()) {
        Some(word) => Some(named_effort("reasoning.effort", &word.0)?),
        None => None,
    };
    let format = format(request.text.as_ref().and_then(|text| text.format))?;
    let tools = tools::read(request.tools.as_deref().unwrap_or_default(), request.tool_choice)?;
    let messages = input::read(request.instructions.as_ref().map(|text| &*text.0), request.input)?;
    let echo = echo(&request, tools.told);
    let conversation = Conversation {
        messages,
        tools: tools.list,
        tool_choice: tools.choice,
        single_tool_call: request.parallel_tool_calls == Some(false),
        format,
        effort,
        options,
        metadata: metadata(request.metadata),
    };
    Ok(Asked { conversation, echo, names: tools.names })
}

fn refuse_undoable(request: &wire::Request<'_>) -> Checked<()> {
    for (param, member) in
        [("previous_response_id", request.previous_response_id), ("conversation", request.conversation)]
    {
        if member.is_some() {
            return wrong(param, NOT_STORED);
        }
    }
    if request.prompt.is_some() {
        return wrong("prompt", "no prompts are kept here: send its text in `instructions` and `input`");
    }
    if request.background == Some(true) {
        return wrong("background", "expected false: nothing runs in the background here");
    }
    if request.top_logprobs.is_some_and(|count| count > 0) {
        return wrong("top_logprobs", "expected 0: there are no log probabilities here");
    }
    let include = request.include.as_deref().unwrap_or_default();
    match include.iter().position(|word| word.0 == LOGPROBS) {
        Some(at) => wrong(format!("include[{at}]"), "there are no log probabilities here"),
        None => Ok(()),
    }
}

fn options(request: &wire::Request<'_>) -> Checked<Options> {
    Ok(Options {
        max_tokens: request.max_output_tokens,
        temperature: within("temperature", request.temperature, 0.0, 2.0)?,
        top_p: within("top_p", request.top_p, 0.0, 1.0)?,
        frequency_penalty: within("frequency_penalty", request.frequency_penalty, -2.0, 2.0)?,
        presence_penalty: within("presence_penalty", request.presence_penalty, -2.0, 2.0)?,
        ..Options::default()
    })
}

fn within(param: &str, value: Option<f64>, least: f64, most: f64) -> Checked<Option<f64>> {
    match value {
        Some(value) if !(least..=most).contains(&value) => {
            wrong(param, format!("expected a number from {least} to {most}"))
        }
        value => Ok(value),
    }
}

fn format(asked: Option<&RawValue>) -> Checked<Format> {
    let Some(asked) = asked else { return Ok(Format::Text) };
    let asked: wire::Format<'_> = wire::parse(asked, "text.format")?;
    match &*asked.kind.0 {
        "text" => Ok(Format::Text),
        "json_object" => Ok(Format::JsonObject),
        "json_schema" => match asked.schema {
            Some(schema) if is_object(schema) => Ok(Format::JsonSchema {
                name: asked.name.map_or_else(|| "answer".to_owned(), |name| name.0.into_owned()),
                schema: schema.to_owned(),
                strict: asked.strict,
            }),
            Some(_) => wrong("text.format.schema", "expected an object"),
            None => wrong("text.format.schema", "expected an object, but the key is missing"),
        },
        _ => wrong("text.format.type", "expected text, json_object or json_schema"),
    }
}

fn echo(request: &wire::Request<'_>, tools: Vec<u8>) -> Echo {
    let text = request.text.as_ref();
    let reasoning = request.reasoning.as_ref();
    Echo::new(&Told {
        instructions: request.instructions.as_ref().map(|text| &*text.0),
        max_output_tokens: request.max_output_tokens,
        max_tool_calls: request.max_tool_calls,
        metadata: request.metadata.filter(|raw| is_object(raw)).map(RawValue::get),
        parallel_tool_calls: request.parallel_tool_calls,
        prompt_cache_key: words(request.prompt_cache_key),
        effort: reasoning.and_then(|reasoning| reasoning.effort.as_ref()).map(|word| &*word.0),
        summary: reasoning.and_then(|reasoning| reasoning.summary.as_ref()).map(|word| &*word.0),
        safety_identifier: words(request.safety_identifier),
        temperature: request.temperature,
        format: text.and_then(|text| text.format).map(RawValue::get),
        verbosity: text.and_then(|text| text.verbosity.as_ref()).map(|word| &*word.0),
        tool_choice: request.tool_choice.map(RawValue::get),
        tools,
        top_p: request.top_p,
        frequency_penalty: request.frequency_penalty,
        presence_penalty: request.presence_penalty,
        user: words(request.user),
    })
}

/// A member that is repeated where it is a string, and no concern of ours.
fn words(raw: Option<&RawValue>) -> Option<&str> {
    raw.filter(|raw| is_string(raw)).map(RawValue::get)
}

/// Calls of the conversation so far, by identity: the name of each one's function.
type Calls = BTreeMap<String, String>;

#[cfg(test)]
mod tests;
