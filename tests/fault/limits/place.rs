//! A site whose processes are started one by one, with room for many sockets.

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use iop_tests::{
    Edge, EdgeYaml, Process, ProviderYaml, Site,
    bench::{self, Bench, NODE, eventually, hooked_site, provider_at, sum, yaml},
    site::path,
};

/// A file that arms one panic in the process that was started with it.
pub(super) struct Trap(PathBuf);

impl Trap {
    /// The next one to pass `point` panics.
    pub(super) fn arm(&self, point: &str) -> anyhow::Result<()> {
        // Renamed into place, so that nobody reads half a name.
        let draft = self.0.with_extension("draft");
        std::fs::write(&draft, point)?;
        Ok(std::fs::rename(draft, &self.0)?)
    }

    /// Waits until it has happened.
    pub(super) fn sprung(&self, within: Duration) -> anyhow::Result<()> {
        eventually(within, "somebody passes the point", || Ok(!self.0.exists()))
    }
}

/// Edge, Node with a metrics endpoint, and provider; one trap in each of the first two.
pub(super) struct Place {
    pub(super) bench: Bench,
    pub(super) in_edge: Trap,
    pub(super) in_node: Trap,
}

impl Place {
    /// As the closures say.
    pub(super) fn with(
        provider_yaml: impl FnOnce(ProviderYaml) -> ProviderYaml,
        edge_yaml: impl FnOnce(EdgeYaml) -> EdgeYaml,
    ) -> anyhow::Result<Self> {
        let mut site = hooked_site()?;
        let provider = site.provider(&[])?;
        let in_edge = Trap(site.dir().join("panic-edge"));
        let in_node = Trap(site.dir().join("panic-node"));
        site.set_env("IOP_TEST_PANIC", path(&in_edge.0)?);
        let edge = site.edge(&edge_yaml(yaml().with(provider_yaml(provider_at(&provider.base_url())))))?;
        site.set_env("IOP_TEST_PANIC", path(&in_node.0)?);
        let (node, node_ops) = bench::start_node(&site, NODE, &edge.node)?;
        let bench = Bench { node, node_ops, edge, provider, site, panics: false };
        Ok(Self { bench, in_edge, in_node })
    }

    /// Four slots, defaults for the rest.
    pub(super) fn start() -> anyhow::Result<Self> {
        Self::with(|provider| provider, |edge| edge)
    }

    /// Tasks that ended by a panic, on all shards of the Edge.
    pub(super) fn edge_panics(&self) -> anyhow::Result<f64> {
        sum(&self.bench.edge, "iop_edge_shard_task_panics{")
    }
}

/// The number of clients that the Edge counts.
pub(super) fn clients(edge: &Edge) -> anyhow::Result<usize> {
    Ok(sum(edge, "iop_edge_client_connections ")? as usize)
}

/// Allows this test process as many sockets as it may have.
pub(super) fn raise_own_descriptors() -> anyhow::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls on a live local.
    unsafe {
        anyhow::ensure!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0);
        limit.rlim_cur = limit.rlim_max;
        anyhow::ensure!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0);
    }
    Ok(limit.rlim_max)
}

/// Starts a program of the product with this limit of open files.
pub(super) fn start_limited(
    site: &Site,
    (label, program): (&str, &str),
    args: &[&str],
    (soft, hard): (u64, u64),
) -> anyhow::Result<Process> {
    let mut command = Command::new(site.program(program));
    command.args(args).env("IOP_DRIVER", bench::driver().unwrap_or_default());
    let limit = move || {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: plain system call.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one system call on memory of its own.
    unsafe { command.pre_exec(limit) };
    Process::spawn(label, &mut command, site.dir())
}

/// A socket that never blocks: many of them are looked at in turn.
pub(super) struct Quiet {
    stream: TcpStream,
    /// What came.
    pub(super) said: Vec<u8>,
    /// When the other end had closed.
    pub(super) closed: Option<Instant>,
    pub(super) since: Instant,
}

impl Quiet {
    pub(super) fn connect(address: &str) -> anyhow::Result<Self> {
        Self::over(TcpStream::connect(address)?)
    }

    pub(super) fn over(stream: TcpStream) -> anyhow::Result<Self> {
        let since = Instant::now();
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, said: Vec::new(), closed: None, since })
    }

    /// Sends what fits; whether the other end still takes something.
    pub(super) fn send(&mut self, bytes: &[u8]) -> bool {
        matches!(self.stream.write(bytes), Ok(n) if n == bytes.len())
    }

    /// Takes what has come; whether the connection is closed.
    pub(super) fn look(&mut self) -> bool {
        let mut buffer = [0; 4096];
        while self.closed.is_none() {
            match self.stream.read(&mut buffer) {
                Ok(n) if n > 0 => self.said.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                _ => self.closed = Some(Instant::now()),
            }
        }
        self.closed.is_some()
    }

    /// From its connect to its close.
    pub(super) fn lived(&self) -> Option<Duration> {
        Some(self.closed?.duration_since(self.since))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.said).into_owned()
    }
}
