//! Reading single values: expand, check, note the error, and go on with a harmless value, so that one load reports
//! everything that is wrong.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::config::{
    error::Report,
    expand::expand,
    nearest::hint,
    place::{Place, Typed},
};

/// Longest id, reference or label in bytes: they stand in headers, log fields and metric labels.
pub(super) const ID_BYTES_MAX: usize = 128;
/// Longest model name in bytes.
pub(super) const MODEL_BYTES_MAX: usize = 256;

/// A value is wrong, and the report already says so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reported;

/// What resolving needs beside the file itself.
pub(in crate::config) struct Context<'a> {
    pub(in crate::config) report: Report,
    pub(in crate::config) env: &'a dyn Fn(&str) -> Option<String>,
    /// Relative file names start here: the directory of the configuration file.
    pub(in crate::config) directory: &'a Path,
}

impl Context<'_> {
    /// Notes an error.
    pub(super) fn error(&mut self, at: Place, path: impl Into<String>, message: impl Into<String>) {
        self.report.add(at, path, message);
    }

    /// A text with its `${NAME}` filled in; `None` when the key is missing or the text cannot be expanded.
    pub(super) fn text(&mut self, key: Option<&Typed<String>>, path: &str) -> Option<String> {
        let key = key?;
        self.expanded(&key.value, key.at, path)
    }

    /// As [`Context::text`], for a text whose own key is not a plain one.
    pub(super) fn expanded(&mut self, text: &str, at: Place, path: &str) -> Option<String> {
        match expand(text, self.env) {
            Ok(expanded) => Some(expanded.into_owned()),
            Err(error) => {
                self.error(at, path, error.to_string());
                None
            }
        }
    }

    /// An id, reference or name: required, not blank, without blanks at its ends or control characters.
    pub(super) fn id(
        &mut self,
        key: Option<&Typed<String>>,
        parent: Place,
        path: &str,
        bytes_max: usize,
    ) -> Option<String> {
        let Some(typed) = key else {
            let name = path.rsplit('.').next().unwrap_or(path);
            self.error(
                parent,
                path,
                format!("expected a value, but the key is missing: add `{name}: …` here"),
            );
            return None;
        };
        let text = self.text(key, path)?;
        if text.trim().is_empty() {
            self.error(typed.at, path, "expected a value, found an empty one");
        } else if text.len() > bytes_max {
            self.error(typed.at, path, format!("expected at most {bytes_max} bytes"));
        } else if text.trim() != text || text.contains(char::is_control) {
            self.error(
                typed.at,
                path,
                "expected a text without control characters and without blanks at its ends",
            );
        } else {
            return Some(text);
        }
        None
    }

    /// A text for people: optional, bounded, without control characters.
    pub(super) fn label(&mut self, key: Option<&Typed<String>>, path: &str) -> Option<String> {
        let typed = key?;
        let text = self.text(key, path)?;
        if text.len() > MODEL_BYTES_MAX || text.contains(char::is_control) {
            let message = format!("expected at most {MODEL_BYTES_MAX} bytes without control characters");
            self.error(typed.at, path, message);
            return None;
        }
        Some(text).filter(|text| !text.is_empty())
    }

    /// An integer within bounds, or the default when the key is missing or wrong.
    pub(super) fn integer(
        &mut self,
        key: Option<&Typed<i64>>,
        path: &str,
        bounds: RangeInclusive<i64>,
        default: i64,
    ) -> i64 {
        let Some(typed) = key else { return default };
        if bounds.contains(&typed.value) {
            return typed.value;
        }
        let (low, high) = bounds.into_inner();
        let expected = if high == i64::MAX { format!("at least {low}") } else { format!("{low} to {high}") };
        self.error(typed.at, path, format!("expected {expected}, found {}", typed.value));
        default
    }

    /// As [`Context::integer`], for a size or count.
    pub(super) fn count(
        &mut self,
        key: Option<&Typed<i64>>,
        path: &str,
        bounds: RangeInclusive<i64>,
        default: i64,
    ) -> u64 {
        u64::try_from(self.integer(key, path, bounds, default)).unwrap_or(0)
    }

    /// As [`Context::integer`], for a duration in milliseconds.
    pub(super) fn millis(
        &mut self,
        key: Option<&Typed<i64>>,
        path: &str,
        bounds: RangeInclusive<i64>,
        default: i64,
    ) -> Duration {
        Duration::from_millis(self.count(key, path, bounds, default))
    }

    /// One of a closed set of words; `None` when the key is missing or empty.
    pub(super) fn word<T: Copy>(
        &mut self,
        key: Option<&Typed<String>>,
        path: &str,
        words: &[(&'static str, T)],
    ) -> Result<Option<T>, Reported> {
        let Some(typed) = key else { return Ok(None) };
        let text = self.text(key, path).ok_or(Reported)?;
        if text.is_empty() { Ok(None) } else { self.known(&text, typed, path, words).map(Some) }
    }

    /// One of a closed set of words that must be there.
    pub(super) fn required_word<T: Copy>(
        &mut self,
        key: Option<&Typed<String>>,
        parent: Place,
        path: &str,
        words: &[(&'static str, T)],
    ) -> Result<T, Reported> {
        if let Some(value) = self.word(key, path, words)? {
            return Ok(value);
        }
        let at = key.map_or(parent, |typed| typed.at);
        self.error(at, path, format!("expected one of {}, but there is no value", listed(words)));
        Err(Reported)
    }

    fn known<T: Copy>(
        &mut self,
        text: &str,
        typed: &Typed<String>,
        path: &str,
        words: &[(&'static str, T)],
    ) -> Result<T, Reported> {
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(*value);
        }
        let hint = hint(text, words.iter().map(|(word, _)| *word));
        self.error(
            typed.at,
            path,
            format!("expected one of {}, found {}{hint}", listed(words), quoted(typed)),
        );
        Err(Reported)
    }

    /// A file name, relative to the configuration file; `None` when the key is missing or empty.
    pub(super) fn file(&mut self, key: Option<&Typed<String>>, path: &str) -> Option<PathBuf> {
        let text = self.text(key, path)?;
        if text.is_empty() { None } else { Some(self.directory.join(text)) }
    }
}

fn listed<T>(words: &[(&'static str, T)]) -> String {
    words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")
}

/// What was typed, for a message: never what the environment put in.
pub(super) fn quoted(typed: &Typed<String>) -> String {
    const SHOWN_CHARS: usize = 80;
    let shown: String = typed.value.chars().filter(|char| !char.is_control()).take(SHOWN_CHARS).collect();
    let more = if typed.value.chars().count() > SHOWN_CHARS { "…" } else { "" };
    format!("`{shown}{more}`")
}
