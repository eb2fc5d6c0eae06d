//! One connection of the load generator: sends a request and reads its reply, timing and checking every
//! event.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::verify::{Check, EventReader, Failure};
use crate::chunked::Decoder;

/// The largest response head accepted. Unit: bytes.
const HEAD_BYTES_MAX: usize = 1 << 20;
/// The most header fields of a response.
const HEADERS_MAX: usize = 512;
/// The most interim (1xx) responses before the final one.
const INTERIM_MAX: u32 = 100;

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
    /// From the first byte of the request to the first event, or to the whole body. Unit: µs.
    pub first_event_us: u64,
    /// From the first byte of the request to the end of the reply. Unit: µs.
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
}

/// A connection to the subject.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    input: BytesMut,
    reusable: bool,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// [`Failure::Connect`].
    pub async fn open(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await.map_err(|_| Failure::Connect)?;
        stream.set_nodelay(true).map_err(|_| Failure::Connect)?;
        Ok(Self { stream, input: BytesMut::with_capacity(16 * 1024), reusable: true })
    }

    /// Whether another request may be sent: the last reply ended in good order and the peer has not closed
    /// since.
    #[must_use]
    pub fn is_reusable(&self) -> bool {
        let mut byte = [0_u8; 1];
        let quiet =
            matches!(self.stream.try_read(&mut byte), Err(e) if e.kind() == io::ErrorKind::WouldBlock);
        self.reusable && self.input.is_empty() && quiet
    }

    /// Sends `request` and reads its reply, as a stream or whole.
    ///
    /// # Errors
    /// The [`Failure`] that ends the request; the connection is not reusable then.
    pub async fn exchange(
        &mut self,
        request: &[u8],
        mode: Mode,
        observer: &mut impl Observer,
    ) -> Result<Reply, Failure> {
        self.reusable = false;
        let started = Instant::now();
        // A subject may refuse early and close: then its reply says more than the failed write.
        let written = self.stream.write_all(request).await;
        let head = match (self.read_head().await, written) {
            (Err(Failure::ClosedBeforeHead | Failure::ResetBeforeHead), Err(_)) => {
                return Err(Failure::Write);
            }
            (head, _) => head?,
        };
        if head.status != 200 {
            return Err(Failure::Status(head.status));
        }
        if mode.stream && !head.event_stream {
            return Err(Failure::NotSse);
        }
        let mut body = Body::new(mode, started);
        let mut framing = Deframer::new(head.framing);
        let mut plain = Vec::with_capacity(16 * 1024);
        loop {
            plain.clear();
            framing.decode(&mut self.input, &mut plain)?;
            body.handle(&plain, observer)?;
            if framing.is_done() {
                break;
            }
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) if head.framing == Framing::Close => break,
                Ok(0) => return Err(Failure::Truncated),
                Ok(_) => {}
                Err(_) => return Err(Failure::Reset),
            }
        }
        self.reusable = head.keep_alive && head.framing != Framing::Close;
        body.finish()
    }

    async fn read_head(&mut self) -> Result<Head, Failure> {
        let mut interim = 0;
        loop {
            while let Some((head, length)) = parse_head(&self.input)? {
                self.input.advance(length);
                if head.status >= 200 {
                    return Ok(head);
                }
                interim += 1;
                if interim > INTERIM_MAX {
                    return Err(Failure::BadHead);
                }
            }
            let nothing_yet = self.input.is_empty() && interim == 0;
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) if nothing_yet => return Err(Failure::ClosedBeforeHead),
                Ok(0) => return Err(Failure::Truncated),
                Ok(_) => {}
                Err(_) if nothing_yet => return Err(Failure::ResetBeforeHead),
                Err(_) => return Err(Failure::Reset),
            }
        }
    }
}

/// What is asked of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// It is a stream.
    pub stream: bool,
    /// It must carry the provider's seal.
    pub seal_demanded: bool,
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

    fn decode(&mut self, input: &mut BytesMut, out: &mut Vec<u8>) -> Result<(), Failure> {
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
        input.advance(used);
        Ok(())
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
    started: Instant,
    last_event: Option<Instant>,
    reader: EventReader,
    check: Check,
    whole: Vec<u8>,
    reply: Reply,
}

impl Body {
    fn new(mode: Mode, started: Instant) -> Self {
        Self {
            mode,
            started,
            last_event: None,
            reader: EventReader::default(),
            check: Check::default(),
            whole: Vec::new(),
            reply: Reply::default(),
        }
    }

    fn handle(&mut self, plain: &[u8], observer: &mut impl Observer) -> Result<(), Failure> {
        if plain.is_empty() {
            return Ok(());
        }
        self.reply.body_bytes += plain.len() as u64;
        if !self.mode.stream {
            self.whole.extend_from_slice(plain);
            return Ok(());
        }
        // One reading of each clock for all events of one read: they arrived together.
        let now = Instant::now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (check, last_event, reply, started) =
            (&mut self.check, &mut self.last_event, &mut self.reply, self.started);
        self.reader.read(plain, |data| {
            observer.event();
            match last_event.replace(now) {
                Some(before) => observer.gap(micros(now - before)),
                None => reply.first_event_us = micros(now - started),
            }
            if let Some(sent) = check.handle_event(data)?.sent {
                observer.delivery(micros(wall.saturating_sub(Duration::from_nanos(sent))));
            }
            Ok(())
        })
    }

    fn finish(mut self) -> Result<Reply, Failure> {
        if self.mode.stream {
            if !self.reader.is_between_events() {
                return Err(Failure::Truncated);
            }
            self.reply.events = self.check.events;
        } else {
            self.check.handle_whole(&self.whole)?;
            self.reply.events = 1;
            self.reply.first_event_us = micros(self.started.elapsed());
        }
        self.reply.sealed = self.check.finish(self.mode.seal_demanded)?;
        self.reply.comments = self.reader.comments;
        self.reply.total_us = micros(self.started.elapsed());
        Ok(self.reply)
    }
}

fn micros(duration: Duration) -> u64 {
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
        let (mut input, mut out) = (BytesMut::from(&b"abcd"[..]), Vec::new());
        framing.decode(&mut input, &mut out).unwrap();
        assert_eq!((out.as_slice(), &input[..], framing.is_done()), (&b"abc"[..], &b"d"[..], true));
    }
}
