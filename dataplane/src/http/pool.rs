//! Connections to providers, kept alive per shard and never shared between credentials.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    hash::{Hash, Hasher},
    net::{IpAddr, SocketAddr},
    rc::{Rc, Weak},
    time::{Duration, Instant},
};

use bytes::BytesMut;

use super::{
    client::{
        self, Abandoned, ClientError, Conn, ConnectError, Custody, Exchange, Outgoing, RECEIVE_MAX, Request,
        Tls, Wire, abort::Return, connect_secure,
    },
    limits::Limits,
};
use crate::{
    clock,
    local::Latch,
    net::{Patience, dial},
    relay::ByNumber,
    shard::spawn_guarded,
    time::before,
    tls::https,
};

/// Idle connections of all keys together; one that would be more is closed.
const IDLE_TOTAL_MAX: usize = 1024;

/// Bounds of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// An idle connection is closed after this long. It must stay below the 5 s of uvicorn.
    pub idle: Duration,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for a connection under TLS, its handshake included.
    pub tls_timeout: Duration,
    /// Idle connections per key; the oldest is closed for one more.
    pub idle_per_key: usize,
    /// A provider that takes nothing of a request up to 64 KiB for this long, or not 256 KiB of a larger one in this time,
    /// ends the request.
    pub write_stall: Duration,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(4),
            connect_timeout: Duration::from_secs(10),
            tls_timeout: https::CONNECT_TIMEOUT,
            idle_per_key: 64,
            write_stall: Duration::from_secs(60),
        }
    }
}

/// What a connection is for. Only requests of an equal key share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Whom to dial.
    pub address: SocketAddr,
    /// Value of `Host`.
    pub authority: Rc<str>,
    /// Stands for the credential in the request: different credentials must have different numbers (0 = none).
    pub credential: u64,
    /// Whether there is TLS over the connection, and whose certificate it must show.
    pub tls: Option<Tls>,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Numbers only: names and schemes of one address and port are few, and told apart by comparing.
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64 ^ ip.to_bits() as u64,
        };
        state.write_u64(ip ^ u64::from(self.address.port()).rotate_left(32));
        state.write_u64(self.credential);
    }
}

/// Counters of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Connections opened, since the start.
    pub opened: u64,
    /// Requests sent on a connection that had served one before, since the start.
    pub reused: u64,
    /// Requests sent a second time, on a fresh connection (TUN-7), since the start.
    pub retried: u64,
    /// Idle connections closed for their age, since the start.
    pub expired: u64,
    /// Idle connections found closed or spoken on by the peer when they were wanted, since the start.
    pub stale: u64,
    /// Idle connections closed because there were too many, since the start.
    pub displaced: u64,
    /// Reads that brought bytes of an answer, since the start.
    pub reads: u64,
    /// Bytes that they brought: heads, framing and bodies.
    pub read_bytes: u64,
    /// Connections open now.
    pub open: u64,
    /// Those of them that are idle.
    pub idle: u64,
}

/// Counters that connections hold on to.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) opened: Cell<u64>,
    pub(super) open: Cell<u64>,
    reused: Cell<u64>,
    retried: Cell<u64>,
    expired: Cell<u64>,
    stale: Cell<u64>,
    displaced: Cell<u64>,
    reads: Cell<u64>,
    read_bytes: Cell<u64>,
}

impl Counters {
    /// Counts a read that brought `bytes`.
    pub(super) fn note_read(&self, bytes: usize) {
        add(&self.reads, 1);
        add(&self.read_bytes, bytes);
    }
}

fn add(counter: &Cell<u64>, n: usize) {
    counter.set(counter.get().saturating_add(n as u64));
}

#[derive(Debug)]
struct Idle {
    conn: Conn,
    since: Instant,
}

#[derive(Debug)]
struct Inner {
    limits: PoolLimits,
    http: Limits,
    /// Idle connections by key, the longest idle first. No list is empty. Keys come from the configuration, and no keyed hash is
    /// paid for.
    idle: RefCell<ByNumber<Key, VecDeque<Idle>>>,
    counters: Rc<Counters>,
    /// What is received passes through here.
    scratch: RefCell<BytesMut>,
    /// What is received under TLS passes through here first.
    cipher: Rc<RefCell<BytesMut>>,
    sweeping: Cell<bool>,
    /// Closed when the pool is gone, for the sweeper.
    gone: Rc<Latch>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.gone.close();
    }
}

impl Inner {
    fn idle_total(&self) -> usize {
        self.idle.borrow().values().map(VecDeque::len).sum()
    }

    /// Closes what has been idle for too long in one list.
    fn expire(&self, list: &mut VecDeque<Idle>, now: Instant) {
        let is_old = |idle: &&Idle| now.saturating_duration_since(idle.since) >= self.limits.idle;
        let old = list.iter().take_while(is_old).count();
        list.drain(..old);
        add(&self.counters.expired, old);
    }

    /// Closes what has been idle for too long in all of them.
    fn sweep(&self, now: Instant) {
        self.idle.borrow_mut().retain(|_, list| {
            self.expire(list, now);
            !list.is_empty()
        });
    }

    fn next_expiry(&self) -> Option<Instant> {
        let oldest = self.idle.borrow().values().filter_map(VecDeque::front).map(|idle| idle.since).min()?;
        Some(oldest + self.limits.idle)
    }
}

/// The connections of one shard. A handle: clones share them. When the last one is gone (an [`Exchange`] counts), the idle
/// connections are closed.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Rc<Inner>,
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new(limits: PoolLimits) -> Self {
        Self {
            inner: Rc::new(Inner {
                limits,
                http: Limits::default(),
                idle: RefCell::default(),
                counters: Rc::default(),
                scratch: RefCell::new(BytesMut::with_capacity(RECEIVE_MAX)),
                cipher: Rc::default(),
                sweeping: Cell::new(false),
                gone: Rc::default(),
            }),
        }
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let counters = &self.inner.counters;
        PoolStats {
            opened: counters.opened.get(),
            reused: counters.reused.get(),
            retried: counters.retried.get(),
            expired: counters.expired.get(),
            stale: counters.stale.get(),
            displaced: counters.displaced.get(),
            reads: counters.reads.get(),
            read_bytes: counters.read_bytes.get(),
            open: counters.open.get(),
            idle: self.inner.idle_total() as u64,
        }
    }

    /// Sends `request` and waits for the head of its answer, for as long as it takes: the deadline is the caller's, who
    /// drops the future. The connection goes into `custody` then, if the provider has got all of the request and so may be
    /// at work on it; before that it is reset.
    ///
    /// A body over 64 KiB is written in parts, and an answer of 300 or more that comes meanwhile ends the upload.
    ///
    /// # Errors
    /// No whole head came. A request on a reused connection that failed before any byte of an answer has been tried once
    /// more on a fresh one by then (TUN-7).
    pub async fn send(
        &self,
        key: &Key,
        request: &Outgoing<'_>,
        custody: &Custody,
    ) -> Result<Exchange, ClientError> {
        let Inner { limits, http, counters, .. } = &*self.inner;
        let bounds = (http, limits.write_stall);
        let request = Request::encode(key, request)?;
        let mut retried = false;
        if let Some(conn) = self.take(key) {
            add(&counters.reused, 1);
            match client::attempt(self, conn, &request, bounds, custody).await {
                Ok(mut exchange) => {
                    exchange.reused = true;
                    return Ok(exchange);
                }
                Err(failed) if failed.heard => return Err(failed.error),
                Err(failed) => {
                    tracing::debug!(error = %failed.error, "kept connection was dead, trying a fresh one")
                }
            }
            add(&counters.retried, 1);
            retried = true;
        }
        let conn = self.connect(key).await?;
        match client::attempt(self, conn, &request, bounds, custody).await {
            Ok(mut exchange) => {
                exchange.retried = retried;
                Ok(exchange)
            }
            Err(failed) => Err(failed.error),
        }
    }

    async fn connect(&self, key: &Key) -> Result<Conn, ConnectError> {
        let Inner { limits, counters, .. } = &*self.inner;
        let patience = Patience::behind(limits.write_stall);
        let (wire, early) = match &key.tls {
            None => {
                let stream = Box::pin(dial(key.address, clock::now() + limits.connect_timeout)).await?;
                stream.set_patience(patience);
                (Wire::Plain(stream), BytesMut::new())
            }
            Some(tls) => {
                let (cipher, deadline) = (Rc::clone(&self.inner.cipher), clock::now() + limits.tls_timeout);
                let connected = Box::pin(connect_secure(key, tls, patience, cipher, deadline)).await;
                let (secure, early) = connected?;
                (Wire::Secure(secure), early)
            }
        };
        Ok(Conn::new(wire, early, key.clone(), Rc::clone(counters)))
    }

    /// As [`Abandoned::returned`].
    pub async fn returned(&self, abandoned: Abandoned) -> Return {
        abandoned.returned(&self.inner.scratch).await
    }

    /// As [`Abandoned::returns`].
    pub async fn returns(&self, abandoned: &mut Abandoned) -> Return {
        abandoned.returns(&self.inner.scratch).await
    }

    /// Closes every idle connection, for a configuration that has gone out of use. Running exchanges go on.
    #[expect(
        clippy::mutable_key_type,
        reason = "a configuration of TLS is compared by where it stands, and not hashed"
    )]
    pub fn close_idle(&self) {
        let idle = self.inner.idle.take();
        drop(idle);
    }

    pub(super) fn scratch(&self) -> &RefCell<BytesMut> {
        &self.inner.scratch
    }

    /// The most recently used idle connection of `key` that is still good.
    fn take(&self, key: &Key) -> Option<Conn> {
        let inner = &*self.inner;
        let mut idle = inner.idle.borrow_mut();
        let list = idle.get_mut(key)?;
        // The sweeper may be late.
        inner.expire(list, clock::now());
        let mut found = None;
        while let Some(mut candidate) = list.pop_back() {
            if candidate.conn.is_quiet(&inner.scratch) {
                found = Some(candidate.conn);
                break;
            }
            add(&inner.counters.stale, 1);
        }
        if list.is_empty() {
            idle.remove(key);
        }
        found
    }

    /// Keeps a connection whose exchange has ended cleanly.
    pub(super) fn put(&self, conn: Conn) {
        let inner = &*self.inner;
        if inner.limits.idle_per_key == 0 || inner.idle_total() >= IDLE_TOTAL_MAX {
            add(&inner.counters.displaced, 1);
            return;
        }
        let key = conn.key.clone();
        {
            let mut idle = inner.idle.borrow_mut();
            let list = idle.entry(key).or_default();
            if list.len() >= inner.limits.idle_per_key {
                list.pop_front();
                add(&inner.counters.displaced, 1);
            }
            list.push_back(Idle { conn, since: clock::now() });
        }
        if !inner.sweeping.replace(true) {
            spawn_guarded(sweep(Rc::downgrade(&self.inner), Rc::clone(&inner.gone)));
        }
    }
}

/// Closes idle connections as they come of age; ends when none is left, or when the pool is gone.
async fn sweep(pool: Weak<Inner>, gone: Rc<Latch>) {
    loop {
        let Some(expiry) = pool.upgrade().and_then(|inner| {
            let next = inner.next_expiry();
            inner.sweeping.set(next.is_some());
            next
        }) else {
            return;
        };
        if before(expiry, gone.closed()).await.is_some() {
            return;
        }
        if let Some(inner) = pool.upgrade() {
            inner.sweep(clock::now());
        }
    }
}
