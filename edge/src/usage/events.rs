//! The events in a stretch of a stream (WHATWG HTML §9.2), for the few that are looked at.

use std::{borrow::Cow, ops::Range};

use memchr::memchr2;

/// One event that has data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// From its first byte, or that of the comments before it, to behind the empty line that ends it.
    pub place: Range<usize>,
    /// Its data lines, joined.
    pub data: Cow<'a, [u8]>,
}

/// The whole events of `text` that have data, in order. With `cut`, `text` begins in the middle of a data line.
pub fn events(text: &[u8], cut: bool) -> Vec<Event<'_>> {
    let mut events = Vec::new();
    let (mut at, mut start) = (0, 0);
    let mut data: Option<Cow<'_, [u8]>> = None;
    let mut is_first = cut;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(end) = memchr2(b'\n', b'\r', rest) else { break };
        let (line, tail) = rest.split_at(end);
        at += end + if tail.starts_with(b"\r\n") { 2 } else { 1 };
        if line.is_empty() && !is_first {
            if let Some(data) = data.take() {
                events.push(Event { place: start..at, data });
            }
            start = at;
            continue;
        }
        let value = if std::mem::take(&mut is_first) { Some(line) } else { data_of(line) };
        if let Some(value) = value {
            data = Some(match data.take() {
                None => Cow::Borrowed(value),
                Some(before) => Cow::Owned([&before[..], b"\n", value].concat()),
            });
        }
    }
    events
}

/// The value of a data line.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    match line.strip_prefix(b"data")? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(text: &str, cut: bool) -> Vec<String> {
        events(text.as_bytes(), cut)
            .iter()
            .map(|event| String::from_utf8_lossy(&event.data).into_owned())
            .collect()
    }

    #[test]
    fn whole_events_with_data_are_given_whatever_the_line_ends() {
        for (text, expected) in [
            ("", &[][..]),
            ("data: a\n\n", &["a"]),
            ("data:a\r\n\r\ndata: b\r\rdata\n\n", &["a", "b", ""]),
            ("event: x\ndata: a\nid: 1\ndata: b\n\n", &["a\nb"]),
            (": c\n\nevent: x\n\ndata: a\n\n", &["a"]),
            ("data: a\n\ndata: b\n", &["a"]),
            ("\u{feff}data: a\n\n", &["a"]),
            ("database: a\n\n", &[]),
        ] {
            assert_eq!(data(text, false), expected, "{text:?}");
        }
        assert_eq!(data("rest\n\ndata: b\n\n", true), ["rest", "b"]);
        assert_eq!(data("\n\ndata: b\n\n", true), ["", "b"]);
    }

    #[test]
    fn an_event_has_the_bytes_between_two_empty_lines() {
        let text = ": c\ndata: a\n\nevent: x\r\ndata: b\r\n\r\nrest";
        let places = events(text.as_bytes(), false).into_iter().map(|event| &text[event.place]);
        assert_eq!(places.collect::<Vec<_>>(), [": c\ndata: a\n\n", "event: x\r\ndata: b\r\n\r\n"]);
    }
}
