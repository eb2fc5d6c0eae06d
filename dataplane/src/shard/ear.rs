//! How another thread wakes a shard that sleeps in its driver: by a byte on a socket pair. It works on the ring and on epoll
//! alike, and takes no lock, unlike the runtime's own cross-thread waker.

use std::{
    io::{self, Write},
    os::unix::net::UnixStream,
};

use monoio::io::AsyncReadRent;

/// The end that any thread rings.
pub(crate) struct Ringer(UnixStream);

/// The shard's end, before the shard has started.
pub(crate) struct EarSeed(UnixStream);

/// Both ends.
///
/// # Errors
/// No file descriptors left.
pub(crate) fn pair() -> io::Result<(Ringer, EarSeed)> {
    let (ringer, ear) = UnixStream::pair()?;
    ringer.set_nonblocking(true)?;
    Ok((Ringer(ringer), EarSeed(ear)))
}

impl Ringer {
    /// Wakes the shard, or lets its next [`Ear::listen`] end at once.
    pub(crate) fn ring(&self) {
        // A full socket buffer means that it has been rung already; a closed one that the shard is gone.
        let _rung = (&self.0).write(&[1]);
    }
}

impl EarSeed {
    /// Opens the shard's end on the calling shard.
    ///
    /// # Errors
    /// It cannot be registered with the shard's driver.
    pub(crate) fn open(self) -> io::Result<Ear> {
        crate::net::prepare(&self.0)?;
        let socket = monoio::net::UnixStream::from_std(self.0)?;
        Ok(Ear { socket, buffer: Some(Vec::with_capacity(64)) })
    }
}

/// The shard's end.
pub(crate) struct Ear {
    socket: monoio::net::UnixStream,
    buffer: Option<Vec<u8>>,
}

impl Ear {
    /// Until someone rings. Must not be dropped while pending (the byte would be lost); its one caller never does.
    pub(crate) async fn listen(&mut self) {
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
