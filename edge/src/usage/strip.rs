//! Takes the event out of a chat stream that the client did not ask for: the chunk of no choices that carries the usage, which
//! `stream_options.include_usage` brings (case 72). Every other byte passes as it came.

use dataplane::http::sse::Splitter;
use memchr::memmem;
use serde::{Deserialize, de::IgnoredAny};

use super::{Counts, events::events, json};

/// The longest event that is held back to be judged, in bytes: many times what a chunk of usage has.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// The stream on its way to the client.
#[derive(Debug, Default)]
pub struct Strip {
    upstream: Splitter,
    /// The beginning of an event that is not over.
    held: Vec<u8>,
    /// The event that is not over is too long to be the one, and its beginning has passed.
    passing: bool,
    /// What was taken out ended by a CR: a LF that comes next is of it.
    after_cr: bool,
    counts: Option<Counts>,
}

impl Strip {
    /// Takes the next bytes; what the client gets of them is put behind `out`.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        if let Some((first, rest)) = bytes.split_first()
            && std::mem::take(&mut self.after_cr)
            && *first == b'\n'
        {
            let _boundary = self.upstream.push(b"\n");
            bytes = rest;
        }
        let (over, rest) = bytes.split_at(self.upstream.push(bytes).unwrap_or_default());
        if !over.is_empty() {
            let mut whole = std::mem::take(&mut self.held);
            whole.extend_from_slice(over);
            self.judge(&whole, out);
            self.passing = false;
        }
        if self.passing {
            out.extend_from_slice(rest);
            return;
        }
        self.held.extend_from_slice(rest);
        if self.held.len() > HELD_BYTES_MAX {
            out.append(&mut self.held);
            self.passing = true;
        }
    }

    /// What is still held back when the stream is over: an end without its empty line.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// The counts of the event that was taken out.
    pub fn counts(&self) -> Option<Counts> {
        self.counts
    }

    fn judge(&mut self, whole: &[u8], out: &mut Vec<u8>) {
        let mut kept = 0;
        for event in events(whole, self.passing).iter().filter(|event| is_only_usage(&event.data)) {
            self.counts = json::counts(&event.data).or(self.counts);
            let start = event.place.start + comments(whole.get(event.place.clone()).unwrap_or_default());
            out.extend_from_slice(whole.get(kept..start).unwrap_or_default());
            kept = event.place.end;
        }
        self.after_cr = kept == whole.len() && whole.ends_with(b"\r");
        out.extend_from_slice(whole.get(kept..).unwrap_or_default());
    }
}

/// Bytes of the comment lines before an event: they are not of it.
fn comments(event: &[u8]) -> usize {
    let mut at = 0;
    while let Some(rest) = event.get(at..).filter(|rest| rest.starts_with(b":")) {
        let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else { break };
        at += end + if rest.get(end..).is_some_and(|tail| tail.starts_with(b"\r\n")) { 2 } else { 1 };
    }
    at
}

#[derive(Deserialize)]
struct Chunk {
    choices: Vec<IgnoredAny>,
    usage: serde_json::Map<String, serde_json::Value>,
}

/// Whether a chunk has no choice and has the usage.
fn is_only_usage(data: &[u8]) -> bool {
    has_no_choices(data)
        && serde_json::from_slice::<Chunk>(data)
            .is_ok_and(|chunk| chunk.choices.is_empty() && !chunk.usage.is_empty())
}

/// A look that costs little, for all the chunks that have choices.
fn has_no_choices(data: &[u8]) -> bool {
    const NAME: &[u8] = b"\"choices\"";
    let mut from = 0;
    while let Some(at) = data.get(from..).and_then(|rest| memmem::find(rest, NAME)) {
        from += at + NAME.len();
        let rest = data.get(from..).unwrap_or_default().trim_ascii_start();
        let list = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        let inside = list.and_then(|list| list.strip_prefix(b"[")).map(<[u8]>::trim_ascii_start);
        if inside.is_some_and(|inside| inside.starts_with(b"]")) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the client gets, which must be the same however the stream is split.
    fn stripped(text: &str) -> (String, Option<[Option<u64>; 2]>) {
        let follow = |pieces: &[&[u8]]| {
            let (mut strip, mut out) = (Strip::default(), Vec::new());
            for piece in pieces {
                strip.push(piece, &mut out);
            }
            out.extend(strip.rest());
            (String::from_utf8(out).unwrap(), strip.counts().map(|counts| [counts.input, counts.output]))
        };
        let bytes = text.as_bytes();
        let whole = follow(&[bytes]);
        for at in 0..=bytes.len() {
            let (left, right) = bytes.split_at(at);
            assert_eq!(follow(&[left, right]), whole, "{text:?} at {at}");
        }
        for size in [1, 2, 3, 7, 64] {
            let pieces: Vec<_> = bytes.chunks(size).collect();
            assert_eq!(follow(&pieces), whole, "{text:?} by {size}");
        }
        whole
    }

    const ROLE: &str = "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":null}\n\n";
    const USAGE: &str =
        "data: {\"id\":\"x\",\"choices\": [ ] , \"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n";
    const DONE: &str = "data: [DONE]\n\n";

    #[test]
    fn only_the_chunk_of_usage_is_left_out_and_every_other_byte_passes() {
        let counts = Some([Some(3), Some(4)]);
        assert_eq!(stripped(&[ROLE, USAGE, DONE].concat()), ([ROLE, DONE].concat(), counts));
        // Comments and the fields of others stay, its own go.
        let text = [": hello\n\n", ROLE, ": ka\n", "id: 7\n", USAGE, ": ka\n\n", DONE, "data: more"].concat();
        let left = [": hello\n\n", ROLE, ": ka\n", ": ka\n\n", DONE, "data: more"].concat();
        assert_eq!(stripped(&text), (left, counts));
        let crlf = |text: &str| text.replace('\n', "\r\n");
        assert_eq!(stripped(&crlf(&[ROLE, USAGE, DONE].concat())), (crlf(&[ROLE, DONE].concat()), counts));
    }

    #[test]
    fn what_is_not_just_that_chunk_passes() {
        for text in [
            "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n",
            "data: {\"choices\":[],\"usage\":null}\n\n",
            "data: {\"choices\":[{\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3}}\n\n",
            "data: {\"usage\":{\"prompt_tokens\":3}}\n\n",
            "data: {\"error\":{\"message\":\"\\\"choices\\\":[]\"}}\n\n",
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3}\n\n",
            "data: [DONE]",
            ": only\n",
            "",
        ] {
            assert_eq!(stripped(text), (text.to_owned(), None), "{text}");
        }
    }

    #[test]
    fn an_event_that_is_too_long_passes_and_the_next_one_is_judged() {
        let long = format!("data: {{\"choices\":[{{\"text\":\"{}\"}}]}}\n\n", "x".repeat(200_000));
        let text = [&long, USAGE, DONE].concat();
        for size in [1000, 70_000, 1 << 20] {
            let (mut strip, mut out, mut most) = (Strip::default(), Vec::new(), 0);
            for piece in text.as_bytes().chunks(size) {
                strip.push(piece, &mut out);
                most = most.max(strip.held.len());
            }
            assert_eq!(String::from_utf8(out).unwrap(), [&long, DONE].concat(), "by {size}");
            assert!(most <= HELD_BYTES_MAX, "{most}");
        }
    }
}
