//! Chat completions (api.md §1.1).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Ended, Event, is_openai_error};

/// Judges the events of a stream.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(events: &[Event], ended: Ended) -> Result<(), String> {
    let (mut chunks, mut done, mut failed) = (Vec::new(), false, false);
    for event in events {
        let wrong = |what: &str| Err(format!("{what}: {}", event.data));
        if !event.name.is_empty() {
            return wrong("a name");
        }
        if done || failed {
            return wrong("something behind the end");
        }
        if event.data == "[DONE]" {
            done = true;
        } else if let Some(error) = event.data.get("error") {
            is_openai_error(error)?;
            failed = true;
        } else {
            chunks.push(&event.data);
        }
    }
    let is_well = match ended {
        Ended::Well => done && !failed,
        Ended::Failed => failed && !done,
        Ended::NotYet => !failed && !done,
    };
    if !is_well {
        return Err(format!("{ended:?} ended with [DONE]: {done}, with an error: {failed}"));
    }
    all_chunks(&chunks)?;
    let finishes = chunks.iter().filter(|chunk| chunk["choices"][0]["finish_reason"].is_string()).count();
    if finishes != usize::from(ended == Ended::Well) {
        return Err(format!("{finishes} finish reasons"));
    }
    Ok(())
}

fn all_chunks(chunks: &[&Value]) -> Result<(), String> {
    let (mut calls, mut ids) = (BTreeMap::<u64, String>::new(), BTreeSet::new());
    let (mut finished, mut counted) = (false, false);
    for (number, chunk) in chunks.iter().enumerate() {
        let wrong = |what: &str| Err(format!("chunk {number}: {what}: {chunk}"));
        if chunk["object"] != "chat.completion.chunk" || !chunk["created"].is_u64() {
            return wrong("no chunk");
        }
        for of in ["id", "created", "model"] {
            if chunk[of].is_null() || chunk[of] != chunks[0][of] {
                return wrong(of);
            }
        }
        let Some(choices) = chunk["choices"].as_array() else { return wrong("no choices") };
        if counted {
            return wrong("something behind the usage");
        }
        let Some(choice) = choices.first() else {
            if !finished || !chunk["usage"].is_object() {
                return wrong("no choice before the usage");
            }
            counted = true;
            continue;
        };
        if choices.len() != 1 || choice["index"] != 0 || finished || !chunk["usage"].is_null() {
            return wrong("more than the next delta of one choice");
        }
        let delta = &choice["delta"];
        if (delta["role"] == "assistant") != (number == 0) || (number > 0 && !delta["role"].is_null()) {
            return wrong("the role comes first and once");
        }
        for text in ["content", "reasoning", "reasoning_content"] {
            if !delta[text].is_null() && !delta[text].is_string() {
                return wrong(text);
            }
        }
        if delta["reasoning"] != delta["reasoning_content"] {
            return wrong("reasoning has two names and one text");
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let Some(index) = call["index"].as_u64() else { return wrong("a call without an index") };
            let function = &call["function"];
            if let Some(id) = calls.get(&index) {
                if !call["id"].is_null() || !function["name"].is_null() || !call["type"].is_null() {
                    return wrong(&format!("call {id} is named again"));
                }
            } else {
                let (Some(id), true) = (call["id"].as_str(), index == calls.len() as u64) else {
                    return wrong("a call without an id, or out of turn");
                };
                if id.is_empty() || !ids.insert(id.to_owned()) || call["type"] != "function" {
                    return wrong("an id that is no id");
                }
                if function["name"].as_str().is_none_or(str::is_empty) {
                    return wrong("a call without a name");
                }
                calls.insert(index, id.to_owned());
            }
            if !function["arguments"].is_string() {
                return wrong("arguments are text");
            }
        }
        finished = choice["finish_reason"].is_string();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Ended, check};
    use crate::model::Surface;

    fn judged(chunks: &[&str], ended: Ended) -> Result<(), String> {
        let body: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        check(Surface::Chat, body.as_bytes(), ended).map(drop)
    }

    fn chunk(delta: &str, finish: &str) -> String {
        format!(
            "{{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}"
        )
    }

    #[test]
    fn a_stream_that_some_client_stumbles_over_is_found() {
        let role = chunk("{\"role\":\"assistant\",\"content\":\"\"}", "null");
        let text = chunk("{\"content\":\"a\"}", "null");
        let call = chunk(
            "{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}",
            "null",
        );
        let more = chunk("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{}\"}}]}", "null");
        let last = chunk("{}", "\"stop\"");
        let usage = last.replace(&last[last.find('[').unwrap()..], "[],\"usage\":{}}");
        let error = r#"{"error":{"message":"m","type":"t","param":null,"code":"c"}}"#;
        let done = "[DONE]";
        let good: [&[&str]; 2] = [&[&role, &text, &call, &more, &last, &usage, done], &[&role, &last, done]];
        for chunks in good {
            assert_eq!(judged(chunks, Ended::Well), Ok(()));
        }
        assert_eq!(judged(&[&role, &text, error], Ended::Failed), Ok(()));
        assert_eq!(judged(&[&role, &text], Ended::NotYet), Ok(()));
        let bad: [&[&str]; 11] = [
            &[&role, &last],
            &[&role, &text, done],
            &[&text, &last, done],
            &[&role, &role, &last, done],
            &[&role, &last, done, done],
            &[&role, &last, &text, done],
            &[&role, &usage, &last, done],
            &[&role, &more, &last, done],
            &[&role, &call, &call, &last, done],
            &[&role, &last, error],
            &[&role, &text.replace("\"m\"", "\"n\""), &last, done],
        ];
        for chunks in bad {
            assert!(judged(chunks, Ended::Well).is_err(), "{chunks:?}");
        }
        assert!(judged(&[&role, error, done], Ended::Failed).is_err());
        assert!(judged(&[&role, &error.replace("\"c\"", "5")], Ended::Failed).is_err());
    }
}
