//! Chunks of chat completions, as OpenAI, vLLM, SGLang, llama.cpp and LM Studio send them (api.md section 1.1).

use serde_json::value::RawValue;

use super::{
    Channel, Judged, Texts,
    json::{NotJson, elements_of, is_empty, members, members_of, number, text},
    said::Said,
};

/// Ends that are no answer: the engine gave up.
const FAILED: [&str; 2] = ["error", "abort"];

pub(super) fn judge(data: &str, texts: &mut Texts<'_>) -> Result<Judged, NotJson> {
    let (mut choices, mut error, mut is_flat_error, mut is_ping) = (None, None, false, false);
    let is_object = members(data, |key, value| match key {
        "choices" => choices = Some(value),
        "error" if !is_empty(value) => error = Some(value),
        "object" | "type" => {
            is_flat_error |= value.get() == "\"error\"";
            is_ping |= value.get() == "\"ping\"";
        }
        _ => {}
    })?;
    if error.is_some() || is_flat_error {
        return Ok(Judged::failure(Said::of_event(data)));
    }
    let Some(choices) = choices.filter(|_| is_object) else {
        return Ok(if is_ping { Judged::PREAMBLE } else { Judged::CONTENT });
    };
    let mut judged = Judged::PREAMBLE;
    let is_list = elements_of(choices, |value| choice(value, &mut judged, texts));
    judged.content |= !is_list && choices.get() != "null";
    Ok(judged)
}

fn choice(value: &RawValue, judged: &mut Judged, texts: &mut Texts<'_>) {
    let (mut index, mut said, mut finish, mut known) = (0, None, None, false);
    let is_object = members_of(value, |key, value| match key {
        "index" => index = number(value).unwrap_or_default(),
        "delta" | "message" => {
            known = true;
            said = Some(value).filter(|value| !is_empty(value)).or(said);
        }
        "text" => {
            known = true;
            judged.content |= !is_empty(value);
            // Of the older completions.
            push(texts, Channel::Content, 0, value);
        }
        "finish_reason" => {
            known = true;
            finish = Some(value).filter(|value| !is_empty(value));
        }
        _ => {}
    });
    judged.content |= !is_object || !known;
    if let Some(said) = said {
        judged.content |= delta(said, index, texts);
    }
    if let Some(reason) = finish.map(|value| text(value).unwrap_or_default()) {
        if !judged.content && FAILED.contains(&reason.as_str()) {
            judged.failure = Some(Box::new(Said { code: Some(reason), ..Said::default() }));
        } else {
            judged.content = true;
        }
    }
}

/// Whether something is said.
fn delta(value: &RawValue, choice: u32, texts: &mut Texts<'_>) -> bool {
    let (mut content, mut thought) = (false, false);
    let is_object = members_of(value, |key, value| {
        if key == "role" || is_empty(value) {
            return;
        }
        content = true;
        if !texts.are_wanted() {
            return;
        }
        match key {
            "content" | "refusal" => push(texts, Channel::Content, choice, value),
            // An engine that uses both names says the same twice.
            "reasoning_content" | "reasoning" if !thought => {
                thought = true;
                push(texts, Channel::Reasoning, choice, value);
            }
            "tool_calls" => {
                let mut place = 0;
                elements_of(value, |call| {
                    self::call(call, choice, place, texts);
                    place += 1;
                });
            }
            "function_call" => function(value, (choice, 0), texts),
            _ => {}
        }
    });
    content || !is_object
}

fn push(texts: &mut Texts<'_>, channel: Channel, choice: u32, value: &RawValue) {
    if !texts.are_wanted() {
        return;
    }
    if let Some(text) = text(value) {
        return texts.push(channel, choice, text);
    }
    // A list of parts.
    elements_of(value, |part| {
        members_of(part, |key, value| {
            if let Some(text) = Some(value).filter(|_| key == "text").and_then(text) {
                texts.push(channel, choice, text);
            }
        });
    });
}

fn call(value: &RawValue, choice: u32, place: u32, texts: &mut Texts<'_>) {
    let (mut index, mut said) = (place, None);
    members_of(value, |key, value| match key {
        "index" => index = number(value).unwrap_or(place),
        "function" => said = Some(value),
        _ => {}
    });
    if let Some(said) = said {
        function(said, (choice, index), texts);
    }
}

fn function(value: &RawValue, place: (u32, u32), texts: &mut Texts<'_>) {
    let (mut name, mut arguments) = (None, String::new());
    members_of(value, |key, value| match key {
        "name" => name = text(value),
        // A string that holds JSON; some engines send the object itself.
        "arguments" if value.get().starts_with('{') => value.get().clone_into(&mut arguments),
        "arguments" => arguments = text(value).unwrap_or_default(),
        _ => {}
    });
    texts.call(place, name, arguments);
}
