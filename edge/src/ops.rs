//! The operators' listener: `/healthz`, `/readyz`, `/metrics`, `/status`. Loopback by default; it holds no secret, no
//! address and no token (SNP-4).

use std::{rc::Rc, sync::Arc};

use control::{
    effect::{ProviderStatus, Snapshot},
    input::Input,
};
use dataplane::{
    crowd::{Crowd, Place},
    http::{head::Method, limits::Limits, server::Connection},
    local::Queue,
    net::{Listener, Stream},
    panic_point,
    shard::{TaskStats, spawn_guarded},
};
use futures::future::{Either, select};
use serde::Serialize;

use crate::{metrics::status_word, response, shard_state::ShardState};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// Prometheus text exposition format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Connections of operators; over it the oldest one gives way, so that mute or slow ones keep nobody out.
const CONNECTIONS_MAX: usize = 64;

/// Serves operators until the process stops. One of them can be served even when the process has no descriptor left.
pub async fn accept_loop(state: Rc<ShardState>, listener: Listener, tasks: Arc<OnceTasks>) {
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
        let serving = serve(Rc::clone(&state), stream, Arc::clone(&tasks));
        spawn_guarded(unless_displaced(serving, place));
    }
}

async fn unless_displaced(serving: impl Future<Output = ()>, place: Place) {
    let _over = select(std::pin::pin!(serving), std::pin::pin!(place.displaced())).await;
}

/// The task counters of all shards, known once all have started.
pub type OnceTasks = std::sync::OnceLock<Vec<Arc<TaskStats>>>;

async fn serve(state: Rc<ShardState>, stream: Stream, tasks: Arc<OnceTasks>) {
    let mut connection = Connection::new(stream, Rc::new(Limits::default()));
    while let Ok(Some(head)) = connection.next_request().await {
        panic_point!("edge.ops");
        let (status, kind, body) = if head.method == Method::Get {
            answer(&state, head.target.path(), &tasks).await
        } else {
            (405, TEXT, b"only GET\n".to_vec())
        };
        if response::text(&mut connection, status, kind, &body).await.is_err() {
            return;
        }
    }
    connection.close().await;
}

async fn answer(state: &Rc<ShardState>, path: &str, tasks: &OnceTasks) -> (u16, &'static str, Vec<u8>) {
    match path {
        // The process lives and its shard takes turns.
        "/healthz" => (200, TEXT, b"ok\n".to_vec()),
        "/readyz" => {
            if state.draining.is_closed() {
                return (503, TEXT, b"draining\n".to_vec());
            }
            match inspect(state).await.nodes.iter().any(|node| node.providers.iter().any(is_available)) {
                true => (200, TEXT, b"ready\n".to_vec()),
                false => (503, TEXT, b"no provider is available\n".to_vec()),
            }
        }
        "/metrics" if state.settings.metrics_enabled => {
            inspect(state).await;
            for (shard, tasks) in tasks.get().into_iter().flatten().enumerate() {
                state.metrics.observe_tasks(shard, tasks.live(), tasks.panicked());
            }
            state.metrics.observe_bodies(&state.bodies);
            (200, METRICS, state.metrics.render())
        }
        "/status" => {
            let snapshot = inspect(state).await;
            let status = Status::of(state, &snapshot);
            (200, JSON, serde_json::to_vec_pretty(&status).unwrap_or_default())
        }
        _ => (404, TEXT, b"there are /healthz, /readyz, /metrics and /status\n".to_vec()),
    }
}

fn is_available(provider: &control::effect::ProviderSnapshot) -> bool {
    provider.status == ProviderStatus::Available
}

/// What control holds now; metrics of it are up to date afterwards.
async fn inspect(state: &Rc<ShardState>) -> Arc<Snapshot> {
    let token = state.metrics.next_token();
    let waiter = Rc::new(Queue::new());
    state.inspections.borrow_mut().insert(token, Rc::clone(&waiter));
    state.input(Input::Inspect { token });
    waiter.pop().await
}

#[derive(Serialize)]
struct Status<'a> {
    edge: &'a str,
    version: &'static str,
    config_generation: u64,
    draining: bool,
    queued: usize,
    leases: usize,
    cancelling: usize,
    nodes: Vec<NodeStatus<'a>>,
}

#[derive(Serialize)]
struct NodeStatus<'a> {
    id: &'a str,
    connected: bool,
    providers: Vec<ProviderLine<'a>>,
}

#[derive(Serialize)]
struct ProviderLine<'a> {
    id: &'a str,
    status: &'static str,
    health: &'static str,
    capacity: u32,
    in_flight: u32,
    queued: u32,
    long_context_capacity: u32,
    long_in_flight: u32,
    long_queued: u32,
}

impl<'a> Status<'a> {
    fn of(state: &'a ShardState, snapshot: &'a Snapshot) -> Self {
        let provider = |p: &'a control::effect::ProviderSnapshot| ProviderLine {
            id: &p.id,
            status: status_word(p.status),
            health: match p.status {
                ProviderStatus::Available => "healthy",
                ProviderStatus::Offline => "offline",
                ProviderStatus::Disabled => "disabled",
            },
            capacity: p.capacity,
            in_flight: p.in_flight,
            queued: p.queued,
            long_context_capacity: p.long_capacity,
            long_in_flight: p.long_in_flight,
            long_queued: p.long_queued,
        };
        Self {
            edge: state.settings.edge.name.as_str(),
            version: env!("CARGO_PKG_VERSION"),
            config_generation: snapshot.config_generation,
            draining: state.draining.is_closed(),
            queued: snapshot.queued,
            leases: snapshot.leases,
            cancelling: snapshot.cancelling,
            nodes: snapshot
                .nodes
                .iter()
                .map(|n| NodeStatus {
                    id: &n.id,
                    connected: n.connected,
                    providers: n.providers.iter().map(provider).collect(),
                })
                .collect(),
        }
    }
}
