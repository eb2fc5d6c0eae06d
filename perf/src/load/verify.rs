//! Whether a reply is what the provider sent: the server-sent-event reader and the checks on each event.
//! Pure.

use std::borrow::Cow;

use serde::Deserialize;

use crate::digest::{SEAL_PREFIX, Seal};

/// The largest event accepted. Unit: bytes.
pub const EVENT_BYTES_MAX: usize = 8 << 20;

/// Why a request counts as an error. The names are the keys of the report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Failure {
    /// The connection could not be made.
    #[error("connect")]
    Connect,
    /// The request could not be written.
    #[error("write")]
    Write,
    /// It was due while as many requests as allowed were in flight; it was not sent.
    #[error("max_in_flight")]
    MaxInFlight,
    /// The reply was not complete within the time limit.
    #[error("timeout")]
    Timeout,
    /// The connection ended without a byte of response.
    #[error("closed_before_head")]
    ClosedBeforeHead,
    /// The connection was reset without a byte of response.
    #[error("reset_before_head")]
    ResetBeforeHead,
    /// The response head is not HTTP/1.1 or contradicts itself.
    #[error("bad_head")]
    BadHead,
    /// A status other than 200.
    #[error("status_{0}")]
    Status(u16),
    /// A stream that is no `text/event-stream`.
    #[error("not_sse")]
    NotSse,
    /// Broken chunked coding.
    #[error("bad_chunk")]
    BadChunk,
    /// The connection ended within the body.
    #[error("truncated")]
    Truncated,
    /// The connection was reset within the body.
    #[error("reset")]
    Reset,
    /// An event exceeds the size that is accepted.
    #[error("event_too_large")]
    EventTooLarge,
    /// An event or body that is not a completion.
    #[error("bad_json")]
    BadJson,
    /// An error object in the stream, with its code.
    #[error("error_event_{0}")]
    ErrorEvent(String),
    /// The stream ended in good order without `[DONE]`.
    #[error("no_done")]
    NoDone,
    /// Something followed `[DONE]`.
    #[error("data_after_done")]
    DataAfterDone,
    /// The text is not the text that the provider sealed.
    #[error("wrong_text")]
    WrongText,
    /// A stream has another number of content events than was asked for.
    #[error("wrong_event_count")]
    WrongCount,
    /// There is no seal although one was demanded.
    #[error("no_seal")]
    NoSeal,
}

/// Cuts a byte stream into server-sent events. LF and CRLF end a line.
#[derive(Debug, Default)]
pub struct EventReader {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// Comment lines seen.
    pub comments: u64,
}

impl EventReader {
    /// Reads `input` and hands the data of each complete event to `on_event`.
    ///
    /// # Errors
    /// [`Failure::EventTooLarge`] over [`EVENT_BYTES_MAX`], and whatever `on_event` returns.
    pub fn read(
        &mut self,
        mut input: &[u8],
        mut on_event: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        while let Some(end) = input.iter().position(|&b| b == b'\n') {
            let (line, rest) = input.split_at(end);
            input = rest.get(1..).unwrap_or_default();
            if self.line.is_empty() {
                self.take_line(line, &mut on_event)?;
            } else {
                self.line.extend_from_slice(line);
                let line = std::mem::take(&mut self.line);
                self.take_line(&line, &mut on_event)?;
            }
        }
        self.line.extend_from_slice(input);
        if self.line.len() + self.data.len() > EVENT_BYTES_MAX { Err(Failure::EventTooLarge) } else { Ok(()) }
    }

    /// Whether the input so far ends between two events.
    #[must_use]
    pub fn is_between_events(&self) -> bool {
        self.line.is_empty() && !self.has_data
    }

    fn take_line(
        &mut self,
        line: &[u8],
        on_event: &mut impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                let data = std::mem::take(&mut self.data);
                on_event(&data)?;
                // The allocation serves the next event.
                self.data = data;
                self.data.clear();
            }
        } else if let Some(value) = line.strip_prefix(b"data:") {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        } else if line.starts_with(b":") {
            self.comments += 1;
        }
        if self.data.len() > EVENT_BYTES_MAX { Err(Failure::EventTooLarge) } else { Ok(()) }
    }
}

/// What is read of a chunk or a whole completion.
#[derive(Debug, Deserialize)]
struct Completion<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow, default)]
    system_fingerprint: Option<Cow<'a, str>>,
    /// Sending time, nanoseconds since 1970.
    #[serde(default)]
    t: Option<u64>,
    #[serde(default)]
    error: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    delta: Option<Text<'a>>,
    #[serde(borrow, default)]
    message: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
struct Text<'a> {
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
}

/// What one event told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// When the provider sent it, if it says so. Unit: ns since 1970.
    pub sent: Option<u64>,
}

/// The checks on one reply.
#[derive(Debug, Default)]
pub struct Check {
    seal: Seal,
    sealed: Option<bool>,
    done: bool,
    /// `data` events, `[DONE]` included.
    pub events: u64,
}

impl Check {
    /// Checks the data of one event.
    ///
    /// # Errors
    /// The [`Failure`] that the event proves.
    pub fn handle_event(&mut self, data: &[u8]) -> Result<Seen, Failure> {
        self.events += 1;
        if self.done {
            return Err(Failure::DataAfterDone);
        }
        if data == b"[DONE]" {
            self.done = true;
            return Ok(Seen { sent: None });
        }
        let chunk: Completion<'_> = serde_json::from_slice(data).map_err(|_| Failure::BadJson)?;
        if let Some(error) = chunk.error {
            return Err(Failure::ErrorEvent(error_code(&error)));
        }
        let choices = chunk.choices.ok_or(Failure::BadJson)?;
        for text in choices.iter().filter_map(|choice| choice.delta.as_ref()?.content.as_deref()) {
            // The role chunk carries an empty content, which is no content event.
            if !text.is_empty() {
                self.seal.add(text);
            }
        }
        self.compare_seal(chunk.system_fingerprint.as_deref());
        Ok(Seen { sent: chunk.t })
    }

    /// Checks a whole reply.
    ///
    /// # Errors
    /// The [`Failure`] that the body proves.
    pub fn handle_whole(&mut self, body: &[u8]) -> Result<(), Failure> {
        let whole: Completion<'_> = serde_json::from_slice(body).map_err(|_| Failure::BadJson)?;
        let choices = whole.choices.ok_or(Failure::BadJson)?;
        let text = choices.first().and_then(|choice| choice.message.as_ref()?.content.as_deref());
        let text = text.ok_or(Failure::BadJson)?;
        if let Some(seal) = whole.system_fingerprint.as_deref().filter(|seal| seal.starts_with(SEAL_PREFIX)) {
            // The whole text is one piece here: the number of events in the seal cannot be compared.
            let mut own = Seal::default();
            own.add(text);
            self.sealed = Some(without_events(&own.fingerprint()) == without_events(seal));
        }
        self.done = true;
        Ok(())
    }

    /// The verdict once the body has ended in good order: whether a seal proved the text.
    ///
    /// # Errors
    /// [`Failure::NoDone`], [`Failure::WrongText`], or [`Failure::NoSeal`] if `seal_demanded`.
    pub fn finish(&self, seal_demanded: bool) -> Result<bool, Failure> {
        match (self.done, self.sealed) {
            (false, _) => Err(Failure::NoDone),
            (true, Some(false)) => Err(Failure::WrongText),
            (true, None) if seal_demanded => Err(Failure::NoSeal),
            (true, sealed) => Ok(sealed.is_some()),
        }
    }

    /// Content events so far.
    #[must_use]
    pub fn content_events(&self) -> u64 {
        self.seal.events
    }

    fn compare_seal(&mut self, fingerprint: Option<&str>) {
        if let Some(seal) = fingerprint.filter(|seal| seal.starts_with(SEAL_PREFIX)) {
            self.sealed = Some(self.seal.fingerprint() == seal);
        }
    }
}

/// A seal without its count of events.
fn without_events(seal: &str) -> Option<(&str, &str)> {
    let (digest, rest) = seal.strip_prefix(SEAL_PREFIX)?.split_once('-')?;
    Some((digest, rest.split_once('-')?.1))
}

/// The code of a refusal's error object; empty if it has none.
pub(super) fn refusal_code(body: &[u8]) -> String {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    body.get("error").map(error_code).unwrap_or_default()
}

/// The `code` of an error object, kept short: it becomes a key of the report.
fn error_code(error: &serde_json::Value) -> String {
    const CODE_CHARS_MAX: usize = 64;
    let code = error.get("code").filter(|code| !code.is_null()).or_else(|| error.get("type"));
    let code =
        code.map_or_else(String::new, |code| code.as_str().map_or_else(|| code.to_string(), str::to_owned));
    code.chars().take(CODE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::completion::{Completion as Source, CompletionFacts};
    use crate::provider::{Script, plan::Plan};

    fn source(script: &Script) -> Source {
        let facts =
            CompletionFacts { number: 1, model: "m", created: 1, prompt_bytes: 1, include_usage: true };
        Source::new(&facts, script)
    }

    fn stream(text: &str) -> Vec<u8> {
        let script = Script::parse(text).unwrap();
        let mut plan = Plan::new(source(&script), &script);
        let mut out = Vec::new();
        while plan.put_next(&mut out, 7).is_some() {}
        out
    }

    fn check(bytes: &[u8], step: usize) -> Result<bool, Failure> {
        let (mut reader, mut check) = (EventReader::default(), Check::default());
        for piece in bytes.chunks(step) {
            reader.read(piece, |data| check.handle_event(data).map(|_| ()))?;
        }
        assert!(reader.is_between_events());
        check.finish(true)
    }

    #[test]
    fn every_split_of_a_good_stream_is_verified() {
        for text in ["events=3", "events=3 crlf stamp extras reasoning=2", "events=0"] {
            let bytes = stream(text);
            for step in [1, 2, 3, 7, 100, bytes.len()] {
                assert_eq!(check(&bytes, step), Ok(true), "{text} in steps of {step}");
            }
        }
    }

    #[test]
    fn loss_doubling_and_change_of_text_are_found() {
        let text = String::from_utf8(stream("events=4")).unwrap();
        let events: Vec<&str> = text.split_inclusive("\n\n").collect();
        let verdict = |events: &[&str]| check(events.concat().as_bytes(), 50);
        let lost: Vec<&str> = events.iter().enumerate().filter(|(i, _)| *i != 2).map(|(_, e)| *e).collect();
        let mut doubled = events.clone();
        doubled.insert(2, events[2]);
        let mut swapped = events.clone();
        swapped.swap(1, 2);
        for wrong in [&lost, &doubled, &swapped] {
            assert_eq!(verdict(wrong), Err(Failure::WrongText));
        }
        assert_eq!(check(text.replace('é', "\u{fffd}").as_bytes(), 9), Err(Failure::WrongText));
    }

    #[test]
    fn broken_streams_fail_by_their_own_names() {
        let verdict = |text: &str| check(text.as_bytes(), 11);
        assert_eq!(verdict("data: {\"choices\":[]}\n\n"), Err(Failure::NoDone));
        assert_eq!(verdict("data: [DONE]\n\n"), Err(Failure::NoSeal));
        assert_eq!(verdict("data: [DONE]\n\ndata: {}\n\n"), Err(Failure::DataAfterDone));
        assert_eq!(verdict("data: {\"choi\n\n"), Err(Failure::BadJson));
        assert_eq!(verdict("data: {}\n\n"), Err(Failure::BadJson));
        for (error, code) in [(r#"{"code":"x"}"#, "x"), (r#"{"code":429}"#, "429"), (r#"{"type":"t"}"#, "t")]
        {
            let event = format!("data: {{\"error\":{error}}}\n\n");
            assert_eq!(verdict(&event), Err(Failure::ErrorEvent(code.to_owned())));
        }
    }

    #[test]
    fn comments_are_counted_and_data_lines_joined() {
        let mut reader = EventReader::default();
        let mut events = Vec::new();
        let input = b": ping\n\nevent: x\ndata: a\ndata:b\n\n\n\ndata: c";
        reader
            .read(input, |data| {
                events.push(data.to_vec());
                Ok(())
            })
            .unwrap();
        assert_eq!((events, reader.comments), (vec![b"a\nb".to_vec()], 1));
        assert!(!reader.is_between_events());
    }

    #[test]
    fn whole_replies_are_verified_by_their_seal() {
        let script = Script::parse("events=5").unwrap();
        let whole = source(&script).whole(5);
        let verdict = |body: &str| {
            let mut check = Check::default();
            check.handle_whole(body.as_bytes()).and_then(|()| check.finish(true))
        };
        assert_eq!(verdict(&whole), Ok(true));
        assert_eq!(verdict(&whole.replace("token", "tokem")), Err(Failure::WrongText));
        assert_eq!(verdict("{}"), Err(Failure::BadJson));
        assert_eq!(verdict(&whole.replace("perf-", "fp-")), Err(Failure::NoSeal));
    }
}
