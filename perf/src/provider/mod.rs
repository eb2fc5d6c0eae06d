//! A scripted OpenAI-compatible provider: how it listens, and which route a request takes.
//!
//! Reading order: [`Script`] says what a reply is to be, and `directive` reads it from text; [`http`] reads
//! requests; [`completion`] and [`responses`] make bytes; [`plan`] orders a stream's events; `wire` and
//! `play` drive them over a socket; [`stats`] tells what happened.
//!
//! | Route | Reply |
//! |---|---|
//! | `POST /v1/chat/completions` (or without `/v1`) | a completion, as scripted |
//! | `GET /v1/models` (or without `/v1`) | the model list, as scripted |
//! | `GET /health` | `{"status":"ok"}`, as scripted |
//! | `GET /stats`, `POST /stats/reset` | what the provider has seen |
//! | `POST /script/chat`, `/script/models`, `/script/health` | sets the route's base script from the body |
//! | `POST /models` | sets the model list from the body, separated by commas |
//! | anything else | as scripted by `x-perf-script`, else 404 |

pub mod completion;
mod directive;
pub mod http;
pub mod plan;
mod play;
pub mod responses;
mod script;
pub mod stats;
mod wire;

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::Deserialize;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;

use http::Head;
use play::{Next, Player, Subject};
use stats::{Count, OpenRequest, Outcome, Stats};
use wire::{Gone, ReadError, Wire};

pub use directive::ScriptError;
pub use script::{
    After, BadHead, Body, EVENT_BYTES_MAX, EVENTS_MAX, ErrorShape, Framing, HEADERS_BYTES_MAX, Opening,
    PAUSE_MAX, RAW_BODY_BYTES_MAX, Script, Split, StreamFault, UsagePolicy,
};

/// What a provider is started with.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address to listen on; port 0 takes any free one.
    pub listen: SocketAddr,
    /// The script under every chat completion.
    pub script: Script,
    /// The models of `GET /v1/models`.
    pub models: Vec<String>,
    /// Whether a model that is not listed is refused with 404 `model_not_found`.
    pub strict_models: bool,
    /// The key that `authorization: Bearer` must carry on `/v1` routes, if any.
    pub api_key: Option<String>,
    /// How long a kept connection may be idle; zero is for ever.
    pub keepalive_idle: Duration,
    /// With it, every event of a stream waits for one permit of its own: the caller sets the pace.
    pub steps: Option<Arc<Semaphore>>,
}

/// A provider that listens but does not yet accept.
#[derive(Debug)]
pub struct Provider {
    listener: TcpListener,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: Config,
    created: u64,
    stats: Arc<Stats>,
    routes: Mutex<Routes>,
}

/// What `POST /script/…` and `POST /models` change.
#[derive(Debug, Clone)]
struct Routes {
    chat: Script,
    models: Script,
    health: Script,
    list: Vec<String>,
}

impl Provider {
    /// Binds the listening socket.
    ///
    /// # Errors
    /// What the system says about the address.
    pub async fn bind(config: Config) -> io::Result<Self> {
        let listener = listen(config.listen)?;
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let routes = Routes {
            chat: config.script.clone(),
            models: Script::default(),
            health: Script::default(),
            list: config.models.clone(),
        };
        let shared =
            Shared { config, created, stats: Arc::new(Stats::default()), routes: Mutex::new(routes) };
        Ok(Self { listener, shared: Arc::new(shared) })
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// What the system says about the socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The statistics, for a test in the same process.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.shared.stats)
    }

    /// Accepts and serves connections for ever. Out of file descriptors it waits a moment and tries again.
    pub async fn run(self) {
        const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    // One write is one segment, or "one write per event" would be a wish.
                    let _ = stream.set_nodelay(true);
                    tokio::spawn(serve(stream, Arc::clone(&self.shared)));
                }
                Err(_) => tokio::time::sleep(ACCEPT_BACKOFF).await,
            }
        }
    }
}

/// One connection, from accept to close.
async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    shared.stats.count(Count::ConnectionAccepted);
    let _open = shared.stats.open_connection();
    let mut wire = Wire::new(stream);
    let (mut requests, mut serving, mut drop_next) = (0_u64, false, false);
    loop {
        let idle = if requests == 0 { Duration::ZERO } else { shared.config.keepalive_idle };
        let (head, body) = match wire.read_request(idle).await {
            Ok(request) => request,
            Err(error) => {
                refuse(&mut wire, &shared.stats, &error, requests == 0).await;
                return wire.close().await;
            }
        };
        requests += 1;
        if drop_next {
            return shared.stats.count(Count::ConnectionDroppedOnReuse);
        }
        let own = shared.answer_own(&head, &body);
        let first = own.is_none() && !serving;
        if first {
            serving = true;
            shared.stats.count(Count::ConnectionServing);
        }
        let reply = match own {
            Some(subject) => {
                Reply { subject, script: Script::default(), open: OpenRequest::untold(&shared.stats) }
            }
            None => shared.reply(&head, &body, first),
        };
        match give(&mut wire, &head, &body, reply, shared.config.steps.as_deref()).await {
            Next::Keep if head.keep_alive => {}
            Next::DropRequest => drop_next = true,
            Next::Keep | Next::Close => return wire.close().await,
            Next::Reset => return wire.reset(),
        }
    }
}

/// Counts a failed read and tells the peer, if there is anything to tell.
async fn refuse(wire: &mut Wire, stats: &Stats, error: &ReadError, first: bool) {
    let status: &[u8] = match error {
        ReadError::Ended if first => return stats.count(Count::ConnectionWithoutRequest),
        ReadError::Ended | ReadError::Idle => return,
        ReadError::BodyCut => return stats.count(Count::BodyCut),
        ReadError::TooLarge => b"413 Content Too Large",
        ReadError::Head(_) | ReadError::Body(_) => b"400 Bad Request",
    };
    stats.count(Count::BadRequest);
    let head = [b"HTTP/1.1 ", status, b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"].concat();
    // The peer may have left; there is nobody else to tell.
    let _ = wire.send(&head).await;
}

/// A reply that is to be given.
struct Reply {
    subject: Subject,
    script: Script,
    open: OpenRequest,
}

async fn give(
    wire: &mut Wire,
    head: &Head,
    body: &Bytes,
    mut reply: Reply,
    steps: Option<&Semaphore>,
) -> Next {
    wire.set_deaf(reply.script.deaf);
    let mut player = Player { wire, script: &reply.script, head, body, open: &mut reply.open, steps };
    match player.play(&reply.subject).await {
        Ok(ending) => {
            reply.open.end(ending.outcome);
            ending.next
        }
        Err(Gone) => {
            reply.open.abort_seen();
            if !reply.script.ignore_abort.is_zero() {
                tokio::time::sleep(reply.script.ignore_abort).await;
            }
            reply.open.end(Outcome::AbortedByPeer);
            Next::Close
        }
    }
}

/// What the provider reads of a chat request's body.
#[derive(Debug, Deserialize)]
struct ChatRequest<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    /// Anything, because only a string with our prefix matters.
    #[serde(default)]
    user: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

impl Shared {
    fn routes(&self) -> MutexGuard<'_, Routes> {
        // A panic elsewhere cannot leave these plain values half-written.
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The provider's own routes: no model work, no script, not counted.
    fn answer_own(&self, head: &Head, body: &[u8]) -> Option<Subject> {
        let ok = || Subject::Json(r#"{"ok":true}"#.to_owned());
        let text = std::str::from_utf8(body).unwrap_or_default();
        match (head.method.as_str(), head.path()) {
            ("GET", "/stats") => Some(Subject::Json(self.stats.to_json().to_string())),
            ("POST", "/stats/reset") => {
                self.stats.reset();
                Some(ok())
            }
            ("POST", "/models") => {
                self.routes().list = model_names(text);
                Some(ok())
            }
            ("POST", path) => {
                let route = path.strip_prefix("/script/")?;
                Some(self.set_script(route, text).map_or_else(|message| bad_script(&message), |()| ok()))
            }
            _ => None,
        }
    }

    fn set_script(&self, route: &str, text: &str) -> Result<(), String> {
        let mut script = if route == "chat" { self.config.script.clone() } else { Script::default() };
        script.apply(text).map_err(|error| error.to_string())?;
        let mut routes = self.routes();
        *match route {
            "chat" => &mut routes.chat,
            "models" => &mut routes.models,
            "health" => &mut routes.health,
            _ => return Err(format!("there is no route {route:?}")),
        } = script;
        Ok(())
    }

    /// The reply to everything else.
    fn reply(&self, head: &Head, body: &Bytes, first: bool) -> Reply {
        let stats = &self.stats;
        let path = head.path();
        let (base, open, subject) = match (head.method.as_str(), path) {
            ("GET", "/v1/models" | "/models") => {
                let routes = self.routes();
                let list = responses::model_list(&routes.list, self.created);
                (routes.models.clone(), stats.open_probe(Count::Models, first), Subject::Json(list))
            }
            ("GET", "/health") => {
                let subject = Subject::Json(r#"{"status":"ok"}"#.to_owned());
                (self.routes().health.clone(), stats.open_probe(Count::Health, first), subject)
            }
            ("POST", "/v1/chat/completions" | "/chat/completions") => {
                let base = self.routes().chat.clone();
                return self.authorized(head, self.chat(head, body, base, first));
            }
            _ if head.script.is_empty() => {
                let message = format!("there is nothing at {path}");
                let subject = Subject::Refusal { status: 404, code: "not_found", message };
                (Script::default(), stats.open_probe(Count::BadRequest, first), subject)
            }
            _ => {
                let open = stats.open_request(head.clone(), body.clone(), first);
                (Script::default(), open, Subject::Json("{}".to_owned()))
            }
        };
        let (subject, script) = self.scripted(subject, base, &[&head.script]);
        let reply = Reply { subject, script, open };
        if path == "/health" { reply } else { self.authorized(head, reply) }
    }

    fn chat(&self, head: &Head, body: &Bytes, base: Script, first: bool) -> Reply {
        let mut open = self.stats.open_request(head.clone(), body.clone(), first);
        let request: ChatRequest<'_> = match serde_json::from_slice(body) {
            Ok(request) => request,
            Err(error) => {
                self.stats.count(Count::BadRequest);
                let message = format!("the body is not a chat request: {error}");
                // The header's script still holds: an `echo` may want to see exactly such a body.
                let subject = Subject::Refusal { status: 400, code: "invalid_body", message };
                let (subject, script) = self.scripted(subject, base, &[&head.script]);
                let echoes = !matches!(script.body, Body::Completion);
                let subject = if echoes { Subject::Json(String::new()) } else { subject };
                return Reply { subject, script, open };
            }
        };
        let stream = request.stream.unwrap_or(false);
        open.describe(&request.model, stream);
        let listed =
            !self.config.strict_models || self.routes().list.iter().any(|model| *model == request.model);
        let subject = if listed {
            Subject::Chat {
                model: request.model.into_owned(),
                stream,
                include_usage: request
                    .stream_options
                    .and_then(|options| options.include_usage)
                    .unwrap_or(false),
            }
        } else {
            let message = format!("the model {:?} does not exist", request.model);
            Subject::Refusal { status: 404, code: "model_not_found", message }
        };
        let user =
            request.user.as_ref().and_then(|user| user.as_str()?.strip_prefix("perf:")).unwrap_or_default();
        let (subject, script) = self.scripted(subject, base, &[&head.script, user]);
        Reply { subject, script, open }
    }

    /// Applies the request's scripts in order; a mistake in one becomes the reply.
    fn scripted(&self, subject: Subject, mut script: Script, texts: &[&str]) -> (Subject, Script) {
        for text in texts {
            if let Err(error) = script.apply(text) {
                self.stats.count(Count::BadRequest);
                return (bad_script(&error.to_string()), Script::default());
            }
        }
        (subject, script)
    }

    fn authorized(&self, head: &Head, reply: Reply) -> Reply {
        let Some(key) = &self.config.api_key else { return reply };
        if head.authorization.strip_prefix("Bearer ") == Some(key) {
            return reply;
        }
        self.stats.count(Count::Unauthorized);
        let message = "the provider's key is missing or wrong".to_owned();
        let subject = Subject::Refusal { status: 401, code: "invalid_api_key", message };
        Reply { subject, script: Script::default(), open: reply.open }
    }
}

fn bad_script(message: &str) -> Subject {
    Subject::Refusal {
        status: 400,
        code: "perf_script",
        message: format!("the script is not understood: {message}"),
    }
}

/// The names of a comma-separated list.
#[must_use]
pub fn model_names(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
/// Connections the kernel keeps for us: a load of thousands must not meet a full queue, whose dropped SYNs would show as
/// seconds in the subject's first events.
const BACKLOG: u32 = 4096;

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
