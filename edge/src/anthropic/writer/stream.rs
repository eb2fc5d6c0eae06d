//! A message in events.

use super::{Calls, Said, Shape, arguments::Arguments, stop_reason, write};
use crate::openai::normalized::answer::{Finish, FinishReason, Piece};

/// Longest text of one event, in bytes: escaped it stays below the mebibyte that an event may have (security.md §3 row 28).
const DELTA_BYTES_MAX: usize = 64 * 1024;

/// What is open.
///
/// ```text
///   None ─first piece of a kind─► Text, Thinking or Call ─piece of another kind, end─► None
/// ```
#[derive(Debug)]
enum Block {
    None,
    Text,
    Thinking,
    Call(Arguments),
}

/// A message in events.
#[derive(Debug)]
pub struct Stream {
    /// The first event, until it has been written.
    start: Vec<u8>,
    block: Block,
    /// Of the open block, or of the next one.
    index: usize,
    /// Of every delta of the open block, up to its text.
    head: Vec<u8>,
    /// Arguments on their way.
    scratch: String,
    calls: Calls,
    said: Said,
}

impl Stream {
    pub(super) fn new(shape: Shape) -> Self {
        let Shape { id, model, input_tokens, .. } = shape;
        let mut start =
            b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":".to_vec();
        write(&mut start, &id);
        start.extend_from_slice(b",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
        write(&mut start, &model);
        start.extend_from_slice(
            b",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":",
        );
        write(&mut start, &input_tokens);
        start.extend_from_slice(
            b",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":1}}}\n\n",
        );
        Self {
            start,
            block: Block::None,
            index: 0,
            head: Vec::new(),
            scratch: String::new(),
            calls: Calls::new(&id),
            said: Said::default(),
        }
    }

    pub(super) fn piece(&mut self, piece: &Piece, out: &mut Vec<u8>) {
        match piece {
            Piece::Text(text) | Piece::Reasoning(text) if text.is_empty() => {}
            Piece::Text(text) => {
                if !matches!(self.block, Block::Text) {
                    let start = b"{\"type\":\"text\",\"text\":\"\"}";
                    self.open(Block::Text, |out| out.extend_from_slice(start), out);
                    self.head_of(b"text_delta\",\"text\":");
                }
                self.deltas(text, out);
            }
            Piece::Reasoning(text) => {
                if !matches!(self.block, Block::Thinking) {
                    let start = b"{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}";
                    self.open(Block::Thinking, |out| out.extend_from_slice(start), out);
                    self.head_of(b"thinking_delta\",\"thinking\":");
                }
                self.deltas(text, out);
            }
            Piece::Call(call) => {
                self.call(&call.id, &call.function.name, out);
                self.arguments(&call.function.arguments, out);
                self.close(false, out);
            }
            Piece::CallBegun { id, name } => self.call(id, name, out),
            Piece::Arguments(text) => self.arguments(text, out),
        }
    }

    pub(super) fn finish(&mut self, finish: &Finish, out: &mut Vec<u8>) {
        self.begin(out);
        self.close(finish.reason == FinishReason::Length, out);
        out.extend_from_slice(
            b"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"",
        );
        out.extend_from_slice(stop_reason(finish.reason, self.calls.are_there()).as_bytes());
        out.extend_from_slice(b"\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":");
        let usage = finish.usage.unwrap_or_default();
        write(out, &usage.output_tokens.unwrap_or_else(|| self.said.tokens()));
        if let Some(tokens) = usage.input_tokens {
            out.extend_from_slice(b",\"input_tokens\":");
            write(out, &tokens.saturating_sub(usage.cached_input_tokens.unwrap_or_default()));
        }
        if let Some(tokens) = usage.cached_input_tokens {
            out.extend_from_slice(b",\"cache_read_input_tokens\":");
            write(out, &tokens);
        }
        out.extend_from_slice(b"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    }

    pub(super) fn keep_alive(&mut self, out: &mut Vec<u8>) {
        self.begin(out);
        out.extend_from_slice(b"event: ping\ndata: {\"type\":\"ping\"}\n\n");
    }

    /// The first event of an answer says whose it is, once.
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.start);
    }

    fn call(&mut self, id: &str, name: &str, out: &mut Vec<u8>) {
        let id = self.calls.next(bounded(id));
        let start = |out: &mut Vec<u8>| {
            out.extend_from_slice(b"{\"type\":\"tool_use\",\"id\":");
            write(out, &id);
            out.extend_from_slice(b",\"name\":");
            write(out, bounded(name));
            out.extend_from_slice(b",\"input\":{}}");
        };
        self.open(Block::Call(Arguments::default()), start, out);
        self.head_of(b"input_json_delta\",\"partial_json\":");
    }

    /// Of the call that is open; without one they belong to nothing.
    fn arguments(&mut self, text: &str, out: &mut Vec<u8>) {
        let Block::Call(arguments) = &mut self.block else { return };
        self.scratch.clear();
        arguments.push(text, &mut self.scratch);
        self.scratched(out);
    }

    fn scratched(&mut self, out: &mut Vec<u8>) {
        let passed = std::mem::take(&mut self.scratch);
        self.deltas(&passed, out);
        self.scratch = passed;
    }

    fn open(&mut self, block: Block, start: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
        self.begin(out);
        self.close(false, out);
        self.block = block;
        out.extend_from_slice(
            b"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":",
        );
        write(out, &self.index);
        out.extend_from_slice(b",\"content_block\":");
        start(out);
        out.extend_from_slice(b"}\n\n");
    }

    /// `is_cut` says that the model had no tokens left for what is open.
    fn close(&mut self, is_cut: bool, out: &mut Vec<u8>) {
        match std::mem::replace(&mut self.block, Block::None) {
            Block::None => return,
            Block::Text => {}
            // Without a signature a client does not send the block back (api.md §1.4).
            Block::Thinking => {
                self.head_of(b"signature_delta\",\"signature\":");
                self.delta("", out);
            }
            Block::Call(arguments) => {
                self.scratch.clear();
                arguments.finish(is_cut, &mut self.scratch);
                self.scratched(out);
            }
        }
        out.extend_from_slice(
            b"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":",
        );
        write(out, &self.index);
        out.extend_from_slice(b"}\n\n");
        self.index += 1;
    }

    fn head_of(&mut self, kind: &[u8]) {
        let head = b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":";
        self.head.clear();
        self.head.extend_from_slice(head);
        write(&mut self.head, &self.index);
        self.head.extend_from_slice(b",\"delta\":{\"type\":\"");
        self.head.extend_from_slice(kind);
    }

    fn deltas(&mut self, mut text: &str, out: &mut Vec<u8>) {
        while !text.is_empty() {
            let (part, rest) = text.split_at(text.floor_char_boundary(DELTA_BYTES_MAX));
            self.delta(part, out);
            text = rest;
        }
    }

    fn delta(&mut self, text: &str, out: &mut Vec<u8>) {
        self.said.note(text);
        out.extend_from_slice(&self.head);
        write(out, text);
        out.extend_from_slice(b"}}\n\n");
    }
}

/// What a provider names without a bound.
fn bounded(text: &str) -> &str {
    text.get(..text.floor_char_boundary(DELTA_BYTES_MAX)).unwrap_or_default()
}
