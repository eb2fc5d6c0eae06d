//! What the ops paths answer.

use std::{rc::Rc, sync::Arc};

use control::{
    effect::{ProviderSnapshot, ProviderStatus, Snapshot},
    input::Input,
};
use dataplane::{http::head::Target, local::Queue, shard::TaskStats};

use super::{Audience, document::Status, inputs, node_command};
use crate::shard_state::ShardState;

const JSON: &str = "application/json";
const JSON_LINES: &str = "application/jsonl";
/// Prometheus text exposition format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// The task counters of all shards, known once all have started.
pub type OnceTasks = std::sync::OnceLock<Vec<Arc<TaskStats>>>;

/// A whole answer.
pub(super) struct Answer {
    /// HTTP status.
    pub(super) status: u16,
    /// Content type.
    pub(super) kind: &'static str,
    /// Body.
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn text(status: u16, text: &str) -> Self {
        Self { status, kind: TEXT, body: format!("{text}\n").into_bytes() }
    }

    pub(super) fn json(document: &impl serde::Serialize) -> Self {
        Self { status: 200, kind: JSON, body: serde_json::to_vec_pretty(document).unwrap_or_default() }
    }
}

/// The answer to a GET of `target`; `None` where there is nothing.
pub(super) async fn to(
    state: &Rc<ShardState>,
    target: &Target,
    audience: Audience,
    tasks: &OnceTasks,
) -> Option<Answer> {
    Some(match target.path() {
        // The process lives and its shard takes turns.
        "/healthz" => Answer::text(200, "ok"),
        "/readyz" => {
            if state.draining.is_closed() {
                return Some(Answer::text(503, "draining"));
            }
            match inspect(state, false).await.nodes.iter().any(|node| node.providers.iter().any(is_available))
            {
                true => Answer::text(200, "ready"),
                false => Answer::text(503, "no provider is available"),
            }
        }
        "/metrics" if state.settings.metrics_enabled => {
            inspect(state, false).await;
            for (shard, tasks) in tasks.get().into_iter().flatten().enumerate() {
                state.metrics.observe_tasks(shard, tasks.live(), tasks.panicked());
            }
            state.metrics.observe_bodies(&state.bodies);
            Answer { status: 200, kind: METRICS, body: state.metrics.render() }
        }
        "/status" => {
            let snapshot = inspect(state, true).await;
            let status = Status::of(state, &snapshot);
            Answer::json(&status)
        }
        "/inputs" if audience == Audience::Owner => match inputs::dump(state).await {
            Some(body) => Answer { status: 200, kind: JSON_LINES, body },
            None => {
                Answer::text(503, "the inputs are being written for somebody else; try again in a moment")
            }
        },
        node_command::PATH if audience == Audience::Owner => {
            node_command::answer(state, target.query().unwrap_or_default()).await
        }
        _ => return None,
    })
}

fn is_available(provider: &ProviderSnapshot) -> bool {
    provider.status == ProviderStatus::Available
}

/// What control holds now, with the lists of what waits and runs when they are wanted; metrics of it are up to date afterwards.
async fn inspect(state: &Rc<ShardState>, detail: bool) -> Arc<Snapshot> {
    let token = state.metrics.next_token();
    let waiter = Rc::new(Queue::new());
    state.inspections.borrow_mut().insert(token, Rc::clone(&waiter));
    state.input(Input::Inspect { token, detail });
    waiter.pop().await
}
