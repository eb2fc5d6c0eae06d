//! The ways that a request may go: surface of the client, what its provider speaks, and whether it is a stream.

use std::fmt;

use anyhow::{Context, bail, ensure};
use iop_tests::{
    ProviderYaml,
    http::{self, Answer},
    model::{
        Surface, chat, messages,
        plot::{End, Piece},
        responses,
    },
    stream_rules::{self, Ended, Stream},
};
use serde_json::{Value, json};

/// What every client says; a provider that is asked something else is probed.
pub const PROMPT: &str = "drill-prompt-9b1f";

/// One of the ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Chat completions at a provider that has them, streamed.
    Chat,
    /// The same, in one piece.
    Whole,
    /// Responses at a provider that has them, streamed.
    Responses,
    /// Messages at a provider that has them, streamed.
    Messages,
    /// Chat completions at an Ollama server, streamed.
    Native,
    /// Messages at a provider that has chat completions only, streamed.
    Translated,
}

/// All of them.
pub const WAYS: [Way; 6] =
    [Way::Chat, Way::Whole, Way::Responses, Way::Messages, Way::Native, Way::Translated];
/// Those whose client gets a stream.
pub const STREAMS: [Way; 5] = [Way::Chat, Way::Responses, Way::Messages, Way::Native, Way::Translated];

/// What a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// One of those that clients speak, too.
    Of(Surface),
    /// `/api/chat`.
    Ollama,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_ascii_lowercase())
    }
}

impl Way {
    /// What the provider speaks.
    pub const fn api(self) -> Api {
        match self {
            Self::Chat | Self::Whole | Self::Translated => Api::Of(Surface::Chat),
            Self::Responses => Api::Of(Surface::Responses),
            Self::Messages => Api::Of(Surface::Messages),
            Self::Native => Api::Ollama,
        }
    }

    /// What the client speaks.
    pub const fn surface(self) -> Surface {
        match self {
            Self::Chat | Self::Whole | Self::Native => Surface::Chat,
            Self::Responses => Surface::Responses,
            Self::Messages | Self::Translated => Surface::Messages,
        }
    }

    /// The client's path.
    pub const fn path(self) -> &'static str {
        match self.surface() {
            Surface::Chat => "/v1/chat/completions",
            Surface::Responses => "/v1/responses",
            Surface::Messages => "/v1/messages",
        }
    }

    /// Whether the client gets a stream.
    pub fn is_stream(self) -> bool {
        self != Self::Whole
    }

    /// Whether the Edge writes the answer itself, of what the provider says.
    pub fn is_written(self) -> bool {
        matches!(self, Self::Native | Self::Translated)
    }

    /// A provider of this way at `url` with one slot.
    pub fn provider(self, id: &str, node: &str, url: &str, model: &str) -> ProviderYaml {
        let of = |profile: &str, base: String| ProviderYaml {
            extra: format!("profile: {profile}"),
            ..ProviderYaml::new(id, node, &base, model)
        };
        let provider = match self.api() {
            Api::Of(Surface::Chat) => of("openai_compat", format!("{url}/v1")),
            Api::Of(Surface::Responses) => of("vllm", format!("{url}/v1")),
            Api::Of(Surface::Messages) => of("anthropic", url.to_owned()),
            Api::Ollama => ProviderYaml::ollama(id, node, url, &[model]),
        };
        ProviderYaml { capacity: 1, ..provider }
    }

    /// A request for `model`, with further members.
    pub fn body(self, model: &str, more: &Value) -> Value {
        let said = json!([{ "role": "user", "content": PROMPT }]);
        let mut body = match self.surface() {
            Surface::Chat => json!({ "model": model, "messages": said }),
            Surface::Responses => json!({ "model": model, "input": PROMPT }),
            Surface::Messages => json!({ "model": model, "max_tokens": 500, "messages": said }),
        };
        body["stream"] = self.is_stream().into();
        for (key, value) in more.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        body
    }

    /// The bytes of such a request.
    pub fn request(self, token: &str, body: &Value) -> Vec<u8> {
        http::post(self.path(), token, body.to_string().as_bytes())
    }

    /// Judges a stream, and gives its events.
    pub fn judged(self, answer: &Answer, ended: Ended) -> anyhow::Result<Stream> {
        stream_rules::check(self.surface(), &answer.body, ended)
            .map_err(|error| anyhow::anyhow!("{error}\n{}{}", answer.head, answer.text()))
    }

    /// The text of an answer that came as it should, whatever else is in it; every rule of its surface holds.
    pub fn text(self, answer: &Answer) -> anyhow::Result<String> {
        ensure!(answer.status == 200 && answer.whole, "{}{}", answer.head, answer.text());
        if self == Self::Whole {
            let body = answer.json()?;
            let text = body["choices"][0]["message"]["content"].as_str();
            return Ok(text.with_context(|| answer.text())?.to_owned());
        }
        Ok(self.said(&self.judged(answer, Ended::Well)?))
    }

    /// The text of events.
    pub fn said(self, stream: &Stream) -> String {
        let of_event = |event: &stream_rules::Event| {
            let text = match self.surface() {
                Surface::Chat => &event.data["choices"][0]["delta"]["content"],
                Surface::Responses if event.name == "response.output_text.delta" => &event.data["delta"],
                Surface::Messages => &event.data["delta"]["text"],
                Surface::Responses => &Value::Null,
            };
            text.as_str().unwrap_or_default().to_owned()
        };
        stream.events.iter().map(of_event).collect()
    }

    /// The code of an error that came instead of an answer, in the words of the surface.
    pub fn refusal(self, answer: &Answer) -> anyhow::Result<String> {
        ensure!(answer.status >= 400 && answer.whole, "no refusal: {}{}", answer.head, answer.text());
        let body = answer.json()?;
        let code = match self.surface() {
            Surface::Messages => &body["error"]["type"],
            Surface::Chat | Surface::Responses => &body["error"]["code"],
        };
        Ok(code.as_str().with_context(|| answer.text())?.to_owned())
    }

    /// An answer that began and failed: it ends as its surface says such ends do, and does not look like one that is whole (API-1).
    /// Gives its text.
    pub fn failed(self, answer: &Answer) -> anyhow::Result<String> {
        ensure!(answer.status == 200, "{}{}", answer.head, answer.text());
        if self == Self::Whole {
            ensure!(
                !answer.whole && answer.json().is_err(),
                "it looks whole: {}{}",
                answer.head,
                answer.text()
            );
            return Ok(answer.text());
        }
        let stream = self.judged(answer, Ended::Failed)?;
        // The surface's last word tells it; for chat nothing but a broken end does to those that do not look.
        if self.surface() == Surface::Chat {
            ensure!(!answer.whole, "it looks whole: {}{}", answer.head, answer.text());
        }
        Ok(self.said(&stream))
    }
}

impl Api {
    /// What a stream consists of, and how many of its parts come before its content. `who` says it.
    pub fn stream(self, who: &str, body: &Value, pieces: &[Piece]) -> (Vec<Vec<u8>>, usize) {
        let (stream, preamble) = match self {
            Self::Of(Surface::Chat) => (chat::stream(body, pieces, End::Stop), 1),
            Self::Of(Surface::Responses) => {
                let mut stream = responses::stream(body, pieces, End::Stop);
                stream.events.push("data: [DONE]\n\n".to_owned());
                (stream, 4)
            }
            Self::Of(Surface::Messages) => (messages::stream(body, pieces, End::Stop), 3),
            Self::Ollama => return ollama(body, pieces),
        };
        (stream.events.into_iter().map(|event| signed(&event, who).into_bytes()).collect(), preamble)
    }

    /// The answer in one piece.
    pub fn whole(self, who: &str, body: &Value, pieces: &[Piece]) -> String {
        let answer = match self {
            Self::Of(Surface::Chat) => chat::whole(body, pieces, End::Stop),
            Self::Of(Surface::Responses) => responses::whole(body, pieces, End::Stop),
            Self::Of(Surface::Messages) => messages::whole(body, pieces, End::Stop),
            Self::Ollama => {
                let text: String = pieces.iter().map(text_of).collect();
                line(body, &text, true)
            }
        };
        signed(&answer.to_string(), who)
    }

    /// What says that something went wrong, where content should begin.
    pub fn error(self, code: &str) -> Vec<u8> {
        let error =
            json!({ "message": "the script says so", "type": "server_error", "param": null, "code": code });
        let text = match self {
            Self::Of(Surface::Chat) => format!("data: {}\n\n", json!({ "error": error })),
            Self::Of(Surface::Responses) => {
                let event = json!({ "type": "error", "code": code, "message": "the script says so", "param": null, "sequence_number": 0 });
                format!("event: error\ndata: {event}\n\n")
            }
            Self::Of(Surface::Messages) => {
                let event =
                    json!({ "type": "error", "error": { "type": code, "message": "the script says so" } });
                format!("event: error\ndata: {event}\n\n")
            }
            Self::Ollama => format!("{}\n", json!({ "error": code })),
        };
        text.into_bytes()
    }

    /// An event that is none: its JSON stops in the middle.
    pub fn malformed(self) -> &'static [u8] {
        match self {
            Self::Of(Surface::Chat) => b"data: {\"choices\":[{\"delta\n\n",
            Self::Of(Surface::Responses) => b"event: response.created\ndata: {\"type\":\"response.cre\n\n",
            Self::Of(Surface::Messages) => b"event: message_start\ndata: {\"type\":\"mess\n\n",
            Self::Ollama => b"{\"model\":\"x\",\"mess\n",
        }
    }

    /// Of a stream.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Of(_) => "text/event-stream",
            Self::Ollama => "application/x-ndjson",
        }
    }

    /// What such a server lists.
    pub fn lists(self, path: &str, model: &str) -> anyhow::Result<Value> {
        Ok(match path {
            "/v1/models" => json!({ "object": "list", "data": [{ "id": model, "object": "model" }] }),
            "/api/tags" => {
                let name = format!("{model}:latest");
                json!({ "models": [{ "name": name, "model": name }] })
            }
            "/api/show" => json!({ "capabilities": ["completion"], "model_info": {} }),
            _ => bail!("no list at {path}"),
        })
    }
}

/// With ids that tell who gave it: what two of them say does not pass for one answer.
fn signed(text: &str, who: &str) -> String {
    ["chatcmpl-1", "resp_1", "msg_1"].iter().fold(text.to_owned(), |text, id| {
        let stem = id.trim_end_matches('1');
        text.replace(&format!("\"{id}\""), &format!("\"{stem}{who}\""))
    })
}

fn text_of(piece: &Piece) -> &str {
    match piece {
        Piece::Text(text) => text,
        Piece::Thought(_) | Piece::Call { .. } => "",
    }
}

fn line(body: &Value, text: &str, done: bool) -> Value {
    let mut line = json!({
        "model": body["model"], "created_at": "2026-12-01T12:00:00Z", "done": done,
        "message": { "role": "assistant", "content": text },
    });
    if done {
        line["done_reason"] = "stop".into();
        line["prompt_eval_count"] = 3.into();
        line["eval_count"] = 2.into();
    }
    line
}

/// Its first line has no content.
fn ollama(body: &Value, pieces: &[Piece]) -> (Vec<Vec<u8>>, usize) {
    let texts = [""].into_iter().chain(pieces.iter().map(text_of));
    let mut lines: Vec<_> = texts.map(|text| format!("{}\n", line(body, text, false)).into_bytes()).collect();
    lines.push(format!("{}\n", line(body, "", true)).into_bytes());
    (lines, 1)
}
