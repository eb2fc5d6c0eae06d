//! JSON as far as it is looked at: the members of an object as they stand, without a tree of them. Whatever a member is, the
//! others can be read.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// A text is no JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotJson;

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// Gives every member of the object that `json` is. Whether it is one.
///
/// # Errors
/// [`NotJson`].
pub(super) fn members<'a>(json: &'a str, each: impl FnMut(&str, &'a RawValue)) -> Result<bool, NotJson> {
    struct Members<F>(F);

    impl<'de, F: FnMut(&str, &'de RawValue)> Visitor<'de> for Members<F> {
        type Value = ();

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
            while let Some(key) = map.next_key::<Key<'de>>()? {
                (self.0)(&key.0, map.next_value()?);
            }
            Ok(())
        }
    }

    if json.trim_ascii_start().starts_with('{') {
        let mut reader = serde_json::Deserializer::from_str(json);
        let read = (&mut reader).deserialize_map(Members(each)).and_then(|()| reader.end());
        if read.is_ok() {
            return Ok(true);
        }
    }
    check(json).map(|()| false)
}

/// Gives every member of an object that is known to be JSON.
pub(super) fn members_of<'a>(value: &'a RawValue, each: impl FnMut(&str, &'a RawValue)) -> bool {
    members(value.get(), each).unwrap_or(false)
}

/// Gives every element of a list that is known to be JSON. Whether it is a list.
pub(super) fn elements_of<'a>(value: &'a RawValue, each: impl FnMut(&'a RawValue)) -> bool {
    struct Elements<F>(F);

    impl<'de, F: FnMut(&'de RawValue)> Visitor<'de> for Elements<F> {
        type Value = ();

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
            while let Some(element) = list.next_element()? {
                (self.0)(element);
            }
            Ok(())
        }
    }

    value.get().starts_with('[')
        && serde_json::Deserializer::from_str(value.get()).deserialize_seq(Elements(each)).is_ok()
}

/// Whether a text is JSON.
///
/// # Errors
/// It is not.
pub(super) fn check(json: &str) -> Result<(), NotJson> {
    serde_json::from_str::<IgnoredAny>(json).map(|_| ()).map_err(|_| NotJson)
}

/// Nothing is said by this: null, or an empty string, list or object.
pub(super) fn is_empty(value: &RawValue) -> bool {
    let text = value.get();
    let inner = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .or_else(|| text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).map(str::trim_ascii))
        .or_else(|| text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).map(str::trim_ascii));
    inner.map_or(text == "null", str::is_empty)
}

/// A string; half of a surrogate pair, which some servers cut, becomes U+FFFD.
pub(super) fn text(value: &RawValue) -> Option<String> {
    struct Bytes;

    impl Visitor<'_> for Bytes {
        type Value = String;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a string")
        }

        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<String, E> {
            Ok(String::from_utf8_lossy(bytes).into_owned())
        }

        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
    }

    let is_string = value.get().starts_with('"');
    is_string.then(|| serde_json::Deserializer::from_str(value.get()).deserialize_bytes(Bytes).ok()).flatten()
}

/// A whole number, also as a string.
pub(super) fn number(value: &RawValue) -> Option<u32> {
    let digits = value.get();
    digits.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(digits).parse().ok()
}

/// The `type` that an object has, at its beginning as nearly all have it, or elsewhere.
pub(super) fn type_of(json: &str) -> Result<Option<Cow<'_, str>>, NotJson> {
    let first =
        json.strip_prefix("{\"type\":").map(str::trim_ascii_start).and_then(|rest| rest.strip_prefix('"'));
    if let Some((name, _)) =
        first.and_then(|rest| rest.split_once('"')).filter(|(name, _)| !name.contains('\\'))
    {
        return Ok(Some(Cow::Borrowed(name)));
    }
    let mut found = None;
    members(json, |key, value| {
        if key == "type" {
            found = text(value);
        }
    })?;
    Ok(found.map(Cow::Owned))
}
