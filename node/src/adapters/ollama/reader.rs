//! Ollama's answer: one JSON object a line, cut anywhere by the connection. Pure.
//!
//! ```text
//!   {"message":{"content":"Hel"},"done":false}
//!   {"message":{"tool_calls":[{"function":{"name":"f","arguments":{}}}]},"done":false}
//!   {"done":true,"done_reason":"stop","prompt_eval_count":26,"eval_count":9}
//! ```
//! A line `{"error":"text"}` ends it at any point, with the status 200 long sent. A body that ends without `done:true` is cut.

use proto::{
    limits::TOOL_CALLS_BYTES_MAX,
    message::{ErrorKind, Usage},
    run_input::{Call, CallKind, ToolCall},
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use thiserror::Error;

use super::{refusal, request};
use crate::run::terminal::Failed;

/// Bytes of one line: tool calls arrive whole, so it takes the longest that are passed on, and their escapes.
pub const LINE_BYTES_MAX: usize = 2 * TOOL_CALLS_BYTES_MAX;
/// Tool calls of one answer.
pub const CALLS_MAX: usize = 128;

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// `message.content`
    Text(String),
    /// `message.thinking`
    Reasoning(String),
}

/// What the last line says, and the calls of all lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// `stop`, `length`, `tool_calls`, or another word of Ollama's.
    pub reason: String,
    /// Counts; one that is missing is 0.
    pub usage: Usage,
    /// In the order of their indexes; an id may be empty.
    pub calls: Vec<ToolCall>,
}

/// Why an answer is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// [`LINE_BYTES_MAX`] exceeded.
    #[error("a line of ollama's answer is longer than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// Not JSON, or not what it should be; where, and never what.
    #[error("line {line} of ollama's answer is malformed in column {column}")]
    Malformed {
        /// From 1.
        line: u64,
        /// From 1.
        column: usize,
    },
    /// A call without a name, or whose arguments are no object.
    #[error("line {0} of ollama's answer has a tool call without a name or whose arguments are no object")]
    Call(u64),
    /// [`CALLS_MAX`] or [`TOOL_CALLS_BYTES_MAX`] exceeded.
    #[error(
        "ollama's answer has more than {CALLS_MAX} tool calls, or more than {TOOL_CALLS_BYTES_MAX} bytes of them"
    )]
    TooManyCalls,
    /// An `error` line, in Ollama's words.
    #[error("ollama broke off: {0}")]
    Backend(String),
    /// The body ended without `done:true`.
    #[error("ollama's answer ended without done:true")]
    Truncated,
}

impl From<ReadError> for Failed {
    fn from(error: ReadError) -> Self {
        let kind = if error == ReadError::Truncated {
            ErrorKind::UpstreamTruncated
        } else {
            ErrorKind::UpstreamProtocol
        };
        Self::error(kind, error)
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, default)]
    message: Option<Message<'a>>,
    #[serde(default)]
    done: Option<bool>,
    #[serde(default)]
    done_reason: Option<String>,
    #[serde(default)]
    prompt_eval_count: Option<u64>,
    #[serde(default)]
    eval_count: Option<u64>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    thinking: Option<String>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<CallIn<'a>>>,
}

#[derive(Deserialize)]
struct CallIn<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(borrow)]
    function: FunctionIn<'a>,
}

#[derive(Deserialize)]
struct FunctionIn<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default)]
    name: Option<String>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

/// Puts lines together and reads them.
#[derive(Debug, Default)]
pub struct Reader {
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
    lines: u64,
    calls: Vec<(u64, ToolCall)>,
    calls_bytes: usize,
    done: Option<Done>,
}

impl Reader {
    /// Takes the next bytes; adds what they say to `said`, in order, also before an error. What follows `done:true` is skipped.
    ///
    /// # Errors
    /// [`ReadError`]; the answer is over.
    pub fn feed(&mut self, mut piece: &[u8], said: &mut Vec<Said>) -> Result<(), ReadError> {
        while self.done.is_none()
            && let Some(end) = piece.iter().position(|byte| *byte == b'\n')
        {
            let (line, rest) = piece.split_at(end);
            piece = rest.get(1..).unwrap_or_default();
            if self.partial.len() + line.len() > LINE_BYTES_MAX {
                return Err(ReadError::LineTooLong);
            }
            if self.partial.is_empty() {
                self.line(line, said)?;
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.line(&whole, said)?;
            }
        }
        if self.done.is_some() {
            return Ok(());
        }
        if self.partial.len() + piece.len() > LINE_BYTES_MAX {
            return Err(ReadError::LineTooLong);
        }
        self.partial.extend_from_slice(piece);
        Ok(())
    }

    /// Whether the last line has come.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.done.is_some()
    }

    /// The body has ended.
    ///
    /// # Errors
    /// [`ReadError::Truncated`], or what is wrong with a last line that has no line end.
    pub fn finish(mut self, said: &mut Vec<Said>) -> Result<Done, ReadError> {
        if self.done.is_none() {
            let rest = std::mem::take(&mut self.partial);
            if let Err(error) = self.line(&rest, said) {
                // Half a line is what a broken connection leaves.
                return Err(if matches!(error, ReadError::Malformed { .. }) {
                    ReadError::Truncated
                } else {
                    error
                });
            }
        }
        self.done.ok_or(ReadError::Truncated)
    }

    fn line(&mut self, line: &[u8], said: &mut Vec<Said>) -> Result<(), ReadError> {
        self.lines += 1;
        let number = self.lines;
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let line: Line<'_> = serde_json::from_slice(line)
            .map_err(|error| ReadError::Malformed { line: number, column: error.column() })?;
        if let Some(error) = line.error.filter(|error| !error.is_null()) {
            return Err(ReadError::Backend(refusal::words(&error)));
        }
        if let Some(message) = line.message {
            let parts = [message.thinking.map(Said::Reasoning), message.content.map(Said::Text)];
            said.extend(parts.into_iter().flatten().filter(|part| match part {
                Said::Text(text) | Said::Reasoning(text) => !text.is_empty(),
            }));
            for call in message.tool_calls.unwrap_or_default() {
                self.call(number, call)?;
            }
        }
        if line.done == Some(true) {
            let mut calls = std::mem::take(&mut self.calls);
            // Stable: calls of one index stay in the order in which they came.
            calls.sort_by_key(|(index, _)| *index);
            let usage = Usage {
                input_tokens: Some(line.prompt_eval_count.unwrap_or(0)),
                output_tokens: Some(line.eval_count.unwrap_or(0)),
                ..Usage::default()
            };
            let calls: Vec<_> = calls.into_iter().map(|(_, call)| call).collect();
            let reason = reason(line.done_reason.unwrap_or_default(), !calls.is_empty());
            self.done = Some(Done { reason, usage, calls });
        }
        Ok(())
    }

    fn call(&mut self, line: u64, call: CallIn<'_>) -> Result<(), ReadError> {
        let CallIn { id, function: FunctionIn { index, name, arguments } } = call;
        let name = name.filter(|name| !name.is_empty()).ok_or(ReadError::Call(line))?;
        let arguments =
            arguments.map_or(Some("{}".to_owned()), arguments_text).ok_or(ReadError::Call(line))?;
        let id = id.unwrap_or_default();
        self.calls_bytes += id.len() + name.len() + arguments.len();
        if self.calls.len() >= CALLS_MAX || self.calls_bytes > TOOL_CALLS_BYTES_MAX {
            return Err(ReadError::TooManyCalls);
        }
        let index = index.unwrap_or(self.calls.len() as u64);
        let call = ToolCall { id, kind: CallKind::Function, function: Call { name, arguments } };
        self.calls.push((index, call));
        Ok(())
    }
}

/// An object as its text; an object in a string, as some servers send it, too.
fn arguments_text(arguments: &RawValue) -> Option<String> {
    let raw = arguments.get();
    match raw.as_bytes().first()? {
        b'{' => Some(raw.to_owned()),
        b'"' => {
            let text: String = serde_json::from_str(raw).ok()?;
            Some(request::object(&text)?.get().to_owned())
        }
        b'n' => Some("{}".to_owned()),
        _ => None,
    }
}

/// The finish reason: `load` and `unload` come for a conversation without messages; older versions give none.
fn reason(told: String, called: bool) -> String {
    match told.as_str() {
        "" | "stop" | "load" | "unload" => if called { "tool_calls" } else { "stop" }.to_owned(),
        _ => told,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As Ollama 0.9 to 0.13 write it; the shape is from its documentation, the words are ours.
    const RECORDED: &str = concat!(
        r#"{"model":"qwen3:8b","created_at":"2025-06-01T10:00:00.123456789Z","message":{"role":"assistant","content":"","thinking":"Two "},"done":false}"#,
        "\n",
        r#"{"model":"qwen3:8b","created_at":"2025-06-01T10:00:00.2Z","message":{"role":"assistant","content":"","thinking":"calls."},"done":false}"#,
        "\n",
        r#"{"model":"qwen3:8b","created_at":"2025-06-01T10:00:00.3Z","message":{"role":"assistant","content":"W\u00e4r\n"},"done":false}"#,
        "\r\n\n",
        "{\"model\":\"qwen3:8b\",\"message\":{\"role\":\"assistant\",\"content\":\"me \u{1f600}\"},\"done\":false,\"later\":[1,{\"x\":null}]}",
        "\n",
        r#"{"message":{"role":"assistant","content":"","tool_calls":[{"id":"call_b","function":{"index":1,"name":"weather","arguments":{"city":"Bonn","z":1,"a":[]}}}]},"done":false}"#,
        "\n",
        r#"{"message":{"role":"assistant","content":"","tool_calls":[{"function":{"index":0,"name":"now","arguments":{}}}]},"done":false}"#,
        "\n",
        r#"{"model":"qwen3:8b","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":5,"load_duration":1,"prompt_eval_count":26,"prompt_eval_duration":3,"eval_count":9,"eval_duration":1}"#,
        "\n",
    );

    fn read(pieces: &[&[u8]]) -> (String, Result<Done, ReadError>) {
        let (mut reader, mut said) = (Reader::default(), Vec::new());
        let mut fed = Ok(());
        for piece in pieces {
            fed = reader.feed(piece, &mut said);
            if fed.is_err() {
                break;
            }
        }
        let result = fed.and_then(|()| reader.finish(&mut said));
        let shown = said.into_iter().map(|part| match part {
            Said::Text(text) => format!("t:{text};"),
            Said::Reasoning(text) => format!("r:{text};"),
        });
        (shown.collect(), result)
    }

    fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
        let function = Call { name: name.to_owned(), arguments: arguments.to_owned() };
        ToolCall { id: id.to_owned(), kind: CallKind::Function, function }
    }

    fn recorded() -> (String, Result<Done, ReadError>) {
        let done = Done {
            reason: "tool_calls".to_owned(),
            usage: Usage { input_tokens: Some(26), output_tokens: Some(9), ..Usage::default() },
            calls: vec![call("", "now", "{}"), call("call_b", "weather", r#"{"city":"Bonn","z":1,"a":[]}"#)],
        };
        ("r:Two ;r:calls.;t:W\u{e4}r\n;t:me \u{1f600};".to_owned(), Ok(done))
    }

    // req: RUN-3, RUN-6
    #[test]
    fn a_recorded_stream_says_the_same_wherever_it_is_cut() {
        let bytes = RECORDED.as_bytes();
        assert_eq!(read(&[bytes]), recorded());
        for cut in 0..=bytes.len() {
            let (left, right) = bytes.split_at(cut);
            assert_eq!(read(&[left, right]), recorded(), "cut at {cut}");
        }
        let single: Vec<_> = bytes.chunks(1).collect();
        assert_eq!(read(&single), recorded());
        // The last line end is no part of the answer.
        assert_eq!(read(&[&bytes[..bytes.len() - 1]]), recorded());
    }

    #[test]
    fn an_end_before_done_is_truncated_wherever_it_comes() {
        let bytes = RECORDED.as_bytes();
        let last = RECORDED.trim_end().rfind('\n').unwrap() + 1;
        for cut in (0..bytes.len() - 1).filter(|cut| *cut < last || bytes[*cut - 1] != b'}') {
            let (said, result) = read(&[&bytes[..cut]]);
            assert_eq!(result, Err(ReadError::Truncated), "cut at {cut}");
            assert!(recorded().0.starts_with(&said), "cut at {cut}");
        }
        assert_eq!(
            Failed::from(ReadError::Truncated),
            Failed::error(ErrorKind::UpstreamTruncated, ReadError::Truncated)
        );
    }

    #[test]
    fn last_lines_become_reasons_and_counts() {
        for (line, reason, input, output) in [
            (r#"{"done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":2}"#, "stop", 3, 2),
            (r#"{"done":true,"done_reason":"length","eval_count":2}"#, "length", 0, 2),
            (r#"{"done":true}"#, "stop", 0, 0),
            (r#"{"done":true,"done_reason":null,"message":null,"error":null}"#, "stop", 0, 0),
            (r#"{"done":true,"done_reason":"load","message":{"content":null}}"#, "stop", 0, 0),
            (r#"{"done":true,"done_reason":"unload"}"#, "stop", 0, 0),
            (r#"{"done":true,"done_reason":"content_filter"}"#, "content_filter", 0, 0),
        ] {
            let done = read(&[line.as_bytes()]).1.unwrap();
            let usage = Usage { input_tokens: Some(input), output_tokens: Some(output), ..Usage::default() };
            assert_eq!((done.reason.as_str(), done.usage), (reason, usage), "{line}");
        }
        let called =
            r#"{"message":{"tool_calls":[{"function":{"name":"f"}}]},"done":true,"done_reason":"length"}"#;
        assert_eq!(read(&[called.as_bytes()]).1.unwrap().reason, "length");
    }

    // req: RUN-3
    #[test]
    fn arguments_become_text_and_what_is_no_object_is_refused() {
        for (arguments, text) in [
            ("{\"a\": 1}", Some("{\"a\": 1}")),
            ("null", Some("{}")),
            (r#""{\"a\":\"\\n\"}""#, Some(r#"{"a":"\n"}"#)),
            (r#""""#, Some("{}")),
            (r#""no""#, None),
            ("[1]", None),
            ("7", None),
        ] {
            let line = format!(
                "{{\"message\":{{\"tool_calls\":[{{\"function\":{{\"name\":\"f\",\"arguments\":{arguments}}}}}]}},\"done\":true}}\n"
            );
            match (read(&[line.as_bytes()]).1, text) {
                (Ok(done), Some(text)) => assert_eq!(done.calls, [call("", "f", text)]),
                (Err(error), None) => assert_eq!(error, ReadError::Call(1)),
                (other, _) => panic!("{arguments}: {other:?}"),
            }
        }
        let unnamed = br#"{"message":{"tool_calls":[{"function":{"arguments":{}}}]},"done":true}"#;
        assert_eq!(read(&[unnamed]).1, Err(ReadError::Call(1)));
    }

    #[test]
    fn an_error_line_ends_the_stream_after_what_was_said_before_it() {
        let stream =
            "{\"message\":{\"content\":\"a\"}}\n{\"error\":\"llama runner\\nterminated\"}\n{\"done\":true}\n";
        let (said, result) = read(&[stream.as_bytes()]);
        assert_eq!(
            (said.as_str(), result),
            ("t:a;", Err(ReadError::Backend("llama runner terminated".to_owned())))
        );
        let last = "{\"message\":{\"content\":\"a\"}}\n{\"error\":\"no line end\"}";
        assert_eq!(read(&[last.as_bytes()]).1, Err(ReadError::Backend("no line end".to_owned())));
    }

    #[test]
    fn what_is_not_of_this_form_is_told_by_its_place_and_never_quoted() {
        for (stream, error) in [
            ("{}\nsecret\n", ReadError::Malformed { line: 2, column: 1 }),
            ("{\"done\":\"secret\"}\n", ReadError::Malformed { line: 1, column: 16 }),
            ("{\"message\":\"secret\"}\n", ReadError::Malformed { line: 1, column: 20 }),
            ("\"secret\"\n", ReadError::Malformed { line: 1, column: 8 }),
        ] {
            let found = read(&[stream.as_bytes()]).1.unwrap_err();
            assert!(!found.to_string().contains("secret"), "{found}");
            let (ReadError::Malformed { line, .. }, ReadError::Malformed { line: expected, .. }) =
                (&found, &error)
            else {
                panic!("{stream}: {found:?}")
            };
            assert_eq!(line, expected, "{stream}");
        }
        assert_eq!(
            read(&[b"{\"message\":{\"content\":\"\xff\"}}\n"]).1,
            Err(ReadError::Malformed { line: 1, column: 24 })
        );
    }

    #[test]
    fn lines_and_calls_are_bounded() {
        let long = vec![b' '; LINE_BYTES_MAX + 1];
        assert_eq!(read(&[&long]).1, Err(ReadError::LineTooLong));
        assert_eq!(read(&[&long[1..], b" \n"]).1, Err(ReadError::LineTooLong));
        assert_eq!(
            read(&[&long[1..], b"\n{\"done\":true}"]).1.map(|done| done.reason),
            Ok("stop".to_owned())
        );
        let many = "{\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}}\n".repeat(CALLS_MAX + 1);
        assert_eq!(read(&[many.as_bytes()]).1, Err(ReadError::TooManyCalls));
        let half = format!(
            "{{\"message\":{{\"tool_calls\":[{{\"function\":{{\"name\":\"f\",\"arguments\":{{\"x\":\"{}\"}}}}}}]}}}}\n",
            "y".repeat(TOOL_CALLS_BYTES_MAX / 2)
        );
        assert_eq!(read(&[half.as_bytes(), half.as_bytes()]).1, Err(ReadError::TooManyCalls));
    }

    #[test]
    fn nothing_counts_after_the_last_line() {
        let stream = "{\"done\":true}\n{\"message\":{\"content\":\"late\"}}\nrubbish";
        let (said, result) = read(&[stream.as_bytes(), b"more"]);
        assert_eq!((said.as_str(), result.is_ok()), ("", true));
    }

    proptest! {
        // req: RUN-1
        #[test]
        fn no_bytes_do_harm_and_cuts_change_nothing(
            lines in prop::collection::vec(
                prop_oneof![
                    Just("{\"message\":{\"content\":\"a\u{e9}\"}}".to_owned()),
                    Just("{\"message\":{\"thinking\":\"b\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}}".to_owned()),
                    Just("{\"done\":true}".to_owned()),
                    Just("{\"error\":null}".to_owned()),
                    "[ -~]{0,20}",
                ],
                0..6,
            ),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let stream = lines.join("\n");
            let bytes = stream.as_bytes();
            let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let pieces: Vec<_> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces), read(&[bytes]));
        }
    }
}
