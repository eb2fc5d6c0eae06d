//! The watchdog's driver: runs an execution's work, and does what the machine says.
//!
//! Whatever stops the work drops its future at the point where it is. A provider that may be at work by then is told, and keeps
//! the run's place until it has returned (see [`abort`](super::abort)).

use std::{
    future::Future,
    pin::pin,
    rc::Rc,
    time::{Duration, Instant},
};

use dataplane::{clock, shard::boxed, time::sleep_until_maybe};
use futures::{
    FutureExt,
    future::{Either, select},
};
use proto::message::ErrorKind;

use super::{
    abort::Departing,
    control::{RunControl, Stop},
    pulse::Pulse,
    stall::{StallReport, Subject, observed},
    terminal::{End, Failed, Terminal},
    watchdog::{Activity, Effects, Observation, Outcome, Progress, Seen, Stall, Watchdog},
};
use crate::{
    adapters::{Adapter, Provider, native::Leftover},
    health::{self, ProviderHealth},
    session::observation::Observations,
};

/// What an execution is watched by, from its admission on.
#[derive(Debug)]
pub struct Watch {
    /// How long there may be no progress.
    pub timeout: Duration,
    /// Whose stall it would be.
    pub subject: Subject,
    /// The numbers of its connection's observations.
    pub observations: Rc<Observations>,
    activity: Activity,
    pulse: Pulse,
}

impl Watch {
    /// Of an execution that was received at `now`. Its clock stands still until [`Watch::start`].
    #[must_use]
    pub fn new(timeout: Duration, subject: Subject, observations: Rc<Observations>, now: Instant) -> Self {
        Self { timeout, subject, observations, activity: Activity::new(now), pulse: Pulse::start(now) }
    }

    /// The provider is called now.
    pub fn start(&self) {
        self.activity.start(self.pulse.now());
    }

    /// Notes what the provider did. For every event: it stores a time, and no more.
    pub fn note(&self, progress: Progress) {
        self.activity.note(self.pulse.now(), progress);
    }

    /// Waits for what keeps the provider from being read; its clock stands still meanwhile.
    pub async fn blocked<T>(&self, waiting: impl Future<Output = T>) -> T {
        self.activity.block(self.pulse.now());
        let output = waiting.await;
        self.activity.unblock(self.pulse.now());
        output
    }
}

/// Everything that supervises one execution.
#[derive(Clone, Copy)]
pub struct Supervisor<'a> {
    /// Who executes.
    pub provider: &'a Provider,
    /// By which adapter.
    pub adapter: &'a Adapter,
    /// What the session can tell it.
    pub control: &'a RunControl,
    /// What its work leaves when it is dropped.
    pub leftover: &'a Leftover,
    /// Its clock.
    pub watch: &'a Watch,
    /// When it must be over.
    pub deadline: Option<Instant>,
}

/// What came of an execution.
#[must_use = "its terminal has not been sent"]
pub struct Ended<'a> {
    /// What its terminal is to say.
    pub result: Result<End, Failed>,
    /// A provider that has not returned within the close grace.
    unreturned: Option<Unreturned<'a>>,
}

struct Unreturned<'a> {
    watchdog: Watchdog,
    departing: Departing<'a>,
    control: &'a RunControl,
    activity: &'a Activity,
}

impl<'a> Supervisor<'a> {
    /// Runs `work` to its end, or until something stops it. `fence` is called when a cancel, a deadline or a lost session has stopped
    /// it, before anything is waited for.
    pub async fn run(
        self,
        work: impl Future<Output = Result<End, Failed>>,
        fence: impl FnOnce(&Failed),
    ) -> Ended<'a> {
        let mut watchdog = Watchdog::new(self.watch.timeout, self.deadline);
        let (effects, finished) = self.work(&mut watchdog, work).await;
        if effects.probe {
            // In a box of its own: no run that does not stall pays for it.
            return boxed(|| self.close(watchdog)).await;
        }
        let result = match watchdog.stopping() {
            Some(Outcome::Stopped(stop)) => Err(stop_failure(stop)),
            Some(Outcome::Deadline) => Err(Failed::error(ErrorKind::Deadline, "timeout_sec has passed")),
            _ => finished.unwrap_or_else(|| Err(Failed::error(ErrorKind::Internal, "the run has no end"))),
        };
        if let (true, Err(failure)) = (effects.fence, &result) {
            fence(failure);
        }
        let returned = Departing::new(self.provider, self.leftover).within_grace().await;
        let seen = Seen { returned: Some(returned), ..Seen::default() };
        watchdog.step(clock::now(), &self.watch.activity, seen);
        Ended { result, unreturned: None }
    }

    /// Up to the point where the work is over or must be stopped; it is dropped by then, and nothing more can come of it (STL-9).
    async fn work(
        &self,
        watchdog: &mut Watchdog,
        work: impl Future<Output = Result<End, Failed>>,
    ) -> (Effects, Option<Result<End, Failed>>) {
        let activity = &self.watch.activity;
        let mut stopped = pin!(self.control.stopped());
        let mut work = pin!(work);
        loop {
            // Work comes before time: what has arrived by now counts.
            let due = sleep_until_maybe(watchdog.due(clock::now(), activity));
            let (seen, result) = match select(&mut stopped, select(&mut work, pin!(due))).await {
                Either::Left((stop, _)) => (Seen { stop: Some(stop), ..Seen::default() }, None),
                Either::Right((Either::Left((result, _)), _)) => {
                    (Seen { finished: true, ..Seen::default() }, Some(result))
                }
                Either::Right((Either::Right(((), _)), _)) => (Seen::default(), None),
            };
            let effects = watchdog.step(clock::now(), activity, seen);
            if !watchdog.is_watching() {
                return (effects, result);
            }
        }
    }

    /// From the claim to what the terminal says.
    async fn close(self, mut watchdog: Watchdog) -> Ended<'a> {
        let Watch { subject, observations, activity, .. } = self.watch;
        let mut departing = Departing::new(self.provider, self.leftover);
        let stall = {
            let mut returned = pin!(departing.returned().fuse());
            let observed = async {
                let health = health::probe(self.provider, self.adapter, &subject.target).await;
                Observation { health, sequence: observations.next() }
            };
            let mut observed = pin!(observed.fuse());
            loop {
                let due = sleep_until_maybe(watchdog.due(clock::now(), activity));
                let seen = match select(&mut returned, select(&mut observed, pin!(due))).await {
                    Either::Left((returned, _)) => Seen { returned: Some(returned), ..Seen::default() },
                    Either::Right((Either::Left((observation, _)), _)) => {
                        Seen { probe: Some(observation), ..Seen::default() }
                    }
                    Either::Right((Either::Right(((), _)), _)) => Seen::default(),
                };
                let effects = watchdog.step(clock::now(), activity, seen);
                if let Some(Outcome::Stalled(stall)) = effects.terminal {
                    break stall;
                }
            }
        };
        let failure = self.report(stall);
        let control = self.control;
        let unreturned =
            (!watchdog.is_over()).then_some(Unreturned { watchdog, departing, control, activity });
        Ended { result: Err(failure), unreturned }
    }

    /// Tells the observer, then builds what the terminal says.
    fn report(&self, Stall { idle, fence, observation }: Stall) -> Failed {
        let Watch { subject, observations, .. } = self.watch;
        let nothing = || Observation { health: ProviderHealth::Unknown, sequence: observations.next() };
        let observation = observation.unwrap_or_else(nothing);
        let report = StallReport { subject, idle, fence, observation };
        if !observed(&*self.provider.metrics, &report) {
            tracing::error!("the observer of stalls failed: a defect; the run's end is not affected");
        }
        Failed::Stalled(Box::new(report.error()))
    }
}

impl Ended<'_> {
    /// Sends the terminal. Where the provider has not returned what the run holds is held on, until it has or the session is lost
    /// (PRE-3).
    pub async fn finish(self, terminal: Terminal) {
        let Self { result, unreturned } = self;
        let Some(unreturned) = unreturned else { return terminal.end(result) };
        let held = terminal.end_holding(result);
        unreturned.wait().await;
        drop(held);
    }
}

impl Unreturned<'_> {
    async fn wait(self) {
        let Self { mut watchdog, mut departing, control, activity } = self;
        while !watchdog.is_over() {
            let seen = match select(pin!(control.lost()), pin!(departing.returned())).await {
                Either::Left(((), _)) => Seen { stop: Some(Stop::SessionLost), ..Seen::default() },
                Either::Right((returned, _)) => Seen { returned: Some(returned), ..Seen::default() },
            };
            watchdog.step(clock::now(), activity, seen);
        }
    }
}

fn stop_failure(stop: Stop) -> Failed {
    match stop {
        Stop::Cancelled => Failed::error(ErrorKind::Cancelled, "cancelled by the edge"),
        Stop::SessionLost => Failed::SessionLost,
        Stop::PeerFault(kind) => Failed::error(kind, "the edge broke the rules of this stream"),
    }
}
