//! The beginning of a provider's answer that goes on as it is, before its client sees any of it: what was said so far can still be
//! forgotten and asked of another provider (REC-2). No I/O.

use dataplane::http::sse::Splitter;
use proto::message::Header;

use super::downstream::ending;
use crate::{
    gate::reading::{Reader, Said, Sign, Told},
    response,
    surface::Surface,
};

/// Most bytes of a stream that are held for their first content: more than any preamble has, and a quarter of what a Node may send
/// before credit for it comes back.
const HELD_BYTES_MAX: usize = 64 * 1024;

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
    /// Nothing that is content.
    Nothing,
    /// The first of the content, or so much that no more is held.
    Content,
    /// The provider says that it failed, before any content.
    Failure(Box<Said>),
    /// What is no event of its surface, before any content.
    Malformed,
}

/// An answer of which its client has been given no content.
#[derive(Debug)]
pub(super) struct Held {
    /// `None` when its client has been given a head, by a sign of life.
    head: Option<Head>,
    /// Of a stream of events that succeeds so far.
    reader: Option<Box<Reader>>,
    surface: Surface,
    bytes: Vec<u8>,
    told: Vec<Told>,
}

impl Held {
    /// With its head, which is held too unless its client has one already.
    pub(super) fn new(head: Head, has_begun: bool, surface: Surface) -> Self {
        let reads = head.is_success() && (has_begun || head.is_event_stream());
        Self {
            reader: reads.then(|| Box::new(Reader::new(surface, false))),
            head: (!has_begun).then_some(head),
            surface,
            bytes: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Takes more of the body.
    pub(super) fn push(&mut self, bytes: Vec<u8>) -> Came {
        if bytes.is_empty() {
            return Came::Nothing;
        }
        let Some(reader) = &mut self.reader else {
            self.keep(bytes);
            return Came::Content;
        };
        let read = reader.push(&bytes, &mut self.told, &mut Vec::new());
        let mut came = if read.is_err() { Came::Malformed } else { Came::Nothing };
        for told in self.told.drain(..) {
            match told.sign {
                Sign::Preamble => continue,
                // A stream that ends without content has said all it had to say.
                Sign::Content | Sign::End => came = Came::Content,
                Sign::Failure(said) => came = Came::Failure(said),
            }
            break;
        }
        self.keep(bytes);
        if matches!(came, Came::Nothing) && self.bytes.len() > HELD_BYTES_MAX { Came::Content } else { came }
    }

    /// The first piece, which nearly always is all there will be, is not copied.
    fn keep(&mut self, bytes: Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = bytes;
        } else {
            self.bytes.extend_from_slice(&bytes);
        }
    }

    /// Gives up the head of a stream, for a client that is to be told something before the content comes. The body stays. `None` when
    /// it is none, or is given up already.
    pub(super) fn take_stream_head(&mut self) -> Option<Head> {
        self.reader.as_ref()?;
        self.head.take()
    }

    /// Whether a stream that ends here lacks its last word.
    pub(super) fn is_cut(&self) -> bool {
        if self.reader.is_none() {
            return false;
        }
        let mut events = Splitter::ending(ending(self.surface));
        let _boundary = events.push(&self.bytes);
        !events.ends_well()
    }

    /// Whether nothing of a body has come.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All of it, for its client: the head, unless it has one, and the beginning of the body.
    pub(super) fn into_parts(self) -> (Option<Head>, Vec<u8>) {
        (self.head, self.bytes)
    }
}
