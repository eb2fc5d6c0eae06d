//! What routing needs of a request body, found without rebuilding it.
//!
//! The whole body is checked to be one JSON object (RFC 8259, depth at most 128); of its members only `model`, `stream` and
//! the token limits are looked at, and their places are noted so that [`super::policy`] can replace them while every other
//! byte stays as the client sent it.
//!
//! The scanner takes the body in whatever parts its owner likes, so that a body of many megabytes delays nobody, and keeps
//! nothing of it but those members. Text that it does not look at is not checked to be UTF-8.

use std::{borrow::Cow, ops::Range};

/// Deepest nesting of arrays and objects that is passed on. Our own scanner would not mind more, a provider may.
const DEPTH_MAX: u32 = 128;
/// Longest key, as it stands in the body, that can mean one of our members: the longest name with every letter escaped, and
/// its quotes. One that was missed would be written a second time by [`super::policy`].
const KEY_BYTES_MAX: usize = 2 + "\\u0074".len() * "thinking_budget_tokens".len();
/// Longest model name as it stands in the body, quotes included.
const MODEL_BYTES_MAX: usize = 4096;

/// Facts of a request of any surface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatScan {
    /// The model the client names.
    pub model: String,
    /// Whether it wants a stream.
    pub stream: bool,
    /// Where the model's JSON string stands in the body, quotes included.
    pub model_span: Range<usize>,
    /// Where the first member begins: behind the opening brace.
    pub members_at: usize,
    /// The token limits that it names.
    pub limits: Limits,
    /// What it wants of a stream beside its content.
    pub stream_options: StreamOptions,
}

/// The member `stream_options` of a request, as far as it asks for the usage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StreamOptions {
    /// It is not there.
    #[default]
    Absent,
    /// An object.
    Object {
        /// Where its first member begins: behind the opening brace.
        members_at: usize,
        /// Whether it has none.
        is_empty: bool,
        /// Its member `include_usage`.
        include_usage: Option<Switch>,
    },
    /// `null`, which stands here.
    Null(Range<usize>),
    /// Anything else; what it means is up to the provider.
    Other,
}

/// A value that is to be `true` or `false`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Switch {
    /// `true`.
    On,
    /// `false` or `null`, which stands here.
    Off(Range<usize>),
    /// Anything else.
    Other,
}

/// Token limits of a request, each as it stands in the body; `None` = it does not stand there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `max_tokens`
    pub max_tokens: Option<Limit>,
    /// `max_completion_tokens`
    pub max_completion_tokens: Option<Limit>,
    /// `max_output_tokens`, as responses call it.
    pub max_output_tokens: Option<Limit>,
    /// `thinking_token_budget`, as vLLM calls it.
    pub thinking_token_budget: Option<Limit>,
    /// `thinking_budget_tokens`, as llama.cpp calls it.
    pub thinking_budget_tokens: Option<Limit>,
}

impl Limits {
    /// The limit of this name; `None` also for a name that is none of them.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Limit> {
        match name {
            "max_tokens" => self.max_tokens.as_ref(),
            "max_completion_tokens" => self.max_completion_tokens.as_ref(),
            "max_output_tokens" => self.max_output_tokens.as_ref(),
            "thinking_token_budget" => self.thinking_token_budget.as_ref(),
            "thinking_budget_tokens" => self.thinking_budget_tokens.as_ref(),
            _ => None,
        }
    }

    fn place(&mut self, member: Member) -> Option<&mut Option<Limit>> {
        Some(match member {
            Member::Model | Member::Stream | Member::StreamOptions => return None,
            Member::MaxTokens => &mut self.max_tokens,
            Member::MaxCompletionTokens => &mut self.max_completion_tokens,
            Member::MaxOutputTokens => &mut self.max_output_tokens,
            Member::ThinkingTokenBudget => &mut self.thinking_token_budget,
            Member::ThinkingBudgetTokens => &mut self.thinking_budget_tokens,
        })
    }
}

/// One token limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Where its value stands in the body.
    pub span: Range<usize>,
    /// What it is.
    pub amount: Amount,
}

/// The value of a token limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// `null`: none is named.
    Null,
    /// So many tokens.
    Tokens(u64),
    /// Anything else; what it means is up to the provider.
    Other,
}

/// Why a body is refused, for the 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// Not JSON.
    #[error("the body is not valid JSON: {0}")]
    Syntax(String),
    /// A member is missing.
    #[error("`{param}` is missing")]
    Missing {
        /// Its name.
        param: &'static str,
    },
    /// A member is of the wrong type.
    #[error("{message}")]
    Member {
        /// Its name.
        param: &'static str,
        /// What was expected.
        message: &'static str,
    },
}

/// What comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The object.
    #[default]
    Start,
    /// A value.
    Value,
    /// A value or the end of an array.
    FirstItem,
    /// A key or the end of an object.
    FirstKey,
    Key,
    Colon,
    /// A comma or the end of what is open.
    After,
    /// The rest of a string.
    Text,
    Escape,
    /// So many hexadecimal digits.
    Hex(u8),
    Number(Number),
    /// The rest of `true`, `false` or `null`.
    Literal(&'static [u8]),
    /// Nothing but blanks.
    End,
}

/// Place in a number, by what came last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Digit,
    Dot,
    Fraction,
    E,
    ESign,
    Exponent,
}

impl Number {
    /// The place after another byte; `None` when the number cannot go on with it.
    fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus, b'1'..=b'9') | (Self::Digit, b'0'..=b'9') => Self::Digit,
            (Self::Zero | Self::Digit, b'.') => Self::Dot,
            (Self::Dot | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Digit | Self::Fraction, b'e' | b'E') => Self::E,
            (Self::E, b'+' | b'-') => Self::ESign,
            (Self::E | Self::ESign | Self::Exponent, b'0'..=b'9') => Self::Exponent,
            _ => return None,
        })
    }

    fn may_end(self) -> bool {
        matches!(self, Self::Zero | Self::Digit | Self::Fraction | Self::Exponent)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Model,
    Stream,
    StreamOptions,
    MaxTokens,
    MaxCompletionTokens,
    MaxOutputTokens,
    ThinkingTokenBudget,
    ThinkingBudgetTokens,
}

impl Member {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "model" => Self::Model,
            "stream" => Self::Stream,
            "stream_options" => Self::StreamOptions,
            "max_tokens" => Self::MaxTokens,
            "max_completion_tokens" => Self::MaxCompletionTokens,
            "max_output_tokens" => Self::MaxOutputTokens,
            "thinking_token_budget" => Self::ThinkingTokenBudget,
            "thinking_budget_tokens" => Self::ThinkingBudgetTokens,
            _ => return None,
        })
    }
}

/// Value of one of our members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Null,
    Bool(bool),
    Text,
    Other,
}

/// Reads a body part by part.
#[derive(Debug, Default)]
pub struct Scanner {
    state: State,
    depth: u32,
    /// Which of the open containers are objects, the innermost in the lowest bit.
    objects: u128,
    /// Bytes taken.
    offset: usize,
    /// The string being read is a key.
    in_key: bool,
    /// Of which of our members this is the value.
    member: Option<Member>,
    /// The string being read is kept in `text`: a key at the top level, or the model.
    keeps: bool,
    text: Vec<u8>,
    model: Option<Found>,
    model_text: Vec<u8>,
    model_span: Range<usize>,
    stream: Option<Found>,
    members_at: usize,
    limits: Limits,
    /// Digits of a limit while it is read; `None` when it is no whole number that fits.
    digits: Option<u64>,
    stream_options: Option<StreamOptions>,
    /// The value being read is that of `stream_options.include_usage`.
    is_include_usage: bool,
}

impl Scanner {
    /// Takes the next part.
    ///
    /// # Errors
    /// The body is not JSON, or has one of our members twice.
    pub fn push(&mut self, part: &[u8]) -> Result<(), ScanError> {
        let mut rest = part;
        while let Some((byte, after)) = rest.split_first() {
            if self.state == State::Text {
                let used = self.take_text(rest)?;
                rest = rest.get(used..).unwrap_or_default();
            } else if self.step(*byte)? {
                self.offset += 1;
                rest = after;
            }
        }
        Ok(())
    }

    /// The body is over.
    ///
    /// # Errors
    /// It is cut, or `model` is missing or not a non-empty string, or `stream` is not a boolean.
    pub fn finish(self) -> Result<ChatScan, ScanError> {
        if self.state != State::End {
            return Err(ScanError::Syntax("it is empty, or ends before its JSON does".to_owned()));
        }
        let wrong = |param, message| ScanError::Member { param, message };
        match self.model {
            None | Some(Found::Null) => return Err(ScanError::Missing { param: "model" }),
            Some(Found::Text) => {}
            Some(Found::Bool(_) | Found::Other) => return Err(wrong("model", "model must be a string")),
        }
        if self.model_text.len() > MODEL_BYTES_MAX {
            return Err(wrong("model", "model must have at most 4096 bytes"));
        }
        let model: String =
            serde_json::from_slice(&self.model_text).map_err(|_| wrong("model", "model must be a string"))?;
        if model.is_empty() {
            return Err(wrong("model", "model must not be empty"));
        }
        let stream = match self.stream {
            None | Some(Found::Null) => false,
            Some(Found::Bool(stream)) => stream,
            Some(Found::Text | Found::Other) => return Err(wrong("stream", "stream must be a boolean")),
        };
        let Self { model_span, members_at, limits, stream_options, .. } = self;
        let stream_options = stream_options.unwrap_or_default();
        Ok(ChatScan { model, stream, model_span, members_at, limits, stream_options })
    }

    fn syntax(&self, what: &str) -> ScanError {
        ScanError::Syntax(format!("{what} at byte {}", self.offset))
    }

    /// Takes one byte outside of plain text. `false` = it belongs to what comes after a number: again.
    fn step(&mut self, byte: u8) -> Result<bool, ScanError> {
        let is_blank = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match self.state {
            State::Escape | State::Hex(_) => self.escape(byte)?,
            State::Number(number) => match number.next(byte) {
                Some(next) => {
                    self.state = State::Number(next);
                    self.digit(next, byte);
                }
                None if number.may_end() => {
                    self.end_limit();
                    self.value_ends();
                    return Ok(false);
                }
                None => return Err(self.syntax("invalid number")),
            },
            State::Literal([next, rest @ ..]) if *next == byte => {
                self.state = State::Literal(rest);
                if rest.is_empty() {
                    self.value_ends();
                }
            }
            State::Literal(_) => return Err(self.syntax("unknown word")),
            _ if is_blank => {}
            State::Start if byte == b'{' => {
                self.members_at = self.offset + 1;
                self.open(true)?;
            }
            State::Start => return Err(self.syntax("expected an object")),
            State::FirstItem if byte == b']' => self.close(),
            State::Value | State::FirstItem => self.begin_value(byte)?,
            State::FirstKey if byte == b'}' => self.close(),
            State::FirstKey | State::Key if byte == b'"' => {
                self.begin_text(true, self.depth == 1 || self.is_in_stream_options());
            }
            State::FirstKey | State::Key => return Err(self.syntax("expected a key")),
            State::Colon if byte == b':' => self.state = State::Value,
            State::Colon => return Err(self.syntax("expected a colon")),
            State::After => match (byte, self.in_object()) {
                (b',', true) => self.state = State::Key,
                (b',', false) => self.state = State::Value,
                (b'}', true) | (b']', false) => self.close(),
                _ => return Err(self.syntax("expected a comma or an end")),
            },
            State::End => return Err(self.syntax("something follows the object")),
            // `push` takes plain text in larger steps.
            State::Text => {}
        }
        Ok(true)
    }

    fn in_object(&self) -> bool {
        self.objects & 1 == 1
    }

    /// Whether the innermost open container is the value of `stream_options`.
    fn is_in_stream_options(&self) -> bool {
        self.depth == 2 && self.member == Some(Member::StreamOptions)
    }

    fn open(&mut self, object: bool) -> Result<(), ScanError> {
        if self.depth == DEPTH_MAX {
            return Err(ScanError::Syntax(format!("it nests deeper than {DEPTH_MAX} levels")));
        }
        self.depth += 1;
        self.objects = self.objects << 1 | u128::from(object);
        self.state = if object { State::FirstKey } else { State::FirstItem };
        Ok(())
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.objects >>= 1;
        self.value_ends();
    }

    fn value_ends(&mut self) {
        if self.depth == 1 {
            self.member = None;
        }
        self.state = if self.depth == 0 { State::End } else { State::After };
    }

    fn begin_value(&mut self, byte: u8) -> Result<(), ScanError> {
        if self.depth == 1
            && let Some(member) = self.member
        {
            let found = match byte {
                b'"' => Found::Text,
                b't' | b'f' => Found::Bool(byte == b't'),
                b'n' => Found::Null,
                _ => Found::Other,
            };
            match member {
                Member::Model => self.model = Some(found),
                Member::Stream => self.stream = Some(found),
                Member::StreamOptions => self.begin_stream_options(byte),
                limit => self.begin_limit(limit, byte),
            }
        }
        if std::mem::take(&mut self.is_include_usage) {
            self.begin_include_usage(byte);
        }
        match byte {
            b'{' | b'[' => return self.open(byte == b'{'),
            b'"' => {
                let is_model = self.depth == 1 && self.member == Some(Member::Model);
                if is_model {
                    self.model_span.start = self.offset;
                }
                self.begin_text(false, is_model);
            }
            b'-' => self.state = State::Number(Number::Minus),
            b'0' => self.state = State::Number(Number::Zero),
            b'1'..=b'9' => self.state = State::Number(Number::Digit),
            b't' => self.state = State::Literal(b"rue"),
            b'f' => self.state = State::Literal(b"alse"),
            b'n' => self.state = State::Literal(b"ull"),
            _ => return Err(self.syntax("expected a value")),
        }
        Ok(())
    }

    fn begin_stream_options(&mut self, byte: u8) {
        self.stream_options = Some(match byte {
            b'{' => {
                StreamOptions::Object { members_at: self.offset + 1, is_empty: true, include_usage: None }
            }
            b'n' => StreamOptions::Null(self.offset..self.offset + b"null".len()),
            _ => StreamOptions::Other,
        });
    }

    fn begin_include_usage(&mut self, byte: u8) {
        let word = |length: usize| self.offset..self.offset + length;
        let switch = match byte {
            b't' => Switch::On,
            b'f' => Switch::Off(word(b"false".len())),
            b'n' => Switch::Off(word(b"null".len())),
            _ => Switch::Other,
        };
        if let Some(StreamOptions::Object { include_usage, .. }) = &mut self.stream_options {
            *include_usage = Some(switch);
        }
    }

    /// Behind a key of `stream_options`.
    fn end_option_key(&mut self, keeps: bool) -> Result<(), ScanError> {
        let is_it = keeps && self.text.len() <= KEY_BYTES_MAX && self.key()? == "include_usage";
        if let Some(StreamOptions::Object { is_empty, include_usage, .. }) = &mut self.stream_options {
            *is_empty = false;
            if is_it && include_usage.is_some() {
                return Err(ScanError::Syntax("`stream_options.include_usage` is there twice".to_owned()));
            }
            self.is_include_usage = is_it;
        }
        Ok(())
    }

    /// Notes where a token limit begins. Its end is known at once unless it is a number.
    fn begin_limit(&mut self, member: Member, byte: u8) {
        let start = self.offset;
        let amount = if byte == b'n' { Amount::Null } else { Amount::Other };
        let end = if byte == b'n' { start + b"null".len() } else { start };
        self.digits = byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
        if let Some(place) = self.limits.place(member) {
            *place = Some(Limit { span: start..end, amount });
        }
    }

    fn digit(&mut self, place: Number, byte: u8) {
        self.digits = match (place, self.digits) {
            (Number::Digit, Some(digits)) => {
                digits.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(byte - b'0')))
            }
            _ => None,
        };
    }

    /// Behind the last byte of a number.
    fn end_limit(&mut self) {
        let Some(member) = self.member.filter(|_| self.depth == 1) else { return };
        let (end, digits) = (self.offset, self.digits);
        if let Some(Some(limit)) = self.limits.place(member) {
            limit.span.end = end;
            limit.amount = digits.map_or(Amount::Other, Amount::Tokens);
        }
    }

    fn begin_text(&mut self, is_key: bool, keeps: bool) {
        self.state = State::Text;
        self.in_key = is_key;
        self.keeps = keeps;
        self.text.clear();
        self.keep(b"\"");
    }

    /// Notes a part of a string that is looked at later. One over its bound stays over it, which is all that matters then.
    fn keep(&mut self, part: &[u8]) {
        if !self.keeps {
            return;
        }
        let room = (MODEL_BYTES_MAX + 1).saturating_sub(self.text.len());
        self.text.extend_from_slice(part.get(..room).unwrap_or(part));
    }

    /// Takes plain text up to an escape, the string's end or the end of `rest`; gives how many bytes.
    fn take_text(&mut self, rest: &[u8]) -> Result<usize, ScanError> {
        let stop = memchr::memchr2(b'"', b'\\', rest);
        let (plain, stopped) = rest.split_at_checked(stop.unwrap_or(rest.len())).unwrap_or((rest, &[]));
        // Without an early way out, so that it is done many bytes at a time.
        if plain.iter().fold(false, |found, byte| found | (*byte < 0x20)) {
            self.offset += plain.iter().position(|byte| *byte < 0x20).unwrap_or_default();
            return Err(self.syntax("a control character stands in a string"));
        }
        self.keep(plain);
        self.offset += plain.len();
        let Some(mark) = stopped.first() else { return Ok(plain.len()) };
        self.keep(&[*mark]);
        self.offset += 1;
        if *mark == b'\\' {
            self.state = State::Escape;
        } else {
            self.end_text()?;
        }
        Ok(plain.len() + 1)
    }

    fn escape(&mut self, byte: u8) -> Result<(), ScanError> {
        self.state = match (self.state, byte) {
            (State::Escape, b'u') => State::Hex(4),
            (State::Escape, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => State::Text,
            (State::Hex(1), _) if byte.is_ascii_hexdigit() => State::Text,
            (State::Hex(left), _) if byte.is_ascii_hexdigit() => State::Hex(left - 1),
            _ => return Err(self.syntax("invalid escape")),
        };
        self.keep(&[byte]);
        Ok(())
    }

    /// Behind a string's closing quote.
    fn end_text(&mut self) -> Result<(), ScanError> {
        let keeps = std::mem::take(&mut self.keeps);
        if !self.in_key {
            if keeps {
                self.model_span.end = self.offset;
                self.model_text = std::mem::take(&mut self.text);
            }
            self.value_ends();
            return Ok(());
        }
        self.state = State::Colon;
        if self.is_in_stream_options() {
            return self.end_option_key(keeps);
        }
        if !keeps || self.text.len() > KEY_BYTES_MAX {
            return Ok(());
        }
        let name = self.key()?;
        let Some(member) = Member::of(&name) else { return Ok(()) };
        let before = match member {
            Member::Model => self.model.is_some(),
            Member::Stream => self.stream.is_some(),
            Member::StreamOptions => self.stream_options.is_some(),
            _ => self.limits.get(&name).is_some(),
        };
        if before {
            return Err(ScanError::Syntax(format!("`{name}` is there twice")));
        }
        self.member = Some(member);
        Ok(())
    }

    /// The key that was kept, without its quotes and escapes.
    fn key(&self) -> Result<Cow<'_, str>, ScanError> {
        // Nearly all of them stand there as they are meant.
        if let [b'"', plain @ .., b'"'] = self.text.as_slice()
            && plain.is_ascii()
            && !plain.contains(&b'\\')
            && let Ok(plain) = str::from_utf8(plain)
        {
            return Ok(plain.into());
        }
        serde_json::from_slice::<String>(&self.text).map(Cow::Owned).map_err(|_| self.syntax("invalid key"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Scans `body` in parts of `size` bytes.
    fn in_parts(body: &[u8], size: usize) -> Result<ChatScan, ScanError> {
        let mut scanner = Scanner::default();
        body.chunks(size).try_for_each(|part| scanner.push(part))?;
        scanner.finish()
    }

    fn chat(body: &[u8]) -> Result<ChatScan, ScanError> {
        let whole = in_parts(body, body.len().max(1));
        for size in [1, 2, 3, 7] {
            assert_eq!(in_parts(body, size), whole, "{}", String::from_utf8_lossy(body));
        }
        whole
    }

    #[test]
    fn bad_bodies_are_refused_with_the_member_that_is_wrong() {
        let param = |body: &str| match chat(body.as_bytes()) {
            Err(ScanError::Member { param, .. } | ScanError::Missing { param }) => param,
            Err(ScanError::Syntax(_)) => "syntax",
            Ok(_) => "ok",
        };
        for (body, expected) in [
            ("", "syntax"),
            ("[]", "syntax"),
            ("{\"model\":\"m\"} x", "syntax"),
            ("{\"model\":\"m\",\"model\":\"n\"}", "syntax"),
            ("{\"model\":\"m\",}", "syntax"),
            ("{}", "model"),
            ("{\"model\":7}", "model"),
            ("{\"model\":\"\"}", "model"),
            ("{\"model\":\"m\",\"stream\":1}", "stream"),
            ("{\"model\":\"m\",\"stream\":null}", "ok"),
            ("{\"model\":\"m\",\"stream\":false,\"x\":{\"model\":1}}", "ok"),
        ] {
            assert_eq!(param(body), expected, "{body}");
        }
        let nested = |levels: usize| {
            format!("{{\"model\":\"m\",\"x\":{}\"]]\\\"[\"{}}}", "[".repeat(levels), "]".repeat(levels))
        };
        assert_eq!((param(&nested(127)), param(&nested(128))), ("ok", "syntax"));
        let deep = format!("{{\"model\":\"m\",\"x\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(param(&deep), "syntax");
    }

    /// What serde_json takes for one JSON object, and nothing else.
    #[test]
    fn the_scanner_takes_what_another_parser_takes() {
        let values = [
            "1",
            "-1",
            "0",
            "-0",
            "01",
            "-",
            "1.",
            "1.5",
            ".5",
            "1e5",
            "1E+5",
            "1e-",
            "1e",
            "1.5e05",
            "+1",
            "0x1",
            "1 2",
            "true",
            "tru",
            "truex",
            "false",
            "null",
            "nul",
            "None",
            "\"\"",
            "\"a",
            "\"\\n\"",
            "\"\\x\"",
            "\"\\u12aF\"",
            "\"\\u12g4\"",
            "\"\\ud800\"",
            "\"\u{1}\"",
            "\"\n\"",
            "\"\u{7f}\"",
            "\"\\\"\"",
            "\"\\\\\"",
            "\"é你\"",
            "[]",
            "[1,2]",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[",
            "]",
            "[[]]",
            "[}",
            "{}",
            "{\"a\":1}",
            "{\"a\":}",
            "{\"a\"}",
            "{a:1}",
            "{\"a\":1,}",
            "{,}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":1,\"b\":[{\"c\":{}}]}",
            "{]",
            "",
            " ",
            "\u{feff}1",
            "1//x",
            "\u{c}1",
            "\t\r\n 1 \n",
            "'a'",
            "nan",
            "[\"]\"]",
        ];
        for value in values {
            for body in [
                format!("{{\"model\":\"m\",\"x\":{value}}}"),
                format!("{{\"x\":{value},\"model\":\"m\"}}"),
                format!("{{\"model\":\"m\",{value}}}"),
                format!("{{\"model\":\"m\"}}{value}"),
                value.to_owned(),
            ] {
                let expected = serde_json::from_str::<HashMap<String, serde::de::IgnoredAny>>(&body).is_ok();
                let ours = !matches!(chat(body.as_bytes()), Err(ScanError::Syntax(_)));
                assert_eq!(ours, expected, "{body:?}");
            }
        }
    }

    /// Found by the fuzz target `rewrite`: the place was that of the text's beginning in its part.
    #[test]
    fn a_control_character_is_told_by_its_place_however_the_body_came() {
        let body = b"{\"model\":\"m\",\"x\":\"abcdef\x08g\"}";
        for size in 1..=body.len() {
            let error = in_parts(body, size).unwrap_err();
            assert_eq!(
                error,
                ScanError::Syntax("a control character stands in a string at byte 24".to_owned()),
                "{size}"
            );
        }
    }

    #[test]
    fn a_member_is_known_in_whatever_way_its_name_is_written() {
        let escaped = "{\"\\u006d\\u006F\\u0064\\u0065\\u006c\":\"m\",\"\\u0073tream\":true}";
        let scan = chat(escaped.as_bytes()).unwrap();
        assert_eq!((scan.model.as_str(), scan.stream), ("m", true));
        let twice = "{\"model\":\"m\",\"\\u006dodel\":\"n\"}";
        assert!(matches!(chat(twice.as_bytes()), Err(ScanError::Syntax(_))));
        // Every name, with every letter escaped.
        for name in [
            "max_tokens",
            "max_completion_tokens",
            "max_output_tokens",
            "thinking_token_budget",
            "thinking_budget_tokens",
            "stream",
        ] {
            let letters: String = name.bytes().map(|letter| format!("\\u{letter:04X}")).collect();
            let twice = format!("{{\"model\":\"m\",\"{name}\":null,\"{letters}\":null}}");
            assert!(matches!(chat(twice.as_bytes()), Err(ScanError::Syntax(_))), "{name}");
            if name != "stream" {
                let once = format!("{{\"model\":\"m\",\"{letters}\":7}}");
                let limits = chat(once.as_bytes()).unwrap().limits;
                assert_eq!(limits.get(name).map(|limit| limit.amount), Some(Amount::Tokens(7)), "{name}");
            }
        }
        // Deeper ones and long ones are others.
        let long = "model".repeat(100);
        let other = format!("{{\"{long}\":1,\"x\":{{\"model\":\"n\",\"stream\":7}},\"model\":\"m\"}}");
        assert_eq!(chat(other.as_bytes()).unwrap().model, "m");
    }

    #[test]
    fn token_limits_are_found_where_they_stand() {
        let text = "{ \"max_tokens\" : 128,\"x\":{\"max_tokens\":1},\"max_completion_tokens\":null,\"model\":\"m\",\"thinking_token_budget\":7}";
        let scan = chat(text.as_bytes()).unwrap();
        let found = |name| {
            let limit: &Limit = scan.limits.get(name).unwrap();
            (&text[limit.span.clone()], limit.amount)
        };
        assert_eq!(found("max_tokens"), ("128", Amount::Tokens(128)));
        assert_eq!(found("max_completion_tokens"), ("null", Amount::Null));
        assert_eq!(found("thinking_token_budget"), ("7", Amount::Tokens(7)));
        assert_eq!((scan.limits.get("thinking_budget_tokens"), scan.members_at), (None, 1));
        for (value, expected) in [
            ("0", Amount::Tokens(0)),
            ("18446744073709551615", Amount::Tokens(u64::MAX)),
            ("18446744073709551616", Amount::Other),
            ("1.0", Amount::Other),
            ("1e3", Amount::Other),
            ("-1", Amount::Other),
            ("\"100\"", Amount::Other),
            ("true", Amount::Other),
            ("[1]", Amount::Other),
            ("{\"a\":1}", Amount::Other),
        ] {
            for body in [
                format!("{{\"max_tokens\":{value},\"model\":\"m\"}}"),
                format!("{{\"model\":\"m\",\"max_tokens\":{value}}}"),
                format!("{{\"model\":\"m\",\"max_tokens\": {value} }}"),
            ] {
                let limit = chat(body.as_bytes()).unwrap().limits.max_tokens.unwrap();
                assert_eq!(limit.amount, expected, "{body}");
                if let Amount::Tokens(_) = expected {
                    assert_eq!(&body[limit.span], value);
                }
            }
        }
        let twice = "{\"model\":\"m\",\"max_tokens\":1,\"max_tokens\":2}";
        assert!(matches!(chat(twice.as_bytes()), Err(ScanError::Syntax(_))));
    }

    #[test]
    fn what_a_stream_is_to_say_beside_its_content_is_found() {
        let options =
            |rest: &str| chat(format!("{{\"model\":\"m\"{rest}}}").as_bytes()).unwrap().stream_options;
        let object = |members_at, is_empty, include_usage| StreamOptions::Object {
            members_at,
            is_empty,
            include_usage,
        };
        // The value begins at byte 30.
        for (value, expected) in [
            ("{}", object(31, true, None)),
            ("{ }", object(31, true, None)),
            ("{\"x\":{\"include_usage\":true}}", object(31, false, None)),
            ("{\"include_usage\":true}", object(31, false, Some(Switch::On))),
            ("{\"include_usage\" : false }", object(31, false, Some(Switch::Off(49..54)))),
            ("{\"include\\u005fusage\":null}", object(31, false, Some(Switch::Off(52..56)))),
            ("{\"include_usage\":\"true\"}", object(31, false, Some(Switch::Other))),
            ("{\"include_usage\":[true],\"x\":false}", object(31, false, Some(Switch::Other))),
            ("null", StreamOptions::Null(30..34)),
            ("[{\"include_usage\":true}]", StreamOptions::Other),
            ("true", StreamOptions::Other),
        ] {
            assert_eq!(options(&format!(",\"stream_options\":{value}")), expected, "{value}");
        }
        assert_eq!(options(""), StreamOptions::Absent);
        assert_eq!(options(",\"x\":{\"stream_options\":{\"include_usage\":true}}"), StreamOptions::Absent);
        for twice in [
            ",\"stream_options\":{},\"stream_options\":{}",
            ",\"stream_options\":{\"include_usage\":true,\"include_usage\":false}",
        ] {
            assert!(chat(format!("{{\"model\":\"m\"{twice}}}").as_bytes()).is_err(), "{twice}");
        }
    }

    #[test]
    fn a_model_name_has_a_bound_and_nothing_else_of_a_body_is_kept() {
        let named = |bytes: usize| chat(format!("{{\"model\":\"{}\"}}", "m".repeat(bytes)).as_bytes());
        assert_eq!(named(MODEL_BYTES_MAX - 2).unwrap().model.len(), MODEL_BYTES_MAX - 2);
        for bytes in [MODEL_BYTES_MAX - 1, 1_000_000] {
            assert!(matches!(named(bytes), Err(ScanError::Member { param: "model", .. })));
        }
        let mut scanner = Scanner::default();
        for part in ["{\"model\":\"", &"m".repeat(1_000_000), "\",\"", &"k".repeat(1_000_000), "\":\"v\"}"] {
            scanner.push(part.as_bytes()).unwrap();
        }
        assert!(scanner.text.capacity() + scanner.model_text.capacity() < 8 * MODEL_BYTES_MAX);
    }
}
