//! A message as one object.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{Calls, Said, Shape, arguments::Arguments, stop_reason, write};
use crate::openai::normalized::answer::{Finish, FinishReason, Piece};

/// A message that is gathered.
#[derive(Debug)]
pub struct Whole {
    shape: Shape,
    blocks: Vec<Block>,
    /// Of the call that stands last, while more may come.
    arguments: Option<Arguments>,
    calls: Calls,
    said: Said,
}

#[derive(Debug)]
enum Block {
    Text(String),
    Thinking(String),
    Call { id: String, name: String, input: String },
}

impl Whole {
    pub(super) fn new(shape: Shape) -> Self {
        let calls = Calls::new(&shape.id);
        Self { shape, blocks: Vec::new(), arguments: None, calls, said: Said::default() }
    }

    pub(super) fn piece(&mut self, piece: Piece) {
        match piece {
            Piece::Text(text) | Piece::Reasoning(text) if text.is_empty() => {}
            Piece::Text(text) => {
                self.said.note(&text);
                self.end_call(false);
                match self.blocks.last_mut() {
                    Some(Block::Text(last)) => last.push_str(&text),
                    _ => self.blocks.push(Block::Text(text)),
                }
            }
            Piece::Reasoning(text) => {
                self.said.note(&text);
                self.end_call(false);
                match self.blocks.last_mut() {
                    Some(Block::Thinking(last)) => last.push_str(&text),
                    _ => self.blocks.push(Block::Thinking(text)),
                }
            }
            Piece::Call(call) => {
                self.call(&call.id, call.function.name);
                self.arguments(&call.function.arguments);
                self.end_call(false);
            }
            Piece::CallBegun { id, name } => self.call(&id, name),
            Piece::Arguments(text) => self.arguments(&text),
        }
    }

    pub(super) fn finish(&mut self, finish: &Finish, out: &mut Vec<u8>) {
        self.end_call(finish.reason == FinishReason::Length);
        let usage = finish.usage.unwrap_or_default();
        let cached = usage.cached_input_tokens.unwrap_or_default();
        let message = Message {
            id: &self.shape.id,
            kind: "message",
            role: "assistant",
            model: &self.shape.model,
            content: self.blocks.iter().map(Content::from).collect(),
            stop_reason: stop_reason(finish.reason, self.calls.are_there()),
            stop_sequence: None,
            usage: Tokens {
                input_tokens: usage
                    .input_tokens
                    .map_or(self.shape.input_tokens, |tokens| tokens.saturating_sub(cached)),
                cache_creation_input_tokens: 0,
                cache_read_input_tokens: cached,
                output_tokens: usage.output_tokens.unwrap_or_else(|| self.said.tokens()),
            },
        };
        write(out, &message);
    }

    fn call(&mut self, id: &str, name: String) {
        self.end_call(false);
        let id = self.calls.next(id);
        self.blocks.push(Block::Call { id, name, input: String::new() });
        self.arguments = Some(Arguments::default());
    }

    /// Of the call that is open; without one they belong to nothing.
    fn arguments(&mut self, text: &str) {
        if let (Some(arguments), Some(Block::Call { input, .. })) =
            (&mut self.arguments, self.blocks.last_mut())
        {
            self.said.note(text);
            arguments.push(text, input);
        }
    }

    fn end_call(&mut self, is_cut: bool) {
        if let (Some(arguments), Some(Block::Call { input, .. })) =
            (self.arguments.take(), self.blocks.last_mut())
        {
            arguments.finish(is_cut, input);
        }
    }
}

impl<'a> From<&'a Block> for Content<'a> {
    fn from(block: &'a Block) -> Self {
        match block {
            Block::Text(text) => Self::Text { text },
            Block::Thinking(thinking) => Self::Thinking { thinking, signature: "" },
            Block::Call { id, name, input } => {
                // It is an object by now, whatever the model wrote.
                Self::ToolUse { id, name, input: serde_json::from_str(input).unwrap_or(RawValue::NULL) }
            }
        }
    }
}

#[derive(Serialize)]
struct Message<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    role: &'static str,
    model: &'a str,
    content: Vec<Content<'a>>,
    stop_reason: &'static str,
    stop_sequence: Option<&'static str>,
    usage: Tokens,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    Text { text: &'a str },
    Thinking { thinking: &'a str, signature: &'static str },
    ToolUse { id: &'a str, name: &'a str, input: &'a RawValue },
}

#[derive(Serialize)]
struct Tokens {
    input_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    output_tokens: u64,
}
