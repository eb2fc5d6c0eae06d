//! What was typed before anybody asks what it means: keys, lists and scalars, each with its place. Duplicate keys are all here,
//! so that the reader of a section can say where the first one stands.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Error, Options, Spanned};

use super::place::{Place, Typed};

/// Longest configuration file in bytes.
pub const FILE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most YAML nodes (mappings, lists, scalars) of one file: room for the largest fleet the slot bound permits.
const NODES_MAX: usize = 2_000_000;
/// Deepest nesting of one file; the tree of the contract needs 9.
const DEPTH_MAX: usize = 32;

/// A value and its place.
pub(super) type Item = Typed<Value>;

/// A YAML value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Value {
    /// A key without a value, `~` or `null`.
    #[default]
    Null,
    /// A single value.
    Scalar(Scalar),
    /// `- item` a line, or `[a, b]`.
    List(Vec<Item>),
    /// Keys and values in the order of the file.
    Mapping(Vec<(Typed<String>, Item)>),
}

/// A single value: its text, and what YAML takes it for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scalar {
    pub(super) text: String,
    pub(super) kind: Kind,
}

/// What YAML takes a scalar for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Text,
    Bool(bool),
    Integer(i64),
    /// With a fraction or an exponent, or with leading zeros.
    Number,
    /// More than 64 bits.
    Large,
}

impl Value {
    /// The entries of a mapping; none of anything else.
    pub(super) fn entries(&self) -> &[(Typed<String>, Item)] {
        match self {
            Self::Mapping(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; none of anything else.
    pub(super) fn items(&self) -> &[Item] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// The value of a key, unless it is missing or empty.
    pub(super) fn get(&self, key: &str) -> Option<&Item> {
        let (_, item) = self.entries().iter().find(|(name, _)| name.value == key)?;
        (item.value != Self::Null).then_some(item)
    }

    /// The text of a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }
}

/// The tree of a text; [`Value::Null`] for one that holds nothing.
///
/// # Errors
/// What keeps the text from being YAML, or from being within the bounds.
pub(super) fn read(text: &str) -> Result<Item, Box<Error>> {
    let budget = serde_saphyr::budget! {
        max_events: 2 * NODES_MAX,
        max_nodes: NODES_MAX,
        max_depth: DEPTH_MAX,
    };
    let options: Options = serde_saphyr::options! {
        budget: budget,
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        // A snippet of the file could show a secret.
        with_snippet: false,
        emit_comments: false,
    };
    let raw: Option<Spanned<Raw>> = serde_saphyr::from_str_with_options(text, options).map_err(Box::new)?;
    Ok(raw.map(|raw| item(text, raw)).unwrap_or_default())
}

fn item(text: &str, raw: Spanned<Raw>) -> Item {
    let at = Place::from(raw.referenced);
    let plain = |kind| Value::Scalar(Scalar { text: source(text, &raw.defined), kind });
    let value = match raw.value {
        Raw::Null => Value::Null,
        Raw::Text(text) => Value::Scalar(Scalar { text, kind: Kind::Text }),
        Raw::Bool(value) => plain(Kind::Bool(value)),
        Raw::Integer(value) => plain(i64::try_from(value).map_or(Kind::Large, Kind::Integer)),
        Raw::Number(value) => {
            let digits = source(text, &raw.defined);
            let whole = digits.trim_start_matches(['-', '+']);
            let large = value.abs() >= i64::MAX as f64 && whole.bytes().all(|byte| byte.is_ascii_digit());
            plain(if large { Kind::Large } else { Kind::Number })
        }
        Raw::List(items) => Value::List(items.into_iter().map(|raw| item(text, raw)).collect()),
        Raw::Mapping(entries) => Value::Mapping(
            entries.into_iter().map(|(key, value)| (name(text, key), item(text, value))).collect(),
        ),
    };
    Typed { value, at }
}

/// A key as it was typed: `5` and `yes` are names like any other.
fn name(text: &str, raw: Spanned<Raw>) -> Typed<String> {
    let at = Place::from(raw.referenced);
    let value = match raw.value {
        Raw::Text(text) => text,
        Raw::Null | Raw::Bool(_) | Raw::Integer(_) | Raw::Number(_) => source(text, &raw.defined),
        // No key of the contract, so that it is reported as an unknown one.
        Raw::List(_) => "[…]".to_owned(),
        Raw::Mapping(_) => "{…}".to_owned(),
    };
    Typed { value, at }
}

/// What stands in the file at `location`; the reader keeps no text of numbers and words.
fn source(text: &str, location: &serde_saphyr::Location) -> String {
    let span = location.span();
    let range = || {
        let start = usize::try_from(span.byte_offset()?).ok()?;
        let end = start.checked_add(usize::try_from(span.byte_len()?).ok()?)?;
        text.get(start..end)
    };
    range().unwrap_or_default().to_owned()
}

/// A value as the YAML reader tells it.
enum Raw {
    Null,
    Text(String),
    Bool(bool),
    Integer(i128),
    Number(f64),
    List(Vec<Spanned<Self>>),
    Mapping(Vec<(Spanned<Self>, Spanned<Self>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Raw, E> {
        Ok(Raw::Integer(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Raw, E> {
        Ok(Raw::Integer(i128::try_from(value).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Raw, E> {
        Ok(Raw::Text(value))
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Raw, E> {
        Ok(Raw::Text(String::from_utf8_lossy(value).into_owned()))
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Mapping(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words_keep_their_text() {
        let text = "\u{feff}é: 0x10\nzip: 007\nn: yes\nlarge: 99999999999999999999\npart: 1.50\nquoted: \"5\"\nnone:\nl: [1, ~]\n5: &x {a: b}\nalso: *x\n";
        let root = read(text).unwrap().value;
        for (key, text, kind) in [
            ("é", "0x10", Kind::Integer(16)),
            ("zip", "007", Kind::Number),
            ("n", "yes", Kind::Bool(true)),
            ("large", "99999999999999999999", Kind::Large),
            ("part", "1.50", Kind::Number),
            ("quoted", "5", Kind::Text),
        ] {
            let found = root.get(key).map(|item| item.value.clone());
            assert_eq!(found, Some(Value::Scalar(Scalar { text: text.to_owned(), kind })), "{key}");
        }
        assert_eq!(root.get("none"), None);
        assert_eq!(root.get("l").unwrap().value.items().len(), 2);
        assert_eq!(root.get("also").unwrap().value.get("a").unwrap().value.text(), Some("b"));
        assert!(root.get("5").is_some());
        // An alias stands where it is used.
        assert_eq!(root.get("also").unwrap().at, Place { line: 10, column: 7 });
    }
}
