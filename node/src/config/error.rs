//! What a person is told about a file that cannot be loaded: file, line, column, key, and what was expected.

use std::{fmt, path::PathBuf};

use serde_saphyr::{Error, Location};

/// A position in the file, both from 1; line 0 = the key does not stand in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Line.
    pub line: u64,
    /// Column in characters.
    pub column: u64,
}

impl From<Location> for Place {
    fn from(location: Location) -> Self {
        Self { line: location.line(), column: location.column() }
    }
}

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub at: Place,
    /// Key path such as `reconnect.max_attempts`; empty for a mistake in the YAML itself.
    pub key: String,
    /// What is wrong and what was expected: lower case, no full stop, never a value that could be a secret.
    pub message: String,
}

/// Everything that is wrong with one file, at least one problem. `Display` prints one line for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// In the order of the checks.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}", self.file.display())?;
            if problem.at.line != 0 {
                write!(f, ":{}:{}", problem.at.line, problem.at.column)?;
            }
            if !problem.key.is_empty() {
                write!(f, ": {}", problem.key)?;
            }
            write!(f, ": {}", problem.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// The YAML reader's complaint in the words of this file. What was typed is not repeated where it could be a secret.
pub(super) fn explain(error: &Error) -> Problem {
    let error = error.without_snippet();
    let at = error.location().map(Place::from).unwrap_or_default();
    Problem { at, key: String::new(), message: message(error, at) }
}

fn message(error: &Error, at: Place) -> String {
    match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            format!("unknown key `{field}`; the keys here are {}", expected.join(", "))
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key `{key}` stands here a second time")
        }
        Error::InvalidScalar { ty, .. } => format!("expected {}", in_words(ty)),
        Error::Unexpected { expected, .. } => format!("expected {}", in_words(expected)),
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            format!("expected {}", in_words(expected))
        }
        Error::AliasError { error, .. } => message(error, at),
        other => {
            let rendered = other.to_string();
            let position = format!(" at line {}, column {}", at.line, at.column);
            rendered.strip_suffix(&position).unwrap_or(&rendered).to_owned()
        }
    }
}

fn in_words(type_name: &str) -> &str {
    match type_name {
        "i64" => "an integer without quotes or unit",
        "mapping start" => "a mapping of keys and values",
        "sequence start" => "a list such as [a, b]",
        "string scalar" => "a single text",
        other => other,
    }
}
