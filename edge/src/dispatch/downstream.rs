//! What the client of one request has been given so far, and how it is told the end.

use std::time::{Duration, Instant};

use dataplane::{
    clock,
    http::{
        server::{Connection, ResponseBody},
        sse::{Ending, Splitter},
    },
    net::WriteFault,
};
use proto::message::Header;

use super::{json_end::JsonEnd, observer::Observer};
use crate::{
    reply::{Broken, Fault},
    response::{self, Answer},
    surface::Surface,
    usage::Observed,
};

/// Body bytes passed on before credit for them goes back: half a run window, which is also what the link waits for.
const RELEASE_BYTES: usize = 128 * 1024;
/// Body bytes gathered for one write to the client, about; what else has arrived waits where it is.
const WRITE_BYTES: usize = 64 * 1024;

/// The client's side of a request.
pub(super) struct Downstream<'a> {
    /// Its connection.
    pub(super) client: &'a mut Connection,
    surface: Surface,
    started: Instant,
    /// 0 until something is said.
    status: u16,
    begun: bool,
    observer: Observer,
    bytes: u64,
    unreleased: usize,
    first_byte: Option<Duration>,
}

impl<'a> Downstream<'a> {
    /// Nothing given yet. `started` is when the request's head was complete.
    pub(super) fn new(client: &'a mut Connection, surface: Surface, started: Instant) -> Self {
        Self {
            client,
            surface,
            started,
            status: 0,
            begun: false,
            observer: Observer::default(),
            bytes: 0,
            unreleased: 0,
            first_byte: None,
        }
    }

    /// The status that the client got, 0 for none.
    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// Body bytes passed on.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// From the request's head to the first body byte.
    pub(super) fn first_byte(&self) -> Option<Duration> {
        self.first_byte
    }

    /// Whether more may be gathered before a write.
    pub(super) fn has_room(&self) -> bool {
        self.client.pending() < WRITE_BYTES
    }

    /// Begins a relayed response: status, headers, and whether its end proves nothing.
    pub(super) fn begin(
        &mut self,
        (status, headers, until_close): (u16, &[Header], bool),
        answer: &Answer<'_>,
    ) {
        let mut begun = response::relayed(status, headers, answer);
        if until_close && !begun.is_event_stream && begun.body == ResponseBody::Chunked {
            // A proper end of ours would make a proven one out of the provider's.
            begun.body = ResponseBody::UntilClose;
            self.observer.json = begun.is_json.then(JsonEnd::default);
        }
        self.status = status;
        self.begun = true;
        self.observer.events = begun.is_event_stream.then(|| Splitter::ending(ending(self.surface)));
        self.client.begin(&begun.head, begun.body);
    }

    /// Looks for the tokens in the provider's answer that has begun, and takes out of a stream what only the Edge asked for.
    pub(super) fn count(&mut self, strips: bool) {
        if (200..300).contains(&self.status) {
            self.observer = std::mem::take(&mut self.observer).counting(self.surface, strips);
        }
    }

    /// What is known of the tokens of a provider's answer; `None` where nobody looked for them.
    pub(super) fn observed(&self, is_whole: bool) -> Option<Observed> {
        self.observer.observed(is_whole)
    }

    /// Whether the response has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Appends a provider's body bytes to the next write. `true` for the first ones.
    pub(super) fn push(&mut self, bytes: Vec<u8>) -> bool {
        self.drained(bytes.len());
        let bytes = self.observer.pass(bytes);
        self.give(bytes)
    }

    /// As [`Downstream::push`], of bytes for which credit goes back already.
    pub(super) fn push_taken(&mut self, bytes: Vec<u8>) -> bool {
        let bytes = self.observer.pass(bytes);
        self.give(bytes)
    }

    /// The provider has come to its end: what was held back of a stream is due.
    pub(super) fn release_held(&mut self) {
        let held = self.observer.rest();
        self.give(held);
    }

    fn give(&mut self, bytes: Vec<u8>) -> bool {
        if bytes.is_empty() {
            return false;
        }
        let split = self.observer.given(&bytes);
        let is_first = self.append(&bytes);
        self.observer.keep(bytes, split);
        is_first
    }

    /// Another run begins, and brings its own credit.
    pub(super) fn forget_credit(&mut self) {
        self.unreleased = 0;
    }

    /// Notes that so many bytes of what a Node sent have been passed on, or have become what is.
    pub(super) fn drained(&mut self, bytes: usize) {
        self.unreleased += bytes;
    }

    /// Appends body bytes to the next write, which cost nothing of the run's credit. `true` for the first ones.
    pub(super) fn write(&mut self, bytes: &[u8]) -> bool {
        self.observer.given(bytes);
        self.append(bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> bool {
        let is_first = self.first_byte.is_none();
        if is_first {
            self.first_byte = Some(clock::now().saturating_duration_since(self.started));
        }
        self.bytes += bytes.len() as u64;
        self.client.push(bytes);
        is_first
    }

    /// Whether something may be said between two events of a stream now.
    pub(super) fn may_insert(&self) -> bool {
        self.observer.events.as_ref().is_some_and(Splitter::may_insert)
    }

    /// Appends a comment or a ping between two events of a stream, which leaves it between them.
    pub(super) fn comment(&mut self, line: &[u8]) {
        self.bytes += line.len() as u64;
        self.client.push(line);
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// The client has stopped reading or gone.
    pub(super) async fn flush(&mut self) -> Result<(), WriteFault> {
        if self.client.pending() > 0 { self.client.flush().await } else { Ok(()) }
    }

    /// Bytes for which credit goes back now.
    pub(super) fn take_released(&mut self) -> Option<usize> {
        (self.unreleased >= RELEASE_BYTES).then(|| std::mem::take(&mut self.unreleased))
    }

    /// A stream whose framing ended well but that never said its last word was cut by something behind the provider's HTTP
    /// server, and JSON that only a close ends may be cut by anything; clients would take either for a whole answer (API-1).
    pub(super) fn lacks_end(&self) -> bool {
        let lacks_end = self.observer.events.as_ref().is_some_and(|events| !events.ends_well());
        (200..300).contains(&self.status) && (lacks_end || self.observer.json.is_some_and(JsonEnd::is_cut))
    }

    /// Whether it is a stream that has said its last word.
    pub(super) fn saw_end(&self) -> bool {
        self.observer.events.as_ref().is_some_and(Splitter::saw_end)
    }

    /// Tells the client of a failure: by status and JSON before the response has begun, by the events of its surface and a broken
    /// end in a stream, by a broken end alone in the middle of anything else (API-1). Whether its connection may carry
    /// another request; if not, the owner closes it without the body's end. `end` are those events where they are not the usual ones.
    pub(super) async fn refuse(
        &mut self,
        fault: &Fault,
        answer: &Answer<'_>,
        model: &str,
        end: Option<Vec<u8>>,
    ) -> bool {
        if !self.begun {
            self.status = fault.status();
            return response::refuse(self.client, fault, answer).await.is_ok();
        }
        if let Some(events) =
            self.observer.events.as_ref().filter(|events| events.at_boundary() && !events.saw_end())
        {
            let broken = Broken {
                surface: self.surface,
                request_id: answer.request_id,
                model,
                now: clock::unix_seconds(),
                events: events.events(),
            };
            let end = end.unwrap_or_else(|| fault.stream_end(&broken).into_bytes());
            self.client.push(&end);
        }
        let _gone = self.client.flush().await;
        false
    }
}

/// How a stream of this surface ends when all went well, as far as the provider is concerned. A response that failed has an end,
/// too: the provider's own. An `error` event is not one of responses: what follows it is what clients look at.
pub(super) fn ending(surface: Surface) -> Ending {
    match surface {
        Surface::Chat => Ending::Done,
        Surface::Responses => {
            Ending::Events(&["response.completed", "response.incomplete", "response.failed"])
        }
        Surface::Messages => Ending::Events(&["message_stop", "error"]),
    }
}
