//! The shape of a Messages request, as far as it is understood. Members that are not named here are skipped, whatever they are.
//!
//! What has a form of its own for every kind of block stays raw until the kind is known: an error then names the member that is
//! wrong, and a list of many small blocks is never held as a whole.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::request::Place;
use crate::conversation::{Checked, InputError, wrong};

/// Longest explanation of the parser's that is told on, in characters: it may quote the client.
const DETAIL_CHARS_MAX: usize = 200;

/// A string that stands in the body where it can.
#[derive(Debug, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// The whole request.
#[derive(Debug, Deserialize)]
pub(super) struct Request<'a> {
    #[serde(borrow)]
    pub(super) model: Option<Text<'a>>,
    pub(super) max_tokens: Option<u64>,
    #[serde(borrow)]
    pub(super) messages: Option<Vec<Message<'a>>>,
    #[serde(borrow)]
    pub(super) system: Option<&'a RawValue>,
    pub(super) stream: Option<bool>,
    #[serde(borrow)]
    pub(super) stop_sequences: Option<Vec<Text<'a>>>,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    pub(super) top_k: Option<i64>,
    #[serde(borrow)]
    pub(super) tools: Option<Vec<Tool<'a>>>,
    #[serde(borrow)]
    pub(super) tool_choice: Option<Choice<'a>>,
    #[serde(borrow)]
    pub(super) thinking: Option<Thinking<'a>>,
    #[serde(borrow)]
    pub(super) output_config: Option<OutputConfig<'a>>,
    /// Where the form of the answer stood before it moved into `output_config`.
    #[serde(borrow)]
    pub(super) output_format: Option<OutputFormat<'a>>,
    #[serde(borrow)]
    pub(super) metadata: Option<&'a RawValue>,
    pub(super) mcp_servers: Option<Vec<IgnoredAny>>,
    #[serde(borrow)]
    pub(super) container: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow)]
    pub(super) role: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
}

/// A block of any kind.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Block<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) text: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) thinking: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_use_id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) tool_name: Option<Text<'a>>,
    pub(super) is_error: Option<bool>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) source: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) title: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) context: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) citations: Option<&'a RawValue>,
}

/// Where the content of an image or a document comes from.
#[derive(Debug, Deserialize)]
pub(super) struct Source<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) media_type: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) data: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) url: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Citations {
    pub(super) enabled: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Tool<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) description: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) input_schema: Option<&'a RawValue>,
    pub(super) strict: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    pub(super) disable_parallel_tool_use: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Thinking<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    pub(super) budget_tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct OutputConfig<'a> {
    #[serde(borrow)]
    pub(super) effort: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) format: Option<OutputFormat<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct OutputFormat<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) schema: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Container {
    pub(super) skills: Option<Vec<IgnoredAny>>,
}

/// Reads a body.
pub(super) fn whole<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Checked<T> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| told(&error, String::new()))?;
    match json.end() {
        Ok(()) => Ok(value),
        Err(error) => wrong("", bounded(&error.to_string())),
    }
}

/// Reads the value that stands at a place.
pub(super) fn value<'a, T: Deserialize<'a>>(raw: &'a RawValue, at: &Place<'_>) -> Checked<T> {
    let mut json = serde_json::Deserializer::from_str(raw.get());
    serde_path_to_error::deserialize(&mut json).map_err(|error| told(&error, at.to_string()))
}

/// Hands on the items of a list one by one.
pub(super) fn each<'a>(
    list: &'a RawValue,
    at: &Place<'_>,
    mut take: impl FnMut(usize, &'a RawValue) -> Checked<()>,
) -> Checked<()> {
    let mut refused = None;
    let items = Items { take: &mut take, refused: &mut refused };
    let read = serde_json::Deserializer::from_str(list.get()).deserialize_seq(items);
    match (refused, read) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => wrong(at.to_string(), bounded(&error.to_string())),
        (None, Ok(())) => Ok(()),
    }
}

/// Takes items until one is refused.
struct Items<'t, F> {
    take: &'t mut F,
    refused: &'t mut Option<InputError>,
}

impl<'de, F: FnMut(usize, &'de RawValue) -> Checked<()>> Visitor<'de> for Items<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut at = 0;
        while let Some(item) = list.next_element()? {
            if let Err(error) = (self.take)(at, item) {
                *self.refused = Some(error);
                return Err(de::Error::custom("refused"));
            }
            at += 1;
        }
        Ok(())
    }
}

/// The parser's words, and the place below `before`.
fn told(error: &serde_path_to_error::Error<serde_json::Error>, before: String) -> InputError {
    let (path, words) = (error.path().to_string(), error.inner().to_string());
    let param = match (before.is_empty(), &*path) {
        (_, ".") => before,
        (true, _) => path,
        (false, path) if path.starts_with('[') => before + path,
        (false, path) => format!("{before}.{path}"),
    };
    // Line and column are those of a part, where a place is told.
    let words =
        if param.is_empty() { &*words } else { words.rsplit_once(" at line ").map_or(&*words, |it| it.0) };
    InputError { param, detail: bounded(words).into() }
}

fn bounded(words: &str) -> String {
    words.chars().take(DETAIL_CHARS_MAX).collect()
}
