//! An answer that the Edge writes itself: of a normalized run, or of a chat completion for a client of another surface. No I/O.

use std::{sync::Arc, time::Instant};

use control::recovery::ErrorClass;
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
    config::{gate::FilterKind, settings::OpenAi},
    gate::{
        hold::{Finding, Said, Watch},
        reading::Channel,
        repeat::Repetition,
    },
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
    /// The filters that look at its text.
    watch: Option<Box<Watch>>,
    /// How many of the pieces they have looked at.
    looked: usize,
    /// Calls that have begun.
    calls: u32,
    /// Characters of this attempt that the client has, of content, reasoning and arguments.
    runes: [u64; 3],
    /// What the client gets next, as text.
    said: Vec<(Channel, String)>,
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
        (manner, watch): (Manner, Option<Box<Watch>>),
    ) -> Self {
        let source = Source::new(plan, (is_chat, single_call), tools);
        Self::with(Writer::new(plan, manner), source, openai, watch)
    }

    /// Goes on with a stream of chunks that a provider had begun: these are what they have in common.
    pub(super) fn going_on(plan: &Plan, openai: &OpenAi, id: String, created: u64, model: &str) -> Self {
        let writer = Writer::going_on(plan, id, created, model);
        let mut written = Self::with(writer, Source::new(plan, (true, false), Vec::new()), openai, None);
        written.has_begun = true;
        written
    }

    fn with(writer: Writer, source: Source, openai: &OpenAi, watch: Option<Box<Watch>>) -> Self {
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
            watch,
            looked: 0,
            calls: 0,
            runes: [0; 3],
            said: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Goes on with what another dispatch says: its client is in the middle of this answer, if only by an event without content.
    pub(super) fn go_on(
        &mut self,
        plan: &Plan,
        (is_chat, single_call): (bool, bool),
        tools: Vec<String>,
        watch: Option<Box<Watch>>,
    ) {
        self.go_on_by(Source::new(plan, (is_chat, single_call), tools), watch);
    }

    fn go_on_by(&mut self, source: Source, watch: Option<Box<Watch>>) {
        self.source = source;
        self.pieces.clear();
        self.watch = watch;
        (self.looked, self.calls, self.runes) = (0, 0, [0; 3]);
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
    pub(super) fn event(&mut self, event: RunEvent) -> Result<(), Trouble> {
        // A Node that answers a tunnel as if it were a run.
        let Source::Run(answer) = &mut self.source else { return Err(Fault::UpstreamProtocol.into()) };
        let finish = answer.event(event, &mut self.pieces)?;
        self.write(finish)
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
    pub(super) fn body(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let Source::Chat(chat) = &mut self.source else { return Err(Fault::UpstreamProtocol.into()) };
        let read = chat.body(bytes, &mut self.pieces);
        // What was said before it went wrong has been said.
        self.write(read.as_ref().ok().copied().flatten())?;
        Ok(read.map(|_| ())?)
    }

    /// A tunnelled answer is over. What the client gets of that is to be taken out.
    ///
    /// # Errors
    /// It is none, or not all of one.
    pub(super) fn end(&mut self) -> Result<(), Trouble> {
        let Source::Chat(chat) = &mut self.source else { return Err(Fault::UpstreamProtocol.into()) };
        let read = chat.end(&mut self.pieces);
        self.write(read.as_ref().ok().copied().flatten())?;
        Ok(read.map(|_| ())?)
    }

    fn chat(&mut self) -> Result<&mut Translated, Fault> {
        match &mut self.source {
            Source::Chat(chat) => Ok(chat),
            // A Node that answers a run as if it were a tunnel.
            Source::Run(_) => Err(Fault::UpstreamProtocol),
        }
    }

    /// Has the filters look at what has come, and writes what may go out.
    fn write(&mut self, finish: Option<Finish>) -> Result<(), Trouble> {
        if let Some(watch) = &mut self.watch {
            while let Some(piece) = self.pieces.get(self.looked) {
                if let Some(found) = watch.text(said(piece, &mut self.calls)) {
                    return Err(Trouble::Found(Box::new(found)));
                }
                self.looked += 1;
            }
            if finish.is_some()
                && let Some(found) = watch.end()
            {
                return Err(Trouble::Found(Box::new(found)));
            }
            if finish.is_none() && self.writer.is_stream() && watch.holds() {
                if self.pieces.iter().any(is_content) {
                    watch.held_at(clock::now());
                }
                return Ok(());
            }
        }
        self.write_out(finish)?;
        Ok(())
    }

    fn write_out(&mut self, finish: Option<Finish>) -> Result<(), Fault> {
        self.said_something |= self.pieces.iter().any(is_content);
        let is_watched = self.watch.is_some();
        for piece in self.pieces.drain(..) {
            if is_watched {
                let (channel, text) = text_of(&piece);
                if let Some(runes) = self.runes.get_mut(channel as usize) {
                    *runes += text.chars().count() as u64;
                }
                self.said.push((channel, text.to_owned()));
            }
            self.writer.piece(piece, &mut self.out).map_err(fault_of)?;
        }
        self.looked = 0;
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

    /// Of a repetition that was found: writes what came before it of a stream. Whether that is anything.
    pub(super) fn keep_before(&mut self, found: &Repetition) -> bool {
        if !self.writer.is_stream() {
            return false;
        }
        let channel = self.pieces.get(self.looked).map_or(Channel::Content, |piece| text_of(piece).0);
        let mut runes = self.runes.get(channel as usize).copied().unwrap_or_default();
        let mut keep = 0;
        for piece in self.pieces.iter_mut().take(self.looked) {
            let (of, text) = text_of(piece);
            let count = text.chars().count() as u64;
            if of == channel && runes + count > found.begins_at_rune {
                keep += usize::from(cut(piece, found.begins_at_rune.saturating_sub(runes)));
                break;
            }
            if of == channel {
                runes += count;
            }
            keep += 1;
        }
        self.pieces.truncate(keep);
        // Nothing of an answer that is too long follows anyway.
        let _too_long = self.write_out(None);
        keep > 0
    }

    /// When what is held back for a filter goes out in any case.
    pub(super) fn hold_ends(&self) -> Option<Instant> {
        self.watch.as_ref().and_then(|watch| watch.due())
    }

    /// It is `now`; whether something is for the client by that.
    pub(super) fn is_overdue(&mut self, now: Instant) -> bool {
        let is_overdue = self.hold_ends().is_some_and(|due| due <= now);
        if is_overdue && let Some(watch) = &mut self.watch {
            watch.open();
            // As above: the next piece tells it.
            let _too_long = self.write_out(None);
        }
        is_overdue
    }

    /// The filters, with what they know of the content.
    pub(super) fn watch(&mut self) -> Option<&mut Watch> {
        self.watch.as_deref_mut()
    }

    /// Filters that found something which they may only record.
    pub(super) fn take_observed(&mut self) -> Vec<FilterKind> {
        self.watch.as_mut().map(|watch| watch.take_observed()).unwrap_or_default()
    }

    /// What was taken out last, as text, where filters look at it.
    pub(super) fn take_said(&mut self) -> Vec<(Channel, String)> {
        std::mem::take(&mut self.said)
    }

    /// Whether the client gets it as it comes.
    pub(super) fn is_stream(&self) -> bool {
        self.writer.is_stream()
    }

    /// What a failure is to a filter of the provider's errors.
    pub(super) fn class_of(&self, fault: &Fault) -> Option<ErrorClass> {
        match (fault, &self.source) {
            (Fault::Provider { error, .. }, Source::Chat(chat)) => Some(chat.class_of(error)),
            (Fault::UpstreamTruncated, _) => Some(ErrorClass::Transport),
            (Fault::UpstreamProtocol, _) => Some(ErrorClass::Malformed),
            _ => None,
        }
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

/// Why an answer cannot go on.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It is of no use.
    Fault(Fault),
    /// A filter stops it.
    Found(Box<Finding>),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<AnswerError> for Trouble {
    fn from(error: AnswerError) -> Self {
        Self::Fault(fault_of(error))
    }
}

fn text_of(piece: &Piece) -> (Channel, &str) {
    match piece {
        Piece::Text(text) => (Channel::Content, text),
        Piece::Reasoning(text) => (Channel::Reasoning, text),
        Piece::Arguments(text) => (Channel::Arguments, text),
        Piece::Call(call) => (Channel::Arguments, &call.function.arguments),
        Piece::CallBegun { .. } => (Channel::Arguments, ""),
    }
}

/// Leaves the first characters of a text, and the blank behind them: that a text repeats itself begins with it. Whether there are any.
fn cut(piece: &mut Piece, runes: u64) -> bool {
    let (Piece::Text(text) | Piece::Reasoning(text)) = piece else { return false };
    let behind = text.char_indices().skip(usize::try_from(runes).unwrap_or(usize::MAX));
    let end = behind.skip_while(|(_, rune)| rune.is_whitespace()).map(|(at, _)| at).next();
    text.truncate(end.unwrap_or(text.len()));
    !text.is_empty()
}

/// As filters look at it; `calls` counts those that have begun.
fn said<'a>(piece: &'a Piece, calls: &mut u32) -> Said<'a> {
    let (channel, text) = text_of(piece);
    let name = match piece {
        Piece::Call(call) => Some(&*call.function.name),
        Piece::CallBegun { name, .. } => Some(&**name),
        _ => None,
    };
    *calls += u32::from(name.is_some());
    Said { channel, choice: 0, call: calls.saturating_sub(1), name, text }
}

/// What an event cost of its run's credit (WIR-6).
pub(super) fn cost(event: &RunEvent) -> usize {
    match &event.kind {
        RunEventKind::Delta { text, reasoning } => text.len() + reasoning.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
