//! A Node's connection on its shard: handshake, registration, and the routing of frames to the requests' shards.
//!
//! ```text
//!   accepted ──TLS, role, name──► Unregistered ──Register──► Asking ──accepted──► Pending ──Ready──► Ready
//! ```
//! What the states mean is control's business; this module carries its answers out and passes on what arrives.

mod accept;
mod commands;
mod handler;
mod streams;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
};

use anyhow::Context;
use bytes::Bytes;
use control::{
    effect::{Probe, ReadinessRefusal, RegistrationRefusal},
    input::{ConnectionId, Input, LeaseId},
};
use dataplane::{
    clock,
    relay::{CloseReason, LinkHandle},
    tls::{
        config::{Trust, edge_server_config},
        local::LocalIdentity,
        pem,
    },
};
use proto::{
    identity::{Name, Role},
    limits::WINDOW_BYTES_DEFAULT,
    message::{Cancel, Message, NodeCommandRequest, NodeReadyResponse, RegisterResponse},
};
use rustls::ServerConfig;

use crate::{
    config::Settings,
    mail::{NodeQuestion, Open, RequestMessage, Told},
    shard_state::ShardState,
};
pub use accept::accept_loop;
use commands::Commands;
use streams::Streams;

/// The command that asks whether a provider serves a target (CAP-1).
const CAPABILITIES: &str = "capabilities";

/// The Edge's end of the Node link's TLS: our identity, and the CA that Nodes must be signed by. With it comes when our
/// certificate ends, in seconds since 1970.
///
/// # Errors
/// A file is missing or wrong, or the certificate is not for this Edge's name.
pub fn server_config(settings: &Settings) -> anyhow::Result<(Arc<ServerConfig>, u64)> {
    let read = |path: &std::path::Path| std::fs::read(path).with_context(|| path.display().to_string());
    let files = &settings.identity;
    let (cert, key, ca) = (read(&files.cert)?, read(&files.key)?, read(&files.node_ca)?);
    let identity = LocalIdentity::load(&cert, &key, Role::Edge, Some(&settings.edge.name))
        .with_context(|| files.cert.display().to_string())?;
    let roots = pem::certs(&ca).with_context(|| files.node_ca.display().to_string())?;
    let trust = Trust::new(roots).with_context(|| files.node_ca.display().to_string())?;
    Ok((edge_server_config(&identity, &trust)?, identity.peer().not_after))
}

/// One Node connection past its handshake.
#[derive(Debug)]
pub struct NodeLink {
    id: ConnectionId,
    name: Name,
    handle: LinkHandle,
    streams: RefCell<Streams>,
    commands: RefCell<Commands>,
    registered: Cell<bool>,
    /// Whether control has told it that it is ready: before that nothing is asked of it (REG-5).
    ready: Cell<bool>,
    asked: Cell<u32>,
    state: Rc<ShardState>,
}

impl NodeLink {
    pub(crate) fn new(id: ConnectionId, name: Name, handle: LinkHandle, state: Rc<ShardState>) -> Self {
        Self {
            id,
            name,
            handle,
            streams: RefCell::default(),
            commands: RefCell::default(),
            registered: Cell::new(false),
            ready: Cell::new(false),
            asked: Cell::new(0),
            state,
        }
    }

    /// Runs that were sent out on it and are not over.
    #[cfg(test)]
    pub(crate) fn runs(&self) -> usize {
        self.handle.streams()
    }

    /// Control's answer to a registration.
    pub fn registration(&self, outcome: Result<(), RegistrationRefusal>) {
        self.state.metrics.registration(registration_label(outcome));
        match outcome {
            Ok(()) => {
                let Some(node) = self.state.settings.node(self.name.as_str()) else {
                    return self.close(CloseReason::Internal);
                };
                self.registered.set(true);
                self.handle.restart_heartbeat();
                self.handle.send(Message::RegisterResponse(RegisterResponse::Accepted {
                    node_id: self.name.clone(),
                    config: (*node.payload).clone(),
                }));
                tracing::info!(node = %self.name, connection = self.id.0, "node registered, pending");
            }
            Err(refusal) => {
                tracing::warn!(node = %self.name, connection = self.id.0, reason = registration_label(outcome), "registration refused");
                let reason = registration_words(refusal).to_owned();
                self.handle.send(Message::RegisterResponse(RegisterResponse::Rejected { reason }));
                // A connection that owns a Node keeps what it has (REG-1); any other one is of no use.
                if !self.registered.get() {
                    self.close(CloseReason::Rejected);
                }
            }
        }
    }

    /// Control's answer to a ready request.
    pub fn readiness(&self, outcome: Result<(), ReadinessRefusal>) {
        let (ready, reason) = match outcome {
            Ok(()) => (true, ""),
            Err(ReadinessRefusal::Stale) => {
                (false, "this connection is not the current owner of its node id")
            }
            Err(ReadinessRefusal::NotRegistered) => (false, "ready came before an accepted registration"),
            Err(ReadinessRefusal::IdentityMismatch) => {
                (false, "ready names another node id than was registered")
            }
        };
        self.handle.send(Message::NodeReadyResponse(NodeReadyResponse { ready, reason: reason.to_owned() }));
        self.ready.set(ready);
        if !ready {
            tracing::warn!(node = %self.name, connection = self.id.0, reason, "ready refused");
            self.close(CloseReason::Rejected);
        }
    }

    /// Closes the connection; the first reason counts.
    pub fn close(&self, reason: CloseReason) {
        self.handle.shutdown(reason);
    }

    /// Sends a request out, or gives it back to control. A link that cannot take it is closed for control first, or
    /// control would grant it the same link again.
    pub fn start(&self, open: &mut Open) {
        let usable = !self.handle.is_stopping();
        if usable && !open.claim.send() {
            // Its generation has been fenced, and its request's shard knows: control may have it back.
            return self.state.input(Input::NotSent { lease: open.lease });
        }
        if !usable || !self.try_start(open) {
            open.claim.unsend();
            self.close(CloseReason::Internal);
            self.state.input(Input::ConnectionClosed { connection: self.id });
            self.state.input(Input::NotSent { lease: open.lease });
        }
    }

    fn try_start(&self, open: &mut Open) -> bool {
        let Some(request) = open.request_message.take() else { return false };
        let stream = self.streams.borrow_mut().add(open.lease, open.request);
        let (bytes, window_bytes) = (open.body.len() as u64, WINDOW_BYTES_DEFAULT);
        let inline = open.body.len() <= proto::body::INLINE_BODY_MAX;
        let first = if inline { open.body.joined() } else { Bytes::new() };
        let message = match request {
            RequestMessage::Tunnel(mut tunnel) => {
                (tunnel.stream, tunnel.body_bytes, tunnel.window_bytes) = (stream, bytes, window_bytes);
                tunnel.body = first;
                Message::TunnelRequest(tunnel)
            }
            RequestMessage::Run(mut run) => {
                (run.stream, run.input_bytes, run.window_bytes) = (stream, bytes, window_bytes);
                run.input = first;
                Message::RunRequest(run)
            }
        };
        let sent = self.handle.open(stream, WINDOW_BYTES_DEFAULT, WINDOW_BYTES_DEFAULT).is_ok()
            && self.handle.queue(stream, message).is_ok()
            && (inline || self.handle.queue_pieces(stream, open.body.pieces().iter().cloned()).is_ok());
        if !sent {
            self.handle.close(stream);
            self.streams.borrow_mut().remove(stream);
        }
        sent
    }

    /// The request's holder is gone: stop the run, and keep its number until the Node's terminal settles the lease.
    pub fn cancel(&self, lease: LeaseId) {
        let now = clock::now();
        let stream = self.streams.borrow_mut().cancel(lease, now);
        while let Some(stale) = self.expire(now) {
            self.handle.close(stale);
        }
        if let Some(stream) = stream {
            self.handle.send(Message::Cancel(Cancel { stream, run_id: String::new() }));
        }
    }

    fn expire(&self, now: std::time::Instant) -> Option<u64> {
        self.streams.borrow_mut().expire(now)
    }

    /// Asks the Node whether a provider that is taken out serves its target again (CAP-3). A connection that is not, or no
    /// longer, of use is not asked: control has its own timer for the next time.
    pub fn probe(&self, probe: Probe) {
        if !self.ready.get() || self.handle.is_stopping() {
            return;
        }
        self.commands.borrow_mut().sent(probe.provider, probe.command);
        self.handle.send(Message::NodeCommandRequest(Box::new(NodeCommandRequest {
            request_id: probe.command.0,
            command: CAPABILITIES.to_owned(),
            adapter: probe.adapter.to_string(),
            target: probe.target.to_string(),
            arguments: BTreeMap::new(),
            credential: None,
        })));
    }

    /// Whether this is the connection to ask about `node`.
    pub fn takes_questions(&self, node: &str) -> bool {
        self.name.as_str() == node && self.ready.get() && !self.handle.is_stopping()
    }

    /// Sends the question of an operator on.
    pub fn ask(&self, question: NodeQuestion) {
        let NodeQuestion { token, from, command, adapter, target, arguments, .. } = question;
        let (number, displaced) = self.commands.borrow_mut().ask((from, token));
        if let Some((shard, token)) = displaced {
            self.state.tell(shard, token, Told::Busy);
        }
        self.handle.send(Message::NodeCommandRequest(Box::new(NodeCommandRequest {
            request_id: number.0,
            command,
            adapter,
            target,
            arguments,
            credential: None,
        })));
    }

    /// The connection is over: nobody waits for its answers any more.
    fn give_up_questions(&self) {
        let waiting = self.commands.borrow_mut().give_up();
        for (shard, token) in waiting {
            self.state.tell(shard, token, Told::Lost);
        }
    }

    /// The request's shard passed on so many body bytes.
    pub fn release(&self, lease: LeaseId, bytes: usize) {
        let stream = self.streams.borrow().of(lease);
        if let Some(stream) = stream {
            self.handle.release(stream, bytes);
        }
    }
}

/// Ends every Node connection of the shard in good order.
pub async fn close_all(state: &Rc<ShardState>) {
    let links: Vec<_> = state.links.borrow().values().map(Rc::clone).collect();
    for link in &links {
        link.close(CloseReason::Draining);
    }
    for link in links {
        link.handle.ended().await;
    }
}

/// Control's reason as the link's.
pub fn close_reason(reason: control::effect::CloseReason) -> CloseReason {
    match reason {
        control::effect::CloseReason::Superseded => CloseReason::Superseded,
        control::effect::CloseReason::ReadyTimeout => CloseReason::ReadyTimeout,
        control::effect::CloseReason::Removed => CloseReason::Rejected,
    }
}

fn registration_label(outcome: Result<(), RegistrationRefusal>) -> &'static str {
    match outcome {
        Ok(()) => "accepted",
        Err(RegistrationRefusal::IdentityMismatch) => "identity_mismatch",
        Err(RegistrationRefusal::UnknownNode) => "unknown_node",
        Err(RegistrationRefusal::BadToken) => "bad_token",
        Err(RegistrationRefusal::AlreadyRegistered) => "already_registered",
        Err(RegistrationRefusal::Stale) => "stale",
    }
}

fn registration_words(refusal: RegistrationRefusal) -> &'static str {
    match refusal {
        RegistrationRefusal::IdentityMismatch => "the node id is not the name in the certificate",
        RegistrationRefusal::UnknownNode => "the edge's configuration has no node of this name",
        RegistrationRefusal::BadToken => "the node token is missing or wrong",
        RegistrationRefusal::AlreadyRegistered => "this connection has registered already",
        RegistrationRefusal::Stale => "this connection was superseded",
    }
}
