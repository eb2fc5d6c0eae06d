//! One client connection: requests one after the other, each authenticated, read whole and routed.

use std::{
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use dataplane::{
    clock,
    http::{
        body::Body,
        head::{Method, RequestHead},
        hop,
        limits::Limits,
        server::{Connection, ReadFault, RequestFault, Wire},
    },
    net::Listener,
    panic_point,
    shard::{boxed, guarded, spawn_guarded},
    time::yield_now,
};
use futures::future::{Either, select};
use prometheus::IntGauge;
use proto::message::{Header, Operation};

use crate::{
    config::{GenerationPolicy, Settings, capability},
    dispatch::{self, Ended, Plan},
    openai::{
        estimate::{self, Estimator},
        models,
        scan::{ChatScan, ScanError, Scanner},
    },
    reply::{CLIENT_GONE, Fault},
    request_id,
    response::{self, Answer},
    revocation::permits::Permit,
    shard_state::ShardState,
    token::Authenticator,
};

/// Bytes that the kernel takes for a client beyond what it has sent to it. Where the client does not read, more would only be
/// memory.
const UNSENT_BYTES: u32 = 128 * 1024;
/// Bytes of a body that are looked at in one go: a fraction of a millisecond, whatever they are.
const SCAN_BYTES: usize = 64 * 1024;

/// The least time between two lines about clients that were turned away.
const REFUSAL_PAUSE: Duration = Duration::from_secs(10);

/// Accepts clients on one socket until the process drains, and then those that the kernel has accepted already; over
/// `clients_max` at a time in the process a new one is closed at once, so that descriptors are left for Nodes and operators.
pub async fn accept_loop(
    state: Rc<ShardState>,
    mut listener: Listener,
    auth: Arc<Authenticator>,
    clients_max: i64,
) {
    if let Err(error) = listener.bound_unsent(UNSENT_BYTES) {
        tracing::warn!(%error, "the kernel's memory for clients that do not read has no bound of ours");
    }
    // Each connection of this socket holds a clone of these.
    let limits = Rc::new(http_limits(&state.settings));
    // The configuration of a process never changes, so this is when its models came to be.
    let created = clock::unix_seconds();
    let mut said = None;
    loop {
        let accepted = {
            let draining = std::pin::pin!(state.draining.closed());
            match select(std::pin::pin!(listener.accept()), draining).await {
                Either::Left((accepted, _)) => Some(accepted),
                Either::Right(_) => None,
            }
        };
        // Whoever still stands before a door that closes would be reset, with a request that may be on its way.
        let Some(stream) = accepted.or_else(|| listener.try_accept().map(Ok)) else { return };
        panic_point!("edge.accept");
        let Ok(stream) = stream else {
            state.metrics.accepts_exhausted.inc();
            continue;
        };
        if state.metrics.connections.get() >= clients_max {
            state.metrics.connections_refused.inc();
            drop(stream);
            listener.take_turn();
            let now = clock::now();
            if said.is_none_or(|said| now.saturating_duration_since(said) >= REFUSAL_PAUSE) {
                said = Some(now);
                tracing::warn!(most = clients_max, "too many client connections: new ones are closed");
            }
            continue;
        }
        let counted = Counted::one(&state.metrics.connections);
        let client = Client { state: Rc::clone(&state), auth: Arc::clone(&auth), created };
        spawn_guarded(client.serve(Wire::Plain(stream), Rc::clone(&limits), counted));
    }
}

fn http_limits(settings: &Settings) -> Limits {
    let limits = &settings.limits;
    Limits {
        head_bytes: limits.head_bytes,
        fields: limits.head_fields,
        head_deadline: limits.head_timeout,
        keepalive_idle: limits.keepalive_idle,
        write_stall: limits.write_stall,
        body_grace: limits.body_timeout,
        body_min_rate: limits.body_min_rate,
        ..Limits::default()
    }
}

/// Counts something for as long as it exists, also when its task ends by a panic.
struct Counted(IntGauge);

impl Counted {
    fn one(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

struct Client {
    state: Rc<ShardState>,
    auth: Arc<Authenticator>,
    created: u64,
}

/// The route of a request, as a label and as what to do.
#[derive(Clone, Copy)]
enum Route<'a> {
    Chat,
    Models,
    Model(&'a str),
}

impl Route<'_> {
    fn label(self) -> &'static str {
        match self {
            Self::Chat => "chat_completions",
            Self::Models | Self::Model(_) => "models",
        }
    }
}

/// A request's way through this file, for its one log line.
struct Request {
    client: Rc<str>,
    id: Arc<str>,
    started: Instant,
    route: &'static str,
    model: Option<Arc<str>>,
    token_ref: Option<Arc<str>>,
}

impl Client {
    /// Serves until the client or the process ends. A process that drains still listens: requests that come late are refused
    /// by an answer, and not by a close that could cross them.
    async fn serve(self, wire: Wire, limits: Rc<Limits>, _counted: Counted) {
        let mut connection = Connection::new(wire, limits);
        // As text, for the log lines.
        let client: Rc<str> = connection.peer_addr().to_string().into();
        loop {
            let next = {
                let stopping = std::pin::pin!(self.state.stopping.closed());
                let next = std::pin::pin!(connection.next_request());
                match select(next, stopping).await {
                    Either::Left((next, _)) => next,
                    Either::Right(((), _)) => break,
                }
            };
            panic_point!("edge.connection");
            let mut request = Request {
                client: Rc::clone(&client),
                id: request_id::new(),
                started: clock::now(),
                route: "none",
                model: None,
                token_ref: None,
            };
            let reusable = match next {
                Ok(None) => break,
                Err(fault) => {
                    if let Some(fault) = fault_of_head(&fault) {
                        self.refuse(&mut connection, &request, &fault).await;
                    }
                    false
                }
                Ok(Some(head)) => {
                    let _active = Counted::one(&self.state.metrics.requests_active);
                    let _answering = self.state.requests.answering();
                    // On the heap for as long as it lasts: an idle connection is to be small.
                    let answer = boxed(|| self.answer(&mut connection, &mut request, head));
                    match guarded(answer).await {
                        Some(reusable) => reusable,
                        None => self.failed(&mut connection, &request).await,
                    }
                }
            };
            if !reusable {
                break;
            }
        }
        // A process that drains waits for the close too: ended in its middle it would take the last answer back.
        let _answering = self.state.requests.answering();
        connection.close().await;
    }

    /// Ends a request whose handling panicked, outside of its run: by an answer where none has begun, else by a broken end.
    async fn failed(&self, connection: &mut Connection, request: &Request) -> bool {
        let fault = Fault::Internal;
        let mut status = 0;
        if connection.awaits_answer() {
            connection.set_draining();
            status = fault.status();
            let _gone = response::refuse(connection, &fault, &Answer::local(&request.id)).await;
        }
        self.log(request, status, fault.outcome());
        false
    }

    /// Answers one request; whether the connection may carry another one.
    async fn answer(&self, connection: &mut Connection, request: &mut Request, head: RequestHead) -> bool {
        panic_point!("edge.request");
        let route = match route(&head) {
            Ok(route) => route,
            Err(fault) => return self.refuse(connection, request, &fault).await,
        };
        request.route = route.label();
        if self.state.draining.is_closed() {
            connection.set_draining();
            return self.refuse(connection, request, &Fault::Draining).await;
        }
        match self.auth.authenticate(head.headers.raw()) {
            Ok(principal) => request.token_ref = Some(Arc::clone(&principal.token_ref)),
            Err(error) => {
                tracing::debug!(request = &*request.id, reason = error.label(), "token refused");
                return self.refuse(connection, request, &error.into()).await;
            }
        }
        let Some(permit) = self.permit(request) else {
            tracing::debug!(request = &*request.id, reason = "revoked", "token refused");
            return self.refuse(connection, request, &Fault::Unauthorized).await;
        };
        match route {
            Route::Models => {
                let body = models::list(&self.state.settings, self.created);
                self.local(connection, request, &body).await
            }
            Route::Model(id) => match models::one(&self.state.settings, id, self.created) {
                Some(body) => self.local(connection, request, &body).await,
                None => {
                    let fault = Fault::UnknownModel { model: Some(id.to_owned()) };
                    self.refuse(connection, request, &fault).await
                }
            },
            Route::Chat => match self.plan(connection, request, &head, permit).await {
                Ok(plan) => {
                    // Its buffer must not be held for as long as the response takes.
                    drop(head);
                    let ended = dispatch::run(&self.state, connection, plan).await;
                    self.ended(request, &ended);
                    ended.reusable
                }
                Err(Some(fault)) => self.refuse(connection, request, &fault).await,
                Err(None) => {
                    self.log(request, 0, CLIENT_GONE);
                    false
                }
            },
        }
    }

    /// What lets the request go on; `None` when its token was revoked, or the process ends.
    fn permit(&self, request: &Request) -> Option<Permit> {
        request.token_ref.as_deref().and_then(|token_ref| self.state.permits.of(token_ref))
    }

    /// Reads the body and finds out what it asks for. `Err(None)` = the client is gone.
    async fn plan(
        &self,
        connection: &mut Connection,
        request: &mut Request,
        head: &RequestHead,
        permit: Permit,
    ) -> Result<Box<Plan>, Option<Fault>> {
        let auth = &self.state.settings.openai.provider_auth;
        let provider_auth = auth.take(&head.headers).map_err(Some)?;
        if head.headers.get("content-encoding").is_some_and(|e| !e.eq_ignore_ascii_case(b"identity")) {
            return Err(Some(Fault::UnsupportedEncoding));
        }
        let limit = self.state.settings.limits.body_bytes;
        let max = usize::try_from(limit).unwrap_or(usize::MAX);
        let body = connection
            .read_body(max, &self.state.bodies)
            .await
            .map_err(|fault| fault_of_body(&fault, limit))?;
        self.state.metrics.request_bytes.inc_by(body.len() as u64);
        let scan = scan_in_steps(&body).await.map_err(|error| {
            Some(match error {
                ScanError::Syntax(detail) => Fault::BadJson { detail: detail.into(), param: None },
                ScanError::Missing { param } => Fault::MissingField { param },
                ScanError::Member { param, message } => {
                    Fault::BadJson { detail: message.into(), param: Some(param.into()) }
                }
            })
        })?;
        let settings = &self.state.settings;
        let (group, window, generation) = match settings.model(&scan.model) {
            Some(model) => (Arc::clone(&model.id), model.context_window_tokens, model.generation),
            // Of what stands behind a direct route nothing but its name is known.
            None => match settings.direct_model(&scan.model) {
                Some(model) => (Arc::clone(model), None, GenerationPolicy::default()),
                None => return Err(Some(Fault::UnknownModel { model: Some(scan.model) })),
            },
        };
        request.model = Some(Arc::clone(&group));
        let needs = if scan.stream {
            capability::union(capability::CHAT, capability::STREAMING)
        } else {
            capability::CHAT
        };
        let threshold = self.state.settings.long_context_threshold_tokens;
        let tokens = input_tokens(&body, threshold.min(window.unwrap_or(u64::MAX))).await;
        if let Some(window) = window.filter(|window| estimate::surely_exceeds(tokens, *window)) {
            return Err(Some(Fault::ContextTooLong { tokens, window }));
        }
        // The body may have taken its time.
        if permit.is_closed() {
            let stops = self.state.stopping.is_closed();
            return Err(Some(if stops { Fault::Draining } else { Fault::Unauthorized }));
        }
        Ok(Box::new(Plan {
            permit,
            group,
            needs,
            generation,
            long: tokens >= threshold,
            operation: Operation::ChatCompletions,
            headers: wire_headers(head, auth.enabled.then_some(&*auth.from_header)),
            provider_auth,
            scan,
            body,
            request_id: Arc::clone(&request.id),
            started: request.started,
        }))
    }

    async fn local(&self, connection: &mut Connection, request: &Request, body: &[u8]) -> bool {
        let sent = response::json(connection, 200, body, &Answer::local(&request.id)).await.is_ok();
        self.log(request, 200, if sent { "ok" } else { CLIENT_GONE });
        sent
    }

    async fn refuse(&self, connection: &mut Connection, request: &Request, fault: &Fault) -> bool {
        let sent = response::refuse(connection, fault, &Answer::local(&request.id)).await.is_ok();
        self.log(request, fault.status(), fault.outcome());
        sent && !fault.closes_connection()
    }

    fn ended(&self, request: &Request, ended: &Ended) {
        let took = clock::now().saturating_duration_since(request.started);
        self.state.metrics.duration.observe(took.as_secs_f64());
        self.state.metrics.request_ended(request.route, ended.outcome);
        tracing::info!(
            request = &*request.id,
            client = %request.client,
            route = request.route,
            token_ref = request.token_ref.as_deref(),
            model = request.model.as_deref(),
            provider = ended.provider.as_deref(),
            attempts = ended.attempts,
            status = ended.status,
            outcome = ended.outcome,
            queue_ms = millis(ended.queued),
            first_byte_ms = ended.first_byte.map(millis),
            bytes = ended.bytes,
            ms = millis(took),
            "request ended"
        );
    }

    fn log(&self, request: &Request, status: u16, outcome: &'static str) {
        self.state.metrics.request_ended(request.route, outcome);
        let ms = millis(clock::now().saturating_duration_since(request.started));
        tracing::info!(
            request = &*request.id,
            client = %request.client,
            route = request.route,
            token_ref = request.token_ref.as_deref(),
            model = request.model.as_deref(),
            status,
            outcome,
            ms,
            "request ended"
        );
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Finds the route by path alone; a query is none of its business.
fn route(head: &RequestHead) -> Result<Route<'_>, Fault> {
    let (route, allow) = match head.target.path() {
        "/v1/chat/completions" => (Route::Chat, "POST"),
        "/v1/models" => (Route::Models, "GET"),
        path => match path.strip_prefix("/v1/models/").filter(|id| !id.is_empty()) {
            Some(id) => (Route::Model(id), "GET"),
            None => return Err(Fault::UnknownPath),
        },
    };
    let fits = match route {
        Route::Chat => head.method == Method::Post,
        Route::Models | Route::Model(_) => head.method == Method::Get,
    };
    if fits { Ok(route) } else { Err(Fault::MethodNotAllowed { allow }) }
}

/// The end-to-end headers that go to the provider (TUN-6): no credential of the client's, nothing that is for us.
fn wire_headers(head: &RequestHead, credential: Option<&str>) -> Vec<Header> {
    let own = |name: &str| matches!(name, "accept-encoding" | "content-encoding") || credential == Some(name);
    hop::forwardable_request(&head.headers)
        .filter(|(name, _)| !own(name))
        .map(|(name, value)| Header { name: name.to_owned(), value: Bytes::copy_from_slice(value) })
        .collect()
}

/// Scans a body without keeping the shard's other tasks waiting for all of it.
async fn scan_in_steps(body: &Body) -> Result<ChatScan, ScanError> {
    let mut scanner = Scanner::default();
    for step in body.pieces().iter().flat_map(|piece| piece.chunks(SCAN_BYTES)) {
        scanner.push(step)?;
        if body.len() > SCAN_BYTES {
            yield_now().await;
        }
    }
    scanner.finish()
}

/// About how many input tokens a request has; 0 where its length alone says that they are below `least`.
async fn input_tokens(body: &Body, least: u64) -> u64 {
    if estimate::text_tokens_max(body) < least {
        return 0;
    }
    let mut estimator = Estimator::default();
    for step in body.pieces().iter().flat_map(|piece| piece.chunks(SCAN_BYTES)) {
        estimator.push(step);
        if body.len() > SCAN_BYTES {
            yield_now().await;
        }
    }
    estimator.finish()
}

/// What to tell a client whose head is refused; `None` when nobody would read it.
fn fault_of_head(fault: &RequestFault) -> Option<Fault> {
    Some(match fault.status()? {
        408 => Fault::RequestTimeout,
        417 => Fault::ExpectationFailed,
        431 => Fault::HeadTooLarge,
        _ => Fault::BadFraming { detail: fault.to_string().into() },
    })
}

/// As [`fault_of_head`], for a body.
fn fault_of_body(fault: &ReadFault, limit: u64) -> Option<Fault> {
    Some(match fault.status()? {
        408 => Fault::RequestTimeout,
        413 => Fault::BodyTooLarge { limit },
        503 => Fault::NoBodyRoom,
        _ => Fault::BadFraming { detail: fault.to_string().into() },
    })
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::mpsc};

    use dataplane::{
        local::Latch,
        shard::{DriverWish, Shard, ShardSpec},
    };

    use super::*;

    /// A body of about `len` bytes, in pieces.
    fn body(len: usize) -> Body {
        let text = format!("{{\"model\":\"m\",\"x\":[{}1]}}", "1,".repeat(len / 2));
        text.into_bytes().chunks(256 * 1024).map(Bytes::copy_from_slice).collect()
    }

    /// How often another task of the shard gets its turn while a body is scanned.
    async fn turns_beside(body: Body) -> usize {
        let (over, turns) = (Rc::new(Latch::new()), Rc::new(Cell::new(0)));
        let (scanned, counted) = (Rc::clone(&over), Rc::clone(&turns));
        spawn_guarded(async move {
            let scan = scan_in_steps(&body).await;
            assert_eq!(scan.map(|scan| scan.model), Ok("m".to_owned()));
            scanned.close();
        });
        let until = Rc::clone(&over);
        spawn_guarded(async move {
            while !until.is_closed() {
                counted.set(counted.get() + 1);
                yield_now().await;
            }
        });
        over.closed().await;
        turns.get()
    }

    #[test]
    fn a_large_body_is_scanned_in_steps_between_which_others_run() {
        let (tell, told) = mpsc::channel();
        let spec = ShardSpec { name: "test".to_owned(), cpu: None, driver: DriverWish::Epoll };
        let shard = Shard::start(spec, move || async move {
            let (small, large) = (turns_beside(body(1000)).await, turns_beside(body(4 << 20)).await);
            let _told = tell.send((small, large));
        });
        assert!(shard.unwrap().join());
        let (small, large) = told.recv().unwrap();
        assert!(small <= 1, "{small} turns");
        assert!(large >= (4 << 20) / SCAN_BYTES, "{large} turns");
    }
}
