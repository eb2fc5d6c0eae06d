//! The bytes of a chat completion, streamed or whole. Pure: an id, a clock reading and a script in, events
//! out.
//!
//! Shapes after the public OpenAI chat-completions API: a role chunk, content deltas, a finish chunk, a usage
//! chunk with empty `choices` only if it is wanted, `[DONE]`. `id`, `created` and `model` are the same in
//! every chunk.

use std::fmt::Write as _;

use super::script::{Script, UsagePolicy};
use crate::digest::Seal;

/// Text fragments of the completions, as JSON source and as the text it means: ASCII, two to four byte UTF-8,
/// escapes.
const WORDS: [(&str, &str); 10] = [
    ("The ", "The "),
    ("token ", "token "),
    ("你好🌍é ", "你好🌍é "),
    ("streams ", "streams "),
    ("na\u{ef}ve ", "na\u{ef}ve "),
    ("line\\n", "line\n"),
    ("\\\"as is\\\" ", "\"as is\" "),
    ("data: ", "data: "),
    ("😀 ", "😀 "),
    ("from a node. ", "from a node. "),
];

/// How many different texts a stream repeats.
const TEXTS: usize = 32;

/// One completion: everything about it that does not change from event to event.
#[derive(Debug)]
pub struct Completion {
    /// `{"id":…,"model":"…",` without the braces' end: what every chunk starts with, `data: ` not included.
    prefix: String,
    /// The head of the non-stream object, likewise.
    whole_prefix: String,
    extras: bool,
    eol: &'static str,
    usage: bool,
    stamp: bool,
    texts: Vec<(String, String)>,
    prompt_tokens: u64,
    seal: Seal,
}

/// The facts of a request that its completion repeats.
#[derive(Debug, Clone, Copy)]
pub struct CompletionFacts<'a> {
    /// The provider's number for this request.
    pub number: u64,
    /// The model that was asked for.
    pub model: &'a str,
    /// Seconds since 1970.
    pub created: u64,
    /// Length of the request body, from which prompt tokens are guessed. Unit: bytes.
    pub prompt_bytes: usize,
    /// Whether the request asks for usage in the stream.
    pub include_usage: bool,
}

impl Completion {
    /// The completion that answers a request of these facts under `script`.
    #[must_use]
    pub fn new(facts: &CompletionFacts<'_>, script: &Script) -> Self {
        let model = serde_json::Value::from(facts.model).to_string();
        let (id, created) = (facts.number, facts.created);
        let start = |object| {
            format!(r#"{{"id":"chatcmpl-{id:010}","object":"{object}","created":{created},"model":{model},"#)
        };
        let mut completion = Self {
            prefix: start("chat.completion.chunk"),
            whole_prefix: start("chat.completion"),
            extras: script.extras,
            eol: if script.crlf { "\r\n" } else { "\n" },
            usage: match script.usage {
                UsagePolicy::Always => true,
                UsagePolicy::AsAsked => facts.include_usage,
                UsagePolicy::Never => false,
            },
            stamp: script.stamp,
            texts: Vec::new(),
            prompt_tokens: (facts.prompt_bytes as u64 / 4).max(1),
            seal: Seal::default(),
        };
        let mut empty = Vec::new();
        completion.put_delta(&mut empty, "", 0);
        let room = script.event_bytes.saturating_sub(empty.len());
        let different = TEXTS.min(usize::try_from(script.events).unwrap_or(TEXTS));
        completion.texts = (0..different).map(|index| text(index, room)).collect();
        completion
    }

    /// The chunk that opens a stream.
    pub fn put_role(&self, out: &mut Vec<u8>) {
        self.put_chunk(out, r#"{"role":"assistant","content":""}"#, "null", None);
    }

    /// One reasoning chunk, under both names that engines use.
    pub fn put_reasoning(&self, out: &mut Vec<u8>, index: u32) {
        let delta = format!(r#"{{"reasoning_content":"step {index} ","reasoning":"step {index} "}}"#);
        self.put_chunk(out, &delta, "null", None);
    }

    /// The next content chunk; `now` is the stamp, in nanoseconds since 1970.
    pub fn put_content(&mut self, out: &mut Vec<u8>, now: u64) {
        let at = usize::try_from(self.seal.events).unwrap_or(0) % self.texts.len().max(1);
        let Some((source, meaning)) = self.texts.get(at) else { return };
        self.seal.add(meaning);
        self.put_delta(out, source, now);
    }

    /// The chunk that ends the content. Its `system_fingerprint` seals the text sent so far.
    pub fn put_finish(&self, out: &mut Vec<u8>) {
        self.put_chunk(out, "{}", r#""stop""#, Some(&self.seal.fingerprint()));
    }

    /// The usage chunk, if this completion has one.
    pub fn put_usage(&self, out: &mut Vec<u8>) {
        if self.usage {
            let usage = self.usage_json();
            let line =
                format!("data: {}\"choices\":[],\"usage\":{usage}}}{eol}{eol}", self.prefix, eol = self.eol);
            out.extend_from_slice(line.as_bytes());
        }
    }

    /// The end mark of a stream.
    pub fn put_done(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("data: [DONE]{eol}{eol}", eol = self.eol).as_bytes());
    }

    /// An error object in the stream.
    pub fn put_error(&self, out: &mut Vec<u8>) {
        let error = r#"{"error":{"message":"scripted error","type":"server_error","param":null,"code":"perf_error"}}"#;
        out.extend_from_slice(format!("data: {error}{eol}{eol}", eol = self.eol).as_bytes());
    }

    /// An event whose JSON ends in the middle.
    pub fn put_bad_json(&self, out: &mut Vec<u8>) {
        let line = format!("data: {}\"choices\":[{{\"index\":0,\"del{eol}{eol}", self.prefix, eol = self.eol);
        out.extend_from_slice(line.as_bytes());
    }

    /// A comment, as engines send to keep a silent stream alive.
    pub fn put_ping(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!(": ping{eol}{eol}", eol = self.eol).as_bytes());
    }

    /// The whole completion of `events` content events as one JSON object.
    #[must_use]
    pub fn whole(&mut self, events: u32) -> String {
        let mut content = String::new();
        for index in 0..usize::try_from(events).unwrap_or(usize::MAX) {
            let Some((source, meaning)) = self.texts.get(index % self.texts.len().max(1)) else { break };
            content.push_str(source);
            self.seal.add(meaning);
        }
        format!(
            r#"{}"choices":[{{"index":0,"message":{{"role":"assistant","content":"{content}","refusal":null}},"logprobs":null,"finish_reason":"stop"}}],"usage":{},"system_fingerprint":"{}"}}"#,
            self.whole_prefix,
            self.usage_json(),
            self.seal.fingerprint()
        )
    }

    fn usage_json(&self) -> String {
        let (prompt, completion) = (self.prompt_tokens, self.seal.events);
        format!(
            r#"{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{}}}"#,
            prompt + completion
        )
    }

    /// The hot one: a chunk of content, without intermediate allocation.
    fn put_delta(&self, out: &mut Vec<u8>, source: &str, now: u64) {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(self.prefix.as_bytes());
        if self.stamp {
            // Zero-padded to the 19 digits of today, so that every event has the same length; JSON forbids
            // leading zeros, but a clock before 2001 would be needed to make one.
            let _ = std::io::Write::write_fmt(
                out,
                format_args!("\"t\":{:019},", now.max(1_000_000_000_000_000_000)),
            );
        }
        for part in [r#""choices":[{"index":0,"delta":{"content":""#, source, r#""},"#] {
            out.extend_from_slice(part.as_bytes());
        }
        self.put_tail(out, "null", None);
    }

    fn put_chunk(&self, out: &mut Vec<u8>, delta: &str, finish: &str, fingerprint: Option<&str>) {
        for part in ["data: ", &self.prefix, r#""choices":[{"index":0,"delta":"#, delta, ","] {
            out.extend_from_slice(part.as_bytes());
        }
        self.put_tail(out, finish, fingerprint);
    }

    fn put_tail(&self, out: &mut Vec<u8>, finish: &str, fingerprint: Option<&str>) {
        if self.extras {
            out.extend_from_slice(
                r#""logprobs":{"content":[{"token":"é","logprob":-0.10,"bytes":[195,169],"top_logprobs":[]}]},"token_ids":[1,2],"#
                    .as_bytes(),
            );
        }
        for part in [r#""finish_reason":"#, finish, "}]"] {
            out.extend_from_slice(part.as_bytes());
        }
        if self.extras {
            out.extend_from_slice(br#","x_unknown":{"a":1e2,"u":"\u00e9"}"#);
        }
        if let Some(fingerprint) = fingerprint {
            let mut member = String::new();
            let _ = write!(member, r#","system_fingerprint":"{fingerprint}""#);
            out.extend_from_slice(member.as_bytes());
        }
        out.push(b'}');
        out.extend_from_slice(self.eol.as_bytes());
        out.extend_from_slice(self.eol.as_bytes());
    }
}

/// The `index`-th text: words while they fit into `room` bytes of JSON source, then dots. At least one byte.
fn text(index: usize, room: usize) -> (String, String) {
    let room = room.max(1);
    let (mut source, mut meaning) = (String::new(), String::new());
    for (word, means) in WORDS.iter().cycle().skip(index * 3 % WORDS.len()) {
        if source.len() + word.len() > room {
            break;
        }
        source.push_str(word);
        meaning.push_str(means);
    }
    let dots = room - source.len();
    source.extend(std::iter::repeat_n('.', dots));
    meaning.extend(std::iter::repeat_n('.', dots));
    (source, meaning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn completion(script: &Script, include_usage: bool) -> Completion {
        let facts = CompletionFacts {
            number: 42,
            model: "org/mo\"del:8b",
            created: 1_764_460_800,
            prompt_bytes: 400,
            include_usage,
        };
        Completion::new(&facts, script)
    }

    fn json_of(bytes: &[u8]) -> Value {
        let text = std::str::from_utf8(bytes).unwrap();
        let data = text.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
        serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}"))
    }

    fn event(put: impl FnOnce(&mut Vec<u8>)) -> Value {
        let mut out = Vec::new();
        put(&mut out);
        json_of(&out)
    }

    #[test]
    fn chunks_have_the_public_shapes() {
        let mut stream = completion(&Script::default(), true);
        let role = event(|out| stream.put_role(out));
        assert_eq!(role["id"], "chatcmpl-0000000042");
        assert_eq!(role["object"], "chat.completion.chunk");
        assert_eq!(role["model"], "org/mo\"del:8b");
        assert_eq!(role["choices"][0]["delta"], serde_json::json!({"role": "assistant", "content": ""}));
        assert_eq!(role["choices"][0]["finish_reason"], Value::Null);
        let content = event(|out| stream.put_content(out, 0));
        assert!(!content["choices"][0]["delta"]["content"].as_str().unwrap().is_empty());
        let finish = event(|out| stream.put_finish(out));
        assert_eq!(finish["choices"][0]["finish_reason"], "stop");
        assert_eq!(finish["choices"][0]["delta"], serde_json::json!({}));
        let usage = event(|out| stream.put_usage(out));
        assert_eq!(usage["choices"], serde_json::json!([]));
        assert_eq!(usage["usage"]["prompt_tokens"], 100);
        assert_eq!(usage["usage"]["completion_tokens"], 1);
        assert_eq!(usage["usage"]["total_tokens"], 101);
        for chunk in [&content, &finish, &usage] {
            assert_eq!((&chunk["id"], &chunk["created"]), (&role["id"], &role["created"]));
        }
    }

    #[test]
    fn usage_chunk_comes_only_when_wanted() {
        for (policy, asked, expected) in [
            (UsagePolicy::AsAsked, false, false),
            (UsagePolicy::AsAsked, true, true),
            (UsagePolicy::Always, false, true),
            (UsagePolicy::Never, true, false),
        ] {
            let mut out = Vec::new();
            completion(&Script { usage: policy, ..Script::default() }, asked).put_usage(&mut out);
            assert_eq!(!out.is_empty(), expected, "{policy:?} {asked}");
        }
    }

    #[test]
    fn content_events_have_exactly_the_size_asked_for_and_their_text_is_sealed() {
        for (stamp, extras) in [(false, false), (true, false), (false, true)] {
            let script = Script { event_bytes: 500, events: 40, stamp, extras, ..Script::default() };
            let mut stream = completion(&script, false);
            let (mut seal, mut text) = (Seal::default(), String::new());
            for _ in 0..40 {
                let mut out = Vec::new();
                stream.put_content(&mut out, 1_764_460_800_123_456_789);
                assert_eq!(out.len(), 500);
                let chunk = json_of(&out);
                assert_eq!(chunk["t"].as_u64(), stamp.then_some(1_764_460_800_123_456_789));
                let content = chunk["choices"][0]["delta"]["content"].as_str().unwrap();
                seal.add(content);
                text.push_str(content);
            }
            assert!(text.contains("你好🌍é"));
            assert_eq!(event(|out| stream.put_finish(out))["system_fingerprint"], seal.fingerprint());
        }
    }

    #[test]
    fn small_events_still_carry_text() {
        let mut stream = completion(&Script { event_bytes: 10, ..Script::default() }, false);
        assert_eq!(event(|out| stream.put_content(out, 0))["choices"][0]["delta"]["content"], ".");
    }

    #[test]
    fn whole_reply_holds_the_text_of_the_stream() {
        let script = Script { events: 50, ..Script::default() };
        let mut stream = completion(&script, false);
        let mut streamed = String::new();
        for _ in 0..50 {
            let chunk = event(|out| stream.put_content(out, 0));
            streamed.push_str(chunk["choices"][0]["delta"]["content"].as_str().unwrap());
        }
        let whole: Value = serde_json::from_str(&completion(&script, false).whole(50)).unwrap();
        assert_eq!(whole["object"], "chat.completion");
        assert_eq!(whole["choices"][0]["message"]["content"], streamed);
        assert_eq!(whole["choices"][0]["finish_reason"], "stop");
        assert_eq!(whole["usage"]["completion_tokens"], 50);
        assert_eq!(whole["system_fingerprint"], event(|out| stream.put_finish(out))["system_fingerprint"]);
    }

    #[test]
    fn zero_events_make_an_empty_completion() {
        let mut stream = completion(&Script { events: 0, ..Script::default() }, false);
        let whole: Value = serde_json::from_str(&stream.whole(0)).unwrap();
        assert_eq!(whole["choices"][0]["message"]["content"], "");
    }

    #[test]
    fn extras_crlf_and_faulty_events_are_what_they_say() {
        let stream = completion(&Script { extras: true, crlf: true, ..Script::default() }, false);
        let mut out = Vec::new();
        stream.put_reasoning(&mut out, 3);
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("\r\n\r\n"));
        let chunk: Value = serde_json::from_str(text.trim_start_matches("data: ")).unwrap();
        assert_eq!(chunk["choices"][0]["delta"]["reasoning"], "step 3 ");
        assert_eq!(chunk["choices"][0]["delta"]["reasoning_content"], "step 3 ");
        assert!(chunk["x_unknown"].is_object() && chunk["choices"][0]["token_ids"].is_array());
        let plain = completion(&Script::default(), false);
        assert_eq!(event(|out| plain.put_error(out))["error"]["code"], "perf_error");
        let mut out = Vec::new();
        plain.put_bad_json(&mut out);
        let data = String::from_utf8(out).unwrap();
        assert!(serde_json::from_str::<Value>(data.trim_start_matches("data: ")).is_err());
    }
}
