//! From the tree to the typed sections, with every slip of the file noted and stepped over: an unknown key, a key that stands
//! twice and a value of a wrong kind hide nothing that stands behind them.

use std::collections::HashMap;

use super::{
    error::Report,
    nearest::{hint, nearest},
    place::{Entries, Place, Typed},
    secret::Secret,
    tree::{Item, Kind, Scalar, Value},
};

/// Something that a value of the file can be read as.
pub(super) trait Shape: Sized {
    /// Reads it; `None` when it is not of this shape, which has been noted.
    fn read(item: &Item, reader: &mut Reader<'_>) -> Option<Self>;
}

/// A mapping with known keys.
pub(super) trait Section: Default {
    /// Its keys in the order of the page.
    const KEYS: &'static [&'static str];

    /// Takes the value of one of [`Section::KEYS`].
    fn take(&mut self, key: &str, item: &Item, reader: &mut Reader<'_>);
}

/// Defines a section whose fields are its keys, each `Opt<…>`: the struct, its schema and how it is read.
macro_rules! section {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, schemars::JsonSchema)]
        #[schemars(deny_unknown_fields)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }

        impl $crate::config::shape::Section for $name {
            const KEYS: &'static [&'static str] = &[$($crate::config::shape::key_name(stringify!($field))),*];

            fn take(
                &mut self,
                key: &str,
                item: &$crate::config::tree::Item,
                reader: &mut $crate::config::shape::Reader<'_>,
            ) {
                $(if key == const { $crate::config::shape::key_name(stringify!($field)) } {
                    self.$field = reader.field(item);
                })*
            }
        }

        impl $crate::config::shape::Shape for $name {
            fn read(
                item: &$crate::config::tree::Item,
                reader: &mut $crate::config::shape::Reader<'_>,
            ) -> Option<Self> {
                reader.section(item)
            }
        }
    };
}
pub(super) use section;

/// The key of a field: `r#type` is `type`.
pub(super) const fn key_name(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}

/// Where reading is, and what was noted.
pub(super) struct Reader<'a> {
    report: &'a mut Report,
    /// Key path of the value at hand.
    path: String,
}

impl<'a> Reader<'a> {
    /// A reader of the root.
    pub(super) fn new(report: &'a mut Report) -> Self {
        Self { report, path: String::new() }
    }

    /// An optional value: a key without a value is a missing key.
    pub(super) fn field<T: Shape>(&mut self, item: &Item) -> Option<Typed<T>> {
        if item.value == Value::Null {
            return None;
        }
        let value = T::read(item, self);
        if value.is_none() {
            self.report.poison(&self.path);
        }
        value.map(|value| Typed { value, at: item.at })
    }

    /// A mapping with known keys.
    pub(super) fn section<T: Section>(&mut self, item: &Item) -> Option<T> {
        let mut section = T::default();
        let Value::Mapping(entries) = &item.value else {
            match (&item.value, T::KEYS.first()) {
                // A bare name in a list of mappings: it is most likely the first of its keys.
                (Value::Scalar(scalar), Some(first))
                    if self.path.ends_with(']') && !scalar.text.contains(':') =>
                {
                    let kind = kind_of(&item.value);
                    let message = format!("expected {MAPPING} such as {{ {first}: … }}, found {kind}");
                    self.report.add(item.at, self.path.as_str(), message);
                }
                (Value::Scalar(_), _) if self.path.is_empty() => {
                    let message = "expected sections such as `openai:` and `nodes:`, found a text: is this the right file?";
                    self.report.add(item.at, "", message);
                }
                _ => self.wrong(item, MAPPING),
            }
            return None;
        };
        let mut seen = HashMap::new();
        for (key, value) in entries {
            let name = key.value.as_str();
            if let Some(first) = seen.get(name) {
                self.again(key, value, *first);
                continue;
            }
            seen.insert(name, key.at);
            if T::KEYS.contains(&name) {
                self.within(name, |reader| section.take(name, value, reader));
            } else if let Some(meant) = self.unknown::<T>(key, entries) {
                self.within(meant, |reader| section.take(meant, value, reader));
                self.report.poison(&self.child(meant));
            }
        }
        Some(section)
    }

    /// Notes an unknown key. When it is surely a slip for one that is missing here, the reader goes on as if that one had been
    /// typed, so that nothing else is said to be missing because of it.
    fn unknown<T: Section>(
        &mut self,
        key: &Typed<String>,
        entries: &[(Typed<String>, Item)],
    ) -> Option<&'static str> {
        let name = shown(&key.value);
        let meant = nearest(&key.value, T::KEYS.iter().copied());
        let homes = super::class::homes(&key.value);
        let message = if meant.is_some() {
            format!("unknown key `{name}`{}", hint(&key.value, T::KEYS.iter().copied()))
        } else if homes.is_empty() {
            let alike =
                T::KEYS.iter().filter(|known| is_part(&key.value, known)).copied().collect::<Vec<_>>();
            if is_credential(&key.value) {
                format!(
                    "unknown key `{name}`: a credential for the provider cannot be configured; clients can bring theirs (openai.provider_auth)"
                )
            } else if alike.is_empty() {
                format!("unknown key `{name}`; the keys here are {}", T::KEYS.join(", "))
            } else {
                format!("unknown key `{name}`; did you mean one of {}?", alike.join(", "))
            }
        } else {
            let homes = homes.join(" or ");
            let here = if self.path.is_empty() { "the top level" } else { self.path.as_str() };
            format!(
                "`{name}` is not a key of {here}; it belongs at {homes}: is this line indented as it should be?"
            )
        };
        self.report.add(key.at, self.child(&key.value), message);
        meant.filter(|meant| entries.iter().all(|(key, _)| key.value != *meant))
    }

    /// Notes a key that stands twice.
    fn again(&mut self, key: &Typed<String>, value: &Item, first: Place) {
        let path = self.child(&key.value);
        let instead = match value.value {
            Value::List(_) | Value::Mapping(_) => "write what both hold under one of them",
            Value::Null | Value::Scalar(_) => "take one of them away",
        };
        let message = format!(
            "the key `{}` stands here a second time, first in line {}: {instead}",
            shown(&key.value),
            first.line
        );
        self.report.add(key.at, path, message);
    }

    /// Notes a value of another kind than was expected. What was found could be a misplaced secret, so only its kind is told.
    pub(super) fn wrong(&mut self, item: &Item, expected: &str) {
        let message =
            format!("expected {expected}, found {}{}", kind_of(&item.value), advice(&item.value, expected));
        self.report.add(item.at, self.path.as_str(), message);
    }

    fn child(&self, key: &str) -> String {
        let key = shown(key);
        if self.path.is_empty() { key } else { format!("{}.{key}", self.path) }
    }

    fn within<R>(&mut self, key: &str, read: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        let value = read(self);
        self.path.truncate(length);
        value
    }

    fn at_index<R>(&mut self, index: usize, read: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.path.len();
        self.path.push_str(&format!("[{index}]"));
        let value = read(self);
        self.path.truncate(length);
        value
    }
}

const MAPPING: &str = "a mapping of keys and values";
const LIST: &str = "a list: one `- item` a line, or [a, b]";
const INTEGER: &str = "an integer";
const BOOLEAN: &str = "true or false";
const TEXT: &str = "a single value";

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::List(_) => "a list",
        Value::Mapping(_) => "a mapping",
        Value::Scalar(scalar) => match scalar.kind {
            Kind::Text => "a text",
            Kind::Bool(_) => "a boolean",
            Kind::Integer(_) => "an integer",
            Kind::Number => "a number with a fraction, an exponent or leading zeros",
            Kind::Large => "a number that does not fit in 64 bits",
        },
    }
}

/// What to write instead, where the slip is a usual one.
fn advice(value: &Value, expected: &str) -> &'static str {
    match (value, expected) {
        (Value::Scalar(Scalar { text, kind: Kind::Text }), INTEGER) => {
            let digits = text.trim().trim_start_matches(['-', '+']);
            if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_') {
                " in quotes; a number is written without quotes"
            } else if text.contains("${") {
                "; numbers cannot come from the environment: write the number itself"
            } else if digits.starts_with(|first: char| first.is_ascii_digit()) {
                "; a number is written without a unit, which the key's name tells"
            } else {
                ""
            }
        }
        (Value::Scalar(Scalar { text, kind: Kind::Text }), BOOLEAN)
            if ["true", "false", "yes", "no", "on", "off"]
                .contains(&text.trim().to_ascii_lowercase().as_str()) =>
        {
            " in quotes; a boolean is written without quotes"
        }
        (Value::Scalar(_), LIST) => "; a list of one is written [value]",
        (Value::Scalar(Scalar { text, kind: Kind::Text }), MAPPING) if text.contains(':') => {
            "; is a blank missing behind a colon?"
        }
        (Value::Scalar(_), MAPPING) => {
            "; its keys stand in lines of their own, indented further than this one"
        }
        (Value::List(_), MAPPING) => "; keys of a mapping stand without `- ` in front",
        (Value::Mapping(_), LIST) => "; each item of a list begins with `- `",
        (Value::List(_) | Value::Mapping(_), TEXT) => {
            "; a text that begins with [, { or * is written in quotes"
        }
        _ => "",
    }
}

/// Whether `typed` is whole words of a known key: `timeout` of `request_timeout_ms`.
fn is_part(typed: &str, known: &str) -> bool {
    !typed.is_empty() && format!("_{known}_").contains(&format!("_{typed}_"))
}

/// Whether a key asks for what other gateways call the key of an API.
fn is_credential(typed: &str) -> bool {
    let letters = typed.chars().filter(char::is_ascii_alphabetic).collect::<String>().to_ascii_lowercase();
    ["apikey", "authorization", "bearertoken"].contains(&letters.as_str())
}

/// A key for a message: bounded, without control characters.
fn shown(key: &str) -> String {
    const SHOWN_CHARS: usize = 60;
    let mut shown: String = key.chars().filter(|char| !char.is_control()).take(SHOWN_CHARS).collect();
    if key.chars().count() > SHOWN_CHARS {
        shown.push('…');
    }
    shown
}

macro_rules! shape {
    ($type:ty, $expected:expr, $pattern:pat => $value:expr) => {
        impl Shape for $type {
            fn read(item: &Item, reader: &mut Reader<'_>) -> Option<Self> {
                match &item.value {
                    $pattern => Some($value),
                    _ => {
                        reader.wrong(item, $expected);
                        None
                    }
                }
            }
        }
    };
}

shape!(i64, INTEGER, Value::Scalar(Scalar { kind: Kind::Integer(value), .. }) => *value);
shape!(bool, BOOLEAN, Value::Scalar(Scalar { kind: Kind::Bool(value), .. }) => *value);
shape!(String, TEXT, Value::Scalar(scalar) => scalar.text.clone());
shape!(Secret, TEXT, Value::Scalar(scalar) => Secret::new(scalar.text.clone()));

/// A list. An item of a wrong kind stays in it as an empty one, so that the others keep their positions; what is said of it
/// later is not reported again.
impl<T: Shape + Default> Shape for Vec<Typed<T>> {
    fn read(item: &Item, reader: &mut Reader<'_>) -> Option<Self> {
        let Value::List(items) = &item.value else {
            reader.wrong(item, LIST);
            return None;
        };
        let read = |(index, item): (usize, &Item)| {
            reader.at_index(index, |reader| {
                let value = T::read(item, reader);
                if value.is_none() {
                    reader.report.poison(&reader.path);
                }
                Typed { value: value.unwrap_or_default(), at: item.at }
            })
        };
        Some(items.iter().enumerate().map(read).collect())
    }
}

/// A mapping with free keys. An entry of a wrong kind is left out.
impl<T: Shape> Shape for Entries<T> {
    fn read(item: &Item, reader: &mut Reader<'_>) -> Option<Self> {
        let Value::Mapping(entries) = &item.value else {
            reader.wrong(item, MAPPING);
            return None;
        };
        let mut read = Vec::new();
        let mut seen = HashMap::new();
        for (key, value) in entries {
            if let Some(first) = seen.get(key.value.as_str()) {
                reader.again(key, value, *first);
                continue;
            }
            seen.insert(key.value.as_str(), key.at);
            if let Some(value) = reader.within(&shown(&key.value), |reader| T::read(value, reader)) {
                read.push((key.clone(), value));
            }
        }
        Some(Self(read))
    }
}

/// A value with its place.
impl<T: Shape> Shape for Typed<T> {
    fn read(item: &Item, reader: &mut Reader<'_>) -> Option<Self> {
        let value = T::read(item, reader);
        if value.is_none() {
            reader.report.poison(&reader.path);
        }
        value.map(|value| Self { value, at: item.at })
    }
}

/// A value that may be empty.
impl<T: Shape> Shape for Option<Typed<T>> {
    fn read(item: &Item, reader: &mut Reader<'_>) -> Option<Self> {
        if item.value == Value::Null { Some(None) } else { Typed::read(item, reader).map(Some) }
    }
}
