//! From a Messages request to a conversation (api.md §1.4).
//!
//! What no backend can carry and the answer would silently lack is refused by name: tools that run at Anthropic, files of other
//! forms than text, citations, MCP servers. What only concerns Anthropic's own service (`cache_control`, `service_tier`,
//! `context_management`, …) is skipped.

mod blocks;
mod messages;
mod place;
mod tools;

use std::collections::BTreeMap;

use proto::{
    limits::{METADATA_KEY_BYTES_MAX, METADATA_PAIRS_MAX, METADATA_VALUE_BYTES_MAX},
    run_input::{Effort, Options},
};
use serde_json::value::RawValue;

pub(super) use self::place::Place;
use super::wire;
use crate::conversation::{Checked, Conversation, Format, wrong};

/// Most tokens of thinking that count as little, and as a medium amount: what Claude Code asks for by "think" and "think hard" is
/// below each.
const LOW_BUDGET_MAX: u64 = 4_096;
const MEDIUM_BUDGET_MAX: u64 = 16_384;

const MISSING: &str = "but the key is missing";

/// A Messages request.
#[derive(Debug)]
pub struct Asked {
    /// What is asked of the model.
    pub conversation: Conversation,
    /// As the client named it.
    pub model: String,
    /// The answer in events.
    pub stream: bool,
}

/// Reads a body.
///
/// # Errors
/// [`crate::conversation::InputError`] names the first member that is wrong, or that cannot be carried.
pub fn read(body: &[u8]) -> Checked<Asked> {
    let request: wire::Request<'_> = wire::whole(body)?;
    refuse_undoable(&request)?;
    let Some(model) = request.model.as_ref().map(|model| model.0.clone().into_owned()) else {
        return wrong("model", format!("expected a string, {MISSING}"));
    };
    let options = options(&request)?;
    let effort = effort(request.thinking.as_ref(), request.output_config.as_ref())?;
    let (tools, tool_choice, single_tool_call) =
        tools::read(request.tools.as_deref().unwrap_or_default(), request.tool_choice.as_ref())?;
    let format = match request.output_config.as_ref().and_then(|config| config.format.as_ref()) {
        Some(format) => form(format, "output_config.format")?,
        None => request.output_format.as_ref().map_or(Ok(Format::Text), |it| form(it, "output_format"))?,
    };
    let messages = messages::read(request.system, request.messages.unwrap_or_default())?;
    let metadata = metadata(request.metadata);
    let conversation =
        Conversation { messages, tools, tool_choice, single_tool_call, format, effort, options, metadata };
    Ok(Asked { conversation, model, stream: request.stream.unwrap_or(false) })
}

fn refuse_undoable(request: &wire::Request<'_>) -> Checked<()> {
    if request.mcp_servers.as_ref().is_some_and(|servers| !servers.is_empty()) {
        return wrong("mcp_servers", "nobody connects to MCP servers here: offer their tools as `tools`");
    }
    let container = request.container.filter(|raw| raw.get().starts_with('{'));
    let container: Option<wire::Container> =
        container.map(|raw| wire::value(raw, &Place::Top("container"))).transpose()?;
    if container.and_then(|it| it.skills).is_some_and(|skills| !skills.is_empty()) {
        return wrong("container.skills", "there are no containers here, so no skills");
    }
    Ok(())
}

fn options(request: &wire::Request<'_>) -> Checked<Options> {
    let within = |param: &str, value: Option<f64>, most: f64| match value {
        Some(value) if !(0.0..=most).contains(&value) => {
            wrong(param, format!("expected a number from 0 to {most}"))
        }
        value => Ok(value),
    };
    let Some(max_tokens) = request.max_tokens else {
        return wrong("max_tokens", format!("expected a number of tokens, {MISSING}"));
    };
    Ok(Options {
        // 0 asks for the prompt to be read ahead; the least that backends do with it is one token.
        max_tokens: Some(max_tokens.max(1)),
        // Taken whatever version of the API the client speaks; models other than Anthropic's go up to 2.
        temperature: within("temperature", request.temperature, 2.0)?,
        top_p: within("top_p", request.top_p, 1.0)?,
        top_k: request.top_k.and_then(|count| u64::try_from(count).ok()).filter(|count| *count > 0),
        stop: request.stop_sequences.iter().flatten().map(|text| text.0.clone().into_owned()).collect(),
        ..Options::default()
    })
}

/// A word about the effort is worth more than a budget, and that no thinking is wanted more than either.
fn effort(
    thinking: Option<&wire::Thinking<'_>>,
    config: Option<&wire::OutputConfig<'_>>,
) -> Checked<Option<Effort>> {
    let budgeted = match thinking.map(|it| (it.kind.as_ref().map_or("", |kind| &kind.0), it.budget_tokens)) {
        None | Some(("adaptive", _)) => None,
        Some(("disabled", _)) => return Ok(Some(Effort::None)),
        Some(("enabled", None)) => Some(Effort::Medium),
        Some(("enabled", Some(..=LOW_BUDGET_MAX))) => Some(Effort::Low),
        Some(("enabled", Some(..=MEDIUM_BUDGET_MAX))) => Some(Effort::Medium),
        Some(("enabled", Some(_))) => Some(Effort::High),
        Some(_) => return wrong("thinking.type", "expected enabled, adaptive or disabled"),
    };
    let Some(word) = config.and_then(|config| config.effort.as_ref()) else { return Ok(budgeted) };
    match &*word.0 {
        "low" => Ok(Some(Effort::Low)),
        "medium" => Ok(Some(Effort::Medium)),
        "high" => Ok(Some(Effort::High)),
        "xhigh" | "max" => Ok(Some(Effort::Max)),
        _ => wrong("output_config.effort", "expected low, medium, high, xhigh or max"),
    }
}

fn form(format: &wire::OutputFormat<'_>, path: &str) -> Checked<Format> {
    if format.kind.as_ref().is_none_or(|kind| kind.0 != "json_schema") {
        return wrong(format!("{path}.type"), "expected json_schema");
    }
    match format.schema {
        Some(schema) if is_object(schema) => {
            Ok(Format::JsonSchema { name: "answer".to_owned(), schema: schema.to_owned(), strict: None })
        }
        _ => wrong(format!("{path}.schema"), "expected an object"),
    }
}

fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

/// Pairs of short texts; anything else is no concern of ours and left out (RUN-7).
fn metadata(raw: Option<&RawValue>) -> BTreeMap<String, String> {
    let pairs: BTreeMap<String, String> =
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let fits = |(key, value): &(String, String)| {
        (1..=METADATA_KEY_BYTES_MAX).contains(&key.len()) && value.len() <= METADATA_VALUE_BYTES_MAX
    };
    pairs.into_iter().filter(fits).take(METADATA_PAIRS_MAX).collect()
}

#[cfg(test)]
mod tests;
