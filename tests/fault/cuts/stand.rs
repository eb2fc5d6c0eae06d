//! The address of a provider as it is when its machine is overloaded: connections are not accepted, or requests not read.
//! Opened up, it passes everything on to the scripted provider.

use std::{
    io::{self, Read},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use anyhow::{bail, ensure};

/// Connections that fill the queue of a listener that takes one.
const FILL_MAX: usize = 16;
/// A connection that takes longer on this machine's loopback is one that the queue has no room for.
const FULL_AFTER: Duration = Duration::from_millis(300);

/// A listener that nobody accepts from.
pub struct Stand {
    listener: TcpListener,
    address: SocketAddr,
    fillers: Vec<TcpStream>,
}

impl Stand {
    /// Listens; a connection is at once established by the kernel, and then waits.
    pub fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        Ok(Self { address: listener.local_addr()?, listener, fillers: Vec::new() })
    }

    /// With `/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// From now on no connection is established: the kernel's queue is full.
    pub fn fill(&mut self) -> anyhow::Result<()> {
        backlog(&self.listener, 0)?;
        while self.fillers.len() < FILL_MAX {
            match TcpStream::connect_timeout(&self.address, FULL_AFTER) {
                Ok(filler) => self.fillers.push(filler),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        bail!("the queue takes more than {FILL_MAX} connections")
    }

    /// Accepts one connection into a small receive buffer and reads the head of its request, and nothing more.
    pub fn head(&self) -> anyhow::Result<Unread> {
        ensure!(poll(&self.listener, libc::POLLIN, iop_tests::http::PATIENCE)?, "no connection came");
        let (stream, _) = self.listener.accept()?;
        stream.set_read_timeout(Some(iop_tests::http::PATIENCE))?;
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            ensure!(stream_read(&stream, &mut byte)? == 1, "the Node closed inside a head");
            head.extend(byte);
        }
        let head = String::from_utf8(head)?.to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        Ok(Unread { stream, length })
    }

    /// Makes connections that come from now on take little before they are read from.
    pub fn shrink(&self) -> anyhow::Result<()> {
        set_option(&self.listener, libc::SO_RCVBUF, 16 * 1024)
    }

    /// Passes everything that comes on to `provider`; gives the number of connections that are open.
    pub fn open_up(self, provider: &str) -> anyhow::Result<Arc<AtomicUsize>> {
        backlog(&self.listener, 128)?;
        drop(self.fillers);
        let (open, provider) = (Arc::<AtomicUsize>::default(), provider.to_owned());
        let count = Arc::clone(&open);
        thread::spawn(move || {
            for stream in self.listener.incoming().map_while(Result::ok) {
                let Ok(onward) = TcpStream::connect(&provider) else { continue };
                let count = Arc::clone(&count);
                count.fetch_add(1, SeqCst);
                thread::spawn(move || {
                    thread::scope(|both| {
                        both.spawn(|| pass(&stream, &onward));
                        pass(&onward, &stream);
                    });
                    count.fetch_sub(1, SeqCst);
                });
            }
        });
        Ok(open)
    }
}

fn stream_read(mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    stream.read(buffer)
}

fn pass(mut from: &TcpStream, mut to: &TcpStream) {
    let _ended = io::copy(&mut from, &mut to);
    let _shut = to.shutdown(Shutdown::Write);
}

/// A connection on which the body of a request waits to be read.
pub struct Unread {
    stream: TcpStream,
    /// Of the body, as its head says.
    pub length: usize,
}

impl Unread {
    /// The port of the other end.
    pub fn peer(&self) -> anyhow::Result<u16> {
        Ok(self.stream.peer_addr()?.port())
    }

    /// Waits until the other end has closed or reset, without reading. `false` when it does not.
    pub fn wait_for_end(&self, within: Duration) -> anyhow::Result<bool> {
        poll(&self.stream, libc::POLLRDHUP, within)
    }
}

/// Waits for one of `events`, an error or a hang-up. `false` when none comes.
fn poll(socket: &impl AsRawFd, events: libc::c_short, within: Duration) -> anyhow::Result<bool> {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    // SAFETY: one live pollfd is given, and its descriptor is open.
    let ready = unsafe { libc::poll(&raw mut poll, 1, i32::try_from(within.as_millis())?) };
    ensure!(ready >= 0, "poll: {}", io::Error::last_os_error());
    Ok(ready > 0)
}

/// Sets how many established connections may wait for an accept.
fn backlog(listener: &TcpListener, connections: libc::c_int) -> anyhow::Result<()> {
    // SAFETY: plain system call on an open descriptor; a second listen(2) changes the backlog.
    let set = unsafe { libc::listen(listener.as_raw_fd(), connections) };
    ensure!(set == 0, "listen: {}", io::Error::last_os_error());
    Ok(())
}

fn set_option(socket: &impl AsRawFd, option: libc::c_int, value: libc::c_int) -> anyhow::Result<()> {
    // SAFETY: the option's type is `c_int`, whose address and size are given; the descriptor is open.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            libc::socklen_t::try_from(size_of::<libc::c_int>())?,
        )
    };
    ensure!(set == 0, "setsockopt: {}", io::Error::last_os_error());
    Ok(())
}
