//! What passes from a provider to its client, with an eye on the tokens in it.

use dataplane::http::sse::Splitter;

use super::json_end::JsonEnd;
use crate::{
    surface::Surface,
    usage::{
        Observed,
        strip::Strip,
        watch::{Split, Watch},
    },
};

/// The body of one answer on its way.
#[derive(Debug, Default)]
pub(super) struct Observer {
    /// Watches the event boundaries of what the client gets of a stream; `None` for other bodies.
    pub(super) events: Option<Splitter>,
    /// Watches the brackets of a JSON body that has no other end than the connection's; `None` for other bodies.
    pub(super) json: Option<JsonEnd>,
    /// `None` where nothing is counted.
    watch: Option<Watch>,
    /// Takes out what only the Edge asked for.
    strip: Option<Box<Strip>>,
}

impl Observer {
    /// Of a provider's answer, of which the tokens are looked for.
    pub(super) fn counting(mut self, surface: Surface, strips: bool) -> Self {
        let is_stream = self.events.is_some();
        self.watch = Some(if is_stream { Watch::stream(surface) } else { Watch::whole() });
        self.strip = (is_stream && strips).then(Box::default);
        self
    }

    /// What the client gets of bytes that the provider sent.
    pub(super) fn pass(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let Some(strip) = &mut self.strip else { return bytes };
        let mut out = Vec::with_capacity(bytes.len());
        strip.push(&bytes, &mut out);
        out
    }

    /// What was held back and is due when the provider has come to its end.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        self.strip.as_mut().map(|strip| strip.rest()).unwrap_or_default()
    }

    /// The client gets these bytes.
    pub(super) fn given(&mut self, bytes: &[u8]) -> Option<Split> {
        if let Some(json) = &mut self.json {
            json.push(bytes);
        }
        self.events.as_mut().map(|events| Split::of(events, bytes))
    }

    /// As [`Observer::given`] said, these bytes are not needed for anything else.
    pub(super) fn keep(&mut self, bytes: Vec<u8>, split: Option<Split>) {
        match (&mut self.watch, split) {
            (Some(watch), Some(split)) => watch.stream_bytes(bytes, split),
            (Some(watch), None) => watch.body(bytes),
            (None, _) => {}
        }
    }

    /// What is known of the tokens; `None` where nobody looked.
    pub(super) fn observed(&self, is_whole: bool) -> Option<Observed> {
        let seen = self.watch.as_ref()?.end(is_whole);
        let stripped = self.strip.as_ref().and_then(|strip| strip.counts());
        Some(stripped.map_or(seen, |counts| {
            let said_something = self.events.as_ref().is_some_and(|events| events.events() > 3);
            Observed::new(counts, is_whole, said_something)
        }))
    }
}
