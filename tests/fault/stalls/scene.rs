//! A provider that stops in the middle of an answer, and a health endpoint of its own that says what it is told to say.

use std::{
    fmt,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use iop_tests::{
    http::PATIENCE,
    played::{Exchange, Played},
};
use serde_json::{Value, json};

/// What the text of a request holds that is to be stalled; a health probe is none of these.
pub const DRILL: &str = "drill";
/// Events that come before a stall in the middle.
pub const EVENTS: usize = 5;
/// Between comments.
const COMMENT_EVERY: Duration = Duration::from_millis(300);
/// How long a stalled exchange stays if nobody ends it.
const FOR_EVER: Duration = Duration::from_secs(90);

/// Where the answer stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    BeforeHeaders,
    AfterHeaders,
    AfterEvents,
    /// Everything has come, and the body does not end.
    AfterLastByte,
    /// As in the middle, and then only comments come.
    Comments,
}

/// What a question about the provider's health comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The list is right, and a token is generated.
    Healthy,
    /// Nobody takes the connection.
    Dead,
    /// The list is right, and nothing is generated.
    Lying,
    /// A connection is taken, and nothing is answered.
    Hanging,
    /// The list is right, the model is not in it.
    Absent,
}

/// When the provider is done with a request that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// As soon as it is told, with an event that comes too late.
    AtOnce,
    /// When the test says so.
    Late,
}

/// The API it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Tunnel,
    Run,
}

/// One of everything.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub kind: Kind,
    pub stop: Stop,
    pub health: Health,
    pub leaves: Leaves,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, stop, health, leaves } = self;
        let words = format!("{kind:?}-{stop:?}-{health:?}-{leaves:?}");
        f.write_str(&words.to_ascii_lowercase())
    }
}

/// The provider of a case, whose name is the case's.
pub struct Scene {
    pub case: Case,
    pub played: Played,
    pub stage: Arc<Stage>,
}

/// What test and provider tell each other.
pub struct Stage {
    case: Case,
    name: String,
    health: Mutex<Health>,
    may_leave: Mutex<bool>,
    changed: Condvar,
    /// Requests that were to be stalled and came.
    pub arrived: AtomicUsize,
    /// Those of them that are over.
    pub left: AtomicUsize,
    /// Requests that were served.
    pub served: AtomicUsize,
    /// Whether it is well again: it serves instead of stalling.
    pub well: Mutex<bool>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scene {
    pub fn start(case: Case) -> anyhow::Result<Self> {
        let stage = Arc::new(Stage {
            case,
            name: case.to_string(),
            health: Mutex::new(case.health),
            may_leave: Mutex::new(case.leaves == Leaves::AtOnce),
            changed: Condvar::new(),
            arrived: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
            served: AtomicUsize::new(0),
            well: Mutex::new(false),
        });
        let of_part = Arc::clone(&stage);
        let played = Played::start(move |exchange| of_part.answer(exchange))?;
        Ok(Self { case, played, stage })
    }

    pub fn name(&self) -> &str {
        &self.stage.name
    }

    /// It is as it should be from now on.
    pub fn recovers(&self) -> anyhow::Result<()> {
        *locked(&self.stage.health) = Health::Healthy;
        *locked(&self.stage.well) = true;
        if self.case.health == Health::Dead { self.played.open_door() } else { Ok(()) }
    }

    /// Lets a request end that was dropped.
    pub fn lets_leave(&self) {
        *locked(&self.stage.may_leave) = true;
        self.stage.changed.notify_all();
    }
}

impl Stage {
    fn answer(&self, exchange: &mut Exchange) -> anyhow::Result<()> {
        let health = *locked(&self.health);
        match (exchange.method.as_str(), exchange.path.as_str()) {
            (_, "/v1/models" | "/api/tags" | "/api/show") => {
                if health == Health::Hanging {
                    exchange.is_left(FOR_EVER)?;
                    anyhow::bail!("nothing was answered");
                }
                self.lists(exchange, health != Health::Absent)
            }
            ("POST", "/v1/chat/completions" | "/api/chat") => {
                let is_probe = !String::from_utf8_lossy(&exchange.body).contains(DRILL);
                if is_probe && matches!(health, Health::Lying | Health::Hanging) {
                    exchange.is_left(FOR_EVER)?;
                    anyhow::bail!("nothing was generated");
                }
                if is_probe || *locked(&self.well) {
                    self.serves(exchange, is_probe)
                } else {
                    self.stalls(exchange)
                }
            }
            _ => exchange.answer(404, "text/plain", b"404 page not found"),
        }
    }

    fn lists(&self, exchange: &mut Exchange, has_it: bool) -> anyhow::Result<()> {
        let name = if has_it { self.name.as_str() } else { "another" };
        match exchange.path.as_str() {
            "/v1/models" => exchange.answer_json(200, &json!({ "object": "list", "data": [{ "id": name }] })),
            "/api/tags" => {
                let model = json!({ "name": format!("{name}:latest"), "model": format!("{name}:latest") });
                exchange.answer_json(200, &json!({ "models": [model] }))
            }
            _ if has_it => {
                exchange.answer_json(200, &json!({ "capabilities": ["completion"], "model_info": {} }))
            }
            _ => exchange.answer_json(404, &json!({ "error": format!("model '{}' not found", self.name) })),
        }
    }

    /// Answers as such a server does; probes and whole answers are one object.
    fn serves(&self, exchange: &mut Exchange, is_probe: bool) -> anyhow::Result<()> {
        if !is_probe {
            self.served.fetch_add(1, SeqCst);
        }
        let body = exchange.json()?;
        let is_stream = body["stream"].as_bool().unwrap_or(self.case.kind == Kind::Run);
        if !is_stream {
            let whole = match self.case.kind {
                Kind::Tunnel => {
                    let message = json!({ "role": "assistant", "content": "Hello" });
                    json!({ "id": "1", "object": "chat.completion", "created": 1, "model": body["model"],
                            "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] })
                }
                Kind::Run => done(&body["model"]),
            };
            return exchange.answer_json(200, &whole);
        }
        exchange.begin(200, self.content_type())?;
        exchange.part(&self.event("Hello"))?;
        exchange.part(&self.last())?;
        exchange.end()
    }

    fn stalls(&self, exchange: &mut Exchange) -> anyhow::Result<()> {
        let stop = self.case.stop;
        if stop != Stop::BeforeHeaders {
            exchange.begin(200, self.content_type())?;
        }
        if matches!(stop, Stop::AfterEvents | Stop::AfterLastByte | Stop::Comments) {
            for _ in 0..EVENTS {
                exchange.part(&self.event("Hello "))?;
            }
        }
        if stop == Stop::AfterLastByte {
            exchange.part(&self.last())?;
        }
        self.arrived.fetch_add(1, SeqCst);
        if stop == Stop::Comments {
            // Not for ever: a client that is never told must not wait for ever, either.
            let until = Instant::now() + PATIENCE;
            while !exchange.is_left(COMMENT_EVERY)? && Instant::now() < until {
                exchange.part(b": still here\n\n")?;
            }
        } else {
            exchange.is_left(FOR_EVER)?;
        }
        if stop == Stop::AfterEvents {
            // It had this on its way; nobody wants it any more.
            exchange.part(&self.event("too late"))?;
        }
        let may_leave = locked(&self.may_leave);
        drop(self.changed.wait_timeout_while(may_leave, FOR_EVER, |may_leave| !*may_leave));
        self.left.fetch_add(1, SeqCst);
        anyhow::bail!("it is given up")
    }

    const fn content_type(&self) -> &'static str {
        match self.case.kind {
            Kind::Tunnel => "text/event-stream",
            Kind::Run => "application/x-ndjson",
        }
    }

    fn event(&self, text: &str) -> Vec<u8> {
        match self.case.kind {
            Kind::Tunnel => {
                let choices = json!([{ "index": 0, "delta": { "content": text }, "finish_reason": null }]);
                let chunk = json!({ "id": "1", "object": "chat.completion.chunk", "created": 1, "model": self.name, "choices": choices });
                format!("data: {chunk}\n\n").into_bytes()
            }
            Kind::Run => {
                let message = json!({ "role": "assistant", "content": text });
                let line = json!({ "model": self.name, "created_at": "2026-11-29T12:00:00Z", "message": message, "done": false });
                format!("{line}\n").into_bytes()
            }
        }
    }

    fn last(&self) -> Vec<u8> {
        match self.case.kind {
            Kind::Tunnel => b"data: [DONE]\n\n".to_vec(),
            Kind::Run => format!("{}\n", done(&self.name.as_str().into())).into_bytes(),
        }
    }
}

fn done(model: &Value) -> Value {
    json!({
        "model": model, "created_at": "2026-11-29T12:00:00Z", "message": { "role": "assistant", "content": "" },
        "done": true, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 1,
    })
}
