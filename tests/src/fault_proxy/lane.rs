//! One connection: two lanes, moved by one thread.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    os::{fd::AsRawFd, unix::net::UnixStream},
    time::{Duration, Instant},
};

use super::{BOTH, End, Flow, Settings, Shared, socket};

/// What one read takes.
const READ: usize = 16 * 1024;
/// What a lane holds: little, so that the sender feels the receiver; with a delay, what is on its way.
const HELD: usize = 16 * 1024;
const HELD_WITH_DELAY: usize = 8 * 1024 * 1024;
/// A throttle writes what may leave in this time.
const THROTTLE_STEP: Duration = Duration::from_millis(20);

/// Bytes and when they are due.
struct Piece {
    due: Instant,
    bytes: Vec<u8>,
    written: usize,
}

/// What a lane found out.
enum Turn {
    /// It goes on.
    On,
    /// The connection ends this way.
    Cut(End),
}

/// The bytes of one direction of one connection.
struct Lane {
    queue: VecDeque<Piece>,
    queued: usize,
    /// The sender has ended.
    ended: bool,
    /// The receiver has been told.
    told: bool,
    passed: u64,
    /// Cut when so many have passed.
    cut: Option<(u64, End)>,
    order: u64,
    half_closes: u64,
    /// The throttle lets nothing pass before.
    ready: Instant,
    wants_read: bool,
    wants_write: bool,
}

impl Lane {
    fn new(settings: Settings, now: Instant) -> Self {
        Self {
            queue: VecDeque::new(),
            queued: 0,
            ended: false,
            told: false,
            passed: 0,
            cut: None,
            // What was ordered before is not for this connection.
            order: settings.cut.map_or(0, |(order, ..)| order),
            half_closes: settings.half_closes,
            ready: now,
            wants_read: false,
            wants_write: false,
        }
    }

    fn is_over(&self) -> bool {
        self.ended && self.told
    }

    fn turn(&mut self, settings: Settings, from: &TcpStream, to: &TcpStream) -> io::Result<Turn> {
        self.adopt(settings, to);
        self.read(settings, from)?;
        if let Turn::Cut(end) = self.write(settings, to)? {
            return Ok(Turn::Cut(end));
        }
        // Also after a read that filled the queue, once there is room again.
        self.wants_read = self.may_read(settings);
        if self.ended && self.queue.is_empty() && !self.told && settings.flow == Flow::Pass {
            self.told = true;
            let _gone = to.shutdown(Shutdown::Write);
        }
        Ok(Turn::On)
    }

    fn may_read(&self, settings: Settings) -> bool {
        let held = if settings.delay.is_zero() { HELD } else { HELD_WITH_DELAY };
        !self.ended && settings.flow != Flow::Hold && self.queued < held
    }

    fn adopt(&mut self, settings: Settings, to: &TcpStream) {
        if let Some((order, bytes, end)) = settings.cut.filter(|(order, ..)| *order > self.order) {
            self.order = order;
            self.cut = Some((self.passed + bytes, end));
        }
        if settings.half_closes > self.half_closes {
            self.half_closes = settings.half_closes;
            self.told = true;
            self.queue.clear();
            self.queued = 0;
            let _gone = to.shutdown(Shutdown::Write);
        }
    }

    fn read(&mut self, settings: Settings, mut from: &TcpStream) -> io::Result<()> {
        let mut buffer = [0; READ];
        while self.may_read(settings) {
            match from.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(_) if settings.flow == Flow::Swallow || self.told => {}
                Ok(n) => {
                    self.queued += n;
                    let due = Instant::now() + settings.delay;
                    self.queue.push_back(Piece { due, bytes: buffer[..n].to_vec(), written: 0 });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if settings.flow == Flow::Swallow => self.ended = true,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write(&mut self, settings: Settings, mut to: &TcpStream) -> io::Result<Turn> {
        self.wants_write = false;
        loop {
            if let Some((_, end)) = self.cut.filter(|(limit, _)| self.passed >= *limit) {
                return Ok(Turn::Cut(end));
            }
            let now = Instant::now();
            let Some(front) = self.queue.front_mut() else { return Ok(Turn::On) };
            if settings.flow != Flow::Pass || front.due > now || self.ready > now {
                return Ok(Turn::On);
            }
            let left = &front.bytes[front.written..];
            let mut most = left.len();
            if let Some(rate) = settings.rate {
                let step = u128::from(rate) * THROTTLE_STEP.as_micros() / 1_000_000;
                most = most.min(usize::try_from(step).unwrap_or(usize::MAX).max(1));
            }
            if let Some((limit, _)) = self.cut {
                most = most.min(usize::try_from(limit - self.passed).unwrap_or(usize::MAX));
            }
            match to.write(&left[..most]) {
                Ok(n) => {
                    front.written += n;
                    if front.written == front.bytes.len() {
                        self.queue.pop_front();
                    }
                    self.queued -= n;
                    self.passed += n as u64;
                    if let Some(rate) = settings.rate {
                        self.ready = now + Duration::from_micros(n as u64 * 1_000_000 / rate.max(1));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wants_write = true;
                    return Ok(Turn::On);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// When it has something to do by itself.
    fn due(&self, settings: Settings) -> Option<Instant> {
        let front = self.queue.front().filter(|_| settings.flow == Flow::Pass && !self.wants_write)?;
        Some(front.due.max(self.ready))
    }
}

/// Counts the connection for as long as it is there.
struct Open<'a>(&'a Shared);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.state().open -= 1;
    }
}

/// Moves the bytes of one connection to its end.
pub(super) fn run(shared: &Shared, client: TcpStream, target: TcpStream) -> anyhow::Result<()> {
    for socket in [&client, &target] {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
    }
    let (mut woken, waker) = UnixStream::pair()?;
    woken.set_nonblocking(true)?;
    waker.set_nonblocking(true)?;
    let (mut lanes, resets) = {
        let mut state = shared.state();
        state.open += 1;
        state.wakers.push(waker);
        let mut lanes = state.settings.map(|settings| Lane::new(settings, Instant::now()));
        if let Some((way, bytes, end)) = state.planned.pop_front() {
            lanes[way as usize].cut = Some((bytes, end));
        }
        (lanes, state.resets)
    };
    let _open = Open(shared);
    let end = pump(shared, [&client, &target], &mut lanes, &mut woken, resets)?;
    if end == End::Reset {
        socket::reset_on_close(&client);
        socket::reset_on_close(&target);
    }
    Ok(())
}

/// How the connection ends.
fn pump(
    shared: &Shared,
    sockets: [&TcpStream; 2],
    lanes: &mut [Lane; 2],
    woken: &mut UnixStream,
    resets: u64,
) -> anyhow::Result<End> {
    let mut vanished = false;
    loop {
        while woken.read(&mut [0; 64]).is_ok_and(|n| n > 0) {}
        let (settings, wants_to_vanish) = {
            let state = shared.state();
            if state.resets != resets {
                return Ok(End::Reset);
            }
            (state.settings, state.vanished)
        };
        if wants_to_vanish != vanished {
            vanished = wants_to_vanish;
            for socket in sockets {
                if vanished { socket::drop_incoming(socket)? } else { socket::take_incoming(socket)? }
            }
        }
        if vanished {
            socket::poll(&mut [wish(woken, true, false)], None)?;
            continue;
        }
        for index in BOTH.map(|way| way as usize) {
            let before = lanes[index].passed;
            let turn = lanes[index].turn(settings[index], sockets[index], sockets[1 - index]);
            shared.state().passed[index] += lanes[index].passed - before;
            match turn {
                Ok(Turn::On) => {}
                Ok(Turn::Cut(end)) => return Ok(end),
                Err(_) => return Ok(End::Reset),
            }
        }
        if lanes.iter().all(Lane::is_over) {
            return Ok(End::Close);
        }
        let [up, down] = &*lanes;
        let due = [up.due(settings[0]), down.due(settings[1])].into_iter().flatten().min();
        let timeout = due.map(|due| due.saturating_duration_since(Instant::now()));
        let mut wishes = [
            wish(sockets[0], up.wants_read, down.wants_write),
            wish(sockets[1], down.wants_read, up.wants_write),
            wish(woken, true, false),
        ];
        socket::poll(&mut wishes, timeout)?;
    }
}

/// A descriptor that nothing is asked of is left out: a peer that hung up would be told again and again.
fn wish(socket: &impl AsRawFd, read: bool, write: bool) -> libc::pollfd {
    let events = if read { libc::POLLIN } else { 0 } | if write { libc::POLLOUT } else { 0 };
    libc::pollfd { fd: if events == 0 { -1 } else { socket.as_raw_fd() }, events, revents: 0 }
}
