//! An observer of event streams (WHATWG HTML §9.2): where events end and whether the stream said its last word.
//!
//! It keeps the first bytes of the current line and some counters, copies no events, and says the same however its
//! input is split. It never changes what it looks at.

use memchr::memchr2;

/// Bytes of one event up to which its content is judged; a larger one is opaque and only its end is found.
pub const MAX_EVENT: usize = 1024 * 1024;

/// Enough of a line for a byte order mark, `data: [DONE]` and one byte more.
const DONE_PREFIX: usize = 3 + 12 + 1;
/// Enough of a line for a byte order mark, `data: {"type": "` and the longest name of a last event.
const PREFIX: usize = 3 + 16 + NAME_MAX + 1;
/// Longest name of a last event, in bytes.
const NAME_MAX: usize = 24;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What the last word of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// An event whose data is `[DONE]`.
    Done,
    /// An event with one of these names, of 24 bytes at most: by its `event` field or, where it has none, by the `type` that its data
    /// begins with.
    Events(&'static [&'static str]),
}

/// Follows one event stream.
#[derive(Clone, Debug)]
pub struct Splitter {
    ending: Ending,
    /// How much of a line is looked at.
    looked_at: usize,
    /// The first bytes of the current line.
    prefix: [u8; PREFIX],
    /// Length of the current line so far.
    line: usize,
    /// Bytes of the current event so far, line ends included.
    event: usize,
    /// `data` lines of the current event.
    data_lines: usize,
    /// What came of the event so far makes it the last one.
    is_last: bool,
    /// The event so far has a name.
    is_named: bool,
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
            ending: Ending::Done,
            looked_at: DONE_PREFIX,
            prefix: [0; PREFIX],
            line: 0,
            event: 0,
            data_lines: 0,
            is_last: false,
            is_named: false,
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
    /// At the beginning of a stream that ends by `[DONE]`.
    pub fn new() -> Self {
        Self::default()
    }

    /// At the beginning of a stream that ends so.
    pub fn ending(ending: Ending) -> Self {
        let looked_at = match ending {
            Ending::Done => DONE_PREFIX,
            Ending::Events(_) => PREFIX,
        };
        Self { ending, looked_at, ..Self::default() }
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
        match self.ending {
            Ending::Done => note::<DONE_PREFIX>(&mut self.prefix, self.line, content),
            Ending::Events(_) => note::<PREFIX>(&mut self.prefix, self.line, content),
        }
        self.line = self.line.saturating_add(content.len());
        self.event = self.event.saturating_add(content.len());
        self.oversized |= self.event > MAX_EVENT;
    }

    /// Judges the line that just ended; whether it ended an event.
    fn end_line(&mut self) -> bool {
        let mut line = self.prefix.get(..self.line.min(self.looked_at)).unwrap_or_default();
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
                self.done |= self.is_last && (!opaque || self.ending != Ending::Done);
            }
            self.data_lines = 0;
            self.is_last = false;
            self.is_named = false;
            self.event = 0;
            self.at_boundary = true;
            return true;
        }
        self.at_boundary = false;
        let data = if line == b"data" { Some(&[][..]) } else { value_of(line, b"data:") };
        self.data_lines += usize::from(data.is_some());
        match self.ending {
            Ending::Done => {
                if let Some(data) = data {
                    self.is_last = data == b"[DONE]" && self.data_lines == 1;
                }
            }
            Ending::Events(names) => match data {
                Some(data) if self.data_lines == 1 && !self.is_named => {
                    self.is_last = names.iter().any(|name| is_of_type(data, name));
                }
                Some(_) => {}
                None => {
                    if let Some(named) = value_of(line, b"event:") {
                        self.is_named = true;
                        self.is_last = names.iter().any(|name| name.as_bytes() == named);
                    }
                }
            },
        }
        false
    }

    /// Whether everything so far is whole events, so that the stream may be cut here or something be put in.
    pub fn at_boundary(&self) -> bool {
        self.at_boundary
    }

    /// Whether something of another hand may be put in here. Behind a CR it may not, also where that ends an event: a LF that
    /// belongs to it may be on its way, and behind what was put in it would be an empty line more.
    pub fn may_insert(&self) -> bool {
        self.at_boundary && !self.after_cr
    }

    /// Whether the last event came.
    pub fn saw_end(&self) -> bool {
        self.done
    }

    /// Whether the stream, ending here, has said its last word: also when the empty line after it is missing.
    pub fn ends_well(&self) -> bool {
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

/// Keeps the first `N` bytes of a line, of which `content` comes behind the first `line` bytes. Nearly every line comes in one piece
/// that is longer, and costs a move of known size then.
fn note<const N: usize>(prefix: &mut [u8; PREFIX], line: usize, content: &[u8]) {
    if line == 0
        && let (Some(room), Some(first)) = (prefix.first_chunk_mut::<N>(), content.first_chunk::<N>())
    {
        *room = *first;
    } else if let Some(room) = prefix.get_mut(line.min(N)..N) {
        room.iter_mut().zip(content).for_each(|(to, from)| *to = *from);
    }
}

/// The value of a field that begins like this.
fn value_of<'a>(line: &'a [u8], field: &[u8]) -> Option<&'a [u8]> {
    let value = line.strip_prefix(field)?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

/// Whether a JSON object begins with its `type`, and this is it.
fn is_of_type(data: &[u8], name: &str) -> bool {
    let Some(value) = data.strip_prefix(b"{\"type\":") else { return false };
    let value = value.strip_prefix(b" ").unwrap_or(value);
    let named = value.strip_prefix(b"\"").and_then(|value| value.strip_prefix(name.as_bytes()));
    named.is_some_and(|rest| rest.first() == Some(&b'"'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state(splitter: &Splitter) -> (u64, bool, bool, bool) {
        (splitter.events(), splitter.saw_end(), splitter.at_boundary(), splitter.is_oversized())
    }

    fn follow(pieces: &[&[u8]]) -> (u64, bool, bool, bool) {
        follow_to(Ending::Done, pieces)
    }

    fn follow_to(ending: Ending, pieces: &[&[u8]]) -> (u64, bool, bool, bool) {
        let mut splitter = Splitter::ending(ending);
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
    fn something_may_be_put_in_between_events_and_never_between_cr_and_lf() {
        for (text, expected) in [
            ("", true),
            ("data: a", false),
            ("data: a\n", false),
            ("data: a\n\n", true),
            ("data: a\n\r\n", true),
            ("data: a\r\n\r", false),
            ("data: a\r\n\r\n", true),
            ("data: a\r\r", false),
            (": c\n", false),
            ("data: a\n\nd", false),
        ] {
            let mut splitter = Splitter::new();
            let _boundary = splitter.push(text.as_bytes());
            assert_eq!(splitter.may_insert(), expected, "{text:?}");
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

    const RESPONSES: Ending =
        Ending::Events(&["response.completed", "response.incomplete", "response.failed"]);
    const MESSAGES: Ending = Ending::Events(&["message_stop", "error"]);

    #[test]
    fn a_last_event_is_known_by_its_name_or_else_by_the_type_that_it_begins_with() {
        for (ending, text, ended) in [
            (RESPONSES, "event: response.completed\ndata: {}\n\n", true),
            (RESPONSES, "event:response.failed\r\ndata: {}\r\n\r\n", true),
            (RESPONSES, "data: {}\nevent: response.incomplete\n\n", true),
            (RESPONSES, "data: {\"type\":\"response.completed\",\"response\":{}}\n\n", true),
            (RESPONSES, "data:{\"type\": \"response.incomplete\"}\n\n", true),
            (RESPONSES, "\u{feff}data: {\"type\": \"response.incomplete\"}\n\n", true),
            (RESPONSES, "event: response.completed\ndata: {}\n\ndata: [DONE]\n\n", true),
            (RESPONSES, "event: response.completed\n\n", false),
            (RESPONSES, "event: response.completed\ndata: {}\n", false),
            (RESPONSES, "event: response.completedx\ndata: {}\n\n", false),
            (RESPONSES, "event: response.completed_and_much_more_than_fits\ndata: {}\n\n", false),
            (RESPONSES, "event: response.created\ndata: {\"type\":\"response.completed\"}\n\n", false),
            (
                RESPONSES,
                "data: {\"type\":\"response.output_text.delta\",\"delta\":\"response.completed\"}\n\n",
                false,
            ),
            (RESPONSES, "data: {\"type\":\"response.complete\"}\n\n", false),
            (RESPONSES, "data: {\"type\":\"response.completed\n\n", false),
            (RESPONSES, "data: x\ndata: {\"type\":\"response.completed\"}\n\n", false),
            (RESPONSES, "event: error\ndata: {}\n\n", false),
            (RESPONSES, "data: [DONE]\n\n", false),
            (MESSAGES, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", true),
            (MESSAGES, "event: error\ndata: {\"type\":\"error\"}\n\n", true),
            (MESSAGES, "data: {\"type\":\"message_stop\"}\n\n", true),
            (MESSAGES, "event: message_delta\ndata: {\"type\":\"message_delta\"}\n\n", false),
            (MESSAGES, "event: ping\ndata: {\"type\": \"ping\"}\n\n", false),
            (MESSAGES, ": event: message_stop\ndata: {}\n\n", false),
            (MESSAGES, "data: [DONE]\n\n", false),
        ] {
            let bytes = text.as_bytes();
            let whole = follow_to(ending, &[bytes]);
            assert_eq!(whole.1, ended, "{text:?}");
            for at in 0..=bytes.len() {
                let (left, right) = bytes.split_at(at);
                assert_eq!(follow_to(ending, &[left, right]), whole, "{text:?} at {at}");
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(follow_to(ending, &single), whole, "{text:?}");
        }
    }

    #[test]
    fn a_last_event_may_be_as_long_as_the_whole_answer_and_lack_the_line_behind_it() {
        let mut splitter = Splitter::ending(RESPONSES);
        let _start =
            splitter.push(b"event: response.completed\ndata: {\"type\":\"response.completed\",\"x\":\"");
        for _ in 0..=16 {
            let _none = splitter.push(&[b'x'; 64 * 1024]);
        }
        let _rest = splitter.push(b"\"}");
        assert!(splitter.is_oversized() && !splitter.saw_end() && splitter.ends_well());
        let _end = splitter.push(b"\n\n");
        assert!(splitter.saw_end());
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
            assert_eq!(splitter.ends_well(), expected, "{text:?}");
        }
    }
}
