//! Who said what.

use std::collections::HashMap;

use proto::run_input::{Call, CallKind, Role, ToolCall};
use serde_json::value::RawValue;

use super::{
    MISSING, Place,
    blocks::{self, Kind},
    is_object,
};
use crate::{
    anthropic::wire,
    conversation::{Checked, Message, wrong},
};

/// What Claude Code puts before its system prompt. It changes with every request, so that no backend would find the prompt in its
/// cache (api.md §0.1 rule 18).
const BILLING_HEADER: &str = "x-anthropic-billing-header:";

/// All messages, the system prompt first.
pub(super) fn read(system: Option<&RawValue>, list: Vec<wire::Message<'_>>) -> Checked<Vec<Message>> {
    let mut heard = Heard::default();
    if let Some(system) = system {
        heard.prompt(system)?;
    }
    let before = heard.messages.len();
    for (at, message) in list.into_iter().enumerate() {
        heard.message(message, &Place::Top("messages").item(at))?;
    }
    if heard.messages.len() == before {
        return wrong("messages", "expected an array of at least one message that says something");
    }
    Ok(heard.messages)
}

/// What has been read.
#[derive(Default)]
struct Heard {
    messages: Vec<Message>,
    /// Names of called functions by the calls' identities.
    names: HashMap<String, String>,
}

impl Heard {
    fn prompt(&mut self, system: &RawValue) -> Checked<()> {
        let mut parts = Vec::new();
        let mut is_first = true;
        blocks::read(Some(system), &Place::Top("system"), |block, at| {
            let Kind::Text(text) = block.kind(at)? else {
                return wrong(at.key("type").to_string(), "expected text");
            };
            let text = if std::mem::take(&mut is_first) { without_billing(&text) } else { &text };
            blocks::say(text, &mut parts);
            Ok(())
        })?;
        self.push(Message { role: Role::System, parts, ..Message::default() });
        Ok(())
    }

    fn message(&mut self, message: wire::Message<'_>, at: &Place<'_>) -> Checked<()> {
        let content = at.key("content");
        let (raw, role) = (message.content, message.role.as_ref().map_or("", |role| &role.0));
        match role {
            "user" => self.user(raw, &content),
            "assistant" => self.assistant(raw, &content),
            "system" => self.system(raw, &content),
            _ => wrong(at.key("role").to_string(), "expected user, assistant or system"),
        }
    }

    /// Results come first: they belong to the calls before them, and backends look for them there.
    fn user(&mut self, content: Option<&RawValue>, at: &Place<'_>) -> Checked<()> {
        let mut parts = Vec::new();
        let before = self.messages.len();
        blocks::read(content, at, |block, at| match block.kind(at)? {
            Kind::Shown(shown) => shown.into_parts(at, &mut parts),
            Kind::Text(text) => {
                blocks::say(&text, &mut parts);
                Ok(())
            }
            Kind::Result(block) => self.result(block, at),
            _ => wrong(
                at.key("type").to_string(),
                "expected text, image, document, search_result or tool_result in a message of the user",
            ),
        })?;
        if !parts.is_empty() || self.messages.len() == before {
            self.push(Message { role: Role::User, parts, ..Message::default() });
        }
        Ok(())
    }

    fn result(&mut self, block: wire::Block<'_>, at: &Place<'_>) -> Checked<()> {
        let Some(id) = block.tool_use_id else {
            return wrong(at.key("tool_use_id").to_string(), format!("expected the id of a call, {MISSING}"));
        };
        let mut parts = Vec::new();
        if block.is_error == Some(true) {
            // No backend has a place for it of its own.
            blocks::say("Error:", &mut parts);
        }
        if block.content.is_some() {
            blocks::read(block.content, &at.key("content"), |block, at| match block.kind(at)? {
                Kind::Shown(shown) => shown.into_parts(at, &mut parts),
                Kind::Text(text) | Kind::Reference(text) => {
                    blocks::say(&text, &mut parts);
                    Ok(())
                }
                _ => wrong(
                    at.key("type").to_string(),
                    "expected text, image, document or search_result in the result of a tool",
                ),
            })?;
        }
        let tool_name = self.names.get(&*id.0).cloned().unwrap_or_default();
        let tool_call_id = id.0.into_owned();
        self.messages.push(Message {
            role: Role::Tool,
            parts,
            tool_call_id,
            tool_name,
            ..Message::default()
        });
        Ok(())
    }

    fn assistant(&mut self, content: Option<&RawValue>, at: &Place<'_>) -> Checked<()> {
        let mut message = Message { role: Role::Assistant, ..Message::default() };
        blocks::read(content, at, |block, at| {
            match block.kind(at)? {
                Kind::Text(text) => blocks::say(&text, &mut message.parts),
                Kind::Thinking(text) => add_line(&mut message.reasoning, &text),
                Kind::Redacted => {}
                Kind::Call(block) => message.tool_calls.push(self.call(block, at)?),
                _ => {
                    return wrong(
                        at.key("type").to_string(),
                        "expected text, thinking, redacted_thinking or tool_use in a message of the assistant",
                    );
                }
            }
            Ok(())
        })?;
        self.push(message);
        Ok(())
    }

    fn call(&mut self, block: wire::Block<'_>, at: &Place<'_>) -> Checked<ToolCall> {
        let named = |text: Option<wire::Text<'_>>, key| match text {
            Some(text) if !text.0.is_empty() => Ok(text.0.into_owned()),
            _ => wrong(at.key(key).to_string(), "expected a string that is not empty"),
        };
        let (id, name) = (named(block.id, "id")?, named(block.name, "name")?);
        let arguments = match block.input {
            None => "{}",
            Some(input) if is_object(input) => input.get(),
            Some(_) => return wrong(at.key("input").to_string(), "expected an object"),
        };
        self.names.insert(id.clone(), name.clone());
        let function = Call { name, arguments: arguments.to_owned() };
        Ok(ToolCall { id, kind: CallKind::Function, function })
    }

    /// In the middle of a conversation, as newer clients have it (api.md §0.1 rule 17).
    fn system(&mut self, content: Option<&RawValue>, at: &Place<'_>) -> Checked<()> {
        let mut parts = Vec::new();
        blocks::read(content, at, |block, at| {
            let Kind::Text(text) = block.kind(at)? else {
                return wrong(at.key("type").to_string(), "expected text in a message of the system");
            };
            blocks::say(&text, &mut parts);
            Ok(())
        })?;
        self.push(Message { role: Role::System, parts, ..Message::default() });
        Ok(())
    }

    /// Messages of one side that follow each other are one turn; one of the assistant or the system that says nothing is none.
    fn push(&mut self, message: Message) {
        let is_nothing =
            message.parts.is_empty() && message.tool_calls.is_empty() && message.reasoning.is_empty();
        if is_nothing && message.role != Role::User {
            return;
        }
        match self.messages.last_mut() {
            Some(last) if last.role == message.role => {
                last.parts.extend(message.parts);
                last.tool_calls.extend(message.tool_calls);
                add_line(&mut last.reasoning, &message.reasoning);
            }
            _ => self.messages.push(message),
        }
    }
}

fn without_billing(text: &str) -> &str {
    if !text.starts_with(BILLING_HEADER) {
        return text;
    }
    text.split_once('\n').map_or("", |(_, rest)| rest)
}

fn add_line(to: &mut String, line: &str) {
    if !to.is_empty() && !line.is_empty() {
        to.push('\n');
    }
    to.push_str(line);
}
