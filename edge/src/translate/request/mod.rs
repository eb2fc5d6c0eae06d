//! From a conversation to the body of a chat completion request.

mod messages;
#[cfg(test)]
mod tests;

use proto::run_input::{Effort, Options, ToolChoice};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{json, value::RawValue};

use crate::{
    config::{ChatDialect, EffortWords, GenerationFields},
    conversation::{Checked, Conversation, Format},
};

/// Where a request goes.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The served model.
    pub model: &'a str,
    /// What its server calls the limits of tokens.
    pub fields: GenerationFields,
    /// What else its server takes.
    pub dialect: ChatDialect,
    /// Whether the answer comes as a stream, which is then asked to end with its usage.
    pub stream: bool,
    /// Budget for thinking of a request that may think, where the server has a name for it (CFG-5).
    pub thinking_budget: Option<u64>,
}

/// The body of the request. Limits of tokens have been applied to the conversation's options.
///
/// # Errors
/// [`crate::conversation::InputError`] names what no chat completion can carry: a picture that the assistant or the system shows.
pub fn body(conversation: &Conversation, to: &Target<'_>) -> Checked<Vec<u8>> {
    let messages = messages::of(&conversation.messages, &to.dialect)?;
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::new(&mut out);
    let mut members = Members { map: serializer.serialize_map(None).ok() };
    members.add("model", &to.model);
    members.add("messages", &messages);
    if to.stream {
        members.add("stream", &true);
        members.add("stream_options", &json!({"include_usage": true}));
    }
    tools(conversation, &mut members);
    format(&conversation.format, &mut members);
    effort(conversation.effort, to, &mut members);
    options(&conversation.options, to, &mut members);
    members.end();
    Ok(out)
}

/// The members of one object. Texts, numbers that were read from JSON, and buffers in memory cannot fail to be written.
struct Members<M> {
    map: Option<M>,
}

impl<M: SerializeMap> Members<M> {
    fn add(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        if let Some(map) = &mut self.map {
            let _cannot_fail = map.serialize_entry(name, value);
        }
    }

    fn add_some(&mut self, name: &str, value: Option<&impl Serialize>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    fn end(self) {
        let _cannot_fail = self.map.map(SerializeMap::end);
    }
}

#[derive(Serialize)]
struct WireTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

fn tools<M: SerializeMap>(conversation: &Conversation, members: &mut Members<M>) {
    // A choice, or a number of calls, is refused where there is nothing to choose from.
    if conversation.tools.is_empty() {
        return;
    }
    let list: Vec<_> = conversation
        .tools
        .iter()
        .map(|tool| WireTool {
            kind: "function",
            function: Function {
                name: &tool.name,
                description: &tool.description,
                parameters: tool.parameters.as_deref(),
                strict: tool.strict,
            },
        })
        .collect();
    members.add("tools", &list);
    match &conversation.tool_choice {
        ToolChoice::Auto => {}
        ToolChoice::None => members.add("tool_choice", "none"),
        ToolChoice::Required => members.add("tool_choice", "required"),
        ToolChoice::Function(name) => {
            members.add("tool_choice", &json!({"type": "function", "function": {"name": name}}));
        }
    }
    if conversation.single_tool_call {
        members.add("parallel_tool_calls", &false);
    }
}

#[derive(Serialize)]
struct ResponseFormat<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    json_schema: Option<Schema<'a>>,
}

#[derive(Serialize)]
struct Schema<'a> {
    name: &'a str,
    schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

fn format<M: SerializeMap>(format: &Format, members: &mut Members<M>) {
    let asked = match format {
        Format::Text => return,
        Format::JsonObject => ResponseFormat { kind: "json_object", json_schema: None },
        Format::JsonSchema { name, schema, strict } => ResponseFormat {
            kind: "json_schema",
            json_schema: Some(Schema { name, schema, strict: *strict }),
        },
    };
    members.add("response_format", &asked);
}

fn effort<M: SerializeMap>(effort: Option<Effort>, to: &Target<'_>, members: &mut Members<M>) {
    if effort != Some(Effort::None) {
        members.add_some(
            to.fields.thinking_budget.unwrap_or_default(),
            to.thinking_budget.as_ref().filter(|_| to.fields.thinking_budget.is_some()),
        );
    }
    let Some(effort) = effort else { return };
    let word = match (to.dialect.effort, effort) {
        (EffortWords::Three, Effort::None) => {
            return members.add("chat_template_kwargs", &json!({"enable_thinking": false}));
        }
        (EffortWords::All | EffortWords::OnlyNone, Effort::None) => "none",
        (EffortWords::OnlyNone, _) => return,
        (EffortWords::All, Effort::Minimal) => "minimal",
        (EffortWords::Three, Effort::Minimal) | (_, Effort::Low) => "low",
        (_, Effort::Medium) => "medium",
        (EffortWords::Three, Effort::Max) | (_, Effort::High) => "high",
        (EffortWords::All, Effort::Max) => "xhigh",
    };
    members.add("reasoning_effort", word);
}

fn options<M: SerializeMap>(options: &Options, to: &Target<'_>, members: &mut Members<M>) {
    members.add_some(to.fields.max_tokens, options.max_tokens.as_ref());
    members.add_some("temperature", options.temperature.as_ref());
    members.add_some("top_p", options.top_p.as_ref());
    if to.dialect.wide_sampling {
        members.add_some("top_k", options.top_k.as_ref());
        members.add_some("min_p", options.min_p.as_ref());
    }
    members.add_some("frequency_penalty", options.frequency_penalty.as_ref());
    members.add_some("presence_penalty", options.presence_penalty.as_ref());
    members.add_some("seed", options.seed.as_ref());
    members.add_some("stop", Some(&options.stop).filter(|stop| !stop.is_empty()));
}
