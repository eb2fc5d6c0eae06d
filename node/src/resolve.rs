//! Names to addresses, on a helper thread: a resolver blocks, a shard must not.
//!
//! Literal addresses and `localhost` are answered at once. Each [`Resolver`] has a thread of its own, so that a slow name
//! of a provider never holds up the name of the Edge.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    rc::Rc,
    thread,
};

use dataplane::{
    local::Signal,
    mailbox::{self, Sender, ShardInboxSeed, ThreadInbox},
    shard::spawn_guarded,
};
use thiserror::Error;

/// Lookups of one resolver that wait or run; a further one fails with [`ResolveError::TooMany`].
pub const LOOKUPS_MAX: usize = 256;
/// Addresses of one name that are used; further ones are left out.
pub const ADDRESSES_MAX: usize = 8;

/// How a name is looked up; blocks.
pub type Lookup = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// Why a name has no address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ResolveError {
    /// The resolver of the system says so.
    #[error("cannot resolve {host}: {why}")]
    Failed {
        /// The name.
        host: String,
        /// The system's words.
        why: String,
    },
    /// It has no address at all.
    #[error("{0} has no address")]
    Empty(String),
    /// [`LOOKUPS_MAX`] reached.
    #[error("more than {LOOKUPS_MAX} names wait for the resolver")]
    TooMany,
}

enum Job {
    Lookup { id: u64, host: String, port: u16 },
    Stop,
}

struct Answer {
    id: u64,
    result: io::Result<Vec<SocketAddr>>,
}

/// A resolver whose thread runs and whose shard has not opened it yet.
pub struct ResolverSeed {
    jobs: Sender<Job>,
    answers: ShardInboxSeed<Answer>,
}

impl std::fmt::Debug for ResolverSeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResolverSeed").finish_non_exhaustive()
    }
}

/// Starts the thread `name` that looks up with `lookup`.
///
/// # Errors
/// No thread or no descriptors left.
pub fn start(name: &str, lookup: Lookup) -> io::Result<ResolverSeed> {
    // One more than the lookups, so that the stop always fits.
    let (jobs, inbox) = mailbox::for_thread(LOOKUPS_MAX + 1);
    let (replies, answers) = mailbox::for_shard(LOOKUPS_MAX)?;
    thread::Builder::new().name(name.to_owned()).spawn(move || work(&inbox, &replies, lookup))?;
    Ok(ResolverSeed { jobs, answers })
}

/// The system's own resolver (`getaddrinfo`).
///
/// # Errors
/// As the system says.
pub fn system(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    (host, port).to_socket_addrs().map(|addresses| addresses.take(ADDRESSES_MAX).collect())
}

fn work(inbox: &ThreadInbox<Job>, replies: &Sender<Answer>, lookup: Lookup) {
    inbox.adopt();
    loop {
        match inbox.try_pop() {
            None => inbox.park(None, || false),
            Some(Job::Stop) => return,
            Some(Job::Lookup { id, host, port }) => {
                let answer = Answer { id, result: lookup(&host, port) };
                // Never full: its bound is that of the lookups in flight.
                let _sent = replies.send(answer);
            }
        }
    }
}

struct Pending {
    done: Signal,
    result: RefCell<Option<io::Result<Vec<SocketAddr>>>>,
}

struct Shared {
    jobs: Sender<Job>,
    pending: RefCell<HashMap<u64, Rc<Pending>>>,
    /// Lookups that the thread has not answered, also those whose waiter is gone.
    in_flight: Cell<usize>,
    next: Cell<u64>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _sent = self.jobs.send(Job::Stop);
    }
}

/// A resolver on its shard. Cloning shares it; the last clone's drop ends the thread.
#[derive(Clone)]
pub struct Resolver(Rc<Shared>);

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").field("in_flight", &self.0.in_flight.get()).finish_non_exhaustive()
    }
}

impl ResolverSeed {
    /// Opens the resolver on the calling shard.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn open(self) -> io::Result<Resolver> {
        let mut inbox = self.answers.open()?;
        let shared = Rc::new(Shared {
            jobs: self.jobs,
            pending: RefCell::default(),
            in_flight: Cell::new(0),
            next: Cell::new(0),
        });
        let weak = Rc::downgrade(&shared);
        spawn_guarded(async move {
            let mut batch = Vec::new();
            loop {
                inbox.receive(&mut batch, LOOKUPS_MAX).await;
                let Some(shared) = weak.upgrade() else { return };
                for answer in batch.drain(..) {
                    shared.in_flight.set(shared.in_flight.get().saturating_sub(1));
                    let pending = shared.pending.borrow_mut().remove(&answer.id);
                    if let Some(pending) = pending {
                        *pending.result.borrow_mut() = Some(answer.result);
                        pending.done.set();
                    }
                }
            }
        });
        Ok(Resolver(shared))
    }
}

impl Resolver {
    /// The addresses of `host`, at least one and at most [`ADDRESSES_MAX`]. Loses nothing when dropped.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
        if let Some(addresses) = literal(host, port) {
            return Ok(addresses);
        }
        let shared = &self.0;
        let id = shared.next.get();
        if shared.in_flight.get() >= LOOKUPS_MAX
            || shared.jobs.send(Job::Lookup { id, host: host.to_owned(), port }).is_err()
        {
            return Err(ResolveError::TooMany);
        }
        shared.next.set(id + 1);
        shared.in_flight.set(shared.in_flight.get() + 1);
        let pending = Rc::new(Pending { done: Signal::new(), result: RefCell::new(None) });
        shared.pending.borrow_mut().insert(id, Rc::clone(&pending));
        let _forget = Forget { shared, id };
        pending.done.wait().await;
        let result = pending.result.borrow_mut().take();
        match result {
            Some(Ok(mut addresses)) if !addresses.is_empty() => {
                addresses.truncate(ADDRESSES_MAX);
                Ok(addresses)
            }
            Some(Err(error)) => Err(ResolveError::Failed { host: host.to_owned(), why: error.to_string() }),
            Some(Ok(_)) | None => Err(ResolveError::Empty(host.to_owned())),
        }
    }
}

/// Takes a waiter that was dropped out of the table.
struct Forget<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.shared.pending.borrow_mut().remove(&self.id);
    }
}

/// Addresses that need no resolver.
#[must_use]
pub fn literal(host: &str, port: u16) -> Option<Vec<SocketAddr>> {
    if host.eq_ignore_ascii_case("localhost") {
        let both = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        return Some(both.into_iter().map(|ip| SocketAddr::new(ip, port)).collect());
    }
    host.parse().ok().map(|ip: IpAddr| vec![SocketAddr::new(ip, port)])
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use dataplane::shard::{DriverWish, Shard, ShardSpec};

    use super::*;

    fn fake(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        match host {
            "edge.test" => Ok(vec![SocketAddr::from(([127, 0, 0, 9], port))]),
            "empty.test" => Ok(Vec::new()),
            _ => Err(io::Error::other("no such name")),
        }
    }

    #[test]
    fn names_are_resolved_off_the_shard_and_errors_come_back() {
        for driver in [DriverWish::Auto, DriverWish::Epoll] {
            let seed = start("resolve-test", fake).unwrap();
            let (sent, received) = mpsc::channel();
            let spec = ShardSpec { name: "test".to_owned(), cpu: None, driver };
            let shard = Shard::start(spec, move || async move {
                let resolver = seed.open().unwrap();
                for host in ["edge.test", "empty.test", "gone.test", "127.0.0.1"] {
                    sent.send(resolver.resolve(host, 7).await).unwrap();
                }
            })
            .unwrap();
            assert!(shard.join());
            let answers: Vec<_> = received.iter().collect();
            assert_eq!(answers[0], Ok(vec![SocketAddr::from(([127, 0, 0, 9], 7))]));
            assert_eq!(answers[1], Err(ResolveError::Empty("empty.test".to_owned())));
            assert!(matches!(&answers[2], Err(ResolveError::Failed { why, .. }) if why == "no such name"));
            assert_eq!(answers[3], Ok(vec![SocketAddr::from(([127, 0, 0, 1], 7))]));
        }
    }

    #[test]
    fn literal_addresses_and_localhost_need_no_resolver() {
        assert_eq!(literal("LocalHost", 80).unwrap().len(), 2);
        assert_eq!(literal("::1", 80).unwrap(), ["[::1]:80".parse().unwrap()]);
        assert!(literal("edge.example.org", 80).is_none());
        assert!(literal("0x7f000001", 80).is_none());
    }
}
