//! tokio, one thread, on epoll: readiness, as most clients have it.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use socket2::SockRef;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead as _, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::task::{self, LocalSet};

use super::{EngineError, Runtime, Stream};

/// A runtime for the calling thread.
pub(crate) struct Epoll {
    runtime: runtime::Runtime,
    tasks: LocalSet,
    /// A timer of the kernel's: tokio's own have steps of 1 ms, which would be in the latencies of a schedule.
    alarm: AsyncFd<OwnedFd>,
}

impl Runtime for Epoll {
    type Stream = TcpStream;

    fn start() -> Result<Self, EngineError> {
        let failed = |error: io::Error| EngineError::Start(error.to_string());
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let alarm = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(|error| failed(error.into()))?;
        let within = runtime.enter();
        #[expect(
            deprecated,
            reason = "what follows it is unsafe; an `OwnedFd` stays its own while it is registered"
        )]
        let alarm = AsyncFd::with_interest(alarm, Interest::READABLE).map_err(failed)?;
        drop(within);
        Ok(Self { runtime, tasks: LocalSet::new(), alarm })
    }

    fn run<T>(&self, main: impl Future<Output = T>) -> T {
        self.tasks.block_on(&self.runtime, main)
    }

    fn spawn(task: impl Future<Output = ()> + 'static) {
        drop(task::spawn_local(task));
    }

    fn sleep(wait: Duration) -> impl Future<Output = ()> {
        // Else a task that has had its share of tokio's turns is woken at once and the timer is not set.
        task::unconstrained(tokio::time::sleep(wait))
    }

    async fn wait_until(&self, instant: Instant) {
        loop {
            let wait = instant.saturating_duration_since(Instant::now());
            let Ok(value) = Timespec::try_from(wait) else { return };
            if wait.is_zero() {
                return;
            }
            let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
            let set = timerfd_settime(&self.alarm, TimerfdTimerFlags::empty(), &once);
            match (set, self.alarm.readable().await) {
                // Setting it anew takes back that it has gone off: it need not be read.
                (Ok(_), Ok(mut ready)) => ready.clear_ready(),
                // Neither can fail for a timer that is there; a later wake is better than none.
                _ => Self::sleep(wait).await,
            }
        }
    }

    async fn breathe() {
        task::yield_now().await;
    }
}

impl Stream for TcpStream {
    async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = Self::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn is_quiet(&mut self) -> bool {
        // The kernel is asked: what tokio knows of a socket is as old as its last look at epoll.
        let peeked = SockRef::from(&*self).peek(&mut [std::mem::MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        AsyncWriteExt::write_all(self, bytes).await
    }

    fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        Pin::new(self).poll_read(context, &mut buffer).map_ok(|()| buffer.filled().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tokio's timers would take a ms for each, 100 ms in all.
    #[test]
    fn an_alarm_is_finer_than_a_millisecond() {
        let epoll = Epoll::start().unwrap();
        let hundred = || {
            let started = Instant::now();
            epoll.run(async {
                for _ in 0..100 {
                    let at = Instant::now() + Duration::from_micros(100);
                    epoll.wait_until(at).await;
                    assert!(Instant::now() >= at);
                }
            });
            started.elapsed()
        };
        // The best of several: other programs may take the processor.
        let best = (0..10).map(|_| hundred()).min().unwrap();
        assert!(best < Duration::from_millis(80), "{best:?}");
    }

    #[test]
    fn a_kept_connection_that_was_closed_or_spoken_on_is_not_quiet() {
        use std::io::Write as _;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        Epoll::start().unwrap().run(async {
            for (says, closes) in [("", false), ("", true), ("x", false)] {
                let mut stream = <TcpStream as Stream>::connect(address).await.unwrap();
                let (mut peer, _) = listener.accept().unwrap();
                assert!(stream.is_quiet());
                peer.write_all(says.as_bytes()).unwrap();
                let _open = (!closes).then_some(peer);
                // On the loopback interface it has come when the peer's call returns; nothing lets the runtime look.
                assert_eq!(stream.is_quiet(), says.is_empty() && !closes, "{says} {closes}");
            }
        });
    }

    /// A task that reads what is always there has had its turns when the limit is set.
    #[test]
    fn a_limit_holds_for_a_task_that_has_used_up_its_turns() {
        let done = Epoll::start().unwrap().run(async {
            let work = async {
                while task::coop::has_budget_remaining() {
                    task::consume_budget().await;
                }
                std::future::pending::<()>().await;
            };
            super::super::until::<Epoll, _>(Instant::now() + Duration::from_millis(5), work).await
        });
        assert_eq!(done, None);
    }
}
