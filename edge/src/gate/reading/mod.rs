//! Raw streams, event by event: what is only a beginning, what is content, what is a failure.
//!
//! Where events end is said by the same [`Splitter`] that follows every stream that passes. What an event says is read as
//! each surface's servers write it (api.md sections 1.1, 1.2, 1.4, 1.6); what nobody knows counts as content, so that
//! nothing is held for ever because of it. Pure, and of bounded memory.

mod chat;
mod event;
mod json;
mod messages;
mod responses;
mod said;
#[cfg(test)]
mod tests;

use dataplane::http::sse::{Ending, Splitter};
use memchr::memchr2;

pub use self::said::Said;
use self::{event::Event, json::NotJson};
use crate::surface::Surface;

/// Bytes of one event at most that are read, line ends included: 1 MiB. A longer one is [`Sign::Content`] as soon as that is known.
pub const EVENT_BYTES_MAX: usize = dataplane::http::sse::MAX_EVENT;

/// What an event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// It says nothing of the answer yet: a comment, a ping, a role, an empty delta, the names of what is to come.
    Preamble,
    /// A part of the answer, a call's name included; also why the answer ended, and whatever is not known.
    Content,
    /// The provider says that it failed.
    Failure(Box<Said>),
    /// The proper last word of a stream of this surface. Where none came before it that was [`Sign::Content`], the answer is empty.
    End,
}

/// An event that is over. An event may be told twice with the same end: as content, and as the last word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Offset in the stream behind the empty line that ends it. Of a CR LF both bytes belong to it.
    pub until: usize,
    /// What it is.
    pub sign: Sign,
}

/// What a text is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// What the model answers, also where it declines.
    Content,
    /// What it thinks, or a summary of that.
    Reasoning,
    /// The arguments of a call.
    Arguments,
}

/// A piece of what the model says, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// What it is a part of.
    pub channel: Channel,
    /// Which of the answers that were asked for at once; 0 where there is one.
    pub choice: u32,
    /// Of arguments: which call of that answer, by the number that the surface gives it.
    pub call: u32,
    /// Of arguments: the name of what is called, in the piece that it comes with.
    pub name: Option<Box<str>>,
    /// Never empty, but where a name is.
    pub text: String,
    /// Offset in the stream behind its event.
    pub until: usize,
}

/// An event whose data is no JSON. Nothing behind it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of {} bytes is no JSON", .until - .from)]
pub struct Malformed {
    /// Offset in the stream of its first byte.
    pub from: usize,
    /// Offset behind it.
    pub until: usize,
}

/// Of what kind the last line end was: whether a LF is awaited behind a CR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LineEnd {
    #[default]
    Lf,
    Cr,
    CrLf,
}

/// Follows one raw event stream, cut anywhere.
#[derive(Debug)]
pub struct Reader {
    surface: Surface,
    wants_text: bool,
    splitter: Splitter,
    /// What has come of an event that is not over, in earlier pieces.
    open: Vec<u8>,
    /// Where that event begins.
    from: usize,
    /// All that was taken so far.
    at: usize,
    /// The event that is not over is longer than is read.
    oversized: bool,
    /// The event is over unless a LF comes, which belongs to it.
    awaits_lf: bool,
    line_end: LineEnd,
    progress: Progress,
    malformed: Option<Malformed>,
}

/// What a stream has said so far, as far as later events are read by it.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// There was content.
    content: bool,
    /// There was text in pieces: a repetition of all of it is not read again.
    text: bool,
}

/// What an event was found to be.
#[derive(Debug, Default)]
struct Judged {
    content: bool,
    end: bool,
    failure: Option<Box<Said>>,
}

impl Judged {
    const PREAMBLE: Self = Self { content: false, end: false, failure: None };
    const CONTENT: Self = Self { content: true, end: false, failure: None };
    const END: Self = Self { content: false, end: true, failure: None };

    fn failure(said: Said) -> Self {
        Self { failure: Some(Box::new(said)), ..Self::PREAMBLE }
    }
}

/// Where texts go, where somebody wants them.
struct Texts<'a> {
    to: Option<&'a mut Vec<Text>>,
    until: usize,
    any: bool,
}

impl Texts<'_> {
    const fn are_wanted(&self) -> bool {
        self.to.is_some()
    }

    fn push(&mut self, channel: Channel, choice: u32, text: String) {
        self.put(Text { channel, choice, call: 0, name: None, text, until: self.until });
    }

    fn call(&mut self, (choice, call): (u32, u32), name: Option<String>, text: String) {
        let name = name.filter(|name| !name.is_empty()).map(String::into_boxed_str);
        self.put(Text { channel: Channel::Arguments, choice, call, name, text, until: self.until });
    }

    fn put(&mut self, text: Text) {
        if let Some(to) = self.to.as_mut().filter(|_| !text.text.is_empty() || text.name.is_some()) {
            self.any |= !text.text.is_empty();
            to.push(text);
        }
    }
}

impl Reader {
    /// At the beginning of a stream of this surface. Without `wants_text` no text is decoded.
    #[must_use]
    pub fn new(surface: Surface, wants_text: bool) -> Self {
        Self {
            surface,
            wants_text,
            splitter: Splitter::ending(match surface {
                Surface::Chat => Ending::Done,
                Surface::Responses => Ending::Events(&["response.completed", "response.incomplete"]),
                Surface::Messages => Ending::Events(&["message_stop"]),
            }),
            open: Vec::new(),
            from: 0,
            at: 0,
            oversized: false,
            awaits_lf: false,
            line_end: LineEnd::Lf,
            progress: Progress::default(),
            malformed: None,
        }
    }

    /// Takes more of the stream; tells every event that ends in it, and what the model says in those.
    ///
    /// # Errors
    /// [`Malformed`], also when it is asked again. What came before that event is told.
    pub fn push(
        &mut self,
        bytes: &[u8],
        told: &mut Vec<Told>,
        text: &mut Vec<Text>,
    ) -> Result<(), Malformed> {
        if let Some(malformed) = self.malformed {
            return Err(malformed);
        }
        let result = self.take(bytes, told, text);
        self.malformed = result.err();
        result
    }

    /// Whether bytes of an event were taken whose end was not.
    #[must_use]
    pub const fn is_inside_event(&self) -> bool {
        self.oversized || !self.open.is_empty()
    }

    /// Offset in the stream behind all that was taken.
    #[must_use]
    pub const fn taken(&self) -> usize {
        self.at
    }

    /// The stream is over. An event that lacks only its empty line is told; one that is cut is not, and is no [`Malformed`] one.
    pub fn finish(&mut self, told: &mut Vec<Told>, text: &mut Vec<Text>) {
        if self.malformed.is_some() || !self.is_inside_event() {
            return;
        }
        if !std::mem::take(&mut self.awaits_lf) {
            let _last_line = self.splitter.push(b"\n");
            let _empty_line = self.splitter.push(b"\n");
        }
        let event = std::mem::take(&mut self.open);
        // What is no JSON is the beginning of an event that never came.
        let _cut = self.end_event(&event, self.at, told, text);
    }

    fn take(&mut self, bytes: &[u8], told: &mut Vec<Told>, text: &mut Vec<Text>) -> Result<(), Malformed> {
        let base = self.at;
        self.at = base.saturating_add(bytes.len());
        // Where the event begins that is not over, and how far the bytes are taken.
        let (mut start, mut at) = (0, 0);
        if self.awaits_lf && !bytes.is_empty() {
            self.awaits_lf = false;
            if bytes.first() == Some(&b'\n') {
                let _same = self.splitter.push(b"\n");
                self.line_end = LineEnd::CrLf;
                at = 1;
            }
            let event = std::mem::take(&mut self.open);
            self.end_event(&event, base + at, told, text)?;
            start = at;
        }
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let Some(end) = memchr2(b'\n', b'\r', rest) else {
                let _none = self.splitter.push(rest);
                break;
            };
            let (line, behind) = rest.split_at(end + 1);
            let is_over = self.splitter.push(line).is_some();
            at += end + 1;
            let bare_before = self.line_end == LineEnd::Cr;
            self.line_end = match line {
                b"\n" if bare_before => LineEnd::CrLf,
                [.., b'\r'] => LineEnd::Cr,
                _ => LineEnd::Lf,
            };
            if !is_over {
                continue;
            }
            // Where line ends are CR LF, one that came in two pieces is waited for; where they are bare CRs, none is.
            if self.line_end == LineEnd::Cr && !bare_before {
                match behind.first() {
                    Some(b'\n') => {
                        let _same = self.splitter.push(b"\n");
                        self.line_end = LineEnd::CrLf;
                        at += 1;
                    }
                    Some(_) => {}
                    None => {
                        self.awaits_lf = true;
                        break;
                    }
                }
            }
            let piece = bytes.get(start..at).unwrap_or_default();
            if self.open.is_empty() {
                self.end_event(piece, base + at, told, text)?;
            } else {
                let mut event = std::mem::take(&mut self.open);
                event.extend_from_slice(piece);
                self.end_event(&event, base + at, told, text)?;
                event.clear();
                self.open = event;
            }
            start = at;
        }
        self.keep(bytes.get(start..).unwrap_or_default(), told);
        Ok(())
    }

    /// Keeps the beginning of an event, or gives up reading it.
    fn keep(&mut self, piece: &[u8], told: &mut Vec<Told>) {
        if self.oversized {
            return;
        }
        if self.open.len().saturating_add(piece.len()) > EVENT_BYTES_MAX {
            self.give_up(told);
        } else {
            self.open.extend_from_slice(piece);
        }
    }

    /// The event that is not over is longer than is read.
    fn give_up(&mut self, told: &mut Vec<Told>) {
        self.open = Vec::new();
        self.oversized = true;
        self.progress.content = true;
        told.push(Told { until: self.from.saturating_add(EVENT_BYTES_MAX), sign: Sign::Content });
    }

    /// An event is over: these are its bytes, the empty line included, unless they are too many.
    fn end_event(
        &mut self,
        event: &[u8],
        until: usize,
        told: &mut Vec<Told>,
        text: &mut Vec<Text>,
    ) -> Result<(), Malformed> {
        let from = std::mem::replace(&mut self.from, until);
        if !self.oversized && until.saturating_sub(from) > EVENT_BYTES_MAX {
            self.from = from;
            self.give_up(told);
            self.from = until;
        }
        if std::mem::take(&mut self.oversized) {
            let sign = if self.splitter.saw_end() { Sign::End } else { Sign::Content };
            told.push(Told { until, sign });
            return Ok(());
        }
        let mut texts = Texts { to: self.wants_text.then_some(text), until, any: false };
        let judged = judge(self.surface, &Event::read(event, from == 0), self.progress, &mut texts);
        self.progress.text |= texts.any;
        let Judged { content, end, failure } = judged.map_err(|NotJson| Malformed { from, until })?;
        self.progress.content |= content;
        if let Some(said) = failure {
            told.push(Told { until, sign: Sign::Failure(said) });
            return Ok(());
        }
        if content || !end {
            told.push(Told { until, sign: if content { Sign::Content } else { Sign::Preamble } });
        }
        if end {
            told.push(Told { until, sign: Sign::End });
        }
        Ok(())
    }
}

/// Names of events that only keep a connection alive, on any surface.
const PINGS: [&[u8]; 4] = [b"ping", b"keepalive", b"keep-alive", b"heartbeat"];

fn judge(
    surface: Surface,
    event: &Event<'_>,
    progress: Progress,
    texts: &mut Texts<'_>,
) -> Result<Judged, NotJson> {
    let Some(data) = event.data.as_deref().map(<[u8]>::trim_ascii).filter(|data| !data.is_empty()) else {
        return Ok(Judged::PREAMBLE);
    };
    if event.name.is_some_and(|name| PINGS.contains(&name)) {
        return Ok(Judged::PREAMBLE);
    }
    if data == b"[DONE]" {
        // Behind the last word of the other surfaces it says nothing, and it is none of theirs.
        return Ok(if surface == Surface::Chat { Judged::END } else { Judged::PREAMBLE });
    }
    let data = String::from_utf8_lossy(data);
    let name = event.name.and_then(|name| std::str::from_utf8(name).ok());
    match surface {
        _ if name == Some("error") => Ok(Judged::failure(Said::of_event(&data))),
        Surface::Chat => chat::judge(&data, texts),
        Surface::Responses => responses::judge(name, &data, progress, texts),
        Surface::Messages => messages::judge(name, &data, texts),
    }
}
