//! How a sleeping receiver is woken: a byte on a socket pair for a shard (it works on the ring and on epoll alike, and
//! takes no lock, unlike the runtime's own cross-thread waker), unpark for a plain thread.

use std::{
    io::{self, Write},
    os::unix::net::UnixStream,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst, fence},
    },
    thread::Thread,
};

use monoio::io::AsyncReadRent;

pub(super) enum Bell {
    Socket(UnixStream),
    Thread(OnceLock<Thread>),
}

impl Bell {
    pub(super) fn socket() -> io::Result<(Self, UnixStream)> {
        let (bell, ear) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        Ok((Self::Socket(bell), ear))
    }

    pub(super) fn thread() -> Self {
        Self::Thread(OnceLock::new())
    }

    pub(super) fn adopt(&self, thread: Thread) {
        if let Self::Thread(slot) = self {
            let _first = slot.set(thread);
        }
    }

    pub(super) fn ring(&self) {
        match self {
            // A full socket buffer means that it has been rung already; a closed one that the shard is gone.
            Self::Socket(socket) => {
                let mut socket: &UnixStream = socket;
                let _rung = socket.write(&[1]);
            }
            Self::Thread(slot) => {
                if let Some(thread) = slot.get() {
                    thread.unpark();
                }
            }
        }
    }
}

/// A bell and whether anyone sleeps beside it.
///
/// No wake is lost: the receiver says that it falls asleep and then looks at its queue once more, the sender pushes and then
/// asks whether it sleeps.
pub(super) struct Doorbell {
    sleeping: AtomicBool,
    bell: Bell,
}

impl Doorbell {
    pub(super) fn new(bell: Bell) -> Self {
        Self { sleeping: AtomicBool::new(false), bell }
    }

    /// As [`Bell::adopt`].
    pub(super) fn adopt(&self, thread: Thread) {
        self.bell.adopt(thread);
    }

    /// Whether the receiver has to be woken for what was pushed before.
    pub(super) fn is_asleep(&self) -> bool {
        fence(SeqCst);
        self.sleeping.load(SeqCst)
    }

    /// Wakes the receiver, if it still sleeps and nobody else has woken it.
    pub(super) fn ring(&self) {
        if self.sleeping.swap(false, SeqCst) {
            self.bell.ring();
        }
    }

    /// The receiver sleeps unless its queue holds something after this.
    pub(super) fn fall_asleep(&self) {
        self.sleeping.store(true, SeqCst);
    }

    /// The receiver looks at its queue again before it sleeps.
    pub(super) fn wake_up(&self) {
        self.sleeping.store(false, SeqCst);
    }
}

/// The shard's end of a socket bell.
pub(super) struct Ear {
    socket: monoio::net::UnixStream,
    buffer: Option<Vec<u8>>,
}

impl Ear {
    pub(super) fn open(socket: UnixStream) -> io::Result<Self> {
        crate::net::prepare(&socket)?;
        Ok(Self { socket: monoio::net::UnixStream::from_std(socket)?, buffer: Some(Vec::with_capacity(64)) })
    }

    /// Until someone rings. Must not be dropped while pending (the byte would be lost); its one caller never does.
    pub(super) async fn listen(&mut self) {
        let mut buffer = self.buffer.take().unwrap_or_else(|| Vec::with_capacity(64));
        buffer.clear();
        let (result, buffer) = self.socket.read(buffer).await;
        self.buffer = Some(buffer);
        if !matches!(result, Ok(n) if n > 0) {
            // All senders are gone: nothing will ever come again.
            std::future::pending::<()>().await;
        }
    }
}
