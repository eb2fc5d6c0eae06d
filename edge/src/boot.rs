//! The wiring: which threads there are, what connects them, how they start and stop.
//!
//! ```text
//!   main ──signals──► every shard (drain, stop)
//!   shard 0..N  ◄──ToShard──  control  ◄──ToControl, returned leases──  shard 0..N
//! ```

use std::{
    collections::HashSet,
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixListener,
    rc::Rc,
    sync::{Arc, mpsc},
    time::Duration,
};

use anyhow::Context;
use control::Machine;
use dataplane::{
    clock,
    drain::{Drain, Phase},
    http::budget::Budget,
    local::Latch,
    mailbox::{self, Sender, ShardInboxSeed},
    net::{self, Listener, Patience},
    panic_point,
    shard::{DriverWish, Shard, ShardSpec, guarded, spawn_guarded, use_small_pages},
};
use futures::future::{Either, select};
use prometheus::IntGauge;
use rustls::ServerConfig;

use crate::{
    admin,
    config::{LoadError, Settings, TlsFiles},
    connection,
    control_loop::ControlLoop,
    https::{self, door::Door},
    lease::Returns,
    link,
    mail::{ToControl, ToShard},
    metrics::Metrics,
    ops::{self, Audience},
    revocation,
    shard_state::ShardState,
    token::Authenticator,
};

/// Mail that waits for control at most; over it new requests are refused.
const CONTROL_INBOX: usize = 65_536;
/// Mail that waits for a shard; over it the sender keeps it.
const SHARD_INBOX: usize = 65_536;
/// Mail a shard carries out before other tasks get a turn.
const SHARD_BATCH: usize = 1024;
/// Descriptors kept for Node links, operators, mailboxes and files; a quarter where there are few.
const DESCRIPTORS_RESERVED: u64 = 256;
/// The usual limit, where the kernel does not tell.
const DESCRIPTORS_DEFAULT: u64 = 1024;
/// How long a port that is in use at the start is waited for.
const PORT_PATIENCE: Duration = Duration::from_secs(5);
/// How long threads may take to end once everything is told to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// How long requests that outlast the drain may take to tell their clients.
const FAREWELL: Duration = Duration::from_secs(1);

/// A signal or a report for the main thread.
enum Notice {
    Signal(i32),
    /// A shard that drains has no request left.
    Idle,
    /// A shard's thread is about to end.
    Ended(usize),
}

/// Reports the end of a shard, also by a panic.
struct EndReport(usize, mpsc::Sender<Notice>);

impl Drop for EndReport {
    fn drop(&mut self) {
        let _main_is_there = self.1.send(Notice::Ended(self.0));
    }
}

/// Runs the control thread. State that failed an assertion cannot be trusted: the process ends at once, and Nodes and
/// clients learn it from their sockets.
fn run_or_abort(run: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
        tracing::error!("the control thread failed an assertion: aborting");
        std::process::abort();
    }
}

/// Runs an Edge until it is told to stop by SIGTERM or SIGINT.
///
/// # Errors
/// A certificate, address or thread is not to be had.
pub fn serve(settings: Settings, driver: DriverWish) -> anyhow::Result<()> {
    let settings = Arc::new(settings);
    let metrics = Arc::new(Metrics::new()?);
    let (tls, not_after) = link::server_config(&settings).context("the Edge's identity")?;
    metrics.certificate_ends(not_after);
    warn_of_the_end(not_after);
    let https =
        settings.listen.tls.as_ref().map(|files| certificate_for_clients(&settings, files)).transpose()?;
    let auth = Arc::new(Authenticator::new(&settings.principals));
    let revoked = revoked_tokens(&settings)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let count = settings.edge.shard_count(cores);

    let (to_control, control_inbox) = mailbox::for_thread(CONTROL_INBOX);
    let returns = Arc::new(Returns::new(control::LEASES_MAX, to_control.clone()));
    let (senders, seeds): (Vec<_>, Vec<_>) = (0..count)
        .map(|_| mailbox::for_shard(SHARD_INBOX))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .unzip();
    let control = ControlLoop::new(
        Machine::new(Arc::clone(&settings.pool)),
        control_inbox,
        returns,
        senders.clone(),
        Arc::clone(&metrics),
    );
    use_small_pages();
    let control = spawn_thread("control", move || run_or_abort(|| control.run()))?;

    let bodies = Budget::new(settings.limits.body_memory);
    let (notify, notices) = mpsc::channel();
    let tasks = Arc::new(ops::OnceTasks::new());
    let mut sockets = bind_all(&settings, count)?;
    let admin_socket = admin::socket::bind(&settings, PORT_PATIENCE)?;
    if let (Some(first), Some(socket)) = (sockets.first_mut(), &admin_socket) {
        first.admin = Some(socket.listener()?);
    }
    let clients_max = clients_max();
    metrics.client_connections_max.set(clients_max);
    let mut shards = Vec::new();
    for (index, seed) in seeds.into_iter().enumerate() {
        let part = Part {
            index,
            settings: Arc::clone(&settings),
            metrics: Arc::clone(&metrics),
            bodies: bodies.clone(),
            tls: Arc::clone(&tls),
            https: https.as_ref().map(|loaded| Arc::clone(&loaded.config)),
            auth: Arc::clone(&auth),
            revoked: revoked.clone(),
            control: to_control.clone(),
            shards: senders.clone(),
            inbox: seed,
            sockets: std::mem::take(sockets.get_mut(index).context("one set of sockets per shard")?),
            notify: notify.clone(),
            tasks: Arc::clone(&tasks),
            clients_max,
        };
        let cpu = if settings.edge.cpus.is_empty() {
            None
        } else {
            settings.edge.cpus.get(index % settings.edge.cpus.len()).copied()
        };
        let spec = ShardSpec { name: format!("edge-{index}"), cpu, driver };
        let shard = Shard::start(spec, move || part.run()).with_context(|| format!("shard {index}"))?;
        metrics.shard_up(index, shard.driver);
        tracing::info!(shard = index, driver = shard.driver.label(), "shard up");
        shards.push(shard);
    }
    let _first = tasks.set(shards.iter().map(|s| Arc::clone(&s.tasks)).collect());
    if let Some(path) = settings.openai.revoked_tokens_file.clone() {
        let known = settings.principals.iter().map(|token| Arc::clone(&token.principal.token_ref)).collect();
        let watch =
            revocation::watch::Watch::new(path, revoked, known, senders.clone(), Arc::clone(&metrics));
        spawn_thread("revocations", move || watch.run())?;
    }
    if let Some((files, served)) = settings.listen.tls.clone().zip(https) {
        let watch = https::watch::Watch::new(files, served, senders.clone(), Arc::clone(&metrics));
        spawn_thread("certificate", move || watch.run())?;
    }
    watch_signals(notify)?;
    for warning in &settings.warnings {
        tracing::warn!(%warning, "configuration");
    }
    tracing::info!(edge = %settings.edge.name, shards = count, generation = settings.generation, "edge serving");

    let drain = Drain::new(settings.limits.drain_grace, count);
    wait_for_the_end(&notices, drain, &senders, &metrics.requests_active)?;
    let end = clock::now() + STOP_GRACE;
    for shard in shards {
        while !shard.is_finished() && clock::now() < end {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
    if to_control.send(ToControl::Stop).is_ok() {
        let _ended = control.join();
    }
    // Its file is there for as long as somebody may ask what the Edge does.
    drop(admin_socket);
    tracing::info!("edge stopped");
    Ok(())
}

/// Clients that may be connected at a time: what the process's limit of descriptors, raised as far as it goes, leaves
/// beside Nodes, operators and files.
fn clients_max() -> i64 {
    let limit = net::raise_descriptors().unwrap_or_else(|error| {
        tracing::warn!(%error, "the limit of open files cannot be raised");
        net::Descriptors { found: DESCRIPTORS_DEFAULT, now: DESCRIPTORS_DEFAULT }
    });
    let clients = (limit.now - DESCRIPTORS_RESERVED.min(limit.now / 4)).max(1);
    tracing::info!(found = limit.found, raised_to = limit.now, clients, "open files");
    i64::try_from(clients).unwrap_or(i64::MAX)
}

/// The tokens that are revoked at the start. A list that cannot be read may name any of them, so nothing starts without it.
fn revoked_tokens(settings: &Settings) -> anyhow::Result<revocation::List> {
    let mut list = revocation::List::default();
    let Some(path) = &settings.openai.revoked_tokens_file else { return Ok(list) };
    let text = revocation::read(path).with_context(|| {
        format!("openai.revoked_tokens_file: cannot read {}; it must be there, and an empty one says that none is revoked", path.display())
    })?;
    let known: HashSet<&str> = settings.principals.iter().map(|token| &*token.principal.token_ref).collect();
    let _told = revocation::announce(list.absorb(&text), |token_ref| known.contains(token_ref));
    Ok(list)
}

/// What clients are presented from the start on. Without it nothing starts: a port that refuses everybody helps nobody.
fn certificate_for_clients(settings: &Settings, files: &TlsFiles) -> anyhow::Result<https::Loaded> {
    let told = |error: LoadError| format!("{}:{error}", settings.source.display());
    let loaded = https::load(files).map_err(|error| anyhow::Error::msg(told(error)))?;
    for warning in https::warnings(files, &loaded.certificate, clock::unix_seconds()) {
        tracing::warn!(warning = %told(warning), "configuration");
    }
    let names = loaded.certificate.names().join(", ");
    tracing::info!(%names, not_after = loaded.certificate.not_after(), "certificate for clients");
    Ok(loaded)
}

/// A Node refuses an Edge whose certificate has expired, so its end must not come as a surprise.
fn warn_of_the_end(not_after: u64) {
    const WEEK: u64 = 7 * 24 * 3600;
    let left = not_after.saturating_sub(clock::unix_seconds());
    if left < WEEK {
        tracing::warn!(
            days_left = left / (24 * 3600),
            "the Edge's certificate ends soon: issue a new one and restart"
        );
    }
}

/// Sockets of one shard.
#[derive(Default)]
struct Sockets {
    http: Vec<TcpListener>,
    https: Vec<TcpListener>,
    node: Vec<TcpListener>,
    ops: Option<TcpListener>,
    admin: Option<UnixListener>,
}

/// Sockets of one kind.
type Kind = fn(&mut Sockets) -> &mut Vec<TcpListener>;

/// Binds every address once per shard, before any thread starts, so that a port in use is a start error. The bound
/// addresses go to the log: with port 0 they are the only way to learn the port.
fn bind_all(settings: &Settings, count: usize) -> anyhow::Result<Vec<Sockets>> {
    // Links set their own as they begin.
    let patience = Patience::with_readers();
    let bind = |typed: SocketAddr, address: SocketAddr| {
        Listener::bind(address, patience).map_err(|error| cannot_listen(settings, typed, error))
    };
    let mut all: Vec<Sockets> = (0..count).map(|_| Sockets::default()).collect();
    // Without a surface there is nothing for clients to connect to.
    let for_clients = |addresses| -> &[SocketAddr] { if settings.openai.enabled { addresses } else { &[] } };
    let kinds: [(&str, &[SocketAddr], Kind); 3] = [
        ("listen.http", for_clients(&settings.listen.http), |sockets| &mut sockets.http),
        ("listen.https", for_clients(&settings.listen.https), |sockets| &mut sockets.https),
        ("listen.node", &settings.listen.node, |sockets| &mut sockets.node),
    ];
    for (key, addresses, of_kind) in kinds {
        for address in addresses {
            let mut bound = *address;
            refuse_taken(settings, bound, key)?;
            for sockets in &mut all {
                let socket = bind(*address, bound)?;
                bound = socket.local_addr()?;
                of_kind(sockets).push(socket);
            }
            tracing::info!(%key, address = %bound, "listening");
        }
    }
    refuse_taken(settings, settings.listen.ops, "listen.ops")?;
    let ops = bind(settings.listen.ops, settings.listen.ops)?;
    tracing::info!(key = %"listen.ops", address = %ops.local_addr()?, "listening");
    if let Some(first) = all.first_mut() {
        first.ops = Some(ops);
    }
    Ok(all)
}

/// Why an address of the configuration cannot be listened on: where it stands, and what to do about it.
fn cannot_listen(settings: &Settings, address: SocketAddr, error: std::io::Error) -> anyhow::Error {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    let port = address.port();
    let advice = match error.kind() {
        AddrInUse => format!(
            "the port is in use: stop the program that has it (`ss -ltnp 'sport = :{port}'` shows it), or write another port here"
        ),
        AddrNotAvailable => "no interface of this machine has this address".to_owned(),
        PermissionDenied if port < 1024 => {
            "a port below 1024 needs CAP_NET_BIND_SERVICE; write another one here".to_owned()
        }
        _ => "it cannot be listened on".to_owned(),
    };
    anyhow::Error::new(error).context(format!("{}: {address}: {advice}", settings.listener(address)))
}

/// `SO_REUSEPORT` would let a second Edge of the same user share our port without a word: a bind without it tells.
///
/// An Edge that was killed a moment ago may hold its port a little longer: the kernel takes its ring down after it.
fn refuse_taken(settings: &Settings, address: SocketAddr, key: &str) -> anyhow::Result<()> {
    if address.port() == 0 {
        return Ok(());
    }
    let until = clock::now() + PORT_PATIENCE;
    let mut told = false;
    loop {
        match Listener::probe(address) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && clock::now() < until => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(%key, %address, patience_s = PORT_PATIENCE.as_secs(), "address in use, waiting");
                }
                std::thread::park_timeout(Duration::from_millis(50));
            }
            probed => return probed.map_err(|error| cannot_listen(settings, address, error)),
        }
    }
}

/// The same on their shard.
struct Listeners {
    http: Vec<Listener>,
    https: Vec<Listener>,
    node: Vec<Listener>,
    /// The ops listener and the admin socket.
    ops: Vec<(Listener, Audience)>,
}

impl Listeners {
    fn open(sockets: Sockets) -> std::io::Result<Self> {
        let open = |sockets: Vec<TcpListener>| -> std::io::Result<Vec<Listener>> {
            sockets.into_iter().map(Listener::open).collect()
        };
        let ops = sockets.ops.map(Listener::open).transpose()?.map(|it| (it, Audience::Network));
        let admin = sockets.admin.map(Listener::open_local).transpose()?.map(|it| (it, Audience::Owner));
        let ops = ops.into_iter().chain(admin).collect();
        Ok(Self { http: open(sockets.http)?, https: open(sockets.https)?, node: open(sockets.node)?, ops })
    }
}

/// What a shard's thread is given.
struct Part {
    index: usize,
    settings: Arc<Settings>,
    metrics: Arc<Metrics>,
    bodies: Budget,
    tls: Arc<ServerConfig>,
    https: Option<Arc<ServerConfig>>,
    auth: Arc<Authenticator>,
    revoked: revocation::List,
    control: Sender<ToControl>,
    shards: Vec<Sender<ToShard>>,
    inbox: ShardInboxSeed<ToShard>,
    sockets: Sockets,
    notify: mpsc::Sender<Notice>,
    tasks: Arc<ops::OnceTasks>,
    clients_max: i64,
}

/// Runs what a shard cannot do without: its panic ends the shard, and with it the process, for a service manager to start
/// it anew. Going on it would be deaf or mute without anyone noticing.
fn spawn_vital(broken: &Rc<Latch>, task: impl Future<Output = ()> + 'static) {
    let broken = Rc::clone(broken);
    spawn_guarded(async move {
        if guarded(task).await.is_none() {
            broken.close();
        }
    });
}

impl Part {
    async fn run(self) {
        let _report = EndReport(self.index, self.notify.clone());
        let state = Rc::new(ShardState::new(
            self.index,
            self.settings,
            self.metrics,
            self.bodies,
            self.control,
            self.shards,
        ));
        state.https.replace(self.https);
        self.revoked.iter().for_each(|token_ref| state.permits.revoke(token_ref));
        let mut inbox = match self.inbox.open() {
            Ok(inbox) => inbox,
            Err(error) => return tracing::error!(%error, "the shard's mailbox cannot be opened"),
        };
        let listeners = match Listeners::open(self.sockets) {
            Ok(listeners) => listeners,
            Err(error) => return tracing::error!(%error, "the shard's sockets cannot be opened"),
        };
        let broken = Rc::new(Latch::new());
        spawn_vital(&broken, Rc::clone(&state).forward_pending());
        for listener in listeners.node {
            spawn_vital(&broken, link::accept_loop(Rc::clone(&state), listener, Arc::clone(&self.tls)));
        }
        let plain = listeners.http.into_iter().map(|listener| (listener, None));
        let secure = listeners.https.into_iter().map(|listener| (listener, Some(Door::new())));
        for (listener, door) in plain.chain(secure) {
            let (auth, clients) = (Arc::clone(&self.auth), self.clients_max);
            spawn_vital(&broken, connection::accept_loop(Rc::clone(&state), listener, auth, clients, door));
        }
        for (listener, audience) in listeners.ops {
            let tasks = Arc::clone(&self.tasks);
            spawn_vital(&broken, ops::accept_loop(Rc::clone(&state), listener, audience, tasks));
        }
        let draining = Rc::clone(&state);
        spawn_vital(&broken, async move {
            draining.draining.closed().await;
            draining.requests.drained().await;
            let _main_is_there = self.notify.send(Notice::Idle);
        });
        let mail = Rc::clone(&state);
        spawn_vital(&broken, async move {
            let mut batch = Vec::with_capacity(SHARD_BATCH);
            loop {
                inbox.receive(&mut batch, SHARD_BATCH).await;
                panic_point!("edge.mail");
                for item in batch.drain(..) {
                    mail.take(item);
                }
                if inbox.has_more() {
                    dataplane::time::yield_now().await;
                }
            }
        });
        let stopping = std::pin::pin!(state.stopping.closed());
        if let Either::Right(_) = select(stopping, std::pin::pin!(broken.closed())).await {
            return;
        }
        // Whoever is broken off is told so while the shard still runs (API-1).
        let _in_time = dataplane::time::before(clock::now() + FAREWELL, state.requests.drained()).await;
        link::close_all(&state).await;
    }
}

fn wait_for_the_end(
    notices: &mpsc::Receiver<Notice>,
    mut drain: Drain,
    shards: &[Sender<ToShard>],
    requests: &IntGauge,
) -> anyhow::Result<()> {
    let tell = |mail: fn() -> ToShard| {
        for shard in shards {
            // A shard that is far behind gets it as soon as it has taken one piece of mail.
            while shard.send(mail()).is_err() && !shard.is_empty() {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
    };
    while drain.phase() != Phase::Stopped {
        let before = drain.phase();
        let wait = drain
            .poll_timeout()
            .map_or(Duration::from_secs(3600), |d| d.saturating_duration_since(clock::now()));
        match notices.recv_timeout(wait) {
            Ok(Notice::Signal(signal)) => {
                tracing::info!(signal, "told to stop");
                drain.handle_signal(clock::now());
            }
            Ok(Notice::Idle) => drain.handle_idle(),
            Ok(Notice::Ended(shard)) => anyhow::bail!("shard {shard} ended by itself"),
            Err(_) => drain.handle_timeout(clock::now()),
        }
        if before == Phase::Serving && drain.phase() == Phase::Draining {
            tell(|| ToShard::Drain);
        }
    }
    if requests.get() > 0 {
        tracing::warn!(requests = requests.get(), "requests are broken off");
    }
    tell(|| ToShard::Stop);
    Ok(())
}

fn watch_signals(notify: mpsc::Sender<Notice>) -> anyhow::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([libc::SIGTERM, libc::SIGINT])?;
    spawn_thread("signals", move || {
        for signal in signals.forever() {
            if notify.send(Notice::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

fn spawn_thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}
