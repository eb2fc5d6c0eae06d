//! What a person is told about a configuration that cannot be loaded: file, line, column, key path, and what was expected.
//!
//! Messages quote what was typed only where it cannot be a secret, and never the value of an environment variable.

use std::{fmt, path::PathBuf};

use super::place::Place;

/// Most errors that one report holds; further ones are only counted.
pub const REPORT_MAX: usize = 100;

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// Where; for a missing key the place of the mapping that misses it.
    pub at: Place,
    /// Key path such as `nodes[0].providers[1].capacity`; empty when the file as a whole is meant.
    pub path: String,
    /// What is wrong and what was expected: lower case, no full stop.
    pub message: String,
}

/// `line:column: path: message` on one line; what is unknown is left out. A key of the file may hold any character, so those
/// that would end the line or steer a terminal are left out, too.
impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.at.is_known() {
            write!(f, "{}:{}: ", self.at.line, self.at.column)?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path.replace(char::is_control, ""))?;
        }
        f.write_str(&self.message.replace(char::is_control, ""))
    }
}

/// Everything that is wrong with one configuration file, in the order of the checks; at least one error.
///
/// `Display` prints one line for each error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadErrors {
    /// The file.
    pub file: PathBuf,
    /// At most [`REPORT_MAX`] errors.
    pub errors: Vec<LoadError>,
    /// Errors beyond [`REPORT_MAX`].
    pub dropped: usize,
}

impl fmt::Display for LoadErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            // The form that editors and terminals make a link of.
            let between = if error.at.is_known() { ":" } else { ": " };
            write!(f, "{}{between}{error}", self.file.display())?;
        }
        if self.dropped > 0 {
            write!(f, "\n{}: {} more errors", self.file.display(), self.dropped)?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadErrors {}

fn is_within(path: &str, outer: &str) -> bool {
    let inner = |rest: &str| outer.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']);
    path.strip_prefix(outer).is_some_and(inner)
}

/// Errors as they are found.
#[derive(Debug, Default)]
pub(super) struct Report {
    errors: Vec<LoadError>,
    dropped: usize,
    /// Key paths of values that could not be read.
    poisoned: Vec<String>,
}

impl Report {
    /// Notes one error, unless it comes of one that is noted already: it is about a value that could not be read.
    pub(super) fn add(&mut self, at: Place, path: impl Into<String>, message: impl Into<String>) {
        let path = path.into();
        if self.poisoned.iter().any(|poisoned| is_within(&path, poisoned)) {
            return;
        }
        if self.errors.len() < REPORT_MAX {
            self.errors.push(LoadError { at, path, message: message.into() });
        } else {
            self.dropped += 1;
        }
    }

    /// Everything that is said from now on about the value at `path`, or about something in it, comes of what was said already.
    pub(super) fn poison(&mut self, path: &str) {
        if self.poisoned.len() < REPORT_MAX {
            self.poisoned.push(path.to_owned());
        }
    }

    /// Whether the value at exactly this path could not be read.
    pub(super) fn is_poisoned(&self, path: &str) -> bool {
        self.poisoned.iter().any(|poisoned| poisoned == path)
    }

    /// Whether nothing was noted.
    pub(super) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// `value` when nothing was noted.
    pub(super) fn finish<T>(self, file: PathBuf, value: T) -> Result<T, LoadErrors> {
        if self.errors.is_empty() {
            Ok(value)
        } else {
            Err(LoadErrors { file, errors: self.errors, dropped: self.dropped })
        }
    }
}
