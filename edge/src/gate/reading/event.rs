//! The fields of one event that are looked at (WHATWG HTML §9.2).

use std::borrow::Cow;

use memchr::memchr2;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What an event is called, and its data.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Event<'a> {
    /// The last of its `event` fields, where it says more than that it is an event.
    pub(super) name: Option<&'a [u8]>,
    /// Its data lines, joined; `None` where it has none.
    pub(super) data: Option<Cow<'a, [u8]>>,
}

impl<'a> Event<'a> {
    /// Of all its lines. The first event of a stream may begin with a byte order mark.
    pub(super) fn read(mut lines: &'a [u8], is_first: bool) -> Self {
        if is_first {
            lines = lines.strip_prefix(BYTE_ORDER_MARK).unwrap_or(lines);
        }
        let mut event = Self::default();
        while !lines.is_empty() {
            let end = memchr2(b'\n', b'\r', lines).unwrap_or(lines.len());
            let (line, rest) = lines.split_at(end);
            lines = rest.get(1..).unwrap_or_default();
            if let Some(value) = field(line, b"data") {
                event.data = Some(match event.data.take() {
                    None => Cow::Borrowed(value),
                    Some(before) => Cow::Owned([&before[..], b"\n", value].concat()),
                });
            } else if let Some(value) = field(line, b"event") {
                event.name = Some(value).filter(|name| !matches!(*name, b"" | b"message"));
            }
        }
        event
    }
}

/// The value of a line that is this field.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(name)? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}
