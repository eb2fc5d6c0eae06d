//! Requests made anew: to go on with an answer, or to have one again that keeps its schema.
//!
//! The new request is the client's, in the client's own language, with turns added at its end: what the assistant has said, and a
//! fixed directive. Every byte that is not touched stays as the client sent it: the order of its keys, its numbers, its escapes.
//! Roles go on taking turns, since templates of many models and some providers insist: where the conversation ends with a turn of
//! the same role, that turn is made longer.
//!
//! Thoughts are carried only while nothing was answered yet, and then in the directive: a provider takes back thoughts only with a
//! proof that they are its own (a signature, an encrypted form), which another provider's are not.

mod members;
mod turns;

#[cfg(test)]
mod tests;

use control::recovery::Ineligible;

pub(in crate::gate) use self::members::Members;
use self::members::{Edit, edited, is_null, place};
use super::{recorder::Recorded, schema::Mismatch};
use crate::{openai::estimate::Estimator, surface::Surface};

/// What the model is told to do with an answer of its own that was broken off.
const GO_ON: &str = "Your last message was cut off. Continue it from exactly where it ends: your reply is appended to it as it \
    is, so begin with the very next character, repeat nothing that is already there, and do not mention the interruption.";
/// The same, when it has only thought so far. Its thoughts follow in tags.
const GO_ON_FROM_THOUGHTS: &str = "You were cut off while thinking, before you answered. What you thought so far stands below. Do \
    not think it again: go on from where it ends, and answer.";
/// The temperature of the first continuation, the second, and every later one, where the caller named none: a model that went round
/// in circles, or stopped, at one temperature is less likely to do the same at another.
const TEMPERATURES: [&str; 3] = ["0.2", "0.4", "0.6"];

/// The request that goes on with an answer: the conversation, what was said so far, and a fixed directive. `ordinal` counts the
/// continuations of this request from 1; `context_window_tokens` is that of the model when the request began (SEG-3, SEG-5).
///
/// # Errors
/// [`Ineligible::Unsupported`]: several choices, structured output or a tool call that has begun cannot be put together from two
/// answers, or the body is not of this surface. [`Ineligible::ContextUnknown`], [`Ineligible::ContextExceeded`] by an estimate.
pub fn continuation(
    surface: Surface,
    body: &[u8],
    recorded: &Recorded,
    ordinal: u32,
    context_window_tokens: Option<u64>,
) -> Result<Vec<u8>, Ineligible> {
    let members = Members::of_body(body).ok_or(Ineligible::Unsupported)?;
    if recorded.has_arguments
        || wants_several(&members)
        || members.is_true("background")
        || wants_structure(surface, &members)
    {
        return Err(Ineligible::Unsupported);
    }
    let window = context_window_tokens.ok_or(Ineligible::ContextUnknown)?;
    let (said, directive) = if !recorded.content.trim().is_empty() {
        (recorded.content.as_str(), GO_ON.to_owned())
    } else if !recorded.reasoning.trim().is_empty() {
        let thoughts = &recorded.reasoning;
        ("", format!("{GO_ON_FROM_THOUGHTS}\n<thoughts>\n{thoughts}\n</thoughts>"))
    } else {
        return Err(Ineligible::SnapshotGone);
    };
    let mut edits = turns::added(surface, body, &members, said, &directive).ok_or(Ineligible::Unsupported)?;
    edits.extend(temperature(surface, body, &members, ordinal));
    let rebuilt = edited(body, edits).ok_or(Ineligible::Unsupported)?;
    let mut estimator = Estimator::default();
    estimator.push(&rebuilt);
    if estimator.finish() > window { Err(Ineligible::ContextExceeded) } else { Ok(rebuilt) }
}

/// The request that asks once more for an answer that keeps its schema: the conversation, the answer that did not, and a fixed
/// directive that says what did not fit. What the answer is to be stands in the request as before.
///
/// # Errors
/// [`Ineligible::Unsupported`]: several choices, or the body is not of this surface.
pub fn schema_repair(
    surface: Surface,
    body: &[u8],
    invalid: &str,
    why: &Mismatch,
) -> Result<Vec<u8>, Ineligible> {
    let members = Members::of_body(body).ok_or(Ineligible::Unsupported)?;
    if wants_several(&members) || members.is_true("background") {
        return Err(Ineligible::Unsupported);
    }
    let told = why.told_to_client();
    let (said, directive) = match &why.tool {
        None => (
            invalid,
            format!(
                "Your last message does not have the form that was asked for ({told}). Answer again, from the beginning, with JSON \
                 only that has it: nothing before the JSON, nothing after it, no code fence, no explanation."
            ),
        ),
        // A call that never came to be cannot stand in a conversation: every surface wants its result behind it.
        Some(tool) => (
            "",
            format!(
                "You began to call `{tool}` with arguments that do not fit its JSON Schema ({told}). Call it again with arguments \
                 that do: JSON only. These were not accepted:\n{invalid}"
            ),
        ),
    };
    let edits = turns::added(surface, body, &members, said, &directive).ok_or(Ineligible::Unsupported)?;
    edited(body, edits).ok_or(Ineligible::Unsupported)
}

/// Whether more than one answer is asked for at once.
fn wants_several(members: &Members<'_>) -> bool {
    members.some("n").is_some_and(|n| n.get() != "1")
}

/// Whether the answer is to have a form that an answer put together from two would break (case 40).
fn wants_structure(surface: Surface, members: &Members<'_>) -> bool {
    let is_structure =
        |format: Members<'_>| format.text("type").is_none_or(|kind| !kind.eq_ignore_ascii_case("text"));
    let format = match surface {
        Surface::Chat => members.some("response_format").map(Members::of),
        Surface::Responses => members.object("text").and_then(|text| text.some("format").map(Members::of)),
        Surface::Messages => {
            let config = members.object("output_config").and_then(|config| config.some("format"));
            config.or_else(|| members.some("output_format")).map(Members::of)
        }
    };
    format.is_some_and(|format| format.is_none_or(is_structure)) || has_strict_tool(surface, members)
}

fn has_strict_tool(surface: Surface, members: &Members<'_>) -> bool {
    members.list("tools").into_iter().filter_map(Members::of).any(|tool| match surface {
        Surface::Chat => tool.object("function").is_some_and(|function| function.is_true("strict")),
        Surface::Messages => tool.is_true("strict"),
        Surface::Responses => {
            tool.is_true("strict")
                || tool.list("tools").into_iter().filter_map(Members::of).any(|it| it.is_true("strict"))
        }
    })
}

/// The temperature of a continuation where the caller named none; `null` names none. Messages that think take no other than 1, which
/// is what they have without one.
fn temperature(surface: Surface, body: &[u8], members: &Members<'_>, ordinal: u32) -> Option<Edit> {
    let thinks = members
        .object("thinking")
        .is_some_and(|thinking| thinking.text("type").is_none_or(|kind| kind != "disabled"));
    if surface == Surface::Messages && thinks {
        return None;
    }
    let at = usize::try_from(ordinal.saturating_sub(1)).unwrap_or(usize::MAX).min(TEMPERATURES.len() - 1);
    let degrees = *TEMPERATURES.get(at)?;
    match members.get("temperature") {
        None => {
            let members_at = body.iter().position(|byte| *byte == b'{')? + 1;
            Some((members_at..members_at, format!("\"temperature\":{degrees},")))
        }
        Some(raw) if is_null(raw) => Some((place(body, raw)?, degrees.to_owned())),
        Some(_) => None,
    }
}
