//! A provider that does what its script says with one request after the other.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::bail;
use iop_tests::{
    model::plot::Piece,
    played::{Exchange, Played},
};
use serde_json::{Value, json};

use super::way::{Api, PROMPT};

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(60);
/// Text of an answer that is good; who gives it stands behind.
pub const SERVED: &str = "drill-served-by ";
/// Text that comes before something goes wrong.
pub const PARTIAL: &str = "drill-partial ";
/// Between the parts of an answer that never ends.
const PACE: Duration = Duration::from_millis(2);

/// Where an answer stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The request was read, and that is all.
    Silent,
    /// Behind the head.
    Headers,
    /// Behind what comes before content.
    Preamble,
    /// Behind some content.
    Content,
}

/// What is done with a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Answers well, with its name.
    Serve,
    /// Answers well, with these pieces.
    Says(Vec<Piece>),
    /// Nothing comes any more, until whoever asked has left.
    Stall(Point),
    /// The connection breaks.
    Cut(Point),
    /// Says the first of these once, and the others again and again until whoever asked has left.
    Loops(Vec<Piece>),
    /// The stream says that something went wrong, by this code: behind its head, or behind what comes before content.
    Error(Point, &'static str),
    /// 200 and nothing.
    Empty,
    /// 200 and something that is no JSON.
    Malformed,
    /// This status, with a body in OpenAI's form with this code, and fields.
    Status(u16, &'static str),
    /// As the next act, when it is let go.
    Held,
}

/// What it answers when it is asked how it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Well (STL-11: `available`).
    Well,
    /// A 503: `unavailable`.
    Ill,
    /// A 401: `unknown`.
    Unsaid,
}

/// The provider.
pub struct Backend {
    pub name: String,
    pub played: Played,
    pub books: Arc<Books>,
}

/// What it and the test tell each other.
pub struct Books {
    name: String,
    model: String,
    api: Api,
    script: Mutex<VecDeque<Act>>,
    health: Mutex<Health>,
    asked: Mutex<Vec<(String, Value)>>,
    held: Mutex<bool>,
    let_go: Condvar,
    /// Requests of which whoever asked left before their end.
    pub left: AtomicUsize,
    /// Requests that were answered to their end.
    pub served: AtomicUsize,
    /// Parts of endless answers that were sent.
    pub parts: AtomicUsize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backend {
    /// Does one act for each request, and the last one for all that follow.
    pub fn start(name: &str, model: &str, api: Api, script: &[Act]) -> anyhow::Result<Self> {
        let books = Arc::new(Books {
            name: name.to_owned(),
            model: model.to_owned(),
            api,
            script: Mutex::new(script.iter().cloned().collect()),
            health: Mutex::new(Health::Well),
            asked: Mutex::default(),
            held: Mutex::new(true),
            let_go: Condvar::new(),
            left: AtomicUsize::new(0),
            served: AtomicUsize::new(0),
            parts: AtomicUsize::new(0),
        });
        let of_part = Arc::clone(&books);
        let played = Played::start(move |exchange| of_part.answer(exchange))?;
        Ok(Self { name: name.to_owned(), played, books })
    }

    /// Bodies of the requests of clients that came, in order.
    pub fn asked(&self) -> Vec<Value> {
        locked(&self.books.asked).iter().map(|(_, body)| body.clone()).collect()
    }

    /// How it says that it is, from now on.
    pub fn is(&self, health: Health) {
        *locked(&self.books.health) = health;
    }

    /// Lets those go that are held, and holds none any more.
    pub fn lets_go(&self) {
        *locked(&self.books.held) = false;
        self.books.let_go.notify_all();
    }
}

impl Books {
    fn answer(&self, exchange: &mut Exchange) -> anyhow::Result<()> {
        match (exchange.method.as_str(), exchange.path.as_str()) {
            (_, path @ ("/v1/models" | "/api/tags" | "/api/show")) => {
                let health = *locked(&self.health);
                match health {
                    Health::Well => exchange.answer_json(200, &self.api.lists(path, &self.model)?),
                    Health::Ill => exchange.answer_json(503, &failure("overloaded")),
                    Health::Unsaid => exchange.answer_json(401, &failure("invalid_api_key")),
                }
            }
            ("POST", "/v1/chat/completions" | "/v1/responses" | "/v1/messages" | "/api/chat") => {
                let body = exchange.json()?;
                if !body.to_string().contains(PROMPT) {
                    bail!("not the drill's: {body}");
                }
                locked(&self.asked).push((exchange.path.clone(), body.clone()));
                self.plays(exchange, &body)
            }
            _ => exchange.answer(404, "text/plain", b"404 page not found"),
        }
    }

    fn next(&self) -> Act {
        let mut script = locked(&self.script);
        if script.len() > 1 { script.pop_front() } else { script.front().cloned() }.unwrap_or(Act::Serve)
    }

    fn plays(&self, exchange: &mut Exchange, body: &Value) -> anyhow::Result<()> {
        let mut act = self.next();
        if act == Act::Held {
            let held = locked(&self.held);
            drop(self.let_go.wait_timeout_while(held, FOR_EVER, |held| *held));
            act = self.next();
        }
        let is_stream = body["stream"].as_bool().unwrap_or(self.api == Api::Ollama);
        match act {
            Act::Serve | Act::Held => self.serves(
                exchange,
                body,
                is_stream,
                &[SERVED, &self.name].map(|t| Piece::Text(t.to_owned())),
            ),
            Act::Says(pieces) => self.serves(exchange, body, is_stream, &pieces),
            Act::Stall(point) => {
                self.until(exchange, body, is_stream, point)?;
                self.is_left(exchange)
            }
            Act::Cut(point) => {
                self.until(exchange, body, is_stream, point)?;
                bail!("cut, as the script says")
            }
            Act::Loops(pieces) => self.loops(exchange, body, &pieces),
            Act::Error(point, code) => {
                self.until(exchange, body, is_stream, point)?;
                exchange.part(&self.api.error(code))?;
                exchange.end()
            }
            Act::Empty if is_stream => {
                exchange.begin(200, self.api.content_type())?;
                exchange.end()
            }
            Act::Empty => exchange.answer(200, "application/json", b""),
            Act::Malformed if is_stream => {
                exchange.begin(200, self.api.content_type())?;
                exchange.part(self.api.malformed())?;
                exchange.end()
            }
            Act::Malformed => exchange.answer(200, "application/json", b"<html>Bad Gateway</html>"),
            Act::Status(status, code) => exchange.answer_json(status, &failure(code)),
        }
    }

    fn serves(
        &self,
        exchange: &mut Exchange,
        body: &Value,
        is_stream: bool,
        pieces: &[Piece],
    ) -> anyhow::Result<()> {
        if is_stream {
            exchange.begin(200, self.api.content_type())?;
            for part in self.api.stream(&self.name, body, pieces).0 {
                exchange.part(&part)?;
            }
            exchange.end()?;
        } else {
            exchange.answer(200, "application/json", self.api.whole(&self.name, body, pieces).as_bytes())?;
        }
        self.served.fetch_add(1, SeqCst);
        Ok(())
    }

    /// Answers up to there.
    fn until(
        &self,
        exchange: &mut Exchange,
        body: &Value,
        is_stream: bool,
        point: Point,
    ) -> anyhow::Result<()> {
        if point == Point::Silent {
            return Ok(());
        }
        let pieces = [PARTIAL, PARTIAL, "never sent"].map(|text| Piece::Text(text.to_owned()));
        if !is_stream {
            exchange.begin(200, "application/json")?;
            let whole = self.api.whole(&self.name, body, &pieces);
            let half = &whole[..whole.len() / 2];
            return if point == Point::Content { exchange.part(half.as_bytes()) } else { Ok(()) };
        }
        exchange.begin(200, self.api.content_type())?;
        let (parts, preamble) = self.api.stream(&self.name, body, &pieces);
        let count = match point {
            Point::Silent | Point::Headers => 0,
            Point::Preamble => preamble,
            Point::Content => preamble + 2,
        };
        parts.iter().take(count).try_for_each(|part| exchange.part(part))
    }

    fn is_left(&self, exchange: &mut Exchange) -> anyhow::Result<()> {
        if exchange.is_left(FOR_EVER)? {
            self.left.fetch_add(1, SeqCst);
        }
        bail!("left, as the script says")
    }

    /// What comes stands between preamble and end.
    fn loops(&self, exchange: &mut Exchange, body: &Value, pieces: &[Piece]) -> anyhow::Result<()> {
        exchange.begin(200, self.api.content_type())?;
        let (parts, preamble) = self.api.stream(&self.name, body, pieces);
        parts.iter().take(preamble).try_for_each(|part| exchange.part(part))?;
        // Bounded: a client that is never told must not be fed for ever.
        exchange.part(&parts[preamble])?;
        let mut number = preamble;
        for round in 0..5000 {
            let index = preamble + 1 + round % (pieces.len() - 1);
            number += 1;
            let part = renumbered(&parts[index], index, number);
            if exchange.is_left(PACE)? {
                self.left.fetch_add(1, SeqCst);
                bail!("left")
            }
            exchange.part(&part)?;
            self.parts.fetch_add(1, SeqCst);
        }
        bail!("nobody stopped it")
    }
}

/// An event that is said another time, where events have numbers.
fn renumbered(part: &[u8], index: usize, number: usize) -> Vec<u8> {
    let text = String::from_utf8_lossy(part);
    let word = |number: usize| format!("\"sequence_number\":{number},");
    text.replace(&word(index), &word(number)).into_bytes()
}

fn failure(code: &str) -> Value {
    json!({ "error": { "message": "the script says so", "type": "server_error", "param": null, "code": code } })
}
