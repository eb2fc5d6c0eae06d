//! A listening socket on a shard.
//!
//! Accepting by readiness and a non-blocking accept keeps every accepted connection ours: the runtime's own `accept`
//! leaks the connection when its future is dropped.

use std::{io, net::SocketAddr, time::Duration};

use socket2::{Domain, Protocol, Socket, Type};

use super::{Stream, sys};

/// Pending connections the kernel keeps for us.
const BACKLOG: i32 = 4096;
/// First and longest pause after the process ran out of descriptors (or memory) while accepting.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// A listening TCP socket with `SO_REUSEPORT`, so that each shard has its own on the same address.
#[derive(Debug)]
pub struct Listener {
    std: std::net::TcpListener,
    poll: monoio::net::TcpListener,
    backoff: Duration,
    exhausted: u64,
}

impl Listener {
    /// Binds on the calling thread, before or on a shard. Several binds of one address share its connections.
    ///
    /// # Errors
    /// The address is in use by another program, or not ours.
    pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
        let socket = unbound(address)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    }

    /// Whether nobody listens on `address` yet: binds without sharing, and lets go.
    ///
    /// # Errors
    /// As [`Listener::bind`], and when another program of ours shares the address.
    pub fn probe(address: SocketAddr) -> io::Result<()> {
        let socket = unbound(address)?;
        socket.bind(&address.into())?;
        socket.listen(1)
    }

    /// Registers a bound socket with the calling shard.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn open(std: std::net::TcpListener) -> io::Result<Self> {
        std.set_nonblocking(true)?;
        let poll = monoio::net::TcpListener::from_std(std.try_clone()?)?;
        Ok(Self { std, poll, backoff: BACKOFF.0, exhausted: 0 })
    }

    /// The bound address, with the real port when 0 was asked for.
    ///
    /// # Errors
    /// The socket is dead.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.std.local_addr()
    }

    /// How often accepting failed for want of descriptors or memory since the last call.
    pub fn take_exhausted(&mut self) -> u64 {
        std::mem::take(&mut self.exhausted)
    }

    /// Waits for the next connection. May be dropped freely. Backs off by itself from 10 ms to 1 s while descriptors or
    /// memory are exhausted, instead of spinning.
    pub async fn accept(&mut self) -> Stream {
        loop {
            if self.poll.readable(false).await.is_err() {
                monoio::time::sleep(BACKOFF.0).await;
                continue;
            }
            match self.std.accept() {
                Ok((stream, peer)) => {
                    self.backoff = BACKOFF.0;
                    if let Ok(stream) = open(stream, peer) {
                        return stream;
                    }
                }
                Err(error) if is_exhaustion(&error) => {
                    self.exhausted += 1;
                    tracing::warn!(%error, pause_ms = self.backoff.as_millis(), "accept failed");
                    monoio::time::sleep(self.backoff).await;
                    self.backoff = (self.backoff * 2).min(BACKOFF.1);
                }
                // Gone before we came: the next readiness tells.
                Err(_) => {}
            }
        }
    }
}

/// A socket that binds beside the other family's wildcard and over connections that linger.
fn unbound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

fn open(stream: std::net::TcpStream, peer: SocketAddr) -> io::Result<Stream> {
    sys::prepare(&stream)?;
    Stream::new(monoio::net::TcpStream::from_std(stream)?, peer)
}
