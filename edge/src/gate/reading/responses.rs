//! Events of responses (api.md section 1.2).

use serde_json::value::RawValue;

use super::{
    Channel, Judged, Progress, Texts,
    json::{NotJson, check, elements_of, is_empty, members, members_of, number, text, type_of},
    said::Said,
};

pub(super) fn judge(
    name: Option<&str>,
    data: &str,
    progress: Progress,
    texts: &mut Texts<'_>,
) -> Result<Judged, NotJson> {
    let found = if name.is_some() { None } else { type_of(data)? };
    match name.or(found.as_deref()).unwrap_or_default() {
        "response.created" | "response.queued" | "response.in_progress" if data.ends_with('}') => {
            Ok(Judged::PREAMBLE)
        }
        "response.completed" | "response.incomplete" => last(data, progress, texts),
        "response.failed" | "response.cancelled" | "error" => failed(data),
        "response.output_item.added" => begun(data, texts),
        "response.output_item.done" => item(data, "item"),
        "response.content_part.added"
        | "response.content_part.done"
        | "response.reasoning_summary_part.added"
        | "response.reasoning_summary_part.done" => item(data, "part"),
        "response.output_text.done"
        | "response.refusal.done"
        | "response.reasoning_text.done"
        | "response.reasoning_summary_text.done" => repeated(data),
        "response.output_text.delta" | "response.refusal.delta" => delta(data, Some(Channel::Content), texts),
        "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
            delta(data, Some(Channel::Reasoning), texts)
        }
        "response.function_call_arguments.delta"
        | "response.mcp_call_arguments.delta"
        | "response.custom_tool_call_input.delta" => delta(data, Some(Channel::Arguments), texts),
        "ping" | "keepalive" => Ok(Judged::PREAMBLE),
        name if name.ends_with(".delta") => delta(data, None, texts),
        _ => unnamed(data),
    }
}

/// An event of a name that is not known, or of none.
fn unnamed(data: &str) -> Result<Judged, NotJson> {
    let mut is_error = false;
    members(data, |key, value| {
        is_error |= key == "error" && !is_empty(value) || key == "object" && value.get() == "\"error\"";
    })?;
    Ok(if is_error { Judged::failure(Said::of_event(data)) } else { Judged::CONTENT })
}

/// What is added to a text.
fn delta(data: &str, channel: Option<Channel>, texts: &mut Texts<'_>) -> Result<Judged, NotJson> {
    let (mut added, mut item) = (None, 0);
    members(data, |key, value| match key {
        "delta" => added = Some(value),
        "output_index" => item = number(value).unwrap_or_default(),
        _ => {}
    })?;
    let Some(added) = added else { return Ok(Judged::CONTENT) };
    if is_empty(added) {
        return Ok(Judged::PREAMBLE);
    }
    if let Some(channel) = channel.filter(|_| texts.are_wanted()) {
        let words = text(added).unwrap_or_default();
        match channel {
            Channel::Arguments => texts.call((0, item), None, words),
            Channel::Content | Channel::Reasoning => texts.push(channel, 0, words),
        }
    }
    Ok(Judged::CONTENT)
}

/// The whole of a text that came in pieces.
fn repeated(data: &str) -> Result<Judged, NotJson> {
    let mut content = false;
    let is_object = members(data, |key, value| {
        content |= matches!(key, "text" | "refusal") && !is_empty(value);
    })?;
    Ok(if content || !is_object { Judged::CONTENT } else { Judged::PREAMBLE })
}

/// An item that begins: of a call its name is content.
fn begun(data: &str, texts: &mut Texts<'_>) -> Result<Judged, NotJson> {
    let judged = item(data, "item")?;
    if judged.content && texts.are_wanted() {
        let (mut place, mut added) = (0, None);
        members(data, |key, value| match key {
            "output_index" => place = number(value).unwrap_or_default(),
            "item" => added = Some(value),
            _ => {}
        })?;
        let mut name = None;
        if let Some(added) = added {
            members_of(added, |key, value| {
                if key == "name" {
                    name = text(value);
                }
            });
        }
        texts.call((0, place), name, String::new());
    }
    Ok(judged)
}

/// An item or a part, as a member of this name.
fn item(data: &str, name: &str) -> Result<Judged, NotJson> {
    let mut found = None;
    members(data, |key, value| {
        if key == name {
            found = Some(value);
        }
    })?;
    let content = found.is_none_or(has_content);
    Ok(if content { Judged::CONTENT } else { Judged::PREAMBLE })
}

/// Whether there is more in an item or a part than the place for a text.
fn has_content(value: &RawValue) -> bool {
    let (mut is_place, mut said) = (false, false);
    let is_object = members_of(value, |key, value| match key {
        "type" => {
            is_place = matches!(
                value.get(),
                "\"message\""
                    | "\"reasoning\""
                    | "\"output_text\""
                    | "\"reasoning_text\""
                    | "\"summary_text\""
                    | "\"refusal\""
            );
        }
        "text" | "refusal" => said |= !is_empty(value),
        "content" | "summary" => {
            let is_list = elements_of(value, |part| said |= has_content(part));
            said |= !is_list && !is_empty(value);
        }
        _ => {}
    });
    !is_object || !is_place || said
}

/// The last word of an answer that did not fail: with it comes all of the answer once more, which is read where nothing of it came
/// before.
fn last(data: &str, progress: Progress, texts: &mut Texts<'_>) -> Result<Judged, NotJson> {
    let reads_text = texts.are_wanted() && !progress.text;
    if progress.content && !reads_text {
        check(data)?;
        return Ok(Judged::END);
    }
    let mut response = None;
    members(data, |key, value| {
        if key == "response" {
            response = Some(value);
        }
    })?;
    let (mut content, mut error) = (false, None);
    if let Some(response) = response {
        members_of(response, |key, value| match key {
            "output" => {
                let mut place = 0;
                elements_of(value, |item| {
                    content |= has_content(item);
                    if reads_text {
                        whole_item(item, place, texts);
                    }
                    place += 1;
                });
            }
            "incomplete_details" => content |= !is_empty(value),
            "error" if !is_empty(value) => error = Some(value),
            _ => {}
        });
    }
    Ok(match error {
        Some(error) => Judged::failure(Said::of(error)),
        None => Judged { content: content && !progress.content, ..Judged::END },
    })
}

/// The text of an item that came in one piece.
fn whole_item(value: &RawValue, place: u32, texts: &mut Texts<'_>) {
    let (mut is_call, mut name, mut arguments) = (false, None, None);
    members_of(value, |key, value| match key {
        "type" => is_call = value.get() == "\"function_call\"",
        "name" => name = text(value),
        "arguments" => arguments = text(value),
        "content" | "summary" => {
            elements_of(value, |part| whole_part(part, texts));
        }
        _ => {}
    });
    if is_call {
        texts.call((0, place), name, arguments.unwrap_or_default());
    }
}

fn whole_part(value: &RawValue, texts: &mut Texts<'_>) {
    let (mut channel, mut said) = (None, None);
    members_of(value, |key, value| match (key, value.get()) {
        ("type", "\"output_text\"" | "\"refusal\"") => channel = Some(Channel::Content),
        ("type", "\"reasoning_text\"" | "\"summary_text\"") => channel = Some(Channel::Reasoning),
        ("text" | "refusal", _) => said = text(value),
        _ => {}
    });
    if let (Some(channel), Some(said)) = (channel, said) {
        texts.push(channel, 0, said);
    }
}

/// An answer that failed, or the event of an error.
fn failed(data: &str) -> Result<Judged, NotJson> {
    let mut response = None;
    members(data, |key, value| {
        if key == "response" {
            response = Some(value);
        }
    })?;
    let mut error = None;
    if let Some(response) = response {
        members_of(response, |key, value| {
            if key == "error" && !is_empty(value) {
                error = Some(value);
            }
        });
    }
    Ok(Judged::failure(match (error, response) {
        (Some(error), _) => Said::of(error),
        (None, Some(_)) => Said::default(),
        (None, None) => Said::of_event(data),
    }))
}
