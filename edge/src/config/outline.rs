//! The key path of a position: what the typed structs cannot tell once reading them has failed.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::DuplicateKeyPolicy;

use super::place::{Place, Typed};

/// Any YAML value, reduced to its keys and places. Depth is bounded by the YAML reader's own budget.
enum Outline {
    Leaf,
    List(Vec<Typed<Self>>),
    Mapping(Vec<(Typed<String>, Typed<Self>)>),
}

/// The path of the deepest key or list item that starts at or before `target`; empty when the text is no YAML mapping.
pub(super) fn path_at(text: &str, target: Place) -> String {
    // A duplicate key may be the very error whose path is wanted.
    let Ok(root) = super::parse::read::<Outline>(text, DuplicateKeyPolicy::PassThrough) else {
        return String::new();
    };
    let mut path = String::new();
    let mut node = &root;
    loop {
        node = match node {
            Outline::Leaf => return path,
            Outline::List(items) => {
                let Some(index) = items.iter().rposition(|item| item.at <= target) else {
                    return path;
                };
                path.push_str(&format!("[{index}]"));
                &items[index].value
            }
            Outline::Mapping(entries) => {
                let Some((key, value)) = entries.iter().rev().find(|(key, _)| key.at <= target) else {
                    return path;
                };
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&key.value);
                if value.at > target {
                    return path;
                }
                &value.value
            }
        };
    }
}

impl<'de> Deserialize<'de> for Outline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OutlineVisitor)
    }
}

struct OutlineVisitor;

impl<'de> Visitor<'de> for OutlineVisitor {
    type Value = Outline;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Outline, E> {
        Ok(Outline::Leaf)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Outline, E> {
        Ok(Outline::Leaf)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Outline, E> {
        Ok(Outline::Leaf)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Outline, E> {
        Ok(Outline::Leaf)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Outline, E> {
        Ok(Outline::Leaf)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Outline, E> {
        Ok(Outline::Leaf)
    }

    fn visit_str<E>(self, _: &str) -> Result<Outline, E> {
        Ok(Outline::Leaf)
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Outline, E> {
        Ok(Outline::Leaf)
    }

    fn visit_unit<E>(self) -> Result<Outline, E> {
        Ok(Outline::Leaf)
    }

    fn visit_none<E>(self) -> Result<Outline, E> {
        Ok(Outline::Leaf)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Outline, D::Error> {
        Outline::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Outline, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Outline::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Outline, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Outline::Mapping(entries))
    }
}
