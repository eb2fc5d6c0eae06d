//! A real server on a shard with a few routes, and a blocking client.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    pin::{Pin, pin},
    rc::Rc,
    sync::{Arc, mpsc},
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use futures::future::{Either, select};
use rustls::ServerConfig;

use crate::{
    clock,
    http::{
        budget::Budget,
        head::{RequestHead, ResponseHead},
        limits::Limits,
        server::{Connection, Gone, Handshake, ResponseBody, Watch, Wire, handshake},
    },
    local::Latch,
    mailbox::{Sender, for_shard},
    net::{Listener, Patience, Stream, WriteFault},
    shard::{DriverWish, Shard, ShardSpec, spawn_guarded},
    time::sleep_until,
};

/// Bodies over this are refused.
pub(super) const MAX_BODY: usize = 100_000;

/// More than a client takes that reads nothing, less than the sockets hold.
pub(super) const UNREAD: usize = 400 * 1024;

/// Longest wait of a test for anything.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Server {
    pub(super) address: SocketAddr,
    /// What its bodies take their room from: twice [`MAX_BODY`].
    pub(super) budget: Budget,
    /// What the routes saw.
    pub(super) seen: mpsc::Receiver<String>,
    stop: Sender<()>,
    shard: Option<Shard>,
}

impl Server {
    pub(super) fn start(driver: DriverWish, limits: Limits) -> Self {
        Self::over(driver, limits, None)
    }

    /// One of HTTPS where there is a configuration of TLS.
    pub(super) fn over(driver: DriverWish, limits: Limits, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Patience::with_readers()).unwrap();
        let address = listener.local_addr().unwrap();
        let (see, seen) = mpsc::channel();
        let budget = Budget::new(2 * MAX_BODY as u64);
        let shared = budget.clone();
        let (stopper, stop) = for_shard::<()>(1).unwrap();
        let spec = ShardSpec { name: "http".to_owned(), cpu: None, driver };
        let shard = Shard::start(spec, move || async move {
            let (drain, limits) = (Rc::new(Latch::new()), Rc::new(limits));
            let (mut stop, mut stopped) = (stop.open().unwrap(), Vec::new());
            let mut listener = Listener::open(listener).unwrap();
            loop {
                let accepted =
                    match select(pin!(listener.accept()), pin!(stop.receive(&mut stopped, 1))).await {
                        Either::Left((accepted, _)) => accepted.ok(),
                        Either::Right(_) => None,
                    };
                let Some(stream) = accepted else { return };
                let routes = Routes { see: see.clone(), budget: shared.clone(), drain: Rc::clone(&drain) };
                let limits = Rc::clone(&limits);
                match tls.clone() {
                    Some(tls) => spawn_guarded(routes.serve_secure(stream, tls, limits)),
                    None => spawn_guarded(routes.serve(Connection::new(stream, limits))),
                };
            }
        })
        .unwrap();
        Self { address, budget, seen, stop: stopper, shard: Some(shard) }
    }

    pub(super) fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream, read: Vec::new() }
    }

    pub(super) fn saw(&self) -> String {
        self.seen.recv_timeout(PATIENCE).unwrap()
    }

    pub(super) fn panicked(&self) -> u64 {
        self.shard.as_ref().map_or(0, |shard| shard.tasks.panicked())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _told = self.stop.send(());
        let ended = self.shard.take().is_some_and(Shard::join);
        if !std::thread::panicking() {
            assert!(ended);
        }
    }
}

/// Runs a test on both drivers.
pub(super) fn on_both(limits: &Limits, test: impl Fn(&Server)) {
    for driver in [DriverWish::Auto, DriverWish::Epoll] {
        let server = Server::start(driver, limits.clone());
        test(&server);
        assert_eq!(server.panicked(), 0, "{driver:?}");
    }
}

struct Routes {
    see: mpsc::Sender<String>,
    budget: Budget,
    drain: Rc<Latch>,
}

impl Routes {
    fn saw(&self, what: impl Into<String>) {
        let _nobody_listens = self.see.send(what.into());
    }

    async fn serve_secure(self, stream: Stream, tls: Arc<ServerConfig>, limits: Rc<Limits>) {
        match handshake(stream, tls, clock::now() + limits.head_deadline).await {
            Ok(Handshake::Secure(secure)) => {
                self.serve(Connection::new(Wire::Secure(secure), limits)).await;
            }
            Ok(Handshake::Plain(stream, received)) => {
                self.saw("plain");
                let mut connection = Connection::resume(stream, received, limits);
                if connection.next_request().await.is_ok() {
                    let _sent = connection.respond(&ResponseHead::new(400), b"https").await;
                }
                connection.close().await;
            }
            Err(error) => self.saw(format!("{error}")),
        }
    }

    async fn serve(self, mut connection: Connection) {
        loop {
            // As an owner does it: `next_request` is dropped when the drain comes, also in the middle of a head.
            let next = match select(pin!(connection.next_request()), pin!(self.drain.closed())).await {
                Either::Left((next, _)) => Some(next),
                Either::Right(_) => None,
            };
            let next = match next {
                Some(next) => next,
                None => {
                    connection.set_draining();
                    connection.next_request().await
                }
            };
            match next {
                Ok(Some(head)) => match self.answer(connection, &head).await {
                    Some(back) => connection = back,
                    None => return,
                },
                Ok(None) => {
                    self.saw("end");
                    return connection.close().await;
                }
                Err(fault) => {
                    self.saw(format!("{fault}"));
                    if let Some(status) = fault.status() {
                        let _sent = connection.respond(&ResponseHead::new(status), b"refused").await;
                    }
                    return connection.close().await;
                }
            }
        }
    }

    async fn answer(&self, mut connection: Connection, head: &RequestHead) -> Option<Connection> {
        match head.target.path() {
            "/drain" => {
                self.drain.close();
                connection.set_draining();
                let _sent = connection.respond(&ResponseHead::new(200), b"").await;
            }
            "/early" => {
                let _sent = connection.respond(&ResponseHead::new(404), b"early").await;
            }
            "/stream" => stream(&mut connection).await,
            "/short" => {
                connection.begin(&ResponseHead::new(200), ResponseBody::Length(10));
                connection.push(b"12345");
                connection.finish();
                let _sent = connection.flush().await;
            }
            "/over" => {
                connection.begin(&ResponseHead::new(200), ResponseBody::Length(5));
                connection.push(b"1234567890");
                connection.finish();
                let _sent = connection.flush().await;
            }
            "/nothing" => {
                connection.begin(&ResponseHead::new(204), ResponseBody::None);
                connection.finish();
                let _sent = connection.flush().await;
            }
            "/break" => {
                connection.begin(&ResponseHead::new(200), ResponseBody::Chunked);
                connection.push(b"part");
                connection.break_off().await;
                return None;
            }
            "/reset" => {
                connection.begin(&ResponseHead::new(200), ResponseBody::Chunked);
                connection.push(b"part");
                let _sent = connection.flush().await;
                connection.abort_hard();
                return None;
            }
            "/until-close" => {
                connection.begin(&ResponseHead::new(200), ResponseBody::UntilClose);
                connection.push(b"part");
                connection.push(&vec![b'x'; UNREAD]);
                let _sent = connection.flush().await;
                connection.finish();
            }
            "/until-death" => {
                connection.begin(&ResponseHead::new(200), ResponseBody::UntilClose);
                connection.push(b"part");
                let _sent = connection.flush().await;
                // What the kernel does for a process that is killed: it closes.
                drop(connection);
                return None;
            }
            "/left" => {
                let peer = connection.peer();
                assert!(!peer.has_left());
                self.saw("asking");
                while !peer.has_left() {
                    sleep_until(clock::now() + Duration::from_millis(5)).await;
                }
                self.saw("left");
                let _sent = connection.respond(&ResponseHead::new(200), b"left").await;
            }
            "/wait" => self.wait(&mut connection).await,
            "/hang" => return self.hang(connection).await,
            "/firehose" => {
                self.firehose(connection).await;
                return None;
            }
            _ => match connection.read_body(MAX_BODY, &self.budget).await {
                Ok(body) => {
                    self.saw(format!("body {}", body.len()));
                    let _sent = connection.respond(&ResponseHead::new(200), &body.joined()).await;
                }
                Err(fault) => {
                    self.saw(format!("{fault}"));
                    let status = fault.status().unwrap_or(400);
                    let _sent = connection.respond(&ResponseHead::new(status), b"refused").await;
                }
            },
        }
        Some(connection)
    }

    /// A silent response that ends when the client goes, or after the client has sent `/go`.
    async fn hang(&self, mut connection: Connection) -> Option<Connection> {
        let _body = connection.read_body(MAX_BODY, &self.budget).await;
        connection.begin(&ResponseHead::new(200), ResponseBody::Chunked);
        connection.push(b"begun");
        let _sent = connection.flush().await;
        self.saw("hanging");
        loop {
            let fired = connection.watch().await;
            match connection.check_gone() {
                Gone::Yes => {
                    self.saw("gone");
                    connection.close().await;
                    return None;
                }
                Gone::No => {
                    assert!(fired.is_ok());
                    self.saw("more");
                    connection.push(b"more");
                    let _sent = connection.flush().await;
                    if connection.http1().buf.ends_with(b"\r\n\r\n") {
                        break;
                    }
                }
                Gone::Deaf => {
                    self.saw("deaf");
                    break;
                }
            }
        }
        connection.finish();
        let _sent = connection.flush().await;
        Some(connection)
    }

    /// Answers after a while, or when the client has sent something meanwhile. Its watch is kept, and tells when it fires.
    async fn wait(&self, connection: &mut Connection) {
        let (watch, see) = (connection.watch(), self.see.clone());
        let mut watch = Watch(Box::pin(async move {
            let fired = watch.await;
            let _nobody_listens = see.send("kept watch fired".to_owned());
            fired
        }));
        // Arms it, and leaves it to itself then.
        std::future::poll_fn(|cx| {
            assert!(Pin::new(&mut watch).poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        self.saw("waiting");
        let end = clock::now() + Duration::from_millis(300);
        while clock::now() < end && connection.http1().wire.unread() == 0 {
            sleep_until(clock::now() + Duration::from_millis(5)).await;
        }
        assert_eq!(connection.check_gone(), Gone::No);
        connection.keep_watch(watch);
        let _sent = connection.respond(&ResponseHead::new(200), b"waited").await;
    }

    async fn firehose(&self, mut connection: Connection) {
        connection.begin(&ResponseHead::new(200), ResponseBody::Chunked);
        let data = vec![b'x'; 300 * 1024];
        loop {
            connection.push(&data);
            match connection.flush().await {
                Ok(()) => {}
                Err(fault) => {
                    self.saw(if matches!(fault, WriteFault::Stalled) { "stalled" } else { "broken" });
                    return connection.abort_hard();
                }
            }
        }
    }
}

async fn stream(connection: &mut Connection) {
    let mut head = ResponseHead::new(200);
    head.headers.push("content-type", "text/event-stream").unwrap();
    head.headers.push("date", "today").unwrap();
    connection.begin(&head, ResponseBody::Chunked);
    let _sent = connection.flush().await;
    connection.push(b"one,");
    let _sent = connection.flush().await;
    connection.push_parts(&[Bytes::from_static(b"two,"), Bytes::from_static(b"three")]);
    connection.finish();
    let _sent = connection.flush().await;
    assert_eq!(connection.pending(), 0);
}

pub(super) struct Client {
    pub(super) stream: TcpStream,
    /// Received and not yet looked at.
    pub(super) read: Vec<u8>,
}

impl Client {
    pub(super) fn send(&mut self, text: &str) {
        // The server may have closed already; what it said is judged by the reads.
        let _broken = self.stream.write_all(text.as_bytes());
    }

    fn more(&mut self) -> bool {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => false,
            Ok(n) => {
                self.read.extend_from_slice(&piece[..n]);
                true
            }
            Err(error) => panic!("after {:?}: {error}", String::from_utf8_lossy(&self.read)),
        }
    }

    /// Everything up to and with `end`.
    pub(super) fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = memchr::memmem::find(&self.read, end.as_bytes()) {
                return String::from_utf8(self.read.drain(..at + end.len()).collect()).unwrap();
            }
            assert!(self.more(), "ended after {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    /// Status, head and body of a response with a length.
    pub(super) fn response(&mut self) -> (u16, String, String) {
        let head = self.until("\r\n\r\n");
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        while self.read.len() < length {
            assert!(self.more());
        }
        let body = String::from_utf8(self.read.drain(..length).collect()).unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head, body)
    }

    /// Everything up to an orderly end.
    pub(super) fn rest(&mut self) -> String {
        while self.more() {}
        String::from_utf8(std::mem::take(&mut self.read)).unwrap()
    }
}
