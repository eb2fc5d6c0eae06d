//! Every key of the table with what was typed for it, or with its fixed default.

use serde_json::Value as Json;

use super::{
    Source,
    yaml::{Entry, Shown, quoted, scalar},
};
use crate::config::{
    class,
    place::{Place, Typed},
    schema,
    tree::{Item, Kind, Scalar, Value},
};

/// Keys whose empty text is a value, not a missing one.
const EMPTY_COUNTS: [&str; 1] = ["openai.provider_auth.scheme"];

/// What a scalar is taken for.
#[derive(Clone, Copy)]
enum Reading {
    /// A text, whatever it looks like: `yes` is one where a name is expected.
    Text,
    /// A number, a boolean, or what nobody looks at.
    Plain,
    /// A text that is not shown.
    Secret,
}

fn reading(pattern: &str, schema: Option<&Json>) -> Reading {
    if pattern == "nodes[].token" || [".headers", ".env"].iter().any(|name| pattern.ends_with(name)) {
        return Reading::Secret;
    }
    let schema = schema.map(|schema| schema.get("items").unwrap_or(schema));
    let is = |kind: &str| {
        let kinds = schema.and_then(|schema| schema.get("type"));
        kinds.is_some_and(|kinds| {
            kinds == kind || kinds.as_array().is_some_and(|all| all.iter().any(|it| it == kind))
        })
    };
    if is("integer") || is("boolean") || pattern.ends_with(".extensions") {
        Reading::Plain
    } else {
        Reading::Text
    }
}

pub(super) struct Filler<'a> {
    source: &'a Source<'a>,
    schema: &'static Json,
}

impl<'a> Filler<'a> {
    pub(super) fn new(source: &'a Source<'a>) -> Self {
        Self { source, schema: schema::raw() }
    }

    /// The whole file.
    pub(super) fn file(&self) -> Entry {
        self.section("", "", Some(self.source.root))
    }

    /// A mapping with known keys. `pattern` is its path in [`class::TABLE`], `path` the one in the file.
    fn section(&self, pattern: &str, path: &str, item: Option<&Item>) -> Entry {
        let below = |base: &str, key: &str| {
            if base.is_empty() { key.to_owned() } else { format!("{base}.{key}") }
        };
        let entry = |key: &'static str| {
            let value = item.and_then(|item| item.value.get(key));
            (key.to_owned(), self.value(&below(pattern, key), &below(path, key), value))
        };
        Entry::new(Shown::Mapping(class::children(pattern).into_iter().map(entry).collect()), "")
    }

    fn value(&self, pattern: &str, path: &str, item: Option<&Item>) -> Entry {
        if class::of(pattern).is_some() {
            return self.leaf(pattern, path, item);
        }
        let (items, names) = (format!("{pattern}[]"), format!("{pattern}.NAME"));
        if !class::children(&items).is_empty() {
            let modern = item.map(|item| single_instances(pattern, item));
            let list = modern.as_ref().map_or(&[][..], |item| item.value.items());
            let entry = |(index, item)| self.section(&items, &format!("{path}[{index}]"), Some(item));
            let shown = Shown::List(list.iter().enumerate().map(entry).collect());
            return Entry::new(shown, if list.is_empty() { self.origin(item) } else { String::new() });
        }
        if !class::children(&names).is_empty() {
            let entries = item.map_or(&[][..], |item| item.value.entries());
            let entry = |(key, item): &(Typed<String>, Item)| {
                let path = format!("{path}.{}", key.value);
                (key.value.clone(), self.section(&names, &path, Some(item)))
            };
            let shown = Shown::Mapping(entries.iter().map(entry).collect());
            return Entry::new(shown, if entries.is_empty() { self.origin(item) } else { String::new() });
        }
        self.section(pattern, path, item)
    }

    fn leaf(&self, pattern: &str, path: &str, item: Option<&Item>) -> Entry {
        let schema = schema::find(self.schema, pattern);
        let attribute = |name: &str| schema.and_then(|schema| schema.get(name));
        let default = attribute("default");
        let Some(item) = item else {
            return default.map_or_else(Entry::missing, |value| Entry::new(of_json(value), "default"));
        };
        if let Value::Scalar(Scalar { text, kind }) = &item.value {
            if let (Kind::Integer(0), Some(zero)) = (kind, attribute("x-zero")) {
                return Entry::number(zero, format!("default, for the 0 of {}", self.origin(Some(item))));
            }
            if let Some(default) = default.filter(|_| text.is_empty() && !EMPTY_COUNTS.contains(&pattern)) {
                return Entry::new(of_json(default), "default");
            }
        }
        let mut entry = self.typed(path, item, reading(pattern, schema));
        entry.origin = self.origin(Some(item));
        entry
    }

    /// A value as it was typed.
    fn typed(&self, path: &str, item: &Item, reading: Reading) -> Entry {
        let shown = match &item.value {
            Value::Null => Shown::Scalar("null".to_owned()),
            Value::Scalar(Scalar { text, kind }) => Shown::Scalar(match reading {
                Reading::Secret => masked(path, text),
                Reading::Text => quoted(text),
                Reading::Plain => scalar(text, *kind),
            }),
            Value::List(items) => {
                let entry = |(index, item)| self.typed(&format!("{path}[{index}]"), item, reading);
                Shown::List(items.iter().enumerate().map(entry).collect())
            }
            Value::Mapping(entries) => {
                let entry = |(key, item): &(Typed<String>, Item)| {
                    let mut entry = self.typed(&format!("{path}.{}", key.value), item, reading);
                    entry.origin = self.origin(Some(item));
                    (key.value.clone(), entry)
                };
                Shown::Mapping(entries.iter().map(entry).collect())
            }
        };
        Entry::new(shown, "")
    }

    fn origin(&self, item: Option<&Item>) -> String {
        item.map_or_else(|| "default".to_owned(), |item| self.source.place(item.at))
    }
}

impl Source<'_> {
    /// A place of the file as an origin.
    pub(super) fn place(&self, at: Place) -> String {
        format!("{}:{}", self.file, at.line)
    }
}

/// A secret as it may be shown: by the name of its variable. One that stands in the file itself gets the name of a variable that
/// whoever loads the result has to set.
fn masked(path: &str, text: &str) -> String {
    let name = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    if text.is_empty() || name.is_some_and(|name| !name.contains(['{', '}', '$'])) {
        return quoted(text);
    }
    let mut name = String::from("MASKED");
    for char in path.chars() {
        let char = if char.is_ascii_alphanumeric() { char.to_ascii_uppercase() } else { '_' };
        if char != '_' || !name.ends_with('_') {
            if name == "MASKED" {
                name.push('_');
            }
            name.push(char);
        }
    }
    quoted(&format!("${{{}}}", name.trim_end_matches('_')))
}

/// `nodes[].adapters` as a list: the mapping by type of earlier files is one instance of each (CFG-10).
fn single_instances(pattern: &str, item: &Item) -> Item {
    if pattern != "nodes[].adapters" || matches!(item.value, Value::List(_)) {
        return item.clone();
    }
    let text = |value: &str, at| {
        let scalar = Scalar { text: value.to_owned(), kind: Kind::Text };
        Typed { value: Value::Scalar(scalar), at }
    };
    let key = |name: &str, at| Typed { value: name.to_owned(), at };
    let instance = |(kind, settings): &(Typed<String>, Item)| {
        let (at, inner) = (kind.at, settings.at);
        let (own, common): (Vec<_>, Vec<_>) =
            settings.value.entries().iter().cloned().partition(|(key, _)| key.value == "enabled");
        let mut entries = vec![(key("type", at), text(&kind.value, at))];
        entries.extend(own);
        entries.push((key("settings", inner), Typed { value: Value::Mapping(common), at: inner }));
        Typed { value: Value::Mapping(entries), at }
    };
    Typed { value: Value::List(item.value.entries().iter().map(instance).collect()), at: item.at }
}

/// A default of the schema.
fn of_json(value: &Json) -> Shown {
    match value {
        Json::String(text) => Shown::Scalar(quoted(text)),
        Json::Array(items) => Shown::List(items.iter().map(|item| Entry::new(of_json(item), "")).collect()),
        Json::Object(_) => Shown::Mapping(Vec::new()),
        other => Shown::Scalar(other.to_string()),
    }
}
