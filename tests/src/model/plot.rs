//! What the scripted model answers to a conversation, on whichever surface it was asked. Pure: the name of the model is the
//! script.

use serde_json::{Map, Value, json};

/// A request, as far as the model looks at it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// Without what stands in front of the last `/`.
    pub model: String,
    /// Name and schema of each tool.
    pub tools: Vec<(String, Value)>,
    /// Name and words of each answer of a tool at the conversation's end.
    pub results: Vec<(String, String)>,
    /// What the user said last.
    pub user: String,
    /// The form that is asked for.
    pub format: Format,
}

/// The form of the answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Format {
    /// As it likes.
    #[default]
    Text,
    /// Any JSON.
    Json,
    /// JSON of this schema.
    Schema(Value),
}

/// What comes of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Play {
    /// A status and no answer.
    Refused(u16),
    /// The answer and how it ends.
    Says(Vec<Piece>, End),
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Of what it thinks.
    Thought(&'static str),
    /// Of what it says.
    Text(String),
    /// A whole call.
    Call {
        /// The tool's.
        name: String,
        /// An object.
        arguments: Value,
    },
}

/// How an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Stop,
    /// At the limit of tokens.
    Length,
    /// The connection breaks.
    Cut,
    /// The stream says that something went wrong.
    Error,
    /// Never: nothing comes any more until whoever asked has left.
    Stall,
}

/// Tokens that each request counts as.
pub const PROMPT_TOKENS: u64 = 26;
/// What `agent` writes into its second file.
pub const WRITTEN: &str = "written by the model";
/// The file that `agent` reads, in the directory of the task.
pub const READ_FILE: &str = "question.txt";
/// The file that it writes there.
pub const WRITTEN_FILE: &str = "answer.txt";
/// Names of all models but those of a status.
const NAMES: &[&str] =
    &["plain", "tools", "thinker", "thinking-tools", "short", "cut", "failing", "stalling", "agent"];
/// The statuses that there is a model `status-NNN` for.
pub const STATUSES: &[u16] = &[400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 503, 529];

/// Names of all models: what each does is in [`play`]. `status-NNN` and `retried-NNN` fail, `once-NNN` for the first time only.
#[must_use]
pub fn names() -> Vec<String> {
    let statuses =
        STATUSES.iter().flat_map(|status| ["status", "retried", "once"].map(|of| format!("{of}-{status}")));
    NAMES.iter().map(|&name| name.to_owned()).chain(statuses).collect()
}

/// What a model answers that was asked `earlier` times before.
#[must_use]
pub fn play(asked: &Asked, earlier: usize) -> Play {
    let says = |parts: &[&str], end| Play::Says(texts(parts), end);
    match asked.model.as_str() {
        "plain" => Play::Says(talk(asked), End::Stop),
        "tools" => Play::Says(calls(asked), End::Stop),
        "thinker" => Play::Says([thoughts(), texts(&["Four", "teen."])].concat(), End::Stop),
        "thinking-tools" => Play::Says([thoughts(), calls(asked)].concat(), End::Stop),
        "short" => says(&["Cut ", "off"], End::Length),
        "cut" => says(&["It ", "was "], End::Cut),
        "failing" => says(&["It ", "was "], End::Error),
        "stalling" => says(&["It ", "was "], End::Stall),
        "agent" => Play::Says(task(asked), End::Stop),
        name => {
            let Some((way, status)) = name.split_once('-') else { return Play::Refused(404) };
            match (way, status.parse()) {
                ("status" | "retried", Ok(status)) => Play::Refused(status),
                ("once", Ok(status)) if earlier == 0 => Play::Refused(status),
                ("once", Ok(_)) => Play::Says(talk(asked), End::Stop),
                _ => Play::Refused(404),
            }
        }
    }
}

fn texts(parts: &[&str]) -> Vec<Piece> {
    parts.iter().map(|&part| Piece::Text(part.to_owned())).collect()
}

fn thoughts() -> Vec<Piece> {
    ["Two times ", "seven…"].map(Piece::Thought).into()
}

/// Text, or JSON in the form that is asked for.
fn talk(asked: &Asked) -> Vec<Piece> {
    match &asked.format {
        Format::Text => texts(&["Hello ", "你好", "🌍", "!"]),
        Format::Json => texts(&["{\"any\"", ":true}"]),
        Format::Schema(schema) => {
            instance(schema, 0).to_string().chars().map(|c| Piece::Text(c.into())).collect()
        }
    }
}

/// Two calls at once, and afterwards what their answers were.
fn calls(asked: &Asked) -> Vec<Piece> {
    if !asked.results.is_empty() {
        let told = asked.results.iter().map(|(name, words)| Piece::Text(format!("{name}={words}; ")));
        return told.collect();
    }
    let mut pieces = texts(&["Looking. "]);
    let Some(last) = asked.tools.len().checked_sub(1) else { return talk(asked) };
    pieces.extend([0, 1].map(|index| {
        let (name, schema) = &asked.tools[index.min(last)];
        Piece::Call { name: name.clone(), arguments: instance(schema, index) }
    }));
    pieces
}

/// The task of an agent: reads one file and writes another in the directory that the user names behind `IOPTASK `, by whatever
/// tools it has, and then tells what it read.
fn task(asked: &Asked) -> Vec<Piece> {
    if !asked.results.is_empty() {
        let told = asked.results.iter().map(|(name, words)| Piece::Text(format!("[{name}: {words}]")));
        return thoughts().into_iter().chain(told).collect();
    }
    let Some(dir) = asked.user.split("IOPTASK ").nth(1).and_then(|rest| rest.split_whitespace().next())
    else {
        return texts(&["Hello!"]);
    };
    let has = |name: &str| asked.tools.iter().any(|(tool, _)| tool == name);
    let (read, written) = (format!("{dir}/{READ_FILE}"), format!("{dir}/{WRITTEN_FILE}"));
    let call = |name: &str, arguments| Piece::Call { name: name.to_owned(), arguments };
    let pair = if has("Read") {
        [
            call("Read", json!({ "file_path": read })),
            call("Write", json!({ "file_path": written, "content": WRITTEN })),
        ]
    } else {
        [
            call("exec_command", json!({ "cmd": format!("cat '{read}'") })),
            call("exec_command", json!({ "cmd": format!("printf %s '{WRITTEN}' > '{written}'") })),
        ]
    };
    thoughts().into_iter().chain(texts(&["I look ", "and write."])).chain(pair).collect()
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
            let members = schema["properties"].as_object().into_iter().flatten();
            members.map(|(name, of)| (name.clone(), instance(of, variant))).collect::<Map<_, _>>().into()
        }
    }
}
