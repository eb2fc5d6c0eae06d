//! A provider's answer that goes on as it is, as long as something of it is held back from its client: its beginning, which can
//! still be forgotten and asked of another provider (REC-2), and what a filter has yet to look at (SEG-2). No I/O.

use std::{collections::VecDeque, time::Instant};

use control::recovery::ErrorClass;
use dataplane::http::sse::Splitter;
use proto::message::Header;

use super::downstream::ending;
use crate::{
    config::gate::FilterKind,
    gate::{
        hold::{
            self, Finding, Watch,
            whole::{is_answer, texts},
        },
        provider_error,
        reading::{Channel, Reader, Said, Sign, Text, Told},
        repeat::Repetition,
    },
    openai::normalized::answer::ANSWER_BYTES_MAX,
    response,
    surface::Surface,
};

/// Most bytes of a stream that are held for their first content: more than any preamble has, and a quarter of what a Node may send
/// before credit for it comes back.
const HELD_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of an answer in one piece of which a filter looks at the text: as of one that the Edge writes.
const WHOLE_BYTES_MAX: usize = ANSWER_BYTES_MAX;
/// Most bytes of a stream that are held for a filter: of more, what was held goes out although there is not enough text in it.
const WATCHED_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Characters of a second round that may go out with the event that it begins in: that a text repeats itself begins with the blank
/// before it, and half a word less would be no better.
const SLACK_RUNES: u64 = 16;

/// Status and headers of a provider's answer.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) headers: Vec<Header>,
    /// Its end proves nothing: the provider's connection ends it.
    pub(super) until_close: bool,
}

impl Head {
    /// Whether a stream of events comes.
    pub(super) fn is_event_stream(&self) -> bool {
        let mut kinds = self.headers.iter().filter(|header| header.name == "content-type");
        kinds.any(|kind| response::names(&kind.value, "text/event-stream"))
    }

    /// Whether the provider did what it was asked for.
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// What more of an answer came to.
#[derive(Debug)]
pub(super) enum Came {
    /// Nothing that its client gets now.
    Nothing,
    /// Something that it gets: [`Held::take_due`].
    Content,
    /// The provider says that it failed, before any content.
    Failure(Box<Said>),
    /// What is no event of its surface, before any content.
    Malformed,
    /// A filter stops it.
    Found(Box<Finding>),
    /// All of it is to be looked at, and it does not end.
    TooLong,
}

/// How an answer comes.
#[derive(Debug)]
enum Form {
    /// In events.
    Events(Box<Reader>),
    /// In one piece, of which nothing is looked at: its first byte is its content.
    Piece,
    /// In one piece, all of which is looked at.
    Judged,
}

/// What holds an answer back.
#[derive(Debug, Default)]
pub(super) struct Wants {
    /// Whether errors of providers are judged.
    pub(super) errors: bool,
    /// The filters of text.
    pub(super) watch: Option<Box<Watch>>,
}

/// An answer of which something is held back.
#[derive(Debug)]
pub(super) struct Held {
    /// `None` when its client has been given a head.
    head: Option<Head>,
    status: u16,
    surface: Surface,
    form: Form,
    judges_errors: bool,
    watch: Option<Box<Watch>>,
    bytes: Vec<u8>,
    /// Offset in the stream of the first of them.
    from: usize,
    /// Offset in the stream behind the last event that filters have looked at.
    judged: usize,
    /// Offset in the stream behind what its client may have.
    due: usize,
    /// Its client has been given content.
    has_begun: bool,
    has_content: bool,
    told: Vec<Told>,
    /// Text of events that are held back, and how many filters have looked at.
    texts: VecDeque<Text>,
    looked: usize,
    /// Characters that the client has, of content, reasoning and arguments.
    taken: [u64; 3],
    /// The last word has been looked at.
    has_ended: bool,
    /// It has ended, well or not.
    is_over: bool,
}

impl Held {
    /// With its head, which is held too unless its client has one already.
    pub(super) fn new(head: Head, has_head: bool, surface: Surface, wants: Wants) -> Self {
        let watch = wants.watch.filter(|_| head.is_success());
        let form = if head.is_success() && (has_head || head.is_event_stream()) {
            Form::Events(Box::new(Reader::new(surface, watch.is_some())))
        } else if watch.is_some() || wants.errors {
            Form::Judged
        } else {
            Form::Piece
        };
        Self {
            status: head.status,
            head: (!has_head).then_some(head),
            surface,
            form,
            judges_errors: wants.errors,
            watch,
            bytes: Vec::new(),
            from: 0,
            judged: 0,
            due: 0,
            has_begun: false,
            has_content: false,
            told: Vec::new(),
            texts: VecDeque::new(),
            looked: 0,
            taken: [0; 3],
            has_ended: false,
            is_over: false,
        }
    }

    /// Takes more of the body.
    pub(super) fn push(&mut self, bytes: Vec<u8>, now: impl FnOnce() -> Instant) -> Came {
        if bytes.is_empty() {
            return Came::Nothing;
        }
        if self.due == usize::MAX {
            self.keep(bytes);
            return Came::Content;
        }
        let reader = match &mut self.form {
            Form::Events(reader) => reader,
            Form::Piece => {
                self.keep(bytes);
                return self.everything();
            }
            Form::Judged => {
                self.keep(bytes);
                return match self.bytes.len() {
                    length if self.watch.is_some() && length > WHOLE_BYTES_MAX => Came::TooLong,
                    // An error is short: this is none, or nothing that could be looked at.
                    length if self.watch.is_none() && length > HELD_BYTES_MAX => self.everything(),
                    _ => Came::Nothing,
                };
            }
        };
        let mut texts = Vec::new();
        let read = reader.push(&bytes, &mut self.told, &mut texts);
        self.texts.extend(texts);
        let came = if self.watch.is_some() { self.look(now) } else { self.first() };
        self.keep(bytes);
        match came {
            Came::Nothing if read.is_err() && !self.has_content => Came::Malformed,
            Came::Nothing if read.is_err() => self.everything(),
            Came::Nothing if self.bytes.len() > self.most() => self.everything(),
            // What follows it is not looked at any more.
            Came::Content if read.is_err() => self.everything(),
            came => came,
        }
    }

    /// How much is held at most.
    fn most(&self) -> usize {
        if self.watch.is_some() { WATCHED_BYTES_MAX } else { HELD_BYTES_MAX }
    }

    /// Looks for the first content.
    fn first(&mut self) -> Came {
        let mut came = Came::Nothing;
        for told in self.told.drain(..) {
            match told.sign {
                Sign::Preamble => continue,
                // A stream that ends without content has said all it had to say.
                Sign::Content | Sign::End => came = Came::Content,
                Sign::Failure(said) => came = Came::Failure(said),
            }
            break;
        }
        if matches!(came, Came::Content) {
            self.has_content = true;
            self.due = usize::MAX;
        }
        came
    }

    /// Has the filters look at whole events, in their order.
    fn look(&mut self, now: impl FnOnce() -> Instant) -> Came {
        let Some(watch) = &mut self.watch else { return Came::Nothing };
        let mut is_over = false;
        for Told { until, sign } in std::mem::take(&mut self.told) {
            while let Some(text) = self.texts.get(self.looked).filter(|text| text.until <= until) {
                if let Some(found) = watch.text(said(text)) {
                    return Came::Found(Box::new(found));
                }
                self.looked += 1;
            }
            match sign {
                Sign::Preamble => {}
                Sign::Content => self.has_content = true,
                Sign::Failure(said) if !self.has_content => return Came::Failure(said),
                Sign::Failure(_) => is_over = true,
                Sign::End => {
                    self.has_ended = true;
                    if let Some(found) = watch.end() {
                        return Came::Found(Box::new(found));
                    }
                    is_over = true;
                }
            }
            self.judged = until;
        }
        if is_over {
            watch.open();
            self.is_over = true;
        }
        if self.has_content && watch.holds() {
            watch.held_at(now());
        }
        self.let_out()
    }

    /// What has been judged is for the client unless it is held back for more.
    fn let_out(&mut self) -> Came {
        let is_beginning = !self.has_content && !self.is_over;
        if is_beginning || self.watch.as_ref().is_some_and(|watch| watch.holds()) || self.judged <= self.due {
            return Came::Nothing;
        }
        self.due = self.judged;
        Came::Content
    }

    /// All that is there is for the client, whatever it is.
    fn everything(&mut self) -> Came {
        self.has_content = true;
        if let Some(watch) = &mut self.watch {
            watch.open();
        }
        self.due = usize::MAX;
        Came::Content
    }

    /// The first piece, which nearly always is all there will be, is not copied.
    fn keep(&mut self, bytes: Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = bytes;
        } else {
            self.bytes.extend_from_slice(&bytes);
        }
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
        }
        is_overdue && matches!(self.let_out(), Came::Content)
    }

    /// A stream is over: what a filter finds in it if it did not come to its last word.
    pub(super) fn judge_end(&mut self) -> Option<Finding> {
        let watch = self.watch.as_mut().filter(|_| !self.has_ended)?;
        watch.end()
    }

    /// An answer in one piece that is over, as an error; `None` for one that is none, and where that was not to be judged.
    pub(super) fn class(&self) -> Option<ErrorClass> {
        if !self.judges_errors || self.is_stream() || self.has_begun {
            return None;
        }
        let (status, headers, body) = self.parts();
        // What has a coding cannot be read.
        let is_coded = headers.iter().any(|header| header.name == "content-encoding");
        let is_fine = status != 200 && !self.is_refusal() || status == 200 && (is_coded || is_answer(body));
        (!is_fine).then(|| provider_error::of_status(status, headers, body))
    }

    /// An answer in one piece is over: what a filter finds in it. What is too long to be looked at has not kept its promise.
    pub(super) fn judge_whole(&mut self) -> Option<Finding> {
        let watch = self.watch.as_mut().filter(|_| !matches!(self.form, Form::Events(_)))?;
        for text in texts(self.surface, &self.bytes) {
            if let Some(found) = watch.text(said(&text)) {
                return Some(found);
            }
        }
        watch.end()
    }

    /// Of a repetition that was found: only what came before it is for the client. Whether that is anything.
    pub(super) fn keep_before(&mut self, found: &Repetition) -> bool {
        let channel = self.texts.get(self.looked).map_or(Channel::Content, |text| text.channel);
        let mut runes = self.taken(channel);
        let mut keep = self.due;
        for text in self.texts.iter().take(self.looked) {
            if text.channel == channel {
                let before = runes;
                runes += text.text.chars().count() as u64;
                if runes > found.begins_at_rune {
                    // An event that is of the second round alone is none of the first.
                    if before < found.begins_at_rune && runes <= found.begins_at_rune + SLACK_RUNES {
                        keep = text.until;
                    }
                    break;
                }
            }
            keep = text.until;
        }
        let is_more = keep > self.due;
        self.due = keep;
        is_more
    }

    /// Characters of a channel that the client has.
    fn taken(&self, channel: Channel) -> u64 {
        let [content, reasoning, arguments] = self.taken;
        match channel {
            Channel::Content => content,
            Channel::Reasoning => reasoning,
            Channel::Arguments => arguments,
        }
    }

    /// Gives up the head of a stream, for a client that is to be told something before the content comes. The body stays. `None` when
    /// it is none, or is given up already.
    pub(super) fn take_stream_head(&mut self) -> Option<Head> {
        if matches!(self.form, Form::Events(_)) { self.head.take() } else { None }
    }

    /// The head, unless the client has one.
    pub(super) fn take_head(&mut self) -> Option<Head> {
        self.head.take()
    }

    /// The first of the content goes to the client now; `false` when it has some already.
    pub(super) fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.has_begun, true)
    }

    /// What the client gets now, and the text in it as far as a filter has looked at it.
    pub(super) fn take_due(&mut self) -> (Vec<u8>, Vec<Text>) {
        let count = self.due.saturating_sub(self.from).min(self.bytes.len());
        let rest = self.bytes.split_off(count);
        self.from += count;
        let bytes = std::mem::replace(&mut self.bytes, rest);
        let texts = self.texts.iter().take_while(|text| text.until <= self.due).count();
        self.looked = self.looked.saturating_sub(texts);
        let texts: Vec<Text> = self.texts.drain(..texts).collect();
        let [content, reasoning, arguments] = &mut self.taken;
        for text in &texts {
            *match text.channel {
                Channel::Content => &mut *content,
                Channel::Reasoning => &mut *reasoning,
                Channel::Arguments => &mut *arguments,
            } += text.text.chars().count() as u64;
        }
        (bytes, texts)
    }

    /// All that is left is for the client.
    pub(super) fn open(&mut self) {
        self.everything();
    }

    /// Whether a filter goes on looking.
    pub(super) fn is_watched(&self) -> bool {
        self.watch.is_some() && matches!(self.form, Form::Events(_))
    }

    /// The filters, with what they know of the content.
    pub(super) fn watch(&mut self) -> Option<&mut Watch> {
        self.watch.as_deref_mut()
    }

    /// Filters that found something which they may only record.
    pub(super) fn take_observed(&mut self) -> Vec<FilterKind> {
        self.watch.as_mut().map(|watch| watch.take_observed()).unwrap_or_default()
    }

    /// Whether a stream that ends here, before its content, lacks its last word.
    pub(super) fn is_cut(&self) -> bool {
        if !matches!(self.form, Form::Events(_)) || self.has_begun {
            return false;
        }
        let mut events = Splitter::ending(ending(self.surface));
        let _boundary = events.push(&self.bytes);
        !events.ends_well()
    }

    /// Whether it comes in events.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.form, Form::Events(_))
    }

    /// Whether the provider has refused the request.
    pub(super) fn is_refusal(&self) -> bool {
        !(200..300).contains(&self.status)
    }

    /// Its status, its headers where its client has none yet, and all of the body that is held.
    pub(super) fn parts(&self) -> (u16, &[Header], &[u8]) {
        let headers = self.head.as_ref().map(|head| &*head.headers).unwrap_or_default();
        (self.status, headers, &self.bytes)
    }
}

fn said(text: &Text) -> hold::Said<'_> {
    hold::Said {
        channel: text.channel,
        choice: text.choice,
        call: text.call,
        name: text.name.as_deref(),
        text: &text.text,
    }
}

#[cfg(test)]
mod tests;
