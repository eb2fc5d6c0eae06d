//! The driver ladder: the best ring, a plain ring, epoll.

use std::{future::Future, io, str::FromStr};

use monoio::{IoUringDriver, LegacyDriver, Runtime, RuntimeBuilder, time::TimeDriver};

/// Ring entries of the first rung; about 0.4 MB of locked memory.
const RING_ENTRIES: u32 = 4096;
/// Ring entries of the second rung, for a low memlock limit or an old kernel.
const RING_ENTRIES_SMALL: u32 = 1024;

/// What drives a shard's I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DriverKind {
    /// io_uring with COOP_TASKRUN and SINGLE_ISSUER, or plain.
    IoUring,
    /// epoll, where the kernel or a sandbox refuses io_uring.
    Epoll,
}

impl DriverKind {
    /// `io_uring` or `epoll`, for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        }
    }
}

/// Which driver is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverWish {
    /// io_uring where it can be had, else epoll.
    #[default]
    Auto,
    /// io_uring or an error.
    IoUring,
    /// epoll.
    Epoll,
}

impl FromStr for DriverWish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" | "auto" => Ok(Self::Auto),
            "io_uring" => Ok(Self::IoUring),
            "epoll" => Ok(Self::Epoll),
            other => Err(format!("driver `{other}`: expected auto, io_uring or epoll")),
        }
    }
}

/// A built runtime.
#[derive(Debug)]
pub(super) struct Driver(Inner);

enum Inner {
    Ring(Box<Runtime<TimeDriver<IoUringDriver>>>),
    Epoll(Box<Runtime<TimeDriver<LegacyDriver>>>),
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ring(_) => "Ring",
            Self::Epoll(_) => "Epoll",
        })
    }
}

impl Driver {
    pub(super) fn kind(&self) -> DriverKind {
        match self.0 {
            Inner::Ring(_) => DriverKind::IoUring,
            Inner::Epoll(_) => DriverKind::Epoll,
        }
    }

    pub(super) fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        match &mut self.0 {
            Inner::Ring(runtime) => runtime.block_on(future),
            Inner::Epoll(runtime) => runtime.block_on(future),
        }
    }
}

/// Builds on the calling thread (SINGLE_ISSUER binds the ring to it).
pub(super) fn build(wish: DriverWish) -> io::Result<Driver> {
    if wish != DriverWish::Epoll {
        match ring(RING_ENTRIES, true).or_else(|first| ring(RING_ENTRIES_SMALL, false).map_err(|_| first)) {
            Ok(driver) => return Ok(driver),
            Err(error) if wish == DriverWish::IoUring => return Err(error),
            Err(error) => tracing::warn!(%error, "io_uring refused, using epoll"),
        }
    }
    let runtime = RuntimeBuilder::<LegacyDriver>::new().enable_timer().build()?;
    Ok(Driver(Inner::Epoll(Box::new(runtime))))
}

fn ring(entries: u32, tuned: bool) -> io::Result<Driver> {
    let mut builder = io_uring::IoUring::builder();
    if tuned {
        builder.setup_coop_taskrun().setup_single_issuer();
    }
    let runtime = RuntimeBuilder::<IoUringDriver>::new()
        .uring_builder(builder)
        .with_entries(entries)
        .enable_timer()
        .build()?;
    Ok(Driver(Inner::Ring(Box::new(runtime))))
}
