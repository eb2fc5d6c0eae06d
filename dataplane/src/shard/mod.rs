//! One shard: one OS thread, optionally pinned to one core, with its own runtime.
//!
//! Shards share nothing; they exchange owned values through [`crate::mailbox`]. The driver is chosen here, by our own
//! ladder, because the runtime's own fallback does not cover ENOMEM (a low memlock limit) or unknown ring flags.

mod affinity;
mod alarm;
mod driver;
pub(crate) mod ear;
mod heap;
mod spawn;

use std::{future::Future, io, pin::pin, sync::Arc, thread};

use futures::future::select;

use crate::{log::Gathering, mailbox::turn::ring_bells};

pub use alarm::Sleep;
pub use driver::{DriverKind, DriverWish};
pub use heap::{Allocator, use_small_pages};
pub use spawn::{TaskStats, boxed, guarded, guarded_call, log_panics, spawn_guarded, task_stats};
pub(crate) use spawn::{call_behind_others, wake_behind_others};

/// What a shard is started with.
#[derive(Clone, Debug)]
pub struct ShardSpec {
    /// Thread name, at most 15 bytes are kept by the kernel.
    pub name: String,
    /// Core to pin to; `None` leaves the thread to the scheduler.
    pub cpu: Option<usize>,
    /// Which driver to use.
    pub driver: DriverWish,
}

/// A running shard.
#[derive(Debug)]
pub struct Shard {
    /// Its driver, once it is up.
    pub driver: DriverKind,
    /// Its task counters.
    pub tasks: Arc<TaskStats>,
    thread: thread::JoinHandle<()>,
}

impl Shard {
    /// Starts the thread, builds its runtime and runs `main` on it to its end. Returns when the runtime stands.
    ///
    /// # Errors
    /// The thread cannot be started or pinned, or no driver of the ladder can be built.
    pub fn start<F, Fut>(spec: ShardSpec, main: F) -> io::Result<Self>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let tasks = Arc::new(TaskStats::default());
        let stats = Arc::clone(&tasks);
        let (up, is_up) = std::sync::mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(spec.name.clone()).spawn(move || {
            let built = spec.cpu.map_or(Ok(()), affinity::pin).and_then(|()| driver::build(spec.driver));
            match built {
                Ok(mut runtime) => {
                    spawn::install(stats);
                    let _sent = up.send(Ok(runtime.kind()));
                    runtime.block_on(async {
                        let _gathering = Gathering::here();
                        spawn::spawn_fixture(ring_bells());
                        spawn::spawn_fixture(alarm::ring());
                        let (main, give_back) = (pin!(main()), pin!(heap::give_back()));
                        select(main, give_back).await;
                    });
                }
                Err(error) => {
                    let _sent = up.send(Err(error));
                }
            }
        })?;
        let driver = is_up.recv().map_err(|_| io::Error::other("the shard thread died at its start"))??;
        Ok(Self { driver, tasks, thread })
    }

    /// Waits for the thread's end; `false` when it panicked.
    pub fn join(self) -> bool {
        self.thread.join().is_ok()
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}
