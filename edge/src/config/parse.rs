//! Text to typed structs, and the YAML reader's complaints turned into words that a newcomer can act on.

use serde::de::DeserializeOwned;
use serde_saphyr::{Budget, DuplicateKeyPolicy, Error, Options};

use super::{error::LoadError, nearest::hint, outline::path_at, place::Place, typed::EdgeFile};

/// Longest configuration file in bytes.
pub const FILE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most YAML nodes (mappings, lists, scalars) of one file: room for the largest fleet the slot bound permits.
const NODES_MAX: usize = 2_000_000;
/// Deepest nesting of one file; the tree of the contract needs 7.
const DEPTH_MAX: usize = 32;

/// What was typed.
///
/// # Errors
/// The first syntax error, unknown key, duplicate key or value of a wrong type: the reader cannot see behind it.
pub(super) fn parse(text: &str) -> Result<EdgeFile, LoadError> {
    read::<Option<EdgeFile>>(text, DuplicateKeyPolicy::Error)
        .map(Option::unwrap_or_default)
        .map_err(|error| explain(text, &error))
}

/// `text` as a `T` under this file's bounds.
pub(super) fn read<T: DeserializeOwned>(text: &str, duplicates: DuplicateKeyPolicy) -> Result<T, Error> {
    let budget = serde_saphyr::budget! {
        max_events: 2 * NODES_MAX,
        max_nodes: NODES_MAX,
        max_depth: DEPTH_MAX,
    };
    serde_saphyr::from_str_with_options(text, options(budget, duplicates))
}

fn options(budget: Option<Budget>, duplicates: DuplicateKeyPolicy) -> Options {
    serde_saphyr::options! {
        budget: budget,
        duplicate_keys: duplicates,
        // A snippet of the file could show a secret.
        with_snippet: false,
        emit_comments: false,
    }
}

fn explain(text: &str, error: &Error) -> LoadError {
    let error = error.without_snippet();
    let at = error.location().map(Place::from).unwrap_or_default();
    let path = match error {
        // The second document has nothing to do with the tree.
        Error::MultipleDocuments { .. } => String::new(),
        _ if at.is_known() => path_at(text, at),
        _ => String::new(),
    };
    LoadError { at, path, message: message(error, text, at) }
}

fn message(error: &Error, text: &str, at: Place) -> String {
    match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            let hint = hint(field, expected.iter().copied());
            format!("unknown key `{field}`{hint}; the keys here are {}", expected.join(", "))
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key `{key}` stands here a second time")
        }
        Error::DuplicateMappingKey { key: None, .. } => "this key stands here a second time".to_owned(),
        Error::InvalidScalar { ty, .. } => format!("expected {}", type_in_words(ty)),
        Error::InvalidBooleanStrict { .. } => format!("expected {}", type_in_words("bool")),
        Error::Unexpected { expected, .. } => format!("expected {}", type_in_words(expected)),
        Error::NullIntoString { .. } => "expected a text; an empty one is written \"\"".to_owned(),
        // What was found could be a misplaced secret, so only what was expected is told.
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            format!("expected {}", type_in_words(expected))
        }
        Error::MultipleDocuments { .. } => {
            "expected one YAML document, found a second one after `---`".to_owned()
        }
        Error::AliasError { error, .. } => message(error, text, at),
        other => syntax(other, text, at),
    }
}

/// The reader's own words without its own position, and a hint at the usual slip.
fn syntax(error: &Error, text: &str, at: Place) -> String {
    let rendered = error.to_string();
    let position = format!(" at line {}, column {}", at.line, at.column);
    let words = rendered.strip_suffix(&position).unwrap_or(&rendered);
    let line = usize::try_from(at.line).unwrap_or(0);
    // The reader often stops at the end of the line before the tab.
    let tab = text
        .lines()
        .skip(line.saturating_sub(1))
        .take(2)
        .any(|line| line.trim_start_matches(' ').starts_with('\t'));
    if tab {
        format!("{words}; a tab cannot indent YAML: use spaces")
    } else if words.contains("mapping values are not allowed") {
        format!("{words}; quote a text that holds `: `, and indent keys of one mapping alike")
    } else {
        words.to_owned()
    }
}

fn type_in_words(name: &str) -> &str {
    match name {
        "i64" | "u64" | "i32" | "u32" => "an integer that fits in 64 bits, without quotes or unit",
        "bool" | "boolean" => "true or false",
        "mapping start" => "a mapping of keys and values",
        "sequence start" => "a list: one `- item` a line, or [a, b]",
        "string scalar" => "a single value, not a list or mapping; quote a text that starts with { or [",
        other => other,
    }
}
