//! An answer that the Edge writes itself: of a normalized run, or of a chat completion for a client of another surface. No I/O.

use std::{sync::Arc, time::Instant};

use dataplane::clock;
use proto::message::{Header, RunEvent, RunEventKind};

use super::{
    held::Head,
    keepalive::{KeepAlive, Silence},
    reading::Manner,
    session::Plan,
    translated::Translated,
    writer::Writer,
};
use crate::{
    config::settings::OpenAi,
    openai::normalized::answer::{Answer, AnswerError, Asked, Finish, Piece},
    reply::Fault,
    usage::{Counts, Observed},
};

/// An answer as its client gets it: of one dispatch, or of several of which each goes on where the one before failed.
#[derive(Debug)]
pub(super) struct Written {
    source: Source,
    writer: Writer,
    pieces: Vec<Piece>,
    /// `None` for an answer in one piece: nothing can be said before it.
    silence: Option<Silence>,
    /// Its end has been written.
    is_finished: bool,
    counts: Counts,
    said_something: bool,
    /// The client has been given something, perhaps no content.
    has_begun: bool,
    /// What the client gets next.
    out: Vec<u8>,
}

/// Whose answer it is.
#[derive(Debug)]
enum Source {
    /// A native backend's, as events of a run.
    Run(Box<Answer>),
    /// A chat completion, as frames of a tunnel.
    Chat(Translated),
}

impl Written {
    /// Before the first word of it. `is_chat` = it is a chat completion, `tools` are the functions that a run may call.
    pub(super) fn new(
        plan: &Plan,
        openai: &OpenAi,
        (is_chat, single_call): (bool, bool),
        tools: Vec<String>,
        manner: Manner,
    ) -> Self {
        let source = Source::new(plan, (is_chat, single_call), tools);
        let writer = Writer::new(plan, manner);
        let silence = writer
            .is_stream()
            .then(|| Silence::new(openai.keepalive_comment, openai.keepalive_event, clock::now()));
        Self {
            source,
            writer,
            pieces: Vec::new(),
            silence,
            is_finished: false,
            counts: Counts::default(),
            said_something: false,
            has_begun: false,
            out: Vec::new(),
        }
    }

    /// Goes on with what another dispatch says: its client is in the middle of this answer, if only by an event without content.
    pub(super) fn go_on(&mut self, plan: &Plan, (is_chat, single_call): (bool, bool), tools: Vec<String>) {
        self.source = Source::new(plan, (is_chat, single_call), tools);
        self.pieces.clear();
    }

    /// Whether its client has been given a part of it, so that no other answer can take its place.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether there is content in what its client has been given or gets next: not of an answer in one piece before its end.
    pub(super) fn has_content(&self) -> bool {
        self.is_finished || self.said_something && self.writer.is_stream()
    }

    /// Whether its end has been written.
    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// What the client gets next.
    pub(super) fn take_out(&mut self) -> Vec<u8> {
        self.has_begun |= !self.out.is_empty();
        std::mem::take(&mut self.out)
    }

    /// Takes the room of what was taken out back.
    pub(super) fn give_back(&mut self, emptied: Vec<u8>) {
        self.out = emptied;
    }

    /// Whether it comes as events of a run.
    pub(super) fn is_run(&self) -> bool {
        matches!(self.source, Source::Run(_))
    }

    /// Takes an event of a run; whether it was the last one. What the client gets of it is to be taken out.
    ///
    /// # Errors
    /// The answer is of no use from here on.
    pub(super) fn event(&mut self, event: RunEvent) -> Result<bool, Fault> {
        // A Node that answers a tunnel as if it were a run.
        let Source::Run(answer) = &mut self.source else { return Err(Fault::UpstreamProtocol) };
        let finish = answer.event(event, &mut self.pieces).map_err(fault_of)?;
        let is_last = finish.is_some();
        self.write(finish)?;
        Ok(is_last)
    }

    /// Takes the head of a tunnelled answer.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn head(&mut self, status: u16, headers: &[Header]) -> Result<(), Fault> {
        self.chat()?.head(status, headers);
        Ok(())
    }

    /// Takes more of a tunnelled answer. What the client gets of it is to be taken out.
    ///
    /// # Errors
    /// The answer is of no use from here on.
    pub(super) fn body(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let Source::Chat(chat) = &mut self.source else { return Err(Fault::UpstreamProtocol) };
        let read = chat.body(bytes, &mut self.pieces);
        // What was said before it went wrong has been said.
        self.write(read.as_ref().ok().copied().flatten())?;
        read.map(|_| ())
    }

    /// A tunnelled answer is over. What the client gets of that is to be taken out.
    ///
    /// # Errors
    /// It is none, or not all of one.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        let Source::Chat(chat) = &mut self.source else { return Err(Fault::UpstreamProtocol) };
        let read = chat.end(&mut self.pieces);
        self.write(read.as_ref().ok().copied().flatten())?;
        read.map(|_| ())
    }

    fn chat(&mut self) -> Result<&mut Translated, Fault> {
        match &mut self.source {
            Source::Chat(chat) => Ok(chat),
            // A Node that answers a run as if it were a tunnel.
            Source::Run(_) => Err(Fault::UpstreamProtocol),
        }
    }

    fn write(&mut self, finish: Option<Finish>) -> Result<(), Fault> {
        self.said_something |= self.pieces.iter().any(is_content);
        for piece in self.pieces.drain(..) {
            self.writer.piece(piece, &mut self.out).map_err(fault_of)?;
        }
        if let Some(finish) = &finish {
            self.writer.finish(finish, &mut self.out);
            self.is_finished = true;
            self.counts = finish.usage.map(Counts::from).unwrap_or_default();
        }
        if let Some(silence) = self.silence.as_mut().filter(|_| !self.out.is_empty()) {
            silence.broken(clock::now());
        }
        Ok(())
    }

    /// What is known of the tokens.
    pub(super) fn observed(&self, is_whole: bool) -> Observed {
        Observed::new(self.counts, is_whole, self.said_something)
    }

    /// When to look next whether the client has heard something lately; not again when it has heard the end.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.silence.as_ref().filter(|_| !self.is_finished).map(Silence::next)
    }

    /// What has to be said to a client that has heard nothing for too long; an event is to be taken out.
    pub(super) fn keep_alive(&mut self, now: Instant) -> Option<KeepAlive> {
        let due = self.silence.as_mut().filter(|_| !self.is_finished)?.due(now)?;
        Some(self.writer.keep_alive(due, &mut self.out))
    }

    /// Whether the backend was asked for its calls in text (RUN-4).
    pub(super) fn has_text_tools(&self) -> bool {
        matches!(&self.source, Source::Run(answer) if answer.has_text_tools())
    }

    /// How often its model wrote a call of a function that the request does not have.
    pub(super) fn unknown_calls(&self) -> u64 {
        match &self.source {
            Source::Run(answer) => answer.unknown_calls(),
            Source::Chat(_) => 0,
        }
    }

    /// The end of a stream that had begun and failed, where only its writer can write it.
    pub(super) fn failed(&mut self, fault: &Fault) -> Option<Vec<u8>> {
        let mut end = Vec::new();
        (!self.is_finished && self.writer.failed(fault, &mut end)).then_some(end)
    }

    /// The head of the answer, as if a provider had sent it. One that comes in one piece has this length.
    pub(super) fn head_of(&self, length: usize) -> Head {
        let header = |name: &str, value: String| Header { name: name.to_owned(), value: value.into() };
        let headers = if self.writer.is_stream() {
            vec![header("content-type", "text/event-stream".to_owned())]
        } else {
            vec![
                header("content-type", "application/json".to_owned()),
                header("content-length", length.to_string()),
            ]
        };
        Head { status: 200, headers, until_close: false }
    }
}

impl Source {
    /// Before the first word. `is_chat` = it is a chat completion, `tools` are the functions that a run may call.
    fn new(plan: &Plan, (is_chat, single_call): (bool, bool), tools: Vec<String>) -> Self {
        let (request, whole) = (Arc::clone(&plan.request_id), !plan.scan.stream);
        if is_chat {
            Self::Chat(Translated::new(request, single_call, whole))
        } else {
            Self::Run(Box::new(Answer::new(Asked { request, whole, single_call, tools })))
        }
    }
}

/// Whether a client gets something to show by it.
fn is_content(piece: &Piece) -> bool {
    match piece {
        Piece::Text(text) | Piece::Reasoning(text) | Piece::Arguments(text) => !text.is_empty(),
        Piece::Call(_) | Piece::CallBegun { .. } => true,
    }
}

fn fault_of(error: AnswerError) -> Fault {
    match error {
        AnswerError::TooLong => Fault::AnswerTooLong,
        AnswerError::Calls => Fault::UpstreamProtocol,
    }
}

/// What an event cost of its run's credit (WIR-6).
pub(super) fn cost(event: &RunEvent) -> usize {
    match &event.kind {
        RunEventKind::Delta { text, reasoning } => text.len() + reasoning.len(),
        _ => 0,
    }
}
