//! A provider's answer to a chat completion request that the Edge wrote, from its head to its end. No I/O.

use std::sync::Arc;

use control::recovery::ErrorClass;
use proto::message::Header;

use crate::{
    gate::provider_error,
    openai::normalized::answer::{Finish, Piece},
    reply::Fault,
    response,
    translate::{
        answer::{Form, Reader, Trouble},
        refusal::{self, ProviderError, ProviderErrorKind},
    },
};

/// Longest wait that a client is told, in seconds: SDKs give up at more, or take no notice of it (api.md §0.1 rule 11).
const RETRY_AFTER_MAX: u8 = 60;

/// Follows one answer.
#[derive(Debug)]
pub(super) struct Translated {
    request: Arc<str>,
    single_call: bool,
    /// The client wants it in one piece.
    gathered: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// No head yet.
    Before,
    Answer(Box<Reader>),
    /// It is none: what it says instead.
    Refusal {
        status: u16,
        retry_after: Option<u8>,
        body: Vec<u8>,
    },
}

impl Translated {
    /// Before its head.
    pub(super) fn new(request: Arc<str>, single_call: bool, gathered: bool) -> Self {
        Self { request, single_call, gathered, state: State::Before }
    }

    /// Takes the head. How the answer comes is what it says, whatever was asked for.
    pub(super) fn head(&mut self, status: u16, headers: &[Header]) {
        self.state = if status == 200 {
            let mut kinds = headers.iter().filter(|header| header.name == "content-type");
            let is_stream = kinds.any(|header| response::names(&header.value, "text/event-stream"));
            let form = if is_stream { Form::Events } else { Form::Whole };
            let reader = Reader::new(form, Arc::clone(&self.request), self.single_call, self.gathered);
            State::Answer(Box::new(reader))
        } else {
            State::Refusal { status, retry_after: retry_after(headers), body: Vec::new() }
        };
    }

    /// What an error of it is to a filter. One in a stream that nothing is known of may be tried elsewhere once.
    pub(super) fn class_of(&self, error: &ProviderError) -> ErrorClass {
        if error.kind == ProviderErrorKind::ContextTooLong {
            return ErrorClass::Client;
        }
        match &self.state {
            State::Refusal { status, body, .. } => provider_error::of_status(*status, &[], body),
            State::Before | State::Answer(_) => match (error.kind, error.status) {
                (_, 401 | 403) => ErrorClass::Credential,
                (ProviderErrorKind::Quota, _) | (_, 429 | 503 | 529) => ErrorClass::Backpressure,
                (ProviderErrorKind::ModelNotFound, _) => ErrorClass::Client,
                _ => ErrorClass::InBand,
            },
        }
    }

    /// Takes more of the body; appends what it says. `Some` at its end.
    ///
    /// # Errors
    /// It is of no use from here on.
    pub(super) fn body(&mut self, bytes: &[u8], pieces: &mut Vec<Piece>) -> Result<Option<Finish>, Fault> {
        match &mut self.state {
            State::Before => Err(Fault::UpstreamProtocol),
            State::Answer(reader) => reader.push(bytes, pieces).map_err(Fault::from),
            State::Refusal { body, .. } => {
                // Of a longer one nothing is read.
                let room = (refusal::BODY_BYTES_MAX + 1).saturating_sub(body.len());
                body.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
                Ok(None)
            }
        }
    }

    /// The body is over; appends what that says. `Some` where that is the end of the answer.
    ///
    /// # Errors
    /// It is no answer, or not all of one.
    pub(super) fn end(&mut self, pieces: &mut Vec<Piece>) -> Result<Option<Finish>, Fault> {
        match &mut self.state {
            State::Before => Err(Fault::UpstreamProtocol),
            State::Answer(reader) => reader.end(pieces).map_err(Fault::from),
            State::Refusal { status, retry_after, body } => {
                Err(Fault::Provider { error: refusal::of_body(*status, body), retry_after: *retry_after })
            }
        }
    }
}

impl From<Trouble> for Fault {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Failed(error) => Self::Provider { error, retry_after: None },
            Trouble::Malformed => Self::UpstreamProtocol,
            Trouble::Cut => Self::UpstreamTruncated,
            Trouble::TooLong => Self::AnswerTooLong,
        }
    }
}

/// When a provider wants to be asked again, in seconds of 1 to 60. A date is none: clocks differ.
fn retry_after(headers: &[Header]) -> Option<u8> {
    let header = headers.iter().find(|header| header.name == "retry-after")?;
    let text = str::from_utf8(&header.value).ok()?.trim();
    let whole = text.split('.').next().unwrap_or(text);
    if whole.is_empty() || !whole.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(whole.parse().unwrap_or(RETRY_AFTER_MAX).clamp(1, RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, value: &str) -> Header {
        Header { name: name.to_owned(), value: value.as_bytes().to_vec().into() }
    }

    fn told(status: u16, headers: &[Header], pieces: &[&[u8]]) -> (Vec<Piece>, Result<Finish, Fault>) {
        let mut translated = Translated::new("req_1".into(), false, true);
        translated.head(status, headers);
        let (mut said, mut finish) = (Vec::new(), None);
        for bytes in pieces {
            match translated.body(bytes, &mut said) {
                Ok(end) => finish = finish.or(end),
                Err(fault) => return (said, Err(fault)),
            }
        }
        let end = translated.end(&mut said);
        (said, end.map(|end| finish.or(end).expect("an answer ends")))
    }

    #[test]
    fn an_answer_is_read_as_its_head_says_that_it_comes() {
        let stream: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n";
        let whole: &[u8] = b"{\"choices\":[{\"message\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}";
        for (kind, body) in [
            ("text/event-stream; charset=utf-8", stream),
            ("Text/Event-Stream", stream),
            ("application/json", whole),
            ("text/plain", whole),
        ] {
            let (said, finish) = told(200, &[header("content-type", kind)], &[body]);
            assert_eq!(said, [Piece::Text("a".to_owned())], "{kind}");
            assert!(finish.is_ok(), "{kind}");
        }
        assert!(told(200, &[], &[whole]).1.is_ok());
    }

    #[test]
    fn a_refusal_is_told_with_its_status_its_words_and_when_to_come_back() {
        let body: &[u8] = b"{\"error\":{\"message\":\"slow down\"}}";
        for (value, expected) in [
            ("7", Some(7)),
            ("0", Some(1)),
            ("90", Some(60)),
            ("1.5", Some(1)),
            ("99999999999999999999", Some(60)),
            ("-1", None),
            ("", None),
            ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ] {
            let (said, refused) = told(429, &[header("retry-after", value)], &[&body[..9], &body[9..]]);
            let Err(Fault::Provider { error, retry_after }) = refused else { panic!("{refused:?}") };
            assert_eq!((error.status, &*error.words, retry_after), (429, "slow down", expected), "{value}");
            assert!(said.is_empty());
        }
        for status in [204, 302, 101] {
            let Err(Fault::Provider { error, .. }) = told(status, &[], &[]).1 else { panic!("{status}") };
            assert_eq!((error.status, error.kind), (502, ProviderErrorKind::Other), "{status}");
        }
        let endless = vec![b'x'; 100_000];
        assert!(matches!(told(500, &[], &[&endless, &endless]).1, Err(Fault::Provider { .. })));
    }

    // req: API-1
    #[test]
    fn what_is_no_answer_is_a_failure() {
        let stream = [header("content-type", "text/event-stream")];
        let said: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
        for (pieces, outcome) in [
            (&[said][..], "upstream_truncated"),
            (&[said, b"data: {}}\n\n"], "upstream_protocol"),
            (&[said, b"data: {\"error\":{\"message\":\"x\"}}\n\n"], "provider_failed"),
            (&[], "upstream_truncated"),
        ] {
            assert_eq!(told(200, &stream, pieces).1.unwrap_err().outcome(), outcome);
        }
        let mut headless = Translated::new("req_1".into(), false, true);
        assert_eq!(headless.end(&mut Vec::new()).unwrap_err().outcome(), "upstream_protocol");
    }
}
