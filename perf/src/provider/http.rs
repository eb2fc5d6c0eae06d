//! Reading HTTP/1.1 requests: the pure part. Bytes in, a head or a refusal out.
//!
//! The head is kept as the bytes that arrived, so that a test can see exactly what a gateway sent; only what
//! the provider acts on is picked out of it.

use bytes::Bytes;

/// The largest request head. Unit: bytes.
pub const HEAD_BYTES_MAX: usize = 256 * 1024;
/// The most header fields of a request.
pub const HEADERS_MAX: usize = 256;
/// The largest request body. Unit: bytes.
pub const BODY_BYTES_MAX: u64 = 256 << 20;

/// How a request's body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// Chunked transfer coding.
    Chunked,
    /// A body of this many bytes, which may be none.
    Length(u64),
}

/// A request head as it arrived, and what the provider needs of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The bytes of the head, final blank line included.
    pub raw: Bytes,
    /// The method.
    pub method: String,
    /// The request target.
    pub target: String,
    /// How the body is framed.
    pub framing: BodyFraming,
    /// Whether the peer wants the connection kept.
    pub keep_alive: bool,
    /// Whether the peer waits for `100 Continue`.
    pub expect_continue: bool,
    /// The script of `x-perf-script`, empty if there is none.
    pub script: String,
    /// The value of `authorization`, empty if there is none.
    pub authorization: String,
}

impl Head {
    /// The target without its query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Every header field in order, as it arrived. Values that are not UTF-8 are shown with replacement
    /// characters.
    #[must_use]
    pub fn fields(&self) -> Vec<(String, String)> {
        let mut slots = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut slots);
        match request.parse(&self.raw) {
            Ok(_) => request.headers.iter().map(|h| (h.name.to_owned(), lossy(h.value))).collect(),
            Err(_) => Vec::new(),
        }
    }
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The bytes are not an HTTP/1.x request head.
    #[error("request head is not HTTP/1.x")]
    Malformed,
    /// The head exceeds [`HEAD_BYTES_MAX`] or [`HEADERS_MAX`].
    #[error("request head is too large")]
    TooLarge,
    /// The body's framing is contradictory, unknown or too large.
    #[error("request body framing is not acceptable")]
    Framing,
}

/// Takes a complete head from the front of `input`: the head and its length, or `None` while it is
/// incomplete.
///
/// # Errors
/// [`HeadError`] when what has arrived can never become an acceptable head.
pub fn parse_head(input: &[u8]) -> Result<Option<(Head, usize)>, HeadError> {
    let mut slots = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut slots);
    let length = match request.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if input.len() > HEAD_BYTES_MAX => return Err(HeadError::TooLarge),
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLarge),
        Err(_) => return Err(HeadError::Malformed),
    };
    let mut head = Head {
        raw: Bytes::copy_from_slice(input.get(..length).unwrap_or_default()),
        method: request.method.unwrap_or_default().to_owned(),
        target: request.path.unwrap_or_default().to_owned(),
        framing: BodyFraming::Length(0),
        keep_alive: request.version == Some(1),
        expect_continue: false,
        script: String::new(),
        authorization: String::new(),
    };
    let (mut content_length, mut chunked) = (None, false);
    for field in request.headers.iter() {
        let name = field.name;
        if name.eq_ignore_ascii_case("content-length") {
            let value = lossy(field.value);
            let length: u64 = value.trim().parse().map_err(|_| HeadError::Framing)?;
            if content_length.replace(length).is_some_and(|before| before != length)
                || length > BODY_BYTES_MAX
            {
                return Err(HeadError::Framing);
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if !field.value.eq_ignore_ascii_case(b"chunked") {
                return Err(HeadError::Framing);
            }
            chunked = true;
        } else if name.eq_ignore_ascii_case("connection") {
            let value = lossy(field.value).to_ascii_lowercase();
            head.keep_alive = match value.trim() {
                "close" => false,
                "keep-alive" => true,
                _ => head.keep_alive,
            };
        } else if name.eq_ignore_ascii_case("expect") {
            head.expect_continue = field.value.eq_ignore_ascii_case(b"100-continue");
        } else if name.eq_ignore_ascii_case("x-perf-script") {
            head.script = lossy(field.value);
        } else if name.eq_ignore_ascii_case("authorization") {
            head.authorization = lossy(field.value);
        }
    }
    head.framing = match (content_length, chunked) {
        (Some(_), true) => return Err(HeadError::Framing),
        (_, true) => BodyFraming::Chunked,
        (length, false) => BodyFraming::Length(length.unwrap_or(0)),
    };
    Ok(Some((head, length)))
}

fn lossy(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<(Head, usize)>, HeadError> {
        parse_head(text.as_bytes())
    }

    #[test]
    fn head_is_taken_whole_and_leaves_the_rest() {
        let text = "POST /v1/chat/completions?beta=true HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\
                    X-Perf-Script: events=3\r\nAuthorization: Bearer k\r\nExpect: 100-continue\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(parse(text.get(..end).unwrap()), Ok(None));
        }
        let (head, length) = parse(&format!("{text}{{}}GET")).unwrap().unwrap();
        assert_eq!(length, text.len());
        assert_eq!(head.raw, text.as_bytes());
        assert_eq!((head.method.as_str(), head.path()), ("POST", "/v1/chat/completions"));
        assert_eq!(head.framing, BodyFraming::Length(2));
        assert!(head.keep_alive && head.expect_continue);
        assert_eq!((head.script.as_str(), head.authorization.as_str()), ("events=3", "Bearer k"));
        assert_eq!(head.fields().len(), 5);
    }

    #[test]
    fn keep_alive_follows_version_and_connection_field() {
        for (version, field, expected) in [
            ("1.1", "", true),
            ("1.0", "", false),
            ("1.1", "Connection: close\r\n", false),
            ("1.0", "Connection: Keep-Alive\r\n", true),
        ] {
            let (head, _) = parse(&format!("GET / HTTP/{version}\r\n{field}\r\n")).unwrap().unwrap();
            assert_eq!(head.keep_alive, expected, "{version} {field}");
        }
    }

    #[test]
    fn contradictory_framing_is_refused() {
        for fields in [
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: x\r\n",
            "Content-Length: 99999999999\r\n",
            "Transfer-Encoding: gzip\r\n",
        ] {
            assert_eq!(
                parse(&format!("POST / HTTP/1.1\r\n{fields}\r\n")),
                Err(HeadError::Framing),
                "{fields}"
            );
        }
    }

    #[test]
    fn what_is_not_http_or_too_large_is_refused() {
        assert_eq!(parse_head(b"\x16\x03\x01\x02\x00"), Err(HeadError::Malformed));
        let long = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(HEAD_BYTES_MAX));
        assert_eq!(parse(&long), Err(HeadError::TooLarge));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(parse(&many), Err(HeadError::TooLarge));
    }
}
