//! JSON Lines: one event on each. Pure.
//!
//! | `type` | Meaning |
//! |---|---|
//! | `text`, `reasoning` | the next piece of the answer, or of the thoughts before it, in `text` |
//! | `stream_event` | in `event`: `content_block_delta` with a `text_delta` or a `thinking_delta`; `message_start` begins a further message |
//! | `assistant` | a whole message: `message.content`, a text or parts of type `text` and `thinking`. Where its pieces came before, nothing new |
//! | `message` | with `role: "assistant"`: `content`, a piece with `delta: true`, else a whole message |
//! | `item.completed` | in `item`: `agent_message` and `reasoning` are whole texts |
//! | `usage` | counts so far, in `usage` |
//! | `result` | the end: an answer as [`answer`] reads it. Its text counts when no other came |
//! | `turn.completed` | the end, with `usage` |
//! | `turn.failed` | it failed, with `error` |
//! | `error` | a warning; the words of the failure, if the program fails or says nothing else |
//!
//! Any other line is skipped, one that is no JSON too. Whole messages are set apart by an empty line.

use serde_json::Value;

use super::{
    Said,
    answer::{self, Answer},
};

/// Reads events and remembers what matters for later ones.
#[derive(Debug, Default)]
pub struct Events {
    /// Text has been said.
    spoken: bool,
    /// The text of the message under way came in pieces.
    in_pieces: bool,
    /// So did its thoughts.
    thought_in_pieces: bool,
    /// A further message begins.
    apart: bool,
    /// The last warning.
    warning: Option<String>,
    end: Option<Answer>,
}

impl Events {
    /// One line, without its end.
    pub fn line(&mut self, line: &[u8], said: &mut Vec<Said>) {
        // What is no object is not worth an error's making.
        if line.trim_ascii_start().first() != Some(&b'{') {
            return;
        }
        let Ok(Value::Object(event)) = serde_json::from_slice(line) else { return };
        let text_of = |name: &str| event.get(name).and_then(Value::as_str);
        match text_of("type").unwrap_or_default() {
            "text" => self.piece(text_of("text"), said),
            "reasoning" => self.thought(text_of("text"), said),
            "stream_event" => self.streamed(event.get("event"), said),
            "assistant" => self.whole(event.get("message").and_then(|message| message.get("content")), said),
            "message" if text_of("role") == Some("assistant") => {
                if event.get("delta") == Some(&Value::Bool(true)) {
                    self.piece(text_of("content"), said);
                } else {
                    self.whole(event.get("content"), said);
                }
            }
            "item.completed" => self.item(event.get("item"), said),
            "usage" => said.extend(event.get("usage").and_then(answer::usage).map(Said::Usage)),
            "result" => self.end = Some(answer::read(&event)),
            "turn.completed" => {
                let usage = event.get("usage").and_then(answer::usage);
                self.end = Some(Answer { usage, ..Answer::default() });
            }
            "turn.failed" => {
                let words = event.get("error").map(answer::error_words).unwrap_or_default();
                self.end = Some(Answer { error: Some(words), ..Answer::default() });
            }
            "error" => {
                let error = event.get("error").or_else(|| event.get("message"));
                self.warning = error.map(answer::error_words).filter(|words| !words.is_empty());
            }
            _ => {}
        }
    }

    /// Nothing more comes: what the end says, which has the text that is still to be said. Without any of it, `None`.
    #[must_use]
    pub fn finish(self) -> Option<Answer> {
        let spoken = self.spoken;
        let end = match self.end {
            Some(Answer { text, .. }) if text.is_none() && !spoken && self.warning.is_some() => None,
            end => end,
        };
        match end {
            Some(answer) => Some(Answer { text: answer.text.filter(|_| !spoken), ..answer }),
            None if spoken => Some(Answer::default()),
            None => self.warning.map(|words| Answer { error: Some(words), ..Answer::default() }),
        }
    }

    /// What a program that fails has said of it.
    #[must_use]
    pub fn complaint(&self) -> Option<&str> {
        let end = self.end.as_ref().and_then(|end| end.error.as_deref()).filter(|words| !words.is_empty());
        end.or(self.warning.as_deref())
    }

    fn streamed(&mut self, event: Option<&Value>, said: &mut Vec<Said>) {
        let member = |value: Option<&Value>, name: &str| value.and_then(|value| value.get(name)).cloned();
        let Some(kind) = member(event, "type") else { return };
        match kind.as_str() {
            Some("message_start") => {
                self.apart = self.spoken;
                self.in_pieces = false;
                self.thought_in_pieces = false;
            }
            Some("content_block_delta") => {
                let delta = member(event, "delta");
                let text = |name| member(delta.as_ref(), name);
                match text("type").as_ref().and_then(Value::as_str) {
                    Some("text_delta") => self.piece(text("text").as_ref().and_then(Value::as_str), said),
                    Some("thinking_delta") => {
                        self.thought(text("thinking").as_ref().and_then(Value::as_str), said)
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn item(&mut self, item: Option<&Value>, said: &mut Vec<Said>) {
        let Some(item) = item else { return };
        let Some(text) = item.get("text").and_then(Value::as_str) else { return };
        match item.get("type").and_then(Value::as_str) {
            Some("agent_message") => {
                self.apart = self.spoken;
                self.say(text, said);
                self.apart = true;
            }
            Some("reasoning") => said.push(Said::Reasoning(text.to_owned())),
            _ => {}
        }
    }

    fn piece(&mut self, text: Option<&str>, said: &mut Vec<Said>) {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return };
        self.in_pieces = true;
        self.say(text, said);
    }

    fn thought(&mut self, text: Option<&str>, said: &mut Vec<Said>) {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return };
        self.thought_in_pieces = true;
        said.push(Said::Reasoning(text.to_owned()));
    }

    /// A whole message ends the one under way.
    fn whole(&mut self, content: Option<&Value>, said: &mut Vec<Said>) {
        let Some(content) = content else { return };
        let thoughts = answer::parts(content, "thinking", "thinking").unwrap_or_default();
        if !thoughts.is_empty() && !self.thought_in_pieces {
            said.push(Said::Reasoning(thoughts));
        }
        let text = answer::text(content).unwrap_or_default();
        if text.is_empty() {
            return;
        }
        if !self.in_pieces {
            self.apart = self.spoken;
            self.say(&text, said);
            self.apart = true;
        }
    }

    fn say(&mut self, text: &str, said: &mut Vec<Said>) {
        if text.is_empty() {
            return;
        }
        let between = if std::mem::take(&mut self.apart) { "\n\n" } else { "" };
        self.spoken = true;
        said.push(Said::Text(format!("{between}{text}")));
    }
}
