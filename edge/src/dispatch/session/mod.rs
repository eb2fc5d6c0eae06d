//! Drives one request: admission, dispatch, relay, and every way out.
//!
//! There is one drop path: whatever ends this future early (client gone, timeout, panic) drops the `Run`, which tells
//! the Node to stop, and the lease, which returns the slot. A panic while it is driven ends the request as any other failure
//! does.

use std::{
    future::Future,
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use control::{
    config::Capabilities,
    effect::Grant,
    input::{self, Admit},
};
use dataplane::{
    clock,
    http::{
        body::Body,
        server::{Connection, Gone, Peer},
    },
    net::WriteFault,
    shard::guarded,
};
use proto::message::Header;

use super::{
    attempt::{Attempt, Step},
    downstream::Downstream,
    held::{Head, Held},
    keepalive::Silence,
    running::Run,
    wait::{Interrupted, Waits, Woken},
    written::Written,
};
use crate::{
    config::GenerationPolicy,
    gate::{active::Active, hold::Watch},
    mail::ToShard,
    openai::scan::ChatScan,
    reply::Fault,
    requests::{Event, Registered},
    revocation::permits::Permit,
    shard_state::ShardState,
    surface::Surface,
    usage::Observed,
};
use recover::Recovery;

mod alive;
mod gating;
mod recover;
mod relay;
mod sending;
mod telling;

/// How long the end of a run may take to arrive when its client has left after the end of its stream.
const END_GRACE: Duration = Duration::from_secs(1);

const EVENT_STREAM: &str = "text/event-stream";

/// A request that may be dispatched: authenticated, whole, understood.
#[derive(Debug)]
pub struct Plan {
    /// Closed when the request is to end: its token was revoked, or the process stops.
    pub permit: Permit,
    /// In whose language it is asked, and answered.
    pub surface: Surface,
    /// External model id of a configured group.
    pub group: Arc<str>,
    /// What a candidate must be able to do.
    pub needs: Capabilities,
    /// Tokens of context of the model; `None` = unknown.
    pub window: Option<u64>,
    /// Token limits of the model.
    pub generation: GenerationPolicy,
    /// Whether it takes a long slot.
    pub long: bool,
    /// What was found in the body.
    pub scan: ChatScan,
    /// The body as the client sent it.
    pub body: Body,
    /// End-to-end request headers.
    pub headers: Vec<Header>,
    /// The client's own credential for the provider.
    pub provider_auth: Option<Header>,
    /// For the client, the log and the Node.
    pub request_id: Arc<str>,
    /// Told to a page of another origin that is let in.
    pub allow_origin: Option<Arc<str>>,
    /// When its head was complete.
    pub started: Instant,
}

/// How a request ended.
#[derive(Debug)]
pub struct Ended {
    /// One of `reply::OUTCOMES`.
    pub outcome: &'static str,
    /// Whether the client's connection may carry another request.
    pub reusable: bool,
    /// HTTP status that the client got; 0 = none.
    pub status: u16,
    /// Provider of the last dispatch.
    pub provider: Option<Arc<str>>,
    /// Dispatches.
    pub attempts: u32,
    /// How the last one came about that mends a failure.
    pub recovery: Option<&'static str>,
    /// The providers of all dispatches where there was more than one.
    pub providers: Option<String>,
    /// Body bytes passed on.
    pub bytes: u64,
    /// Time in the queue.
    pub queued: Duration,
    /// From the head to the first body byte.
    pub first_byte: Option<Duration>,
    /// What is known of the tokens of an answer.
    pub usage: Option<Observed>,
}

/// Runs a request to its end.
pub async fn run(shard: &Rc<ShardState>, client: &mut Connection, plan: Box<Plan>) -> Ended {
    let registered = shard.requests.enter();
    let admit = Admit {
        request: registered.id,
        group: Arc::clone(&plan.group),
        needs: plan.needs,
        long: plan.long,
        avoid: Vec::new(),
    };
    let openai = &shard.settings.openai;
    let silence = (openai.keepalive_tunnel && plan.scan.stream)
        .then(|| Silence::of_tunnel(openai.keepalive_comment, clock::now()));
    let started = plan.started;
    let recovery = Recovery::new(&openai.gate, plan.body.len());
    let mut session = Session {
        shard,
        client: client.peer(),
        downstream: Downstream::new(client, plan.surface, plan.started),
        events: registered,
        plan,
        attempt: Attempt::default(),
        run: None,
        grant: None,
        held: None,
        written: None,
        recovery,
        active: Active::default(),
        watch: None,
        armed_for: None,
        heard: started,
        silence,
    };
    let way_out = if session.shard.admit(admit).is_ok() {
        let driven = guarded(session.drive()).await;
        driven.unwrap_or_else(|| {
            // What it was about to do with the connection is not known.
            session.downstream.client.set_draining();
            WayOut::Refuse(Fault::Internal)
        })
    } else {
        WayOut::Refuse(Fault::QueueFull)
    };
    session.finish(way_out).await
}

/// Why the relay loop ended.
enum WayOut {
    /// The response is complete and written.
    Complete,
    /// Tell the client, if it can still be told.
    Refuse(Fault),
    /// There is nobody to tell.
    ClientGone,
    /// There is somebody who does not read.
    ClientStalled,
    /// The answer was cut in the middle of a write: nothing can be told any more.
    Untold(Fault),
}

struct Session<'a> {
    shard: &'a Rc<ShardState>,
    downstream: Downstream<'a>,
    /// Whom a write is for.
    client: Peer,
    events: Registered,
    plan: Box<Plan>,
    attempt: Attempt,
    run: Option<Run>,
    grant: Option<Box<Grant>>,
    /// Of an answer that goes on as it is: its beginning, until its client is given content.
    held: Option<Held>,
    /// The answer that the Edge writes, of a dispatch that needs it, and of those that go on with it.
    written: Option<Box<Written>>,
    recovery: Recovery,
    /// The filters that look at this attempt.
    active: Active,
    /// Those of text, until the answer begins.
    watch: Option<Box<Watch>>,
    /// When the client of a stream that the Edge does not keep alive itself was told last that something is held back for it.
    heard: Instant,
    /// When what is held back for a filter goes out in any case, as far as a timer is set for it.
    armed_for: Option<Instant>,
    /// When the client of a stream heard something last, where tunnels and what waits are kept alive.
    silence: Option<Silence>,
}

impl Drop for Session<'_> {
    /// For the ways out that do not pass `finish`: a panic, a dropped task.
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl Session<'_> {
    async fn drive(&mut self) -> WayOut {
        let permit = Rc::clone(&self.plan.permit);
        let mut waits = Waits { watch: None, timer: None, missed_pulse: false, stop: pin!(permit.closed()) };
        let way_out = self.drive_to_end(&mut waits).await;
        if let Some(watch) = waits.watch {
            self.downstream.client.keep_watch(watch);
        }
        way_out
    }

    async fn drive_to_end<S: Future<Output = ()> + Unpin>(&mut self, waits: &mut Waits<S>) -> WayOut {
        self.arm(waits);
        loop {
            if waits.watch.is_none() {
                waits.watch = Some(self.downstream.client.watch());
            }
            match waits.next(&self.events).await {
                // Links close when the process stops: their fencing must not be taken for the cause.
                Woken::Event(_) if self.plan.permit.is_closed() => return self.stopped(),
                Woken::Event(event) => {
                    let before = self.attempt.dispatches();
                    if let Some(way_out) = self.take_all(event, waits).await {
                        return way_out;
                    }
                    if self.run.is_none() {
                        // Nothing runs: what waits now has the queue's own time.
                        self.arm(waits);
                    } else if self.attempt.dispatches() != before
                        || waits.missed_pulse
                        || waits.timer.is_none()
                        || self.holds_anew()
                    {
                        self.arm(waits);
                    }
                }
                Woken::ClientStirred => match self.downstream.client.check_gone() {
                    Gone::Yes => return self.client_left().await,
                    Gone::No => {}
                    // So much sent in advance that its leaving could not be seen any more: no client that waits for its
                    // answer does that, and a slot must not wait for one that is not there.
                    Gone::Deaf => return WayOut::ClientGone,
                },
                Woken::Pulse => {
                    self.let_out();
                    self.keep_alive();
                    if let Some(way_out) = self.flush(waits).await {
                        return way_out;
                    }
                    self.arm(waits);
                }
                Woken::Deadline => return WayOut::Refuse(Fault::Deadline),
                Woken::Stop => return self.stopped(),
            }
        }
    }

    /// The request may not go on.
    fn stopped(&self) -> WayOut {
        WayOut::Refuse(self.why_stopped())
    }

    /// Nothing ran of what still waits for its slot, so a process that ends tells that it may well be sent again.
    fn why_stopped(&self) -> Fault {
        match (self.shard.stopping.is_closed(), self.attempt.is_waiting()) {
            (false, _) => Fault::Revoked,
            (true, true) if !self.recovery.has_begun() => Fault::Draining,
            (true, _) => Fault::Cancelled,
        }
    }

    /// Takes an event and all that wait behind it, then writes what came of them in one go.
    async fn take_all<S: Future<Output = ()> + Unpin>(
        &mut self,
        first: Event,
        waits: &mut Waits<S>,
    ) -> Option<WayOut> {
        let mut next = Some(first);
        while let Some(event) = next {
            let mut step = Some(self.attempt.handle(event));
            while let Some(taken) = step {
                if let Some(way_out) = self.take(taken) {
                    return match self.flush(waits).await {
                        // A client that takes the end and closes at once has its answer.
                        Some(WayOut::ClientGone)
                            if matches!(way_out, WayOut::Complete) && self.downstream.saw_end() =>
                        {
                            Some(WayOut::Complete)
                        }
                        Some(cut) => Some(cut),
                        None => Some(way_out),
                    };
                }
                step = self.attempt.poll();
            }
            next = if self.downstream.has_room() { self.events.events.try_pop() } else { None };
        }
        self.flush(waits).await
    }

    fn take(&mut self, step: Step) -> Option<WayOut> {
        match step {
            Step::Nothing => {
                if self.attempt.is_waiting() {
                    // The run is over without having begun; its Node has nothing to stop.
                    self.end_run();
                }
                None
            }
            Step::Dispatch(grant) => {
                let sent = self.dispatch(grant);
                self.unless_sent(sent)
            }
            Step::Input(read) => {
                let sent = read.and_then(|input| self.input(*input));
                self.unless_sent(sent)
            }
            Step::Refused(reason) => self.unless_sent(Err(reason.into())),
            Step::Head { status, headers, until_close } => match &mut self.written {
                Some(written) => written.head(status, &headers).err().map(WayOut::Refuse),
                None => self.head(Head { status, headers, until_close }),
            },
            Step::Run(event) => self.run_event(*event),
            Step::Body(bytes) => self.body(bytes),
            Step::Complete => self.complete(),
            Step::Failed(cause) => self.failed(cause),
        }
    }

    /// The end where a request could not be sent out: what had gone wrong before, if anything had.
    fn unless_sent(&mut self, sent: Result<(), Fault>) -> Option<WayOut> {
        let fault = sent.err()?;
        self.not_sent(fault)
    }

    /// The Node needs no cancel any more.
    fn end_run(&mut self) {
        if let Some(mut run) = self.run.take() {
            run.over = true;
        }
    }

    /// Writes what waits; gives credit back for it.
    async fn flush<S: Future<Output = ()> + Unpin>(&mut self, waits: &mut Waits<S>) -> Option<WayOut> {
        match waits.write(&self.client, self.downstream.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(WriteFault::Stalled)) => return Some(WayOut::ClientStalled),
            Ok(Err(WriteFault::Io(_))) | Err(Interrupted::Gone) => return Some(WayOut::ClientGone),
            Err(Interrupted::Deadline) => return Some(WayOut::Untold(Fault::Deadline)),
            Err(Interrupted::Stop) => return Some(WayOut::Untold(self.why_stopped())),
        }
        if let Some(run) = &self.run
            && let Some(bytes) = self.downstream.take_released()
        {
            self.shard.to_connection(run.connection, ToShard::Release(run.connection, run.lease, bytes));
        }
        None
    }

    /// The client has closed. After the stream's end that is the usual way: the run's own end is on its way and gets a moment, so
    /// that the provider's connection need not be cut.
    async fn client_left(&mut self) -> WayOut {
        if !self.downstream.saw_end() {
            return WayOut::ClientGone;
        }
        let until = clock::now() + END_GRACE;
        while let Some(event) = dataplane::time::before(until, self.events.events.pop()).await {
            let step = self.attempt.handle(event);
            if matches!(step, Step::Complete | Step::Failed(_)) {
                self.end_run();
                break;
            }
        }
        WayOut::Complete
    }

    /// Gives up the place in the queue, if it has one or has just got it back.
    fn withdraw(&self) {
        let mut waits = self.attempt.is_waiting();
        while let Some(event) = self.events.events.try_pop() {
            waits |= matches!(event, Event::Requeued(_));
        }
        if waits {
            self.shard.input(input::Input::Withdraw { request: self.events.id });
        }
    }
}
