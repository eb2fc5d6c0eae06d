//! The only spawn: a panic ends its task and is counted, never its shard.

use std::{
    any::Any,
    cell::RefCell,
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
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
///
/// A large future is boxed first: on its way into the task it would be copied several times. Made by [`boxed`] it is not copied at
/// all.
pub fn spawn_guarded<F: Future<Output = ()> + 'static>(future: F) {
    const INLINE_BYTES_MAX: usize = 512;
    if size_of::<F>() > INLINE_BYTES_MAX { guard(boxed(|| future)) } else { guard(future) }
}

/// A future on the heap, made in its place there. `Box::pin` makes it before there is a place for it, and copies it, all of its
/// kilobytes, though hardly anything is in it yet.
#[inline(always)]
pub fn boxed<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}

fn guard<F: Future<Output = ()> + 'static>(future: F) {
    let stats = task_stats();
    stats.live.fetch_add(1, Relaxed);
    let live = Live(stats);
    #[expect(clippy::disallowed_methods, reason = "this is the guard itself")]
    let _detached = monoio::spawn(guarded(future).map(move |_ended| drop(live)));
}

/// Runs `future` as a part of the shard itself, for as long as that lives: it is no live task to anybody who waits for those to
/// end.
pub(super) fn spawn_fixture<F: Future<Output = ()> + 'static>(future: F) {
    #[expect(clippy::disallowed_methods, reason = "guarded, and not to be counted")]
    let _detached = monoio::spawn(guarded(future).map(|_ended| ()));
}

/// Runs `future` here, as a part of its task that may fail without the rest: `None` when it panicked, which is logged and
/// counted as the end of a task by a panic is. What it owned has been dropped then; what it only borrowed must be fit to be
/// told of the failure.
pub fn guarded<F: Future>(future: F) -> impl Future<Output = Option<F::Output>> {
    // Combinators and no async block, which would hold the future twice: once as what it captured.
    let ended = AssertUnwindSafe(future).catch_unwind();
    ended.map(|ended| ended.map_err(|payload| note_panic(payload.as_ref())).ok())
}

/// As [`guarded`], for a call.
pub fn guarded_call<T>(call: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(AssertUnwindSafe(call)).map_err(|payload| note_panic(payload.as_ref())).ok()
}

/// Wakes a task of this shard when every other one that is ready has had its turn.
pub(crate) fn wake_behind_others(waker: Waker) {
    #[expect(clippy::disallowed_methods, reason = "holds nothing that a panic could leak, and cannot panic")]
    drop(monoio::spawn(async move { waker.wake() }));
}

/// Makes a call on this shard when every task that is ready has had its turn. The call must not panic.
pub(crate) fn call_behind_others(call: fn()) {
    #[expect(clippy::disallowed_methods, reason = "holds nothing that a panic could leak, and cannot panic")]
    drop(monoio::spawn(async move { call() }));
}

/// The counters of the calling shard.
#[must_use]
pub fn task_stats() -> Arc<TaskStats> {
    STATS.with_borrow(Arc::clone)
}

/// Makes every panic of the process, on whatever thread, a line of the log.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        let thread = std::thread::current();
        let at = info.location().map(ToString::to_string);
        let (thread, panic) = (thread.name(), describe(info.payload()));
        tracing::error!(thread, at, panic, "panicked");
    }));
}

fn note_panic(payload: &(dyn Any + Send)) {
    STATS.with_borrow(|stats| stats.panicked.fetch_add(1, Relaxed));
    tracing::error!(panic = describe(payload), "task ended by a panic");
}

fn describe(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("not a string")
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_panic_in_a_guarded_part_is_counted_and_ends_nothing_else() {
        let stats = Arc::new(TaskStats::default());
        install(Arc::clone(&stats));
        assert_eq!(guarded(async { 7 }).now_or_never(), Some(Some(7)));
        assert_eq!(guarded(async { panic!("one") }).now_or_never(), Some(None::<()>));
        assert_eq!(guarded_call(|| -> u8 { panic!("{}", "two") }), None);
        assert_eq!(guarded_call(|| 8), Some(8));
        assert_eq!((stats.panicked(), task_stats().panicked()), (2, 2));
    }
}
