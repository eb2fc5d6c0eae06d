//! One client connection: requests one after the other, each authenticated, read whole and routed.

use std::{
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use dataplane::{
    clock,
    http::{
        head::RequestHead,
        http2::Http2Limits,
        limits::Limits,
        server::{Connection, RequestFault},
    },
    net::Listener,
    panic_point,
    shard::{boxed, guarded, spawn_guarded},
};
use futures::future::{Either, select};
use prometheus::IntGauge;

use crate::{
    config::{GenerationPolicy, Settings},
    dispatch::{self, Ended, Plan},
    https::door::{Door, Greeted},
    intake::{self, Taken},
    openai::{
        estimate,
        models::{self, Created, Page},
    },
    reply::{CLIENT_GONE, Fault},
    request_id,
    response::{self, Answer},
    revocation::permits::Permit,
    shard_state::ShardState,
    surface::{
        Surface,
        router::{self, Route},
    },
    token::Authenticator,
    usage::State,
};

/// Bytes that the kernel takes for a client beyond what it has sent to it. Where the client does not read, more would only be
/// memory.
const UNSENT_BYTES: u32 = 128 * 1024;

/// The least time between two lines about clients that were turned away.
const REFUSAL_PAUSE: Duration = Duration::from_secs(10);

/// Accepts clients on one socket until the process drains, and then those that the kernel has accepted already; over
/// `clients_max` at a time in the process a new one is closed at once, so that descriptors are left for Nodes and operators. With a
/// `door` they speak HTTPS.
pub async fn accept_loop(
    state: Rc<ShardState>,
    mut listener: Listener,
    auth: Arc<Authenticator>,
    clients_max: i64,
    door: Option<Rc<Door>>,
) {
    if let Err(error) = listener.bound_unsent(UNSENT_BYTES) {
        tracing::warn!(%error, "the kernel's memory for clients that do not read has no bound of ours");
    }
    // Each connection of this socket holds a clone of these.
    let limits = Rc::new(http_limits(&state.settings));
    // The configuration of a process never changes, so this is when its models came to be.
    let created = Rc::new(Created::at(clock::unix_seconds()));
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
        let client =
            Client { state: Rc::clone(&state), auth: Arc::clone(&auth), created: Rc::clone(&created) };
        match &door {
            None => spawn_guarded(client.serve(Greeted::Well(stream.into()), Rc::clone(&limits), counted)),
            Some(door) => {
                let (limits, state) = (Rc::clone(&limits), Rc::clone(&state));
                let greeted = door.greet(state, stream, &limits);
                spawn_guarded(async move {
                    if let Some(greeted) = greeted.await {
                        client.serve(greeted, limits, counted).await;
                    }
                });
            }
        }
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
    created: Rc<Created>,
}

/// A request's way through this file, for its one log line.
struct Request {
    client: Rc<str>,
    id: Arc<str>,
    started: Instant,
    route: &'static str,
    surface: Surface,
    /// Told to the page that asks, if one of another origin does.
    allow_origin: Option<Arc<str>>,
    model: Option<Arc<str>>,
    token_ref: Option<Arc<str>>,
}

impl Request {
    /// What every answer of this file says.
    fn answer(&self) -> Answer<'_> {
        Answer {
            surface: self.surface,
            took: Some(clock::now().saturating_duration_since(self.started)),
            allow_origin: self.allow_origin.as_deref(),
            ..Answer::local(&self.id)
        }
    }
}

impl Client {
    /// Serves until the client or the process ends. A process that drains still listens: requests that come late are refused
    /// by an answer, and not by a close that could cross them.
    async fn serve(self, greeted: Greeted, limits: Rc<Limits>, _counted: Counted) {
        let mut connection = greeted.open(limits);
        if connection.is_http2() || self.serve_requests(&mut connection).await {
            // On the heap: most connections are none.
            return boxed(|| self.serve_http2(connection)).await;
        }
        self.close(connection).await;
    }

    /// Serves an HTTP/2 connection: each of its streams as a connection of its own. When the process drains, its client is told.
    async fn serve_http2(self, connection: Connection) {
        let state = Rc::clone(&self.state);
        let bounds = Http2Limits { streams: state.settings.limits.h2_streams, ..Http2Limits::default() };
        let metrics = Arc::clone(&state.metrics);
        let notify = Box::new(move |notice| metrics.http2.note(notice));
        let Some(mut server) = connection.into_http2(bounds, notify) else { return };
        let _counted = Counted::one(&state.metrics.http2.connections);
        // Its streams' tasks are counted themselves; this is until what they have said is sent.
        let mut answering = None;
        let mut busy = |busy: bool| match busy {
            true => _ = answering.get_or_insert_with(|| state.requests.answering()),
            false => answering = None,
        };
        let client = Rc::new(self);
        let mut drains = false;
        loop {
            let next = {
                let next = std::pin::pin!(server.next(&mut busy));
                let draining = std::pin::pin!(state.draining.closed());
                if drains {
                    Some(next.await)
                } else {
                    match select(next, draining).await {
                        Either::Left((next, _)) => Some(next),
                        Either::Right(((), _)) => None,
                    }
                }
            };
            match next {
                Some(Some(stream)) => {
                    let client = Rc::clone(&client);
                    spawn_guarded(async move { client.serve_stream(stream).await });
                }
                Some(None) => break,
                None => {
                    drains = true;
                    server.drain();
                }
            }
        }
        state.metrics.http2.ended(server.ending());
    }

    async fn serve_stream(&self, mut stream: Connection) {
        self.serve_requests(&mut stream).await;
        self.close(stream).await;
    }

    /// Serves one request after the other, until there are no more; whether the client speaks HTTP/2 instead.
    async fn serve_requests(&self, connection: &mut Connection) -> bool {
        // As text, for the log lines.
        let client: Rc<str> = connection.peer_addr().to_string().into();
        loop {
            let next = {
                let stopping = std::pin::pin!(self.state.stopping.closed());
                let next = std::pin::pin!(connection.next_request());
                match select(next, stopping).await {
                    Either::Left((next, _)) => next,
                    Either::Right(((), _)) => return false,
                }
            };
            panic_point!("edge.connection");
            let mut request = Request {
                client: Rc::clone(&client),
                id: request_id::new(),
                started: clock::now(),
                route: "none",
                surface: Surface::Chat,
                allow_origin: None,
                model: None,
                token_ref: None,
            };
            let reusable = match next {
                Ok(None) => return false,
                Err(RequestFault::Http2) => return true,
                Err(fault) => {
                    if matches!(fault, RequestFault::SpeaksTls | RequestFault::SpeaksPlain) {
                        tracing::info!(%client, %fault, "wrong protocol");
                    }
                    if let Some(fault) = fault_of_head(&fault) {
                        self.refuse(connection, &request, &fault).await;
                    }
                    false
                }
                Ok(Some(head)) => {
                    let _active = Counted::one(&self.state.metrics.requests_active);
                    let _answering = self.state.requests.answering();
                    // On the heap for as long as it lasts: an idle connection is to be small.
                    let answer = boxed(|| self.answer(connection, &mut request, head));
                    match guarded(answer).await {
                        Some(reusable) => reusable,
                        None => self.failed(connection, &request).await,
                    }
                }
            };
            if !reusable {
                return false;
            }
        }
    }

    async fn close(&self, connection: Connection) {
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
            let _gone = response::refuse(connection, &fault, &request.answer()).await;
        }
        self.log(request, status, fault.outcome());
        false
    }

    /// Answers one request; whether the connection may carry another one.
    async fn answer(&self, connection: &mut Connection, request: &mut Request, head: RequestHead) -> bool {
        panic_point!("edge.request");
        let origin = head.headers.get("origin");
        request.allow_origin = origin.and_then(|origin| self.state.settings.openai.cors.allow(origin));
        let versioned = head.headers.get("anthropic-version").is_some();
        let (surface, route) = router::route(&head.method, head.target.path(), versioned);
        request.surface = surface;
        let route = match route {
            Ok(route) => route,
            Err(fault) => return self.refuse(connection, request, &fault).await,
        };
        request.route = route.label(surface);
        if route.is_open() {
            return self.open(connection, request, &head, &route).await;
        }
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
                // OpenAI's list has no pages, and what its clients put into a query means nothing.
                let query = head.target.query().filter(|_| surface == Surface::Messages);
                let page = query.map_or_else(|| Ok(Page::default()), Page::read);
                match page.and_then(|page| models::list(&self.state.settings, &self.created, &page)) {
                    Ok(body) => self.local(connection, request, &body, &[]).await,
                    Err(fault) => self.refuse(connection, request, &fault).await,
                }
            }
            Route::Model(id) => match models::one(&self.state.settings, &id, &self.created) {
                Some(body) => self.local(connection, request, &body, &[]).await,
                None => {
                    let fault = Fault::UnknownModel { model: Some(id.into_owned()) };
                    self.refuse(connection, request, &fault).await
                }
            },
            Route::CountTokens => match self.count(connection, request, &head).await {
                Ok(body) => {
                    self.local(connection, request, &body, &[("x-iop-token-count", "estimate")]).await
                }
                Err(fault) => self.unplanned(connection, request, fault).await,
            },
            Route::Run => match self.plan(connection, request, &head, permit).await {
                Ok(plan) => {
                    drop(route);
                    // Its buffer must not be held for as long as the response takes.
                    drop(head);
                    let ended = dispatch::run(&self.state, connection, plan).await;
                    self.ended(request, &ended);
                    ended.reusable
                }
                Err(fault) => self.unplanned(connection, request, fault).await,
            },
            Route::Probe | Route::Preflight => self.open(connection, request, &head, &route).await,
        }
    }

    /// Answers what anybody may ask.
    async fn open(
        &self,
        connection: &mut Connection,
        request: &Request,
        head: &RequestHead,
        route: &Route<'_>,
    ) -> bool {
        let answer = request.answer();
        let (status, sent) = match route {
            Route::Preflight => {
                let wished = head.headers.get_str("access-control-request-headers");
                (204, response::preflight(connection, wished, &answer).await)
            }
            _ => (200, response::present(connection, &answer).await),
        };
        self.log(request, status, if sent.is_ok() { "ok" } else { CLIENT_GONE });
        sent.is_ok()
    }

    /// Ends a request of which nothing has run; `None` = its client is gone.
    async fn unplanned(&self, connection: &mut Connection, request: &Request, fault: Option<Fault>) -> bool {
        match fault {
            Some(fault) => self.refuse(connection, request, &fault).await,
            None => {
                self.log(request, 0, CLIENT_GONE);
                false
            }
        }
    }

    /// What lets the request go on; `None` when its token was revoked, or the process ends.
    fn permit(&self, request: &Request) -> Option<Permit> {
        request.token_ref.as_deref().and_then(|token_ref| self.state.permits.of(token_ref))
    }

    /// About how many input tokens a request has. It takes no slot and waits for no Node. `Err(None)` = the client is gone.
    async fn count(
        &self,
        connection: &mut Connection,
        request: &mut Request,
        head: &RequestHead,
    ) -> Result<Vec<u8>, Option<Fault>> {
        let Taken { body, scan } = intake::take(&self.state, connection, head).await?;
        let settings = &self.state.settings;
        let model = settings.model(&scan.model).map(|model| &model.id);
        let Some(model) = model.or_else(|| settings.direct_model(&scan.model)) else {
            return Err(Some(Fault::UnknownModel { model: Some(scan.model) }));
        };
        request.model = Some(Arc::clone(model));
        let tokens = intake::input_tokens(&body, 0).await.max(1);
        Ok(estimate::answer(request.surface, tokens))
    }

    /// Reads the body and finds out what it asks for. `Err(None)` = the client is gone.
    async fn plan(
        &self,
        connection: &mut Connection,
        request: &mut Request,
        head: &RequestHead,
        permit: Permit,
    ) -> Result<Box<Plan>, Option<Fault>> {
        let settings = &self.state.settings;
        let auth = &settings.openai.provider_auth;
        let provider_auth = auth.take(&head.headers).map_err(Some)?;
        let Taken { body, scan } = intake::take(&self.state, connection, head).await?;
        let (group, window, generation) = match settings.model(&scan.model) {
            Some(model) => (Arc::clone(&model.id), model.context_window_tokens, model.generation),
            // Of what stands behind a direct route nothing but its name is known.
            None => match settings.direct_model(&scan.model) {
                Some(model) => (Arc::clone(model), None, GenerationPolicy::default()),
                None => return Err(Some(Fault::UnknownModel { model: Some(scan.model) })),
            },
        };
        request.model = Some(Arc::clone(&group));
        let threshold = settings.long_context_threshold_tokens;
        let tokens = intake::input_tokens(&body, threshold.min(window.unwrap_or(u64::MAX))).await;
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
            surface: request.surface,
            group,
            needs: request.surface.needs(scan.stream),
            window,
            generation,
            long: tokens >= threshold,
            headers: intake::wire_headers(head, auth.enabled.then_some(&*auth.from_header)),
            provider_auth,
            scan,
            body,
            request_id: Arc::clone(&request.id),
            allow_origin: request.allow_origin.clone(),
            started: request.started,
        }))
    }

    async fn local(
        &self,
        connection: &mut Connection,
        request: &Request,
        body: &[u8],
        fields: &[(&str, &str)],
    ) -> bool {
        let sent = response::json(connection, body, fields, &request.answer()).await.is_ok();
        self.log(request, 200, if sent { "ok" } else { CLIENT_GONE });
        sent
    }

    async fn refuse(&self, connection: &mut Connection, request: &Request, fault: &Fault) -> bool {
        let sent = response::refuse(connection, fault, &request.answer()).await.is_ok();
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
            recovery = ended.recovery,
            providers = ended.providers.as_deref(),
            status = ended.status,
            outcome = ended.outcome,
            queue_ms = millis(ended.queued),
            first_byte_ms = ended.first_byte.map(millis),
            bytes = ended.bytes,
            input_tokens = ended.usage.and_then(|usage| usage.counts.input_total()),
            output_tokens = ended.usage.and_then(|usage| usage.counts.output),
            usage = ended.usage.filter(|usage| usage.state != State::Known).map(|usage| usage.state.label()),
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

/// What to tell a client whose head is refused; `None` when nobody would read it.
fn fault_of_head(fault: &RequestFault) -> Option<Fault> {
    Some(match fault.status()? {
        408 => Fault::RequestTimeout,
        417 => Fault::ExpectationFailed,
        431 => Fault::HeadTooLarge,
        _ => Fault::BadFraming { detail: fault.to_string().into() },
    })
}
