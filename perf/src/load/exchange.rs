//! A reply as it arrives: timed, its framing taken off, every event checked. Pure: it is handed bytes and times.

use std::time::{Duration, Instant};

use super::verify::{Check, EventReader, Failure, refusal_code};
use crate::chunked::Decoder;

/// The largest response head accepted. Unit: bytes.
const HEAD_BYTES_MAX: usize = 1 << 20;
/// The most header fields of a response.
const HEADERS_MAX: usize = 512;
/// The most interim (1xx) responses before the final one.
const INTERIM_MAX: u32 = 100;
/// The longest body of a refusal that is read to its end. Unit: bytes.
const REFUSAL_BYTES_MAX: usize = 1 << 20;

/// How the end of a response body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Chunked,
    Close,
    Length(u64),
}

/// What is needed of a response head.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Head {
    status: u16,
    framing: Framing,
    event_stream: bool,
    keep_alive: bool,
}

/// The times and sizes of one verified reply.
#[derive(Debug, Default)]
pub struct Reply {
    /// From where the request counts (its start, or its place in the schedule) to the first event, or to the whole body. Unit: µs.
    pub first_event_us: u64,
    /// From where the request counts (its start, or its place in the schedule) to the end of the reply. Unit: µs.
    pub total_us: u64,
    /// `data` events, `[DONE]` included; 1 for a reply that is no stream.
    pub events: u64,
    /// Bytes of the body, without HTTP framing.
    pub body_bytes: u64,
    /// Comment lines.
    pub comments: u64,
    /// Whether the provider's seal proved the text.
    pub sealed: bool,
}

/// What a request is measured into while it runs.
pub trait Observer {
    /// An event of a stream has arrived.
    fn event(&mut self) {}
    /// The pause between two events, in µs.
    fn gap(&mut self, us: u64);
    /// The time an event took from the provider's write, in µs.
    fn delivery(&mut self, us: u64);
    /// A whole refusal has arrived, with the code of its error object, which may be empty.
    fn refusal(&mut self, _status: u16, _code: &str) {}
}

/// When a piece of a reply was read.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// By the monotonic clock.
    pub now: Instant,
    /// Since 1970, to compare with the provider's stamps.
    pub wall: Duration,
}

/// Whether a reply is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It is.
    Done,
    /// More must be read.
    More,
}

/// One reply in the course of arriving.
///
/// ```text
/// head (and interim heads before it) ──► body ──► Done
/// ```
/// Hand it everything that is read, in any split, until it says [`Progress::Done`] or fails; then [`Self::finish`].
#[derive(Debug)]
pub struct Exchange {
    /// What was read of a head that is not complete, and after the end what does not belong to the reply.
    held: Vec<u8>,
    interim: u32,
    head: Option<Head>,
    framing: Deframer,
    body: Body,
    ended: bool,
}

impl Exchange {
    /// A reply of which nothing has arrived; its times count from `from`.
    #[must_use]
    pub fn new(mode: Mode, from: Instant) -> Self {
        Self {
            held: Vec::new(),
            interim: 0,
            head: None,
            framing: Deframer::Close,
            body: Body::new(mode, from),
            ended: false,
        }
    }

    /// Takes what was read. `plain` is room for the body's bytes, which the caller keeps for the next call.
    ///
    /// # Errors
    /// The [`Failure`] that the input proves.
    pub fn handle_input(
        &mut self,
        input: &[u8],
        at: Moment,
        plain: &mut Vec<u8>,
        observer: &mut impl Observer,
    ) -> Result<Progress, Failure> {
        if self.head.is_some() {
            return self.handle_body(input, at, plain, observer);
        }
        self.held.extend_from_slice(input);
        let mut held = std::mem::take(&mut self.held);
        let mut used = 0;
        while let Some((head, length)) = parse_head(held.get(used..).unwrap_or_default())? {
            used += length;
            if head.status >= 200 {
                self.begin_body(head)?;
                return self.handle_body(held.get(used..).unwrap_or_default(), at, plain, observer);
            }
            self.interim += 1;
            if self.interim > INTERIM_MAX {
                return Err(Failure::BadHead);
            }
        }
        held.drain(..used);
        self.held = held;
        Ok(Progress::More)
    }

    /// The peer has closed.
    ///
    /// # Errors
    /// The [`Failure`] that this means, unless the close is the reply's end.
    pub fn handle_end(&mut self) -> Result<Progress, Failure> {
        match &self.head {
            None if self.held.is_empty() && self.interim == 0 => Err(Failure::ClosedBeforeHead),
            Some(head) if head.framing == Framing::Close => {
                self.ended = true;
                Ok(Progress::Done)
            }
            _ => Err(Failure::Truncated),
        }
    }

    /// The peer has reset the connection: what that means.
    #[must_use]
    pub fn handle_reset(&self) -> Failure {
        let nothing_yet = self.head.is_none() && self.held.is_empty() && self.interim == 0;
        if nothing_yet { Failure::ResetBeforeHead } else { Failure::Reset }
    }

    /// Whether the connection can carry another request: the reply is complete, with nothing behind it, and nobody has
    /// announced a close.
    #[must_use]
    pub fn leaves_connection_reusable(&self) -> bool {
        let kept = self.head.as_ref().is_some_and(|head| head.keep_alive && head.framing != Framing::Close);
        self.ended && kept && self.held.is_empty()
    }

    /// The verdict on a complete reply.
    ///
    /// # Errors
    /// The [`Failure`] of the whole; [`Failure::Status`] if it is a refusal.
    pub fn finish(self, now: Instant, observer: &mut impl Observer) -> Result<Reply, Failure> {
        match &self.head {
            Some(head) if head.status != 200 => {
                observer.refusal(head.status, &refusal_code(&self.body.whole));
                Err(Failure::Status(head.status))
            }
            _ => self.body.finish(now),
        }
    }

    fn begin_body(&mut self, head: Head) -> Result<(), Failure> {
        if head.status == 200 && self.body.mode.stream && !head.event_stream {
            return Err(Failure::NotSse);
        }
        self.framing = Deframer::new(head.framing);
        self.head = Some(head);
        Ok(())
    }

    fn handle_body(
        &mut self,
        input: &[u8],
        at: Moment,
        plain: &mut Vec<u8>,
        observer: &mut impl Observer,
    ) -> Result<Progress, Failure> {
        plain.clear();
        let used = self.framing.decode(input, plain)?;
        match &self.head {
            Some(head) if head.status != 200 => {
                self.body.whole.extend_from_slice(plain);
                // Nobody waits for the end of a refusal without end.
                if self.body.whole.len() > REFUSAL_BYTES_MAX {
                    return Err(Failure::Status(head.status));
                }
            }
            _ => self.body.handle(plain, at, observer)?,
        }
        if self.framing.is_done() {
            self.ended = true;
            self.held.extend_from_slice(input.get(used..).unwrap_or_default());
            return Ok(Progress::Done);
        }
        Ok(Progress::More)
    }
}

/// What is asked of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// It is a stream.
    pub stream: bool,
    /// It must carry the provider's seal.
    pub seal_demanded: bool,
    /// How many content events a stream must have, if that is known.
    pub content_events: Option<u64>,
}

fn parse_head(input: &[u8]) -> Result<Option<(Head, usize)>, Failure> {
    let mut slots = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut slots);
    let length = match response.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if input.len() <= HEAD_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) | Err(_) => return Err(Failure::BadHead),
    };
    let status = response.code.ok_or(Failure::BadHead)?;
    let (mut content_length, mut chunked, mut event_stream) = (None, false, false);
    let mut keep_alive = response.version == Some(1);
    for field in response.headers.iter() {
        let value = std::str::from_utf8(field.value).unwrap_or_default().trim();
        if field.name.eq_ignore_ascii_case("content-length") {
            let length: u64 = value.parse().map_err(|_| Failure::BadHead)?;
            if content_length.replace(length).is_some() {
                return Err(Failure::BadHead);
            }
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            if chunked || !value.eq_ignore_ascii_case("chunked") {
                return Err(Failure::BadHead);
            }
            chunked = true;
        } else if field.name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close") {
            keep_alive = false;
        } else if field.name.eq_ignore_ascii_case("content-type") {
            let kind = value.split(';').next().unwrap_or_default().trim();
            event_stream = kind.eq_ignore_ascii_case("text/event-stream");
        }
    }
    let framing = match (chunked, content_length) {
        (true, Some(_)) => return Err(Failure::BadHead),
        (true, None) => Framing::Chunked,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::Close,
    };
    Ok(Some((Head { status, framing, event_stream, keep_alive }, length)))
}

/// Takes the HTTP framing off a body.
#[derive(Debug)]
enum Deframer {
    Chunked(Decoder),
    Close,
    Length { left: u64 },
}

impl Deframer {
    fn new(framing: Framing) -> Self {
        match framing {
            Framing::Chunked => Self::Chunked(Decoder::default()),
            Framing::Close => Self::Close,
            Framing::Length(left) => Self::Length { left },
        }
    }

    /// Appends the body's bytes of `input` to `out`; how many bytes of `input` were the reply's.
    fn decode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Failure> {
        let used = match self {
            Self::Chunked(decoder) => decoder.decode(input, out).map_err(|_| Failure::BadChunk)?,
            Self::Close => {
                out.extend_from_slice(input);
                input.len()
            }
            Self::Length { left } => {
                let used = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                out.extend_from_slice(input.get(..used).unwrap_or_default());
                *left -= used as u64;
                used
            }
        };
        Ok(used)
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Chunked(decoder) => decoder.is_done(),
            Self::Close => false,
            Self::Length { left } => *left == 0,
        }
    }
}

/// The body of one reply, timed and checked as it arrives.
#[derive(Debug)]
struct Body {
    mode: Mode,
    from: Instant,
    last_event: Option<Instant>,
    reader: EventReader,
    check: Check,
    whole: Vec<u8>,
    reply: Reply,
}

impl Body {
    fn new(mode: Mode, from: Instant) -> Self {
        Self {
            mode,
            from,
            last_event: None,
            reader: EventReader::default(),
            check: Check::default(),
            whole: Vec::new(),
            reply: Reply::default(),
        }
    }

    fn handle(&mut self, plain: &[u8], at: Moment, observer: &mut impl Observer) -> Result<(), Failure> {
        if plain.is_empty() {
            return Ok(());
        }
        self.reply.body_bytes += plain.len() as u64;
        if !self.mode.stream {
            self.whole.extend_from_slice(plain);
            return Ok(());
        }
        // All events of one read arrived together.
        let Moment { now, wall } = at;
        let (check, last_event, reply, from) =
            (&mut self.check, &mut self.last_event, &mut self.reply, self.from);
        self.reader.read(plain, |data| {
            observer.event();
            match last_event.replace(now) {
                Some(before) => observer.gap(micros(now.saturating_duration_since(before))),
                None => reply.first_event_us = micros(now.saturating_duration_since(from)),
            }
            if let Some(sent) = check.handle_event(data)?.sent {
                observer.delivery(micros(wall.saturating_sub(Duration::from_nanos(sent))));
            }
            Ok(())
        })
    }

    fn finish(mut self, now: Instant) -> Result<Reply, Failure> {
        if self.mode.stream {
            if !self.reader.is_between_events() {
                return Err(Failure::Truncated);
            }
            self.reply.events = self.check.events;
        } else {
            self.check.handle_whole(&self.whole)?;
            self.reply.events = 1;
            self.reply.first_event_us = micros(now.saturating_duration_since(self.from));
        }
        self.reply.sealed = self.check.finish(self.mode.seal_demanded)?;
        // A whole reply has its text in one piece.
        if self.mode.stream
            && self.mode.content_events.is_some_and(|events| events != self.check.content_events())
        {
            return Err(Failure::WrongCount);
        }
        self.reply.comments = self.reader.comments;
        self.reply.total_us = micros(now.saturating_duration_since(self.from));
        Ok(self.reply)
    }
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &str) -> Result<Head, Failure> {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        parse_head(text.as_bytes()).map(|found| found.unwrap().0)
    }

    #[test]
    fn framing_is_read_from_the_head() {
        assert_eq!(head("Transfer-Encoding: chunked\r\n").unwrap().framing, Framing::Chunked);
        assert_eq!(head("Content-Length: 7\r\n").unwrap().framing, Framing::Length(7));
        assert_eq!(head("").unwrap().framing, Framing::Close);
        let stream = head("Content-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n").unwrap();
        assert!(stream.event_stream && !stream.keep_alive);
    }

    #[test]
    fn contradictory_heads_are_failures() {
        for fields in [
            "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 7\r\nContent-Length: 7\r\n",
            "Content-Length: seven\r\n",
            "Transfer-Encoding: gzip\r\n",
        ] {
            assert_eq!(head(fields), Err(Failure::BadHead), "{fields}");
        }
        assert_eq!(parse_head(b"\x16\x03\x01"), Err(Failure::BadHead));
        assert_eq!(parse_head(b"HTTP/1.1 200"), Ok(None));
    }

    #[test]
    fn lengths_take_no_byte_too_many() {
        let mut framing = Deframer::new(Framing::Length(3));
        let mut out = Vec::new();
        assert_eq!(framing.decode(b"abcd", &mut out), Ok(3));
        assert_eq!((out.as_slice(), framing.is_done()), (&b"abc"[..], true));
    }

    #[derive(Default)]
    struct Seen {
        gaps: Vec<u64>,
        refusals: Vec<(u16, String)>,
    }

    impl Observer for Seen {
        fn gap(&mut self, us: u64) {
            self.gaps.push(us);
        }

        fn delivery(&mut self, _us: u64) {}

        fn refusal(&mut self, status: u16, code: &str) {
            self.refusals.push((status, code.to_owned()));
        }
    }

    /// Hands `wire` over in pieces of `step` bytes, one every ms; the first is read 5 ms after the request counts.
    fn arrive(mode: Mode, wire: &str, step: usize) -> (Result<Reply, Failure>, Seen) {
        let from = Instant::now();
        let (mut exchange, mut seen, mut plain) = (Exchange::new(mode, from), Seen::default(), Vec::new());
        let mut now = from + Duration::from_millis(5);
        for piece in wire.as_bytes().chunks(step) {
            let at = Moment { now, wall: Duration::ZERO };
            match exchange.handle_input(piece, at, &mut plain, &mut seen) {
                Ok(Progress::More) => now += Duration::from_millis(1),
                Ok(Progress::Done) => return (exchange.finish(now, &mut seen), seen),
                Err(failure) => return (Err(failure), seen),
            }
        }
        (exchange.handle_end().and_then(|_| exchange.finish(now, &mut seen)), seen)
    }

    fn mode(content_events: Option<u64>) -> Mode {
        Mode { stream: true, seal_demanded: false, content_events }
    }

    const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\ndata: [DONE]\n\n";

    #[test]
    fn times_count_from_where_the_request_counts_and_what_is_read_at_once_has_no_gap() {
        let (reply, seen) = arrive(mode(None), STREAM, 10_000);
        let reply = reply.unwrap();
        assert_eq!((reply.first_event_us, reply.events, seen.gaps), (5000, 3, vec![0, 0]));
        let (reply, seen) = arrive(mode(None), STREAM, 1);
        let reply = reply.unwrap();
        assert_eq!(seen.gaps.len(), 2);
        assert_eq!(reply.total_us, 5000 + STREAM.len() as u64 * 1000);
        assert_eq!(reply.first_event_us + seen.gaps.iter().sum::<u64>() + 1000, reply.total_us);
    }

    #[test]
    fn another_number_of_content_events_than_asked_for_is_a_failure() {
        assert!(arrive(mode(Some(2)), STREAM, 7).0.is_ok());
        for other in [1, 3] {
            assert_eq!(arrive(mode(Some(other)), STREAM, 7).0.unwrap_err(), Failure::WrongCount);
        }
    }

    #[test]
    fn a_refusal_is_read_to_its_end_and_names_its_code() {
        let body = r#"{"error":{"code":"queue_full"}}"#;
        let wire = format!("HTTP/1.1 429 Busy\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        for step in [1, 9, 1000] {
            let (outcome, seen) = arrive(mode(None), &wire, step);
            assert_eq!(outcome.unwrap_err(), Failure::Status(429));
            assert_eq!(seen.refusals, [(429, "queue_full".to_owned())]);
        }
        let (outcome, seen) = arrive(mode(None), &wire[..wire.len() - 1], 9);
        assert_eq!((outcome.unwrap_err(), seen.refusals.len()), (Failure::Truncated, 0));
    }
}
