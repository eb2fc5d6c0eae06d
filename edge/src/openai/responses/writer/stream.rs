//! The events of a response (api.md §1.2: their order is checked by clients).
//!
//! ```text
//!   created, in_progress, ( item.added, [part.added], delta…, done, [part.done], item.done )…, completed | incomplete | failed, [DONE]
//! ```
//! `in_progress` may come again at any place, to keep a client waiting. An event has the next sequence number, whatever it is.

use super::{
    Shape,
    items::{self, Item, Items, Kind},
    last_status,
    object::{Object, State},
    write,
};
use crate::{
    openai::{
        normalized::answer::{AnswerError, Finish, Piece},
        responses::CallForm,
    },
    reply::{Failure, Fault},
    surface::Surface,
};

/// Behind the last event, as Open Responses asks; clients of OpenAI's take it.
const DONE: &[u8] = b"data: [DONE]\n\n";

/// An answer in events.
#[derive(Debug)]
pub struct Stream {
    pub(super) object: Object,
    items: Items,
    sequence: u64,
}

impl Stream {
    pub(super) fn new(shape: Shape) -> Self {
        Self { object: Object::new(&shape), items: Items::new(&shape.id, shape.names), sequence: 0 }
    }

    pub(super) fn piece(&mut self, piece: Piece, out: &mut Vec<u8>) -> Result<(), AnswerError> {
        self.begin(out);
        self.items.take(piece, &mut Events { sequence: &mut self.sequence, out })
    }

    pub(super) fn finish(&mut self, finish: &Finish, out: &mut Vec<u8>) {
        self.begin(out);
        let mut events = Events { sequence: &mut self.sequence, out };
        self.items.close(last_status(finish.reason), &mut events);
        let state = State::Ended(finish);
        let kind = if state.status() == "completed" { "response.completed" } else { "response.incomplete" };
        self.lifecycle(kind, &state, out);
        out.extend_from_slice(DONE);
    }

    pub(super) fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if self.sequence == 0 {
            self.begin(out);
        } else {
            self.lifecycle("response.in_progress", &State::InProgress, out);
        }
    }

    /// Clients that go on after an `error` event wait for `response.failed`; those that stop at it have read enough. The item that is
    /// open stays so: a call that was cut must not be made.
    pub(super) fn failed(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        self.begin(out);
        let failure = Failure::from(fault);
        Events { sequence: &mut self.sequence, out }.event("error", |out| {
            out.extend_from_slice(b",\"code\":");
            write(out, failure.code);
            out.extend_from_slice(b",\"message\":");
            write(out, &failure.message);
            out.extend_from_slice(b",\"param\":");
            write(out, &fault.param(Surface::Responses));
        });
        self.lifecycle("response.failed", &State::Failed(&failure), out);
        out.extend_from_slice(DONE);
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if self.sequence == 0 {
            self.lifecycle("response.created", &State::InProgress, out);
            self.lifecycle("response.in_progress", &State::InProgress, out);
        }
    }

    fn lifecycle(&mut self, kind: &str, state: &State<'_>, out: &mut Vec<u8>) {
        let (object, items) = (&self.object, &self.items);
        Events { sequence: &mut self.sequence, out }.event(kind, |out| {
            out.extend_from_slice(b",\"response\":");
            object.write(state, items, out);
        });
    }
}

/// Writes what is heard of the items.
struct Events<'a> {
    sequence: &'a mut u64,
    out: &'a mut Vec<u8>,
}

impl Events<'_> {
    fn event(&mut self, kind: &str, members: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut *self.out;
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\ndata: {\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"sequence_number\":");
        write(out, self.sequence);
        *self.sequence += 1;
        members(out);
        out.extend_from_slice(b"}\n\n");
    }

    /// An event of a place in an item.
    fn within(&mut self, kind: &str, item: &Item, members: impl FnOnce(&mut Vec<u8>)) {
        self.event(kind, |out| {
            out.extend_from_slice(b",\"item_id\":");
            write(out, &item.id);
            out.extend_from_slice(b",\"output_index\":");
            write(out, &item.index);
            if matches!(item.kind, Kind::Message | Kind::Reasoning) {
                out.extend_from_slice(b",\"content_index\":0");
            }
            members(out);
        });
    }

    fn item(&mut self, kind: &str, item: &Item, status: &str, said: Option<&[u8]>) {
        self.event(kind, |out| {
            out.extend_from_slice(b",\"output_index\":");
            write(out, &item.index);
            out.extend_from_slice(b",\"item\":");
            item.write(status, said, out);
        });
    }

    fn part(&mut self, kind: &str, item: &Item, said: &[u8]) {
        self.within(kind, item, |out| {
            out.extend_from_slice(b",\"part\":");
            item.write_part(said, out);
        });
    }
}

impl items::Listener for Events<'_> {
    fn opened(&mut self, item: &Item) {
        self.item("response.output_item.added", item, items::IN_PROGRESS, None);
        if matches!(item.kind, Kind::Message | Kind::Reasoning) {
            self.part("response.content_part.added", item, b"");
        }
    }

    fn said(&mut self, item: &Item, json: &[u8]) {
        let kind = match &item.kind {
            Kind::Message => "response.output_text.delta",
            Kind::Reasoning => "response.reasoning_text.delta",
            Kind::Call { called, .. } if called.form == CallForm::Custom => {
                "response.custom_tool_call_input.delta"
            }
            Kind::Call { .. } => "response.function_call_arguments.delta",
        };
        self.within(kind, item, |out| {
            string(",\"delta\":", json, out);
            logprobs(item, out);
        });
    }

    fn closed(&mut self, item: &Item, status: &str) {
        let said = &*item.said;
        match &item.kind {
            Kind::Message | Kind::Reasoning => {
                let is_text = item.kind == Kind::Message;
                let kind = if is_text { "response.output_text.done" } else { "response.reasoning_text.done" };
                self.within(kind, item, |out| {
                    string(",\"text\":", said, out);
                    logprobs(item, out);
                });
                self.part("response.content_part.done", item, said);
            }
            Kind::Call { called, .. } if called.form == CallForm::Custom => {
                self.within("response.custom_tool_call_input.done", item, |out| {
                    string(",\"input\":", said, out);
                });
            }
            Kind::Call { called, .. } => {
                self.within("response.function_call_arguments.done", item, |out| {
                    out.extend_from_slice(b",\"name\":");
                    write(out, &called.name);
                    string(",\"arguments\":", said, out);
                });
            }
        }
        self.item("response.output_item.done", item, status, Some(said));
    }
}

/// A member whose value is known as the inside of a JSON string.
fn string(key: &str, json: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(key.as_bytes());
    out.push(b'"');
    out.extend_from_slice(json);
    out.push(b'"');
}

/// The schemas want it beside every text of the answer.
fn logprobs(item: &Item, out: &mut Vec<u8>) {
    if item.kind == Kind::Message {
        out.extend_from_slice(b",\"logprobs\":[]");
    }
}
