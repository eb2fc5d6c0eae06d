//! A shard with a listening Edge and dialling Nodes on it.

use std::{
    future::Future,
    hash::{DefaultHasher, Hasher},
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use futures::join;
use rustls::ClientConfig;

use super::pki::Deployment;
use crate::{
    clock,
    net::{Listener, Patience, Stream, dial},
    relay::{Established, Handler, HandshakeError, Incoming, accept, connect},
    shard::{DriverWish, Shard, ShardSpec},
    tls::config::server_name,
};

/// Both drivers of the ladder.
pub(super) const DRIVERS: [DriverWish; 2] = [DriverWish::Epoll, DriverWish::Auto];

/// No test takes this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `main` on a shard of its own and gives its output. A panic in any of its tasks fails the test.
pub(super) fn on_shard<T, F, Fut>(driver: DriverWish, main: F) -> T
where
    T: Send + 'static,
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
{
    let (done, is_done) = mpsc::channel();
    let spec = ShardSpec { name: "relay-test".to_owned(), cpu: None, driver };
    let shard = Shard::start(spec, move || async move {
        done.send(main().await).unwrap();
    })
    .unwrap();
    let output = is_done.recv_timeout(PATIENCE).unwrap();
    assert_eq!(shard.tasks.panicked(), 0);
    assert!(shard.join());
    output
}

pub(super) fn soon() -> Instant {
    clock::now() + Duration::from_secs(10)
}

/// An Edge's listener and what a Node dials.
pub(super) struct Edge {
    listener: Listener,
    pub(super) address: SocketAddr,
    pub(super) deployment: Deployment,
}

impl Edge {
    pub(super) fn new() -> Self {
        let bound = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), Patience::with_readers()).unwrap();
        let listener = Listener::open(bound).unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address, deployment: Deployment::new() }
    }

    /// A plain connection: the Edge's end, then the Node's.
    pub(super) async fn sockets(&mut self) -> (Stream, Stream) {
        let (accepted, dialled) = join!(self.listener.accept(), dial(self.address, soon()));
        (accepted.unwrap(), dialled.unwrap())
    }

    /// Both ends of a handshake with this Node.
    pub(super) async fn handshake(
        &mut self,
        node: Arc<ClientConfig>,
    ) -> (Result<Established, HandshakeError>, Result<Established, HandshakeError>) {
        let (accepted, dialled) = self.sockets().await;
        let server = self.deployment.edge();
        let accepting = Box::pin(accept(accepted, server, soon()));
        join!(accepting, Box::pin(connect(dialled, node, server_name("localhost"), soon())))
    }

    /// An established connection with a good Node: the Edge's end, then the Node's.
    pub(super) async fn connection(&mut self) -> (Established, Established) {
        let node = self.deployment.node();
        let (edge, node) = Box::pin(self.handshake(node)).await;
        (edge.unwrap(), node.unwrap())
    }
}

/// Keeps what arrives.
#[derive(Default)]
pub(super) struct Log(pub(super) Vec<Incoming>);

impl Handler for Log {
    fn on_incoming(&mut self, incoming: Incoming) {
        self.0.push(incoming);
    }

    fn on_batch_end(&mut self) {}
}

pub(super) fn digest(pieces: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for piece in pieces {
        hasher.write(piece);
    }
    hasher.finish()
}
