//! A TCP proxy that a test puts into the way, and what it does to the bytes: each direction by itself, changed at run time.
//! It never reorders.
//!
//! ```text
//!   who dials ──[ up ]──▶ target
//!             ◀─[ down ]─
//! ```
//! One thread a connection moves the bytes of both directions; it sleeps in `poll` and is woken by every change.

mod lane;
mod socket;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    io::Write,
    net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::Context;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From who dials to the target.
    Up,
    /// From the target to who dials.
    Down,
}

/// Both ways.
pub const BOTH: [Way; 2] = [Way::Up, Way::Down];

/// What happens to the bytes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// They pass.
    Pass,
    /// They are not read: the sender's window fills.
    Hold,
    /// They are read and forgotten: half-open, as the sender sees it. Such a connection cannot heal.
    Swallow,
}

/// How large the segments are that who dials sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segments {
    /// 1400 bytes.
    Ethernet,
    /// 64 KiB. The sender's kernel takes megabytes then before it tells the sender to wait, as on a path that was fast
    /// once.
    Loopback,
}

/// How a connection ends that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// FIN to both ends.
    Close,
    /// RST to both ends.
    Reset,
}

/// Settings of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settings {
    flow: Flow,
    /// Every byte comes so much later.
    delay: Duration,
    /// Bytes per second.
    rate: Option<u64>,
    /// Connections to be cut when so many more bytes have passed; the number tells a new order from an old one.
    cut: Option<(u64, u64, End)>,
    /// How often this direction was to be ended while the other one stays.
    half_closes: u64,
}

impl Settings {
    const PASS: Self =
        Self { flow: Flow::Pass, delay: Duration::ZERO, rate: None, cut: None, half_closes: 0 };
}

/// What all connections of a proxy look at.
#[derive(Debug)]
struct State {
    settings: [Settings; 2],
    /// Cuts of connections to come, one each.
    planned: VecDeque<(Way, u64, End)>,
    /// How often all connections were to be reset.
    resets: u64,
    refuse: bool,
    vanished: bool,
    orders: u64,
    accepted: u64,
    open: u64,
    passed: [u64; 2],
    wakers: Vec<UnixStream>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    stop: AtomicBool,
    target: SocketAddrV4,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the settings and wakes every connection.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        // Who has gone away is forgotten; a full pipe wakes anyway.
        state.wakers.retain_mut(|waker| match waker.write(&[0]) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        });
        result
    }
}

/// The proxy. Its drop resets what is left.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl FaultProxy {
    /// A proxy on a free port in front of `target` (`host:port`) that lets everything pass.
    ///
    /// # Errors
    /// The target is no address, or no port is free.
    pub fn start(target: &str) -> anyhow::Result<Self> {
        Self::with(target, Segments::Ethernet)
    }

    /// The same, with a choice of segments.
    ///
    /// # Errors
    /// As [`FaultProxy::start`].
    pub fn with(target: &str, segments: Segments) -> anyhow::Result<Self> {
        let target = target.parse().with_context(|| target.to_owned())?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        socket::small_receive_buffer(&listener)?;
        if segments == Segments::Ethernet {
            socket::small_segments(&listener)?;
        }
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                settings: [Settings::PASS; 2],
                planned: VecDeque::new(),
                resets: 0,
                refuse: false,
                vanished: false,
                orders: 0,
                accepted: 0,
                open: 0,
                passed: [0; 2],
                wakers: Vec::new(),
            }),
            stop: AtomicBool::new(false),
            target,
        });
        let proxy = Self {
            address: listener.local_addr()?,
            listener: listener.try_clone()?,
            shared: Arc::clone(&shared),
        };
        thread::spawn(move || accept(&listener, &shared));
        Ok(proxy)
    }

    /// Where it listens, `host:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    fn setting(&self, ways: &[Way], change: impl Fn(&mut Settings)) {
        self.shared.change(|state| ways.iter().for_each(|way| change(&mut state.settings[*way as usize])));
    }

    /// What happens to the bytes from now on.
    pub fn flow(&self, ways: &[Way], flow: Flow) {
        self.setting(ways, |settings| settings.flow = flow);
    }

    /// Every byte comes so much later; the order stays.
    pub fn delay(&self, ways: &[Way], delay: Duration) {
        self.setting(ways, |settings| settings.delay = delay);
    }

    /// At most so many bytes a second, for each connection.
    pub fn throttle(&self, ways: &[Way], bytes_per_second: u64) {
        self.setting(ways, |settings| settings.rate = Some(bytes_per_second));
    }

    /// Ends one direction of every connection, as if its sender had: FIN to the receiver, and the sender may go on talking
    /// to nobody.
    pub fn half_close(&self, way: Way) {
        self.setting(&[way], |settings| settings.half_closes += 1);
    }

    /// Cuts the connections that are there after so many more bytes one way. Later connections are left alone.
    pub fn cut_after(&self, way: Way, bytes: u64, end: End) {
        self.shared.change(|state| {
            state.orders += 1;
            state.settings[way as usize].cut = Some((state.orders, bytes, end));
        });
    }

    /// Cuts each of the next connections after so many bytes one way: the first one after the first number.
    pub fn cut_next(&self, way: Way, bytes: impl IntoIterator<Item = u64>, end: End) {
        self.shared.change(|state| state.planned.extend(bytes.into_iter().map(|bytes| (way, bytes, end))));
    }

    /// Connections that are still to be cut by [`FaultProxy::cut_next`].
    pub fn cuts_left(&self) -> usize {
        self.shared.state().planned.len()
    }

    /// Resets every connection that is there.
    pub fn reset(&self) {
        self.shared.change(|state| state.resets += 1);
    }

    /// Whether new connections are reset as they come.
    pub fn refuse(&self, refuse: bool) {
        self.shared.change(|state| state.refuse = refuse);
    }

    /// Both ends lose each other in the kernel: nothing passes and nothing is acknowledged, nobody can connect. What was
    /// sent is retransmitted, so that [`FaultProxy::heal`] loses nothing.
    ///
    /// # Errors
    /// The kernel refuses the filter.
    pub fn vanish(&self) -> anyhow::Result<()> {
        socket::drop_incoming(&self.listener)?;
        self.shared.change(|state| state.vanished = true);
        Ok(())
    }

    /// From now on everything passes again.
    ///
    /// # Errors
    /// The kernel refuses to let go of its filter.
    pub fn heal(&self) -> anyhow::Result<()> {
        if self.shared.state().vanished {
            socket::take_incoming(&self.listener)?;
        }
        self.shared.change(|state| {
            for settings in &mut state.settings {
                *settings = Settings { half_closes: settings.half_closes, ..Settings::PASS };
            }
            state.planned.clear();
            state.refuse = false;
            state.vanished = false;
        });
        Ok(())
    }

    /// Connections that came, ever.
    pub fn accepted(&self) -> u64 {
        self.shared.state().accepted
    }

    /// Connections that are there.
    pub fn open(&self) -> u64 {
        self.shared.state().open
    }

    /// Bytes that passed one way, ever.
    pub fn passed(&self, way: Way) -> u64 {
        self.shared.state().passed[way as usize]
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let _healthy = self.heal();
        self.reset();
        // The accepting thread looks up.
        let _woken = TcpStream::connect(self.address);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for incoming in listener.incoming() {
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let Ok(client) = incoming else { continue };
        let refuse = {
            let mut state = shared.state();
            state.accepted += u64::from(!state.refuse);
            state.refuse
        };
        if refuse {
            socket::reset_on_close(&client);
            continue;
        }
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // Without a target there is no connection either.
            let Ok(target) = socket::connect(shared.target) else {
                return socket::reset_on_close(&client);
            };
            if let Err(error) = lane::run(&shared, client, target) {
                eprintln!("fault proxy: {error:#}");
            }
        });
    }
}
