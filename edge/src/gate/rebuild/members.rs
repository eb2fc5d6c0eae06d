//! JSON by its members as they stand in a text, so that everything which is not looked at stays as it is.

use std::{borrow::Cow, fmt, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The members of an object, in order. Of a name that is there twice the last one counts, as with nearly every parser.
pub(in crate::gate) struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reads;
        impl<'de> Visitor<'de> for Reads {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Key(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reads)
    }
}

impl<'a> Members<'a> {
    /// Those of a body; `None` = it is no object.
    pub(in crate::gate) fn of_body(body: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// Those of a value; `None` = it is no object.
    pub(in crate::gate) fn of(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// The value of this name, `null` too.
    pub(in crate::gate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rfind(|(key, _)| key == name).map(|(_, value)| *value)
    }

    /// The value of this name unless it is `null`.
    pub(in crate::gate) fn some(&self, name: &str) -> Option<&'a RawValue> {
        self.get(name).filter(|raw| !is_null(raw))
    }

    /// The members of the object of this name.
    pub(in crate::gate) fn object(&self, name: &str) -> Option<Self> {
        self.some(name).and_then(Self::of)
    }

    /// The elements of the array of this name; none where it is none.
    pub(in crate::gate) fn list(&self, name: &str) -> Vec<&'a RawValue> {
        self.some(name).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }

    /// The string of this name.
    pub(in crate::gate) fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        self.some(name).and_then(|raw| serde_json::from_str::<Key<'a>>(raw.get()).ok()).map(|Key(text)| text)
    }

    /// Whether the value of this name is `true`.
    pub(in crate::gate) fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|raw| raw.get() == "true")
    }
}

/// Whether it is `null`.
pub(super) fn is_null(raw: &RawValue) -> bool {
    raw.get() == "null"
}

/// Where `raw` stands in the body that it was read from; `None` = it is none of its.
pub(super) fn place(body: &[u8], raw: &RawValue) -> Option<Range<usize>> {
    let start = (raw.get().as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    let place = start..start.checked_add(raw.get().len())?;
    (body.get(place.clone())? == raw.get().as_bytes()).then_some(place)
}

/// One replacement in a body.
pub(super) type Edit = (Range<usize>, String);

/// The body with its edits, which do not overlap. Of two at the same place the first one comes first.
pub(super) fn edited(body: &[u8], mut edits: Vec<Edit>) -> Option<Vec<u8>> {
    edits.sort_by_key(|(place, _)| place.start);
    let mut out = Vec::with_capacity(body.len() + edits.iter().map(|(_, with)| with.len()).sum::<usize>());
    let mut at = 0;
    for (place, with) in edits {
        out.extend_from_slice(body.get(at..place.start)?);
        out.extend_from_slice(with.as_bytes());
        at = place.end;
    }
    out.extend_from_slice(body.get(at..)?);
    Some(out)
}
