//! One connection to the Edge, from the dial to its end.
//!
//! | Module | Owns | Pure |
//! |---|---|---|
//! | [`registration`] | the way from connected to ready | yes |
//! | `core` | what every message leads to | no |
//! | [`refresh`] | which changes a running Node can take | yes |
//! | [`command`] | answers to queries | in part |
//! | [`observation`] | the numbers of what is observed of providers | yes |
//!
//! ```text
//!   resolve ─▶ dial ─▶ TLS ─▶ Register ─▶ apply ─▶ NodeReady ─▶ ack ─▶ serve ─▶ lost | drained
//! ```
//! Losing the session cancels every run of it (PRE-2); nothing of a session outlives it but the connections to providers.

pub mod command;
mod core;
pub mod observation;
pub mod refresh;
pub mod registration;

use std::{cell::Cell, pin::pin, rc::Rc, sync::Arc, time::Duration};

use bytes::BytesMut;
use dataplane::{
    clock,
    local::Latch,
    net::{Stream, dial},
    relay::{CloseReason, Established, Link, LinkHandle, LinkLimits, connect as handshake},
    shard::spawn_guarded,
    time::{before, sleep_until},
    tls::config::{HANDSHAKE_TIMEOUT, server_name},
};
use futures::future::{Either, select};
use proto::{
    identity::Name,
    message::{Message, NodeConfigPayload},
};
use rustls::ClientConfig;

use self::core::{Core, Dispatcher, Event};
use crate::{
    adapters::{AdapterSet, Provider},
    config::EdgeTarget,
    metrics::Metrics,
    resolve::Resolver,
    run::{
        assembly::AssemblyBudget,
        control::{RUNS_MAX, Stop},
    },
    supervisor::Failure,
};
use registration::{ANSWER_TIMEOUT, Refusal, Registration};

/// How long the name of the Edge may take to be resolved.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one address of the Edge may take to answer.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of a link is waited for at shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// What every session of this Node uses.
#[derive(Clone, Debug)]
pub struct Context {
    /// The Node ID.
    pub name: Name,
    /// Whom to dial.
    pub edge: EdgeTarget,
    /// Our certificate, and the one Edge we accept.
    pub tls: Arc<ClientConfig>,
    /// The optional second factor; empty for none, never logged.
    pub token: String,
    /// For the name of the Edge.
    pub resolver: Resolver,
    /// What runs need to reach providers.
    pub provider: Rc<Provider>,
    /// Counters.
    pub metrics: Rc<Metrics>,
    /// Memory of large request bodies.
    pub budget: AssemblyBudget,
    /// Bounds and heartbeat of the link; the defaults but in tests.
    pub limits: LinkLimits,
}

impl Context {
    /// The bounds of a Node's link.
    #[must_use]
    pub fn link_limits() -> LinkLimits {
        let mut limits = LinkLimits::default();
        limits.mux.streams_max = RUNS_MAX;
        limits
    }
}

/// Why a dial did not become a ready session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialFailure {
    /// At which step.
    pub failure: Failure,
    /// For people.
    pub why: String,
}

impl DialFailure {
    fn new(failure: Failure, error: &dyn std::error::Error) -> Self {
        let mut why = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            why = format!("{why}: {cause}");
            source = cause.source();
        }
        Self { failure, why }
    }
}

/// A ready session. Its drop ends the connection and cancels its runs.
#[derive(Debug)]
pub struct Session {
    core: Rc<Core>,
    ended: Rc<Ended>,
    _end: EndLink,
}

/// Whether and why the link has ended.
#[derive(Debug, Default)]
struct Ended {
    reason: Cell<Option<CloseReason>>,
    latch: Latch,
}

impl Ended {
    async fn reason(&self) -> CloseReason {
        self.latch.closed().await;
        self.reason.get().unwrap_or(CloseReason::Internal)
    }
}

/// Ends the link with whoever waited for it.
#[derive(Debug)]
struct EndLink(LinkHandle);

impl Drop for EndLink {
    fn drop(&mut self) {
        self.0.shutdown(CloseReason::Draining);
    }
}

/// Dials the Edge and makes a ready session of the connection. May be dropped at any time; the connection is closed then.
///
/// # Errors
/// [`DialFailure`].
pub async fn connect(context: &Context) -> Result<Session, DialFailure> {
    let stream = dial_edge(context).await?;
    let peer = stream.peer_addr();
    let name = server_name(&context.edge.host);
    let established = handshake(stream, Arc::clone(&context.tls), name, clock::now() + HANDSHAKE_TIMEOUT)
        .await
        .map_err(|error| DialFailure::new(Failure::Tls, &error))?;
    tracing::debug!(%peer, edge = %context.edge.name, "tls established");
    register(context, established).await
}

async fn dial_edge(context: &Context) -> Result<Stream, DialFailure> {
    let EdgeTarget { host, port, .. } = &context.edge;
    let resolving = context.resolver.resolve(host, *port);
    let addresses = match before(clock::now() + RESOLVE_TIMEOUT, resolving).await {
        Some(resolved) => resolved.map_err(|error| DialFailure::new(Failure::Resolve, &error))?,
        None => {
            let why = format!("{host} was not resolved within {} s", RESOLVE_TIMEOUT.as_secs());
            return Err(DialFailure { failure: Failure::Resolve, why });
        }
    };
    let mut last = DialFailure { failure: Failure::Resolve, why: format!("{host} has no address") };
    for address in addresses {
        match dial(address, clock::now() + DIAL_TIMEOUT).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = DialFailure::new(Failure::Connect, &error),
        }
    }
    Err(last)
}

async fn register(context: &Context, established: Established) -> Result<Session, DialFailure> {
    let Established { stream, session, early } = established;
    let link = Link::new(session, context.limits);
    let handle = link.handle();
    let (registration, first) = Registration::start(context.name.clone(), context.token.clone());
    let core = Rc::new(Core::new(
        handle.clone(),
        registration,
        Rc::clone(&context.provider),
        context.budget.clone(),
        Rc::clone(&context.metrics),
    ));
    let ended = Rc::new(Ended::default());
    let end = EndLink(handle.clone());
    let finish = FinishSession { core: Rc::clone(&core), ended: Rc::clone(&ended) };
    spawn_guarded(run_link(link, stream, early, finish));
    handle.send(first);
    let config = match answer(&core, &ended).await? {
        Event::Apply(config) => *config,
        Event::Ready | Event::Refused(..) => {
            return Err(refused(Failure::Registration, &Refusal::Unexpected));
        }
    };
    apply(context, &core, config).await?;
    match answer(&core, &ended).await? {
        Event::Ready => Ok(Session { core, ended, _end: end }),
        Event::Apply(_) | Event::Refused(..) => Err(refused(Failure::Readiness, &Refusal::Unexpected)),
    }
}

/// Cancels every run and tells that the link is over, whatever ends its task.
struct FinishSession {
    core: Rc<Core>,
    ended: Rc<Ended>,
}

impl Drop for FinishSession {
    fn drop(&mut self) {
        self.core.runs.stop_all(Stop::SessionLost);
        self.ended.latch.close();
    }
}

async fn run_link(link: Link, stream: Stream, early: BytesMut, finish: FinishSession) {
    let mut dispatcher = Dispatcher(Rc::clone(&finish.core));
    let reason = link.run(stream, early, &mut dispatcher).await;
    finish.ended.reason.set(Some(reason));
}

/// The next thing that the reader tells, within [`ANSWER_TIMEOUT`] and the life of the link.
async fn answer(core: &Core, ended: &Ended) -> Result<Event, DialFailure> {
    let next = async {
        let event = match select(pin!(core.events.pop()), pin!(ended.reason())).await {
            Either::Left((event, _)) => Ok(event),
            // What the reader told last counts, the end is only its consequence.
            Either::Right((reason, _)) => core.events.try_pop().ok_or(reason),
        };
        match event {
            Ok(Event::Refused(failure, refusal)) => Err(refused(failure, &refusal)),
            Ok(event) => Ok(event),
            Err(reason) => Err(broken(reason)),
        }
    };
    match before(clock::now() + ANSWER_TIMEOUT, next).await {
        Some(result) => result,
        None => Err(refused(core.failure(), &Refusal::TimedOut)),
    }
}

fn refused(failure: Failure, refusal: &Refusal) -> DialFailure {
    DialFailure::new(failure, refusal)
}

/// On TLS 1.3 the Edge's judgement of our certificate arrives on the established link.
fn broken(reason: CloseReason) -> DialFailure {
    let failure = if matches!(reason, CloseReason::Tls { .. }) { Failure::Tls } else { Failure::Broken };
    DialFailure {
        failure,
        why: format!("the connection ended before the node was ready: {reason} (the edge's log says why)"),
    }
}

/// Builds the adapters and resolves the names of their providers, then says that the Node is ready.
async fn apply(context: &Context, core: &Core, config: NodeConfigPayload) -> Result<(), DialFailure> {
    dataplane::panic_point!("node.apply");
    let adapters = AdapterSet::build(&config).map_err(|error| DialFailure::new(Failure::Apply, &error))?;
    context.provider.prepare(&adapters.origins()).await;
    let (usable, all) = adapters.counts();
    tracing::info!(
        generation = config.config_generation,
        adapters = all,
        usable,
        providers = config.providers.len(),
        "configuration applied"
    );
    core.applied(config, adapters);
    Ok(())
}

impl Session {
    /// Serves until the connection ends; why it did. May be dropped freely, and asked again.
    pub async fn lost(&self) -> CloseReason {
        self.ended.reason().await
    }

    /// Takes no new work from now on and tells the Edge, once. What is on its way is answered with `busy`; nothing of it
    /// runs.
    pub fn drain(&self) {
        if !self.core.draining.replace(true) {
            self.core.link.send(Message::NodeDraining);
        }
    }

    /// Waits until no run is left and everything that they said has been sent. May be dropped freely.
    pub async fn idle(&self) {
        self.core.runs.idle().await;
        while self.core.link.has_stream_data() && !self.core.link.is_stopping() {
            sleep_until(clock::now() + FLUSH_POLL).await;
        }
    }

    /// Runs that have not ended.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.core.runs.len()
    }

    /// Says goodbye with `draining` and closes; waits a moment for the end of the link and of its runs.
    pub async fn close(self) {
        self.core.link.shutdown(CloseReason::Draining);
        let over = async {
            self.ended.reason().await;
            // Broken-off runs close their connections to providers as they end.
            self.core.runs.idle().await;
        };
        let _in_time = before(clock::now() + CLOSE_TIMEOUT, over).await;
    }
}

/// How often a drain looks whether the last frames have left.
const FLUSH_POLL: Duration = Duration::from_millis(5);
