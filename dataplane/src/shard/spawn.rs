//! The only spawn: a panic ends its task and is counted, never its shard.

use std::{
    any::Any,
    cell::RefCell,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use futures::FutureExt;

/// Counters of one shard's tasks.
#[derive(Debug, Default)]
pub struct TaskStats {
    live: AtomicU64,
    panicked: AtomicU64,
}

impl TaskStats {
    /// Tasks that have not ended.
    pub fn live(&self) -> u64 {
        self.live.load(Relaxed)
    }

    /// Tasks that ended by a panic, since the start.
    pub fn panicked(&self) -> u64 {
        self.panicked.load(Relaxed)
    }
}

thread_local! {
    static STATS: RefCell<Arc<TaskStats>> = RefCell::default();
}

pub(super) fn install(stats: Arc<TaskStats>) {
    STATS.set(stats);
}

/// Counts a live task for as long as it exists, also when its future is dropped or unwinds.
struct Live(Arc<TaskStats>);

impl Drop for Live {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Relaxed);
    }
}

/// Runs `future` as a task of this shard. A panic in it is caught, logged by its message and counted; everything the
/// task owned is dropped, so leases and connections take their usual way out.
pub fn spawn_guarded<F: Future<Output = ()> + 'static>(future: F) {
    let stats = STATS.with_borrow(Arc::clone);
    stats.live.fetch_add(1, Relaxed);
    let live = Live(stats);
    #[expect(clippy::disallowed_methods, reason = "this is the guard itself")]
    let _detached = monoio::spawn(async move {
        let ended = AssertUnwindSafe(future).catch_unwind().await;
        if let Err(payload) = ended {
            live.0.panicked.fetch_add(1, Relaxed);
            tracing::error!(panic = describe(payload.as_ref()), "task ended by a panic");
        }
    });
}

fn describe(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("not a string")
}
