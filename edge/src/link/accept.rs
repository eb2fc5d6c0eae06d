//! Accepting Nodes: who is not one of ours never gets to a frame.

use std::{cell::Cell, pin::pin, rc::Rc, sync::Arc, time::Duration};

use bytes::BytesMut;
use control::{input::Input, limits::READY_TIMEOUT};
use dataplane::{
    clock,
    crowd::{Crowd, Place},
    net::{Listener, Stream},
    relay::{CloseReason, Established, Link, LinkLimits, accept},
    shard::spawn_guarded,
    time::before,
    tls::{config::HANDSHAKE_TIMEOUT, refusal::Refusal, session::Session},
};
use futures::future::{Either, select};
use proto::message::{Goodbye, Message};
use rustls::ServerConfig;

use super::{NodeLink, handler::Router};
use crate::shard_state::ShardState;

/// How long a refused Node is given to take our word, and what is read from it at a time.
const REFUSAL_LINGER: Duration = Duration::from_millis(500);
const REFUSAL_READ: usize = 4096;
/// Handshakes of one shard that may be going on; over it the oldest one gives way, so that mute connections cannot keep
/// Nodes out: theirs take milliseconds.
const HANDSHAKES_MAX: usize = 256;

/// Accepts Nodes on one socket until the process stops.
pub async fn accept_loop(state: Rc<ShardState>, mut listener: Listener, tls: Arc<ServerConfig>) {
    let mut going_on = Crowd::new(HANDSHAKES_MAX);
    loop {
        let stream = {
            let stop = pin!(state.stopping.closed());
            let accepted = pin!(listener.accept());
            let Either::Left((accepted, _)) = select(accepted, stop).await else { return };
            accepted
        };
        let Ok(stream) = stream else {
            state.metrics.accepts_exhausted.inc();
            continue;
        };
        let (place, displaces) = going_on.enter();
        state.metrics.handshakes_displaced.inc_by(u64::from(displaces));
        spawn_guarded(admit(Rc::clone(&state), stream, Arc::clone(&tls), place));
    }
}

async fn admit(state: Rc<ShardState>, stream: Stream, tls: Arc<ServerConfig>, place: Place) {
    let peer = stream.peer_addr();
    let handshake = Box::pin(accept(stream, tls, clock::now() + HANDSHAKE_TIMEOUT));
    let ended = match select(handshake, pin!(place.displaced())).await {
        Either::Left((ended, _)) => ended,
        Either::Right(_) => return,
    };
    drop(place);
    match ended {
        Ok(established) => serve(state, established).await,
        Err(error) => {
            // A peer that goes away without a word gave no reason: a port scan, a health check.
            let reason = error.refusal().unwrap_or(Refusal::Protocol);
            state.metrics.handshake_refused(reason);
            tracing::warn!(%peer, reason = reason.label(), %error, "node refused in the handshake");
        }
    }
}

async fn serve(state: Rc<ShardState>, established: Established) {
    let Established { stream, session, early } = established;
    let peer = stream.peer_addr();
    let Some(identity) = session.peer().cloned() else {
        return state.metrics.handshake_refused(Refusal::NoCertificate);
    };
    let name = identity.name().clone();
    if state.settings.node(name.as_str()).is_none() {
        state.metrics.handshake_refused(Refusal::WrongName);
        tracing::warn!(%peer, node = %name, reason = Refusal::WrongName.label(), "node refused: not in the configuration");
        return refuse(stream, session).await;
    }
    let id = state.next_connection();
    let link = Link::new(session, LinkLimits::default());
    let node = Rc::new(NodeLink::new(id, name.clone(), link.handle(), Rc::clone(&state)));
    let entry = Entry::enter(Rc::clone(&node));
    spawn_guarded(await_registration(Rc::clone(&node)));
    tracing::info!(%peer, node = %name, connection = id.0, "node link up");
    let handle = link.handle();
    let reason = link.run(stream, early, &mut Router::new(node)).await;
    state.metrics.frames_ignored.inc_by(handle.stats().late);
    entry.reason.set(reason);
}

/// Closes a link that does not register in the time in which a registered one must be ready.
async fn await_registration(node: Rc<NodeLink>) {
    let until = clock::now() + READY_TIMEOUT;
    if before(until, node.handle.ended()).await.is_none() && !node.registered.get() {
        node.close(CloseReason::ReadyTimeout);
    }
}

/// Tells an unknown Node that it is not wanted: it will come back, in case the configuration has changed.
async fn refuse(mut stream: Stream, mut session: Session) {
    let (mut plain, mut out) = (Vec::new(), Vec::new());
    Message::Goodbye(Goodbye { reason: "not_configured".to_owned() }).encode(&mut plain);
    let _best_effort = session.send(&plain, &mut out);
    session.close(&mut out);
    let until = clock::now() + REFUSAL_LINGER;
    let (written, _) = stream.write_all(out, until).await;
    if written.is_err() {
        return;
    }
    // Its registration is on the way; a close over unread bytes would reset the connection and take our word with it.
    stream.shutdown_write();
    let mut sink = BytesMut::new();
    while let Some(Ok(1..)) = before(until, stream.read_some(&mut sink, REFUSAL_READ)).await {
        sink.clear();
    }
}

/// The link's place in the shard's table. However the link's task ends, control learns that the connection is closed.
struct Entry {
    link: Rc<NodeLink>,
    /// Why the link closed; a defect, until it is said otherwise.
    reason: Cell<CloseReason>,
}

impl Entry {
    fn enter(link: Rc<NodeLink>) -> Self {
        link.state.links.borrow_mut().insert(link.id, Rc::clone(&link));
        link.state.metrics.links.inc();
        Self { link, reason: Cell::new(CloseReason::Internal) }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let (link, reason) = (&self.link, self.reason.get());
        link.state.metrics.link_closed(reason);
        tracing::info!(node = %link.name, connection = link.id.0, %reason, "node link closed");
        link.state.links.borrow_mut().remove(&link.id);
        link.give_up_questions();
        link.state.metrics.links.dec();
        link.state.input(Input::ConnectionClosed { connection: link.id });
    }
}
