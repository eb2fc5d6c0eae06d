//! The query of an admin path: pairs, percent-encoded (RFC 3986 section 2.1), written by the commands and read by the Edge. Pure.

use std::{collections::BTreeMap, fmt::Write as _};

/// The query for these pairs; the first pair of a name counts.
#[must_use]
pub fn encode(pairs: &[(&str, &str)]) -> String {
    let mut query = String::new();
    for (key, value) in pairs {
        if !query.is_empty() {
            query.push('&');
        }
        escape(&mut query, key);
        query.push('=');
        escape(&mut query, value);
    }
    query
}

fn escape(into: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(char::from(byte));
        } else {
            // A String takes everything.
            let _infallible = write!(into, "%{byte:02X}");
        }
    }
}

/// The pairs of a query; `None` when it is not well-formed, names a key twice or is no UTF-8.
pub(super) fn decode(query: &str) -> Option<BTreeMap<String, String>> {
    let mut pairs = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=')?;
        if pairs.insert(unescape(key)?, unescape(value)?).is_some() {
            return None;
        }
    }
    Some(pairs)
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
            u8::try_from(high * 16 + low).ok()?
        } else {
            byte
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(value in ".{0,40}", other in ".{0,10}") {
            let query = encode(&[("target", &value), ("b c", &other)]);
            prop_assert!(query.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#'));
            let read = decode(&query).unwrap();
            prop_assert_eq!((&read["target"], &read["b c"]), (&value, &other));
        }

        #[test]
        fn any_text_is_read_or_refused(query in ".{0,60}") {
            let _read = decode(&query);
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for query in ["a", "a=1&a=2", "a=%", "a=%4", "a=%zz", "a=%ff", "a=%+1"] {
            assert_eq!(decode(query), None, "{query}");
        }
        assert_eq!(decode(""), Some(BTreeMap::new()));
        assert_eq!(decode("a=b=c").unwrap()["a"], "b=c");
    }
}
