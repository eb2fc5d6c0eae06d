//! The items of an answer: which piece belongs to which, and their JSON.
//!
//! ```text
//!   Text ──► message      Reasoning ──► reasoning      CallBegun, Arguments | Call ──► function_call | custom_tool_call
//! ```
//! At most one is open, and a piece of another kind closes it, so they begin and end in order. What was said is kept as the JSON
//! that its last events and the final object repeat: a text is escaped once.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use proto::run_input::ToolCall;
use serde_json::value::RawValue;

use super::write;
use crate::openai::{
    normalized::answer::{ANSWER_BYTES_MAX, AnswerError, Piece},
    responses::{CallForm, Called, Names},
};

/// `status` of an item that is being said.
pub(super) const IN_PROGRESS: &str = "in_progress";
/// Of one that was said to its end.
pub(super) const COMPLETED: &str = "completed";
/// Of one that was cut.
pub(super) const INCOMPLETE: &str = "incomplete";

/// Whoever is told of the items as they come.
pub(super) trait Listener {
    /// It begins.
    fn opened(&mut self, item: &Item);
    /// This was said, as the inside of a JSON string.
    fn said(&mut self, item: &Item, json: &[u8]);
    /// It ends so.
    fn closed(&mut self, item: &Item, status: &str);
}

/// Nobody, where all is told at the end.
impl Listener for () {
    fn opened(&mut self, _: &Item) {}
    fn said(&mut self, _: &Item, _: &[u8]) {}
    fn closed(&mut self, _: &Item, _: &str) {}
}

/// What an item is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text of the answer.
    Message,
    /// The thinking before it.
    Reasoning,
    /// A tool is called.
    Call {
        /// Identity of the call.
        call_id: String,
        /// The tool by its client's names.
        called: Called,
        /// The arguments of a custom tool's call: its text is in there and known at their end only.
        arguments: String,
    },
}

/// One item.
#[derive(Debug)]
pub(super) struct Item {
    /// `output_index`
    pub(super) index: usize,
    pub(super) kind: Kind,
    /// Identity, made of the response's.
    pub(super) id: String,
    /// What was said, as the inside of a JSON string.
    pub(super) said: Vec<u8>,
}

impl Item {
    /// Appends the item with what was said so far, or as it begins.
    pub(super) fn write(&self, status: &str, said: Option<&[u8]>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"id\":");
        write(out, &self.id);
        let (status_is_told, kind) = match &self.kind {
            Kind::Message => (true, "message"),
            Kind::Reasoning => (false, "reasoning"),
            Kind::Call { called: Called { form: CallForm::Function, .. }, .. } => (true, "function_call"),
            Kind::Call { .. } => (true, "custom_tool_call"),
        };
        out.extend_from_slice(b",\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.push(b'"');
        if status_is_told {
            out.extend_from_slice(b",\"status\":\"");
            out.extend_from_slice(status.as_bytes());
            out.push(b'"');
        }
        match &self.kind {
            Kind::Message => {
                out.extend_from_slice(b",\"role\":\"assistant\"");
                self.write_content(said, out);
            }
            Kind::Reasoning => {
                out.extend_from_slice(b",\"summary\":[]");
                self.write_content(said, out);
            }
            Kind::Call { call_id, called, .. } => {
                out.extend_from_slice(b",\"call_id\":");
                write(out, call_id);
                write_name(called, out);
                let argument: &[u8] = match called.form {
                    CallForm::Function => b",\"arguments\":\"",
                    CallForm::Custom => b",\"input\":\"",
                };
                out.extend_from_slice(argument);
                out.extend_from_slice(said.unwrap_or_default());
                out.push(b'"');
            }
        }
        out.push(b'}');
    }

    fn write_content(&self, said: Option<&[u8]>, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"content\":[");
        if let Some(said) = said {
            self.write_part(said, out);
        }
        out.push(b']');
    }

    /// Appends the one content part of a message or of reasoning.
    pub(super) fn write_part(&self, said: &[u8], out: &mut Vec<u8>) {
        let head: &[u8] = match self.kind {
            Kind::Reasoning => b"{\"type\":\"reasoning_text\",\"text\":\"",
            _ => b"{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":\"",
        };
        out.extend_from_slice(head);
        out.extend_from_slice(said);
        out.extend_from_slice(b"\"}");
    }

    /// Takes more text; gives it as the inside of a JSON string.
    fn say(&mut self, text: &str) -> usize {
        let before = self.said.len();
        write(&mut self.said, text);
        // Without its quotes. Only what was just written moves.
        self.said.pop();
        self.said.remove(before);
        before
    }
}

/// The names of a called tool. A client that groups its tools finds one by both.
pub(super) fn write_name(called: &Called, out: &mut Vec<u8>) {
    if let Some(namespace) = &called.namespace {
        out.extend_from_slice(b",\"namespace\":");
        write(out, namespace);
    }
    out.extend_from_slice(b",\"name\":");
    write(out, &called.name);
}

/// All of them.
#[derive(Debug)]
pub(super) struct Items {
    /// Of the identities, behind their kinds.
    suffix: String,
    names: Names,
    /// Those that ended, as JSON with commas between them.
    closed: Vec<u8>,
    count: usize,
    /// Identities of the calls so far.
    call_ids: BTreeSet<String>,
    open: Option<Item>,
}

impl Items {
    pub(super) fn new(response_id: &str, names: Names) -> Self {
        let suffix = response_id.trim_start_matches("resp_").to_owned();
        Self { suffix, names, closed: Vec::new(), count: 0, call_ids: BTreeSet::new(), open: None }
    }

    /// Takes a piece.
    ///
    /// # Errors
    /// With it the answer would be over [`ANSWER_BYTES_MAX`]: nothing of it was taken.
    pub(super) fn take(&mut self, piece: Piece, heard: &mut impl Listener) -> Result<(), AnswerError> {
        match piece {
            Piece::Text(text) => self.speak(Kind::Message, &text, heard),
            Piece::Reasoning(text) => self.speak(Kind::Reasoning, &text, heard),
            Piece::CallBegun { id, name } => self.begin_call(id, &name, heard),
            Piece::Arguments(text) => self.argue(&text, heard),
            Piece::Call(ToolCall { id, function, .. }) => {
                self.begin_call(id, &function.name, heard)?;
                self.argue(&function.arguments, heard)?;
                self.close(COMPLETED, heard);
                Ok(())
            }
        }
    }

    /// Ends the item that is open.
    pub(super) fn close(&mut self, status: &str, heard: &mut impl Listener) {
        let Some(mut item) = self.open.take() else { return };
        let rest = match &item.kind {
            Kind::Call { called: Called { form: CallForm::Custom, .. }, arguments, .. } => {
                input_of(arguments).into_owned()
            }
            // Of a function that takes nothing some backends say nothing; clients read JSON.
            Kind::Call { .. } if item.said.is_empty() && status == COMPLETED => "{}".to_owned(),
            _ => String::new(),
        };
        if !rest.is_empty() {
            let from = item.say(&rest);
            heard.said(&item, item.said.get(from..).unwrap_or_default());
        }
        heard.closed(&item, status);
        self.separate();
        item.write(status, Some(&item.said), &mut self.closed);
    }

    /// Appends the elements of `output`; one that is open is told as cut.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.closed);
        if let Some(item) = &self.open {
            if !self.closed.is_empty() {
                out.push(b',');
            }
            item.write(INCOMPLETE, Some(&item.said), out);
        }
    }

    fn speak(&mut self, kind: Kind, text: &str, heard: &mut impl Listener) -> Result<(), AnswerError> {
        if text.is_empty() {
            return Ok(());
        }
        self.has_room_for(text)?;
        if self.open.as_ref().is_none_or(|item| item.kind != kind) {
            self.close(COMPLETED, heard);
            self.begin(kind, heard);
        }
        self.say(text, heard);
        Ok(())
    }

    fn begin_call(&mut self, id: String, name: &str, heard: &mut impl Listener) -> Result<(), AnswerError> {
        self.has_room_for(name)?;
        self.has_room_for(&id)?;
        self.close(COMPLETED, heard);
        let called = self.names.of(name);
        let mut call_id = if id.is_empty() { format!("call_{}{}", self.suffix, self.count) } else { id };
        // Some engines count anew with every call; results are told apart by it, and openai-python ends a stream that has one twice.
        if self.call_ids.contains(&call_id) {
            call_id = format!("{call_id}_{}{}", self.suffix, self.count);
        }
        self.call_ids.insert(call_id.clone());
        self.begin(Kind::Call { call_id, called, arguments: String::new() }, heard);
        Ok(())
    }

    /// Takes more arguments of the call that is open.
    fn argue(&mut self, text: &str, heard: &mut impl Listener) -> Result<(), AnswerError> {
        self.has_room_for(text)?;
        match self.open.as_mut().map(|item| &mut item.kind) {
            Some(Kind::Call { called, arguments, .. }) if called.form == CallForm::Custom => {
                arguments.push_str(text);
            }
            Some(Kind::Call { .. }) if !text.is_empty() => self.say(text, heard),
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, kind: Kind, heard: &mut impl Listener) {
        let prefix = match &kind {
            Kind::Message => "msg",
            Kind::Reasoning => "rs",
            Kind::Call { called: Called { form: CallForm::Function, .. }, .. } => "fc",
            Kind::Call { .. } => "ctc",
        };
        let id = format!("{prefix}_{}{}", self.suffix, self.count);
        let item = Item { index: self.count, kind, id, said: Vec::new() };
        self.count += 1;
        heard.opened(&item);
        self.open = Some(item);
    }

    fn say(&mut self, text: &str, heard: &mut impl Listener) {
        let Some(item) = &mut self.open else { return };
        let from = item.say(text);
        heard.said(item, item.said.get(from..).unwrap_or_default());
    }

    fn separate(&mut self) {
        if !self.closed.is_empty() {
            self.closed.push(b',');
        }
    }

    fn has_room_for(&self, text: &str) -> Result<(), AnswerError> {
        let open = self.open.as_ref().map_or(0, |item| {
            let Kind::Call { arguments, .. } = &item.kind else { return item.said.len() };
            item.said.len() + arguments.len()
        });
        let bytes = self.closed.len() + open + text.len();
        if bytes > ANSWER_BYTES_MAX { Err(AnswerError::TooLong) } else { Ok(()) }
    }
}

/// The text for a custom tool, out of the arguments that the backend made for its function. A model that does not keep to the one
/// argument gets its words passed on: the tool says what is wrong with them.
fn input_of(arguments: &str) -> Cow<'_, str> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(arguments).unwrap_or_default();
    let only = || members.values().next().filter(|_| members.len() == 1);
    let text = members.get(Names::INPUT).or_else(only);
    text.and_then(|raw| serde_json::from_str(raw.get()).ok()).map_or(Cow::Borrowed(arguments), Cow::Owned)
}
