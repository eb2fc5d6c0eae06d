//! The runtime of a load thread: glommio, one executor for each thread, and what it needs of the system, looked at
//! before it would panic.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use glommio::timer::Timer;
use glommio::{GlommioError, LocalExecutor, LocalExecutorBuilder, Placement};
use io_uring::{IoUring, Probe, opcode};
use rustix::process::{Resource, Rlimit, getrlimit};

use crate::descriptors;

/// What glommio asks of `RLIMIT_MEMLOCK`. Unit: bytes.
const MEMLOCK_BYTES_MIN: u64 = 512 * 1024;
/// Memory for storage I/O, of which there is none: the least that glommio takes. Unit: bytes.
const IO_MEMORY_BYTES: usize = 64 * 1024;
/// Submissions that a ring takes at a time.
const RING_DEPTH: usize = 256;
/// glommio's preemption timer, as good as off. When it fires just before tasks are run, glommio 0.9.0 takes it that there
/// was nothing to run and sleeps on work that is ready, until something else happens: `run_task_queues` says that it ran
/// nothing. With a short timer and a busy machine that was seconds of silence in every few runs.
const PREEMPT: Duration = Duration::from_secs(3600);
/// The completion of something that was given up can do the same, seldom; a timer that is always due soon bounds it.
const HEARTBEAT: Duration = Duration::from_millis(50);
/// A task that has more to do than its turn sleeps this long: without preemption the rings are looked at only when no task
/// can run.
const BREATH: Duration = Duration::from_micros(1);
/// File descriptors beside those of connections.
const DESCRIPTORS_BESIDE: u64 = 64;

/// Why no load can be generated here.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The kernel or a seccomp profile refuses io_uring.
    #[error(
        "io_uring cannot be used ({0}): the load generator runs on it; allow io_uring_setup, io_uring_enter and \
         io_uring_register (containers: the seccomp profile; sysctl kernel.io_uring_disabled must be 0)"
    )]
    Refused(#[source] io::Error),
    /// The kernel's io_uring lacks operations.
    #[error("this kernel's io_uring is too old: the load generator needs Linux 5.8 or newer")]
    TooOld,
    /// Too little memory may be locked.
    #[error(
        "RLIMIT_MEMLOCK is {soft} bytes: the load generator's io_uring needs {MEMLOCK_BYTES_MIN}; raise it \
         (ulimit -l 8192, LimitMEMLOCK=, docker --ulimit memlock=-1)"
    )]
    Memlock {
        /// The soft limit.
        soft: u64,
    },
    /// Too few files may be open.
    #[error("{needed} connections need as many open files and some: the hard limit is {hard} (ulimit -Hn)")]
    Descriptors {
        /// Connections at a time.
        needed: u64,
        /// The hard limit.
        hard: u64,
    },
    /// The executor could not be made.
    #[error("glommio cannot start: {0}")]
    Executor(String),
}

impl From<EngineError> for io::Error {
    fn from(error: EngineError) -> Self {
        Self::other(error)
    }
}

/// Looks whether the load can run here, and raises the limit of open files to what `connections` need.
///
/// # Errors
/// What is missing, and how to get it.
pub fn prepare(connections: usize) -> Result<(), EngineError> {
    check_memlock(getrlimit(Resource::Memlock))?;
    let ring = IoUring::new(2).map_err(EngineError::Refused)?;
    let mut probe = Probe::new();
    let known = ring.submitter().register_probe(&mut probe).is_ok();
    // RECV, OPENAT and STATX came with 5.6, the youngest that glommio asks for.
    if !known || ![opcode::Recv::CODE, opcode::Statx::CODE].iter().all(|code| probe.is_supported(*code)) {
        return Err(EngineError::TooOld);
    }
    raise_descriptors(u64::try_from(connections).unwrap_or(u64::MAX))
}

fn check_memlock(limit: Rlimit) -> Result<(), EngineError> {
    match limit.current {
        Some(soft) if soft < MEMLOCK_BYTES_MIN => Err(EngineError::Memlock { soft }),
        _ => Ok(()),
    }
}

/// To the hard limit: a load without a bound of its connections does not know what it will need.
fn raise_descriptors(connections: u64) -> Result<(), EngineError> {
    let needed = connections.saturating_add(DESCRIPTORS_BESIDE);
    match descriptors::raise() {
        Some(hard) if hard < needed => Err(EngineError::Descriptors { needed: connections, hard }),
        _ => Ok(()),
    }
}

/// An executor for the calling thread.
///
/// # Errors
/// [`EngineError::Executor`].
pub fn executor(name: &str) -> Result<LocalExecutor, EngineError> {
    LocalExecutorBuilder::new(Placement::Unbound)
        .name(name)
        .io_memory(IO_MEMORY_BYTES)
        .ring_depth(RING_DEPTH)
        .preempt_timer(PREEMPT)
        .make()
        .map_err(|error: GlommioError<()>| EngineError::Executor(error.to_string()))
}

/// Runs `main` on `executor` to its end.
pub fn run<T>(executor: &LocalExecutor, main: impl Future<Output = T>) -> T {
    executor.run(async {
        let heart = glommio::spawn_local(async {
            loop {
                Timer::new(HEARTBEAT).await;
            }
        });
        let done = main.await;
        heart.cancel().await;
        done
    })
}

/// Lets everything else have its turn, the rings included.
pub async fn breathe() {
    Timer::new(BREATH).await;
}

/// Runs `work` until `deadline`: `None` when it is not done by then. What it holds is dropped with it.
pub async fn until<T>(deadline: Instant, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut timer = pin!(None::<Timer>);
    poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        let now = Instant::now();
        if now >= deadline {
            return Poll::Ready(None);
        }
        // Set once: the task has one waker, and asking the timer at every event would cost more than the event.
        if timer.is_none() {
            timer.set(Some(Timer::new(deadline - now)));
            if let Some(timer) = timer.as_mut().as_pin_mut() {
                return timer.poll(context).map(|_| None);
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits until `instant`; at once if it has passed.
pub async fn sleep_until(instant: Instant) {
    let wait = instant.saturating_duration_since(Instant::now());
    if wait > Duration::ZERO {
        Timer::new(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_lockable_memory_is_an_error_that_says_how_much_is_needed() {
        let limit = |current| Rlimit { current, maximum: None };
        let error = check_memlock(limit(Some(65_536))).unwrap_err().to_string();
        assert!(
            error.contains("65536") && error.contains("524288") && error.contains("ulimit -l"),
            "{error}"
        );
        assert!(check_memlock(limit(Some(MEMLOCK_BYTES_MIN))).is_ok() && check_memlock(limit(None)).is_ok());
    }

    #[test]
    fn more_connections_than_the_hard_limit_of_files_are_refused() {
        let error = raise_descriptors(u64::MAX - 1000);
        // A system without a limit refuses nothing.
        if getrlimit(Resource::Nofile).maximum.is_some() {
            assert!(error.unwrap_err().to_string().contains("ulimit -Hn"));
        }
        raise_descriptors(10).unwrap();
    }

    #[test]
    fn work_that_is_not_done_by_its_deadline_is_dropped() {
        struct Flag<'a>(&'a std::cell::Cell<bool>);
        impl Drop for Flag<'_> {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let dropped = std::cell::Cell::new(false);
        run(&executor("test").unwrap(), async {
            let held = Flag(&dropped);
            let never = async move {
                let _held = held;
                std::future::pending::<()>().await;
            };
            assert_eq!(until(Instant::now() + Duration::from_millis(5), never).await, None);
            assert!(dropped.get());
            let far = Instant::now() + Duration::from_secs(3600);
            assert_eq!(until(far, async { 7 }).await, Some(7));
        });
    }
}
