//! The language of scripts: text in, changes of a [`Script`] out. Pure.
//!
//! A script is a list of directives separated by white space or `;`, each `name` or `name=value`. Directives
//! are applied in order over a base, so a later one wins. The whole grammar stands in `docs/performance.md`;
//! an unknown directive is an error, so that a typing mistake in a test cannot pass as "no fault".
//!
//! Counts named `*-after=N` count *content* events: the role chunk that opens a stream is not counted.

use std::time::Duration;

use super::script::{
    After, BadHead, Body, EVENT_BYTES_MAX, EVENTS_MAX, ErrorShape, Framing, HEADERS_BYTES_MAX, Opening,
    PAUSE_MAX, RAW_BODY_BYTES_MAX, Script, Split, StreamFault, UsagePolicy,
};

/// Why a script was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// There is no such directive.
    #[error("unknown directive {0:?}")]
    Unknown(String),
    /// The directive's value is missing, malformed or over its limit.
    #[error("directive {name:?} does not take the value {value:?}")]
    Value {
        /// The directive's name.
        name: String,
        /// The value as given, empty if there was none.
        value: String,
    },
}

impl Script {
    /// Applies the directives of `text` over `self`.
    ///
    /// # Errors
    /// [`ScriptError`] names the first directive that is unknown or has a bad value; those before it have
    /// been applied.
    pub fn apply(&mut self, text: &str) -> Result<(), ScriptError> {
        for word in text.split(|c: char| c.is_whitespace() || c == ';').filter(|word| !word.is_empty()) {
            let (name, value) =
                word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let directive = Directive { name, value };
            let known = self.apply_pace(directive)?
                || self.apply_shape(directive)?
                || self.apply_head(directive)?
                || self.apply_fault(directive)?
                || self.apply_end(directive)?;
            if !known {
                return Err(ScriptError::Unknown(name.to_owned()));
            }
        }
        Ok(())
    }

    /// The script that `text` makes of the default.
    ///
    /// # Errors
    /// As [`Script::apply`].
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        script.apply(text)?;
        Ok(script)
    }

    fn apply_pace(&mut self, d: Directive<'_>) -> Result<bool, ScriptError> {
        match d.name {
            "prefill" => self.prefill = d.pause(Unit::Milli)?,
            "late-head" => self.late_head = d.flag()?,
            "ping" => self.ping = d.pause(Unit::Milli)?,
            "events" => self.events = d.count(EVENTS_MAX)?,
            "bytes" => self.event_bytes = d.size(EVENT_BYTES_MAX)?,
            "gap" => self.gap = d.pause(Unit::Micro)?,
            "join" => self.join = d.count(EVENTS_MAX)?.max(1),
            "chunk" => self.chunk = d.size(EVENT_BYTES_MAX)?,
            "split" => self.split = d.split()?,
            "split-at" => self.split = Split::At(d.size(EVENT_BYTES_MAX)?),
            "split-gap" => self.split_gap = d.pause(Unit::Micro)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn apply_shape(&mut self, d: Directive<'_>) -> Result<bool, ScriptError> {
        match d.name {
            "stamp" => self.stamp = d.flag()?,
            "reasoning" => self.reasoning = d.count(EVENTS_MAX)?,
            "extras" => self.extras = d.flag()?,
            "crlf" => self.crlf = d.flag()?,
            "bom" => self.bom = d.flag()?,
            "no-role" => self.no_role = d.flag()?,
            "no-finish" => self.no_finish = d.flag()?,
            "no-done" => self.no_done = d.flag()?,
            "data-after-done" => self.data_after_done = d.flag()?,
            "usage" => {
                self.usage = match d.value {
                    Some("always") => UsagePolicy::Always,
                    Some("asked") => UsagePolicy::AsAsked,
                    Some("never") => UsagePolicy::Never,
                    _ => return Err(d.bad_value()),
                }
            }
            "echo" => self.set_body(d, Body::Echo)?,
            "empty-body" => self.set_body(d, Body::Empty)?,
            "raw-body" => self.body = Body::Raw(d.size(RAW_BODY_BYTES_MAX)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn apply_head(&mut self, d: Directive<'_>) -> Result<bool, ScriptError> {
        match d.name {
            "status" => {
                let status = u16::try_from(d.count(999)?).map_err(|_| d.bad_value())?;
                self.status = (status >= 100).then_some(status).ok_or_else(|| d.bad_value())?;
            }
            "error-body" => self.error = Some(d.error_shape()?),
            "retry-after" => self.retry_after = Some(d.count(u32::MAX)?),
            "early-hints" => self.early_hints = d.value.map_or(Ok(1), |_| d.count(10_000))?,
            "headers-bytes" => self.headers_bytes = d.size(HEADERS_BYTES_MAX)?,
            "headers-count" => self.headers_count = d.size(100_000)?,
            "bad-head" => self.bad_head = Some(d.bad_head()?),
            "trailers" => self.trailers = d.flag()?,
            "chunked" => self.set_framing(d, Framing::Chunked)?,
            "content-length" => self.set_framing(d, Framing::ContentLength)?,
            "close-delimited" => self.set_framing(d, Framing::CloseDelimited)?,
            "http10" => {
                self.set_framing(d, Framing::CloseDelimited)?;
                self.http10 = true;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn apply_fault(&mut self, d: Directive<'_>) -> Result<bool, ScriptError> {
        let opening = match d.name {
            "stall-before-headers" => Some(Opening::StallBeforeHeaders),
            "stall-after-headers" => Some(Opening::StallAfterHeaders),
            "garbage" => Some(Opening::Garbage),
            "no-reply" => Some(Opening::NoReply),
            "rst-before-headers" => Some(Opening::Reset),
            _ => None,
        };
        if let Some(opening) = opening {
            d.flag()?;
            self.opening = opening;
            return Ok(true);
        }
        let fault = match d.name {
            "stall-after" => StreamFault::Stall,
            "rst-after" => StreamFault::Reset,
            "truncate-after" => StreamFault::Truncate,
            "clean-eof-after" => StreamFault::CleanEof,
            "garbage-after" => StreamFault::Garbage,
            "bad-chunk-after" => StreamFault::BadChunk,
            "huge-chunk-after" => StreamFault::HugeChunk,
            "error-after" => StreamFault::ErrorEvent,
            "bad-json-after" => StreamFault::BadJson,
            "done-after" => StreamFault::EarlyDone,
            "fault-delay" => {
                self.fault_delay = d.pause(Unit::Milli)?;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        self.fault = Some((d.count(EVENTS_MAX)?, fault));
        Ok(true)
    }

    fn apply_end(&mut self, d: Directive<'_>) -> Result<bool, ScriptError> {
        self.after = match d.name {
            "ignore-abort" => {
                self.ignore_abort = d.pause(Unit::Milli)?;
                return Ok(true);
            }
            "deaf" => {
                self.deaf = d.flag()?;
                return Ok(true);
            }
            "connection-close" => d.flag().map(|_| After::AnnouncedClose)?,
            "drop-next-reused" => d.flag().map(|_| After::DropNext)?,
            "close-after-response" => {
                After::SilentClose(d.value.map_or(Ok(Duration::ZERO), |_| d.pause(Unit::Milli))?)
            }
            _ => return Ok(false),
        };
        Ok(true)
    }

    fn set_body(&mut self, d: Directive<'_>, body: Body) -> Result<(), ScriptError> {
        d.flag()?;
        self.body = body;
        Ok(())
    }

    fn set_framing(&mut self, d: Directive<'_>, framing: Framing) -> Result<(), ScriptError> {
        d.flag()?;
        self.framing = Some(framing);
        Ok(())
    }
}

/// The unit of a pause written without one.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Micro,
    Milli,
}

/// One word of a script.
#[derive(Debug, Clone, Copy)]
struct Directive<'a> {
    name: &'a str,
    value: Option<&'a str>,
}

impl Directive<'_> {
    fn bad_value(self) -> ScriptError {
        ScriptError::Value { name: self.name.to_owned(), value: self.value.unwrap_or_default().to_owned() }
    }

    /// A directive that is on by being there.
    fn flag(self) -> Result<bool, ScriptError> {
        if self.value.is_some() { Err(self.bad_value()) } else { Ok(true) }
    }

    fn count(self, max: u32) -> Result<u32, ScriptError> {
        let count = self.value.and_then(|value| value.parse().ok());
        count.filter(|count| *count <= max).ok_or_else(|| self.bad_value())
    }

    /// Bytes, with `k` and `m` for 1024 and 1024².
    fn size(self, max: usize) -> Result<usize, ScriptError> {
        let value = self.value.unwrap_or_default();
        let (digits, shift) = match value.strip_suffix('k') {
            Some(digits) => (digits, 10),
            None => value.strip_suffix('m').map_or((value, 0), |digits| (digits, 20)),
        };
        let size = digits.parse::<usize>().ok().and_then(|size| size.checked_mul(1 << shift));
        size.filter(|size| *size <= max).ok_or_else(|| self.bad_value())
    }

    /// A pause, with `us`, `ms` and `s` overriding the directive's own unit.
    fn pause(self, unit: Unit) -> Result<Duration, ScriptError> {
        let value = self.value.unwrap_or_default();
        let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
        let (digits, suffix) = value.split_at(end);
        let number: u64 = digits.parse().map_err(|_| self.bad_value())?;
        let pause = match (suffix, unit) {
            ("us", _) | ("", Unit::Micro) => Duration::from_micros(number),
            ("ms", _) | ("", Unit::Milli) => Duration::from_millis(number),
            ("s", _) => Duration::from_secs(number),
            _ => return Err(self.bad_value()),
        };
        if pause > PAUSE_MAX { Err(self.bad_value()) } else { Ok(pause) }
    }

    fn split(self) -> Result<Split, ScriptError> {
        match self.value {
            Some("whole") => Ok(Split::Whole),
            Some("byte") => Ok(Split::Pieces(1)),
            _ => match self.size(EVENT_BYTES_MAX)? {
                0 => Err(self.bad_value()),
                size => Ok(Split::Pieces(size)),
            },
        }
    }

    fn error_shape(self) -> Result<ErrorShape, ScriptError> {
        Ok(match self.value {
            None | Some("openai") => ErrorShape::OpenAi,
            Some("empty") => ErrorShape::Empty,
            Some("html") => ErrorShape::Html,
            Some("llamacpp") => ErrorShape::LlamaCpp,
            Some("ollama") => ErrorShape::Ollama,
            Some("sglang") => ErrorShape::Sglang,
            Some("text") => ErrorShape::Text,
            Some("vllm") => ErrorShape::Vllm,
            Some(_) => return Err(self.bad_value()),
        })
    }

    fn bad_head(self) -> Result<BadHead, ScriptError> {
        Ok(match self.value {
            Some("cl-te") => BadHead::ClAndTe,
            Some("double-cl") => BadHead::DoubleCl,
            Some("lf-only") => BadHead::LfOnly,
            Some("name") => BadHead::Name,
            Some("nul") => BadHead::Nul,
            Some("obs-fold") => BadHead::ObsFold,
            Some("signed-cl") => BadHead::SignedCl,
            Some("status") => BadHead::Status,
            Some("te") => BadHead::Te,
            Some("version") => BadHead::Version,
            _ => return Err(self.bad_value()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_separated_by_space_or_semicolon_and_the_later_wins() {
        let script = Script::parse("events=3; gap=20000 bytes=1k;;events=10 split=byte\nprefill=5s").unwrap();
        let expected = Script {
            events: 10,
            event_bytes: 1024,
            gap: Duration::from_millis(20),
            split: Split::Pieces(1),
            prefill: Duration::from_secs(5),
            ..Script::default()
        };
        assert_eq!(script, expected);
    }

    #[test]
    fn units_default_per_directive_and_can_be_written() {
        let script = Script::parse("prefill=7 gap=7 ignore-abort=250us").unwrap();
        assert_eq!(script.prefill, Duration::from_millis(7));
        assert_eq!(script.gap, Duration::from_micros(7));
        assert_eq!(script.ignore_abort, Duration::from_micros(250));
    }

    #[test]
    fn faults_carry_the_number_of_events_before_them() {
        for (text, fault) in [
            ("stall-after=2", StreamFault::Stall),
            ("rst-after=2", StreamFault::Reset),
            ("truncate-after=2", StreamFault::Truncate),
            ("clean-eof-after=2", StreamFault::CleanEof),
            ("garbage-after=2", StreamFault::Garbage),
            ("bad-chunk-after=2", StreamFault::BadChunk),
            ("huge-chunk-after=2", StreamFault::HugeChunk),
            ("error-after=2", StreamFault::ErrorEvent),
            ("bad-json-after=2", StreamFault::BadJson),
            ("done-after=2", StreamFault::EarlyDone),
        ] {
            assert_eq!(Script::parse(text).unwrap().fault, Some((2, fault)), "{text}");
        }
    }

    #[test]
    fn mistakes_are_named_not_ignored() {
        assert_eq!(Script::parse("evnets=3"), Err(ScriptError::Unknown("evnets".to_owned())));
        for text in [
            "events",
            "events=x",
            "events=-1",
            "events=10000001",
            "split=0",
            "split=",
            "status=99",
            "status=1000",
            "raw-body=257m",
            "prefill=2h",
            "prefill=3601s",
            "gap=",
            "echo=1",
            "error-body=soap",
            "bad-head=x",
            "usage=maybe",
            "rst-after",
            "garbage=1",
        ] {
            assert!(matches!(Script::parse(text), Err(ScriptError::Value { .. })), "{text}");
        }
    }

    #[test]
    fn every_end_and_body_directive_is_understood() {
        for (text, after) in [
            ("connection-close", After::AnnouncedClose),
            ("drop-next-reused", After::DropNext),
            ("close-after-response", After::SilentClose(Duration::ZERO)),
            ("close-after-response=5", After::SilentClose(Duration::from_millis(5))),
        ] {
            assert_eq!(Script::parse(text).unwrap().after, after, "{text}");
        }
        for (text, body) in
            [("echo", Body::Echo), ("empty-body", Body::Empty), ("raw-body=2k", Body::Raw(2048))]
        {
            assert_eq!(Script::parse(text).unwrap().body, body, "{text}");
        }
        assert!(Script::parse("deaf").unwrap().deaf && !Script::default().deaf);
        let http10 = Script::parse("http10").unwrap();
        assert!(http10.http10 && http10.framing == Some(Framing::CloseDelimited));
    }
}
