//! How many input tokens a request has, about: one pass over its JSON, no tokenizer (POL-4).
//!
//! Each character weighs what its class weighs on average in the vocabularies of today (128,000 to 200,000 entries). On
//! source text, prose of several scripts and whole requests of coding agents the sum is within an eighth of what real
//! tokenizers count; bytes/4 is off by two and more on numbers and on scripts other than Latin.
//!
//! Counted are the strings of the request, the whole JSON of `tools` and `functions`, and a little for every message.
//! Media are not text: base64 is left out, and images, documents and sound are charged as a whole.

use dataplane::http::body::Body;

use crate::surface::Surface;

/// Thousandths of a token.
type Milli = u64;

const LETTER: u16 = 250;
const DIGIT: u16 = 800;
const PUNCTUATION: u16 = 450;
const NEWLINE: u16 = 650;
const BLANK: u16 = 15;
const HANGUL: Milli = 740;
const HAN: Milli = 770;
const KANA: Milli = 700;
/// Of each byte of any other character.
const OTHER_BYTE: u16 = 150;
/// For the marks that a chat template puts around a message.
const MESSAGE: Milli = 4_000;
/// A picture of usual size, at full detail.
const IMAGE: Milli = 1_600_000;
/// Bytes of base64 that make a token of a document, and of a recording.
const DOCUMENT_BYTES_PER_TOKEN: Milli = 44;
const SOUND_BYTES_PER_TOKEN: Milli = 1_300;
/// A shorter string is no file.
const FILE_BYTES_MIN: u64 = 256;
/// A longer one is no address: no server takes it.
const ADDRESS_BYTES_MAX: u64 = 16 * 1024;
/// No text has more tokens than bytes.
const BYTES_PER_TOKEN_MIN: u64 = 1;
/// What is kept of a string: more than any key or media type that matters.
const START_BYTES: usize = 48;

/// What each byte of a one-byte character weighs, and each byte of the other ones.
const WEIGHTS: [u16; 256] = weights();

const fn weights() -> [u16; 256] {
    let mut table = [OTHER_BYTE; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' => LETTER,
            b'0'..=b'9' => DIGIT,
            b'\n' | b'\r' => NEWLINE,
            b' ' | b'\t' => BLANK,
            _ => PUNCTUATION,
        };
        byte += 1;
    }
    table
}

/// The weight of a character of three bytes that begins with these two, when it counts as a whole.
fn wide(first: u8, second: u8) -> Option<Milli> {
    // Of a code point the first two of three bytes give all but its last six bits, which no border of these blocks needs
    // more exactly.
    let block = u32::from(first & 0x0f) << 12 | u32::from(second & 0x3f) << 6;
    match block {
        0xac00..=0xd7bf => Some(HANGUL),
        0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff => Some(HAN),
        0x3040..=0x30ff => Some(KANA),
        _ => None,
    }
}

/// The weight of a character that was written as `\uXXXX`.
fn escaped(unit: u16) -> Milli {
    match unit {
        0..=0x7f => weight(u8::try_from(unit).unwrap_or_default()),
        0x80..=0x7ff | 0xd800..=0xdfff => 2 * Milli::from(OTHER_BYTE),
        _ => {
            let [high, low] = unit.to_be_bytes();
            let second = (high & 0x0f) << 2 | low >> 6;
            wide(high >> 4, second).unwrap_or(3 * Milli::from(OTHER_BYTE))
        }
    }
}

fn is_of_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte)
}

fn weight(byte: u8) -> Milli {
    WEIGHTS.get(usize::from(byte)).copied().unwrap_or(OTHER_BYTE).into()
}

/// The answer without counting, where the length alone decides: a body has at most this many tokens of text. Media may
/// count more than their bytes, but only a few hundred of them fit below any threshold of use.
#[must_use]
pub fn text_tokens_max(body: &Body) -> u64 {
    body.len() as u64 / BYTES_PER_TOKEN_MIN
}

/// Whether an estimate is so far over a model's window that the estimate's own error, an eighth, does not explain it. A
/// request that is over by less is left to the provider, which can count.
#[must_use]
pub fn surely_exceeds(tokens: u64, window: u64) -> bool {
    tokens - tokens / 9 > window
}

/// The answer to a request that counts tokens (api.md section 1.5).
#[must_use]
pub fn answer(surface: Surface, tokens: u64) -> Vec<u8> {
    match surface {
        Surface::Messages => format!("{{\"input_tokens\":{tokens}}}"),
        Surface::Chat | Surface::Responses => {
            format!("{{\"object\":\"response.input_tokens\",\"input_tokens\":{tokens}}}")
        }
    }
    .into_bytes()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Between strings.
    #[default]
    Between,
    Text,
    Escape,
    /// So many hexadecimal digits follow, and what they are so far.
    Hex(u8, u16),
}

/// What an encoded file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Media {
    #[default]
    Image,
    Sound,
    Document,
}

impl Media {
    fn of(kind: &[u8]) -> Self {
        if kind.starts_with(b"audio/") {
            Self::Sound
        } else if kind.starts_with(b"image/") || kind.starts_with(b"video/") {
            Self::Image
        } else {
            Self::Document
        }
    }
}

/// Counts a body that is known to be one JSON object, in whatever parts it comes.
#[derive(Debug, Default)]
pub struct Estimator {
    state: State,
    tokens: Milli,
    depth: u32,
    /// The next string outside of any other is a key.
    expects_key: bool,
    /// Which of the open containers are objects, the innermost in the lowest bit.
    objects: u128,
    /// Everything is counted, keys and marks too.
    in_tools: bool,
    /// The string being read is a key.
    is_key: bool,
    /// Beginning of the string being read.
    start: Start,
    /// The last key.
    key: Start,
    /// Weight and length of the string being read.
    weight: Milli,
    length: u64,
    /// It may be base64 so far.
    encoded: bool,
    /// First byte of a character of three, and how many bytes of one are counted already.
    first: Option<u8>,
    counted: u8,
    /// What the next encoded file is, when its media type came before it.
    media: Option<Media>,
}

/// The beginning of a string.
#[derive(Clone, Copy, Debug)]
struct Start {
    bytes: [u8; START_BYTES],
    len: usize,
}

impl Default for Start {
    fn default() -> Self {
        Self { bytes: [0; START_BYTES], len: 0 }
    }
}

impl Start {
    fn push(&mut self, part: &[u8]) {
        let free = self.bytes.get_mut(self.len..).unwrap_or_default();
        let taken = free.len().min(part.len());
        if let (Some(to), Some(from)) = (free.get_mut(..taken), part.get(..taken)) {
            to.copy_from_slice(from);
        }
        self.len += taken;
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Estimator {
    /// Takes the next part.
    pub fn push(&mut self, part: &[u8]) {
        let mut rest = part;
        while let Some((byte, after)) = rest.split_first() {
            rest = match self.state {
                State::Between => {
                    self.between(*byte);
                    after
                }
                State::Text => {
                    let stop = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                    let (plain, stopped) = rest.split_at_checked(stop).unwrap_or((rest, &[]));
                    self.text(plain);
                    match stopped.split_first() {
                        None => stopped,
                        Some((b'\\', after)) => {
                            self.state = State::Escape;
                            after
                        }
                        Some((_, after)) => {
                            self.end_text();
                            after
                        }
                    }
                }
                State::Escape => {
                    self.escape(*byte);
                    after
                }
                State::Hex(left, unit) => {
                    let digit = char::from(*byte).to_digit(16).and_then(|digit| u16::try_from(digit).ok());
                    let unit = unit << 4 | digit.unwrap_or_default();
                    self.state = State::Hex(left - 1, unit);
                    if left == 1 {
                        // Some writers escape `+`.
                        self.encoded &= u8::try_from(unit).is_ok_and(is_of_base64);
                        // What is no ASCII matches nothing that is looked for, which is enough to know of it.
                        self.start.push(&[u8::try_from(unit).ok().filter(u8::is_ascii).unwrap_or(0xff)]);
                        self.character(escaped(unit));
                        self.state = State::Text;
                    }
                    after
                }
            };
        }
    }

    /// The estimate, in tokens.
    #[must_use]
    pub fn finish(self) -> u64 {
        self.tokens / 1000
    }

    fn between(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.state = State::Text;
                self.is_key = self.expects_key;
                self.start = Start::default();
                (self.weight, self.length, self.encoded) = (0, 0, true);
                (self.first, self.counted) = (None, 0);
                return;
            }
            b'{' | b'[' => {
                self.depth += 1;
                self.objects = self.objects << 1 | u128::from(byte == b'{');
                self.expects_key = byte == b'{';
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.objects >>= 1;
                self.expects_key = false;
            }
            b',' => {
                self.expects_key = self.objects & 1 == 1;
            }
            b':' => self.expects_key = false,
            _ => {}
        }
        if self.in_tools {
            self.tokens += weight(byte);
            // The member ends here, whatever it was.
            self.in_tools = self.depth > 1 || byte == b':' || byte.is_ascii_whitespace();
        }
    }

    fn text(&mut self, plain: &[u8]) {
        self.start.push(plain);
        // Text has a blank soon.
        self.encoded = self.encoded && memchr::memchr(b' ', plain).is_none();
        self.length += plain.len() as u64;
        // By the byte, in one loop without a branch; characters of three bytes are put right afterwards.
        let sum: Milli = plain.iter().map(|byte| weight(*byte)).sum();
        self.weight += sum;
        if !plain.is_ascii() {
            self.encoded = false;
            self.wide_characters(plain);
        } else {
            (self.first, self.counted) = (None, 0);
        }
    }

    /// Weighs again what [`Self::text`] weighed by the byte and counts as a character.
    fn wide_characters(&mut self, plain: &[u8]) {
        for &byte in plain {
            match (byte, self.first) {
                (0xe0..=0xef, _) => (self.first, self.counted) = (Some(byte), 0),
                (0x80..=0xbf, Some(first)) => {
                    self.first = None;
                    if let Some(whole) = wide(first, byte) {
                        self.weight += whole;
                        self.weight = self.weight.saturating_sub(2 * Milli::from(OTHER_BYTE));
                        self.counted = 1;
                    }
                }
                (0x80..=0xbf, None) if self.counted > 0 => {
                    self.counted = 0;
                    self.weight = self.weight.saturating_sub(OTHER_BYTE.into());
                }
                _ => (self.first, self.counted) = (None, 0),
            }
        }
    }

    fn escape(&mut self, byte: u8) {
        self.state = State::Text;
        match byte {
            b'u' => {}
            b'/' => self.start.push(b"/"),
            // Part of nothing that is looked for.
            _ => self.start.push(&[0xff]),
        }
        match byte {
            b'u' => self.state = State::Hex(4, 0),
            b'n' | b'r' => self.character(NEWLINE.into()),
            b't' => self.character(BLANK.into()),
            // Base64, addresses and media types may come with their slashes escaped, as PHP writes them.
            b'/' => self.character(PUNCTUATION.into()),
            _ => {
                self.encoded = false;
                self.character(PUNCTUATION.into());
            }
        }
    }

    fn character(&mut self, weight: Milli) {
        self.weight += weight;
        self.length += 1;
    }

    fn end_text(&mut self) {
        self.state = State::Between;
        if self.is_key {
            self.key = self.start;
            self.end_key();
            return;
        }
        // Tools are text to the model, whatever they look like.
        let key = if self.in_tools { &[] } else { self.key.as_bytes() };
        match key {
            b"media_type" | b"mime_type" => self.media = Some(Media::of(self.start.as_bytes())),
            b"type" if self.start.as_bytes() == b"image" => self.tokens += IMAGE,
            b"url" | b"image_url" | b"data" | b"file_data" if self.is_file() => {
                self.tokens += self.file();
                return;
            }
            // Reasoning that only its provider can read, and the proof that it is its own.
            b"signature" | b"encrypted_content" if self.encoded && self.length >= FILE_BYTES_MIN => return,
            _ => {}
        }
        self.tokens += self.weight;
    }

    fn end_key(&mut self) {
        let key = self.key.as_bytes();
        match key {
            _ if self.in_tools => {}
            b"tools" | b"functions" if self.depth == 1 => self.in_tools = true,
            b"role" => self.tokens += MESSAGE,
            b"image_url" => self.tokens += IMAGE,
            b"input_audio" => self.media = Some(Media::Sound),
            _ => {}
        }
        if self.in_tools {
            self.tokens += self.weight;
        }
    }

    fn is_file(&self) -> bool {
        let start = self.start.as_bytes();
        let is_address = start.starts_with(b"http://") || start.starts_with(b"https://");
        is_address && self.length <= ADDRESS_BYTES_MAX
            || self.encoded && (self.length >= FILE_BYTES_MIN || start.starts_with(b"data:"))
    }

    /// What an encoded file counts; images are counted where they are announced.
    fn file(&mut self) -> Milli {
        let start = self.start.as_bytes();
        let named = start.strip_prefix(b"data:").map(Media::of);
        match named.or(self.media.take()).unwrap_or_default() {
            _ if start.starts_with(b"http") => 0,
            Media::Image => 0,
            Media::Sound => self.length * 1000 / SOUND_BYTES_PER_TOKEN,
            Media::Document => self.length * 1000 / DOCUMENT_BYTES_PER_TOKEN,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn in_parts(json: &str, size: usize) -> u64 {
        let mut estimator = Estimator::default();
        json.as_bytes().chunks(size).for_each(|part| estimator.push(part));
        estimator.finish()
    }

    fn estimate(json: &str) -> u64 {
        let whole = in_parts(json, json.len().max(1));
        for size in [1, 2, 3, 5, 64] {
            assert_eq!(in_parts(json, size), whole, "parts of {size}: {json}");
        }
        whole
    }

    fn message(content: &str) -> u64 {
        let content = Value::from(content);
        estimate(&format!("{{\"messages\":[{{\"role\":\"user\",\"content\":{content}}}]}}"))
    }

    const ENGLISH: &str = "The gateway keeps a queue for every group of models. When all slots of the chosen providers are taken, a new request waits until one becomes free, its client leaves, or the time it may wait has passed. Long prompts take a second kind of slot as well, so that a few of them cannot occupy a machine that many short ones share.\n";
    const CODE: &str = "pub fn weighted(items: &[Item], total: u64) -> Option<&Item> {\n    let mut rest = total;\n    for item in items {\n        if item.weight > rest {\n            return Some(item);\n        }\n        rest -= item.weight;\n    }\n    None\n}\n";
    const KOREAN: &str = "게이트웨이는 모델 그룹마다 대기열을 하나씩 둔다. 선택된 공급자의 자리가 모두 차 있으면 새 요청은 자리가 날 때까지 기다리거나, 클라이언트가 떠나거나, 기다릴 수 있는 시간이 지날 때까지 대기한다. 긴 프롬프트는 다른 종류의 자리도 하나 더 차지한다.\n";
    const JAPANESE: &str = "ゲートウェイはモデルのグループごとに待ち行列を持っている。選ばれたプロバイダーの枠がすべて埋まっているとき、新しい要求は枠が空くか、クライアントが去るか、待てる時間が過ぎるまで待つ。長いプロンプトはもう一つの枠も使う。\n";
    const CHINESE: &str = "网关为每一组模型维护一个队列。当所选提供者的所有名额都被占用时，新的请求会一直等待，直到有名额空出、客户端离开，或者允许等待的时间已过。较长的提示还会占用另一种名额，以免少数长请求占满许多短请求共用的机器。\n";
    const NUMBERS: &str = "2026-11-30,1843,27,0.913,12844\n2026-11-30,1902,31,0.887,13120\n2026-12-01,2210,18,0.904,15077\n2026-12-01,2388,22,0.951,16602\n";
    const SCHEMA: &str = "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"description\":\"Absolute path of the file to read\"},\"offset\":{\"type\":\"integer\",\"minimum\":0},\"limit\":{\"type\":\"integer\",\"maximum\":2000}},\"required\":[\"path\"],\"additionalProperties\":false}";

    /// Counted with mistral-common 1.5.4, tekken_240911: one real tokenizer, on texts of our own.
    const COUNTED: [(&str, &str, u64); 7] = [
        ("English", ENGLISH, 70),
        ("Rust", CODE, 61),
        ("Korean", KOREAN, 68),
        ("Japanese", JAPANESE, 82),
        ("Chinese", CHINESE, 99),
        ("numbers", NUMBERS, 124),
        ("a JSON schema", SCHEMA, 60),
    ];

    // req: POL-4
    #[test]
    fn the_estimate_is_near_what_a_tokenizer_counts_whatever_the_text() {
        for (name, text, tokens) in COUNTED {
            let estimated = message(text);
            let ratio = estimated as f64 / (tokens + 4) as f64;
            println!("{name}: {estimated} estimated, {tokens} counted, {ratio:.2}");
            assert!((0.7..1.4).contains(&ratio), "{name}: {estimated} for {tokens}");
        }
        let all: u64 = COUNTED.iter().map(|(_, text, _)| message(text) - 4).sum();
        let counted: u64 = COUNTED.iter().map(|(_, _, tokens)| tokens).sum();
        let ratio = all as f64 / counted as f64;
        assert!((0.87..1.15).contains(&ratio), "{ratio}");
    }

    /// Case 67: a request with a system prompt, tools, a call and its result, as each surface writes it. Counted with the same tokenizer,
    /// piece by piece, with 4 tokens for each of the five messages; the tools as the JSON that they are.
    // req: POL-4
    #[test]
    fn a_request_of_any_surface_counts_with_its_system_prompt_and_its_tools() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let names = ["read_file", "write_file", "list_directory", "run_command", "search"];
        let about = |name: &str| format!("{ENGLISH}Call {name} for that.");
        let system = ENGLISH.repeat(8) + CODE;
        let input = json!({"path": "/srv/app/src/weights.rs", "offset": 120});
        let result = CODE.repeat(6) + NUMBERS;
        let picture = "iVBORw0KGgoAAAANSUhEUgAA".repeat(100);

        let tools =
            names.map(|name| json!({"name": name, "description": about(name), "input_schema": schema}));
        let messages = json!({"model": "m", "max_tokens": 32000, "system": [{"type": "text", "text": system}], "tools": tools,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": KOREAN}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "", "signature": picture},
                {"type": "text", "text": ENGLISH},
                {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": input},
            ]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": result}]}]},
            {"role": "user", "content": CHINESE},
        ]});

        let tools = names.map(
            |name| json!({"type": "function", "name": name, "description": about(name), "parameters": schema}),
        );
        let responses = json!({"model": "m", "stream": true, "instructions": system, "tools": tools, "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": KOREAN}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": picture},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ENGLISH}]},
            {"type": "function_call", "call_id": "call_1", "name": "read_file", "arguments": input.to_string()},
            {"type": "function_call_output", "call_id": "call_1", "output": result},
            {"role": "user", "content": CHINESE},
        ]});

        let tools = names.map(|name| {
            json!({"type": "function", "function": {"name": name, "description": about(name), "parameters": schema}})
        });
        let call = json!({"name": "read_file", "arguments": input.to_string()});
        let chat = json!({"model": "m", "stream": true, "tools": tools, "messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": [{"type": "text", "text": KOREAN}]},
            {"role": "assistant", "content": ENGLISH, "tool_calls": [{"id": "call_1", "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": "call_1", "content": result},
            {"role": "user", "content": CHINESE},
        ]});

        for (surface, body, counted) in
            [("messages", messages, 2126), ("responses", responses, 2141), ("chat", chat, 2155)]
        {
            let estimated = estimate(&body.to_string());
            let ratio = estimated as f64 / f64::from(counted);
            println!("{surface}: {estimated} estimated, {counted} counted, {ratio:.2}");
            assert!((0.875..1.125).contains(&ratio), "{surface}: {estimated} for {counted}");
            // The greatest part of it is neither what the user says nor what the model said.
            let bare = json!({"model": "m", "messages": body.get("messages"), "input": body.get("input")});
            assert!(estimate(&bare.to_string()) * 2 < estimated + 900, "{surface}");
        }
    }

    #[test]
    fn a_text_weighs_the_same_however_it_is_escaped() {
        for (name, text, _) in COUNTED {
            let mut ascii = String::new();
            for unit in text.encode_utf16() {
                ascii.push_str(&format!("\\u{unit:04x}"));
            }
            let written =
                estimate(&format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"{ascii}\"}}]}}"));
            assert_eq!(written, message(text), "{name}");
        }
    }

    #[test]
    fn media_are_charged_as_a_whole_and_their_base64_is_no_text() {
        let base64 = "iVBORw0KGgoAAAANSUhEUgAA\\/wAAAP8".repeat(4000);
        let long = base64.len() as u64;
        for (name, part, tokens) in [
            (
                "a picture of chat completions",
                format!(
                    "{{\"type\":\"image_url\",\"image_url\":{{\"url\":\"data:image/png;base64,{base64}\"}}}}"
                ),
                1600,
            ),
            (
                "a picture by its address",
                "{\"type\":\"image_url\",\"image_url\":{\"url\":\"https://example.org/a.png\"}}".to_owned(),
                1600,
            ),
            (
                "a picture of responses",
                format!("{{\"type\":\"input_image\",\"image_url\":\"data:image/jpeg;base64,{base64}\"}}"),
                1600,
            ),
            (
                "a picture of messages",
                format!(
                    "{{\"type\":\"image\",\"source\":{{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"{base64}\"}}}}"
                ),
                1600,
            ),
            (
                "a document of messages",
                format!(
                    "{{\"type\":\"document\",\"source\":{{\"type\":\"base64\",\"media_type\":\"application/pdf\",\"data\":\"{base64}\"}}}}"
                ),
                long / 44,
            ),
            (
                "a file of chat completions",
                format!(
                    "{{\"type\":\"file\",\"file\":{{\"file_data\":\"data:application/pdf;base64,{base64}\"}}}}"
                ),
                long / 44,
            ),
            (
                "sound",
                format!(
                    "{{\"type\":\"input_audio\",\"input_audio\":{{\"data\":\"{base64}\",\"format\":\"wav\"}}}}"
                ),
                long / 1300,
            ),
        ] {
            let estimated =
                estimate(&format!("{{\"messages\":[{{\"role\":\"user\",\"content\":[{part}]}}]}}"));
            assert!(
                (tokens * 9 / 10..tokens * 11 / 10 + 30).contains(&estimated),
                "{name}: {estimated}, not {tokens}"
            );
        }
        // The same characters as a text are a text.
        assert!(message(&base64) > long / 8);
    }

    #[test]
    fn a_file_is_known_however_its_writer_escapes() {
        let base64 = "iVBORw0KGgoAAAANSUhEUgAA+/wAAAP8".repeat(4000);
        let of = |part: String| {
            estimate(&format!("{{\"messages\":[{{\"role\":\"user\",\"content\":[{part}]}}]}}"))
        };
        // PHP escapes slashes, .NET the plus.
        for escaped in [base64.replace('/', "\\/"), base64.replace('+', "\\u002B"), base64.clone()] {
            for part in [
                format!(
                    "{{\"type\":\"image_url\",\"image_url\":{{\"url\":\"data:image\\/png;base64,{escaped}\"}}}}"
                ),
                "{\"type\":\"image_url\",\"image_url\":{\"url\":\"https:\\/\\/example.org\\/a.png\"}}"
                    .to_owned(),
                format!(
                    "{{\"type\":\"image\",\"source\":{{\"media_type\":\"image\\/png\",\"data\":\"{escaped}\"}}}}"
                ),
            ] {
                let estimated = of(part);
                assert!((1600..1630).contains(&estimated), "{estimated}");
            }
        }
    }

    #[test]
    fn no_text_passes_for_a_file() {
        let text = ENGLISH.trim_end().repeat(100);
        for json in [
            format!("{{\"tools\":[{{\"url\":\"https://a.test/{text}\"}}]}}"),
            format!("{{\"\\u0074ools\":[{{\"url\":\"data:{text}\"}}]}}"),
            format!("{{\"functions\":[{{\"data\":\"{}\"}}]}}", text.replace(' ', "_")),
            format!("{{\"messages\":[{{\"url\":\"https://a.test/{text}\"}}]}}"),
            format!("{{\"messages\":[{{\"url\":\"data:{text}\"}}]}}"),
            format!("{{\"messages\":[{{\"data\":\"data: {text}\"}}]}}"),
        ] {
            let estimated = estimate(&json);
            assert!((6000..14000).contains(&estimated), "{estimated}: {}", &json[..60]);
        }
        // What a tool calls its members announces no picture.
        let schema = "{\"tools\":[{\"properties\":{\"image_url\":{\"type\":\"image\"},\"role\":{\"type\":\"string\"}}}]}";
        assert!(estimate(schema) < 60, "{}", estimate(schema));
    }

    #[test]
    fn of_tools_everything_counts_and_of_the_rest_only_what_is_said() {
        let of = |json: String| estimate(&json);
        let tools = of(format!("{{\"model\":\"m\",\"tools\":[{SCHEMA}]}}"));
        assert!((50..90).contains(&tools), "{tools}");
        let padded = of(format!(
            "{{\"model\":\"m\",\"tools\":[{SCHEMA}]  ,\"numbers\":[{}1]}}",
            "12345,".repeat(1000)
        ));
        assert_eq!(padded, tools);
        assert_eq!(of("{}".to_owned()), 0);
        assert_eq!(of("{\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}".to_owned()), 5);
    }

    #[test]
    fn whatever_is_no_json_is_counted_without_a_panic() {
        for text in [
            "",
            "\"",
            "}}}]]]]",
            "\"\\",
            "\"\\u12",
            "{\"data\":\"data:",
            "\u{e000}\"\u{ac00}",
            "[[[[{{{{:,:,",
        ] {
            in_parts(text, 1);
        }
        let mut estimator = Estimator::default();
        (0..=255_u8).cycle().take(100_000).for_each(|byte| estimator.push(&[byte.wrapping_mul(31)]));
        assert!(estimator.finish() > 0);
    }
}
