//! What a program writes to its standard output, as an answer. Pure: bytes in, however they are cut, typed pieces out.
//!
//! | Format | Module | The answer is |
//! |---|---|---|
//! | `text` | [`utf8`] | everything, as it comes |
//! | `json` | [`answer`] | one object at the end |
//! | `stream-json` | [`lines`] | the events of JSON Lines, as they come |

pub mod answer;
pub mod lines;
pub mod utf8;

use proto::message::Usage;
use serde_json::{Map, Value};
use thiserror::Error;

use answer::Answer;
use lines::Events;
use utf8::Utf8;

/// Bytes that a program may write to its standard output in all, where they are passed on as they come: 64 MiB.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of an answer that is one object: 4 MiB, as it is held until its end.
pub const OBJECT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of one line of JSON Lines: 1 MiB.
pub const LINE_BYTES_MAX: usize = 1024 * 1024;

/// How a program answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFormat {
    /// Its standard output is the answer.
    #[default]
    Text,
    /// One JSON object at the end.
    Json,
    /// One JSON object on each line.
    StreamJson,
}

impl OutputFormat {
    /// Of the word in the configuration; nothing is `text`.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "" | "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            "stream-json" => Some(Self::StreamJson),
            _ => None,
        }
    }
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Text.
    Text(String),
    /// Thoughts before it.
    Reasoning(String),
    /// Counts so far.
    Usage(Usage),
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// `stop`, `length` or `content_filter`.
    pub reason: &'static str,
    /// Final counts.
    pub usage: Option<Usage>,
}

/// Why what was written is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// More than [`OUTPUT_BYTES_MAX`] or [`OBJECT_BYTES_MAX`].
    #[error("the program wrote more than {0} bytes")]
    TooLong(usize),
    /// A line over [`LINE_BYTES_MAX`].
    #[error("the program wrote a line of more than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// No object, or none with an answer.
    #[error("the program wrote no JSON object with an answer")]
    NoAnswer,
    /// It says that it failed.
    #[error("the program reports an error: {0}")]
    Reported(String),
}

/// Reads one program's output.
#[derive(Debug)]
pub struct Reader {
    kind: Kind,
    /// Bytes so far.
    bytes: usize,
}

#[derive(Debug)]
enum Kind {
    Text(Utf8),
    Object(Vec<u8>),
    Lines { events: Events, begun: Vec<u8> },
}

impl Reader {
    /// At the beginning.
    #[must_use]
    pub fn new(format: OutputFormat) -> Self {
        let kind = match format {
            OutputFormat::Text => Kind::Text(Utf8::default()),
            OutputFormat::Json => Kind::Object(Vec::new()),
            OutputFormat::StreamJson => Kind::Lines { events: Events::default(), begun: Vec::new() },
        };
        Self { kind, bytes: 0 }
    }

    /// More was written. What it says is added to `said`; where that is text, the last piece is never empty.
    ///
    /// # Errors
    /// [`ReadError`]: a bound is reached. Nothing of the output is good for anything then.
    pub fn push(&mut self, bytes: &[u8], said: &mut Vec<Said>) -> Result<(), ReadError> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        let most = if matches!(self.kind, Kind::Object(_)) { OBJECT_BYTES_MAX } else { OUTPUT_BYTES_MAX };
        if self.bytes > most {
            return Err(ReadError::TooLong(most));
        }
        match &mut self.kind {
            Kind::Text(utf8) => {
                let text = utf8.push(bytes);
                if !text.is_empty() {
                    said.push(Said::Text(text));
                }
            }
            Kind::Object(object) => object.extend_from_slice(bytes),
            Kind::Lines { events, begun } => {
                let mut pieces = bytes.split(|byte| *byte == b'\n');
                let last = pieces.next_back().unwrap_or_default();
                for piece in pieces {
                    if begun.len() + piece.len() > LINE_BYTES_MAX {
                        return Err(ReadError::LineTooLong);
                    }
                    if begun.is_empty() {
                        events.line(piece, said);
                    } else {
                        begun.extend_from_slice(piece);
                        events.line(begun, said);
                        begun.clear();
                    }
                }
                if begun.len() + last.len() > LINE_BYTES_MAX {
                    return Err(ReadError::LineTooLong);
                }
                begun.extend_from_slice(last);
            }
        }
        Ok(())
    }

    /// Nothing more comes, and the program says that it went well.
    ///
    /// # Errors
    /// [`ReadError`]: there is no answer, or one that says that it failed.
    pub fn finish(self, said: &mut Vec<Said>) -> Result<Finished, ReadError> {
        let answer = match self.kind {
            Kind::Text(mut utf8) => {
                said.extend(utf8.finish().map(|text| Said::Text(text.to_string())));
                Answer::default()
            }
            Kind::Object(bytes) => {
                let answer = object(&bytes).map(|object| answer::read(&object));
                answer
                    .filter(|answer| answer.text.is_some() || answer.error.is_some())
                    .ok_or(ReadError::NoAnswer)?
            }
            Kind::Lines { mut events, begun } => {
                events.line(&begun, said);
                events.finish().ok_or(ReadError::NoAnswer)?
            }
        };
        if let Some(words) = answer.error {
            let words = if words.is_empty() { "it does not say which".to_owned() } else { words };
            return Err(ReadError::Reported(words));
        }
        if !answer.reasoning.is_empty() {
            said.push(Said::Reasoning(answer.reasoning));
        }
        said.extend(answer.text.filter(|text| !text.is_empty()).map(Said::Text));
        Ok(Finished { reason: answer.reason.unwrap_or("stop"), usage: answer.usage })
    }

    /// What a program that failed has said of it on its standard output, in one line.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        match &self.kind {
            Kind::Text(_) => None,
            Kind::Object(bytes) => answer::read(&object(bytes)?).error.filter(|words| !words.is_empty()),
            Kind::Lines { events, .. } => events.complaint().map(str::to_owned),
        }
    }
}

/// The object that is all of an output, or its last line: a program may say other things before.
fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    let last = || bytes.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    serde_json::from_slice(bytes).or_else(|_| serde_json::from_slice(last())).ok()
}

#[cfg(test)]
mod tests;
