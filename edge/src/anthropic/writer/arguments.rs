//! Arguments of a call on their way to a client that must be able to parse them, whatever the model wrote.
//!
//! Arguments stream: what is valid so far goes on at once, and nothing that has gone on is called back. Held back is only what may
//! yet turn out to be no JSON: a key up to its value, a number or a word up to its end, an escape, and the last brace.
//!
//! ```text
//!   Start ─{─► FirstKey ─"─► Key ─► Colon ─► Value ─┬─"─► Text … ─┬─► After ─,─► NextKey or Value …
//!                                                   └─► Scalar … ─┘     └─ the last } ─► Done
//!   what cannot be JSON where it stands ─► Broken: all that is open is closed, and the rest is a text under a name of its own
//! ```

/// The member that holds what could not be read of a model's arguments; empty for arguments that were cut off. A client that checks
/// arguments refuses such a call, and shows the model what it wrote.
pub(super) const UNPARSED_KEY: &str = "unparsed_arguments";

/// Deepest nesting: the parsers of clients take this and more.
const DEPTH_MAX: usize = 100;
/// Longest key, number or word, in bytes.
const HELD_BYTES_MAX: usize = 16 * 1024;
/// Brackets that are added where a model forgot them (api.md §7 rule 7).
const FORGOTTEN_MAX: usize = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Start,
    FirstKey,
    NextKey,
    Key,
    KeyEscape,
    Colon,
    FirstItem,
    Value,
    Text,
    Escape,
    /// So many digits of `\uXXXX` are there, and this is their value.
    Hex(u8, u16),
    Scalar,
    After,
    Done,
    Broken,
}

/// What became of a character.
enum Step {
    Taken,
    /// It ended what was before it, and is to be looked at again.
    Again,
    /// It cannot stand here.
    Wrong,
}

/// Follows the arguments of one call.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    state: State,
    /// What is open, outermost first; `true` is an object.
    open: Vec<bool>,
    /// Not passed on yet, as the model wrote it.
    held: String,
    /// The first half of a pair of escapes, which alone stands for no character.
    high: Option<u16>,
    /// The outermost object has a member.
    has_member: bool,
}

impl Arguments {
    /// Goes on by a fragment; appends what can be passed on.
    pub(super) fn push(&mut self, mut text: &str, out: &mut String) {
        while let Some(next) = text.chars().next() {
            if self.state == State::Broken {
                return escape(text, out);
            }
            let plain = if self.state == State::Text { plain_bytes(text) } else { 0 };
            if plain > 0 {
                self.settle(out);
                let (run, rest) = text.split_at(plain);
                out.push_str(run);
                text = rest;
                continue;
            }
            match self.step(next, out) {
                Step::Taken => text = text.split_at(next.len_utf8()).1,
                Step::Again => {}
                Step::Wrong => self.break_off(out),
            }
        }
    }

    /// Appends what is missing of one JSON object. `is_cut` says that the model had no tokens left.
    pub(super) fn finish(mut self, is_cut: bool, out: &mut String) {
        if self.state == State::Scalar && !is_cut && self.has_scalar() {
            self.pass(out);
            self.state = State::After;
        }
        let is_between = matches!(self.state, State::After | State::FirstKey | State::FirstItem);
        match self.state {
            State::Start if !is_cut => out.push_str("{}"),
            State::Done => out.push('}'),
            State::Broken => out.push_str("\"}"),
            _ if is_between && !is_cut && self.open.len() <= FORGOTTEN_MAX => self.close_down_to(0, out),
            _ => {
                self.break_off(out);
                out.push_str("\"}");
            }
        }
    }

    fn step(&mut self, next: char, out: &mut String) -> Step {
        let is_blank = matches!(next, ' ' | '\t' | '\r' | '\n');
        match (self.state, next) {
            (State::Text, _) => self.text(next, out),
            (State::Escape | State::Hex(..), _) => self.escaped(next, out),
            (State::Key | State::KeyEscape, _) => self.key(next),
            (State::Scalar, _) => self.scalar(next, is_blank, out),
            (State::Broken, _) => Step::Wrong,
            _ if is_blank => Step::Taken,
            (State::Start, '{') | (State::FirstItem | State::Value, '{' | '[') => self.opened(next, out),
            (State::FirstKey | State::NextKey, '"') => self.hold(next, State::Key),
            (State::Colon, ':') => self.hold(next, State::Value),
            (State::FirstItem | State::Value, '"') => {
                self.held.push(next);
                self.pass(out);
                self.state = State::Text;
                Step::Taken
            }
            (State::FirstItem | State::Value, '-' | '0'..='9' | 't' | 'f' | 'n') => {
                self.hold(next, State::Scalar)
            }
            (State::FirstKey | State::After, '}') | (State::FirstItem | State::After, ']') => {
                self.closed(next, out)
            }
            (State::After, ',') => {
                let is_object = self.open.last() == Some(&true);
                self.hold(next, if is_object { State::NextKey } else { State::Value })
            }
            // One bracket too many says nothing.
            (State::Done, '}' | ']') => Step::Taken,
            _ => Step::Wrong,
        }
    }

    fn hold(&mut self, next: char, then: State) -> Step {
        if self.held.len() >= HELD_BYTES_MAX {
            return Step::Wrong;
        }
        self.held.push(next);
        self.state = then;
        Step::Taken
    }

    /// Passes on what was held back.
    fn pass(&mut self, out: &mut String) {
        self.has_member |= !self.open.is_empty();
        out.push_str(&self.held);
        self.held.clear();
    }

    fn opened(&mut self, bracket: char, out: &mut String) -> Step {
        if self.open.len() >= DEPTH_MAX {
            return Step::Wrong;
        }
        self.held.push(bracket);
        self.pass(out);
        let is_object = bracket == '{';
        self.open.push(is_object);
        self.state = if is_object { State::FirstKey } else { State::FirstItem };
        Step::Taken
    }

    /// The last brace is held back: a client may take the arguments for whole where it stands.
    fn closed(&mut self, bracket: char, out: &mut String) -> Step {
        if self.open.last() != Some(&(bracket == '}')) {
            return Step::Wrong;
        }
        if self.open.len() == 1 {
            self.state = State::Done;
        } else {
            self.open.pop();
            out.push(bracket);
            self.state = State::After;
        }
        Step::Taken
    }

    /// Keys are as strict as JSON is: what a client takes them for must be what the model meant.
    fn key(&mut self, next: char) -> Step {
        match (self.state, next) {
            (State::KeyEscape, _) => self.hold(next, State::Key),
            (_, '\\') => self.hold(next, State::KeyEscape),
            (_, '"') => {
                self.held.push(next);
                let key = self.held.trim_start_matches(',');
                if serde_json::from_str::<String>(key).is_err() {
                    self.held.pop();
                    return Step::Wrong;
                }
                self.state = State::Colon;
                Step::Taken
            }
            _ => self.hold(next, State::Key),
        }
    }

    fn scalar(&mut self, next: char, is_blank: bool, out: &mut String) -> Step {
        if !is_blank && !matches!(next, ',' | '}' | ']') {
            return self.hold(next, State::Scalar);
        }
        if !self.has_scalar() {
            return Step::Wrong;
        }
        self.pass(out);
        self.state = State::After;
        Step::Again
    }

    /// Whether what is held back ends in a number or word that is one.
    fn has_scalar(&self) -> bool {
        let from = self.held.rfind([':', ',']).map_or(0, |at| at + 1);
        let word = self.held.get(from..).unwrap_or_default();
        serde_json::from_str::<serde_json::Value>(word).is_ok()
    }

    /// A character of a text that is not passed on as it is.
    fn text(&mut self, next: char, out: &mut String) -> Step {
        match next {
            '\\' => self.state = State::Escape,
            '"' => {
                self.settle(out);
                out.push('"');
                self.state = State::After;
            }
            // Models write line ends into texts as they are.
            _ => {
                self.settle(out);
                escape(next.encode_utf8(&mut [0; 4]), out);
            }
        }
        Step::Taken
    }

    fn escaped(&mut self, next: char, out: &mut String) -> Step {
        match (self.state, next) {
            (State::Escape, 'u') => self.state = State::Hex(0, 0),
            (State::Escape, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => {
                self.settle(out);
                out.push('\\');
                out.push(next);
                self.state = State::Text;
            }
            (State::Hex(digits, value), _) => {
                let Some(digit) = next.to_digit(16).and_then(|digit| u16::try_from(digit).ok()) else {
                    return Step::Wrong;
                };
                let value = value << 4 | digit;
                self.state = State::Hex(digits + 1, value);
                if digits == 3 {
                    self.state = State::Text;
                    self.unit(value, out);
                }
            }
            _ => return Step::Wrong,
        }
        Step::Taken
    }

    /// A UTF-16 unit of a text. Half a pair is no character, and parsers differ about it.
    fn unit(&mut self, unit: u16, out: &mut String) {
        let high = self.high.take();
        let units = [high.unwrap_or(unit), unit];
        let units = if high.is_some() { &units[..] } else { &units[1..] };
        if matches!(unit, 0xd800..=0xdbff) {
            if high.is_some() {
                out.push(char::REPLACEMENT_CHARACTER);
            }
            self.high = Some(unit);
            return;
        }
        for unit in char::decode_utf16(units.iter().copied()) {
            escape(unit.unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut [0; 4]), out);
        }
    }

    /// The first half of a pair has no second one.
    fn settle(&mut self, out: &mut String) {
        if self.high.take().is_some() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Closes what has been passed on, and begins the text of what cannot be.
    fn break_off(&mut self, out: &mut String) {
        if matches!(self.state, State::Text | State::Escape | State::Hex(..)) {
            self.settle(out);
            out.push('"');
        }
        if self.open.is_empty() {
            out.push('{');
        } else {
            self.close_down_to(1, out);
        }
        out.push_str(if self.has_member { ",\"" } else { "\"" });
        out.push_str(UNPARSED_KEY);
        out.push_str("\":\"");
        match self.state {
            State::Escape => out.push_str("\\\\"),
            State::Hex(digits, value) => {
                let value = format!("{value:04x}");
                let digits = value.get(4 - usize::from(digits).min(4)..).unwrap_or_default();
                out.push_str("\\\\u");
                out.push_str(digits);
            }
            _ => {}
        }
        escape(&std::mem::take(&mut self.held), out);
        self.state = State::Broken;
    }

    fn close_down_to(&mut self, depth: usize, out: &mut String) {
        for is_object in self.open.drain(depth.min(self.open.len())..).rev() {
            out.push(if is_object { '}' } else { ']' });
        }
    }
}

/// How much of a text can be passed on as it is.
fn plain_bytes(text: &str) -> usize {
    text.bytes().position(|byte| matches!(byte, b'"' | b'\\' | ..=0x1f)).unwrap_or(text.len())
}

/// Appends a text as it stands between quotes.
fn escape(text: &str, out: &mut String) {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    out.push_str(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What a client gets of arguments that come in fragments of so many characters.
    fn passed(text: &str, size: usize, is_cut: bool) -> String {
        let (mut arguments, mut out) = (Arguments::default(), String::new());
        let chars: Vec<char> = text.chars().collect();
        for fragment in chars.chunks(size) {
            arguments.push(&fragment.iter().collect::<String>(), &mut out);
        }
        arguments.finish(is_cut, &mut out);
        out
    }

    /// The same, for every size of fragment.
    fn parsed(text: &str, is_cut: bool) -> Value {
        let whole = passed(text, usize::MAX, is_cut);
        for size in 1..6 {
            assert_eq!(passed(text, size, is_cut), whole, "{text} in fragments of {size}");
        }
        serde_json::from_str(&whole).unwrap_or_else(|error| panic!("{text} gives {whole}: {error}"))
    }

    #[test]
    fn what_is_json_comes_out_as_it_was() {
        for text in [
            "{}",
            " { } \n",
            r#"{"a":1}"#,
            r#"{"a": -1.5e3, "b": [true, false, null, [], {}, ""], "c": {"d": {"e": "f"}}}"#,
            r#"{"é": "😀 \ud83d\ude00 \u00e9 \n \" \\ \/ \u0000", "": ":,", "k\"\\": [1, 2, {"x": [[]]}]}"#,
        ] {
            let expected: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parsed(text, false), expected, "{text}");
        }
    }

    #[test]
    fn what_a_model_meant_without_a_doubt_is_put_right() {
        for (text, expected) in [
            ("", json!({})),
            ("  \n", json!({})),
            ("{\"a\":\"x\ny\tz\"}", json!({"a": "x\ny\tz"})),
            ("{\"a\":1}}", json!({"a": 1})),
            ("{\"a\":1}]}\n", json!({"a": 1})),
            ("{\"a\":1", json!({"a": 1})),
            ("{\"a\":[1", json!({"a": [1]})),
            ("{\"a\":{", json!({"a": {}})),
            ("{\"a\":tru", json!({"unparsed_arguments": "\"a\":tru"})),
            (r#"{"a":"\ud83d"}"#, json!({"a": "\u{fffd}"})),
            (r#"{"a":"\ud83d!\n"}"#, json!({"a": "\u{fffd}!\n"})),
            (r#"{"a":"\ud83d\n\ude00"}"#, json!({"a": "\u{fffd}\n\u{fffd}"})),
            (r#"{"a":"\ud83d\ud83d\ude00"}"#, json!({"a": "\u{fffd}\u{1f600}"})),
            (r#"{"a":"\ud83d\u0041"}"#, json!({"a": "\u{fffd}A"})),
        ] {
            assert_eq!(parsed(text, false), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_stands_under_a_name_of_its_own() {
        for (text, expected) in [
            ("null", json!({"unparsed_arguments": "null"})),
            ("ls -l \"x\"", json!({"unparsed_arguments": "ls -l \"x\""})),
            ("[1]", json!({"unparsed_arguments": "[1]"})),
            ("{'a':1}", json!({"unparsed_arguments": "'a':1}"})),
            ("{\"a\":1,}", json!({"a": 1, "unparsed_arguments": ",}"})),
            ("{\"a\":1 \"b\"}", json!({"a": 1, "unparsed_arguments": "\"b\"}"})),
            ("{\"a\":1}{\"b\":2}", json!({"a": 1, "unparsed_arguments": "{\"b\":2}"})),
            ("{\"a\":[1,{\"b\":2},x]}", json!({"a": [1, {"b": 2}], "unparsed_arguments": ",x]}"})),
            ("{\"a\":[}", json!({"a": [], "unparsed_arguments": "}"})),
            ("{\"a\":01}", json!({"unparsed_arguments": "\"a\":01}"})),
            ("{\"a\":1e999}", json!({"unparsed_arguments": "\"a\":1e999}"})),
            ("{\"a\" 1}", json!({"unparsed_arguments": "\"a\"1}"})),
            (r#"{"a":"b\x41"}"#, json!({"a": "b", "unparsed_arguments": "\\x41\"}"})),
            (r#"{"a":"b\u00g"}"#, json!({"a": "b", "unparsed_arguments": "\\u00g\"}"})),
            (r#"{"\x":1}"#, json!({"unparsed_arguments": "\"\\x\":1}"})),
            ("{\"a\nb\":1}", json!({"unparsed_arguments": "\"a\nb\":1}"})),
            ("{\"a\":\"b", json!({"a": "b", "unparsed_arguments": ""})),
            ("{\"a\":\"b\\", json!({"a": "b", "unparsed_arguments": "\\"})),
            ("{\"a\":[[1", json!({"a": [[1]], "unparsed_arguments": ""})),
            ("{\"a\":[[1]", json!({"a": [[1]]})),
            ("{\"a\":{\"b\":{", json!({"a": {"b": {}}, "unparsed_arguments": ""})),
        ] {
            assert_eq!(parsed(text, false), expected, "{text}");
        }
    }

    #[test]
    fn what_was_cut_is_marked_wherever_the_cut_is() {
        let text = r#"{"a":"x","b":[1,{"c":null}]}"#;
        for end in 0..text.len() {
            let value = parsed(&text[..end], true);
            assert!(value[UNPARSED_KEY].is_string(), "{} gives {value}", &text[..end]);
        }
        assert_eq!(parsed(text, true), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn bounds_hold_for_depth_and_length() {
        let deep = format!("{{\"a\":{}", "[".repeat(1000));
        let value = parsed(&deep, false);
        assert_eq!(value[UNPARSED_KEY].as_str().map(str::len), Some(1000 - DEPTH_MAX + 1));
        let long = format!("{{\"{}", "k".repeat(100_000));
        let (mut arguments, mut out) = (Arguments::default(), String::new());
        arguments.push(&long, &mut out);
        assert!(arguments.held.is_empty() && out.len() > 100_000);
    }

    #[test]
    fn a_text_goes_on_before_it_ends() {
        let (mut arguments, mut out) = (Arguments::default(), String::new());
        arguments.push("{\"content\": \"fn ma", &mut out);
        assert_eq!(out, "{\"content\":\"fn ma");
        out.clear();
        arguments.push("in() {", &mut out);
        assert_eq!(out, "in() {");
    }
}
