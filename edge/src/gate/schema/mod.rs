//! Output that was promised to keep a JSON Schema (SEG-8).

use std::fmt;

use crate::surface::Surface;

/// Why a schema of a request cannot be judged by; closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The request cannot be read as one of its surface.
    #[error("it cannot be read")]
    Unreadable,
    /// Not a valid schema of its draft.
    #[error("it is not a valid JSON Schema")]
    Invalid,
    /// More bytes, or more places for all its references, than a bound allows.
    #[error("it is too large to be judged by")]
    TooLarge,
    /// Nests too deeply.
    #[error("it nests too deeply to be judged by")]
    TooDeep,
    /// A `$ref` that is no pointer into the schema itself. Nothing is ever fetched.
    #[error("it refers to something outside of it, or by other means than a JSON pointer")]
    Reference,
    /// A pattern that needs backtracking, or too much memory, or one too many.
    #[error("it has a pattern that cannot be matched in linear time and bounded memory")]
    Pattern,
}

/// A schema of a request that no answer can be judged by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the JSON Schema of `{param}` is not usable: {fault}")]
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
    pub(super) kind: Kind,
    /// JSON pointer (RFC 6901), bounded.
    pub(super) at: String,
    /// What was expected there, bounded.
    pub(super) expected: String,
    /// Whose arguments they are; `None` = the content.
    pub(super) tool: Option<String>,
}

impl Mismatch {
    /// What kind of failure.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// A sentence for this request's client; never for a log.
    #[must_use]
    pub fn told_to_client(&self) -> String {
        let whose = self.tool.as_ref().map_or_else(String::new, |tool| format!("arguments of `{tool}`, "));
        if self.at.is_empty() {
            format!("{whose}{}", self.expected)
        } else {
            format!("{whose}at {}: {}", self.at, self.expected)
        }
    }
}

impl fmt::Debug for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mismatch").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Judges an answer by what its request asked for: a JSON Schema, or JSON at all.
#[derive(Debug)]
pub struct SchemaGate;

impl SchemaGate {
    /// What the request promises about its answer; `None` = nothing that could be judged.
    ///
    /// # Errors
    /// [`BadSchema`]: it promises something by a schema that cannot be judged by.
    #[must_use]
    pub fn of_request(_surface: Surface, _body: &[u8]) -> Option<Result<Self, BadSchema>> {
        None
    }

    /// The next text of the content of the first choice.
    pub fn push(&mut self, text: &str) -> Option<Mismatch> {
        self.push_choice(0, text)
    }

    /// The next text of the content of this choice.
    pub fn push_choice(&mut self, _choice: u32, _text: &str) -> Option<Mismatch> {
        None
    }

    /// The next text of the arguments of a tool call: the `call`-th of its choice, of the tool `name`. Calls of tools that are not
    /// strict are not looked at.
    pub fn push_arguments(&mut self, _choice: u32, _call: u32, _name: &str, _text: &str) -> Option<Mismatch> {
        None
    }

    /// This choice was refused in the provider's own form (`refusal`), which is no content to judge.
    pub fn refused(&mut self, _choice: u32) {}

    /// The answer is over: everything is judged as a whole.
    ///
    /// # Errors
    /// The first [`Mismatch`].
    pub fn end(&mut self) -> Result<(), Mismatch> {
        Ok(())
    }
}
