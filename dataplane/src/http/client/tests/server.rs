//! Servers that do exactly what a test says, and a shard to call them from.

use std::{
    future::Future,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::{Bytes, BytesMut};

use crate::{
    clock,
    http::{
        client::{ClientError, Custody, Exchange, Outgoing},
        head::Headers,
        pool::{Key, Pool},
    },
    shard::{DriverWish, Shard, ShardSpec},
    time::sleep_until,
};

/// Longest that anything in these tests may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `test` on a shard of each driver.
pub(super) fn on_both_drivers<F, Fut>(test: F)
where
    F: Fn() -> Fut + Copy + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    for driver in [DriverWish::Auto, DriverWish::Epoll] {
        let spec = ShardSpec { name: "client-test".to_owned(), cpu: None, driver };
        assert!(Shard::start(spec, test).unwrap().join(), "failed with {driver:?}");
    }
}

/// What a server counts.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Connections accepted.
    pub(super) connections: AtomicUsize,
    /// Request heads read.
    pub(super) requests: AtomicUsize,
    /// Bytes of bodies read.
    pub(super) body: AtomicUsize,
    /// Connections whose end was noticed.
    pub(super) closed: AtomicUsize,
    /// [`Peer::mark`]s.
    pub(super) marks: AtomicUsize,
}

/// One accepted connection.
pub(super) struct Peer {
    stream: TcpStream,
    /// 0 for the first one of the server.
    pub(super) number: usize,
    rest: Vec<u8>,
    seen: Arc<Seen>,
}

impl Peer {
    /// Reads one request head; `None` when the client closed instead.
    pub(super) fn head(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.rest.windows(4).position(|w| w == b"\r\n\r\n") {
                let rest = self.rest.split_off(end + 4);
                let head = std::mem::replace(&mut self.rest, rest);
                self.seen.requests.fetch_add(1, SeqCst);
                return Some(String::from_utf8(head).unwrap());
            }
            if self.more() == 0 {
                return None;
            }
        }
    }

    fn more(&mut self) -> usize {
        let mut buffer = [0; 16 * 1024];
        let n = self.stream.read(&mut buffer).unwrap_or(0);
        self.rest.extend_from_slice(&buffer[..n]);
        n
    }

    /// Reads `length` bytes of a body, or fewer when the client closes.
    pub(super) fn body(&mut self, length: usize) -> Vec<u8> {
        while self.rest.len() < length && self.more() > 0 {}
        let rest = self.rest.split_off(length.min(self.rest.len()));
        let body = std::mem::replace(&mut self.rest, rest);
        self.seen.body.fetch_add(body.len(), SeqCst);
        body
    }

    /// Reads a request with its body.
    pub(super) fn request(&mut self) -> Option<(String, Vec<u8>)> {
        let head = self.head()?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().unwrap());
        let body = self.body(length);
        Some((head, body))
    }

    /// Writes; a client that has gone is no error.
    pub(super) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _gone = self.stream.write_all(bytes.as_ref());
    }

    /// The socket, for whoever speaks something else on it.
    pub(super) fn socket(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    /// Counts a request that was read past this type.
    pub(super) fn count_request(&self) {
        self.seen.requests.fetch_add(1, SeqCst);
    }

    /// Counts an end that was noticed past this type.
    pub(super) fn count_closed(&self) {
        self.seen.closed.fetch_add(1, SeqCst);
    }

    /// Waits until the client closes, whatever else it sends.
    pub(super) fn wait_closed(&mut self) {
        while self.more() > 0 {
            self.rest.clear();
        }
        self.seen.closed.fetch_add(1, SeqCst);
    }

    /// Writes until a write fails.
    pub(super) fn write_until_refused(&mut self, piece: &[u8], pause: Duration) {
        while self.stream.write_all(piece).is_ok() {
            self.pause_unread(pause);
        }
        self.seen.closed.fetch_add(1, SeqCst);
    }

    /// Waits for `time`, or until the client says or does something.
    pub(super) fn pause(&mut self, time: Duration) {
        self.stream.set_read_timeout(Some(time)).unwrap();
        self.more();
        self.stream.set_read_timeout(None).unwrap();
    }

    /// Reads nothing for `time`.
    pub(super) fn pause_unread(&self, time: Duration) {
        let (_never, ends) = std::sync::mpsc::channel::<()>();
        let _waited = ends.recv_timeout(time);
    }

    /// Tells the test that the script has come this far.
    pub(super) fn mark(&self) {
        self.seen.marks.fetch_add(1, SeqCst);
    }

    /// Closes, and then tells the test.
    pub(super) fn close(self) {
        let seen = self.seen;
        drop(self.stream);
        seen.marks.fetch_add(1, SeqCst);
    }

    /// Makes the close a reset.
    pub(super) fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// A listening server; its threads end with it.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) seen: Arc<Seen>,
    stop: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Plays `script` on every connection, each on its own thread.
    pub(super) fn start(script: impl Fn(Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, stop) = (Arc::<Seen>::default(), Arc::<AtomicBool>::default());
        let (script, counts, stopped) = (Arc::new(script), Arc::clone(&seen), Arc::clone(&stop));
        let acceptor = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(SeqCst) {
                    return;
                }
                stream.set_nodelay(true).unwrap();
                let number = counts.connections.fetch_add(1, SeqCst);
                let peer = Peer { stream, number, rest: Vec::new(), seen: Arc::clone(&counts) };
                let script = Arc::clone(&script);
                thread::spawn(move || script(peer));
            }
        });
        Self { address, seen, stop, acceptor: Some(acceptor) }
    }

    /// Answers every request with `answer`, keeping the connection.
    pub(super) fn answering(answer: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::start(move |mut peer| {
            while peer.request().is_some() {
                peer.write(answer.as_ref());
            }
            peer.wait_closed();
        })
    }

    /// Reads one request, answers `answer` and closes.
    pub(super) fn answering_once(answer: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::start(move |mut peer| {
            peer.request();
            peer.write(answer.as_ref());
        })
    }

    pub(super) fn key(&self) -> Key {
        self.key_with(0)
    }

    pub(super) fn key_with(&self, credential: u64) -> Key {
        Key { address: self.address, authority: Rc::from("provider.test"), credential, tls: None }
    }

    pub(super) fn connections(&self) -> usize {
        self.seen.connections.load(SeqCst)
    }

    pub(super) fn marks(&self) -> usize {
        self.seen.marks.load(SeqCst)
    }

    pub(super) fn requests(&self) -> usize {
        self.seen.requests.load(SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        let _wake = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ended = acceptor.join();
        }
    }
}

/// Sends a POST with `body`; nobody takes the connection when it is dropped.
pub(super) async fn post(pool: &Pool, key: &Key, body: impl Into<Bytes>) -> Result<Exchange, ClientError> {
    post_for(pool, key, body, &Custody::default()).await
}

/// Sends a POST with `body` for whoever has `custody`.
pub(super) async fn post_for(
    pool: &Pool,
    key: &Key,
    body: impl Into<Bytes>,
    custody: &Custody,
) -> Result<Exchange, ClientError> {
    let headers = Headers::new();
    let request = Outgoing { method: "POST", target: "/v1/x", headers: &headers, body: body.into() };
    pool.send(key, &request, custody).await
}

/// The rest of the body.
pub(super) async fn rest(exchange: &mut Exchange) -> Result<Bytes, ClientError> {
    let mut whole = BytesMut::new();
    while let Some(piece) = exchange.next().await? {
        assert!(!piece.is_empty());
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

/// Status and body of a POST.
pub(super) async fn call(pool: &Pool, key: &Key) -> Result<(u16, Bytes), ClientError> {
    call_with(pool, key, "{}").await
}

/// Status and body of a POST with `body`.
pub(super) async fn call_with(
    pool: &Pool,
    key: &Key,
    body: impl Into<Bytes>,
) -> Result<(u16, Bytes), ClientError> {
    let mut exchange = post(pool, key, body).await?;
    let body = rest(&mut exchange).await?;
    Ok((exchange.head.status, body))
}

/// Waits until `condition` holds.
pub(super) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = clock::now() + PATIENCE;
    while !condition() {
        assert!(clock::now() < deadline, "never happened: {what}");
        sleep_until(clock::now() + Duration::from_millis(3)).await;
    }
}
