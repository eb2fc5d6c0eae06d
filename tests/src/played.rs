//! An HTTP server whose part a function of the test plays: a thread for each connection, so that every exchange may take as
//! long as it likes.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd, RawFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

/// How long a connection may stay open in silence.
const IDLE: Duration = Duration::from_secs(120);

/// What plays: it is given one request and answers it, on a thread of its own. An error ends the connection.
type Part = dyn Fn(&mut Exchange) -> anyhow::Result<()> + Send + Sync;

/// A server on a free port of this machine, gone when it is dropped.
pub struct Played {
    address: SocketAddr,
    part: Arc<Part>,
    door: Mutex<Option<Door>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

/// The listener and its thread.
struct Door {
    shut: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl std::fmt::Debug for Played {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Played").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Played {
    /// Listens.
    ///
    /// # Errors
    /// There is no port.
    pub fn start(
        part: impl Fn(&mut Exchange) -> anyhow::Result<()> + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        Self::start_on("127.0.0.1:0", part)
    }

    /// As [`Played::start`], at this address.
    ///
    /// # Errors
    /// It is taken.
    pub fn start_on(
        address: &str,
        part: impl Fn(&mut Exchange) -> anyhow::Result<()> + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let played = Self { address, part: Arc::new(part), door: Mutex::new(None), open: Arc::default() };
        played.listen(listener);
        Ok(played)
    }

    /// `http://host:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes no connection any more: who comes is refused. Those that are open stay.
    ///
    /// # Errors
    /// Its thread panicked.
    pub fn close_door(&self) -> anyhow::Result<()> {
        let Some(door) = locked(&self.door).take() else { return Ok(()) };
        door.shut.store(true, SeqCst);
        // It waits for a connection.
        let _wakes = TcpStream::connect(self.address);
        door.thread.join().map_err(|_| anyhow::anyhow!("the listener's thread panicked"))
    }

    /// Takes connections again, at the same address.
    ///
    /// # Errors
    /// Somebody else has it.
    pub fn open_door(&self) -> anyhow::Result<()> {
        self.close_door()?;
        self.listen(TcpListener::bind(self.address)?);
        Ok(())
    }

    fn listen(&self, listener: TcpListener) {
        let shut = Arc::new(AtomicBool::new(false));
        let (is_shut, part, open) = (Arc::clone(&shut), Arc::clone(&self.part), Arc::clone(&self.open));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if is_shut.load(SeqCst) {
                    return;
                }
                let Ok(end) = stream.try_clone() else { continue };
                let mut all = locked(&open);
                all.retain(|stream| !is_over(stream));
                all.push(end);
                drop(all);
                let part = Arc::clone(&part);
                std::thread::spawn(move || {
                    let mut connection = Connection { stream, rest: Vec::new() };
                    while matches!(connection.exchange(&*part), Ok(true)) {}
                    // There are copies: the end is to be seen now.
                    let _gone = connection.stream.shutdown(Shutdown::Both);
                });
            }
        });
        *locked(&self.door) = Some(Door { shut, thread });
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        let _panicked = self.close_door();
        for stream in locked(&self.open).drain(..) {
            let _gone = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Whether nothing can come of a socket any more; then its copy need not be kept.
fn is_over(stream: &TcpStream) -> bool {
    stream.peer_addr().is_err()
}

/// A lock that a panic of another test's thread does not take away.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Connection {
    stream: TcpStream,
    rest: Vec<u8>,
}

impl Connection {
    /// One request and its answer; whether another may come.
    fn exchange(&mut self, part: &Part) -> anyhow::Result<bool> {
        self.stream.set_nodelay(true)?;
        self.stream.set_read_timeout(Some(IDLE))?;
        self.stream.set_write_timeout(Some(IDLE))?;
        let Some(head) = self.head()? else { return Ok(false) };
        let mut words = head.split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().context("a request line")?;
        let path = target.split('?').next().unwrap_or_default().to_owned();
        let body = self.body(&head)?;
        let mut exchange =
            Exchange { method, path, head, body, stream: &mut self.stream, state: Answered::Not };
        part(&mut exchange)?;
        match exchange.state {
            Answered::Whole => Ok(true),
            Answered::Not | Answered::Begun => bail!("an answer without an end"),
        }
    }

    fn head(&mut self) -> anyhow::Result<Option<String>> {
        loop {
            if let Some(end) = self.rest.windows(4).position(|w| w == b"\r\n\r\n") {
                return Ok(Some(String::from_utf8(self.rest.drain(..end + 4).collect())?));
            }
            if self.fill()? == 0 {
                ensure!(self.rest.is_empty(), "the connection ended in a head");
                return Ok(None);
            }
        }
    }

    fn body(&mut self, head: &str) -> anyhow::Result<Vec<u8>> {
        if field(head, "transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            return self.chunks();
        }
        let length = field(head, "content-length").map_or(Ok(0), str::parse::<usize>)?;
        self.take(length)
    }

    fn chunks(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                match self.rest.windows(2).position(|w| w == b"\r\n") {
                    Some(end) => break end,
                    None => ensure!(self.fill()? > 0, "the connection ended in a chunk's size"),
                }
            };
            let line = self.take(end + 2)?;
            let size = usize::from_str_radix(std::str::from_utf8(&line)?.trim(), 16)?;
            let chunk = self.take(size + 2)?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    fn take(&mut self, length: usize) -> anyhow::Result<Vec<u8>> {
        while self.rest.len() < length {
            ensure!(self.fill()? > 0, "the connection ended in a body");
        }
        Ok(self.rest.drain(..length).collect())
    }

    fn fill(&mut self) -> anyhow::Result<usize> {
        let mut buffer = [0; 64 * 1024];
        let n = self.stream.read(&mut buffer)?;
        self.rest.extend_from_slice(&buffer[..n]);
        Ok(n)
    }
}

/// A field of a head, by its name in small letters.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    Not,
    Begun,
    Whole,
}

/// A request that has come whole, and its answer.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// Upper case.
    pub method: String,
    /// Of the URL, without a query.
    pub path: String,
    /// Request line and fields.
    pub head: String,
    /// Body, without its framing.
    pub body: Vec<u8>,
    stream: &'a mut TcpStream,
    state: Answered,
}

impl Exchange<'_> {
    /// The body as JSON.
    ///
    /// # Errors
    /// It is none.
    pub fn json(&self) -> anyhow::Result<Value> {
        Ok(serde_json::from_slice(&self.body)?)
    }

    /// A field of the request, by its name in small letters.
    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    /// A whole answer.
    ///
    /// # Errors
    /// Whoever asked has gone.
    pub fn answer(&mut self, status: u16, content_type: &str, body: &[u8]) -> anyhow::Result<()> {
        let mut bytes = format!(
            "HTTP/1.1 {status} Played\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(body);
        self.state = Answered::Whole;
        Ok(self.stream.write_all(&bytes)?)
    }

    /// A whole answer of JSON.
    ///
    /// # Errors
    /// As [`Exchange::answer`].
    pub fn answer_json(&mut self, status: u16, body: &Value) -> anyhow::Result<()> {
        self.answer(status, "application/json; charset=utf-8", body.to_string().as_bytes())
    }

    /// The head of an answer in chunks.
    ///
    /// # Errors
    /// As [`Exchange::answer`].
    pub fn begin(&mut self, status: u16, content_type: &str) -> anyhow::Result<()> {
        self.state = Answered::Begun;
        let head = format!(
            "HTTP/1.1 {status} Played\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        Ok(self.stream.write_all(head.as_bytes())?)
    }

    /// A part of such an answer, not empty.
    ///
    /// # Errors
    /// As [`Exchange::answer`].
    pub fn part(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        Ok(self.stream.write_all(&chunk)?)
    }

    /// The end of such an answer.
    ///
    /// # Errors
    /// As [`Exchange::answer`].
    pub fn end(&mut self) -> anyhow::Result<()> {
        self.state = Answered::Whole;
        Ok(self.stream.write_all(b"0\r\n\r\n")?)
    }

    /// Whether nothing comes from whoever asked for this long.
    ///
    /// # Errors
    /// The socket cannot be asked.
    pub fn is_quiet(&mut self, within: Duration) -> anyhow::Result<bool> {
        Ok(!readable(self.stream.as_raw_fd(), within)?)
    }

    /// Waits until whoever asked says that it wants nothing more, by half a close or a whole one; whether it does.
    ///
    /// # Errors
    /// Something else was said.
    pub fn is_left(&mut self, within: Duration) -> anyhow::Result<bool> {
        if !readable(self.stream.as_raw_fd(), within)? {
            return Ok(false);
        }
        match self.stream.peek(&mut [0]) {
            Ok(0) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(true),
            said => bail!("a request behind the request: {said:?}"),
        }
    }

    /// Waits until whoever asked has closed both ways or reset: then nothing can be sent to it any more.
    pub fn is_cut(&mut self, within: Duration) -> bool {
        let end = Instant::now() + within;
        while Instant::now() < end {
            let mut polled = libc::pollfd { fd: self.stream.as_raw_fd(), events: 0, revents: 0 };
            // SAFETY: one live pollfd is given, and its descriptor is open.
            let ready = unsafe { libc::poll(&raw mut polled, 1, 20) };
            if ready > 0 && polled.revents & (libc::POLLHUP | libc::POLLERR) != 0 {
                return true;
            }
        }
        false
    }
}

fn readable(socket: RawFd, within: Duration) -> anyhow::Result<bool> {
    let mut polled = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
    let timeout = i32::try_from(within.as_millis())?;
    // SAFETY: one live pollfd is given, and its descriptor is open.
    let ready = unsafe { libc::poll(&raw mut polled, 1, timeout) };
    ensure!(ready >= 0, "poll: {}", std::io::Error::last_os_error());
    Ok(ready > 0)
}
