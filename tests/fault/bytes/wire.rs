//! An answer as a provider writes it, of which every byte is known: head, framing or body.

use std::fmt::Write;

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framed {
    /// In chunks of at most this size, with extensions, leading zeros, both cases, and a trailer.
    Chunks(usize),
    /// By its length.
    Length,
    /// By the end of the connection.
    Close,
}

/// Bytes that are held back at most for the first content.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// Whether an event has more than a role.
fn is_content(event: &str) -> bool {
    let data = event.lines().find_map(|line| line.strip_prefix("data:")).unwrap_or_default().trim();
    let Ok(chunk) = serde_json::from_str::<serde_json::Value>(data) else { return !data.is_empty() };
    let choice = &chunk["choices"][0];
    let says = |(key, value): (&String, &serde_json::Value)| {
        key != "role" && !value.is_null() && value.as_str() != Some("")
    };
    !choice["finish_reason"].is_null() || choice["delta"].as_object().is_some_and(|it| it.iter().any(says))
}

/// The answer.
#[derive(Debug)]
pub(super) struct Wire {
    bytes: Vec<u8>,
    body: Vec<u8>,
    /// Bytes of the body among the first so many bytes of the answer, by their number.
    visible: Vec<usize>,
    framed: Framed,
}

impl Wire {
    /// An answer of status 200 with `fields`, lines that end in CRLF.
    pub(super) fn new(fields: &str, framed: Framed, body: &[u8]) -> Self {
        let mut wire = Self { bytes: Vec::new(), body: body.to_vec(), visible: vec![0], framed };
        let mut head = format!("HTTP/1.1 200 OK\r\n{fields}");
        let _infallible = match framed {
            Framed::Chunks(_) => write!(head, "transfer-encoding: chunked\r\n"),
            Framed::Length => write!(head, "content-length: {}\r\n", body.len()),
            Framed::Close => write!(head, "connection: close\r\n"),
        };
        wire.framing(&format!("{head}\r\n"));
        match framed {
            Framed::Length | Framed::Close => wire.data(body),
            Framed::Chunks(size) => {
                for (index, chunk) in body.chunks(size).enumerate() {
                    let n = chunk.len();
                    wire.framing(&match index % 3 {
                        0 => format!("{n:x}\r\n"),
                        1 => format!("00{n:X};a=b\r\n"),
                        _ => format!("{n:X};note=\"x;y\"\r\n"),
                    });
                    wire.data(chunk);
                    wire.framing("\r\n");
                }
                wire.framing("0\r\nx-trailer: 1\r\n\r\n");
            }
        }
        wire
    }

    /// An answer of which each event is one chunk, as servers write them.
    pub(super) fn by_event(fields: &str, body: &[u8]) -> Self {
        let mut wire =
            Self { bytes: Vec::new(), body: body.to_vec(), visible: vec![0], framed: Framed::Chunks(0) };
        wire.framing(&format!("HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n"));
        for event in events(body) {
            wire.framing(&format!("{:x}\r\n", event.len()));
            wire.data(event);
            wire.framing("\r\n");
        }
        wire.framing("0\r\n\r\n");
        wire
    }

    /// Bytes of the body that its client has at least when the provider has written so many of the answer. What comes before the first
    /// content of a stream is held back until that is whole, or 64 KiB have come (REC-2).
    pub(super) fn seen(&self, written: usize) -> usize {
        let visible = self.visible(written);
        if visible < self.content_end() && visible <= HELD_BYTES_MAX { 0 } else { visible }
    }

    /// Where the event ends in the body of a stream of chat completions that has the first content.
    fn content_end(&self) -> usize {
        let head = String::from_utf8_lossy(&self.bytes).to_ascii_lowercase();
        if !head.split("\r\n\r\n").next().is_some_and(|head| head.contains("text/event-stream")) {
            return 0;
        }
        let mut end = 0;
        for event in events(&self.body) {
            end += event.len();
            if is_content(&String::from_utf8_lossy(event)) {
                break;
            }
        }
        end
    }

    fn framing(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        let seen = self.visible.last().copied().unwrap_or(0);
        self.visible.resize(self.bytes.len() + 1, seen);
    }

    fn data(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        let seen = self.visible.last().copied().unwrap_or(0);
        self.visible.extend((1..=data.len()).map(|n| seen + n));
    }

    /// All of it.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The body.
    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Bytes of the body among the first `length` bytes.
    pub(super) fn visible(&self, length: usize) -> usize {
        self.visible[length]
    }

    /// The answer of [`Wire::by_event`] as its server writes it: the head, then a chunk at a time.
    pub(super) fn writes(&self) -> Vec<&[u8]> {
        let head = self.bytes.windows(4).position(|w| w == b"\r\n\r\n").map_or(0, |at| at + 4);
        let mut ends = vec![head];
        let mut at = 0;
        for event in events(&self.body) {
            at += event.len();
            ends.push(self.place(at - 1) + "\n\r\n".len());
        }
        ends.push(self.bytes.len());
        let mut from = 0;
        ends.into_iter().map(|to| &self.bytes[std::mem::replace(&mut from, to)..to]).collect()
    }

    /// Where in the answer the byte `at` of the body is.
    pub(super) fn place(&self, at: usize) -> usize {
        self.visible.partition_point(|seen| *seen <= at) - 1
    }

    /// Whether only the end of the connection ends it.
    pub(super) fn ends_by_close(&self) -> bool {
        self.framed == Framed::Close
    }

    /// The answer cut in two at every place.
    pub(super) fn halves(&self) -> impl Iterator<Item = (usize, [&[u8]; 2])> {
        (1..self.bytes.len()).map(|at| {
            let (left, right) = self.bytes.split_at(at);
            (at, [left, right])
        })
    }
}

/// The events of a stream with line feeds only, each with its blank line.
pub(super) fn events(body: &[u8]) -> Vec<&[u8]> {
    let mut rest = body;
    let mut events = Vec::new();
    while let Some(end) = rest.windows(2).position(|w| w == b"\n\n") {
        let (event, behind) = rest.split_at(end + 2);
        events.push(event);
        rest = behind;
    }
    if !rest.is_empty() {
        events.push(rest);
    }
    events
}

/// A stream with everything that the format of event streams allows (WHATWG HTML section 9.2) in few bytes.
pub(super) fn everything() -> String {
    [
        "\u{feff}: a comment, 你好\n\n",
        "retry: 3000\nid: 7\nevent: message\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"你好🌍é\"}}],\"x_unknown\":[1]}\n\n",
        "x-unknown: field\nno-colon\n:\ndata:no blank\ndata: \ndata\n\n",
        "\n: ping\n\n",
        "data: {\"text\":\"\\ndata: [DONE]\\n\\n\"}\n\n",
        "data: [DONE]\n\n",
        ": behind the end\n\n",
    ]
    .concat()
}

/// An indented JSON document with escapes, characters of up to four bytes and a line break at its end.
pub(super) fn document() -> String {
    "{\r\n\t\"id\" : \"c-1\",\r\n\t\"choices\": [ { \"message\": { \"role\":\"assistant\", \"content\": \"你好🌍é \\u4f60\\n\\ud83c\\udf0d\" } } ],\r\n\t\"n\": 1.0e+2, \"n\": 1, \"x_unknown\": null\r\n}\r\n".to_owned()
}

/// The field of a stream.
pub(super) const EVENTS: &str = "Content-Type: text/event-stream; charset=utf-8\r\nX-Custom: 1\r\n";
/// The field of a document.
pub(super) const JSON: &str = "content-type: application/json\r\n";
