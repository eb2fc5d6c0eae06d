//! An Ollama server that the tests play, from what is written of its API: `/api/chat` with its models, the lists, and what a real
//! one offers beside them, `/v1/chat/completions`.
//!
//! It is strict ([`check`]) and keeps what it was asked, what it refused for its form, and who waits at its gate.

pub mod check;
pub mod models;

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{bail, ensure};
use serde_json::{Value, json};

use crate::played::{Exchange, Played};
use models::{Answer, CONTEXT, End, MODELS, Model, PROMPT_TOKENS};

/// How long an exchange may wait at the gate.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between lines of an answer without an end.
const BETWEEN_LINES: Duration = Duration::from_millis(20);
/// A time of day, for fields that hold one.
const TIME: &str = "2026-11-29T12:00:00.123456789Z";

/// A running server.
#[derive(Debug)]
pub struct Ollama {
    played: Played,
    books: Arc<Books>,
}

/// What it remembers, and its gate.
#[derive(Debug, Default)]
struct Books {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    asked: Vec<Value>,
    refused: Vec<String>,
    probes: usize,
    left: usize,
    gated: bool,
    waiting: Vec<usize>,
    let_go: Vec<usize>,
    tickets: usize,
}

impl Ollama {
    /// Listens.
    ///
    /// # Errors
    /// There is no port.
    pub fn start() -> anyhow::Result<Self> {
        let books = Arc::<Books>::default();
        let of_part = Arc::clone(&books);
        let played = Played::start(move |exchange| of_part.answer(exchange))?;
        Ok(Self { played, books })
    }

    /// `http://host:port`.
    pub fn url(&self) -> String {
        self.played.url()
    }

    /// `http://host:port/v1`, of its OpenAI-compatible side.
    pub fn openai_url(&self) -> String {
        format!("{}/v1", self.url())
    }

    /// The bodies of `/api/chat` so far, in order; refused ones are among them.
    pub fn asked(&self) -> Vec<Value> {
        self.books.state().asked.clone()
    }

    /// What was wrong with requests that no client of this API may send.
    pub fn refused(&self) -> Vec<String> {
        self.books.state().refused.clone()
    }

    /// How often it was asked for a list or a model's description.
    pub fn probes(&self) -> usize {
        self.books.state().probes
    }

    /// Answers without an end that whoever asked has left.
    pub fn left(&self) -> usize {
        self.books.state().left
    }

    /// Every chat waits from now on before its first line, until it is let go.
    pub fn hold(&self) {
        self.books.state().gated = true;
    }

    /// Chats that wait.
    pub fn waiting(&self) -> usize {
        self.books.state().waiting.len()
    }

    /// Lets the one go that waits longest at place `index`.
    pub fn let_go(&self, index: usize) {
        let mut state = self.books.state();
        if index < state.waiting.len() {
            let ticket = state.waiting.remove(index);
            state.let_go.push(ticket);
        }
        drop(state);
        self.books.changed.notify_all();
    }

    /// Holds none any more.
    pub fn let_all_go(&self) {
        let mut state = self.books.state();
        state.gated = false;
        state.waiting.clear();
        drop(state);
        self.books.changed.notify_all();
    }
}

impl Books {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, exchange: &mut Exchange) -> anyhow::Result<()> {
        let (method, path) = (exchange.method.clone(), exchange.path.clone());
        match (method.as_str(), path.as_str()) {
            ("GET" | "HEAD", "/") => exchange.answer(200, "text/plain", b"Ollama is running"),
            ("GET", "/api/version") => exchange.answer_json(200, &json!({ "version": "0.99.0" })),
            ("GET", "/api/tags") => {
                self.state().probes += 1;
                let models: Vec<_> = MODELS.iter().map(listed).collect();
                exchange.answer_json(200, &json!({ "models": models }))
            }
            ("GET", "/api/ps") => {
                let mut loaded = listed(&MODELS[0]);
                loaded["expires_at"] = TIME.into();
                loaded["size_vram"] = 1.into();
                loaded["context_length"] = CONTEXT.into();
                exchange.answer_json(200, &json!({ "models": [loaded] }))
            }
            ("POST", "/api/show") => {
                self.state().probes += 1;
                show(exchange)
            }
            ("POST", "/api/chat") => self.chat(exchange),
            ("GET", "/v1/models") => {
                let data: Vec<_> =
                    MODELS.iter().map(|m| json!({ "id": m.name, "object": "model" })).collect();
                exchange.answer_json(200, &json!({ "object": "list", "data": data }))
            }
            ("POST", "/v1/chat/completions") => self.completion(exchange),
            (_, "/api/tags" | "/api/ps" | "/api/show" | "/api/chat" | "/api/version") => {
                exchange.answer(405, "text/plain", b"405 method not allowed")
            }
            _ => exchange.answer(404, "text/plain", b"404 page not found"),
        }
    }

    fn chat(&self, exchange: &mut Exchange) -> anyhow::Result<()> {
        let body = exchange.json().unwrap_or(Value::Null);
        let checked = check::chat(&body);
        {
            let mut state = self.state();
            state.asked.push(body.clone());
            state.refused.extend(checked.clone().err());
        }
        if let Err(error) = checked {
            return exchange.answer_json(400, &json!({ "error": error }));
        }
        let (lines, end) = match models::answer(&body) {
            Answer::Refused(status, words) => {
                return exchange.answer_json(status, &json!({ "error": words }));
            }
            Answer::Page(status, text) => return exchange.answer(status, "text/html", text.as_bytes()),
            Answer::Lines(lines, end) => (lines, end),
        };
        self.passes_gate()?;
        let head = json!({ "model": body["model"], "created_at": TIME });
        if body["stream"] == false {
            return exchange.answer_json(200, &whole(head, &lines, end));
        }
        exchange.begin(200, "application/x-ndjson")?;
        for message in &lines {
            send(exchange, with(&head, &json!({ "message": message, "done": false })))?;
        }
        match end {
            End::Done(reason) => send(exchange, with(&head, &last(reason, lines.len())))?,
            End::Error(words) => send(exchange, json!({ "error": words }))?,
            End::Nothing => {}
            End::Never => return self.goes_on(exchange, &head, &lines),
        }
        exchange.end()
    }

    /// Until it is left; as a real one, it looks for that.
    fn goes_on(&self, exchange: &mut Exchange, head: &Value, lines: &[Value]) -> anyhow::Result<()> {
        while !exchange.is_left(BETWEEN_LINES)? {
            send(exchange, with(head, &json!({ "message": lines.last(), "done": false })))?;
        }
        self.state().left += 1;
        bail!("left")
    }

    /// The OpenAI-compatible side: text and nothing else.
    fn completion(&self, exchange: &mut Exchange) -> anyhow::Result<()> {
        let body = exchange.json()?;
        self.passes_gate()?;
        let head = json!({ "id": "chatcmpl-1", "created": 1, "model": body["model"] });
        let usage = json!({ "prompt_tokens": PROMPT_TOKENS, "completion_tokens": 1, "total_tokens": PROMPT_TOKENS + 1 });
        if body["stream"] != true {
            let message = json!({ "role": "assistant", "content": "Hello" });
            let choices = json!([{ "index": 0, "message": message, "finish_reason": "stop" }]);
            let rest = json!({ "object": "chat.completion", "choices": choices, "usage": usage });
            return exchange.answer_json(200, &with(&head, &rest));
        }
        exchange.begin(200, "text/event-stream")?;
        for (delta, finish) in
            [(json!({ "role": "assistant", "content": "Hello" }), Value::Null), (json!({}), "stop".into())]
        {
            let choices = json!([{ "index": 0, "delta": delta, "finish_reason": finish }]);
            let chunk = with(&head, &json!({ "object": "chat.completion.chunk", "choices": choices }));
            exchange.part(format!("data: {chunk}\n\n").as_bytes())?;
        }
        exchange.part(b"data: [DONE]\n\n")?;
        exchange.end()
    }

    fn passes_gate(&self) -> anyhow::Result<()> {
        let mut state = self.state();
        if !state.gated {
            return Ok(());
        }
        let ticket = state.tickets;
        state.tickets += 1;
        state.waiting.push(ticket);
        self.changed.notify_all();
        let stays = |state: &mut State| state.gated && !state.let_go.contains(&ticket);
        let (mut state, waited) =
            self.changed.wait_timeout_while(state, PATIENCE, stays).unwrap_or_else(PoisonError::into_inner);
        state.let_go.retain(|gone| *gone != ticket);
        drop(state);
        ensure!(!waited.timed_out(), "held for ever");
        Ok(())
    }
}

fn send(exchange: &mut Exchange, line: Value) -> anyhow::Result<()> {
    exchange.part(format!("{line}\n").as_bytes())
}

fn with(head: &Value, rest: &Value) -> Value {
    let mut all = head.clone();
    if let (Some(all), Some(rest)) = (all.as_object_mut(), rest.as_object()) {
        all.extend(rest.clone());
    }
    all
}

/// What the last line has beside model and time. Times are nanoseconds.
fn last(reason: &str, eval_count: usize) -> Value {
    json!({
        "message": { "role": "assistant", "content": "" }, "done": true, "done_reason": reason,
        "total_duration": 5_191_566_416_u64, "load_duration": 2_154_458, "prompt_eval_count": PROMPT_TOKENS,
        "prompt_eval_duration": 383_809_000, "eval_count": eval_count, "eval_duration": 4_799_921_000_u64,
    })
}

/// The one object of an answer that is no stream.
fn whole(head: Value, lines: &[Value], end: End) -> Value {
    let End::Done(reason) = end else { return json!({ "error": "an error was encountered" }) };
    let mut all = with(&head, &last(reason, lines.len()));
    let text = |key: &str| lines.iter().filter_map(|line| line[key].as_str()).collect::<String>();
    let calls: Vec<_> =
        lines.iter().flat_map(|l| l["tool_calls"].as_array().cloned().unwrap_or_default()).collect();
    all["message"] = json!({ "role": "assistant", "content": text("content") });
    if !text("thinking").is_empty() {
        all["message"]["thinking"] = text("thinking").into();
    }
    if !calls.is_empty() {
        all["message"]["tool_calls"] = calls.into();
    }
    all
}

fn details() -> Value {
    json!({
        "parent_model": "", "format": "gguf", "family": "llama", "families": ["llama"],
        "parameter_size": "8.0B", "quantization_level": "Q4_0",
    })
}

fn listed(model: &Model) -> Value {
    let name = format!("{}:latest", model.name);
    json!({ "name": name, "model": name, "modified_at": TIME, "size": 1, "digest": "0123", "details": details() })
}

fn show(exchange: &mut Exchange) -> anyhow::Result<()> {
    let body = exchange.json().unwrap_or(Value::Null);
    let Some(name) = body["model"].as_str() else {
        return exchange.answer_json(400, &json!({ "error": "model is required" }));
    };
    let Some(model) = models::find(name) else {
        return exchange.answer_json(404, &json!({ "error": format!("model '{name}' not found") }));
    };
    exchange.answer_json(
        200,
        &json!({
            "license": "", "modelfile": "", "parameters": "", "template": "{{ .Prompt }}", "details": details(),
            "model_info": { "general.architecture": "llama", "llama.context_length": CONTEXT },
            "capabilities": model.capabilities, "modified_at": TIME,
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Answer as Got, Raw, post};

    fn asked(server: &Ollama, path: &str, body: &Value) -> anyhow::Result<Got> {
        let mut raw = Raw::connect(server.url().trim_start_matches("http://"))?;
        raw.send(post(path, "", body.to_string().as_bytes()))?;
        raw.answer()
    }

    #[test]
    fn it_streams_lines_answers_whole_notes_what_is_wrong_and_holds_who_is_to_wait() -> anyhow::Result<()> {
        let server = Ollama::start()?;
        let mut body = json!({ "model": "plain", "messages": [{ "role": "user", "content": "hi" }] });
        let got = asked(&server, "/api/chat", &body)?;
        let lines: Vec<Value> = got.text().lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        assert!(got.whole && got.header("content-type") == Some("application/x-ndjson"));
        assert_eq!(lines.len(), 5);
        assert_eq!((&lines[0]["done"], &lines[0]["message"]["content"]), (&json!(false), &json!("Hello ")));
        assert_eq!((&lines[4]["done"], &lines[4]["done_reason"]), (&json!(true), &json!("stop")));

        body["stream"] = false.into();
        server.hold();
        let waits = std::thread::scope(|scope| -> anyhow::Result<Got> {
            let client = scope.spawn(|| asked(&server, "/api/chat", &body));
            while server.waiting() == 0 {
                std::thread::yield_now();
            }
            server.let_go(0);
            client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?
        })?;
        assert_eq!(waits.json()?["message"]["content"], "Hello 你好🌍!");

        assert!(server.refused().is_empty());
        body["tool_choice"] = "auto".into();
        assert_eq!(asked(&server, "/api/chat", &body)?.status, 400);
        assert_eq!((server.refused().len(), server.asked().len()), (1, 3));
        assert_eq!(asked(&server, "/api/show", &json!({ "model": "none" }))?.status, 404);
        Ok(())
    }
}
