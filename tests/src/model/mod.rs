//! A scripted model behind one server: what it says is in [`plot`], how it is asked and answers in the surfaces' own files,
//! each written from what is known of its API and not from the product.
//!
//! It keeps what it was asked and what it refused for its form.

pub mod chat;
pub mod messages;
pub mod plot;
pub mod responses;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::bail;
use serde_json::{Value, json};

use crate::played::{Exchange, Played};
use plot::{Asked, End, Piece, Play};

/// How long an answer that stalls waits for whoever asked to leave.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages`.
    Messages,
}

/// A running server.
#[derive(Debug)]
pub struct ScriptedModel {
    played: Played,
    books: Arc<Mutex<Books>>,
}

/// A request that it was sent.
#[derive(Clone, Debug)]
pub struct Request {
    /// Upper case.
    pub method: String,
    /// Without a query.
    pub path: String,
    /// Request line and fields.
    pub head: String,
    /// `null` if it is no JSON.
    pub body: Value,
}

#[derive(Debug, Default)]
struct Books {
    requests: Vec<Request>,
    refused: Vec<String>,
    left: usize,
}

impl ScriptedModel {
    /// Listens; what is not among `surfaces` is an unknown path.
    ///
    /// # Errors
    /// There is no port.
    pub fn start(surfaces: &'static [Surface]) -> anyhow::Result<Self> {
        let books = Arc::<Mutex<Books>>::default();
        let of_part = Arc::clone(&books);
        let played = Played::start(move |exchange| answer(surfaces, &of_part, exchange))?;
        Ok(Self { played, books })
    }

    /// `http://host:port`.
    pub fn url(&self) -> String {
        self.played.url()
    }

    /// What it was sent so far, in order.
    pub fn requests(&self) -> Vec<Request> {
        locked(&self.books).requests.clone()
    }

    /// Requests to models of this name, whatever stands in front of it.
    pub fn asked(&self, model: &str) -> Vec<Request> {
        self.requests().into_iter().filter(|request| name(&request.body) == model).collect()
    }

    /// What was wrong with requests that no server of this kind takes.
    pub fn refused(&self) -> Vec<String> {
        locked(&self.books).refused.clone()
    }

    /// Answers without an end that whoever asked has left.
    pub fn left(&self) -> usize {
        locked(&self.books).left
    }
}

fn locked(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The model that a request asks for, without what stands in front of its name.
fn name(body: &Value) -> &str {
    body["model"].as_str().and_then(|model| model.rsplit('/').next()).unwrap_or_default()
}

fn answer(surfaces: &[Surface], books: &Mutex<Books>, exchange: &mut Exchange) -> anyhow::Result<()> {
    let body = exchange.json().unwrap_or(Value::Null);
    let earlier = {
        let mut books = locked(books);
        let earlier = books.requests.iter().filter(|earlier| name(&earlier.body) == name(&body)).count();
        books.requests.push(Request {
            method: exchange.method.clone(),
            path: exchange.path.clone(),
            head: exchange.head.clone(),
            body: body.clone(),
        });
        earlier
    };
    let surface = match (exchange.method.as_str(), exchange.path.as_str()) {
        ("GET", "/v1/models") => {
            let data: Vec<_> =
                plot::names().iter().map(|id| json!({ "id": id, "object": "model" })).collect();
            return exchange.answer_json(200, &json!({ "object": "list", "data": data }));
        }
        ("POST", "/v1/messages/count_tokens") if surfaces.contains(&Surface::Messages) => {
            return exchange.answer_json(200, &json!({ "input_tokens": plot::PROMPT_TOKENS }));
        }
        ("POST", "/v1/chat/completions") => Surface::Chat,
        ("POST", "/v1/responses") => Surface::Responses,
        ("POST", "/v1/messages") => Surface::Messages,
        _ => return exchange.answer_json(404, &failure(404)),
    };
    if !surfaces.contains(&surface) {
        return exchange.answer_json(404, &failure(404));
    }
    let read = match surface {
        Surface::Chat => chat::read(&body),
        Surface::Responses => responses::read(&body),
        Surface::Messages => messages::read(&body),
    };
    let mut asked: Asked = match read {
        Ok(asked) => asked,
        Err(words) => {
            locked(books).refused.push(words);
            return exchange.answer_json(400, &failure_on(surface, 400));
        }
    };
    asked.model = name(&body).to_owned();
    let (pieces, end) = match plot::play(&asked, earlier) {
        Play::Refused(status) => return exchange.answer_json(status, &failure_on(surface, status)),
        Play::Says(pieces, end) => (pieces, end),
    };
    if body["stream"] == true {
        streamed(surface, books, exchange, &body, &pieces, end)
    } else {
        whole(surface, books, exchange, &body, &pieces, end)
    }
}

fn whole(
    surface: Surface,
    books: &Mutex<Books>,
    exchange: &mut Exchange,
    body: &Value,
    pieces: &[Piece],
    end: End,
) -> anyhow::Result<()> {
    match end {
        End::Error => return exchange.answer_json(500, &failure_on(surface, 500)),
        End::Cut => {
            // Before its first byte it would be what a kept connection does that had been idle for too long.
            exchange.begin(200, "application/json")?;
            exchange.part(b"{\"id\"")?;
            bail!("cut, as the script says")
        }
        End::Stall => return stalls(books, exchange),
        End::Stop | End::Length => {}
    }
    let answer = match surface {
        Surface::Chat => chat::whole(body, pieces, end),
        Surface::Responses => responses::whole(body, pieces, end),
        Surface::Messages => messages::whole(body, pieces, end),
    };
    exchange.answer_json(200, &answer)
}

fn streamed(
    surface: Surface,
    books: &Mutex<Books>,
    exchange: &mut Exchange,
    body: &Value,
    pieces: &[Piece],
    end: End,
) -> anyhow::Result<()> {
    let stream = match surface {
        Surface::Chat => chat::stream(body, pieces, end),
        Surface::Responses => responses::stream(body, pieces, end),
        Surface::Messages => messages::stream(body, pieces, end),
    };
    exchange.begin(200, "text/event-stream")?;
    for event in &stream.events {
        exchange.part(event.as_bytes())?;
    }
    match end {
        End::Cut => bail!("cut, as the script says"),
        End::Stall => stalls(books, exchange),
        End::Stop | End::Length | End::Error => exchange.end(),
    }
}

fn stalls(books: &Mutex<Books>, exchange: &mut Exchange) -> anyhow::Result<()> {
    if exchange.is_left(PATIENCE)? {
        locked(books).left += 1;
    }
    bail!("it said nothing more, as the script says")
}

/// Events of a stream, each in one write.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// With what ends them.
    pub events: Vec<String>,
}

impl Stream {
    fn raw(&mut self, text: &str) {
        self.events.push(text.to_owned());
    }

    fn data(&mut self, data: &Value) {
        self.raw(&format!("data: {data}\n\n"));
    }

    fn event(&mut self, name: &str, data: &Value) {
        self.raw(&format!("event: {name}\ndata: {data}\n\n"));
    }
}

/// Text in two pieces, as tokens come.
fn halves(text: &str) -> [&str; 2] {
    let mut middle = text.len() / 2;
    while !text.is_char_boundary(middle) {
        middle += 1;
    }
    let (first, second) = text.split_at(middle);
    [first, second]
}

fn failure_on(surface: Surface, status: u16) -> Value {
    match surface {
        Surface::Messages => anthropic_failure(status),
        Surface::Chat | Surface::Responses => failure(status),
    }
}

/// An error of OpenAI's form, its code a number as engines have it.
fn failure(status: u16) -> Value {
    let kind = match status {
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    json!({ "error": { "message": format!("the script says {status}"), "type": kind, "param": null, "code": status } })
}

/// An error of Anthropic's form.
fn anthropic_failure(status: u16) -> Value {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": format!("the script says {status}") } })
}
