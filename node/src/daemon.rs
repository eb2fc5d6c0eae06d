//! The supervisor's driver: does what [`Supervisor`] says, in one process, for as long as it says so (SUP-6).
//!
//! ```text
//!   signals ──▶ Shutdown ──▶ supervise: Dial ─▶ session ready ─▶ lost ─▶ Wait ─▶ Dial …
//! ```

use std::{
    pin::pin,
    rc::Rc,
    time::{Duration, Instant},
};

use dataplane::{
    clock,
    drain::{Drain, Phase},
    local::Signal,
    shard::guarded,
    time::{sleep_until, sleep_until_maybe},
};
use futures::future::{Either, select};

use crate::{
    config::ReconnectPolicy,
    session::{self, Context, Session},
    supervisor::{Event, Exit, Failure, Step, Supervisor},
};

/// How long running streams may go on after a termination signal.
pub const DRAIN_GRACE: Duration = Duration::from_secs(30);
/// How long a draining Node stays at the least: a few round trips between any two places.
const DRAIN_LINGER: Duration = Duration::from_millis(500);

/// Termination signals, counted by the task that receives them.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    count: std::cell::Cell<u32>,
    changed: Signal,
}

impl Shutdown {
    /// One more signal.
    pub fn signal(&self) {
        self.0.count.set(self.0.count.get().saturating_add(1));
        self.0.changed.set();
    }

    /// Signals so far.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.count.get()
    }

    /// Waits until more than `seen` signals came. One waiter at a time; may be dropped freely.
    pub async fn after(&self, seen: u32) {
        while self.count() <= seen {
            self.0.changed.wait().await;
        }
    }
}

/// Connects, serves and reconnects until the policy or a signal ends it.
pub async fn supervise(
    context: &Context,
    policy: ReconnectPolicy,
    grace: Duration,
    shutdown: &Shutdown,
) -> Exit {
    let mut supervisor = Supervisor::new(policy);
    let mut session = None;
    let mut event = Event::Started;
    loop {
        let step = supervisor.handle(clock::now(), random(), event);
        event = match step {
            Step::Exit(exit) => {
                if let Some(session) = session.take() {
                    drain(session, grace, shutdown).await;
                    context.metrics.connected.set(0);
                }
                return exit;
            }
            Step::Dial => {
                tracing::debug!(attempt = supervisor.attempts(), edge = %context.edge.name, "dialling the edge");
                match unless(shutdown, Box::pin(guarded(session::connect(context)))).await {
                    None => Event::Shutdown,
                    Some(None) => {
                        context.metrics.note_failed_dial(Failure::Broken);
                        Event::Failed(Failure::Broken)
                    }
                    Some(Some(Ok(ready))) => {
                        tracing::info!(node = %context.name, edge = %context.edge.name, "node ready");
                        context.metrics.note_ready();
                        session = Some(ready);
                        Event::Ready
                    }
                    Some(Some(Err(failed))) => {
                        let (attempt, reason) = (supervisor.attempts(), failed.failure.label());
                        tracing::warn!(attempt, reason, error = failed.why, "dial failed");
                        context.metrics.note_failed_dial(failed.failure);
                        Event::Failed(failed.failure)
                    }
                }
            }
            Step::Wait(until) => wait(until, shutdown).await,
            Step::Stay => match serve(session.as_ref(), shutdown).await {
                None => Event::Shutdown,
                Some(reason) => {
                    session = None;
                    context.metrics.connected.set(0);
                    tracing::warn!(%reason, "connection to the edge lost");
                    Event::Lost
                }
            },
        };
    }
}

async fn wait(until: Instant, shutdown: &Shutdown) -> Event {
    let wait = until.saturating_duration_since(clock::now());
    tracing::info!(wait_ms = wait.as_millis(), "dialling again after a wait");
    match unless(shutdown, sleep_until(until)).await {
        None => Event::Shutdown,
        Some(()) => Event::WaitOver,
    }
}

/// Why the session ended, or `None` on a signal.
async fn serve(session: Option<&Session>, shutdown: &Shutdown) -> Option<dataplane::relay::CloseReason> {
    match session {
        Some(session) => unless(shutdown, session.lost()).await,
        None => Some(dataplane::relay::CloseReason::Internal),
    }
}

/// The output of `future`, or `None` when the first signal comes before it. Drops the future then.
async fn unless<F: Future>(shutdown: &Shutdown, future: F) -> Option<F::Output> {
    match select(pin!(shutdown.after(0)), pin!(future)).await {
        Either::Left(((), _)) => None,
        Either::Right((output, _)) => Some(output),
    }
}

/// Tells the Edge, lets what runs finish, until the grace is over, a second signal comes or the link is lost; then says
/// goodbye.
async fn drain(session: Session, grace: Duration, shutdown: &Shutdown) {
    let mut drain = Drain::new(grace, 1);
    drain.handle_signal(clock::now());
    session.drain();
    tracing::info!(runs = session.runs(), grace_sec = grace.as_secs(), "node draining");
    {
        let (idle, lost) = (pin!(idle_and_heard(&session)), pin!(session.lost()));
        let mut done = select(idle, lost);
        while drain.phase() == Phase::Draining {
            // A second signal may have come before we got here.
            let hasty = pin!(shutdown.after(1));
            let over = pin!(sleep_until_maybe(drain.poll_timeout()));
            match select(&mut done, select(hasty, over)).await {
                Either::Left(_) => drain.handle_idle(),
                Either::Right((Either::Left(_), _)) => drain.handle_signal(clock::now()),
                Either::Right((Either::Right(_), _)) => drain.handle_timeout(clock::now()),
            }
        }
    }
    if session.runs() > 0 {
        tracing::warn!(runs = session.runs(), "runs are broken off");
    }
    session.close().await;
}

/// Waits until nothing runs, but long enough that what the Edge sent before it heard of the drain has arrived and been
/// answered `busy`, which sends it elsewhere; behind a goodbye it would be lost.
async fn idle_and_heard(session: &Session) {
    let heard = clock::now() + DRAIN_LINGER;
    session.idle().await;
    sleep_until(heard).await;
    session.idle().await;
}

/// Uniform over all of `u32`. Without a working source of randomness waits have no jitter, which harms nobody.
fn random() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX / 2)
}
