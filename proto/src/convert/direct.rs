//! The messages that every tunnel has, to and from bytes without the detour over the generated types: its request, the start
//! and the end of its response. What is not in our encoder's own order of fields, or breaks a rule, takes the general way.
//!
//! Tests compare both ways.

use alloc::{borrow::ToOwned as _, boxed::Box, collections::BTreeMap, string::String, vec::Vec};
use core::str;

use bytes::Bytes;

use super::from_wire::stall_timeout;
use crate::{
    frame::{LENGTH_BYTES, length_of, varint},
    limits::HEADERS_MAX,
    message::{Header, Message, Operation, StreamNo, TunnelFrame, TunnelFrameKind, TunnelRequest},
    wire::provider_tunnel_frame::Kind,
};

/// Fields of `Envelope`.
const TUNNEL_REQUEST: u32 = 9;
const TUNNEL_FRAME: u32 = 10;

/// Room for headers that most messages need no more than.
const HEADERS_USUAL: usize = 8;

/// Appends a complete frame, if the message is one of these.
pub(super) fn encode(message: &Message, out: &mut Vec<u8>) -> bool {
    match message {
        // A map and credentials are rare.
        Message::TunnelRequest(request)
            if request.metadata.is_empty()
                && request.credential.is_none()
                && request.provider_auth.is_none() =>
        {
            envelope(out, TUNNEL_REQUEST, |sink| tunnel_request(request, sink));
        }
        Message::TunnelFrame(TunnelFrame { stream, sequence, kind }) => {
            let (kind, start) = match kind {
                TunnelFrameKind::ResponseStart { status, headers, until_close } => {
                    (Kind::ResponseStart, Some((*status, headers, *until_close)))
                }
                TunnelFrameKind::End => (Kind::End, None),
                _ => return false,
            };
            envelope(out, TUNNEL_FRAME, |sink| {
                sink.number(1, *stream);
                sink.number(2, *sequence);
                sink.number(3, kind as u64);
                if let Some((status, headers, until_close)) = start {
                    sink.number(5, u64::from(status));
                    sink.headers(6, headers);
                    sink.number(12, u64::from(until_close));
                }
            });
        }
        _ => return false,
    }
    true
}

fn tunnel_request(request: &TunnelRequest, sink: &mut Sink<'_>) {
    sink.number(1, request.stream);
    sink.bytes(2, request.run_id.as_bytes());
    sink.bytes(3, request.adapter.as_bytes());
    sink.bytes(4, request.target.as_bytes());
    sink.bytes(5, request.method.as_bytes());
    sink.bytes(6, request.path.as_bytes());
    sink.headers(7, &request.headers);
    sink.bytes(8, &request.body);
    sink.number(9, request.body_bytes);
    sink.number(10, u64::from(request.stream_response));
    sink.number(11, u64::from(request.timeout_sec));
    sink.bytes(13, request.operation.map_or("", Operation::as_str).as_bytes());
    sink.bytes(14, request.session_id.as_bytes());
    // A negative number is ten bytes of its two's complement.
    sink.number(15, request.response_stall_timeout_ms.cast_unsigned());
    sink.number(18, u64::from(request.window_bytes));
}

/// Goes over the fields twice: for their length, which stands first, and for their bytes.
fn envelope(out: &mut Vec<u8>, member: u32, fields: impl Fn(&mut Sink<'_>)) {
    let mut length = 0;
    fields(&mut Sink::Length(&mut length));
    let mut outer = 0;
    Sink::Length(&mut outer).bytes_head(member, length);
    out.reserve(LENGTH_BYTES + outer + length);
    out.extend_from_slice(&length_of(outer + length).to_be_bytes());
    let mut sink = Sink::Bytes(out);
    sink.bytes_head(member, length);
    fields(&mut sink);
}

/// Where fields go.
enum Sink<'a> {
    Length(&'a mut usize),
    Bytes(&'a mut Vec<u8>),
}

impl Sink<'_> {
    fn varint(&mut self, mut value: u64) {
        match self {
            Self::Length(length) => **length += varint_len(value),
            Self::Bytes(out) => {
                while value >= 0x80 {
                    out.push(u8::try_from(value & 0x7F).unwrap_or_default() | 0x80);
                    value >>= 7;
                }
                out.push(u8::try_from(value).unwrap_or_default());
            }
        }
    }

    /// An integer; proto3 leaves a 0 out.
    fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.varint(u64::from(field << 3));
            self.varint(value);
        }
    }

    /// Key and length of what is length-delimited.
    fn bytes_head(&mut self, field: u32, len: usize) {
        self.varint(u64::from(field << 3 | 2));
        self.varint(len as u64);
    }

    /// Text or bytes; proto3 leaves empty ones out.
    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.bytes_head(field, bytes.len());
        match self {
            Self::Length(length) => **length += bytes.len(),
            Self::Bytes(out) => out.extend_from_slice(bytes),
        }
    }

    /// Lengths are told by a formula: most of what such a message costs would be to go over its headers again for them.
    fn headers(&mut self, field: u32, headers: &[Header]) {
        for header in headers {
            let length = member_len(header.name.len()) + member_len(header.value.len());
            self.bytes_head(field, length);
            match self {
                Self::Length(total) => **total += length,
                Self::Bytes(out) => {
                    push_member(out, 1, header.name.as_bytes());
                    push_member(out, 2, &header.value);
                }
            }
        }
    }
}

/// Bytes of a length-delimited field with a number below 16, which has a key of one byte; an empty one is left out.
const fn member_len(len: usize) -> usize {
    match len {
        0 => 0,
        1..0x80 => 2 + len,
        _ => 1 + varint_len(len as u64) + len,
    }
}

/// Appends such a field.
fn push_member(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(0) => {}
        Ok(length @ ..0x80) => {
            out.extend_from_slice(&[field << 3 | 2, length]);
            out.extend_from_slice(bytes);
        }
        _ => Sink::Bytes(out).bytes(field.into(), bytes),
    }
}

/// Bytes of a varint.
const fn varint_len(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// Reads a frame that holds one of these messages, in order and valid; `None` for every other one.
pub(super) fn decode(frame: &Bytes) -> Option<Message> {
    let mut fields = Fields { frame, at: 0, end: frame.len(), last: 0 };
    let (member, Value::Bytes(inside)) = fields.next()?? else { return None };
    if fields.at != fields.end {
        return None;
    }
    let message = match member {
        TUNNEL_REQUEST => Message::TunnelRequest(read_request(inside)?),
        TUNNEL_FRAME => Message::TunnelFrame(read_frame(inside)?),
        _ => return None,
    };
    message.validate().ok().map(|()| message)
}

fn read_frame(mut fields: Fields<'_>) -> Option<TunnelFrame> {
    let (mut stream, mut sequence, mut kind, mut status, mut until_close): (StreamNo, _, _, _, _) =
        (0, 0, 0, 0, false);
    let mut headers = Vec::new();
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Value::Number(value)) => stream = value,
            (2, Value::Number(value)) => sequence = value,
            (3, Value::Number(value)) => kind = value,
            (5, Value::Number(value)) => status = u16::try_from(value).ok()?,
            (6, Value::Bytes(header)) => push_header(&mut headers, header)?,
            (12, Value::Number(value)) => until_close = value != 0,
            _ => return None,
        }
    }
    let kind = match () {
        () if kind == Kind::ResponseStart as u64 => {
            TunnelFrameKind::ResponseStart { status, headers, until_close }
        }
        () if kind == Kind::End as u64 => TunnelFrameKind::End,
        () => return None,
    };
    Some(TunnelFrame { stream, sequence, kind })
}

/// Its place on the heap is there before it is: so it is not copied.
fn read_request(mut fields: Fields<'_>) -> Option<Box<TunnelRequest>> {
    let place = Box::new_uninit();
    let request = TunnelRequest {
        stream: 0,
        run_id: String::new(),
        adapter: String::new(),
        target: String::new(),
        method: String::new(),
        path: String::new(),
        headers: Vec::new(),
        body: Bytes::new(),
        body_bytes: 0,
        stream_response: false,
        timeout_sec: 0,
        metadata: BTreeMap::new(),
        operation: None,
        session_id: String::new(),
        response_stall_timeout_ms: 0,
        window_bytes: 0,
        credential: None,
        provider_auth: None,
    };
    let mut request = Box::write(place, request);
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Value::Number(value)) => request.stream = value,
            (2, Value::Bytes(text)) => request.run_id = text.text()?,
            (3, Value::Bytes(text)) => request.adapter = text.text()?,
            (4, Value::Bytes(text)) => request.target = text.text()?,
            (5, Value::Bytes(text)) => request.method = text.text()?,
            (6, Value::Bytes(text)) => request.path = text.text()?,
            (7, Value::Bytes(header)) => push_header(&mut request.headers, header)?,
            (8, Value::Bytes(body)) => request.body = body.shared(),
            (9, Value::Number(value)) => request.body_bytes = value,
            (10, Value::Number(value)) => request.stream_response = value != 0,
            (11, Value::Number(value)) => request.timeout_sec = u32::try_from(value).ok()?,
            (13, Value::Bytes(name)) => {
                request.operation = Some(str::from_utf8(name.bytes()).ok()?.parse().ok()?)
            }
            (14, Value::Bytes(text)) => request.session_id = text.text()?,
            (15, Value::Number(value)) => request.response_stall_timeout_ms = value.cast_signed(),
            (18, Value::Number(value)) => request.window_bytes = u32::try_from(value).ok()?,
            _ => return None,
        }
    }
    request.response_stall_timeout_ms = stall_timeout(request.response_stall_timeout_ms);
    Some(request)
}

/// Never more than there may be, whatever the frame holds.
fn push_header(headers: &mut Vec<Header>, mut fields: Fields<'_>) -> Option<()> {
    if headers.len() == HEADERS_MAX {
        return None;
    }
    if headers.is_empty() {
        headers.reserve(HEADERS_USUAL);
    }
    if let Some((name, value)) = usual_header(fields.bytes()) {
        let at = fields.end - value;
        let name = str::from_utf8(name).ok()?.to_owned();
        headers.push(Header { name, value: fields.frame.slice(at..fields.end) });
        return Some(());
    }
    let mut header = Header { name: String::new(), value: Bytes::new() };
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Value::Bytes(text)) => header.name = text.text()?,
            (2, Value::Bytes(bytes)) => header.value = bytes.shared(),
            _ => return None,
        }
    }
    headers.push(header);
    Some(())
}

/// The name and the length of the value of a header that has both, each in less than 128 bytes, as our encoder writes it.
fn usual_header(bytes: &[u8]) -> Option<(&[u8], usize)> {
    const NAME: u8 = 1 << 3 | 2;
    const VALUE: u8 = 2 << 3 | 2;
    let [NAME, length @ 1..0x80, rest @ ..] = bytes else { return None };
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let [VALUE, length @ 1..0x80, value @ ..] = rest else { return None };
    (value.len() == usize::from(*length)).then_some((name, value.len()))
}

/// The value of a field.
enum Value<'a> {
    Number(u64),
    Bytes(Fields<'a>),
}

/// A part of a frame, read as fields in the order of their numbers or as bytes.
struct Fields<'a> {
    frame: &'a Bytes,
    at: usize,
    end: usize,
    /// The number of the last field.
    last: u32,
}

impl<'a> Fields<'a> {
    fn bytes(&self) -> &'a [u8] {
        self.frame.get(self.at..self.end).unwrap_or_default()
    }

    fn text(&self) -> Option<String> {
        str::from_utf8(self.bytes()).ok().map(str::to_owned)
    }

    fn shared(&self) -> Bytes {
        self.frame.slice(self.at..self.end)
    }

    /// The next field; `Some(None)` at the end, `None` where it is not one that our encoder would write there. A field that
    /// may come more than once is told by its reader.
    fn next(&mut self) -> Option<Option<(u32, Value<'a>)>> {
        if self.at == self.end {
            return Some(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (at, end) = (self.at, self.at.checked_add(length).filter(|end| *end <= self.end)?);
                self.at = end;
                Value::Bytes(Fields { frame: self.frame, at, end, last: 0 })
            }
            _ => return None,
        };
        // The same number again is a list, or a field that is replaced or merged: only headers may be so.
        let in_order = number > self.last
            || (number == self.last && matches!(number, 6 | 7) && matches!(value, Value::Bytes(_)));
        self.last = number;
        in_order.then_some(Some((number, value)))
    }

    fn varint(&mut self) -> Option<u64> {
        // Nearly all of them: keys, and lengths of short texts.
        if let Some(byte @ ..0x80) = self.bytes().first() {
            self.at += 1;
            return Some(u64::from(*byte));
        }
        let mut rest = self.bytes();
        let value = varint(&mut rest)?;
        self.at = self.end - rest.len();
        Some(value)
    }
}
