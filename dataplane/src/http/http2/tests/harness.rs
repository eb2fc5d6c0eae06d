//! A server on a shard with a few routes, and the `h2` crate's client on another one.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    sync::{Arc, mpsc},
    task::Poll,
    time::Duration,
};

use ::h2::{RecvStream, client::SendRequest};
use ::http::{Request, Response};
use bytes::{Bytes, BytesMut};
use futures::future::{Either, select};
use rustls::ServerConfig;

use super::super::{Ending, Http2Limits, Notice, wire::Port};
use crate::{
    clock,
    http::{
        budget::Budget,
        head::{RequestHead, ResponseHead},
        limits::Limits,
        server::{Connection, Gone, Handshake, RequestFault, ResponseBody, Wire, handshake},
    },
    local::Latch,
    mailbox::{Sender, for_shard},
    net::{Listener, Patience, dial},
    shard::{DriverWish, Shard, ShardSpec, spawn_guarded},
};

/// Bodies over this are refused.
pub(super) const MAX_BODY: usize = 3 << 20;
/// Longest wait of a test for anything.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// What a test's server is told.
pub(super) enum Order {
    Drain,
    Stop,
}

pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) budget: Budget,
    seen: mpsc::Receiver<String>,
    orders: Sender<Order>,
    shard: Option<Shard>,
}

impl Server {
    pub(super) fn start(driver: DriverWish, limits: Limits, bounds: Http2Limits) -> Self {
        Self::over(driver, limits, bounds, None)
    }

    /// As [`Server::start`], under TLS.
    pub(super) fn over(
        driver: DriverWish,
        limits: Limits,
        bounds: Http2Limits,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Patience::with_readers()).unwrap();
        let address = listener.local_addr().unwrap();
        let (see, seen) = mpsc::channel();
        let budget = Budget::new(4 * MAX_BODY as u64);
        let shared = budget.clone();
        let (sender, orders) = for_shard::<Order>(4).unwrap();
        let spec = ShardSpec { name: "http2".to_owned(), cpu: None, driver };
        let shard = Shard::start(spec, move || async move {
            let limits = Rc::new(limits);
            let drain = Rc::new(Latch::new());
            let (mut orders, mut ordered) = (orders.open().unwrap(), Vec::new());
            let mut listener = Listener::open(listener).unwrap();
            loop {
                let accepted = {
                    let ordered = pin!(orders.receive(&mut ordered, 1));
                    match select(pin!(listener.accept()), ordered).await {
                        Either::Left((accepted, _)) => Some(accepted.unwrap()),
                        Either::Right(_) => None,
                    }
                };
                let Some(accepted) = accepted else {
                    match ordered.pop() {
                        Some(Order::Drain) => drain.close(),
                        _ => return,
                    }
                    continue;
                };
                let routes = Routes { see: see.clone(), budget: shared.clone() };
                let (limits, drain) = (Rc::clone(&limits), Rc::clone(&drain));
                let Some(tls) = tls.clone() else {
                    spawn_guarded(routes.serve(Connection::new(accepted, limits), bounds, drain));
                    continue;
                };
                spawn_guarded(async move {
                    match handshake(accepted, tls, clock::now() + PATIENCE).await.unwrap() {
                        Handshake::Secure(secure) => {
                            let connection = Connection::new(Wire::Secure(secure), limits);
                            routes.serve(connection, bounds, drain).await;
                        }
                        Handshake::Plain(..) => panic!("plain"),
                    }
                });
            }
        })
        .unwrap();
        Self { address, budget, seen, orders: sender, shard: Some(shard) }
    }

    pub(super) fn usual(driver: DriverWish) -> Self {
        Self::start(driver, Limits::default(), Http2Limits::default())
    }

    /// The next thing that it saw.
    pub(super) fn saw(&self) -> String {
        self.seen.recv_timeout(PATIENCE).unwrap()
    }

    /// Waits until it has seen all of these, in whatever order.
    pub(super) fn saw_all(&self, all: &[&str]) {
        let mut left = all.to_vec();
        while !left.is_empty() {
            let saw = self.saw();
            if let Some(at) = left.iter().position(|what| *what == saw) {
                left.swap_remove(at);
            }
        }
    }

    /// Waits until it has seen this, whatever else it sees before.
    pub(super) fn saw_at_last(&self, what: &str) {
        while self.saw() != what {}
    }

    /// What it has seen up to this.
    pub(super) fn all_up_to(&self, what: &str) -> Vec<String> {
        let mut all = Vec::new();
        while all.last().is_none_or(|last| last != what) {
            all.push(self.saw());
        }
        all
    }

    /// The first of these that it sees.
    pub(super) fn all_up_to_any(&self, any: &[&str]) -> String {
        loop {
            let saw = self.saw();
            if any.contains(&&*saw) {
                return saw;
            }
        }
    }

    pub(super) fn drain(&self) {
        assert!(self.orders.send(Order::Drain).is_ok());
    }

    pub(super) fn panicked(&self) -> u64 {
        self.shard.as_ref().map_or(0, |shard| shard.tasks.panicked())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _told = self.orders.send(Order::Stop);
        let ended = self.shard.take().is_some_and(Shard::join);
        if !std::thread::panicking() {
            assert!(ended);
        }
    }
}

/// Runs a test on both drivers.
pub(super) fn on_both(test: impl Fn(&Server)) {
    for driver in [DriverWish::Auto, DriverWish::Epoll] {
        let server = Server::usual(driver);
        test(&server);
        assert_eq!(server.panicked(), 0, "{driver:?}");
    }
}

#[derive(Clone)]
struct Routes {
    see: mpsc::Sender<String>,
    budget: Budget,
}

impl Routes {
    fn saw(&self, what: impl Into<String>) {
        let _nobody_listens = self.see.send(what.into());
    }

    async fn serve(self, mut connection: Connection, bounds: Http2Limits, drain: Rc<Latch>) {
        let first =
            if connection.is_http2() { Err(RequestFault::Http2) } else { connection.next_request().await };
        match first {
            Err(RequestFault::Http2) => {}
            Ok(Some(_)) => {
                let _gone = connection.respond(&ResponseHead::new(200), b"http/1").await;
                return connection.close().await;
            }
            other => return self.saw(format!("{other:?}")),
        }
        let told = self.clone();
        let notify = Box::new(move |notice: Notice| {
            told.saw(match notice {
                Notice::Reset(code) => format!("reset {}", code.label()),
                Notice::ResetByClient(code) => format!("reset by client {}", code.label()),
                Notice::Gone(code) => format!("goaway {}", code.label()),
                Notice::GoneByClient(code) => format!("goaway by client {}", code.label()),
            });
        });
        let Some(mut server) = connection.into_http2(bounds, notify) else { return };
        let was_busy = Cell::new(false);
        let busy = |busy: bool| {
            if was_busy.replace(busy) && !busy {
                self.saw("not busy");
            }
        };
        loop {
            let next = match select(pin!(server.next(busy)), pin!(drain.closed())).await {
                Either::Left((next, _)) => Some(next),
                Either::Right(_) => None,
            };
            let Some(next) = next else {
                server.drain();
                break;
            };
            match next {
                Some(stream) => spawn_guarded(self.clone().stream(stream)),
                None => return self.saw(format!("ended {}", server.ending().label())),
            }
        }
        while let Some(stream) = server.next(busy).await {
            spawn_guarded(self.clone().stream(stream));
        }
        let ending: Ending = server.ending();
        self.saw(format!("ended {}", ending.label()));
    }

    async fn stream(self, mut connection: Connection) {
        match connection.next_request().await {
            Ok(Some(head)) => self.answer(&mut connection, &head).await,
            Err(fault) => {
                self.saw(format!("refused {fault}"));
                let status = fault.status().unwrap_or(400);
                let _gone = connection.respond(&ResponseHead::new(status), b"refused").await;
            }
            Ok(None) => return self.saw("nothing"),
        }
        assert!(matches!(connection.next_request().await, Ok(None)));
        connection.close().await;
    }

    async fn answer(&self, connection: &mut Connection, head: &RequestHead) {
        let ok = ResponseHead::new(200);
        match head.target.path() {
            "/hello" => {
                let sent = connection.respond(&ok, b"hello").await;
                self.saw(format!("hello {}", sent.is_ok()));
            }
            "/empty" => {
                connection.begin(&ResponseHead::new(204), ResponseBody::None);
                connection.finish();
                connection.flush().await.unwrap();
            }
            "/echo" => match connection.read_body(MAX_BODY, &self.budget).await {
                Ok(body) => {
                    self.saw(format!("body {}", body.len()));
                    let _gone = connection.respond(&ok, &body.joined()).await;
                }
                Err(fault) => {
                    self.saw(format!("no body: {fault}"));
                    if let Some(status) = fault.status() {
                        let _gone = connection.respond(&ResponseHead::new(status), b"no").await;
                    }
                }
            },
            "/unread" => {
                let _gone = connection.respond(&ResponseHead::new(413), b"too much").await;
                self.saw("answered");
            }
            "/wait" => {
                self.saw("waits");
                let watch = connection.watch();
                watch.await.unwrap();
                let gone = connection.check_gone() == Gone::Yes && connection.peer().has_left();
                self.saw(format!("gone {gone}"));
            }
            "/stream" => self.stream_body(connection, head).await,
            "/cut" => {
                connection.begin(&ok, ResponseBody::Chunked);
                connection.push(b"a part");
                let _gone = connection.flush().await;
                connection.push(b", an error");
            }
            "/short" => {
                connection.begin(&ok, ResponseBody::Length(10));
                connection.push(b"1234");
                connection.finish();
            }
            "/until-close" => {
                connection.begin(&ok, ResponseBody::UntilClose);
                connection.push(b"all");
                connection.finish();
            }
            "/panic" => {
                connection.begin(&ok, ResponseBody::Chunked);
                connection.flush().await.unwrap();
                panic!("as asked");
            }
            _ => {
                let _gone = connection.respond(&ResponseHead::new(404), b"").await;
            }
        }
    }

    /// `?pieces` of 1000 bytes, each flushed.
    async fn stream_body(&self, connection: &mut Connection, head: &RequestHead) {
        let pieces: usize = head.target.query().and_then(|query| query.parse().ok()).unwrap_or(1);
        connection.begin(&ResponseHead::new(200), ResponseBody::Chunked);
        for sent in 0..pieces {
            connection.push(&[b'x'; 1000]);
            if let Err(fault) = connection.flush().await {
                return self.saw(format!("after {sent}: {fault}"));
            }
            self.saw(format!("sent {sent}"));
        }
        connection.finish();
        let _gone = connection.flush().await;
        self.saw("all sent");
    }
}

/// Runs `script` with a client of the `h2` crate on a shard of its own, and gives back what it gives.
pub(super) fn client<F, Fut, T>(address: SocketAddr, script: F) -> T
where
    F: FnOnce(SendRequest<Bytes>) -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
    T: Send + 'static,
{
    client_with(address, ::h2::client::Builder::new(), script)
}

/// As [`client`], of these settings.
pub(super) fn client_with<F, Fut, T>(address: SocketAddr, settings: ::h2::client::Builder, script: F) -> T
where
    F: FnOnce(SendRequest<Bytes>) -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let (tell, told) = mpsc::channel();
    let spec = ShardSpec { name: "client".to_owned(), cpu: None, driver: DriverWish::Epoll };
    let shard = Shard::start(spec, move || async move {
        let stream = dial(address, clock::now() + PATIENCE).await.unwrap();
        let port = Port::new(
            stream.into(),
            (BytesMut::new(), 0),
            &Http2Limits::default(),
            Box::new(|_| {}),
            clock::now(),
        );
        let mut handshake = pin!(settings.handshake::<_, Bytes>(port.clone()));
        let (send, mut connection) = poll_fn(|cx| {
            port.begin_turn(clock::now());
            let polled = handshake.as_mut().poll(cx);
            let _sent = port.poll_send(cx);
            polled
        })
        .await
        .unwrap();
        spawn_guarded(async move {
            poll_fn(|cx| {
                port.begin_turn(clock::now());
                let polled = Pin::new(&mut connection).poll(cx);
                match port.poll_send(cx) {
                    Poll::Ready(Err(_)) => Poll::Ready(()),
                    _ => polled.map(|_ended| ()),
                }
            })
            .await;
        });
        let _told = tell.send(script(send).await);
    })
    .unwrap();
    let gave = told.recv_timeout(PATIENCE);
    assert!(shard.join());
    gave.unwrap()
}

pub(super) fn get(path: &str) -> Request<()> {
    Request::builder().uri(format!("http://edge.test{path}")).body(()).unwrap()
}

pub(super) fn post(path: &str) -> Request<()> {
    Request::builder().method("POST").uri(format!("http://edge.test{path}")).body(()).unwrap()
}

/// Status and body, or the code that ended it.
pub(super) async fn whole(response: Response<RecvStream>) -> (u16, Result<Vec<u8>, String>) {
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut all = Vec::new();
    while let Some(data) = poll_fn(|cx| body.poll_data(cx)).await {
        match data {
            Ok(data) => {
                all.extend_from_slice(&data);
                body.flow_control().release_capacity(data.len()).unwrap();
            }
            Err(error) => return (status, Err(format!("{:?} after {}", error.reason(), all.len()))),
        }
    }
    (status, Ok(all))
}
