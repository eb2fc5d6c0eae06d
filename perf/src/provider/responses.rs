//! The bytes of replies other than completions: heads, error bodies, model lists, echo and raw bodies. Pure.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

use super::http::Head;
use super::script::{BadHead, ErrorShape, Framing, Script};

/// Bytes that no HTTP parser takes for a response: the beginning of a TLS record, then text.
pub const GARBAGE: &[u8] = b"\x16\x03\x01\x00\xff\x00 this is not HTTP \xff\xfe\r\n\r\n";

/// A chunk-size line that is not hexadecimal.
pub const BAD_CHUNK: &[u8] = b"zz;not-hex\r\ndata: {}\n\n\r\n";

/// A chunk-size line that overflows 64 bits.
pub const HUGE_CHUNK: &[u8] = b"fffffffffffffffff\r\ndata: {}\n\n\r\n";

/// An interim response, sent as often as the script's `early-hints` says.
pub const EARLY_HINTS: &[u8] = b"HTTP/1.1 103 Early Hints\r\nlink: </perf>; rel=preload\r\n\r\n";

/// The trailer section that ends a chunked body with `trailers`.
pub const TRAILERS: &[u8] = b"0\r\nx-perf-trailer: 1\r\nx-provider: trailer\r\n\r\n";

/// The largest value of one padding field. Unit: bytes.
const PAD_VALUE_BYTES: usize = 4000;

/// What a response head says beyond its script.
#[derive(Debug, Clone, Copy)]
pub struct HeadFacts<'a> {
    /// The status code.
    pub status: u16,
    /// `content-type`, empty for none.
    pub content_type: &'a str,
    /// The body's length, where the framing announces it.
    pub length: usize,
    /// The framing; an error or a plain JSON reply uses its own.
    pub framing: Framing,
    /// The provider's number for this request.
    pub number: u64,
    /// Whether `connection: close` is announced.
    pub close: bool,
    /// Further header lines, each ended by CRLF.
    pub extra: &'a str,
}

/// The response head for `facts`, padded and broken as `script` says.
#[must_use]
pub fn head(facts: &HeadFacts<'_>, script: &Script) -> Vec<u8> {
    let mut out = String::with_capacity(320 + script.headers_bytes + script.headers_bytes / 200);
    let version = match (script.bad_head, script.http10) {
        (Some(BadHead::Version), _) => "3.7",
        (_, true) => "1.0",
        _ => "1.1",
    };
    // Writing to a String cannot fail, here and below.
    let _ = match script.bad_head {
        Some(BadHead::Status) => write!(out, "HTTP/{version} 2x0 OK\r\n"),
        _ => write!(out, "HTTP/{version} {} {}\r\n", facts.status, reason(facts.status)),
    };
    let _ = write!(
        out,
        "server: iop-perf\r\nx-provider: iop-perf\r\nx-request-id: perf-{:010}\r\n",
        facts.number
    );
    if !facts.content_type.is_empty() {
        let _ = write!(out, "content-type: {}\r\n", facts.content_type);
    }
    out.push_str(facts.extra);
    if let Some(seconds) = script.retry_after {
        let _ = write!(out, "retry-after: {seconds}\r\n");
    }
    match facts.framing {
        Framing::Chunked => out.push_str("transfer-encoding: chunked\r\n"),
        Framing::ContentLength => {
            let _ = write!(out, "content-length: {}\r\n", facts.length);
        }
        Framing::CloseDelimited => {}
    }
    if facts.close {
        out.push_str("connection: close\r\n");
    }
    break_head(&mut out, script.bad_head);
    pad_head(&mut out, script);
    out.push_str("\r\n");
    if script.bad_head == Some(BadHead::LfOnly) {
        out = out.replace("\r\n", "\n");
    }
    out.into_bytes()
}

fn break_head(out: &mut String, bad: Option<BadHead>) {
    match bad {
        Some(BadHead::ClAndTe) => out.push_str("content-length: 3\r\ntransfer-encoding: chunked\r\n"),
        Some(BadHead::DoubleCl) => out.push_str("content-length: 3\r\ncontent-length: 4\r\n"),
        Some(BadHead::SignedCl) => out.push_str("content-length: +5\r\n"),
        Some(BadHead::Te) => out.push_str("transfer-encoding: gzip, chunked\r\n"),
        Some(BadHead::Name) => out.push_str("x bad name: 1\r\n"),
        Some(BadHead::Nul) => out.push_str("x-nul: a\0b\r\n"),
        Some(BadHead::ObsFold) => out.push_str("x-folded: one\r\n two\r\n"),
        Some(BadHead::LfOnly | BadHead::Status | BadHead::Version) | None => {}
    }
}

fn pad_head(out: &mut String, script: &Script) {
    for index in 0..script.headers_count {
        let _ = write!(out, "x-small-{index}: 1\r\n");
    }
    let (mut left, mut index) = (script.headers_bytes, 0_usize);
    while left > 0 {
        let before = out.len();
        let _ = write!(out, "x-pad-{index}: ");
        let overhead = out.len() - before + 2;
        let value = left.saturating_sub(overhead).min(PAD_VALUE_BYTES);
        out.extend(std::iter::repeat_n('p', value));
        out.push_str("\r\n");
        left = left.saturating_sub(overhead + value);
        index += 1;
    }
}

/// The reason phrase of a status; an unknown status has a made-up one.
#[must_use]
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Scripted",
    }
}

/// Whether a response of this status has a body at all (RFC 9110 section 6.4.1).
#[must_use]
pub fn may_have_body(status: u16) -> bool {
    status >= 200 && status != 204 && status != 304
}

/// An error body of the shape an engine would send, with its content type.
#[must_use]
pub fn error_body(shape: ErrorShape, status: u16, code: &str, message: &str) -> (&'static str, String) {
    let kind = error_type(status);
    let json = "application/json";
    let value = match shape {
        ErrorShape::Empty => return ("", String::new()),
        ErrorShape::Html => {
            return (
                "text/html",
                format!("<html><body><h1>{status} {}</h1></body></html>\n", reason(status)),
            );
        }
        ErrorShape::Text => return ("text/plain", format!("{message}\n")),
        ErrorShape::OpenAi => {
            serde_json::json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
        }
        ErrorShape::Vllm => {
            serde_json::json!({"error": {"message": message, "type": kind, "param": null, "code": status}})
        }
        ErrorShape::LlamaCpp => {
            serde_json::json!({"error": {"code": status, "message": message, "type": kind}})
        }
        ErrorShape::Ollama => serde_json::json!({"error": message}),
        ErrorShape::Sglang => {
            serde_json::json!({"object": "error", "message": message, "type": kind, "param": null, "code": status})
        }
    };
    (json, value.to_string())
}

fn error_type(status: u16) -> &'static str {
    match status {
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        _ => "server_error",
    }
}

/// The body of `GET /v1/models`.
#[must_use]
pub fn model_list(models: &[String], created: u64) -> String {
    let data: Vec<_> = models
        .iter()
        .map(
            |id| serde_json::json!({"id": id, "object": "model", "created": created, "owned_by": "iop-perf"}),
        )
        .collect();
    serde_json::json!({"object": "list", "data": data}).to_string()
}

/// The facts of a request as it arrived: the body of an `echo`, and `last` of `/stats`.
///
/// `body` is there only if it is UTF-8 and at most 64 KiB; the digest covers all of it.
#[must_use]
pub fn echo(head: &Head, body: &[u8]) -> serde_json::Value {
    const BODY_SHOWN_BYTES_MAX: usize = 64 * 1024;
    let shown = Some(body).filter(|body| body.len() <= BODY_SHOWN_BYTES_MAX);
    serde_json::json!({
        "method": head.method,
        "target": head.target,
        "path": head.path(),
        "headers": head.fields(),
        "head_bytes": head.raw.len(),
        "head_sha256": sha256_hex(&head.raw),
        "body_bytes": body.len(),
        "body_sha256": sha256_hex(body),
        "body": shown.and_then(|body| std::str::from_utf8(body).ok()),
    })
}

/// SHA-256 in hexadecimal.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The bytes of a `raw-body`: the same for every request, a shorter one being the beginning of a longer one.
#[must_use]
pub fn raw_body(size: usize) -> Vec<u8> {
    // xorshift64, any non-zero seed.
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut out = Vec::with_capacity(size + 8);
    while out.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(size);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(framing: Framing) -> HeadFacts<'static> {
        HeadFacts {
            status: 200,
            content_type: "application/json",
            length: 5,
            framing,
            number: 7,
            close: false,
            extra: "x-more: 1\r\n",
        }
    }

    fn parses(head: &[u8]) -> bool {
        let mut slots = [httparse::EMPTY_HEADER; 64];
        matches!(httparse::Response::new(&mut slots).parse(head), Ok(httparse::Status::Complete(n)) if n == head.len())
    }

    #[test]
    fn heads_parse_and_carry_framing_and_provider_fields() {
        for (framing, line) in [
            (Framing::Chunked, "transfer-encoding: chunked\r\n"),
            (Framing::ContentLength, "content-length: 5\r\n"),
            (Framing::CloseDelimited, "x-provider: iop-perf\r\n"),
        ] {
            let head = head(&facts(framing), &Script::default());
            assert!(parses(&head));
            let text = String::from_utf8(head).unwrap();
            assert!(text.contains(line), "{text}");
            assert!(
                text.contains("x-request-id: perf-0000000007\r\n") && text.contains("x-more: 1\r\n"),
                "{text}"
            );
        }
    }

    #[test]
    fn padding_adds_about_the_bytes_asked_for() {
        let plain = head(&facts(Framing::Chunked), &Script::default()).len();
        for size in [100, 4000, 10_000, 200_000] {
            let script = Script { headers_bytes: size, ..Script::default() };
            let added = head(&facts(Framing::Chunked), &script).len() - plain;
            assert!((size..size + 16).contains(&added), "{size}: {added}");
        }
    }

    #[test]
    fn broken_heads_say_what_their_name_says() {
        for (bad, needle) in [
            (BadHead::ClAndTe, "content-length: 3\r\ntransfer-encoding: chunked\r\n"),
            (BadHead::DoubleCl, "content-length: 3\r\ncontent-length: 4\r\n"),
            (BadHead::LfOnly, "OK\nserver"),
            (BadHead::Name, "x bad name: 1\r\n"),
            (BadHead::Nul, "x-nul: a\0b\r\n"),
            (BadHead::ObsFold, "x-folded: one\r\n two\r\n"),
            (BadHead::SignedCl, "content-length: +5\r\n"),
            (BadHead::Status, "HTTP/1.1 2x0"),
            (BadHead::Te, "transfer-encoding: gzip, chunked\r\n"),
            (BadHead::Version, "HTTP/3.7 200"),
        ] {
            let script = Script { bad_head: Some(bad), ..Script::default() };
            let text = String::from_utf8(head(&facts(Framing::CloseDelimited), &script)).unwrap();
            assert!(text.contains(needle), "{bad:?}: {text}");
        }
    }

    #[test]
    fn error_bodies_have_the_dialect_of_their_engine() {
        let parse = |shape| {
            let (kind, body) = error_body(shape, 429, "rate_limit_exceeded", "slow down");
            assert_eq!(kind, "application/json");
            serde_json::from_str::<serde_json::Value>(&body).unwrap()
        };
        assert_eq!(parse(ErrorShape::OpenAi)["error"]["code"], "rate_limit_exceeded");
        assert_eq!(parse(ErrorShape::OpenAi)["error"]["type"], "rate_limit_error");
        assert_eq!(parse(ErrorShape::Vllm)["error"]["code"], 429);
        assert_eq!(parse(ErrorShape::LlamaCpp)["error"]["code"], 429);
        assert_eq!(parse(ErrorShape::Ollama)["error"], "slow down");
        assert_eq!(parse(ErrorShape::Sglang)["object"], "error");
    }

    #[test]
    fn raw_bodies_are_prefixes_of_each_other() {
        let long = raw_body(1001);
        assert_eq!(long.len(), 1001);
        assert!(long.starts_with(&raw_body(13)));
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
