//! Serialising heads and chunks. Nothing here can put a line break into a head: names, values and targets are checked
//! again, whoever made them.

use bytes::Bytes;

use crate::http::head::{Method, is_field_name, is_field_value, is_token_byte};

/// How the receiver is told where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No framing field: no body, or one that ends with the connection.
    None,
    /// `content-length`.
    Length(u64),
    /// `transfer-encoding: chunked`.
    Chunked,
}

/// What cannot be put into a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeFault {
    /// The method is not a token.
    #[error("not a method")]
    Method,
    /// The target is empty or has a byte that is not printable ASCII.
    #[error("not a request target")]
    Target,
    /// A field name that is not a lower-case token, or a value with a control character.
    #[error("not a field")]
    Field,
}

/// Appends a request head. Fields of the message's framing (`host`, `content-length`, `transfer-encoding`, `connection`)
/// come from the arguments; they are skipped in `fields`.
///
/// # Errors
/// Something cannot be put into a head; `out` is as before.
pub fn request_head<'a>(
    out: &mut Vec<u8>,
    method: &Method,
    target: &str,
    host: &str,
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    framing: Framing,
) -> Result<(), EncodeFault> {
    if method.as_str().is_empty() || !method.as_str().bytes().all(is_token_byte) {
        return Err(EncodeFault::Method);
    }
    if target.is_empty() || !target.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(EncodeFault::Target);
    }
    let start = out.len();
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let done = field(out, b"host", host.as_bytes()).and_then(|()| message_fields(out, fields));
    if done.is_err() {
        out.truncate(start);
        return done;
    }
    framing_field(out, framing);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends a response head. Fields of the message's framing (`content-length`, `transfer-encoding`, `connection`) come
/// from the arguments; they are skipped in `fields`. `status` is kept within 100 to 599.
///
/// # Errors
/// A field cannot be put into a head; `out` is as before.
pub fn response_head<'a, N: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    status: u16,
    fields: impl IntoIterator<Item = (N, &'a [u8])>,
    framing: Framing,
    close: bool,
) -> Result<(), EncodeFault> {
    let start = out.len();
    out.extend_from_slice(b"HTTP/1.1 ");
    decimal(out, u64::from(status.clamp(100, 599)));
    out.push(b' ');
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"\r\n");
    let done = message_fields(out, fields);
    if done.is_err() {
        out.truncate(start);
        return done;
    }
    framing_field(out, framing);
    if close {
        out.extend_from_slice(b"connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// The answer to `Expect: 100-continue`.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The end of a chunked body, without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Appends one chunk that holds all of `parts`; nothing when they are all empty.
pub fn chunk(out: &mut Vec<u8>, parts: &[Bytes]) {
    let whole: usize = parts.iter().map(Bytes::len).sum();
    if whole == 0 {
        return;
    }
    out.reserve(whole + 20);
    chunk_size(out, whole);
    for part in parts {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends one chunk; nothing when it is empty.
pub fn chunk_of(out: &mut Vec<u8>, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    out.reserve(data.len() + 20);
    chunk_size(out, data.len());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

fn chunk_size(out: &mut Vec<u8>, size: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let nibbles = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    for nibble in (0..nibbles).rev() {
        out.push(DIGITS[(size >> (nibble * 4)) & 0xf]);
    }
    out.extend_from_slice(b"\r\n");
}

fn message_fields<'a, N: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    fields: impl IntoIterator<Item = (N, &'a [u8])>,
) -> Result<(), EncodeFault> {
    for (name, value) in fields {
        let name = name.as_ref();
        if !matches!(name, b"host" | b"content-length" | b"transfer-encoding" | b"connection") {
            field(out, name, value)?;
        }
    }
    Ok(())
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), EncodeFault> {
    if !is_field_name(name) || !is_field_value(value) {
        return Err(EncodeFault::Field);
    }
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

fn framing_field(out: &mut Vec<u8>, framing: Framing) {
    match framing {
        Framing::None => {}
        Framing::Length(length) => {
            out.extend_from_slice(b"content-length: ");
            decimal(out, length);
            out.extend_from_slice(b"\r\n");
        }
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
}

fn decimal(out: &mut Vec<u8>, mut value: u64) {
    let start = out.len();
    loop {
        out.push(b'0' + u8::try_from(value % 10).unwrap_or_default());
        value /= 10;
        if value == 0 {
            break;
        }
    }
    if let Some(digits) = out.get_mut(start..) {
        digits.reverse();
    }
}

/// Reason phrase of the statuses that this product or its providers send; empty for others, which is allowed.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        529 => "Overloaded",
        _ => "",
    }
}
