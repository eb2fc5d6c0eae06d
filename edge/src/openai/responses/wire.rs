//! The shape of a Responses request, as far as it means something here. Members that are not named are skipped, whatever they are.
//!
//! A member that comes in several forms is kept as it stands and read when its form is known, so that a mistake in it is told by
//! its path, and one in a form that nobody reads is none.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::conversation::{Checked, InputError};

/// A string that stands in the body where it can.
#[derive(Debug, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// The whole request.
#[derive(Debug, Deserialize)]
pub(super) struct Request<'a> {
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) instructions: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) tools: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    pub(super) tool_choice: Option<&'a RawValue>,
    pub(super) parallel_tool_calls: Option<bool>,
    #[serde(borrow)]
    pub(super) reasoning: Option<Reasoning<'a>>,
    #[serde(borrow)]
    pub(super) text: Option<TextConfig<'a>>,
    pub(super) max_output_tokens: Option<u64>,
    pub(super) max_tool_calls: Option<u64>,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    pub(super) frequency_penalty: Option<f64>,
    pub(super) presence_penalty: Option<f64>,
    pub(super) top_logprobs: Option<u64>,
    #[serde(borrow)]
    pub(super) include: Option<Vec<Text<'a>>>,
    pub(super) background: Option<bool>,
    #[serde(borrow)]
    pub(super) previous_response_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) conversation: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) prompt_cache_key: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) safety_identifier: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) user: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Reasoning<'a> {
    #[serde(borrow)]
    pub(super) effort: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) summary: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TextConfig<'a> {
    #[serde(borrow)]
    pub(super) format: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) verbosity: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Format<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) schema: Option<&'a RawValue>,
    pub(super) strict: Option<bool>,
}

/// An element of `input`, of whichever type.
#[derive(Debug, Deserialize)]
pub(super) struct Item<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) role: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) summary: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) output: Option<&'a RawValue>,
}

/// An element of a content, of whichever type.
#[derive(Debug, Deserialize)]
pub(super) struct Part<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) image_url: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) detail: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) filename: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) file_data: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) file_url: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) file_id: Option<&'a RawValue>,
}

/// An element of `tools`, or of a group of them.
#[derive(Debug, Deserialize)]
pub(super) struct Tool<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) description: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) parameters: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) strict: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) format: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tools: Option<&'a RawValue>,
}

/// What a custom tool wants its text to be.
#[derive(Debug, Deserialize)]
pub(super) struct Grammar<'a> {
    #[serde(borrow)]
    pub(super) syntax: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) definition: Option<Text<'a>>,
}

/// A choice among the tools, of whichever type.
#[derive(Debug, Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) namespace: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) mode: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) tools: Option<Vec<AllowedTool<'a>>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct AllowedTool<'a> {
    #[serde(borrow)]
    pub(super) namespace: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
}

/// Reads the whole body.
pub(super) fn request(body: &[u8]) -> Checked<Request<'_>> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut json);
    read.map_err(|error| {
        let path = error.path().to_string();
        let param = if path == "." { String::new() } else { path };
        InputError { param, detail: error.into_inner().to_string().into() }
    })
}

/// Reads what stands at `path`.
pub(super) fn parse<'de, T: Deserialize<'de>>(raw: &'de RawValue, path: &str) -> Checked<T> {
    let mut json = serde_json::Deserializer::from_str(raw.get());
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let within = error.path().to_string();
        let param = match within.as_bytes().first() {
            None | Some(b'.') => path.to_owned(),
            Some(b'[') => format!("{path}{within}"),
            Some(_) => format!("{path}.{within}"),
        };
        // Its line and column are those of the part, which nobody but us has.
        let detail = error.into_inner().to_string();
        let words = detail.rsplit_once(" at line ").map_or(&*detail, |(words, _)| words).to_owned();
        InputError { param, detail: words.into() }
    })
}

/// Reads the string at `path`, if there is one.
pub(super) fn text<'a>(raw: Option<&'a RawValue>, path: &str, key: &str) -> Checked<Option<Cow<'a, str>>> {
    raw.map(|raw| parse::<Text<'a>>(raw, &format!("{path}.{key}")).map(|text| text.0)).transpose()
}

/// Reads the string at `path`, which must be there.
pub(super) fn some_text<'a>(raw: Option<&'a RawValue>, path: &str, key: &str) -> Checked<Cow<'a, str>> {
    match text(raw, path, key)? {
        Some(text) => Ok(text),
        None => {
            crate::conversation::wrong(format!("{path}.{key}"), "expected a string, but the key is missing")
        }
    }
}

pub(super) fn is_string(raw: &RawValue) -> bool {
    raw.get().starts_with('"')
}

pub(super) fn is_array(raw: &RawValue) -> bool {
    raw.get().starts_with('[')
}

pub(super) fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}
