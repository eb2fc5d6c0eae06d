//! A conversation as a surface other than chat asks for it, in a form that every kind of backend can be served from: the input of a
//! normalized run, and the body of a chat completion at a provider that has nothing else (api.md §8). Pure.
//!
//! A surface reads its requests into this form; what no backend of either kind can carry it refuses by name. What only one kind
//! can carry stays in it, and the conversion to the other kind refuses it.

mod error;

use std::collections::BTreeMap;

use proto::run_input::{self, Effort, Options, Role, RunInput, ToolCall, ToolChoice, Turn};
use serde_json::value::RawValue;

pub use error::{Checked, InputError, quoted, wrong};

/// What is asked of a model.
#[derive(Debug, Default)]
pub struct Conversation {
    /// In order. A surface's separate system prompt (`system`, `instructions`) comes first, as a message of its own.
    pub messages: Vec<Message>,
    /// Functions that the model may call.
    pub tools: Vec<Tool>,
    /// Whether it may, must or must not.
    pub tool_choice: ToolChoice,
    /// At most one call in an answer.
    pub single_tool_call: bool,
    /// Form of the answer.
    pub format: Format,
    /// How much to think; `None` leaves it to the model.
    pub effort: Option<Effort>,
    /// Sampling and limits. Values are as the client named them; bounds are the surface's business.
    pub options: Options,
    /// The client's own pairs, as far as they are pairs of short texts (RUN-7).
    pub metadata: BTreeMap<String, String>,
}

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Whose. A tool's answer is a message of its own ([`Role::Tool`]), whatever the surface puts it in.
    pub role: Role,
    /// What it says and shows, in order.
    pub parts: Vec<Part>,
    /// The assistant's reasoning that a client sent back.
    pub reasoning: String,
    /// What the assistant called; arguments hold one JSON object each.
    pub tool_calls: Vec<ToolCall>,
    /// Of a tool's answer: which call it is for.
    pub tool_call_id: String,
    /// Of a tool's answer: the function, looked up from the call; empty where the call is not told.
    pub tool_name: String,
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Words.
    Text(String),
    /// A picture.
    Image(Image),
}

/// A picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Where it stood in the client's request: what a refusal names.
    pub param: String,
    /// The picture itself, or where it is.
    pub source: ImageSource,
    /// OpenAI's `detail`, where the client named one.
    pub detail: Option<String>,
}

/// Where a picture is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// In the request.
    Data {
        /// `image/png` and the like.
        media_type: String,
        /// The picture, without blanks.
        base64: String,
    },
    /// Elsewhere. The Edge never fetches it (security.md §3 row 5); a provider may.
    Url(String),
}

/// A function that the model may call.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does; empty for nothing said.
    pub description: String,
    /// The JSON Schema of its arguments, an object, as the client wrote it: models read the order of its members.
    pub parameters: Option<Box<RawValue>>,
    /// Whether arguments must keep to the schema, where the client said so.
    pub strict: Option<bool>,
}

/// Form of the answer.
#[derive(Clone, Debug, Default)]
pub enum Format {
    /// Text.
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON of this schema.
    JsonSchema {
        /// Its name; `answer` where the surface has none.
        name: String,
        /// An object, as the client wrote it.
        schema: Box<RawValue>,
        /// Whether it must be kept to, where the client said so.
        strict: Option<bool>,
    },
}

impl Conversation {
    /// The input of a normalized run.
    ///
    /// # Errors
    /// [`InputError`] names a picture that would have to be fetched.
    pub fn into_run_input(self) -> Checked<RunInput> {
        let turns = self.messages.into_iter().map(turn).collect::<Checked<_>>()?;
        let tool = |tool: Tool| run_input::Tool {
            name: tool.name,
            description: tool.description,
            parameters: tool.parameters,
        };
        Ok(RunInput {
            messages: turns,
            tools: self.tools.into_iter().map(tool).collect(),
            tool_choice: self.tool_choice,
            single_tool_call: self.single_tool_call,
            format: match self.format {
                Format::Text => run_input::Format::Text,
                Format::JsonObject => run_input::Format::JsonObject,
                Format::JsonSchema { schema, .. } => run_input::Format::JsonSchema(schema),
            },
            effort: self.effort,
            options: self.options,
        })
    }
}

fn turn(message: Message) -> Checked<Turn> {
    let Message { role, parts, reasoning, tool_calls, tool_call_id, tool_name } = message;
    let mut turn = Turn { role, reasoning, tool_calls, tool_call_id, tool_name, ..Turn::default() };
    let mut has_text = false;
    for part in parts {
        match part {
            // Texts stand on lines of their own, as servers of the usual kind put them.
            Part::Text(text) => {
                if has_text {
                    turn.text.push('\n');
                }
                has_text = true;
                turn.text.push_str(&text);
            }
            Part::Image(Image { source: ImageSource::Data { base64, .. }, .. }) => turn.images.push(base64),
            Part::Image(Image { param, source: ImageSource::Url(_), .. }) => {
                return wrong(param, "expected the image itself in base64: images are not fetched");
            }
        }
    }
    Ok(turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(source: ImageSource) -> Part {
        Part::Image(Image { param: "messages[0].content[1].source.url".to_owned(), source, detail: None })
    }

    fn saying(parts: Vec<Part>) -> Conversation {
        Conversation { messages: vec![Message { parts, ..Message::default() }], ..Conversation::default() }
    }

    #[test]
    fn texts_stand_on_lines_of_their_own_and_pictures_beside_them() {
        let picture = ImageSource::Data { media_type: "image/png".to_owned(), base64: "aGk=".to_owned() };
        let parts = vec![Part::Text("a".to_owned()), image(picture), Part::Text("b".to_owned())];
        let input = saying(parts).into_run_input().unwrap();
        assert_eq!(input.messages[0].text, "a\nb");
        assert_eq!(input.messages[0].images, ["aGk="]);
    }

    #[test]
    fn a_picture_that_would_have_to_be_fetched_is_no_input_of_a_run() {
        let error =
            saying(vec![image(ImageSource::Url("http://x/y".to_owned()))]).into_run_input().unwrap_err();
        assert_eq!(error.param, "messages[0].content[1].source.url");
    }
}
