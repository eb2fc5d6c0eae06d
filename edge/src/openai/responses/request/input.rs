//! From the items of `input` to messages.
//!
//! Here every text, thought and call of the assistant is an item of its own; backends know messages. What the assistant said between
//! two others is one message, so that results stand right behind the message with their calls, as chat servers require.

use std::borrow::Cow;

use proto::run_input::{Call, CallKind, Role, ToolCall};
use serde_json::value::RawValue;

use super::{Calls, part};
use crate::{
    conversation::{Checked, Message, Part, quoted, wrong},
    openai::{
        normalized::input::holds_object,
        responses::{
            Names,
            wire::{self, Item, is_array, is_object, is_string, parse, some_text, text},
        },
    },
};

/// The messages of a request.
pub(super) fn read(instructions: Option<&str>, input: Option<&RawValue>) -> Checked<Vec<Message>> {
    let mut reader = Reader::default();
    if let Some(text) = instructions.filter(|text| !text.is_empty()) {
        reader.messages.push(said(Role::System, vec![Part::Text(text.to_owned())]));
    }
    match input {
        Some(raw) if is_string(raw) => {
            let text: wire::Text<'_> = parse(raw, "input")?;
            reader.messages.push(said(Role::User, vec![Part::Text(text.0.into_owned())]));
        }
        Some(raw) if is_array(raw) => {
            let items: Vec<&RawValue> = parse(raw, "input")?;
            if items.is_empty() {
                return wrong("input", "expected at least one item");
            }
            for (at, item) in items.into_iter().enumerate() {
                reader.item(item, &format!("input[{at}]"))?;
            }
        }
        Some(_) => return wrong("input", "expected a string or an array of items"),
        None => return wrong("input", "expected a string or an array of items, but the key is missing"),
    }
    Ok(reader.messages)
}

fn said(role: Role, parts: Vec<Part>) -> Message {
    Message { role, parts, ..Message::default() }
}

#[derive(Default)]
struct Reader {
    messages: Vec<Message>,
    calls: Calls,
}

impl Reader {
    fn item(&mut self, raw: &RawValue, path: &str) -> Checked<()> {
        let item: Item<'_> = parse(raw, path)?;
        let kind = match (&item.kind, &item.role) {
            (Some(kind), _) => &*kind.0,
            (None, Some(_)) => "message",
            (None, None) => {
                return wrong(format!("{path}.type"), "expected a string, but the key is missing");
            }
        };
        match kind {
            "message" => self.message(&item, path),
            "reasoning" => self.reasoning(&item, path),
            "function_call" => {
                let arguments = arguments(item.arguments, path)?;
                self.call(&item, arguments, path)
            }
            "custom_tool_call" => {
                let input = some_text(item.input, path, "input")?;
                // A text cannot fail to serialize.
                let input = serde_json::to_string(&*input).unwrap_or_default();
                self.call(&item, ["{\"", Names::INPUT, "\":", &input, "}"].concat(), path)
            }
            "function_call_output" | "custom_tool_call_output" => self.output(&item, path),
            // It tells that a search was made, not what was found: nothing that a model could use.
            "web_search_call" => Ok(()),
            "item_reference" => wrong(path, "items are not stored here: send the item itself"),
            "compaction" | "compaction_summary" => wrong(
                path,
                "a compacted conversation can be read by the service that made it alone: send its items",
            ),
            other => {
                let found = quoted(other);
                wrong(
                    format!("{path}.type"),
                    format!(
                        "expected message, reasoning, function_call, function_call_output, custom_tool_call or custom_tool_call_output, found {found}"
                    ),
                )
            }
        }
    }

    fn message(&mut self, item: &Item<'_>, path: &str) -> Checked<()> {
        let role = match item.role.as_ref().map(|role| &*role.0) {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            Some("system" | "developer") => Role::System,
            Some(_) => return wrong(format!("{path}.role"), "expected user, assistant, system or developer"),
            None => return wrong(format!("{path}.role"), "expected a string, but the key is missing"),
        };
        let parts = part::content(item.content, path, "content")?;
        if role == Role::Assistant {
            self.assistant().parts.extend(parts);
        } else {
            self.messages.push(said(role, parts));
        }
        Ok(())
    }

    /// Of what can be read: its summary is of the text that is there, and what is encrypted is for others.
    fn reasoning(&mut self, item: &Item<'_>, path: &str) -> Checked<()> {
        let mut thought = part::thought(item.content, path, "content")?;
        if thought.is_empty() {
            thought = part::thought(item.summary, path, "summary")?;
        }
        if thought.is_empty() {
            return Ok(());
        }
        let reasoning = &mut self.assistant().reasoning;
        if !reasoning.is_empty() {
            reasoning.push('\n');
        }
        reasoning.push_str(&thought);
        Ok(())
    }

    fn call(&mut self, item: &Item<'_>, arguments: String, path: &str) -> Checked<()> {
        let id = some_text(item.call_id, path, "call_id")?.into_owned();
        let name = some_text(item.name, path, "name")?;
        let namespace = text(item.namespace, path, "namespace")?;
        let name = Names::joined(namespace.as_deref(), &name);
        if name.is_empty() {
            return wrong(format!("{path}.name"), "expected a name, found an empty string");
        }
        self.calls.insert(id.clone(), name.clone());
        let function = Call { name, arguments };
        self.assistant().tool_calls.push(ToolCall { id, kind: CallKind::Function, function });
        Ok(())
    }

    /// One whose call is not told any more is passed on as what it is.
    fn output(&mut self, item: &Item<'_>, path: &str) -> Checked<()> {
        let tool_call_id = some_text(item.call_id, path, "call_id")?.into_owned();
        let parts = part::content(item.output, path, "output")?;
        let tool_name = self.calls.get(&tool_call_id).cloned().unwrap_or_default();
        self.messages.push(Message { tool_call_id, tool_name, ..said(Role::Tool, parts) });
        Ok(())
    }

    /// The assistant's message that is being put together.
    fn assistant(&mut self) -> &mut Message {
        let at = match self.messages.last() {
            Some(Message { role: Role::Assistant, .. }) => self.messages.len() - 1,
            _ => {
                self.messages.push(said(Role::Assistant, Vec::new()));
                self.messages.len() - 1
            }
        };
        &mut self.messages[at]
    }
}

/// The object that a string holds; some clients send the object itself.
fn arguments(raw: Option<&RawValue>, path: &str) -> Checked<String> {
    let text = match raw {
        None => Cow::Borrowed("{}"),
        Some(raw) if is_object(raw) => Cow::Borrowed(raw.get()),
        Some(_) => some_text(raw, path, "arguments")?,
    };
    let arguments = if text.trim().is_empty() { "{}" } else { text.trim() };
    if !holds_object(arguments) {
        return wrong(format!("{path}.arguments"), "expected a string that holds a JSON object");
    }
    Ok(arguments.to_owned())
}
