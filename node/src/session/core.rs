//! What every message of the Edge leads to, from the first to the last of one connection.
//!
//! The link's reader calls [`Dispatcher`] with each message. Until the ready ack the messages go to the registration;
//! from the very message of the ack on they are served, so that a request in the same read is not lost.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Instant,
};

use bytes::Bytes;
use dataplane::{
    clock,
    local::Queue,
    relay::{CloseReason, Handler, Incoming, LinkHandle, StreamFault},
    shard::{boxed, spawn_guarded},
};
use proto::{
    limits::INLINE_BODY_MAX,
    message::{
        AdapterSettings, ErrorKind, ExecutionError, Message, NodeCommandRequest, NodeConfigPayload,
        NodeConfigRefreshRequest, NodeConfigRefreshResponse, RefreshOutcome, RunRequest, StreamNo,
        TunnelRequest,
    },
};

use super::{
    command::{
        self, Command, TransportStatus,
        desk::{self, Desk},
    },
    observation::Observations,
    refresh,
    registration::{Refusal, Registration, Step},
};
use crate::{
    adapters::{Adapter, AdapterSet, Kind, Provider},
    metrics::{Metrics, RunOutcome},
    run::{
        assembly::{ASSEMBLING_BYTES_MAX, AssemblyBudget, Reservation},
        control::{RunControl, RunTable, Stop},
        normalized::Normalized,
        stall::Subject,
        supervise::Watch,
        terminal::{Execution, Terminal},
        tunnel::Tunnel,
        watchdog::timeout,
    },
    supervisor::Failure,
};

/// What a session's task is told by its reader.
#[derive(Debug)]
pub(super) enum Event {
    /// Build what this names.
    Apply(Box<NodeConfigPayload>),
    /// The Edge acknowledged readiness.
    Ready,
    /// It did not; the link is ending.
    Refused(Failure, Refusal),
}

enum Stage {
    Registering(Registration),
    Serving,
}

/// One connection: its link, its stage, its runs.
pub(super) struct Core {
    pub(super) link: LinkHandle,
    pub(super) events: Queue<Event>,
    pub(super) runs: RunTable,
    pub(super) draining: Cell<bool>,
    stage: RefCell<Stage>,
    adapters: RefCell<Rc<AdapterSet>>,
    payload: RefCell<NodeConfigPayload>,
    provider: Rc<Provider>,
    budget: AssemblyBudget,
    metrics: Rc<Metrics>,
    observations: Rc<Observations>,
    /// Drawn for this connection: with the numbers of its executions it makes the Node's own names of them.
    name: u32,
    executions: Cell<u64>,
    desk: Desk,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("runs", &self.runs.len()).finish_non_exhaustive()
    }
}

impl Core {
    pub(super) fn new(
        link: LinkHandle,
        registration: Registration,
        provider: Rc<Provider>,
        budget: AssemblyBudget,
        metrics: Rc<Metrics>,
    ) -> Self {
        Self {
            link,
            events: Queue::new(),
            runs: RunTable::default(),
            draining: Cell::new(false),
            stage: RefCell::new(Stage::Registering(registration)),
            adapters: RefCell::default(),
            payload: RefCell::default(),
            provider,
            budget,
            metrics,
            observations: Rc::default(),
            // Without a working source of randomness connections are not told apart in logs, which harms nobody.
            name: getrandom::u32().unwrap_or_default(),
            executions: Cell::new(0),
            desk: Desk::default(),
        }
    }

    /// Everything that `payload` names is built: say so to the Edge.
    pub(super) fn applied(&self, payload: NodeConfigPayload, adapters: AdapterSet) {
        *self.adapters.borrow_mut() = Rc::new(adapters);
        *self.payload.borrow_mut() = payload;
        if let Stage::Registering(registration) = &mut *self.stage.borrow_mut() {
            self.link.send(registration.applied());
        }
    }

    /// The kind of failure that the end of the link is now.
    pub(super) fn failure(&self) -> Failure {
        match &*self.stage.borrow() {
            Stage::Registering(registration) => registration.failure(),
            Stage::Serving => Failure::Broken,
        }
    }

    /// Takes one message; `Some` is for the served part.
    fn register(&self, incoming: Incoming) -> Option<Incoming> {
        let mut stage = self.stage.borrow_mut();
        let Stage::Registering(registration) = &mut *stage else { return Some(incoming) };
        // No stream is open before the ready ack, so nothing but control messages can come.
        let Incoming::Control(message) = incoming else { return None };
        match registration.handle(message) {
            Ok(Step::Apply(config)) => self.events.push(Event::Apply(config)),
            Ok(Step::Ready) => {
                *stage = Stage::Serving;
                self.observations.bind();
                self.events.push(Event::Ready);
            }
            Err(refusal) => {
                let reason = if refusal == Refusal::Unexpected {
                    CloseReason::ProtocolError
                } else {
                    CloseReason::Rejected
                };
                self.events.push(Event::Refused(registration.failure(), refusal));
                self.link.shutdown(reason);
            }
        }
        None
    }

    fn serve(&self, incoming: Incoming) {
        match incoming {
            Incoming::Control(message) => self.control(message),
            Incoming::Data { stream, message, cost } => self.data(stream, message, cost),
            Incoming::Credit { stream } => {
                if let Some(run) = self.runs.find(stream) {
                    run.credit.set();
                }
            }
            Incoming::Cancel { stream } => self.stop(stream, Stop::Cancelled),
            Incoming::StreamFault { stream, fault } => {
                tracing::warn!(stream, %fault, "the edge broke the rules of a stream");
                self.stop(stream, Stop::PeerFault(fault_kind(fault)));
            }
            Incoming::Ignored => {}
        }
    }

    fn stop(&self, stream: StreamNo, why: Stop) {
        if let Some(run) = self.runs.find(stream) {
            run.stop(why);
        }
    }

    fn control(&self, message: Message) {
        match message {
            Message::TunnelRequest(request) => self.tunnel(request),
            Message::RunRequest(request) => self.run(request),
            Message::NodeConfigRefreshRequest(request) => self.refresh(request),
            Message::NodeCommandRequest(request) => {
                if let Err(why) = self.command(&request) {
                    desk::send(&self.link, request.request_id, Err(why));
                }
            }
            Message::Goodbye(goodbye) => tracing::info!(reason = goodbye.reason, "the edge said goodbye"),
            _ => tracing::debug!("a message that has no meaning now was skipped"),
        }
    }

    fn data(&self, stream: StreamNo, message: Message, cost: usize) {
        let Some(run) = self.runs.find(stream) else { return self.link.release(stream, cost) };
        match message {
            Message::BodyChunk(chunk) => run.chunks.push(chunk),
            _ => run.stop(Stop::PeerFault(ErrorKind::InvalidRequest)),
        }
    }

    fn status(&self) -> TransportStatus {
        let (adapters_usable, adapters) = self.adapters.borrow().counts();
        TransportStatus {
            runs: self.runs.len(),
            adapters_usable,
            adapters,
            config_generation: self.payload.borrow().config_generation,
            draining: self.draining.get(),
        }
    }

    /// Starts a tunnel, or refuses it before anything of a provider is touched.
    fn tunnel(&self, mut request: Box<TunnelRequest>) {
        let asked = Asked {
            execution: Execution::Tunnel,
            stream: request.stream,
            adapter: &request.adapter,
            target: &request.target,
            stall_timeout_ms: request.response_stall_timeout_ms,
            inline_bytes: request.body.len(),
            body_bytes: request.body_bytes,
            window_bytes: request.window_bytes,
            has_credential: request.credential.is_some(),
        };
        match self.admit(&asked) {
            Ok(Admitted { received, adapter, control, terminal, reservation, watch }) => {
                detach(&mut request.body);
                let tunnel = Tunnel { request, received, adapter, control, terminal, reservation, watch };
                spawn_guarded(boxed(|| tunnel.run(Rc::clone(&self.provider))));
            }
            Err(refused) => self.refuse(Execution::Tunnel, request.stream, refused),
        }
    }

    /// Starts a normalized run, the same way (RUN-1).
    fn run(&self, mut request: Box<RunRequest>) {
        let asked = Asked {
            execution: Execution::Run,
            stream: request.stream,
            adapter: &request.adapter,
            target: &request.target,
            stall_timeout_ms: request.response_stall_timeout_ms,
            inline_bytes: request.input.len(),
            body_bytes: request.input_bytes,
            window_bytes: request.window_bytes,
            has_credential: request.credential.is_some(),
        };
        match self.admit(&asked) {
            Ok(Admitted { received, adapter, control, terminal, reservation, watch }) => {
                detach(&mut request.input);
                let run = Normalized { request, received, adapter, control, terminal, reservation, watch };
                spawn_guarded(boxed(|| run.run(Rc::clone(&self.provider))));
            }
            Err(refused) => self.refuse(Execution::Run, request.stream, refused),
        }
    }

    fn refuse(&self, execution: Execution, stream: StreamNo, (kind, message): Refused) {
        if kind == ErrorKind::Busy {
            self.metrics.gate_busy.inc();
        }
        self.metrics.note_run(execution, RunOutcome::Failed(kind));
        tracing::debug!(stream, execution = execution.label(), %kind, message, "execution refused");
        // Sequence 0 is right: nothing else is ever sent on this stream.
        self.link.send(execution.failure(stream, ExecutionError { kind, message, failure: None }));
    }

    fn admit(&self, asked: &Asked<'_>) -> Result<Admitted, Refused> {
        let busy = |why: &str| (ErrorKind::Busy, why.to_owned());
        if self.draining.get() {
            return Err(busy("the node is draining"));
        }
        let stall_timeout = timeout::from_millis(asked.stall_timeout_ms)
            .map_err(|error| (ErrorKind::InvalidRequest, error.to_string()))?;
        let adapter = self.adapter(asked.adapter, asked.execution)?;
        if asked.has_credential {
            return Err((
                ErrorKind::Credential,
                "managed credentials are not available in this release".to_owned(),
            ));
        }
        let permit = adapter.gate.try_enter().ok_or_else(|| busy("the adapter's gate is full"))?;
        let chunked = asked.body_bytes > asked.inline_bytes as u64;
        let reservation = if chunked {
            if asked.body_bytes > ASSEMBLING_BYTES_MAX {
                // No wait makes room for it.
                let why = format!(
                    "a request body of {} bytes is over the node's memory for bodies",
                    asked.body_bytes
                );
                return Err((ErrorKind::InvalidRequest, why));
            }
            let room = self.budget.reserve(asked.body_bytes);
            Some(room.ok_or_else(|| busy("too many large request bodies at one time"))?)
        } else {
            None
        };
        let stream = asked.stream;
        let (entry, control) =
            self.runs.enter(stream).ok_or_else(|| busy("too many executions at one time"))?;
        // One window for each direction, both as large as the request says.
        let window = asked.window_bytes;
        self.link.open(stream, window, window).map_err(|error| busy(&error.to_string()))?;
        let terminal = Terminal::new(
            asked.execution,
            self.link.clone(),
            stream,
            Rc::clone(&self.metrics),
            permit,
            entry,
        );
        let received = clock::now();
        let watch = Watch::new(stall_timeout, self.subject(asked), Rc::clone(&self.observations), received);
        Ok(Admitted { received, adapter, control, terminal, reservation, watch })
    }

    /// Whose stall it would be, by the Edge's names of what is configured and the Node's own of the execution (STL-5).
    fn subject(&self, asked: &Asked<'_>) -> Subject {
        let number = self.executions.get().wrapping_add(1);
        self.executions.set(number);
        Subject {
            execution: asked.execution,
            adapter: asked.adapter.to_owned(),
            target: asked.target.to_owned(),
            session: self.name,
            number,
        }
    }

    fn adapter(&self, name: &str, execution: Execution) -> Result<Rc<Adapter>, Refused> {
        let invalid = |words: String| (ErrorKind::InvalidRequest, words);
        let adapter = self.adapters.borrow().find(name).map_err(|error| invalid(error.to_string()))?;
        match (&adapter.kind, execution) {
            (Kind::Unusable(reason), _) => Err(invalid(reason.clone())),
            (Kind::OpenAiCompat(_), Execution::Run) => {
                Err(invalid("the adapter takes tunnels only, no normalized runs".to_owned()))
            }
            (Kind::Ollama(_) | Kind::Cli(_), Execution::Tunnel) => {
                Err(invalid("the adapter takes normalized runs only, no tunnels".to_owned()))
            }
            (Kind::OpenAiCompat(_), Execution::Tunnel) | (Kind::Ollama(_) | Kind::Cli(_), Execution::Run) => {
                Ok(adapter)
            }
        }
    }

    /// Answers a query, or sees that it will be (CMD-1).
    fn command(&self, request: &NodeCommandRequest) -> Result<(), String> {
        match command::read(request)? {
            Command::Transport => {
                let (payload, adapters) = (self.payload.borrow(), self.adapters.borrow());
                let providers = payload
                    .providers
                    .iter()
                    .map(|it| (it.id.as_str(), adapters.lifecycle(&it.adapter, it.enabled)));
                let told = command::transport(self.status(), providers);
                desk::send(&self.link, request.request_id, Ok(told));
            }
            Command::Capabilities => {
                let adapter = self.adapters.borrow().find(&request.adapter).map_err(|it| it.to_string())?;
                let errand = self.desk.take(&self.link, request.request_id)?;
                let asked = (request.adapter.clone(), request.target.clone());
                let (provider, observations) = (Rc::clone(&self.provider), Rc::clone(&self.observations));
                errand.capabilities(provider, adapter, asked, observations);
            }
            Command::Ollama(call) => {
                let base_url = self.ollama_at(&request.adapter)?;
                let errand = self.desk.take(&self.link, request.request_id)?;
                errand.ollama(Rc::clone(&self.provider), base_url, call);
            }
        }
        Ok(())
    }

    /// Where the server of the Ollama adapter `name` is.
    fn ollama_at(&self, name: &str) -> Result<String, String> {
        let adapter = self.adapters.borrow().find(name).map_err(|error| error.to_string())?;
        let payload = self.payload.borrow();
        let config = payload.adapters.iter().find(|config| config.name == adapter.name);
        match config.map(|config| &config.settings) {
            Some(AdapterSettings::Ollama(settings)) => Ok(settings.base_url.clone()),
            _ => Err("the adapter is not of type ollama".to_owned()),
        }
    }

    fn refresh(&self, request: NodeConfigRefreshRequest) {
        let mut payload = self.payload.borrow_mut();
        let verdict = refresh::compare(&payload, &request.config);
        if verdict.outcome == RefreshOutcome::Applied {
            self.adapters.borrow().refresh(&request.config);
            *payload = request.config;
        }
        let (pieces, generation) = (verdict.pieces.len(), payload.config_generation);
        tracing::info!(generation, outcome = ?verdict.outcome, pieces, "configuration refresh");
        self.link.send(Message::NodeConfigRefreshResponse(NodeConfigRefreshResponse {
            request_id: request.request_id,
            config_generation: generation,
            outcome: verdict.outcome,
            reason: verdict.reason,
            pieces: verdict.pieces,
        }));
    }
}

/// What decides whether an execution is let in.
struct Asked<'a> {
    execution: Execution,
    stream: StreamNo,
    adapter: &'a str,
    target: &'a str,
    stall_timeout_ms: i64,
    /// Bytes of the body or input inside the request, and of all of it.
    inline_bytes: usize,
    body_bytes: u64,
    window_bytes: u32,
    has_credential: bool,
}

/// What an execution that was let in begins with.
struct Admitted {
    received: Instant,
    adapter: Rc<Adapter>,
    control: Rc<RunControl>,
    terminal: Terminal,
    reservation: Option<Reservation>,
    watch: Watch,
}

type Refused = (ErrorKind, String);

/// A slice would keep the link's whole read buffer for as long as the provider takes.
fn detach(body: &mut Bytes) {
    if body.len() <= INLINE_BODY_MAX {
        *body = Bytes::copy_from_slice(body);
    }
}

fn fault_kind(fault: StreamFault) -> ErrorKind {
    match fault {
        StreamFault::CreditExceeded(_) => ErrorKind::CreditExceeded,
        StreamFault::Sequence(_) | StreamFault::CreditOverflow(_) => ErrorKind::InvalidRequest,
    }
}

/// What the link's reader calls.
pub(super) struct Dispatcher(pub(super) Rc<Core>);

impl Handler for Dispatcher {
    fn on_incoming(&mut self, incoming: Incoming) {
        dataplane::panic_point!("node.session");
        if let Some(incoming) = self.0.register(incoming) {
            self.0.serve(incoming);
        }
    }

    fn on_batch_end(&mut self) {}
}
