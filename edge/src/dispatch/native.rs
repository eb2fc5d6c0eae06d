//! A request on a native backend: its input before, its answer after. No I/O.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use control::effect::Grant;
use dataplane::{clock, http::body::Body};
use proto::{
    limits::SESSION_ID_BYTES_MAX,
    message::{Header, RunEvent, RunEventKind, RunRequest},
};

use super::{
    keepalive::{KeepAlive, Silence},
    reading::Input,
    session::{Plan, whole_seconds},
};
use crate::{
    config::settings::OpenAi,
    openai::normalized::{
        answer::{Answer, AnswerError, Asked, Piece},
        chat::{Chat, Shape},
    },
    reply::Fault,
    usage::{Counts, Observed},
};

/// Names what belongs together for the client, as opencode and others send it. Passed on, and never looked at (RUN-5).
const SESSION_HEADER: &str = "x-session-id";

/// The answer of one dispatch as its client gets it.
#[derive(Debug)]
pub(super) struct Native {
    answer: Answer,
    chat: Chat,
    pieces: Vec<Piece>,
    /// `None` for an answer in one piece: nothing can be said before it.
    silence: Option<Silence>,
    /// What the client gets next.
    pub(super) out: Vec<u8>,
    counts: Counts,
    said_something: bool,
}

/// A request made ready for a Node.
pub(super) struct Prepared {
    pub(super) native: Box<Native>,
    pub(super) request: Box<RunRequest>,
    pub(super) input: Body,
}

/// Makes a run of the request.
pub(super) fn prepare(plan: &Plan, grant: &Grant, openai: &OpenAi, input: Input) -> Prepared {
    let Input { json, tools, single_call, include_usage, legacy_functions, metadata } = input;
    let id = plan.request_id.trim_start_matches("req_");
    let shape = Shape {
        id: format!("chatcmpl-{id}"),
        created: clock::unix_seconds(),
        model: plan.scan.model.as_str().into(),
        stream: plan.scan.stream,
        include_usage,
        legacy_functions,
    };
    let answer = Answer::new(Asked {
        request: Arc::clone(&plan.request_id),
        whole: !plan.scan.stream,
        single_call,
        tools,
    });
    let silence =
        shape.stream.then(|| Silence::new(openai.keepalive_comment, openai.keepalive_event, clock::now()));
    let chat = Chat::new(shape);
    let native = Native {
        answer,
        chat,
        pieces: Vec::new(),
        silence,
        out: Vec::new(),
        counts: Counts::default(),
        said_something: false,
    };
    let request = RunRequest {
        stream: 0,
        run_id: plan.request_id.to_string(),
        // Never the client's words: what runs is what control granted (RUN-2, RUN-7).
        adapter: grant.adapter.to_string(),
        target: grant.target.to_string(),
        input: Bytes::new(),
        input_bytes: 0,
        metadata,
        session_id: session_id(&plan.headers),
        timeout_sec: whole_seconds(grant.request_timeout),
        response_stall_timeout_ms: i64::try_from(grant.stall_timeout.as_millis()).unwrap_or(i64::MAX),
        window_bytes: 0,
        credential: None,
    };
    Prepared { native: Box::new(native), request: Box::new(request), input: Body::from(json) }
}

impl Native {
    /// Takes an event; whether it was the last one. What the client gets of it is in `out`.
    ///
    /// # Errors
    /// The answer is of no use from here on.
    pub(super) fn event(&mut self, event: RunEvent) -> Result<bool, Fault> {
        let finish = self.answer.event(event, &mut self.pieces).map_err(|error| match error {
            AnswerError::TooLong => Fault::AnswerTooLong,
            AnswerError::Calls => Fault::UpstreamProtocol,
        })?;
        self.said_something |= !self.pieces.is_empty();
        for piece in self.pieces.drain(..) {
            self.chat.piece(piece, &mut self.out);
        }
        if let Some(finish) = &finish {
            self.counts = finish.usage.map(Counts::from).unwrap_or_default();
            self.chat.finish(finish, &mut self.out);
        }
        if let Some(silence) = self.silence.as_mut().filter(|_| !self.out.is_empty()) {
            silence.broken(clock::now());
        }
        Ok(finish.is_some())
    }

    /// What is known of the tokens.
    pub(super) fn observed(&self, is_whole: bool) -> Observed {
        Observed::new(self.counts, is_whole, self.said_something)
    }

    /// When to look next whether the client has heard something lately.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.silence.as_ref().map(Silence::next)
    }

    /// What has to be said to a client that has heard nothing for too long; an event is in `out`.
    pub(super) fn keep_alive(&mut self, now: Instant) -> Option<KeepAlive> {
        let due = self.silence.as_mut()?.due(now)?;
        if let (KeepAlive::Event, Chat::Stream(stream)) = (due, &mut self.chat) {
            stream.keep_alive(&mut self.out);
        }
        Some(due)
    }

    /// Whether the backend was asked for its calls in text (RUN-4).
    pub(super) fn has_text_tools(&self) -> bool {
        self.answer.has_text_tools()
    }

    /// The head of the answer, as if a provider had sent it. One that comes in one piece has this length.
    pub(super) fn headers_of(&self, length: usize) -> Vec<Header> {
        let header = |name: &str, value: String| Header { name: name.to_owned(), value: value.into() };
        match &self.chat {
            Chat::Stream(_) => vec![header("content-type", "text/event-stream".to_owned())],
            Chat::Whole(_) => vec![
                header("content-type", "application/json".to_owned()),
                header("content-length", length.to_string()),
            ],
        }
    }
}

fn session_id(headers: &[Header]) -> String {
    let named = headers.iter().find(|header| header.name == SESSION_HEADER);
    let text = named.and_then(|header| std::str::from_utf8(&header.value).ok());
    text.filter(|text| text.len() <= SESSION_ID_BYTES_MAX).unwrap_or_default().to_owned()
}

/// What an event cost of its run's credit (WIR-6).
pub(super) fn cost(event: &RunEvent) -> usize {
    match &event.kind {
        RunEventKind::Delta { text, reasoning } => text.len() + reasoning.len(),
        _ => 0,
    }
}
