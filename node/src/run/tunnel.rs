//! One tunnel from its request to its terminal.
//!
//! ```text
//!   request ─▶ body whole? ─▶ provider exchange ─▶ END | ERROR
//!        └──────────┴───────────────┴── cancel, session lost, deadline, stall ─▶ provider returns ─▶ ERROR
//! ```
//!
//! What stops a run, and what is waited for then, is in [`supervise`](super::supervise).

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

use dataplane::{clock, http::client::Custody, panic_point};
use proto::message::{ErrorKind, TunnelRequest};

use super::{
    assembly::{self, Reservation},
    control::RunControl,
    supervise::{Supervisor, Watch},
    terminal::{End, Failed, Terminal},
};
use crate::adapters::{
    Adapter, Kind, Provider,
    native::Leftover,
    openai_compat::{
        Prepared,
        exchange::{Downstream, Upload, exchange},
    },
};

/// A tunnel that was let through the gate.
#[derive(Debug)]
pub struct Tunnel {
    /// What the Edge asked for.
    pub request: Box<TunnelRequest>,
    /// When it did.
    pub received: Instant,
    /// Who executes it.
    pub adapter: Rc<Adapter>,
    /// What the session can tell it.
    pub control: Rc<RunControl>,
    /// Its end of the stream.
    pub terminal: Terminal,
    /// Room for its body, where that follows in parts.
    pub reservation: Option<Reservation>,
    /// What watches it.
    pub watch: Watch,
}

impl Tunnel {
    /// Runs the tunnel to its one terminal.
    pub async fn run(self, provider: Rc<Provider>) {
        panic_point!("node.run");
        let (run, first) = self.begin();
        run.finish(first, &provider).await;
    }

    /// Keeps what a run needs to its end. What is left of the request holds slices of the link's read buffer, and a stream may be
    /// silent for long.
    fn begin(self) -> (Run, First) {
        let Self { request, received, adapter, control, terminal, reservation, watch } = self;
        let prepared = prepare(&adapter, &request);
        let TunnelRequest { run_id, stream, body, body_bytes, timeout_sec, .. } = *request;
        let deadline = deadline(received, timeout_sec);
        let run = Run { run_id, stream, deadline, adapter, control, terminal, watch };
        (run, First { prepared, body_bytes, upload: Upload { body, reservation } })
    }
}

/// What a run begins with.
struct First {
    prepared: Result<Prepared, Failed>,
    body_bytes: u64,
    /// The first part of the body, or all of it.
    upload: Upload,
}

/// A run under way.
struct Run {
    run_id: String,
    stream: u64,
    deadline: Option<Instant>,
    adapter: Rc<Adapter>,
    control: Rc<RunControl>,
    terminal: Terminal,
    watch: Watch,
}

impl Run {
    async fn finish(self, first: First, provider: &Provider) {
        let leftover = Leftover::default();
        let supervisor = Supervisor {
            provider,
            adapter: &self.adapter,
            control: &self.control,
            leftover: &leftover,
            watch: &self.watch,
            deadline: self.deadline,
        };
        let work = self.execute(first, provider, &leftover.connection);
        let ended = supervisor.run(work, |failure| self.terminal.fence(failure)).await;
        let (run, stream) = (self.run_id.as_str(), self.stream);
        match &ended.result {
            Ok(_) => tracing::debug!(run, stream, "tunnel completed"),
            Err(failure) => report(run, stream, failure, Words::Ours),
        }
        ended.finish(self.terminal).await;
    }

    async fn execute(&self, first: First, provider: &Provider, custody: &Custody) -> Result<End, Failed> {
        let First { prepared, body_bytes, upload: Upload { body, reservation } } = first;
        let prepared = prepared?;
        let body = assembly::whole(&self.control, &self.terminal, body, body_bytes).await?;
        let upload = Upload { body, reservation };
        self.watch.start();
        let downstream =
            Downstream { terminal: &self.terminal, credit: &self.control.credit, watch: &self.watch };
        exchange(provider, prepared, upload, downstream, custody).await?;
        Ok(End::Answered)
    }
}

/// Whose words a failure may be told in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// This Node's own.
    Ours,
    /// Also a backend's, which may repeat what it was asked: they are for the client, and not for a log (OBS-4).
    Backends,
}

/// A failure of the provider's is worth a warning, but not one for each of a thousand requests.
pub(super) fn report(run: &str, stream: u64, failure: &Failed, words: Words) {
    const PAUSE: Duration = Duration::from_secs(10);
    thread_local! {
        static WARNED: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    let now = clock::now();
    let is_due = WARNED.get().is_none_or(|last| now.saturating_duration_since(last) >= PAUSE);
    match failure {
        Failed::Error(kind, error) => {
            // Nothing has been asked where there is no connection: why is this Node's to say.
            let is_ours = words == Words::Ours || *kind == ErrorKind::Connect;
            let error = if is_ours { error } else { "in the backend's words, which only the client is told" };
            if is_due && is_the_providers(*kind) {
                WARNED.set(Some(now));
                tracing::warn!(run, kind = kind.as_str(), error, "provider failed");
            } else {
                tracing::debug!(run, stream, kind = kind.as_str(), error, "execution failed");
            }
        }
        _ => tracing::debug!(run, stream, ?failure, "execution failed"),
    }
}

fn is_the_providers(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Connect | ErrorKind::UpstreamProtocol | ErrorKind::UpstreamTruncated)
}

fn prepare(adapter: &Adapter, request: &TunnelRequest) -> Result<Prepared, Failed> {
    match &adapter.kind {
        Kind::OpenAiCompat(adapter) => adapter.prepare(request),
        Kind::Ollama(_) | Kind::Cli(_) => {
            Err(Failed::error(ErrorKind::InvalidRequest, "the adapter takes no tunnels"))
        }
        Kind::Unusable(reason) => Err(Failed::error(ErrorKind::InvalidRequest, reason)),
    }
}

/// The hard deadline (TUN-8), counted from the request's arrival; 0 is none.
pub(super) fn deadline(received: Instant, timeout_sec: u32) -> Option<Instant> {
    (timeout_sec != 0).then(|| received.checked_add(Duration::from_secs(u64::from(timeout_sec))))?
}
