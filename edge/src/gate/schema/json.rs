//! Whether a text can still become one JSON value (RFC 8259), byte by byte.
//!
//! It holds no text: what the value says is read when it is whole. It is stricter than a reader that looks for the JSON in an
//! answer: a word before it, a fence around it, a comma too many, a second value after it are told at the byte that is wrong.

/// Deepest nesting of arrays and objects that is judged: what serde_json builds a value of.
pub(super) const DEPTH_MAX: u32 = 127;

/// Why a text is no JSON any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// What would have been needed.
    Expected(&'static str),
    /// It nests deeper than [`DEPTH_MAX`].
    TooDeep,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// A value.
    #[default]
    Value,
    /// A value or the end of an array.
    FirstItem,
    /// A key or the end of an object.
    FirstKey,
    Key,
    Colon,
    /// A comma or the end of what is open.
    After,
    Text {
        is_key: bool,
    },
    Escape {
        is_key: bool,
    },
    /// So many hexadecimal digits.
    Hex {
        is_key: bool,
        left: u8,
    },
    Number(Number),
    /// The rest of `true`, `false` or `null`.
    Word(&'static [u8]),
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

/// Reads a text that is to be one JSON value. Once it has told what is wrong, it is done with.
#[derive(Debug)]
pub(super) struct Json {
    state: State,
    depth: u32,
    /// Which of the open containers are objects, the innermost in the lowest bit.
    objects: u128,
    /// The whole is to be an object.
    is_object: bool,
}

impl Json {
    /// Any value, or with `is_object` an object.
    pub(super) const fn new(is_object: bool) -> Self {
        Self { state: State::Value, depth: 0, objects: 0, is_object }
    }

    /// Takes the next part.
    pub(super) fn push(&mut self, part: &str) -> Result<(), Broken> {
        let mut rest = part.as_bytes();
        while let Some((byte, after)) = rest.split_first() {
            if let State::Text { .. } = self.state {
                // Nothing ends a string but these, and most of an answer is strings.
                let plain = rest.iter().position(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\'));
                if let Some(stopped) =
                    rest.get(plain.unwrap_or(rest.len())..).filter(|it| it.len() < rest.len())
                {
                    rest = stopped;
                    continue;
                }
            }
            if self.step(*byte)? {
                rest = after;
            }
        }
        Ok(())
    }

    /// Whether the text may end here.
    pub(super) fn is_whole(&self) -> bool {
        match self.state {
            State::End => true,
            State::Number(number) => self.depth == 0 && number.may_end(),
            _ => false,
        }
    }

    /// Takes one byte. `false` = it belongs to what comes after a number: again.
    fn step(&mut self, byte: u8) -> Result<bool, Broken> {
        let expected = |what| Err(Broken::Expected(what));
        let is_blank = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match self.state {
            State::Text { is_key } => match byte {
                b'"' if is_key => self.state = State::Colon,
                b'"' => self.value_ends(),
                b'\\' => self.state = State::Escape { is_key },
                ..0x20 => return expected("no control character in a string"),
                _ => {}
            },
            State::Escape { is_key } => match byte {
                b'u' => self.state = State::Hex { is_key, left: 4 },
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.state = State::Text { is_key },
                _ => return expected("an escape that JSON knows"),
            },
            State::Hex { is_key, left } => match (byte.is_ascii_hexdigit(), left) {
                (true, ..=1) => self.state = State::Text { is_key },
                (true, _) => self.state = State::Hex { is_key, left: left - 1 },
                _ => return expected("four hexadecimal digits"),
            },
            State::Number(number) => match number.next(byte) {
                Some(next) => self.state = State::Number(next),
                None if number.may_end() => {
                    self.value_ends();
                    return Ok(false);
                }
                None => return expected("a number"),
            },
            State::Word([next, rest @ ..]) if *next == byte => {
                self.state = State::Word(rest);
                if rest.is_empty() {
                    self.value_ends();
                }
            }
            State::Word(_) => return expected("true, false or null"),
            _ if is_blank => {}
            State::FirstItem if byte == b']' => self.close(),
            State::Value | State::FirstItem => self.begin(byte)?,
            State::FirstKey if byte == b'}' => self.close(),
            State::FirstKey | State::Key if byte == b'"' => self.state = State::Text { is_key: true },
            State::FirstKey | State::Key => return expected("a key in quotes"),
            State::Colon if byte == b':' => self.state = State::Value,
            State::Colon => return expected("a colon after a key"),
            State::After => match (byte, self.objects & 1 == 1) {
                (b',', true) => self.state = State::Key,
                (b',', false) => self.state = State::Value,
                (b'}', true) | (b']', false) => self.close(),
                (_, true) => return expected("a comma or the end of the object"),
                (_, false) => return expected("a comma or the end of the array"),
            },
            State::End => return expected("nothing after the JSON value"),
        }
        Ok(true)
    }

    fn begin(&mut self, byte: u8) -> Result<(), Broken> {
        if self.depth == 0 && self.is_object && byte != b'{' {
            return Err(Broken::Expected("a JSON object and nothing before it"));
        }
        match byte {
            b'{' | b'[' => {
                if self.depth == DEPTH_MAX {
                    return Err(Broken::TooDeep);
                }
                self.depth += 1;
                self.objects = self.objects << 1 | u128::from(byte == b'{');
                self.state = if byte == b'{' { State::FirstKey } else { State::FirstItem };
            }
            b'"' => self.state = State::Text { is_key: false },
            b'-' => self.state = State::Number(Number::Minus),
            b'0' => self.state = State::Number(Number::Zero),
            b'1'..=b'9' => self.state = State::Number(Number::Digit),
            b't' => self.state = State::Word(b"rue"),
            b'f' => self.state = State::Word(b"alse"),
            b'n' => self.state = State::Word(b"ull"),
            _ if self.depth == 0 => return Err(Broken::Expected("a JSON value and nothing before it")),
            _ => return Err(Broken::Expected("a value")),
        }
        Ok(())
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.objects >>= 1;
        self.value_ends();
    }

    fn value_ends(&mut self) {
        self.state = if self.depth == 0 { State::End } else { State::After };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, size: usize) -> Result<bool, Broken> {
        let mut json = Json::new(false);
        let chars: Vec<char> = text.chars().collect();
        for part in chars.chunks(size) {
            json.push(&part.iter().collect::<String>())?;
        }
        Ok(json.is_whole())
    }

    #[test]
    fn what_can_no_longer_become_json_is_told_at_once() {
        for (text, expected) in [
            ("Sure! {", "a JSON value and nothing before it"),
            ("```json\n{", "a JSON value and nothing before it"),
            ("{\"a\":1}\n```", "nothing after the JSON value"),
            ("{} {}", "nothing after the JSON value"),
            ("{a", "a key in quotes"),
            ("{'", "a key in quotes"),
            ("{\"a\":1,}", "a key in quotes"),
            ("[1,]", "a value"),
            ("{\"a\" 1", "a colon after a key"),
            ("{\"a\":1 \"", "a comma or the end of the object"),
            ("[1}", "a comma or the end of the array"),
            ("[01", "a comma or the end of the array"),
            ("{\"a\":-x", "a number"),
            ("{\"a\":+", "a value"),
            ("{\"a\":NaN", "a value"),
            ("{\"a\":True", "a value"),
            ("{\"a\":tru3", "true, false or null"),
            ("\"a\n", "no control character in a string"),
            ("\"\\x", "an escape that JSON knows"),
            ("\"\\u00g", "four hexadecimal digits"),
            ("{\"a\":1}//", "nothing after the JSON value"),
            ("{/", "a key in quotes"),
        ] {
            for size in [1, 2, 100] {
                assert_eq!(read(text, size), Err(Broken::Expected(expected)), "{text}");
            }
            // Not a byte before.
            let before: String = text.chars().take(text.chars().count() - 1).collect();
            if !["Sure!", "```", "{} {", "{\"a\":1}\n``", "{\"a\":1}/", "{\"a\":Tru", "{\"a\":Na"]
                .iter()
                .any(|it| before.starts_with(it))
            {
                assert!(read(&before, 1).is_ok(), "{before}");
            }
        }
        let deep = "[".repeat(128);
        assert_eq!(read(&deep, 1), Err(Broken::TooDeep));
        assert_eq!(read(&deep[1..], 1), Ok(false));
        let mut object = Json::new(true);
        assert_eq!(object.push(" ["), Err(Broken::Expected("a JSON object and nothing before it")));
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(serde_json::Value::from),
            any::<i64>().prop_map(serde_json::Value::from),
            (-1e9..1e9_f64).prop_map(serde_json::Value::from),
            "\\PC{0,6}|[\\\\\"\n\t]{0,3}".prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
                prop::collection::hash_map("[a-z\"é]{0,3}", inner, 0..4)
                    .prop_map(serde_json::Value::from_iter),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        // req: SEG-8
        #[test]
        fn it_says_what_another_parser_says_of_mutated_json_however_it_is_cut(
            value in any_json(), at in any::<prop::sample::Index>(), with in "[\\[\\]{},:\"\\\\0-9eE.tfn x+-]{0,2}",
            removed in 0..2_usize, size in 1..5_usize,
        ) {
            let mut chars: Vec<char> = value.to_string().chars().collect();
            let at = at.index(chars.len() + 1);
            chars.splice(at..(at + removed).min(chars.len()), with.chars());
            let text: String = chars.into_iter().collect();
            let whole = read(&text, usize::MAX);
            prop_assert_eq!(read(&text, size), whole, "{}", text);
            let known = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
            prop_assert_eq!(whole == Ok(true), known, "{}", text);
        }
    }
}
