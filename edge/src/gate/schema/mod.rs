//! Output that was promised to keep a JSON Schema (SEG-8).
//!
//! A [`SchemaGate`] is made of a request and takes the answer's texts as they come, cut anywhere. Whether a text can still become
//! JSON is known after each byte (`json`); whether it keeps its schema, at its end (`judge`). Schemas come from strangers: what
//! compiling one and judging by it may cost is bounded beforehand (`bounds`), patterns are matched in linear time, and nothing is
//! ever fetched.

mod asked;
mod bounds;
mod json;
mod judge;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use self::{
    asked::{Asked, Promise},
    json::{Broken, Json},
};
use crate::surface::Surface;

/// Most bytes of text of one answer that are judged, of all its choices and calls together: 1 MiB.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Most choices and calls of one answer that are judged.
const TEXTS_MAX: usize = 256;
/// Bytes of schemas up to which [`SchemaGate::of_request`] is for a shard: about half a millisecond, and 60 µs more for each pattern. What
/// is more is for a helper thread: 128 KiB take 15 ms.
pub const SCHEMA_BYTES_ON_SHARD_MAX: usize = 2 * 1024;
/// Bytes of text up to which [`SchemaGate::end`] is for a shard: usually about a tenth of a millisecond. What is more is for a helper
/// thread.
pub const ANSWER_BYTES_ON_SHARD_MAX: usize = 32 * 1024;

/// Why a schema of a request cannot be judged by; closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not a valid schema of its draft.
    #[error("it is not a valid JSON Schema")]
    Invalid,
    /// More bytes, or more places for all its references, than a bound allows.
    #[error("it is too large to judge an answer by")]
    TooLarge,
    /// Nests too deeply.
    #[error("it nests too deeply to judge an answer by")]
    TooDeep,
    /// A `$ref` that is no pointer into the schema itself, or that never ends; an inner `$id`. Nothing is ever fetched.
    #[error(
        "it refers to something outside of it, by other means than a JSON pointer, or to itself without end"
    )]
    Reference,
    /// A pattern that needs backtracking, or too much memory, or one too many.
    #[error("it has a pattern that cannot be matched in linear time and bounded memory")]
    Pattern,
}

/// A schema of a request that no answer can be judged by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the JSON Schema in `{param}` cannot be used: {fault}")]
pub struct BadSchema {
    /// Where it stands in the request; no name that the client chose.
    pub param: &'static str,
    /// What is the matter.
    pub fault: Fault,
}

/// What an answer failed by; closed, fit for a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It can no longer become JSON.
    Syntax,
    /// It ended before its JSON did, or was empty.
    Cut,
    /// It is JSON and does not fit the schema.
    Schema,
    /// It is larger or deeper than is judged, or judging it would cost too much.
    Bound,
}

impl Kind {
    /// As a label: `syntax`, `cut`, `schema`, `bound`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::Cut => "cut",
            Self::Schema => "schema",
            Self::Bound => "bound",
        }
    }
}

/// How an answer breaks its promise. The place and the expectation are made of the answer's keys and the request's schema: they are
/// for the client of this very request and for the directive of its repair. `Debug` shows the kind alone, so that no log has them.
#[derive(Clone, PartialEq, Eq)]
pub struct Mismatch {
    kind: Kind,
    /// JSON pointer (RFC 6901), bounded.
    at: String,
    /// What was expected there, bounded.
    expected: String,
    /// Whose arguments they are; `None` = the content.
    pub(super) tool: Option<String>,
}

impl Mismatch {
    /// What kind of failure.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it is the arguments of a tool that do not fit, not the content.
    #[must_use]
    pub const fn is_of_tool(&self) -> bool {
        self.tool.is_some()
    }

    /// A phrase for this request's client; never for a log.
    #[must_use]
    pub fn told_to_client(&self) -> String {
        let whose = self.tool.as_ref().map_or_else(String::new, |tool| format!("arguments of `{tool}`: "));
        let at = if self.at.is_empty() { String::new() } else { format!("at {}: ", self.at) };
        format!("{whose}{at}{}", self.expected)
    }
}

impl fmt::Debug for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mismatch").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A text on its way.
struct Watch {
    json: Json,
    text: String,
    /// Which tool's arguments; `None` = content.
    tool: Option<usize>,
}

/// Judges an answer by what its request asked for: a JSON Schema, or JSON at all. After the first [`Mismatch`] the answer is lost, and
/// every further question is answered by the same one.
pub struct SchemaGate {
    asked: Asked,
    contents: BTreeMap<u32, Watch>,
    /// Calls by choice and number. `None` = of a tool that promises nothing.
    calls: BTreeMap<(u32, u32), Option<Watch>>,
    /// Choices that were refused by the provider, or that have calls: their content may be empty.
    excused: BTreeSet<u32>,
    bytes: usize,
    failed: Option<Mismatch>,
}

impl fmt::Debug for SchemaGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchemaGate")
            .field("bytes", &self.bytes)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl SchemaGate {
    /// What the request promises about its answer; `None` = nothing that could be judged. Chat: `response_format` and strict functions;
    /// Responses: `text.format` and strict functions; Messages: `output_config.format` (`output_format`), strict tools and the one
    /// that `tool_choice` names. The request is of its own client, so it may be refused for it.
    ///
    /// # Errors
    /// [`BadSchema`]: it promises something by a schema that cannot be judged by.
    #[must_use]
    pub fn of_request(surface: Surface, body: &[u8]) -> Option<Result<Self, BadSchema>> {
        match asked::read(surface, body) {
            Ok(Asked { content: None, tools }) if tools.is_empty() => None,
            Ok(asked) => Some(Ok(Self {
                asked,
                contents: BTreeMap::new(),
                calls: BTreeMap::new(),
                excused: BTreeSet::new(),
                bytes: 0,
                failed: None,
            })),
            Err(bad) => Some(Err(bad)),
        }
    }

    /// The same promises for another attempt at the answer: what came so far is forgotten.
    pub fn begin_attempt(&mut self) {
        self.contents.clear();
        self.calls.clear();
        self.excused.clear();
        (self.bytes, self.failed) = (0, None);
    }

    /// The next text of the content of the first choice.
    pub fn push(&mut self, text: &str) -> Option<Mismatch> {
        self.push_choice(0, text)
    }

    /// The next text of the content of this choice.
    pub fn push_choice(&mut self, choice: u32, text: &str) -> Option<Mismatch> {
        if let Some(failed) = &self.failed {
            return Some(failed.clone());
        }
        let is_object = match self.asked.content.as_ref()? {
            Promise::Object => true,
            Promise::Schema(_) => false,
        };
        if !self.contents.contains_key(&choice) && self.has_too_many() {
            return self.fail(too_much(), None);
        }
        self.bytes += text.len();
        let watch = self.contents.entry(choice).or_insert_with(|| Watch::new(is_object, None));
        let told = if self.bytes > ANSWER_BYTES_MAX { Err(too_much()) } else { watch.push(text) };
        told.err().and_then(|(kind, expected)| self.fail((kind, expected), None))
    }

    /// The next text of the arguments of a tool call: the `call`-th of its choice. `name` is needed once, with the first text or before
    /// it. Calls of tools that promise nothing are not looked at.
    pub fn push_arguments(
        &mut self,
        choice: u32,
        call: u32,
        name: Option<&str>,
        text: &str,
    ) -> Option<Mismatch> {
        if let Some(failed) = &self.failed {
            return Some(failed.clone());
        }
        self.excused.insert(choice);
        let is_known = self.calls.contains_key(&(choice, call));
        if !is_known && self.has_too_many() {
            return self.fail(too_much(), None);
        }
        let tools = &self.asked.tools;
        let tool = || tools.iter().position(|(tool, _)| Some(tool.as_str()) == name);
        let watch =
            self.calls.entry((choice, call)).or_insert_with(|| tool().map(|it| Watch::new(true, Some(it))));
        let watch = watch.as_mut()?;
        self.bytes += text.len();
        let told = if self.bytes > ANSWER_BYTES_MAX { Err(too_much()) } else { watch.push(text) };
        let tool = watch.tool;
        told.err().and_then(|told| self.fail(told, tool))
    }

    /// This choice was refused in the provider's own form (`refusal`), which is no content to judge.
    pub fn refused(&mut self, choice: u32) {
        self.excused.insert(choice);
    }

    /// Whether [`Self::end`] may take longer than a shard has: then it is for a helper thread.
    #[must_use]
    pub const fn is_costly(&self) -> bool {
        self.bytes > ANSWER_BYTES_ON_SHARD_MAX
    }

    /// The answer is over: everything is judged as a whole. It costs nothing to ask again.
    ///
    /// # Errors
    /// The first [`Mismatch`].
    pub fn end(&mut self) -> Result<(), Mismatch> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        match self.first_wrong() {
            None => Ok(()),
            Some(mismatch) => {
                self.failed = Some(mismatch.clone());
                Err(mismatch)
            }
        }
    }

    /// How much of schemas a request brings, in bytes: over [`SCHEMA_BYTES_ON_SHARD_MAX`], [`Self::of_request`] is for a helper thread.
    #[must_use]
    pub fn schema_bytes(surface: Surface, body: &[u8]) -> usize {
        asked::schema_bytes(surface, body)
    }

    fn has_too_many(&self) -> bool {
        self.contents.len() + self.calls.len() >= TEXTS_MAX
    }

    fn fail(&mut self, (kind, expected): (Kind, String), tool: Option<usize>) -> Option<Mismatch> {
        self.failed = Some(Mismatch { kind, at: String::new(), expected, tool: self.name(tool) });
        self.failed.clone()
    }

    fn name(&self, tool: Option<usize>) -> Option<String> {
        tool.and_then(|tool| self.asked.tools.get(tool)).map(|(name, _)| name.clone())
    }

    fn first_wrong(&self) -> Option<Mismatch> {
        if let Some(promise) = &self.asked.content {
            // The first choice is always there; of others nobody knows before they say something.
            let first = if self.contents.contains_key(&0) { None } else { Some((0, "")) };
            let texts = self.contents.iter().map(|(choice, watch)| (*choice, watch.text.as_str()));
            for (choice, text) in first.into_iter().chain(texts) {
                if is_blank(text) && self.excused.contains(&choice) {
                    continue;
                }
                let is_whole = self.contents.get(&choice).is_some_and(|watch| watch.json.is_whole());
                if let Err(mismatch) = judged(promise, text, is_whole, None) {
                    return Some(mismatch);
                }
            }
        }
        for watch in self.calls.values().flatten() {
            let Some((name, promise)) = watch.tool.and_then(|tool| self.asked.tools.get(tool)) else {
                continue;
            };
            // A call without arguments may say nothing at all.
            let (text, is_whole) = if is_blank(&watch.text) {
                ("{}", true)
            } else {
                (watch.text.as_str(), watch.json.is_whole())
            };
            if let Err(mismatch) = judged(promise, text, is_whole, Some(name)) {
                return Some(mismatch);
            }
        }
        None
    }
}

fn judged(promise: &Promise, text: &str, is_whole: bool, tool: Option<&str>) -> Result<(), Mismatch> {
    let tool = tool.map(str::to_owned);
    if !is_whole {
        let expected = if is_blank(text) {
            "expected JSON, and there was none"
        } else {
            "expected the rest of the JSON"
        };
        return Err(Mismatch { kind: Kind::Cut, at: String::new(), expected: expected.to_owned(), tool });
    }
    match promise {
        Promise::Object => Ok(()),
        Promise::Schema(judge) => judge.judge(text).map_err(|wrong| Mismatch {
            kind: wrong.kind,
            at: wrong.at,
            expected: wrong.expected,
            tool,
        }),
    }
}

fn is_blank(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
}

fn too_much() -> (Kind, String) {
    (Kind::Bound, format!("expected at most {ANSWER_BYTES_MAX} bytes of JSON in at most {TEXTS_MAX} texts"))
}

impl Watch {
    const fn new(is_object: bool, tool: Option<usize>) -> Self {
        Self { json: Json::new(is_object), text: String::new(), tool }
    }

    fn push(&mut self, text: &str) -> Result<(), (Kind, String)> {
        self.text.push_str(text);
        self.json.push(text).map_err(|broken| match broken {
            Broken::Expected(what) => (Kind::Syntax, format!("expected {what}")),
            Broken::TooDeep => (Kind::Bound, format!("expected at most {} levels", json::DEPTH_MAX)),
        })
    }
}
