//! glommio: completions from a ring of io_uring.

use std::future::Future;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures::io::{AsyncRead as _, AsyncWriteExt as _};
use glommio::net::TcpStream;
use glommio::timer::Timer;
use glommio::{GlommioError, LocalExecutor, LocalExecutorBuilder, Placement};
use io_uring::{IoUring, Probe, opcode};
use rustix::process::{Resource, Rlimit, getrlimit};

use super::{EngineError, Runtime, Stream};

/// What glommio asks of `RLIMIT_MEMLOCK`. Unit: bytes.
pub(super) const MEMLOCK_BYTES_MIN: u64 = 512 * 1024;
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

/// Looks for what glommio needs of the system before it would panic.
pub(super) fn check() -> Result<(), EngineError> {
    check_memlock(getrlimit(Resource::Memlock))?;
    let ring = IoUring::new(2).map_err(EngineError::Refused)?;
    let mut probe = Probe::new();
    let known = ring.submitter().register_probe(&mut probe).is_ok();
    // RECV, OPENAT and STATX came with 5.6, the youngest that glommio asks for.
    if !known || ![opcode::Recv::CODE, opcode::Statx::CODE].iter().all(|code| probe.is_supported(*code)) {
        return Err(EngineError::TooOld);
    }
    Ok(())
}

fn check_memlock(limit: Rlimit) -> Result<(), EngineError> {
    match limit.current {
        Some(soft) if soft < MEMLOCK_BYTES_MIN => Err(EngineError::Memlock { soft }),
        _ => Ok(()),
    }
}

/// An executor for the calling thread.
pub(crate) struct Glommio(LocalExecutor);

impl Runtime for Glommio {
    type Stream = Socket;

    fn start() -> Result<Self, EngineError> {
        let made = LocalExecutorBuilder::new(Placement::Unbound)
            .io_memory(IO_MEMORY_BYTES)
            .ring_depth(RING_DEPTH)
            .preempt_timer(PREEMPT)
            .make();
        made.map(Self).map_err(|error: GlommioError<()>| EngineError::Start(error.to_string()))
    }

    fn run<T>(&self, main: impl Future<Output = T>) -> T {
        self.0.run(async {
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

    fn spawn(task: impl Future<Output = ()> + 'static) {
        drop(glommio::spawn_local(task).detach());
    }

    async fn sleep(wait: Duration) {
        Timer::new(wait).await;
    }

    async fn wait_until(&self, instant: Instant) {
        let wait = instant.saturating_duration_since(Instant::now());
        if wait > Duration::ZERO {
            Timer::new(wait).await;
        }
    }

    async fn breathe() {
        Timer::new(BREATH).await;
    }
}

/// A socket on the ring.
///
/// Nothing of a task is held by the kernel while it waits: a read waits for readiness and then copies.
pub(crate) struct Socket(TcpStream);

impl Stream for Socket {
    async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    fn is_quiet(&mut self) -> bool {
        // As old as the last look at the ring, mostly: after a read glommio asks it at once for more, and then it alone.
        let mut context = Context::from_waker(Waker::noop());
        self.poll_read(&mut context, &mut [0]).is_pending()
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Drop for Socket {
    /// The ring may still wait for this socket's readiness and keeps it open meanwhile: the peer is told now.
    fn drop(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        // It is done at the first poll; a socket that is closed already is as good.
        let _ = pin!(self.0.shutdown(Shutdown::Both)).poll(&mut context);
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
}
