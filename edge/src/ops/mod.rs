//! The operators' surface: `/healthz`, `/readyz`, `/metrics`, `/status`, on the ops listener, loopback by default, and on the
//! admin socket, which only the Edge's own user can open. It shows no secret, no address and no token (SNP-4). What control was told,
//! `/inputs`, and questions to Nodes, `/node-command`, are for the admin socket alone.

mod answer;
pub mod document;
pub(crate) mod inputs;
pub mod node_command;
pub mod query;

use std::{rc::Rc, sync::Arc};

use dataplane::{
    crowd::{Crowd, Place},
    http::{head::Method, limits::Limits, server::Connection},
    net::{Listener, Stream},
    panic_point,
    shard::spawn_guarded,
};
use futures::future::{Either, select};

use answer::Answer;
pub use answer::OnceTasks;

use crate::{response, shard_state::ShardState};

/// Connections of operators to one of the two; over it the oldest one gives way, so that mute or slow ones keep nobody out.
const CONNECTIONS_MAX: usize = 64;

/// Who can connect to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Whoever reaches the address.
    Network,
    /// The user that the Edge runs as.
    Owner,
}

impl Audience {
    /// What there is for it.
    fn paths(self) -> &'static str {
        match self {
            Self::Network => "there are /healthz, /readyz, /metrics and /status",
            Self::Owner => "there are /healthz, /readyz, /metrics, /status, /inputs and /node-command",
        }
    }
}

/// Serves operators until the process stops. One of them can be served even when the process has no descriptor left.
pub async fn accept_loop(
    state: Rc<ShardState>,
    listener: Listener,
    audience: Audience,
    tasks: Arc<OnceTasks>,
) {
    let mut listener = listener.with_reserve();
    let mut crowd = Crowd::new(CONNECTIONS_MAX);
    loop {
        let stopping = std::pin::pin!(state.stopping.closed());
        let accepted = std::pin::pin!(listener.accept());
        let Either::Left((accepted, _)) = select(accepted, stopping).await else { return };
        let Ok(stream) = accepted else {
            state.metrics.accepts_exhausted.inc();
            continue;
        };
        let (place, displaces) = crowd.enter();
        state.metrics.ops_displaced.inc_by(u64::from(displaces));
        let serving = serve(Rc::clone(&state), stream, audience, Arc::clone(&tasks));
        spawn_guarded(unless_displaced(serving, place));
    }
}

async fn unless_displaced(serving: impl Future<Output = ()>, place: Place) {
    let _over = select(std::pin::pin!(serving), std::pin::pin!(place.displaced())).await;
}

async fn serve(state: Rc<ShardState>, stream: Stream, audience: Audience, tasks: Arc<OnceTasks>) {
    let mut connection = Connection::new(stream, Rc::new(Limits::default()));
    while let Ok(Some(head)) = connection.next_request().await {
        panic_point!("edge.ops");
        let answer = if head.method == Method::Get {
            let found = answer::to(&state, &head.target, audience, &tasks).await;
            found.unwrap_or_else(|| Answer::text(404, audience.paths()))
        } else {
            Answer::text(405, "only GET")
        };
        if response::text(&mut connection, answer.status, answer.kind, &answer.body).await.is_err() {
            return;
        }
    }
    connection.close().await;
}
