//! The models of the played server, and what each answers to a conversation. Pure: a request in, lines out.

use serde_json::{Map, Value, json};

/// What comes of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Before the first line, with this status and these words.
    Refused(u16, String),
    /// From something in front of the server, which speaks no JSON.
    Page(u16, &'static str),
    /// Lines, and how they end.
    Lines(Vec<Value>, End),
}

/// How the lines end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With `done: true` and this reason.
    Done(&'static str),
    /// With a line that is an error.
    Error(&'static str),
    /// As if they were whole, without `done: true`.
    Nothing,
    /// Never: the last line comes again and again, until whoever asked has left.
    Never,
}

/// A model.
#[derive(Debug)]
pub struct Model {
    /// Without the tag, which is `latest`.
    pub name: &'static str,
    /// As `/api/show` lists them.
    pub capabilities: &'static [&'static str],
    plays: fn(&Chat) -> Answer,
}

/// Tokens that each request counts as.
pub const PROMPT_TOKENS: u64 = 26;
/// The window of every model.
pub const CONTEXT: u64 = 4096;

/// All models.
pub const MODELS: &[Model] = &[
    Model { name: "plain", capabilities: &["completion"], plays: talks },
    Model { name: "tools", capabilities: &["completion", "tools"], plays: calls_without_ids },
    Model { name: "tools-ids", capabilities: &["completion", "tools"], plays: calls_with_ids },
    Model { name: "thinker", capabilities: &["completion", "tools", "thinking"], plays: thinks },
    // It refuses tools as a model without a template for them is refused.
    Model { name: "no-tools", capabilities: &["completion"], plays: calls_in_text },
    Model {
        name: "short",
        capabilities: &["completion"],
        plays: |_| said(&["Cut ", "off"], End::Done("length")),
    },
    Model {
        name: "crashed",
        capabilities: &["completion"],
        plays: |_| refused(500, "llama runner process has terminated"),
    },
    Model { name: "busy", capabilities: &["completion"], plays: |_| refused(503, BUSY) },
    Model {
        name: "crashing",
        capabilities: &["completion"],
        plays: |_| {
            said(&["It ", "was ", "fine"], End::Error("an error was encountered while running the model"))
        },
    },
    Model { name: "large-calls", capabilities: &["completion", "tools"], plays: calls_at_length },
    Model { name: "many-calls", capabilities: &["completion", "tools"], plays: calls_often },
    Model {
        name: "endless",
        capabilities: &["completion"],
        plays: |_| said(&["On and ", "on "], End::Never),
    },
    Model {
        name: "failing",
        capabilities: &["completion"],
        plays: |_| said(&[], End::Error("no slots available")),
    },
    Model {
        name: "proxied",
        capabilities: &["completion"],
        plays: |_| Answer::Page(502, "<html>Bad Gateway</html>"),
    },
    Model {
        name: "quoting",
        capabilities: &["completion", "tools"],
        plays: |_| said(&["<tool_", QUOTED], End::Done("stop")),
    },
    Model { name: "ending", capabilities: &["completion"], plays: |_| said(&["And ", "then"], End::Nothing) },
];

/// What a model writes that explains calls and makes none.
const QUOTED: &str = "call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}</tool_call>";
const BUSY: &str = "server busy, please try again.  maximum pending requests exceeded";

/// What models look at of a request.
#[derive(Debug)]
pub struct Chat<'a> {
    body: &'a Value,
}

impl<'a> Chat<'a> {
    /// Of a body that has been checked.
    pub const fn new(body: &'a Value) -> Self {
        Self { body }
    }

    fn messages(&self) -> &'a [Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    fn tools(&self) -> &'a [Value] {
        self.body["tools"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Name and content of each answer of a tool at the end.
    fn results(&self) -> Vec<(&'a str, &'a str)> {
        let messages = self.messages();
        let first = messages.iter().rposition(|m| m["role"] != "tool").map_or(0, |last| last + 1);
        let text = |value: &'a Value| value.as_str().unwrap_or_default();
        messages[first..].iter().map(|m| (text(&m["tool_name"]), text(&m["content"]))).collect()
    }

    fn is_told_to_think(&self) -> bool {
        !matches!(&self.body["think"], Value::Null | Value::Bool(false))
    }
}

/// What the model of this request answers.
pub fn answer(body: &Value) -> Answer {
    let name = body["model"].as_str().unwrap_or_default();
    let Some(model) = find(name) else { return refused(404, &format!("model '{name}' not found")) };
    let chat = Chat::new(body);
    let can = |capability: &str| model.capabilities.contains(&capability);
    if !chat.tools().is_empty() && !can("tools") {
        return refused(400, &format!("registry.ollama.ai/library/{name} does not support tools"));
    }
    if chat.is_told_to_think() && !can("thinking") {
        return refused(400, &format!("{name:?} does not support thinking"));
    }
    (model.plays)(&chat)
}

/// A model by its name, with its tag or without.
pub fn find(name: &str) -> Option<&'static Model> {
    let name = name.strip_suffix(":latest").unwrap_or(name);
    MODELS.iter().find(|model| model.name == name)
}

fn refused(status: u16, words: &str) -> Answer {
    Answer::Refused(status, words.to_owned())
}

fn said(parts: &[&str], end: End) -> Answer {
    Answer::Lines(parts.iter().map(|part| line(part)).collect(), end)
}

fn line(content: &str) -> Value {
    json!({ "role": "assistant", "content": content })
}

/// Text, or JSON in the form that is asked for.
fn talks(chat: &Chat) -> Answer {
    let text = match &chat.body["format"] {
        Value::Null => return said(&["Hello ", "你好", "🌍", "!"], End::Done("stop")),
        schema @ Value::Object(_) => instance(schema, 0).to_string(),
        _ => "{\"any\":true}".to_owned(),
    };
    let pieces: Vec<_> = text.chars().map(String::from).collect();
    said(&pieces.iter().map(String::as_str).collect::<Vec<_>>(), End::Done("stop"))
}

fn thinks(chat: &Chat) -> Answer {
    let thought = |text: &str| json!({ "role": "assistant", "content": "", "thinking": text });
    let mut lines = vec![line("Four"), line("teen.")];
    // Such a model thinks unless it is told not to.
    if chat.body["think"] != false {
        lines.splice(0..0, [thought("Two times "), thought("seven…")]);
    }
    Answer::Lines(lines, End::Done("stop"))
}

fn calls_without_ids(chat: &Chat) -> Answer {
    calls(chat, |_| String::new())
}

fn calls_with_ids(chat: &Chat) -> Answer {
    calls(chat, |index| format!("call_own{index}"))
}

/// Two calls at once, and afterwards what their answers were.
fn calls(chat: &Chat, id: fn(usize) -> String) -> Answer {
    let results = chat.results();
    if !results.is_empty() {
        let told: Vec<_> = results.iter().map(|(name, content)| format!("{name}={content}; ")).collect();
        return said(&told.iter().map(String::as_str).collect::<Vec<_>>(), End::Done("stop"));
    }
    if chat.tools().is_empty() {
        return talks(chat);
    }
    let mut lines = vec![line("Looking. ")];
    for (index, (name, arguments)) in two_calls(chat.tools()).into_iter().enumerate() {
        let call =
            json!({ "id": id(index), "function": { "index": index, "name": name, "arguments": arguments } });
        lines.push(json!({ "role": "assistant", "content": "", "tool_calls": [call] }));
    }
    Answer::Lines(lines, End::Done("stop"))
}

/// Bytes of the only argument of a large call.
pub const LARGE: usize = 100_000;
/// Calls in one line.
pub const MANY: usize = 40;

fn calls_at_length(chat: &Chat) -> Answer {
    let city = "x".repeat(LARGE);
    calls_in(chat, 2, &json!({ "city": city, "nested": { "list": [1, 2.5, null, "ü\"\\\n"] } }))
}

fn calls_often(chat: &Chat) -> Answer {
    calls_in(chat, MANY, &json!({ "city": "Paris" }))
}

/// So many calls of the first tool in one line.
fn calls_in(chat: &Chat, count: usize, arguments: &Value) -> Answer {
    let Some(tool) = chat.tools().first() else { return talks(chat) };
    let call = |index| json!({ "function": { "index": index, "name": tool["function"]["name"], "arguments": arguments } });
    let calls: Vec<_> = (0..count).map(call).collect();
    Answer::Lines(vec![json!({ "role": "assistant", "content": "", "tool_calls": calls })], End::Done("stop"))
}

/// The first two tools, or the only one twice.
fn two_calls(tools: &[Value]) -> [(Value, Value); 2] {
    [0, 1].map(|index| {
        let function = &tools[index.min(tools.len() - 1)]["function"];
        (function["name"].clone(), instance(&function["parameters"], index))
    })
}

/// What a model does that was told of its tools in words: it writes its calls.
fn calls_in_text(chat: &Chat) -> Answer {
    let messages = chat.messages();
    let of_role = |role: &'static str| messages.iter().filter(move |m| m["role"] == role);
    let instruction = of_role("system").next().and_then(|m| m["content"].as_str()).unwrap_or_default();
    if !instruction.contains("<tool_call>") {
        return talks(chat);
    }
    let last = messages.last().and_then(|m| m["content"].as_str()).unwrap_or_default();
    if last.contains("<tool_response>") {
        return said(&["So it ", "is: ", last], End::Done("stop"));
    }
    // Cut in the middle of the tags.
    said(
        &[
            "Looking. <tool",
            "_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Par",
            "is\"}}\n</tool_c",
            "all>\n<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}</tool_call>",
        ],
        End::Done("stop"),
    )
}

/// A value that fits a schema; others by `variant`.
fn instance(schema: &Value, variant: usize) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("string") => ["Paris", "Seoul"][variant % 2].into(),
        Some("integer") => (7 + variant).into(),
        Some("number") => 1.5.into(),
        Some("boolean") => true.into(),
        Some("array") => vec![instance(&schema["items"], variant)].into(),
        _ => {
            let properties = schema["properties"].as_object();
            let members = properties.into_iter().flatten();
            members.map(|(name, of)| (name.clone(), instance(of, variant))).collect::<Map<_, _>>().into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(model: &str, members: &Value) -> Answer {
        let mut body = json!({ "model": model, "messages": [{ "role": "user", "content": "hi" }] });
        if let (Some(body), Some(members)) = (body.as_object_mut(), members.as_object()) {
            body.extend(members.clone());
        }
        assert_eq!(super::super::check::chat(&body), Ok(()));
        answer(&body)
    }

    fn text(answer: &Answer) -> String {
        let Answer::Lines(lines, _) = answer else { return String::new() };
        lines.iter().filter_map(|line| line["content"].as_str()).collect()
    }

    #[test]
    fn each_model_does_what_it_can_and_refuses_the_rest_in_ollamas_words() {
        let tools =
            json!({ "tools": [{ "type": "function", "function": { "name": "f", "parameters": {} } }] });
        assert_eq!(asked("none", &json!({})), refused(404, "model 'none' not found"));
        assert_eq!(
            asked("no-tools", &tools),
            refused(400, "registry.ollama.ai/library/no-tools does not support tools")
        );
        assert!(matches!(asked("plain:latest", &json!({ "think": true })), Answer::Refused(400, _)));
        assert_eq!(text(&asked("plain", &json!({}))), "Hello 你好🌍!");
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        assert_eq!(text(&asked("plain", &json!({ "format": schema }))), "{\"n\":7}");
        let Answer::Lines(lines, End::Done("stop")) = asked("tools", &tools) else { panic!("lines") };
        assert_eq!(
            lines[2]["tool_calls"][0]["function"],
            json!({ "index": 1, "name": "f", "arguments": {} })
        );
        let Answer::Lines(lines, _) = asked("thinker", &json!({})) else { panic!("lines") };
        assert_eq!(lines[0]["thinking"], "Two times ");
        assert_eq!(text(&asked("thinker", &json!({ "think": false }))), "Fourteen.");
    }
}
