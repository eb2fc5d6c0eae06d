//! The wiring: which threads there are, what connects them, how they start and stop.
//!
//! ```text
//!   main ─ starts ─▶ shard "node-0" (sessions, runs, metrics endpoint)
//!   signals thread ─ mailbox ─▶ shard        resolver threads ◀─ mailboxes ─▶ shard
//! ```

use std::{
    io::{self, Read},
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixStream,
    rc::Rc,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use dataplane::{
    mailbox::{self, Sender, ShardInboxSeed},
    net::{self, Listener, Patience},
    shard::{DriverWish, Shard, ShardSpec, spawn_guarded, use_small_pages},
    tls::https::https_client_config,
};
use rustls::{ClientConfig, time_provider::DefaultTimeProvider};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{
    adapters::{Provider, addresses::AddressBook, cli},
    config::{
        NodeConfig,
        identity::{Dates, Identity},
    },
    daemon::{self, DRAIN_GRACE, Shutdown},
    metrics::Metrics,
    ops,
    resolve::{self, ResolverSeed},
    roots,
    run::assembly::{ASSEMBLING_BYTES_MAX, AssemblyBudget},
    session::Context,
    supervisor::Exit,
};

/// Signals that wait for the shard; further ones change nothing.
const SIGNALS_MAX: usize = 16;
/// How long programs that are still there at the end are waited for; they are killed before.
const PROCESSES_GRACE: Duration = Duration::from_secs(1);

/// Runs a Node until its supervisor ends it.
///
/// # Errors
/// A thread, descriptor or address is not to be had.
pub fn run(
    config: NodeConfig,
    identity: Identity,
    driver: DriverWish,
    token: String,
) -> anyhow::Result<Exit> {
    let metrics = Metrics::new().context("metrics")?;
    use_small_pages();
    match net::raise_descriptors() {
        Ok(limit) => tracing::info!(found = limit.found, raised_to = limit.now, "open files"),
        Err(error) => tracing::warn!(%error, "the limit of open files cannot be raised"),
    }
    if let Err(error) = net::pass_on_no_descriptors() {
        tracing::warn!(%error, "programs get what files this process was started with");
    }
    let ops = config.metrics_listen.map(bind).transpose()?;
    let signals = watch_signals().context("signals")?;
    // A resolver each, so that a slow name of a provider does not hold up the name of the Edge.
    let edge_names = resolve::start("resolve-edge", resolve::system).context("resolver")?;
    let provider_names = resolve::start("resolve-prov", resolve::system).context("resolver")?;
    warn(&config, &identity);
    tracing::info!(
        node = %config.name,
        workload = identity.workload,
        edge = format!("{}:{}", config.edge.host, config.edge.port),
        version = env!("CARGO_PKG_VERSION"),
        "node starting"
    );
    // Before there is a shard: it reads files.
    let provider_tls = https_client_config(Arc::new(roots::load()), Arc::new(DefaultTimeProvider))
        .context("tls of providers")?;
    let (sent, exit) = mpsc::sync_channel(1);
    let cpu = config.cpus.first().copied();
    let shard_metrics = metrics.clone();
    let part = Part {
        config,
        identity,
        token,
        metrics: shard_metrics,
        ops,
        signals,
        edge_names,
        provider_names,
        provider_tls,
    };
    let spec = ShardSpec { name: "node-0".to_owned(), cpu, driver };
    let shard = Shard::start(spec, move || async move {
        let _sent = sent.send(part.run().await);
    })
    .context("shard 0")?;
    metrics.note_driver(shard.driver.label());
    tracing::info!(shard = 0, driver = shard.driver.label(), "shard up");
    let _ended = shard.join();
    // Whatever the shard got to, nothing that it started goes on without it.
    let left = cli::process::end_all(PROCESSES_GRACE);
    if left > 0 {
        tracing::warn!(left, "programs are still there");
    }
    let exit = exit.recv().context("the shard died by a panic, which the log tells")??;
    match exit {
        Exit::Exhausted(attempts) => tracing::error!(
            attempts,
            code = exit.code(),
            "node stopped: the edge was not reached; reconnect.max_attempts: 0 tries for ever"
        ),
        Exit::Fatal => tracing::error!(code = exit.code(), "node stopped: its own files cannot be used"),
        Exit::Shutdown => tracing::info!(code = exit.code(), "node stopped"),
    }
    Ok(exit)
}

/// What the shard is started with.
struct Part {
    config: NodeConfig,
    identity: Identity,
    token: String,
    metrics: Metrics,
    ops: Option<TcpListener>,
    signals: ShardInboxSeed<()>,
    edge_names: ResolverSeed,
    provider_names: ResolverSeed,
    provider_tls: Arc<ClientConfig>,
}

impl Part {
    async fn run(self) -> io::Result<Exit> {
        let metrics = Rc::new(self.metrics);
        let shutdown = Shutdown::default();
        let mut signals = self.signals.open()?;
        let told = shutdown.clone();
        spawn_guarded(async move {
            let mut batch = Vec::new();
            loop {
                signals.receive(&mut batch, SIGNALS_MAX).await;
                batch.drain(..).for_each(|()| told.signal());
            }
        });
        let addresses = AddressBook::new(self.provider_names.open()?);
        let provider = Rc::new(Provider::new(addresses, self.provider_tls, Rc::clone(&metrics)));
        if let Some(listener) = self.ops {
            spawn_guarded(ops::serve(Listener::open(listener)?.with_reserve(), Rc::clone(&provider)));
        }
        let context = Context {
            name: self.config.name,
            edge: self.config.edge,
            tls: self.identity.tls,
            token: self.token,
            resolver: self.edge_names.open()?,
            provider,
            metrics,
            budget: AssemblyBudget::new(ASSEMBLING_BYTES_MAX),
            limits: Context::link_limits(),
        };
        Ok(daemon::supervise(&context, self.config.reconnect, DRAIN_GRACE, &shutdown).await)
    }
}

fn warn(config: &NodeConfig, identity: &Identity) {
    if config.shards > 1 {
        tracing::warn!(shards = config.shards, "this release runs everything on one shard");
    }
    match identity.dates {
        Dates::Valid => {}
        Dates::NotYetValid => {
            tracing::warn!("the node's certificate is not valid yet: an edge will refuse it")
        }
        Dates::Expired => tracing::warn!("the node's certificate has expired: an edge will refuse it"),
    }
}

/// Binds before any thread starts, so that an address in use is a start error. The log names the real port.
fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = Listener::bind(address, Patience::with_readers())
        .with_context(|| format!("metrics.listen {address}"))?;
    tracing::info!(address = %listener.local_addr().context("metrics.listen")?, "metrics listening");
    Ok(listener)
}

/// A thread that turns SIGTERM and SIGINT into mail for the shard. It lives as long as the process.
fn watch_signals() -> io::Result<ShardInboxSeed<()>> {
    let (sender, seed) = mailbox::for_shard(SIGNALS_MAX)?;
    let (mut read, write) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
    }
    thread::Builder::new().name("signals".to_owned()).spawn(move || forward(&mut read, &sender))?;
    Ok(seed)
}

fn forward(read: &mut UnixStream, sender: &Sender<()>) {
    let mut byte = [0];
    while read.read_exact(&mut byte).is_ok() {
        // Full means that the shard knows long since.
        let _sent = sender.send(());
    }
}
