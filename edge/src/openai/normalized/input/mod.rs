//! From a chat completion request to the normalized input of a run (api.md §1.1). Pure.
//!
//! What a native backend cannot do and the answer would silently lack is refused by name: `n` over 1, `logprobs`,
//! `logit_bias`, pictures that would have to be fetched, sound, files, tools that are no functions. What only concerns
//! OpenAI's own service (`store`, `user`, `service_tier`, … ) is skipped.

use std::{borrow::Cow, collections::BTreeMap};

use proto::{
    limits::{METADATA_KEY_BYTES_MAX, METADATA_PAIRS_MAX, METADATA_VALUE_BYTES_MAX},
    run_input::{Call, CallKind, Effort, Format, Options, Role, RunInput, Tool, ToolCall, ToolChoice, Turn},
};
use serde_json::value::RawValue;

use super::wire::{self, Think, WordOr};
use crate::{
    config::GenerationPolicy,
    conversation::{Checked, InputError, quoted, wrong},
};

/// Members of a request whose value an adapter would have to bring back with every token, or of every choice.
const ONE_ANSWER: &str = "the provider of this model gives one answer a request";
const NO_LOGPROBS: &str = "the provider of this model gives no log probabilities";

/// A request that can run on a native backend.
#[derive(Debug)]
pub struct Asked {
    /// What goes to the Node.
    pub input: RunInput,
    /// Whether a stream is to end with the usage.
    pub include_usage: bool,
    /// The request has its tools as `functions`, and expects `function_call` back.
    pub legacy_functions: bool,
    /// The client's own pairs, as far as they are pairs of short texts: for the Node to note, never to act on (RUN-7).
    pub metadata: BTreeMap<String, String>,
}

/// Reads a body that is known to be one JSON object.
///
/// # Errors
/// [`InputError`] names the first member that is wrong, or that no native backend can do.
pub fn read(body: &[u8]) -> Checked<Asked> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let chat: wire::Chat<'_> = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        InputError {
            param: if path == "." { String::new() } else { path },
            detail: error.into_inner().to_string().into(),
        }
    })?;
    convert(chat)
}

/// Fills in and raises the limit of tokens (CFG-5), as is done in the body of a tunnel. A budget for thinking has no counterpart in
/// what native backends take.
pub fn apply(policy: &GenerationPolicy, options: &mut Options) {
    let limit = options.max_tokens.or(policy.default_max_tokens);
    options.max_tokens = limit.map(|limit| limit.max(policy.min_max_tokens.unwrap_or_default()));
}

fn convert(chat: wire::Chat<'_>) -> Checked<Asked> {
    refuse_undoable(&chat)?;
    let options = options(&chat)?;
    let effort = effort(&chat)?;
    let format = format(chat.response_format.as_ref())?;
    let single = chat.parallel_tool_calls == Some(false);
    let tools = tools(chat.tools.as_deref().unwrap_or_default())?;
    let legacy_functions = tools.is_empty() && chat.functions.as_ref().is_some_and(|list| !list.is_empty());
    let (tools, tool_choice) = if legacy_functions {
        let list = chat.functions.as_deref().unwrap_or_default().iter().enumerate();
        let tools: Vec<_> =
            list.map(|(at, it)| function(it, &format!("functions[{at}]"))).collect::<Checked<_>>()?;
        let choice = legacy_choice(chat.function_call.as_ref(), &tools)?;
        (tools, choice)
    } else {
        choose(tools, chat.tool_choice.as_ref())?
    };
    let metadata = metadata(chat.metadata);
    let include_usage = chat.stream_options.and_then(|options| options.include_usage).unwrap_or(false);
    let messages = messages(chat.messages)?;
    let input = RunInput {
        messages,
        tools,
        tool_choice,
        single_tool_call: single || legacy_functions,
        format,
        effort,
        options,
    };
    Ok(Asked { input, include_usage, legacy_functions, metadata })
}

fn refuse_undoable(chat: &wire::Chat<'_>) -> Checked<()> {
    if chat.n.is_some_and(|n| n != 1) {
        return wrong("n", format!("expected 1: {ONE_ANSWER}"));
    }
    if chat.logprobs == Some(true) {
        return wrong("logprobs", NO_LOGPROBS);
    }
    if chat.top_logprobs.is_some_and(|count| count > 0) {
        return wrong("top_logprobs", NO_LOGPROBS);
    }
    let biases = chat.logit_bias.map(|raw| raw.get().chars().filter(|char| !char.is_ascii_whitespace()));
    if biases.is_some_and(|chars| !chars.eq("{}".chars())) {
        return wrong("logit_bias", "the provider of this model takes no biases of tokens");
    }
    Ok(())
}

fn options(chat: &wire::Chat<'_>) -> Checked<Options> {
    let within = |param: &str, value: Option<f64>, least: f64, most: f64| match value {
        Some(value) if !(least..=most).contains(&value) => {
            wrong(param, format!("expected a number from {least} to {most}"))
        }
        value => Ok(value),
    };
    Ok(Options {
        max_tokens: chat.max_completion_tokens.or(chat.max_tokens),
        temperature: within("temperature", chat.temperature, 0.0, 2.0)?,
        top_p: within("top_p", chat.top_p, 0.0, 1.0)?,
        // Servers that take it switch it off by 0 or −1.
        top_k: chat.top_k.and_then(|count| u64::try_from(count).ok()).filter(|count| *count > 0),
        min_p: within("min_p", chat.min_p, 0.0, 1.0)?,
        frequency_penalty: within("frequency_penalty", chat.frequency_penalty, -2.0, 2.0)?,
        presence_penalty: within("presence_penalty", chat.presence_penalty, -2.0, 2.0)?,
        seed: chat.seed,
        stop: match &chat.stop {
            None => Vec::new(),
            Some(WordOr::Word(one)) => vec![one.clone().into_owned()],
            Some(WordOr::Other(list)) => list.iter().map(|text| text.0.clone().into_owned()).collect(),
        },
    })
}

/// The first of the ways to say it that says something.
fn effort(chat: &wire::Chat<'_>) -> Checked<Option<Effort>> {
    let whether = |on: bool| if on { Effort::Medium } else { Effort::None };
    if let Some(word) = &chat.reasoning_effort {
        return named_effort("reasoning_effort", &word.0).map(Some);
    }
    if let Some(reasoning) = &chat.reasoning {
        if let Some(word) = &reasoning.effort {
            return named_effort("reasoning.effort", &word.0).map(Some);
        }
        if let Some(on) = reasoning.enabled {
            return Ok(Some(whether(on)));
        }
    }
    match &chat.think {
        Some(Think::Whether(on)) => return Ok(Some(whether(*on))),
        Some(Think::Effort(word)) => return named_effort("think", word).map(Some),
        None => {}
    }
    let Some(arguments) = &chat.chat_template_kwargs else { return Ok(None) };
    if let Some(word) = &arguments.reasoning_effort {
        return named_effort("chat_template_kwargs.reasoning_effort", &word.0).map(Some);
    }
    Ok(arguments.enable_thinking.or(arguments.thinking).map(whether))
}

/// An effort by the word for it.
pub(in crate::openai) fn named_effort(param: &str, word: &str) -> Checked<Effort> {
    Ok(match word {
        "none" => Effort::None,
        "minimal" => Effort::Minimal,
        "low" => Effort::Low,
        "medium" => Effort::Medium,
        "high" => Effort::High,
        "xhigh" | "max" | "ultra" => Effort::Max,
        _ => return wrong(param, "expected none, minimal, low, medium, high, xhigh or max"),
    })
}

fn format(asked: Option<&wire::ResponseFormat<'_>>) -> Checked<Format> {
    let Some(asked) = asked else { return Ok(Format::Text) };
    match &*asked.kind.0 {
        "text" => Ok(Format::Text),
        "json_object" => Ok(Format::JsonObject),
        "json_schema" => match &asked.json_schema {
            None => wrong("response_format.json_schema", "expected an object, but the key is missing"),
            // Without a schema every object fits.
            Some(wire::JsonSchema { schema: None }) => Ok(Format::JsonObject),
            Some(wire::JsonSchema { schema: Some(schema) }) if is_object(schema) => {
                Ok(Format::JsonSchema((*schema).to_owned()))
            }
            Some(_) => wrong("response_format.json_schema.schema", "expected an object"),
        },
        _ => wrong("response_format.type", "expected text, json_object or json_schema"),
    }
}

fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

fn tools(list: &[wire::Tool<'_>]) -> Checked<Vec<Tool>> {
    let tool = |(at, tool): (usize, &wire::Tool<'_>)| {
        let path = format!("tools[{at}]");
        match (tool.kind.as_ref().map_or("function", |kind| &kind.0), &tool.function) {
            ("function", Some(it)) => function(it, &format!("{path}.function")),
            ("function", None) => {
                wrong(format!("{path}.function"), "expected an object, but the key is missing")
            }
            (other, _) => wrong(
                format!("{path}.type"),
                format!(
                    "the provider of this model knows functions only, not tools of type {}",
                    quoted(other)
                ),
            ),
        }
    };
    list.iter().enumerate().map(tool).collect()
}

fn function(it: &wire::Function<'_>, path: &str) -> Checked<Tool> {
    if it.name.0.is_empty() {
        return wrong(format!("{path}.name"), "expected a name, found an empty string");
    }
    if it.parameters.is_some_and(|schema| !is_object(schema)) {
        return wrong(format!("{path}.parameters"), "expected an object");
    }
    Ok(Tool {
        name: it.name.0.clone().into_owned(),
        description: it.description.as_ref().map(|text| text.0.clone().into_owned()).unwrap_or_default(),
        parameters: it.parameters.map(RawValue::to_owned),
    })
}

/// The tools that may be called, and whether they must.
fn choose(
    mut tools: Vec<Tool>,
    choice: Option<&WordOr<'_, wire::Choice<'_>>>,
) -> Checked<(Vec<Tool>, ToolChoice)> {
    let choice = match choice {
        None => ToolChoice::Auto,
        Some(WordOr::Word(word)) => mode("tool_choice", word)?,
        Some(WordOr::Other(choice)) => match &*choice.kind.0 {
            "function" => {
                let Some(function) = &choice.function else {
                    return wrong("tool_choice.function", "expected an object, but the key is missing");
                };
                let name = &*function.name.0;
                if tools.iter().all(|tool| tool.name != name) {
                    return wrong(
                        "tool_choice.function.name",
                        format!("{} is none of `tools`", quoted(name)),
                    );
                }
                ToolChoice::Function(name.to_owned())
            }
            "allowed_tools" => {
                let Some(allowed) = &choice.allowed_tools else {
                    return wrong("tool_choice.allowed_tools", "expected an object, but the key is missing");
                };
                let is_named = |tool: &Tool| {
                    let mut names = allowed.tools.iter().filter_map(|it| it.function.as_ref());
                    names.any(|function| function.name.0 == tool.name)
                };
                tools.retain(is_named);
                mode("tool_choice.allowed_tools.mode", allowed.mode.as_ref().map_or("auto", |mode| &mode.0))?
            }
            other => {
                return wrong(
                    "tool_choice.type",
                    format!("expected function or allowed_tools, found {}", quoted(other)),
                );
            }
        },
    };
    if choice == ToolChoice::Required && tools.is_empty() {
        return wrong("tool_choice", "a tool is required, but there is none");
    }
    Ok((tools, choice))
}

fn mode(param: &str, word: &str) -> Checked<ToolChoice> {
    Ok(match word {
        "auto" => ToolChoice::Auto,
        "none" => ToolChoice::None,
        "required" => ToolChoice::Required,
        _ => return wrong(param, "expected none, auto, required or an object"),
    })
}

fn legacy_choice(choice: Option<&WordOr<'_, wire::Named<'_>>>, tools: &[Tool]) -> Checked<ToolChoice> {
    match choice {
        None => Ok(ToolChoice::Auto),
        Some(WordOr::Word(word)) if word == "required" => {
            wrong("function_call", "expected none, auto or an object with `name`")
        }
        Some(WordOr::Word(word)) => mode("function_call", word),
        Some(WordOr::Other(named)) if tools.iter().any(|tool| tool.name == named.name.0) => {
            Ok(ToolChoice::Function(named.name.0.clone().into_owned()))
        }
        Some(WordOr::Other(named)) => {
            wrong("function_call.name", format!("{} is none of `functions`", quoted(&named.name.0)))
        }
    }
}

fn messages(list: Option<Vec<wire::Message<'_>>>) -> Checked<Vec<Turn>> {
    let Some(list) = list.filter(|list| !list.is_empty()) else {
        return wrong("messages", "expected an array of at least one message");
    };
    let mut turns = Vec::with_capacity(list.len());
    for (at, message) in list.into_iter().enumerate() {
        let turn = turn(message, &turns, &format!("messages[{at}]"))?;
        turns.push(turn);
    }
    Ok(turns)
}

fn turn(message: wire::Message<'_>, before: &[Turn], path: &str) -> Checked<Turn> {
    let role = match &*message.role.0 {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" | "function" => Role::Tool,
        _ => {
            return wrong(
                format!("{path}.role"),
                "expected system, developer, user, assistant, tool or function",
            );
        }
    };
    let mut turn = Turn { role, ..Turn::default() };
    match message.content {
        Some(WordOr::Word(text)) => turn.text = text.into_owned(),
        Some(WordOr::Other(parts)) => {
            for (at, part) in parts.into_iter().enumerate() {
                add_part(&mut turn, part, &format!("{path}.content[{at}]"))?;
            }
        }
        None if role == Role::Assistant => {
            turn.text = message.refusal.map(|text| text.0.into_owned()).unwrap_or_default();
        }
        None if role == Role::Tool => {}
        None => return wrong(format!("{path}.content"), "expected a string or an array of content parts"),
    }
    match role {
        Role::Assistant => {
            let reasoning = message.reasoning_content.or(message.reasoning);
            turn.reasoning = reasoning.map(|text| text.0.into_owned()).unwrap_or_default();
            for (at, call) in message.tool_calls.into_iter().flatten().enumerate() {
                turn.tool_calls.push(tool_call(call, &format!("{path}.tool_calls[{at}]"))?);
            }
            if let Some(function) = message.function_call.filter(|_| turn.tool_calls.is_empty()) {
                // It has no identity of its own; its place gives it one that is the same in every request.
                let id = format!("call_{}", before.len());
                turn.tool_calls.push(called(id, function, &format!("{path}.function_call"))?);
            }
        }
        Role::Tool => answers(&mut turn, message.tool_call_id, message.name, before, path, &message.role.0)?,
        Role::System | Role::User => {}
    }
    Ok(turn)
}

/// Which call a tool's answer is for.
fn answers(
    turn: &mut Turn,
    id: Option<wire::Text<'_>>,
    name: Option<wire::Text<'_>>,
    before: &[Turn],
    path: &str,
    role: &str,
) -> Checked<()> {
    let calls = || before.iter().rev().flat_map(|turn| turn.tool_calls.iter().rev());
    let name = name.map(|text| text.0.into_owned()).unwrap_or_default();
    if role == "function" {
        turn.tool_call_id =
            calls().find(|call| call.function.name == name).map_or_else(String::new, |c| c.id.clone());
        turn.tool_name = name;
        return Ok(());
    }
    let Some(id) = id.map(|id| id.0.into_owned()) else {
        return wrong(format!("{path}.tool_call_id"), "expected the id of a call, but the key is missing");
    };
    // One whose call is not told any more is passed on as what it is.
    turn.tool_name = calls().find(|call| call.id == id).map_or(name, |call| call.function.name.clone());
    turn.tool_call_id = id;
    Ok(())
}

/// Adds a part of a message; texts stand on lines of their own, as servers of the usual kind put them.
fn add_part(turn: &mut Turn, part: wire::Part<'_>, path: &str) -> Checked<()> {
    let mut add = |text: Option<wire::Text<'_>>, key: &str| {
        let Some(text) = text else {
            return wrong(format!("{path}.{key}"), "expected a string, but the key is missing");
        };
        if !turn.text.is_empty() {
            turn.text.push('\n');
        }
        turn.text.push_str(&text.0);
        Ok(())
    };
    match &*part.kind.0 {
        "text" => add(part.text, "text"),
        "refusal" => add(part.refusal, "refusal"),
        "image_url" => {
            let (url, key) = match part.image_url {
                Some(WordOr::Word(url)) => (url, "image_url"),
                Some(WordOr::Other(image)) => (image.url.0, "image_url.url"),
                None => {
                    return wrong(format!("{path}.image_url"), "expected an object, but the key is missing");
                }
            };
            turn.images.push(base64_of(&url, &format!("{path}.{key}"))?);
            Ok(())
        }
        other => wrong(
            format!("{path}.type"),
            format!("the provider of this model takes text and images, not {}", quoted(other)),
        ),
    }
}

/// The base64 of a `data:` URL (RFC 2397). Nothing is fetched: what a client names by address the Edge must not reach.
fn base64_of(url: &str, path: &str) -> Checked<String> {
    let data = url.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:")).and_then(|_| url.get(5..));
    let Some((kind, data)) = data.and_then(|rest| rest.split_once(',')) else {
        return wrong(path, "expected a data: URL with the image in base64: images are not fetched");
    };
    let mut parameters = kind.split(';');
    let is_image = parameters.next().is_some_and(|kind| {
        kind.is_empty() || kind.get(..6).is_some_and(|kind| kind.eq_ignore_ascii_case("image/"))
    });
    if !is_image
        || parameters.all(|parameter| !parameter.trim().eq_ignore_ascii_case("base64"))
        || data.is_empty()
    {
        return wrong(path, "expected data:image/…;base64,… with the image behind it");
    }
    Ok(data.to_owned())
}

fn tool_call(call: wire::Call<'_>, path: &str) -> Checked<ToolCall> {
    if call.kind.as_ref().is_some_and(|kind| kind.0 != "function") {
        return wrong(format!("{path}.type"), "expected function");
    }
    let Some(function) = call.function else {
        return wrong(format!("{path}.function"), "expected an object, but the key is missing");
    };
    let id = call.id.map(|id| id.0.into_owned()).unwrap_or_default();
    called(id, function, &format!("{path}.function"))
}

fn called(id: String, function: wire::CalledFunction<'_>, path: &str) -> Checked<ToolCall> {
    let arguments = match function.arguments {
        None => Cow::Borrowed("{}"),
        Some(raw) if is_object(raw) => Cow::Borrowed(raw.get()),
        Some(raw) => serde_json::from_str::<String>(raw.get())
            .map(Cow::Owned)
            .or_else(|_| wrong(format!("{path}.arguments"), "expected a string that holds a JSON object"))?,
    };
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments.trim() };
    if !holds_object(arguments) {
        return wrong(format!("{path}.arguments"), "expected a string that holds a JSON object");
    }
    let function = Call { name: function.name.0.into_owned(), arguments: arguments.to_owned() };
    Ok(ToolCall { id, kind: CallKind::Function, function })
}

/// Whether a text is one JSON object.
pub(in crate::openai) fn holds_object(text: &str) -> bool {
    text.starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Pairs of short texts; anything else is no concern of ours and left out (RUN-7).
pub(in crate::openai) fn metadata(raw: Option<&RawValue>) -> BTreeMap<String, String> {
    let pairs: BTreeMap<String, String> =
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let fits = |(key, value): &(String, String)| {
        (1..=METADATA_KEY_BYTES_MAX).contains(&key.len()) && value.len() <= METADATA_VALUE_BYTES_MAX
    };
    pairs.into_iter().filter(fits).take(METADATA_PAIRS_MAX).collect()
}

#[cfg(test)]
mod tests;
