//! Parsing of heads: `httparse` for the grammar, our own rules for everything that peers read differently.
//!
//! A head is looked at only up to its empty line, and line ends are judged before anything else: `httparse` takes a bare
//! LF for a line end, other parsers do not, and a difference of that kind is what request smuggling is made of.

use std::mem::MaybeUninit;

use bytes::BytesMut;
use memchr::memchr3;

use crate::http::{
    head::{Headers, Method, RequestHead, ResponseHead, Target, Version, list_elements},
    limits::{Limits, MAX_FIELDS},
};

/// Elements that all Connection fields of a head may have together; more is refused.
const MAX_CONNECTION_OPTIONS: usize = 64;
/// Digits of a Content-Length: all of them fit into 64 bits.
const MAX_LENGTH_DIGITS: usize = 19;

/// Why a head was refused. The connection must be closed after any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadFault {
    /// A line does not end in CRLF, or a CR, LF or NUL stands where none may.
    #[error("a line of the head does not end in CRLF")]
    LineEnd,
    /// The first line does not follow the grammar.
    #[error("malformed first line")]
    FirstLine,
    /// Not HTTP/1.0 or HTTP/1.1.
    #[error("unsupported protocol version")]
    Version,
    /// CONNECT or TRACE.
    #[error("unsupported method")]
    Method,
    /// The target is not in origin form.
    #[error("the request target is not a path")]
    Target,
    /// A field name or value does not follow the grammar, or a field is folded.
    #[error("malformed field")]
    Field,
    /// The head, one field or the number of fields is over its limit.
    #[error("the head is too large")]
    TooLarge,
    /// Host is missing, repeated or malformed (RFC 9112 §3.2).
    #[error("exactly one valid Host field is required")]
    Host,
    /// A field that may come once came more often.
    #[error("a field came more than once")]
    Repeated,
    /// Content-Length is not one decimal number of at most 19 digits.
    #[error("malformed Content-Length")]
    ContentLength,
    /// Transfer-Encoding is not exactly `chunked`, or comes with HTTP/1.0.
    #[error("unsupported Transfer-Encoding")]
    TransferEncoding,
    /// Both Content-Length and Transfer-Encoding.
    #[error("both Content-Length and Transfer-Encoding")]
    Ambiguous,
    /// An expectation other than `100-continue`.
    #[error("unsupported expectation")]
    Expectation,
    /// Connection names too many options.
    #[error("too many connection options")]
    Connection,
    /// A status that no response may have here (below 100, above 599, or 101 which we never ask for).
    #[error("unexpected status")]
    Status,
}

impl HeadFault {
    /// Status to answer a client with.
    pub fn status(self) -> u16 {
        match self {
            Self::TooLarge => 431,
            Self::Version => 505,
            Self::Method => 501,
            Self::Expectation => 417,
            _ => 400,
        }
    }
}

/// How the end of a message's body is found, from its head alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeclaredBody {
    /// Neither field.
    Nothing,
    /// Content-Length.
    Length(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
}

/// Where the search for a head's end stopped, so that a head that arrives byte by byte is looked at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadScan {
    /// Bytes that need no second look.
    seen: usize,
    /// Where the line begins that `seen` is in.
    line: usize,
    /// A line other than an ignored leading empty one has begun.
    begun: bool,
}

impl HeadScan {
    /// The end of the head in `buf` once it is there. The same buffer must come each time, longer or not.
    fn find_end(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        leading_empty_line: bool,
    ) -> Result<Option<usize>, HeadFault> {
        // Never past the limit, so that the outcome does not depend on how much arrived at once.
        let within = buf.get(..limits.head_bytes).unwrap_or(buf);
        let end = self.scan(within, leading_empty_line)?;
        if end.is_none() && buf.len() > limits.head_bytes {
            return Err(HeadFault::TooLarge);
        }
        Ok(end)
    }

    fn scan(&mut self, buf: &[u8], leading_empty_line: bool) -> Result<Option<usize>, HeadFault> {
        while let Some(rest) = buf.get(self.seen..) {
            let Some(offset) = memchr3(b'\r', b'\n', 0, rest) else {
                self.seen = buf.len();
                return Ok(None);
            };
            let at = self.seen + offset;
            match (buf.get(at), buf.get(at + 1)) {
                (Some(b'\r'), Some(b'\n')) => {}
                (Some(b'\r'), None) => {
                    self.seen = at;
                    return Ok(None);
                }
                _ => return Err(HeadFault::LineEnd),
            }
            let empty = at == self.line;
            self.seen = at + 2;
            self.line = self.seen;
            if empty && self.begun {
                return Ok(Some(self.seen));
            }
            if empty && !(leading_empty_line && at == 0) {
                return Err(HeadFault::LineEnd);
            }
            self.begun |= !empty;
        }
        Ok(None)
    }

    /// As [`request_head`], but does not look twice at what it has seen. Starts anew after each head or refusal.
    ///
    /// # Errors
    /// The head is refused.
    pub fn request_head(
        &mut self,
        buf: &mut BytesMut,
        limits: &Limits,
    ) -> Result<Option<RequestHead>, HeadFault> {
        match self.find_end(buf, limits, true) {
            Ok(None) => Ok(None),
            Ok(Some(end)) => {
                *self = Self::default();
                parse_request(buf.split_to(end), limits).map(Some)
            }
            Err(fault) => {
                *self = Self::default();
                Err(fault)
            }
        }
    }

    /// As [`response_head`], but does not look twice at what it has seen. Starts anew after each head or refusal.
    ///
    /// # Errors
    /// The head is refused.
    pub fn response_head(
        &mut self,
        buf: &mut BytesMut,
        limits: &Limits,
    ) -> Result<Option<ResponseHead>, HeadFault> {
        match self.find_end(buf, limits, false) {
            Ok(None) => Ok(None),
            Ok(Some(end)) => {
                *self = Self::default();
                parse_response(buf.split_to(end), limits).map(Some)
            }
            Err(fault) => {
                *self = Self::default();
                Err(fault)
            }
        }
    }
}

/// Takes one request head off the front of `buf`; `None` when it is not whole yet. One empty line before it is ignored
/// (RFC 9112 §2.2).
///
/// # Errors
/// The head is refused; what is left in `buf` must not be read as HTTP.
pub fn request_head(buf: &mut BytesMut, limits: &Limits) -> Result<Option<RequestHead>, HeadFault> {
    HeadScan::default().request_head(buf, limits)
}

/// Takes one response head (also an informational one) off the front of `buf`; `None` when it is not whole yet.
///
/// # Errors
/// The head is refused; what is left in `buf` must not be read as HTTP.
pub fn response_head(buf: &mut BytesMut, limits: &Limits) -> Result<Option<ResponseHead>, HeadFault> {
    HeadScan::default().response_head(buf, limits)
}

fn parse_request(mut head: BytesMut, limits: &Limits) -> Result<RequestHead, HeadFault> {
    if head.starts_with(b"\r\n") {
        let _empty_line = head.split_to(2);
    }
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(&head, &mut fields) {
        Ok(httparse::Status::Complete(n)) if n == head.len() => {}
        Ok(_) => return Err(HeadFault::LineEnd),
        Err(error) => return Err(grammar_fault(error, &head)),
    }
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err(HeadFault::FirstLine);
    };
    if matches!(method, "CONNECT" | "TRACE") {
        return Err(HeadFault::Method);
    }
    if target.len() > limits.field_bytes {
        return Err(HeadFault::TooLarge);
    }
    let method = Method::from_token(method);
    let origin_form = target.starts_with('/') || (target == "*" && method == Method::Options);
    if !origin_form || !target.bytes().all(|b| b.is_ascii_graphic() && b != b'#') {
        return Err(HeadFault::Target);
    }
    let target = range_in(&head, target.as_bytes());
    let version = if version == 0 { Version::Http10 } else { Version::Http11 };
    let mut headers = collect(&head, request.headers, limits)?;
    headers.adopt(head);
    let target = Target::new(headers.slice_shared(target));
    check_request_fields(version, &headers)?;
    Ok(RequestHead { method, target, version, headers })
}

fn parse_response(head: BytesMut, limits: &Limits) -> Result<ResponseHead, HeadFault> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    match config.parse_response_with_uninit_headers(&mut response, &head, &mut fields) {
        Ok(httparse::Status::Complete(n)) if n == head.len() => {}
        Ok(_) => return Err(HeadFault::LineEnd),
        Err(error) => return Err(grammar_fault(error, &head)),
    }
    let (Some(status), Some(version)) = (response.code, response.version) else {
        return Err(HeadFault::FirstLine);
    };
    if !(100..600).contains(&status) || status == 101 {
        return Err(HeadFault::Status);
    }
    let version = if version == 0 { Version::Http10 } else { Version::Http11 };
    let mut headers = collect(&head, response.headers, limits)?;
    headers.adopt(head);
    declared_body(version, &headers)?;
    check_connection(&headers)?;
    Ok(ResponseHead { status, version, headers })
}

fn collect(head: &[u8], fields: &[httparse::Header<'_>], limits: &Limits) -> Result<Headers, HeadFault> {
    if fields.len() > limits.fields {
        return Err(HeadFault::TooLarge);
    }
    let mut headers = Headers::with_capacity(fields.len());
    for field in fields {
        if field.name.len() + field.value.len() > limits.field_bytes {
            return Err(HeadFault::TooLarge);
        }
        headers.push_range(range_in(head, field.name.as_bytes()), range_in(head, field.value));
    }
    Ok(headers)
}

/// Where `part`, which is a slice of `whole`, lies in it.
fn range_in(whole: &[u8], part: &[u8]) -> std::ops::Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    start..start.wrapping_add(part.len())
}

fn grammar_fault(error: httparse::Error, head: &[u8]) -> HeadFault {
    match error {
        httparse::Error::TooManyHeaders => HeadFault::TooLarge,
        httparse::Error::Version if names_other_version(head) => HeadFault::Version,
        httparse::Error::HeaderName | httparse::Error::HeaderValue => HeadFault::Field,
        _ => HeadFault::FirstLine,
    }
}

/// Whether the first line would be right but for the digits of its version.
fn names_other_version(head: &[u8]) -> bool {
    let line = head.split(|b| *b == b'\r').next().unwrap_or_default();
    let is_version = |word: &[u8]| matches!(word, [b'H', b'T', b'T', b'P', b'/', a, b'.', b] if a.is_ascii_digit() && b.is_ascii_digit());
    let words = || line.split(|b| *b == b' ');
    words().next().is_some_and(is_version)
        || (words().count() == 3 && words().next_back().is_some_and(is_version))
}

/// What holds for the fields of a request, whatever brought them.
pub(in crate::http) fn check_request_fields(version: Version, headers: &Headers) -> Result<(), HeadFault> {
    let mut seen = 0_u32;
    for (name, _) in headers.raw() {
        let bit = singleton_bit(name);
        if seen & bit != 0 {
            return Err(if name == b"host" { HeadFault::Host } else { HeadFault::Repeated });
        }
        seen |= bit;
    }
    match headers.get("host") {
        Some(host) if !is_host(host) => return Err(HeadFault::Host),
        None if version == Version::Http11 => return Err(HeadFault::Host),
        _ => {}
    }
    declared_body(version, headers)?;
    check_connection(headers)?;
    match headers.get("expect") {
        Some(expect) if !expect.eq_ignore_ascii_case(b"100-continue") => Err(HeadFault::Expectation),
        _ => Ok(()),
    }
}

/// One bit for each request field that may come once: a second one would mean different things to different readers.
fn singleton_bit(name: &[u8]) -> u32 {
    match name {
        b"host" => 1,
        b"content-length" => 1 << 1,
        b"transfer-encoding" => 1 << 2,
        b"content-type" => 1 << 3,
        b"expect" => 1 << 4,
        b"authorization" => 1 << 5,
        b"proxy-authorization" => 1 << 6,
        b"x-api-key" => 1 << 7,
        b"api-key" => 1 << 8,
        b"x-request-id" => 1 << 9,
        b"idempotency-key" => 1 << 10,
        b"origin" => 1 << 11,
        b"content-encoding" => 1 << 12,
        b"anthropic-version" => 1 << 13,
        b"user-agent" => 1 << 14,
        b"access-control-request-method" => 1 << 15,
        _ => 0,
    }
}

/// Body that the framing fields declare, with every doubtful form refused (RFC 9112 §6.1, §6.3).
pub(super) fn declared_body(version: Version, headers: &Headers) -> Result<DeclaredBody, HeadFault> {
    let coding = headers.get_unique("transfer-encoding").map_err(|_| HeadFault::TransferEncoding)?;
    let length = headers.get_unique("content-length").map_err(|_| HeadFault::ContentLength)?;
    match (coding, length) {
        (Some(_), Some(_)) => Err(HeadFault::Ambiguous),
        (Some(coding), None) if version == Version::Http11 && coding.eq_ignore_ascii_case(b"chunked") => {
            Ok(DeclaredBody::Chunked)
        }
        (Some(_), None) => Err(HeadFault::TransferEncoding),
        (None, Some(length)) => decimal(length).map(DeclaredBody::Length).ok_or(HeadFault::ContentLength),
        (None, None) => Ok(DeclaredBody::Nothing),
    }
}

/// A length: digits and nothing else.
pub(in crate::http) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > MAX_LENGTH_DIGITS {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| match digit {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// Bounds the work of everyone who looks for nominated fields.
fn check_connection(headers: &Headers) -> Result<(), HeadFault> {
    let options =
        headers.get_all("connection").flat_map(list_elements).take(MAX_CONNECTION_OPTIONS + 1).count();
    if options > MAX_CONNECTION_OPTIONS { Err(HeadFault::Connection) } else { Ok(()) }
}

/// A host with an optional port: a name, an IPv4 address or an IPv6 address in brackets. No userinfo, no empty host.
fn is_host(value: &[u8]) -> bool {
    let (host, port) = match value {
        [b'[', rest @ ..] => match memchr::memchr(b']', rest) {
            Some(end) => (rest.get(..end).unwrap_or_default(), rest.get(end + 1..).unwrap_or_default()),
            None => return false,
        },
        _ => value.split_at(memchr::memchr(b':', value).unwrap_or(value.len())),
    };
    let bracketed = value.first() == Some(&b'[');
    let host_is_valid = !host.is_empty()
        && host.iter().all(|b| match b {
            b':' => bracketed,
            b'-' | b'_' | b'~' | b'%' => !bracketed,
            b'.' => true,
            _ if bracketed => b.is_ascii_hexdigit(),
            _ => b.is_ascii_alphanumeric(),
        });
    let port_is_valid = match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    host_is_valid && port_is_valid
}
