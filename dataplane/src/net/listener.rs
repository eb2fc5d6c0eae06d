//! A listening socket on a shard.
//!
//! Accepting by readiness and a non-blocking accept keeps every accepted connection ours: the runtime's own `accept`
//! leaks the connection when its future is dropped.

use std::{
    fs::File,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixListener},
    pin::pin,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use futures::future::{Either, select};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::{Patience, Stream, sys};
use crate::{clock, time::sleep_until_maybe};

/// Pending connections the kernel keeps for us.
const BACKLOG: i32 = 4096;
/// Connections taken after one readiness: a crowd that comes at once costs one wait, and leaves the shard's other tasks theirs.
const ACCEPTS_MAX: u32 = 32;
/// First and longest pause after the process ran out of descriptors (or memory) while accepting.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// What a connection's peer is called that has no address: it came over a Unix socket.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A listening TCP socket with `SO_REUSEPORT`, so that each shard has its own on the same address; or a Unix socket.
#[derive(Debug)]
pub struct Listener {
    socket: Family,
    poll: monoio::net::TcpListener,
    backoff: Duration,
    /// Until when nothing is accepted, after the process ran out of descriptors.
    paused: Option<Instant>,
    /// How many more are taken before the next wait for readiness.
    ready: u32,
    reserve: Reserve,
}

/// Whose connections are accepted.
///
/// From then on the two are alike: the runtime's and the standard library's types of TCP hold a descriptor, and none of the
/// calls that are made on it asks for its family, except for options of TCP, which a Unix socket refuses and does not need.
#[derive(Debug)]
enum Family {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Family {
    fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Tcp(socket) => socket.accept(),
            Self::Unix(socket) => {
                let (stream, _unnamed) = socket.accept()?;
                Ok((OwnedFd::from(stream).into(), NOWHERE))
            }
        }
    }
}

/// The process, or the system, has no descriptor or no memory left for a connection; it waits in the kernel's backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no descriptor left for a connection")]
pub struct Exhausted;

/// A listener of this process has spent its reserve: the next descriptor that is free is for it, and not for a connection
/// elsewhere.
static RESERVE_SPENT: AtomicBool = AtomicBool::new(false);

/// A descriptor that is held back for one more connection when there are none left.
#[derive(Debug)]
enum Reserve {
    /// None for this listener.
    Unwanted,
    /// Given to a connection, or not to be had yet.
    Spent,
    Held(#[expect(dead_code, reason = "held for its descriptor")] File),
}

impl Reserve {
    /// Takes a descriptor back; whether none is missing now.
    fn refill(&mut self) -> bool {
        if matches!(self, Self::Spent)
            && let Ok(file) = File::open("/dev/null")
        {
            *self = Self::Held(file);
            RESERVE_SPENT.store(false, Relaxed);
        }
        !matches!(self, Self::Spent)
    }

    /// Frees the descriptor; whether there was one.
    fn spend(&mut self) -> bool {
        let held = matches!(self, Self::Held(_));
        if held {
            RESERVE_SPENT.store(true, Relaxed);
            *self = Self::Spent;
        }
        held
    }

    /// Whether another listener has to be left what is free.
    fn yields(&self) -> bool {
        matches!(self, Self::Unwanted) && RESERVE_SPENT.load(Relaxed)
    }
}

impl Listener {
    /// Binds on the calling thread, before or on a shard. Several binds of one address share its connections, which inherit
    /// `patience`.
    ///
    /// # Errors
    /// The address is in use by another program, or not ours.
    pub fn bind(address: SocketAddr, patience: Patience) -> io::Result<TcpListener> {
        let socket = unbound(address)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        patience.apply(&SockRef::from(&socket));
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
    pub fn open(socket: TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // Its connections inherit it, as Linux does with every option of TCP, which saves each of them a system call.
        SockRef::from(&socket).set_tcp_nodelay(true)?;
        let poll = monoio::net::TcpListener::from_std(socket.try_clone()?)?;
        Ok(Self::new(Family::Tcp(socket), poll))
    }

    /// As [`Listener::open`], of a Unix socket ([`super::LocalSocket`]). The peers of its connections have no address: theirs
    /// reads `0.0.0.0:0`.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn open_local(socket: UnixListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let poll = monoio::net::TcpListener::from_std(OwnedFd::from(socket.try_clone()?).into())?;
        Ok(Self::new(Family::Unix(socket), poll))
    }

    fn new(socket: Family, poll: monoio::net::TcpListener) -> Self {
        Self { socket, poll, backoff: BACKOFF.0, paused: None, ready: 0, reserve: Reserve::Unwanted }
    }

    /// Holds one descriptor back, so that a connection can be taken here even when the process has none left: for those
    /// who come to see what is wrong.
    #[must_use]
    pub fn with_reserve(mut self) -> Self {
        self.reserve = Reserve::Spent;
        let _there_now = self.reserve.refill();
        self
    }

    /// Bounds the bytes that the kernel keeps unsent for each connection accepted from now on, instead of letting its send
    /// buffer grow to megabytes for a peer that does not read. A Unix socket has a fixed bound already.
    ///
    /// # Errors
    /// The socket is dead.
    pub fn bound_unsent(&self, bytes: u32) -> io::Result<()> {
        match &self.socket {
            Family::Tcp(socket) => sys::bound_unsent(socket, bytes),
            Family::Unix(_) => Ok(()),
        }
    }

    /// The bound address, with the real port when 0 was asked for.
    ///
    /// # Errors
    /// The socket is dead, or a Unix socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.socket {
            Family::Tcp(socket) => socket.local_addr(),
            Family::Unix(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    /// A connection that is there already, for the last look before the listener is dropped.
    pub fn try_accept(&mut self) -> Option<Stream> {
        loop {
            match self.socket.accept() {
                Ok((stream, peer)) => {
                    if let Ok(stream) = open(stream, peer) {
                        return Some(stream);
                    }
                }
                // Gone before we came: the one behind it may be there.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits for the next connection. May be dropped freely. After [`Exhausted`] the next call pauses first, from 10 ms up to
    /// 1 s, instead of spinning; connections wait in the kernel for so long.
    ///
    /// # Errors
    /// [`Exhausted`]; call again.
    pub async fn accept(&mut self) -> Result<Stream, Exhausted> {
        loop {
            if self.paused.is_some() {
                sleep_until_maybe(self.paused).await;
                self.paused = None;
            }
            if self.ready == 0 && !self.wait().await {
                continue;
            }
            self.ready -= 1;
            if self.reserve.yields() {
                self.pause();
                return Err(Exhausted);
            }
            let accepted = match self.socket.accept() {
                Err(error) if is_exhaustion(&error) && self.reserve.spend() => self.socket.accept(),
                accepted => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    self.backoff = BACKOFF.0;
                    if let Ok(stream) = open(stream, peer) {
                        return Ok(stream);
                    }
                }
                Err(error) if is_exhaustion(&error) => {
                    tracing::warn!(%error, pause_ms = self.backoff.as_millis(), "accept failed");
                    self.pause();
                    return Err(Exhausted);
                }
                // All of them taken, or one gone before we came.
                Err(_) => self.ready = 0,
            }
        }
    }

    /// Has the next [`Listener::accept`] wait for readiness, also where more are there: a connection that was dropped is closed by the
    /// ring, and until that has had its turn it holds its descriptor.
    pub fn take_turn(&mut self) {
        self.ready = 0;
    }

    /// Waits until somebody is there; `false` = look again.
    async fn wait(&mut self) -> bool {
        // Until the reserve is there again it is asked for while nobody comes.
        let patience = if self.reserve.refill() { None } else { Some(clock::now() + BACKOFF.0 * 10) };
        let ready = {
            let readable = pin!(self.poll.readable(false));
            match select(readable, pin!(sleep_until_maybe(patience))).await {
                Either::Left((ready, _)) => Some(ready.is_ok()),
                Either::Right(_) => None,
            }
        };
        match ready {
            Some(true) => self.ready = ACCEPTS_MAX,
            Some(false) => self.pause(),
            None => {}
        }
        ready == Some(true)
    }

    fn pause(&mut self) {
        self.ready = 0;
        self.paused = Some(clock::now() + self.backoff);
        self.backoff = (self.backoff * 2).min(BACKOFF.1);
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

fn open(stream: TcpStream, peer: SocketAddr) -> io::Result<Stream> {
    sys::prepare_accepted(&stream)?;
    Ok(Stream::accepted(monoio::net::TcpStream::from_std(stream)?, peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_have_come_are_taken_with_nagle_off_and_then_it_waits_again() {
        const CLIENTS: usize = 3 * ACCEPTS_MAX as usize / 2;
        let patience = Patience { silence: None, retransmit_max: None };
        let bound = Listener::bind("127.0.0.1:0".parse().unwrap(), patience).unwrap();
        let address = bound.local_addr().unwrap();
        let connect = || TcpStream::connect(address).unwrap();
        let mut runtime =
            monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().enable_timer().build().unwrap();
        runtime.block_on(async {
            let mut listener = Listener::open(bound).unwrap();
            let clients: Vec<_> = (0..CLIENTS).map(|_| connect()).collect();
            for _ in &clients {
                let stream = listener.accept().await.unwrap();
                assert!(stream.is_nodelay());
            }
            assert!(futures::FutureExt::now_or_never(listener.accept()).is_none());
            let _late = connect();
            assert!(listener.accept().await.is_ok());
        });
    }
}
