//! A provider that is played by the test itself: it has no thread, and every write is the test's own.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::fd::{AsRawFd, RawFd},
    time::Instant,
};

use anyhow::{Context, bail, ensure};

use crate::http::PATIENCE;

/// Listens, and keeps the connections that wait for a next request.
#[derive(Debug)]
pub struct Scripted {
    listener: TcpListener,
    kept: Vec<TcpStream>,
}

/// A request that has come whole, on the connection that is to be answered.
#[derive(Debug)]
pub struct Call {
    /// Request line and fields.
    pub head: String,
    /// Body, as its `content-length` says.
    pub body: Vec<u8>,
    stream: TcpStream,
}

impl Scripted {
    /// Listens on a free port of this machine.
    ///
    /// # Errors
    /// There is none.
    pub fn bind() -> anyhow::Result<Self> {
        Ok(Self { listener: TcpListener::bind("127.0.0.1:0")?, kept: Vec::new() })
    }

    /// `http://host:port/v1`.
    ///
    /// # Errors
    /// The socket is dead.
    pub fn base_url(&self) -> anyhow::Result<String> {
        Ok(format!("http://{}/v1", self.listener.local_addr()?))
    }

    /// Waits for the next request, on whichever connection.
    ///
    /// # Errors
    /// None comes within [`PATIENCE`], or not as HTTP.
    pub fn next_call(&mut self) -> anyhow::Result<Call> {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut sockets = vec![self.listener.as_raw_fd()];
            sockets.extend(self.kept.iter().map(AsRawFd::as_raw_fd));
            let stream = match readable(&sockets, until)? {
                Some(0) => self.listener.accept()?.0,
                Some(index) => self.kept.swap_remove(index - 1),
                None => bail!("no request came within {PATIENCE:?}"),
            };
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            // A kept connection that the other side has closed says so by its end.
            if let Some(call) = Call::read(stream)? {
                return Ok(call);
            }
        }
    }

    /// Lets the connection of an answered call wait for its next request.
    pub fn keep(&mut self, call: Call) {
        self.kept.push(call.stream);
    }
}

impl Call {
    fn read(mut stream: TcpStream) -> anyhow::Result<Option<Self>> {
        let mut bytes = Vec::new();
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                break bytes.drain(..end + 4).collect();
            }
            if read(&mut stream, &mut bytes)? == 0 {
                ensure!(bytes.is_empty(), "the connection ended in a head");
                return Ok(None);
            }
        };
        let head = String::from_utf8(head)?;
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        let length = length.with_context(|| format!("no length in {head}"))?;
        while bytes.len() < length {
            ensure!(read(&mut stream, &mut bytes)? > 0, "the connection ended in a body");
        }
        ensure!(bytes.len() == length, "more than one request");
        Ok(Some(Self { head, body: bytes, stream }))
    }

    /// Writes bytes in one go.
    ///
    /// # Errors
    /// The connection broke.
    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Whether whoever called has closed the connection.
    ///
    /// # Errors
    /// Something was said on it.
    pub fn is_left(&mut self) -> anyhow::Result<bool> {
        if readable(&[self.stream.as_raw_fd()], Instant::now())?.is_none() {
            return Ok(false);
        }
        let mut said = Vec::new();
        read(&mut self.stream, &mut said)?;
        ensure!(said.is_empty(), "a request behind the request");
        Ok(true)
    }

    /// Says that nothing more comes.
    ///
    /// # Errors
    /// The connection broke.
    pub fn end(&mut self) -> anyhow::Result<()> {
        Ok(self.stream.shutdown(Shutdown::Write)?)
    }
}

fn read(stream: &mut TcpStream, into: &mut Vec<u8>) -> anyhow::Result<usize> {
    let mut buffer = [0; 64 * 1024];
    let n = match stream.read(&mut buffer) {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
        read => read?,
    };
    into.extend_from_slice(&buffer[..n]);
    Ok(n)
}

/// Waits until one of the sockets has something to say; which. `None` = it is too late.
fn readable(sockets: &[RawFd], until: Instant) -> anyhow::Result<Option<usize>> {
    let mut polled: Vec<_> =
        sockets.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    loop {
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        let count = libc::nfds_t::try_from(polled.len())?;
        // SAFETY: the pointer and the length are of one live vector.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), count, i32::try_from(left)?) };
        if ready > 0 {
            return Ok(polled.iter().position(|socket| socket.revents != 0));
        }
        let error = std::io::Error::last_os_error();
        if ready == 0 {
            return Ok(None);
        }
        ensure!(error.kind() == std::io::ErrorKind::Interrupted, error);
    }
}
