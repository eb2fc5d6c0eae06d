//! Events of messages (api.md section 1.4).

use super::{
    Channel, Judged, Texts,
    json::{NotJson, check, is_empty, members, members_of, number, text, type_of},
    said::Said,
};

pub(super) fn judge(name: Option<&str>, data: &str, texts: &mut Texts<'_>) -> Result<Judged, NotJson> {
    let found = if name.is_some() { None } else { type_of(data)? };
    match name.or(found.as_deref()).unwrap_or_default() {
        "message_start" | "ping" | "content_block_stop" if data.ends_with('}') => Ok(Judged::PREAMBLE),
        "message_stop" => check(data).map(|()| Judged::END),
        "content_block_start" => block(data, texts),
        "content_block_delta" => delta(data, texts),
        "message_delta" => message(data),
        "error" => Ok(Judged::failure(Said::of_event(data))),
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

/// A block that begins: of a call its name is content, of a text or a thought nothing is.
fn block(data: &str, texts: &mut Texts<'_>) -> Result<Judged, NotJson> {
    let (mut index, mut begun) = (0, None);
    members(data, |key, value| match key {
        "index" => index = number(value).unwrap_or_default(),
        "content_block" => begun = Some(value),
        _ => {}
    })?;
    let Some(begun) = begun else { return Ok(Judged::CONTENT) };
    let (mut is_place, mut is_call, mut said) = (false, false, false);
    let (mut name, mut input) = (None, String::new());
    members_of(begun, |key, value| match key {
        "type" => {
            is_place = matches!(value.get(), "\"text\"" | "\"thinking\"");
            is_call = matches!(value.get(), "\"tool_use\"" | "\"server_tool_use\"" | "\"mcp_tool_use\"");
        }
        "text" | "thinking" if !is_empty(value) => {
            said = true;
            let channel = if key == "text" { Channel::Content } else { Channel::Reasoning };
            texts.push(channel, 0, text(value).unwrap_or_default());
        }
        "name" => name = text(value),
        "input" if !is_empty(value) => value.get().clone_into(&mut input),
        _ => {}
    });
    if is_call {
        texts.call((0, index), name, input);
    }
    Ok(if is_place && !said { Judged::PREAMBLE } else { Judged::CONTENT })
}

fn delta(data: &str, texts: &mut Texts<'_>) -> Result<Judged, NotJson> {
    let (mut index, mut added) = (0, None);
    members(data, |key, value| match key {
        "index" => index = number(value).unwrap_or_default(),
        "delta" => added = Some(value),
        _ => {}
    })?;
    let Some(added) = added else { return Ok(Judged::CONTENT) };
    let mut content = false;
    let is_object = members_of(added, |key, value| {
        if key == "type" || is_empty(value) {
            return;
        }
        content = true;
        if !texts.are_wanted() {
            return;
        }
        match key {
            "text" => texts.push(Channel::Content, 0, text(value).unwrap_or_default()),
            "thinking" => texts.push(Channel::Reasoning, 0, text(value).unwrap_or_default()),
            "partial_json" => texts.call((0, index), None, text(value).unwrap_or_default()),
            _ => {}
        }
    });
    Ok(if content || !is_object { Judged::CONTENT } else { Judged::PREAMBLE })
}

/// Why the message ended is content, its counts are not.
fn message(data: &str) -> Result<Judged, NotJson> {
    let mut content = false;
    members(data, |key, value| {
        if key == "delta" {
            members_of(value, |key, value| content |= key == "stop_reason" && !is_empty(value));
        }
    })?;
    Ok(if content { Judged::CONTENT } else { Judged::PREAMBLE })
}
