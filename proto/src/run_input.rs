//! The normalized input of a run, as it stands in `RunRequest.input`: a conversation as native backends understand it, whichever
//! surface it came by.
//!
//! The Edge builds it from a client's request and has checked it; an adapter maps it to its backend. It is JSON, because runs are
//! few next to the relayed events and most of it is text and JSON already. Unknown members are skipped, so that an older
//! Node takes what it knows of a newer Edge's input.

use alloc::{boxed::Box, string::String, vec::Vec};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

/// Key of the completion's metadata that holds the native tool calls, a JSON array of [`ToolCall`]s in OpenAI's form (RUN-3).
pub const TOOL_CALLS_KEY: &str = "openai_tool_calls";
/// Key of the completion's metadata that is `"true"` on a run whose tools went as text (RUN-4).
pub const TEXT_TOOL_FALLBACK_KEY: &str = "openai_text_tool_fallback";

/// Key of the completion's metadata that is `"true"` when the backend seems to have left out a part of the prompt.
pub const PROMPT_TRUNCATED_KEY: &str = "prompt_truncated";

/// A conversation and what is asked of the model.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct RunInput {
    /// In order; system messages first is usual and not required.
    pub messages: Vec<Turn>,
    /// Functions the model may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Whether it may, must or must not.
    pub tool_choice: ToolChoice,
    /// At most one call in an answer.
    pub single_tool_call: bool,
    /// Form of the answer.
    pub format: Format,
    /// How much to think; `None` leaves it to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// Sampling and limits.
    pub options: Options,
}

/// One message.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct Turn {
    /// Whose.
    pub role: Role,
    /// All its text parts together.
    pub text: String,
    /// The assistant's reasoning that a client sent back.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// Images in base64 without the `data:` prefix, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// What the assistant called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Of a tool's answer: which call it is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tool_call_id: String,
    /// Of a tool's answer: the function, looked up from the call.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tool_name: String,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Also what clients call `developer`.
    System,
    /// The caller.
    #[default]
    User,
    /// The model.
    Assistant,
    /// The result of a call.
    Tool,
}

/// One call of a function, in OpenAI's form.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct ToolCall {
    /// Stable identity; answers name it.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: CallKind,
    /// What is called.
    pub function: Call,
}

/// The kinds of calls.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// A function of the request's tools.
    #[default]
    Function,
}

/// A function and its arguments.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// A JSON object as text.
    pub arguments: String,
}

/// A function that the model may call.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The JSON Schema of its arguments, as the client wrote it: models read the order of its members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Box<RawValue>>,
}

/// Whether functions are called.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// None.
    None,
    /// At least one.
    Required,
    /// This one.
    Function(String),
}

/// Form of the answer.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Text.
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON of this schema, as the client wrote it.
    JsonSchema(Box<RawValue>),
}

/// How much to think before the answer.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "a scale")]
pub enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Max,
}

/// Sampling and limits; `None` leaves a value to the backend.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Options {
    /// Tokens of the answer at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// 0 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Candidates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u64>,
    /// 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f64>,
    /// −2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// −2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// For answers that can be had again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Texts that end the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
}

/// Why a text is no input of a run.
#[derive(Debug, Error)]
#[error("the input of the run is malformed: {0}")]
pub struct InputError(#[from] serde_json::Error);

impl RunInput {
    /// Reads what stands in `RunRequest.input`.
    ///
    /// # Errors
    /// [`InputError`] names line, column and what was expected.
    pub fn from_json(bytes: &[u8]) -> Result<Self, InputError> {
        Ok(serde_json::from_slice(bytes)?)
    }

    /// What stands in `RunRequest.input`.
    ///
    /// # Errors
    /// [`InputError`] when a number is not finite.
    pub fn to_json(&self) -> Result<Vec<u8>, InputError> {
        Ok(serde_json::to_vec(self)?)
    }
}

#[cfg(test)]
mod tests {
    use alloc::{borrow::ToOwned, string::ToString};

    use super::*;

    #[test]
    fn an_input_is_the_same_after_the_wire_and_schemas_keep_their_order() {
        let schema = r#"{"type":"object","properties":{"z":{},"a":{}}}"#;
        let raw = RawValue::from_string(schema.to_owned()).unwrap();
        let call = ToolCall {
            id: "call_1".to_owned(),
            kind: CallKind::Function,
            function: Call { name: "f".to_owned(), arguments: "{}".to_owned() },
        };
        let input = RunInput {
            messages: alloc::vec![
                Turn { role: Role::System, text: "be brief".to_owned(), ..Turn::default() },
                Turn { role: Role::Assistant, tool_calls: alloc::vec![call], ..Turn::default() },
            ],
            tools: alloc::vec![Tool {
                name: "f".to_owned(),
                description: String::new(),
                parameters: Some(raw.clone())
            }],
            tool_choice: ToolChoice::Function("f".to_owned()),
            format: Format::JsonSchema(raw),
            effort: Some(Effort::High),
            options: Options { temperature: Some(0.5), seed: Some(-1), ..Options::default() },
            ..RunInput::default()
        };
        let json = input.to_json().unwrap();
        let again = RunInput::from_json(&json).unwrap();
        assert_eq!(again.messages, input.messages);
        assert_eq!(again.tools[0].parameters.as_ref().unwrap().get(), schema);
        assert_eq!((again.tool_choice.clone(), again.effort), (input.tool_choice.clone(), input.effort));
        assert_eq!(again.to_json().unwrap(), json);
    }

    #[test]
    fn unknown_members_are_skipped_and_what_is_no_input_is_told_by_place() {
        assert!(RunInput::from_json(br#"{"messages":[],"later":1}"#).unwrap().messages.is_empty());
        for wrong in ["", "[", r#"{"messages":[{"role":"wizard"}]}"#, r#"{"options":{"seed":"x"}}"#] {
            let error = RunInput::from_json(wrong.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("line 1 column"), "{error}");
        }
    }
}
