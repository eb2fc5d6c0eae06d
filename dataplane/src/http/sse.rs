//! An observer of event streams (WHATWG HTML §9.2): where events end and whether the stream said it was done.
//!
//! It keeps the first bytes of the current line and some counters, copies no events, and says the same however its
//! input is split. It never changes what it looks at.

use memchr::memchr2;

/// Bytes of one event up to which its content is judged; a larger one is opaque and only its end is found.
pub const MAX_EVENT: usize = 1024 * 1024;

/// Enough of a line for a byte order mark, `data: [DONE]` and one byte more.
const PREFIX: usize = 3 + 12 + 1;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Follows one event stream.
#[derive(Clone, Debug)]
pub struct Splitter {
    /// The first bytes of the current line.
    prefix: [u8; PREFIX],
    /// Length of the current line so far.
    line: usize,
    /// Bytes of the current event so far, line ends included.
    event: usize,
    /// `data` lines of the current event.
    data_lines: usize,
    /// The only data line of the event so far is `[DONE]`.
    data_is_done: bool,
    first_line: bool,
    /// The last byte was a CR: a LF after it belongs to it.
    after_cr: bool,
    /// The last byte that was not such a LF ended an event (or there was none yet).
    at_boundary: bool,
    events: u64,
    done: bool,
    oversized: bool,
}

impl Default for Splitter {
    fn default() -> Self {
        Self {
            prefix: [0; PREFIX],
            line: 0,
            event: 0,
            data_lines: 0,
            data_is_done: false,
            first_line: true,
            after_cr: false,
            at_boundary: true,
            events: 0,
            done: false,
            oversized: false,
        }
    }
}

impl Splitter {
    /// At the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Follows the next bytes. Gives the place after the last empty line in them, which is where a stream may be cut or
    /// something be put in between; `None` when there is none.
    pub fn push(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut boundary = None;
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if self.after_cr {
                self.after_cr = false;
                if rest.first() == Some(&b'\n') {
                    at += 1;
                    self.event = if self.at_boundary { 0 } else { self.event.saturating_add(1) };
                    if self.at_boundary {
                        boundary = Some(at);
                    }
                    continue;
                }
            }
            let Some(offset) = memchr2(b'\n', b'\r', rest) else {
                self.extend_line(rest);
                break;
            };
            let (content, end) = rest.split_at(offset);
            self.extend_line(content);
            self.after_cr = end.first() == Some(&b'\r');
            at += offset + 1;
            self.event = self.event.saturating_add(1);
            if self.end_line() {
                boundary = Some(at);
            }
        }
        boundary
    }

    fn extend_line(&mut self, content: &[u8]) {
        if content.is_empty() {
            return;
        }
        self.at_boundary = false;
        if let Some(room) = self.prefix.get_mut(self.line.min(PREFIX)..) {
            for (to, from) in room.iter_mut().zip(content) {
                *to = *from;
            }
        }
        self.line = self.line.saturating_add(content.len());
        self.event = self.event.saturating_add(content.len());
        self.oversized |= self.event > MAX_EVENT;
    }

    /// Judges the line that just ended; whether it ended an event.
    fn end_line(&mut self) -> bool {
        let mut line = self.prefix.get(..self.line.min(PREFIX)).unwrap_or_default();
        let mut length = self.line;
        if std::mem::take(&mut self.first_line)
            && let Some(rest) = line.strip_prefix(BYTE_ORDER_MARK)
        {
            line = rest;
            length -= BYTE_ORDER_MARK.len();
        }
        self.line = 0;
        if length == 0 {
            let opaque = self.event > MAX_EVENT;
            self.oversized |= opaque;
            if self.data_lines > 0 {
                self.events += 1;
                self.done |= self.data_is_done && !opaque;
            }
            self.data_lines = 0;
            self.data_is_done = false;
            self.event = 0;
            self.at_boundary = true;
            return true;
        }
        self.at_boundary = false;
        if line == b"data" {
            self.data_lines += 1;
            self.data_is_done = false;
        } else if let Some(value) = line.strip_prefix(b"data:") {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            self.data_lines += 1;
            self.data_is_done = self.data_lines == 1 && value == b"[DONE]";
        }
        false
    }

    /// Whether everything so far is whole events, so that the stream may be cut here or something be put in.
    pub fn at_boundary(&self) -> bool {
        self.at_boundary
    }

    /// Whether an event came whose data is `[DONE]`.
    pub fn saw_done(&self) -> bool {
        self.done
    }

    /// Whether the stream, ending here, has said `[DONE]`: also when the empty line after it is missing.
    pub fn ends_done(&self) -> bool {
        let mut ended = self.clone();
        if ended.line > 0 {
            ended.end_line();
        }
        ended.end_line();
        ended.done
    }

    /// Events with data that ended so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Whether an event was larger than [`MAX_EVENT`].
    pub fn is_oversized(&self) -> bool {
        self.oversized
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state(splitter: &Splitter) -> (u64, bool, bool, bool) {
        (splitter.events(), splitter.saw_done(), splitter.at_boundary(), splitter.is_oversized())
    }

    fn follow(pieces: &[&[u8]]) -> (u64, bool, bool, bool) {
        let mut splitter = Splitter::new();
        for piece in pieces {
            let _boundary = splitter.push(piece);
        }
        state(&splitter)
    }

    /// The outcome, which must be the same split at every byte and byte by byte.
    fn everywhere(text: &str) -> (u64, bool, bool, bool) {
        let bytes = text.as_bytes();
        let whole = follow(&[bytes]);
        for at in 0..=bytes.len() {
            let (left, right) = bytes.split_at(at);
            assert_eq!(follow(&[left, right]), whole, "{text:?} at {at}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(follow(&single), whole);
        whole
    }

    #[test]
    fn events_end_at_empty_lines_whatever_the_line_ends() {
        for (text, events, boundary) in [
            ("", 0, true),
            ("data: a\n\n", 1, true),
            ("data: a\r\n\r\n", 1, true),
            ("data: a\r\r", 1, true),
            ("data: a\n\r\n", 1, true),
            ("data: a\r\n\n", 1, true),
            ("data: a\r\n", 0, false),
            ("data: a\n", 0, false),
            ("data: a", 0, false),
            ("data: a\n\ndata: b\n\n", 2, true),
            ("data: a\n\nd", 1, false),
            ("data: a\ndata: b\n\n", 1, true),
            ("event: x\ndata: {}\nid: 3\n\n", 1, true),
            ("data\n\n", 1, true),
            ("data:\n\n", 1, true),
            ("event: x\n\n", 0, true),
            (": comment\n\n", 0, true),
            (": comment\n", 0, false),
            ("\n\n\n", 0, true),
            ("database: x\n\n", 0, true),
            (" data: x\n\n", 0, true),
            ("\u{feff}data: a\n\n", 1, true),
            ("\u{feff}\n", 0, true),
            ("data: 你好🌍é\u{2028}\u{85}\u{b}\u{c}\n\n", 1, true),
            ("data: a\0b\n\n", 1, true),
        ] {
            let got = everywhere(text);
            assert_eq!((got.0, got.2), (events, boundary), "{text:?}");
        }
    }

    #[test]
    fn only_an_event_whose_data_is_done_is_the_end() {
        for (text, done) in [
            ("data: [DONE]\n\n", true),
            ("data:[DONE]\n\n", true),
            ("data: [DONE]\r\n\r\n", true),
            ("data: [DONE]\r\r", true),
            ("\u{feff}data: [DONE]\n\n", true),
            ("event: x\ndata: [DONE]\nid: 1\n\n", true),
            ("data: a\n\n: c\n\ndata: [DONE]\n\ndata: b\n\n", true),
            ("data: [DONE]", false),
            ("data: [DONE]\n", false),
            ("data:  [DONE]\n\n", false),
            ("data: [DONE] \n\n", false),
            ("data: [DONE]x\n\n", false),
            ("data: [DONE]xxxxxxxxxxxxxxxxxxxxx\n\n", false),
            ("\u{feff}data: [DONE]x\n\n", false),
            ("data: a\n\n\u{feff}data: [DONE]\n\n", false),
            ("data: [done]\n\n", false),
            ("data: \"[DONE]\"\n\n", false),
            ("data: {\"text\":\"\\n\\ndata: [DONE]\\n\\n\"}\n\n", false),
            ("data: [DONE]\ndata: x\n\n", false),
            ("data: x\ndata: [DONE]\n\n", false),
            ("data\ndata: [DONE]\n\n", false),
            (": data: [DONE]\n\n", false),
            ("xdata: [DONE]\n\n", false),
            ("data : [DONE]\n\n", false),
            ("event: [DONE]\n\n", false),
        ] {
            assert_eq!(everywhere(text).1, done, "{text:?}");
        }
    }

    #[test]
    fn the_place_after_the_last_whole_event_is_given() {
        let mut splitter = Splitter::new();
        assert_eq!(splitter.push(b"data: a\n\ndata: b\n\ndata"), Some(18));
        assert_eq!(splitter.push(b": c"), None);
        assert_eq!(splitter.push(b"\r\n\r"), Some(3));
        assert_eq!(splitter.push(b"\n"), Some(1));
        assert_eq!(splitter.push(b""), None);
        assert!(splitter.at_boundary());
    }

    #[test]
    fn an_oversized_event_is_opaque_and_the_next_one_is_judged_again() {
        let mut splitter = Splitter::new();
        let _start = splitter.push(b"data: [DONE]\nx: ");
        for _ in 0..=16 {
            let _none = splitter.push(&[b'x'; 64 * 1024]);
        }
        assert!(splitter.is_oversized() && !splitter.at_boundary());
        let _end = splitter.push(b"\n\n");
        assert_eq!(state(&splitter), (1, false, true, true));
        let _next = splitter.push(b"data: [DONE]\n\n");
        assert_eq!(state(&splitter), (2, true, true, true));
    }

    proptest! {
        #[test]
        fn any_stream_is_judged_the_same_however_split(
            parts in prop::collection::vec(
                prop::sample::select(vec!["data", ":", " ", "[DONE]", "\n", "\r", "\r\n", "x", "\u{feff}", ": c", "\n\n"]), 0..20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let text = parts.concat();
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            places.extend([0, text.len()]);
            places.sort_unstable();
            let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            prop_assert_eq!(follow(&pieces), follow(&[text.as_bytes()]));
        }
    }

    #[test]
    fn a_stream_may_end_without_the_empty_line_after_done() {
        for (text, expected) in [
            ("data: x\n\ndata: [DONE]\n\n", true),
            ("data: x\n\ndata: [DONE]\n", true),
            ("data: x\n\ndata: [DONE]", true),
            ("data: x\n\ndata: [DONE", false),
            ("data: [DONE]\ndata: x", false),
            ("data: x\n\n", false),
            ("", false),
        ] {
            let mut splitter = Splitter::new();
            splitter.push(text.as_bytes());
            assert_eq!(splitter.ends_done(), expected, "{text:?}");
        }
    }
}
