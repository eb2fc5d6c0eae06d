//! Text to typed sections, and the YAML reader's complaints turned into words that a newcomer can act on.

use serde_saphyr::Error;

use super::{
    error::{LoadError, Report},
    place::Place,
    shape::Reader,
    tree::{self, Item, Value},
    typed::EdgeFile,
};

/// What was typed, with everything in the report that cannot be a value of its key.
///
/// # Errors
/// What keeps the text from being YAML: nothing can be seen behind it.
pub(super) fn parse(text: &str, report: &mut Report) -> Result<EdgeFile, LoadError> {
    let root = tree(text)?;
    if root.value == Value::Null {
        return Ok(EdgeFile::default());
    }
    let file = Reader::new(report).section(&root);
    if file.is_none() {
        report.poison("");
    }
    Ok(file.unwrap_or_default())
}

/// The tree of a text.
///
/// # Errors
/// As [`parse`].
pub(super) fn tree(text: &str) -> Result<Item, LoadError> {
    tree::read(text).map_err(|error| explain(text, &error))
}

fn explain(text: &str, error: &Error) -> LoadError {
    let error = error.without_snippet();
    let at = error.location().map(Place::from).unwrap_or_default();
    LoadError { at: tab(text, at).unwrap_or(at), path: String::new(), message: message(error, text, at) }
}

/// The tab that indents the line of `at` or the one behind it: the reader often stops at the end of the line before.
fn tab(text: &str, at: Place) -> Option<Place> {
    let first = usize::try_from(at.line).ok()?.checked_sub(1)?;
    let mut lines = text.lines().skip(first).take(2).zip(at.line..);
    lines.find_map(|(line, number)| {
        let blanks = line.len() - line.trim_start_matches(' ').len();
        let column = u32::try_from(blanks + 1).unwrap_or(u32::MAX);
        line.get(blanks..)?.starts_with('\t').then_some(Place { line: number, column })
    })
}

fn message(error: &Error, text: &str, at: Place) -> String {
    match error {
        Error::MultipleDocuments { .. } => {
            "expected one YAML document, found a second one after `---`".to_owned()
        }
        Error::UnknownAnchor { .. } => {
            "`*` here means a value that is named by `&` before; a text that begins with `*` is written in quotes".to_owned()
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => "a value cannot hold itself".to_owned(),
        Error::Budget { .. } => format!("{}: the file is larger or deeper than a configuration can be", words(error, at)),
        Error::AliasError { error, .. } => message(error, text, at),
        other => syntax(&words(other, at), text, at),
    }
}

/// The reader's own words without its own position.
fn words(error: &Error, at: Place) -> String {
    let rendered = error.to_string();
    let position = format!(" at line {}, column {}", at.line, at.column);
    rendered.strip_suffix(&position).unwrap_or(&rendered).to_owned()
}

/// The reader's words, and a hint at the usual slip. Nothing of the text itself is told: it could be a secret.
fn syntax(words: &str, text: &str, at: Place) -> String {
    if tab(text, at).is_some() {
        return said("a tab cannot indent YAML: use spaces", words);
    }
    let number = usize::try_from(at.line).unwrap_or(0);
    let here = text.lines().nth(number.saturating_sub(1)).unwrap_or_default();
    if here.trim_start().starts_with("//") {
        return said("a comment begins with #", words);
    }
    let dash = here.trim_start().strip_prefix('-');
    if dash.is_some_and(|rest| rest.starts_with(|next: char| next != '-' && !next.is_whitespace())) {
        return said("an item of a list begins with a dash and a blank: `- `", words);
    }
    if let Some(before) = deeper_than_a_value(text, number)
        && words.contains("mapping values are not allowed")
    {
        let hint = format!(
            "this line is indented further than line {before}, which has its value already: indent both alike"
        );
        return said(&hint, words);
    }
    let hint = if words.contains("mapping values are not allowed") {
        "a text that holds `: ` is written in quotes, and the keys of one mapping are indented alike"
    } else if words.contains("did not find expected key")
        || words.contains("did not find expected '-' indicator")
    {
        "the lines of one mapping or list are indented alike, and this one is not"
    } else if words.contains("simple key expected") {
        "a key is followed by a colon and a blank: `key: value`"
    } else if words.contains("unexpected character") {
        "a text that begins with @, ` or % is written in quotes"
    } else if words.contains("trailing content after") {
        "a ' within '…' is written twice, a \" within \"…\" as \\\""
    } else if words.contains("unclosed quote") {
        "the text that begins here has no closing quote"
    } else if ["unclosed bracket", "did not find expected ',' or", "illegal placement of ':'"]
        .iter()
        .any(|part| words.contains(part))
    {
        "a [ or { here or before has no closing ] or }, or a comma is missing between two items"
    } else if words.contains("document start") {
        "expected lines of the form `key: value`"
    } else if words.contains("misplaced bracket") {
        "this ] or } closes nothing"
    } else if words.contains("escape") {
        "in \"…\" a backslash begins an escape; write '…' or \\\\ instead"
    } else {
        return words.to_owned();
    };
    said(hint, words)
}

/// What to do first; what the reader calls it is for a search engine.
fn said(hint: &str, words: &str) -> String {
    format!("{hint} (YAML: {words})")
}

/// The number of the line before line `number`, blank ones and comments aside, when that one is a `key: value` and `number` is
/// indented further than its key.
fn deeper_than_a_value(text: &str, number: usize) -> Option<usize> {
    let lines: Vec<&str> = text.lines().take(number).collect();
    let (here, earlier) = lines.split_last()?;
    let (index, before) = earlier.iter().enumerate().rev().find(|(_, line)| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#')
    })?;
    let key_at = |line: &str| line.len() - line.trim_start_matches([' ', '-']).len();
    let (_, value) = before.split_once(": ")?;
    let value = value.trim_start();
    let is_scalar = !value.is_empty() && !value.starts_with(['#', '[', '{', '|', '>', '&', '"', '\'']);
    (is_scalar && key_at(here) > key_at(before)).then_some(index + 1)
}
