//! A load in which nothing overlaps: one request at a time, and the next event only when the last one has arrived.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use tokio::sync::Semaphore;

use crate::load::engine::{Epoll, Runtime as _, until};
use crate::load::{self, Connection, Engine, Length, Mode, Observer};
use crate::provider::{Config, Provider, Script};
use crate::subject::Running;

/// Events that may leave before the pace is taken over: enough for the subject's first requests.
const FREE_EVENTS: usize = 1_000_000;
/// The limit of one request; under valgrind everything takes some fifty times as long.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The provider of such a load, on its own thread until the process ends.
#[derive(Debug)]
pub struct Lockstep {
    address: SocketAddr,
    steps: Arc<Semaphore>,
}

impl Lockstep {
    /// Starts the provider. Its events wait for nothing yet.
    ///
    /// # Errors
    /// What the system says about the thread or the socket.
    pub fn start() -> anyhow::Result<Self> {
        Engine::Epoll.prepare(1)?;
        let steps = Arc::new(Semaphore::new(FREE_EVENTS));
        let config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            script: Script::default(),
            models: vec!["perf-model".to_owned()],
            strict_models: false,
            api_key: None,
            keepalive_idle: Duration::ZERO,
            steps: Some(Arc::clone(&steps)),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (sender, receiver) = mpsc::channel();
        std::thread::Builder::new().name("lockstep".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let bound = Provider::bind(config).await;
                let provider = bound.and_then(|provider| Ok((provider.local_addr()?, provider)));
                match provider {
                    Ok((address, provider)) => {
                        let _ = sender.send(Ok(address));
                        provider.run().await;
                    }
                    Err(error) => {
                        let _ = sender.send(Err(error));
                    }
                }
            });
        })?;
        let address = receiver.recv().context("the provider's thread ended")?.context("listen")?;
        Ok(Self { address, steps })
    }

    /// Where the provider listens.
    #[must_use]
    pub fn provider(&self) -> SocketAddr {
        self.address
    }

    /// From now on an event leaves only when the one before it has arrived.
    pub fn take_control(&self) {
        self.steps.forget_permits(usize::MAX >> 4);
    }

    /// One stream of `events` content events.
    ///
    /// # Errors
    /// The reply fails a check.
    pub fn stream(&self, subject: &Running, events: u32) -> anyhow::Result<()> {
        let request = request(subject, true, &format!("events={events}"));
        let steps = Arc::clone(&self.steps);
        // A gateway may hold the first event, which has no content, back for the one behind it.
        steps.add_permits(2);
        let pace = Pace { steps: &steps, unasked: 1 };
        let done = exchange(subject, &request, 1, mode(true), pace);
        // The last event has asked for one more.
        self.take_control();
        let arrived = done?;
        ensure!(arrived > u64::from(events), "{arrived} of {events} events arrived");
        Ok(())
    }

    /// `count` requests that ask for no stream, one after the other on one connection.
    ///
    /// # Errors
    /// A reply fails a check.
    pub fn requests(&self, subject: &Running, count: u32) -> anyhow::Result<()> {
        let request = request(subject, false, "events=30");
        exchange(subject, &request, count, mode(false), Pace { steps: &self.steps, unasked: 0 }).map(|_| ())
    }
}

/// Lets the next event go when one has arrived.
struct Pace<'a> {
    steps: &'a Semaphore,
    /// How many have been let go beyond the one that is to arrive.
    unasked: u32,
}

impl Observer for Pace<'_> {
    fn event(&mut self) {
        match self.unasked.checked_sub(1) {
            Some(left) => self.unasked = left,
            None => self.steps.add_permits(1),
        }
    }

    fn gap(&mut self, _us: u64) {}

    fn delivery(&mut self, _us: u64) {}
}

fn mode(stream: bool) -> Mode {
    Mode { stream, seal_demanded: true, content_events: None }
}

fn request(subject: &Running, stream: bool, script: &str) -> Vec<u8> {
    load::request(&load::Config {
        target: subject.target.clone(),
        token: subject.token.clone(),
        model: subject.model.clone(),
        length: Length::Requests(1),
        stream,
        script: Some(script.to_owned()),
        ..load::Config::default()
    })
}

/// Sends a request `count` times over one connection; how many events arrived.
fn exchange(
    subject: &Running,
    request: &[u8],
    count: u32,
    mode: Mode,
    mut pace: Pace<'_>,
) -> anyhow::Result<u64> {
    let failed = |failure| anyhow!("a reply through the subject failed: {failure}");
    Epoll::start()?.run(async {
        let work = async {
            let mut connection = Connection::<Epoll>::open(subject.target.address).await.map_err(failed)?;
            let mut events = 0;
            for _ in 0..count {
                let from = Instant::now();
                events += connection.exchange(request, mode, from, &mut pace).await.map_err(failed)?.events;
            }
            Ok(events)
        };
        until::<Epoll, _>(Instant::now() + TIMEOUT, work).await.context("a reply did not end in time")?
    })
}
