//! An answer as a chat completion: chunks of an event stream, or one object (api.md §1.1, §8). Pure.

use std::sync::Arc;

use proto::{
    message::Usage,
    run_input::{Call, CallKind, ToolCall},
};
use serde::Serialize;
use serde_json::json;

use super::answer::{Finish, FinishReason, Piece};

/// How the client wants its answer.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Identity of the answer: `chatcmpl-…`.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// As the client named it.
    pub model: Arc<str>,
    /// In chunks.
    pub stream: bool,
    /// A last chunk with the usage.
    pub include_usage: bool,
    /// `function_call` instead of `tool_calls`.
    pub legacy_functions: bool,
}

/// Writes one answer.
#[derive(Debug)]
pub enum Chat {
    /// In chunks.
    Stream(Stream),
    /// As one object.
    Whole(Whole),
}

impl Chat {
    /// Before the first piece.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        if shape.stream { Self::Stream(Stream::new(&shape)) } else { Self::Whole(Whole::new(shape)) }
    }

    /// In the middle of a stream: its client knows who speaks.
    #[must_use]
    pub fn going_on(shape: &Shape) -> Self {
        Self::Stream(Stream { has_role: true, ..Stream::new(shape) })
    }

    /// Appends what the client gets for a piece; nothing where it gets all at the end.
    pub fn piece(&mut self, piece: Piece, out: &mut Vec<u8>) {
        match self {
            Self::Stream(stream) => stream.piece(&piece, out),
            Self::Whole(whole) => whole.piece(piece),
        }
    }

    /// Appends the end of the answer.
    pub fn finish(&mut self, finish: &Finish, out: &mut Vec<u8>) {
        match self {
            Self::Stream(stream) => stream.finish(finish, out),
            Self::Whole(whole) => whole.finish(finish, out),
        }
    }
}

/// An answer in chunks.
#[derive(Debug)]
pub struct Stream {
    /// Of every chunk, up to its list of choices.
    head: Vec<u8>,
    include_usage: bool,
    legacy_functions: bool,
    has_role: bool,
    calls: usize,
}

impl Stream {
    fn new(shape: &Shape) -> Self {
        let mut head = b"data: {\"id\":".to_vec();
        write(&mut head, &shape.id);
        head.extend_from_slice(b",\"object\":\"chat.completion.chunk\",\"created\":");
        write(&mut head, &shape.created);
        head.extend_from_slice(b",\"model\":");
        write(&mut head, &shape.model);
        head.extend_from_slice(b",\"choices\":[");
        let Shape { include_usage, legacy_functions, .. } = *shape;
        Self { head, include_usage, legacy_functions, has_role: false, calls: 0 }
    }

    fn piece(&mut self, piece: &Piece, out: &mut Vec<u8>) {
        self.role(out);
        match piece {
            Piece::Text(text) => self.content(text, out),
            Piece::Reasoning(text) => self.chunk(out, |out| {
                out.extend_from_slice(b"{\"reasoning_content\":");
                write(out, text);
                out.extend_from_slice(b",\"reasoning\":");
                write(out, text);
                out.push(b'}');
            }),
            Piece::Call(call) => {
                self.call(&call.id, &call.function.name, out);
                self.arguments(&call.function.arguments, out);
            }
            Piece::CallBegun { id, name } => self.call(id, name, out),
            Piece::Arguments(text) => self.arguments(text, out),
        }
    }

    /// Identity, type and name once: clients put repeated ones together.
    fn call(&mut self, id: &str, name: &str, out: &mut Vec<u8>) {
        let function = Function { name: Some(name), arguments: "" };
        if self.legacy_functions {
            return self.json(&json!({"function_call": function}), out);
        }
        let first = Delta { index: self.calls, id: Some(id), kind: Some("function"), function };
        self.calls += 1;
        self.json(&ToolCalls { tool_calls: [first] }, out);
    }

    /// Of the call that was begun last.
    fn arguments(&self, arguments: &str, out: &mut Vec<u8>) {
        let function = Function { name: None, arguments };
        if self.legacy_functions {
            return self.json(&json!({"function_call": function}), out);
        }
        let Some(index) = self.calls.checked_sub(1) else { return };
        self.json(&ToolCalls { tool_calls: [Delta { index, id: None, kind: None, function }] }, out);
    }

    fn finish(&mut self, finish: &Finish, out: &mut Vec<u8>) {
        self.role(out);
        out.extend_from_slice(&self.head);
        out.extend_from_slice(b"{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":");
        write(out, word(finish.reason, self.legacy_functions));
        self.end(out);
        if let Some(usage) = finish.usage.filter(|_| self.include_usage) {
            out.extend_from_slice(&self.head);
            out.extend_from_slice(b"],\"usage\":");
            write(out, &Tokens::from(usage));
            out.extend_from_slice(b"}\n\n");
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    /// Appends an event without content, which keeps clients waiting that count events only.
    pub fn keep_alive(&mut self, out: &mut Vec<u8>) {
        // The first chunk has no content either.
        if self.has_role { self.content("", out) } else { self.role(out) }
    }

    /// The first chunk of an answer says whose it is.
    fn role(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_role, true) {
            self.chunk(out, |out| out.extend_from_slice(b"{\"role\":\"assistant\",\"content\":\"\"}"));
        }
    }

    fn content(&self, text: &str, out: &mut Vec<u8>) {
        self.chunk(out, |out| {
            out.extend_from_slice(b"{\"content\":");
            write(out, text);
            out.push(b'}');
        });
    }

    fn json(&self, delta: &impl Serialize, out: &mut Vec<u8>) {
        self.chunk(out, |out| write(out, delta));
    }

    fn chunk(&self, out: &mut Vec<u8>, delta: impl FnOnce(&mut Vec<u8>)) {
        out.extend_from_slice(&self.head);
        out.extend_from_slice(b"{\"index\":0,\"delta\":");
        delta(out);
        out.extend_from_slice(b",\"logprobs\":null,\"finish_reason\":null");
        self.end(out);
    }

    /// Behind the members of a choice.
    fn end(&self, out: &mut Vec<u8>) {
        let end: &[u8] = if self.include_usage { b"}],\"usage\":null}\n\n" } else { b"}]}\n\n" };
        out.extend_from_slice(end);
    }
}

/// An answer that is gathered.
#[derive(Debug)]
pub struct Whole {
    shape: Shape,
    text: String,
    reasoning: String,
    calls: Vec<ToolCall>,
}

impl Whole {
    fn new(shape: Shape) -> Self {
        Self { shape, text: String::new(), reasoning: String::new(), calls: Vec::new() }
    }

    fn piece(&mut self, piece: Piece) {
        match piece {
            Piece::Text(text) => append(&mut self.text, text),
            Piece::Reasoning(text) => append(&mut self.reasoning, text),
            Piece::Call(call) => self.calls.push(call),
            Piece::CallBegun { id, name } => {
                let function = Call { name, arguments: String::new() };
                self.calls.push(ToolCall { id, kind: CallKind::Function, function });
            }
            Piece::Arguments(text) => {
                if let Some(call) = self.calls.last_mut() {
                    append(&mut call.function.arguments, text);
                }
            }
        }
    }

    fn finish(&mut self, finish: &Finish, out: &mut Vec<u8>) {
        let Self { shape, text, reasoning, calls } = self;
        let reasoning = Some(&**reasoning).filter(|text| !text.is_empty());
        let legacy = shape.legacy_functions;
        let object = Object {
            id: &shape.id,
            object: "chat.completion",
            created: shape.created,
            model: &shape.model,
            choices: [Choice {
                index: 0,
                message: Message {
                    role: "assistant",
                    content: Some(&**text).filter(|text| calls.is_empty() || !text.is_empty()),
                    refusal: None,
                    tool_calls: Some(&**calls).filter(|calls| !legacy && !calls.is_empty()),
                    function_call: calls.first().filter(|_| legacy).map(|call| &call.function),
                    reasoning_content: reasoning,
                    reasoning,
                },
                logprobs: None,
                finish_reason: word(finish.reason, legacy),
            }],
            usage: finish.usage.map(Tokens::from),
            system_fingerprint: None,
            service_tier: None,
        };
        write(out, &object);
    }
}

/// Without a copy for what comes in one piece.
fn append(to: &mut String, text: String) {
    if to.is_empty() { *to = text } else { to.push_str(&text) }
}

fn word(reason: FinishReason, legacy_functions: bool) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::ToolCalls if legacy_functions => "function_call",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::ContentFilter => "content_filter",
    }
}

/// Our own values and texts cannot fail to serialize.
fn write<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let _cannot_fail = serde_json::to_writer(out, value);
}

#[derive(Serialize)]
struct ToolCalls<'a> {
    tool_calls: [Delta<'a>; 1],
}

#[derive(Serialize)]
struct Delta<'a> {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

#[derive(Serialize)]
struct Object<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [Choice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Tokens>,
    system_fingerprint: Option<&'static str>,
    service_tier: Option<&'static str>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    message: Message<'a>,
    logprobs: Option<()>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Option<&'a str>,
    refusal: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<&'a [ToolCall]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<&'a Call>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
}

/// Usage as the surface has it: every number is there, 0 for what was not counted.
#[derive(Serialize)]
struct Tokens {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
}

#[derive(Serialize)]
struct PromptDetails {
    cached_tokens: u64,
}

#[derive(Serialize)]
struct CompletionDetails {
    reasoning_tokens: u64,
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Self {
        let (prompt, completion) =
            (usage.input_tokens.unwrap_or_default(), usage.output_tokens.unwrap_or_default());
        Self {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt.saturating_add(completion),
            prompt_tokens_details: PromptDetails {
                cached_tokens: usage.cached_input_tokens.unwrap_or_default(),
            },
            completion_tokens_details: CompletionDetails {
                reasoning_tokens: usage.reasoning_tokens.unwrap_or_default(),
            },
        }
    }
}

#[cfg(test)]
mod tests;
