//! Values with their origins, and how they are written.

use std::fmt::Write;

use crate::config::tree::Kind;

/// A value to be shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shown {
    /// Nothing is shown: the key has no value of its own.
    Missing,
    /// A scalar as it is written.
    Scalar(String),
    List(Vec<Entry>),
    Mapping(Vec<(String, Entry)>),
}

/// A value and where it comes from; empty = not told.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) value: Shown,
    pub(super) origin: String,
}

impl Entry {
    pub(super) fn new(value: Shown, origin: impl Into<String>) -> Self {
        Self { value, origin: origin.into() }
    }

    /// A text as a scalar.
    pub(super) fn text(text: &str, origin: impl Into<String>) -> Self {
        Self::new(Shown::Scalar(quoted(text)), origin)
    }

    pub(super) fn number(number: impl ToString, origin: impl Into<String>) -> Self {
        Self::new(Shown::Scalar(number.to_string()), origin)
    }

    pub(super) fn missing() -> Self {
        Self::new(Shown::Missing, "")
    }

    /// Whether it shows nothing, or an empty text.
    pub(super) fn is_empty(&self) -> bool {
        matches!(&self.value, Shown::Missing) || matches!(&self.value, Shown::Scalar(text) if text == "\"\"")
    }

    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Shown::Mapping(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, entry)| entry),
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        match &mut self.value {
            Shown::Mapping(entries) => {
                entries.iter_mut().find(|(name, _)| name == key).map(|(_, entry)| entry)
            }
            _ => None,
        }
    }

    /// The value of a path of keys.
    pub(super) fn at(&mut self, path: &[&str]) -> Option<&mut Self> {
        path.iter().try_fold(self, |entry, key| entry.get_mut(key))
    }

    pub(super) fn items_mut(&mut self) -> &mut [Self] {
        match &mut self.value {
            Shown::List(items) => items,
            _ => &mut [],
        }
    }

    /// Puts `entry` in the place of `key`.
    pub(super) fn set(&mut self, key: &str, entry: Self) {
        if let Some(found) = self.get_mut(key) {
            *found = entry;
        }
    }

    /// Puts `entry` in the place of `key` when that shows nothing, or an empty text.
    pub(super) fn set_empty(&mut self, key: &str, entry: Self) {
        if let Some(found) = self.get_mut(key).filter(|found| found.is_empty()) {
            *found = entry;
        }
    }

    /// The whole as a YAML document; with origins each line of a value ends in where it comes from.
    pub(super) fn write(&self, with_origins: bool) -> String {
        let mut out = String::new();
        if let Shown::Mapping(entries) = &self.value {
            write_mapping(&mut out, entries, 0, with_origins);
        }
        out
    }

    /// On one line, when it is short and has but one origin.
    fn inline(&self) -> Option<String> {
        const CHARS_MAX: usize = 100;
        match &self.value {
            Shown::Scalar(text) => Some(text.clone()),
            Shown::Mapping(entries) => entries.is_empty().then(|| "{}".to_owned()),
            Shown::List(items) if items.is_empty() => Some("[]".to_owned()),
            Shown::List(items) => {
                let scalar = |item: &Self| match &item.value {
                    Shown::Scalar(text) => Some(text.clone()),
                    _ => None,
                };
                let line = format!("[{}]", items.iter().map(scalar).collect::<Option<Vec<_>>>()?.join(", "));
                (line.chars().count() <= CHARS_MAX).then_some(line)
            }
            Shown::Missing => None,
        }
    }
}

fn write_mapping(out: &mut String, entries: &[(String, Entry)], indent: usize, with_origins: bool) {
    for (index, (key, entry)) in entries.iter().filter(|(_, it)| it.value != Shown::Missing).enumerate() {
        // The first key of an item stands behind its dash.
        if index > 0 || !out.ends_with("- ") {
            let _ = write!(out, "{}", " ".repeat(indent));
        }
        let _ = write!(out, "{}:", quoted(key));
        write_value(out, entry, indent, with_origins);
    }
}

fn write_value(out: &mut String, entry: &Entry, indent: usize, with_origins: bool) {
    if let Some(line) = entry.inline() {
        let _ = write!(out, " {line}");
        end_line(out, entry, with_origins);
        return;
    }
    end_line(out, entry, with_origins);
    match &entry.value {
        Shown::Mapping(entries) => write_mapping(out, entries, indent + 2, with_origins),
        Shown::List(items) => {
            for item in items {
                let _ = write!(out, "{}- ", " ".repeat(indent + 2));
                match &item.value {
                    Shown::Mapping(entries) if !entries.is_empty() => {
                        write_mapping(out, entries, indent + 4, with_origins);
                    }
                    _ => {
                        let _ = write!(out, "{}", item.inline().unwrap_or_default());
                        end_line(out, item, with_origins);
                    }
                }
            }
        }
        Shown::Scalar(_) | Shown::Missing => {}
    }
}

fn end_line(out: &mut String, entry: &Entry, with_origins: bool) {
    if with_origins && !entry.origin.is_empty() {
        let origin: String = entry.origin.chars().filter(|char| !char.is_control()).collect();
        let _ = write!(out, "  # {origin}");
    }
    out.push('\n');
}

/// A scalar of the file, as YAML took it.
pub(super) fn scalar(text: &str, kind: Kind) -> String {
    match kind {
        Kind::Bool(value) => value.to_string(),
        Kind::Integer(value) => value.to_string(),
        Kind::Text | Kind::Number | Kind::Large => quoted(text),
    }
}

/// A text, in quotes unless no YAML reader could take it for anything else.
pub(super) fn quoted(text: &str) -> String {
    const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let plain = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_' || first == '/')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if plain {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => {
                out.push('\\');
                out.push(char);
            }
            ' '..='~' => out.push(char),
            _ if char.is_alphanumeric() => out.push(char),
            _ => {
                let _ = write!(out, "\\U{:08X}", u32::from(char));
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tree;

    #[test]
    fn a_text_comes_back_as_it_is() {
        for text in [
            "plain",
            "a b",
            "no",
            "N",
            "5",
            "1e3",
            "",
            "~",
            "- x",
            "a: b",
            "#",
            "${X}",
            "\"q\"",
            "back\\slash",
            "é €",
            "tab\t\u{1}\u{85}\u{2028}\u{feff}\u{7f}\u{1F600}",
            "/etc/x",
            ".5",
            "0x1",
            "*a",
            "&a",
            "!t",
            "@",
            "%",
            "`",
        ] {
            let document = format!("k: {}\n", quoted(text));
            let root = tree::read(&document).unwrap();
            assert_eq!(root.value.get("k").and_then(|item| item.value.text()), Some(text), "{document}");
        }
    }
}
