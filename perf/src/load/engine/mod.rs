//! The runtime of a load thread: one for each thread, of one of two kinds, behind what the load needs of either.

mod epoll;
mod glommio;

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::descriptors;
pub(crate) use epoll::Epoll;
pub(crate) use glommio::Glommio;
use glommio::MEMLOCK_BYTES_MIN;

/// File descriptors beside those of connections.
const DESCRIPTORS_BESIDE: u64 = 64;

/// What the load runs on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// tokio on epoll, as most clients are: what a subject sends costs it no more than it would with them
    #[default]
    Epoll,
    /// glommio on io_uring: each send of the subject also runs the load's task work and is charged for it
    Glommio,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Epoll => "epoll",
            Self::Glommio => "glommio",
        })
    }
}

/// What the load needs of a runtime. It is of one thread: nothing has to be `Send`.
pub(crate) trait Runtime: Sized + 'static {
    /// Its sockets.
    type Stream: Stream;

    /// A runtime for the calling thread.
    ///
    /// # Errors
    /// [`EngineError::Start`].
    fn start() -> Result<Self, EngineError>;

    /// Runs `main`, and what it spawns meanwhile, until `main` ends.
    fn run<T>(&self, main: impl Future<Output = T>) -> T;

    /// Runs a task beside the one that calls.
    fn spawn(task: impl Future<Output = ()> + 'static);

    /// Ends when `wait` has passed, up to some ms later.
    fn sleep(wait: Duration) -> impl Future<Output = ()>;

    /// Waits until `instant`, well within a ms; at once if it has passed. One waits at a time.
    async fn wait_until(&self, instant: Instant);

    /// Lets everything else have its turn, sockets and timers included.
    async fn breathe();
}

/// A connected TCP socket without delay. Dropped, it is closed and the peer sees it at once.
pub(crate) trait Stream: Sized + 'static {
    /// Connects.
    async fn connect(address: SocketAddr) -> io::Result<Self>;

    /// Whether there is nothing to read, as far as is known: neither bytes nor the peer's close. Takes a byte if there is
    /// one.
    fn is_quiet(&mut self) -> bool;

    /// Writes all of `bytes`.
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Reads what is there, 0 bytes at the peer's close.
    fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;
}

/// Why no load can be generated here.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The kernel or a seccomp profile refuses io_uring.
    #[error(
        "io_uring cannot be used ({0}), which glommio runs on: take --engine epoll, or allow io_uring_setup, \
         io_uring_enter and io_uring_register (containers: the seccomp profile; sysctl kernel.io_uring_disabled must \
         be 0)"
    )]
    Refused(#[source] io::Error),
    /// The kernel's io_uring lacks operations.
    #[error("this kernel's io_uring is too old: glommio needs Linux 5.8 or newer; take --engine epoll")]
    TooOld,
    /// Too little memory may be locked.
    #[error(
        "RLIMIT_MEMLOCK is {soft} bytes: glommio needs {MEMLOCK_BYTES_MIN}; take --engine epoll, or raise it \
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
    /// The runtime could not be made.
    #[error("the load's runtime cannot start: {0}")]
    Start(String),
}

impl From<EngineError> for io::Error {
    fn from(error: EngineError) -> Self {
        Self::other(error)
    }
}

impl Engine {
    /// Looks whether the load can run here, and raises the limit of open files to what `connections` need.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    pub fn prepare(self, connections: usize) -> Result<(), EngineError> {
        match self {
            Self::Epoll => {}
            Self::Glommio => glommio::check()?,
        }
        raise_descriptors(u64::try_from(connections).unwrap_or(u64::MAX))
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

/// Runs `work` until `deadline`: `None` when it is not done by then. What it holds is dropped with it.
pub(crate) async fn until<R: Runtime, T>(deadline: Instant, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut timer = pin!(None);
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
            timer.set(Some(R::sleep(deadline - now)));
            if let Some(timer) = timer.as_mut().as_pin_mut() {
                return timer.poll(context).map(|()| None);
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, getrlimit};

    #[test]
    fn more_connections_than_the_hard_limit_of_files_are_refused() {
        let error = raise_descriptors(u64::MAX - 1000);
        // A system without a limit refuses nothing.
        if getrlimit(Resource::Nofile).maximum.is_some() {
            assert!(error.unwrap_err().to_string().contains("ulimit -Hn"));
        }
        raise_descriptors(10).unwrap();
    }

    fn drops_late_work<R: Runtime>() {
        struct Flag<'a>(&'a std::cell::Cell<bool>);
        impl Drop for Flag<'_> {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let dropped = std::cell::Cell::new(false);
        R::start().unwrap().run(async {
            let held = Flag(&dropped);
            let never = async move {
                let _held = held;
                std::future::pending::<()>().await;
            };
            assert_eq!(until::<R, _>(Instant::now() + Duration::from_millis(5), never).await, None);
            assert!(dropped.get());
            let far = Instant::now() + Duration::from_secs(3600);
            assert_eq!(until::<R, _>(far, async { 7 }).await, Some(7));
        });
    }

    #[test]
    fn work_that_is_not_done_by_its_deadline_is_dropped() {
        drops_late_work::<Epoll>();
        drops_late_work::<Glommio>();
    }
}
