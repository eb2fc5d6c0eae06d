//! Whether a piece of an event stream holds more than comments, empty lines and pings (STL-3, WHATWG HTML §9.2.6).
//!
//! Servers and proxies keep connections alive with comments, and Messages with events named `ping`, while an engine behind them
//! hangs. Looked at are the first bytes of lines alone, and only up to the first that is none of these; then the end of the piece
//! tells what its last line is. A ping is known where it comes whole, as a server writes it when it has nothing else to say; in
//! parts it is taken for content.

use memchr::{memchr2, memrchr2};

/// Follows one body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comments(Line);

/// Where in a line a piece has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Anywhere: this body is no event stream.
    Opaque,
    /// At its beginning.
    Start,
    /// Inside a comment.
    Comment,
    /// Inside any other line.
    Field,
}

impl Line {
    fn of(first: u8) -> Self {
        if first == b':' && !planted!(CommentIsProgress) { Self::Comment } else { Self::Field }
    }
}

impl Comments {
    /// Of a body with this `Content-Type`, in which nothing but identity coding is expected.
    #[must_use]
    pub fn of(content_type: Option<&[u8]>) -> Self {
        let media_type = content_type.and_then(|value| value.split(|byte| *byte == b';').next());
        let is_stream =
            media_type.is_some_and(|found| found.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"));
        Self(if is_stream { Line::Start } else { Line::Opaque })
    }

    /// How many bytes of the next piece may be something for the client: 0, or its length.
    pub fn content(&mut self, piece: &[u8]) -> usize {
        if self.0 == Line::Opaque {
            return piece.len();
        }
        let is_content = holds_content(self.0, piece);
        self.0 = last_line(self.0, piece);
        if is_content { piece.len() } else { 0 }
    }
}

/// An empty line says that an event is whole, and comes behind comments just as well: it says nothing by itself.
fn holds_content(mut line: Line, mut piece: &[u8]) -> bool {
    loop {
        let Some(&first) = piece.first() else { return false };
        if first == b'\n' || first == b'\r' {
            line = Line::Start;
            piece = piece.get(1..).unwrap_or_default();
            continue;
        }
        if line == Line::Start {
            if let Some(rest) = behind_ping(piece) {
                piece = rest;
                continue;
            }
            line = Line::of(first);
        }
        if line != Line::Comment {
            return true;
        }
        let Some(end) = memchr2(b'\n', b'\r', piece) else { return false };
        piece = piece.get(end..).unwrap_or_default();
    }
}

/// What follows an event named `ping`, up to and with its empty line, when the piece begins with the whole of one.
fn behind_ping(piece: &[u8]) -> Option<&[u8]> {
    let name = piece.strip_prefix(b"event:")?;
    let mut rest = name.strip_prefix(b" ").unwrap_or(name).strip_prefix(b"ping")?;
    // Of the first line, nothing more; then lines of any kind up to an empty one.
    let mut length = memchr2(b'\n', b'\r', rest).filter(|length| *length == 0)?;
    loop {
        let end = rest.get(length..)?;
        rest = end.strip_prefix(b"\r\n").or_else(|| end.get(1..))?;
        length = memchr2(b'\n', b'\r', rest)?;
        if length == 0 {
            return Some(rest);
        }
    }
}

fn last_line(line: Line, piece: &[u8]) -> Line {
    // As nearly every piece ends.
    if let Some(b'\n' | b'\r') = piece.last() {
        return Line::Start;
    }
    let (line, last) = match memrchr2(b'\n', b'\r', piece) {
        Some(end) => (Line::Start, piece.get(end + 1..).unwrap_or_default()),
        None => (line, piece),
    };
    match last.first() {
        Some(first) if line == Line::Start => Line::of(*first),
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Comments {
        Comments::of(Some(b"text/event-stream"))
    }

    // req: STL-3
    #[test]
    fn comments_and_empty_lines_are_no_content_and_every_other_line_is() {
        let table: &[(&[&str], &[bool])] = &[
            (&["data: x\n\n"], &[true]),
            (&[": ping\n\n"], &[false]),
            (&[":\n", ":\r\n\r\n", ":\r\r"], &[false, false, false]),
            (&["\n", "\r\n", "\r", "\n"], &[false, false, false, false]),
            (&[": ping\n\ndata: x\n\n"], &[true]),
            (&[": a\r\n: b\r\n\r\n: c\r\nd"], &[true]),
            (&[": a\r\n: b\r\n\r\n: c\r\n"], &[false]),
            // Cut anywhere.
            (
                &[": pi", "ng: data: ", "x\n", "\nda", "ta", ": x", "\n"],
                &[false, false, false, true, true, true, false],
            ),
            (&["", "d", "", ":", "\n", ":", "d"], &[false, true, false, true, false, false, false]),
            (&["event: ping\n", "id\n", " x\n"], &[true, true, true]),
            // What looks like a comment within a line is none.
            (&["data: ", ":x\n", ":x\n"], &[true, true, false]),
        ];
        for (pieces, expected) in table {
            let mut comments = stream();
            let found: Vec<_> = pieces.iter().map(|piece| comments.content(piece.as_bytes()) > 0).collect();
            assert_eq!(found, *expected, "{pieces:?}");
        }
    }

    // req: STL-3
    // Case 28 of what users of such gateways report.
    #[test]
    fn a_ping_that_comes_whole_is_no_content() {
        let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
        let table: &[(&[&str], &[bool])] = &[
            (&[ping, ping], &[false, false]),
            (&["event:ping\r\ndata: {}\r\n\r\n", "event: ping\rdata: {}\r\r"], &[false, false]),
            (&["event: ping\n\n", ": c\n\nevent: ping\nid: 1\ndata: {}\n\n: c\n\n"], &[false, false]),
            (&["event: ping\ndata: {}\n\nevent: ping\ndata: {}\n\nevent: message_stop\n"], &[true]),
            (&["event: pinging\ndata: {}\n\n", "event: message_start\n"], &[true, true]),
            (&["event: ping\ndata: {}\n", "\n", "event: ping\ndata: {}\n\n"], &[true, false, false]),
            (&["data: {\"type\":\"ping\"}\n\n", "data", ": x\nevent: ping\n\n"], &[true, true, true]),
        ];
        for (pieces, expected) in table {
            let mut comments = stream();
            let found: Vec<_> = pieces.iter().map(|piece| comments.content(piece.as_bytes()) > 0).collect();
            assert_eq!(found, *expected, "{pieces:?}");
        }
    }

    // req: STL-3
    #[test]
    fn however_a_stream_is_cut_the_same_bytes_are_content() {
        let text = b": a\n\ndata: x:\r\n: b\rdata\n\n:\r\n\r\n :c\n:d\n\ne";
        // Byte by byte is the reference.
        let mut single = stream();
        let bytes: Vec<_> = text.iter().map(|byte| single.content(&[*byte]) > 0).collect();
        let reference: Vec<_> = {
            let mut out = Vec::new();
            let mut first = None;
            for byte in text {
                if matches!(byte, b'\n' | b'\r') {
                    first = None;
                    out.push(false);
                } else {
                    out.push(*first.get_or_insert(*byte) != b':');
                }
            }
            out
        };
        assert_eq!(bytes, reference);
        for one in 0..=text.len() {
            for two in one..=text.len() {
                let mut comments = stream();
                for range in [0..one, one..two, two..text.len()] {
                    let expected = reference[range.clone()].contains(&true);
                    assert_eq!(comments.content(&text[range.clone()]) > 0, expected, "{one} {two} {range:?}");
                }
            }
        }
    }

    // req: STL-3
    #[test]
    fn only_event_streams_have_comments() {
        for (content_type, has) in [
            (Some("text/event-stream"), true),
            (Some("Text/Event-Stream ; charset=utf-8"), true),
            (Some("application/json"), false),
            (Some("text/event-streams"), false),
            (None, false),
        ] {
            let mut comments = Comments::of(content_type.map(str::as_bytes));
            assert_eq!(comments.content(b": x\n") == 0, has, "{content_type:?}");
            assert_eq!(comments.content(b""), 0);
        }
    }
}
