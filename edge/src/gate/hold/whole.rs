//! The text of an answer in one piece, for the filters.

use serde_json::Value;

use crate::{
    gate::reading::{Channel, Text},
    surface::Surface,
};

/// All of it, in the order of the answer. Of what is no answer there is none.
#[must_use]
pub fn texts(surface: Surface, body: &[u8]) -> Vec<Text> {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return Vec::new() };
    let mut found = Found(Vec::new());
    match surface {
        Surface::Chat => found.chat(&answer),
        Surface::Messages => found.messages(&answer),
        Surface::Responses => found.responses(&answer),
    }
    found.0
}

/// Whether a body is JSON and tells of no error where an answer should be.
#[must_use]
pub fn is_answer(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Answer {
        #[serde(default)]
        error: Option<serde::de::IgnoredAny>,
    }
    let is_object = body.trim_ascii_start().starts_with(b"{");
    is_object && serde_json::from_slice::<Answer>(body).is_ok_and(|answer| answer.error.is_none())
}

struct Found(Vec<Text>);

impl Found {
    fn add(&mut self, channel: Channel, (choice, call): (usize, usize), name: Option<&str>, text: &str) {
        if text.is_empty() && name.is_none() {
            return;
        }
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.0.push(Text {
            channel,
            choice: number(choice),
            call: number(call),
            name: name.map(Into::into),
            text: text.to_owned(),
            until: 0,
        });
    }

    fn chat(&mut self, answer: &Value) {
        for (choice, said) in answer["choices"].as_array().into_iter().flatten().enumerate() {
            let message = &said["message"];
            let thought = message["reasoning_content"].as_str().or_else(|| message["reasoning"].as_str());
            self.add(Channel::Reasoning, (choice, 0), None, thought.unwrap_or_default());
            self.add(Channel::Content, (choice, 0), None, message["content"].as_str().unwrap_or_default());
            for (at, call) in message["tool_calls"].as_array().into_iter().flatten().enumerate() {
                let function = &call["function"];
                let arguments = function["arguments"].as_str().unwrap_or_default();
                self.add(Channel::Arguments, (choice, at), function["name"].as_str(), arguments);
            }
        }
    }

    fn messages(&mut self, answer: &Value) {
        for (at, block) in answer["content"].as_array().into_iter().flatten().enumerate() {
            let text = |key: &str| block[key].as_str().unwrap_or_default();
            match text("type") {
                "text" => self.add(Channel::Content, (0, at), None, text("text")),
                "thinking" => self.add(Channel::Reasoning, (0, at), None, text("thinking")),
                "tool_use" => {
                    let input = block["input"].to_string();
                    self.add(Channel::Arguments, (0, at), Some(text("name")), &input);
                }
                _ => {}
            }
        }
    }

    fn responses(&mut self, answer: &Value) {
        for (at, item) in answer["output"].as_array().into_iter().flatten().enumerate() {
            let parts = |key: &str| item[key].as_array().into_iter().flatten();
            match item["type"].as_str().unwrap_or_default() {
                "message" => {
                    for text in parts("content").filter_map(|part| part["text"].as_str()) {
                        self.add(Channel::Content, (0, at), None, text);
                    }
                }
                "reasoning" => {
                    for text in parts("content").chain(parts("summary")).filter_map(|it| it["text"].as_str())
                    {
                        self.add(Channel::Reasoning, (0, at), None, text);
                    }
                }
                "function_call" => {
                    let arguments = item["arguments"].as_str().unwrap_or_default();
                    self.add(Channel::Arguments, (0, at), item["name"].as_str(), arguments);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_whole_answers_is_found_on_every_surface() {
        let said = |surface, body: &str| {
            texts(surface, body.as_bytes())
                .into_iter()
                .map(|it| (it.channel, it.name.map(String::from), it.text))
                .collect::<Vec<_>>()
        };
        let expected = vec![
            (Channel::Reasoning, None, "t".to_owned()),
            (Channel::Content, None, "a".to_owned()),
            (Channel::Arguments, Some("f".to_owned()), "{}".to_owned()),
        ];
        let chat = r#"{"choices":[{"message":{"content":"a","reasoning_content":"t","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}}]}"#;
        let messages = r#"{"content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"a"},{"type":"tool_use","name":"f","input":{}}]}"#;
        let responses = r#"{"output":[{"type":"reasoning","summary":[{"text":"t"}]},{"type":"message","content":[{"text":"a"}]},{"type":"function_call","name":"f","arguments":"{}"}]}"#;
        assert_eq!(said(Surface::Chat, chat), expected);
        assert_eq!(said(Surface::Messages, messages), expected);
        assert_eq!(said(Surface::Responses, responses), expected);
        assert_eq!(said(Surface::Chat, "<html>"), []);
    }

    #[test]
    fn what_is_no_json_or_an_error_is_no_answer() {
        assert!(is_answer(b"{\"choices\":[]}") && is_answer(b"{\"error\":null}"));
        for body in ["", "<html>", "{", "{\"error\":{}}", "[]"] {
            assert!(!is_answer(body.as_bytes()), "{body}");
        }
    }
}
