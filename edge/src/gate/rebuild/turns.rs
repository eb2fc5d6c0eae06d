//! Turns added to the end of a conversation, in the language of its surface.

use serde_json::value::RawValue;

use super::{
    Members,
    members::{Edit, place},
};
use crate::surface::Surface;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    User,
    Assistant,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }

    /// What a part of its text is called.
    const fn part(self, surface: Surface) -> &'static str {
        match (surface, self) {
            (Surface::Chat | Surface::Messages, _) => "text",
            (Surface::Responses, Self::User) => "input_text",
            (Surface::Responses, Self::Assistant) => "output_text",
        }
    }
}

/// What has to change for the assistant to have said `said`, unless it is blank, and for the user to ask `asked` then. `None` = the
/// conversation is not there, or not in the form of its surface.
pub(super) fn added(
    surface: Surface,
    body: &[u8],
    members: &Members<'_>,
    said: &str,
    asked: &str,
) -> Option<Vec<Edit>> {
    let said = Some(said).filter(|said| !said.trim().is_empty());
    let raw = members.some(if surface == Surface::Responses { "input" } else { "messages" })?;
    let at = place(body, raw)?;
    if surface == Surface::Responses && raw.get().starts_with('"') {
        // A string is what the user said.
        return match said {
            None => Some(vec![longer_string(at.end, "\n\n", asked)?]),
            Some(said) => Some(vec![
                (at.start..at.start, "[{\"role\":\"user\",\"content\":".to_owned()),
                (at.end..at.end, format!("}},{},{}]", turn(Role::Assistant, said), turn(Role::User, asked))),
            ]),
        };
    }
    let items: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
    let last = items.last().copied();
    let mut edits = Vec::new();
    let mut turns = Vec::new();
    let next = said.map_or((Role::User, "\n\n", asked), |said| (Role::Assistant, "", said));
    match last.and_then(|last| longer(surface, body, last, next)) {
        Some(edit) => edits.push(edit),
        None => turns.push(turn(next.0, next.2)),
    }
    if said.is_some() {
        turns.push(turn(Role::User, asked));
    }
    if !turns.is_empty() {
        let comma = if items.is_empty() { "" } else { "," };
        let end = at.end.checked_sub(1)?;
        edits.push((end..end, format!("{comma}{}", turns.join(","))));
    }
    Some(edits)
}

/// A whole turn.
fn turn(role: Role, text: &str) -> String {
    format!("{{\"role\":\"{}\",\"content\":{}}}", role.name(), quoted(text))
}

/// The last turn made longer; `None` = it is another's, or nothing that a text could be added to.
fn longer(
    surface: Surface,
    body: &[u8],
    last: &RawValue,
    (role, between, text): (Role, &str, &str),
) -> Option<Edit> {
    let last = Members::of(last)?;
    let is_message = last.text("type").is_none_or(|kind| kind == "message");
    if !is_message || last.text("role")? != role.name() || !last.list("tool_calls").is_empty() {
        return None;
    }
    let content = last.some("content")?;
    let end = place(body, content)?.end;
    if content.get().starts_with('"') {
        return longer_string(end, between, text);
    }
    let parts: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    let comma = if parts.is_empty() { "" } else { "," };
    let end = end.checked_sub(1)?;
    let part = format!("{comma}{{\"type\":\"{}\",\"text\":{}}}", role.part(surface), quoted(text));
    Some((end..end, part))
}

/// More text before the closing quote of the string that ends at `end`.
fn longer_string(end: usize, between: &str, text: &str) -> Option<Edit> {
    let end = end.checked_sub(1)?;
    let quoted = quoted(&format!("{between}{text}"));
    let plain = quoted.strip_prefix('"')?.strip_suffix('"')?;
    Some((end..end, plain.to_owned()))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
