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
    panic_point,
    shard::guarded,
};
use proto::message::{ErrorKind, ExecutionError, Header, RunEvent, RunEventKind};

use super::{
    attempt::{Attempt, Cause, Step},
    downstream::Downstream,
    keepalive::{COMMENT, KeepAlive, PING, Silence},
    outgoing,
    reading::{self, Goal, Input, Job},
    running::Run,
    wait::{Interrupted, Timer, Waits, Woken},
    way::Way,
    written::{self, Written},
};
use crate::{
    config::GenerationPolicy,
    mail::{Open, RequestMessage, ToShard},
    openai::scan::ChatScan,
    reply::{CLIENT_GONE, CLIENT_STALLED, Fault},
    requests::{Event, Registered},
    response::{self, Answer},
    revocation::permits::Permit,
    shard_state::ShardState,
    surface::Surface,
    usage::Observed,
};

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
    let mut session = Session {
        shard,
        client: client.peer(),
        downstream: Downstream::new(client, plan.surface, plan.started),
        events: registered,
        plan,
        attempt: Attempt::default(),
        run: None,
        grant: None,
        written: None,
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
    /// Of a dispatch whose answer the Edge writes: that answer.
    written: Option<Box<Written>>,
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

    /// Sets the run's deadline, and when to look whether its client has heard something lately.
    fn arm<S>(&self, waits: &mut Waits<S>) {
        waits.missed_pulse = false;
        let pulse = match &self.written {
            Some(written) => written.next_look(),
            None => self.silence.as_ref().map(Silence::next),
        };
        waits.timer = match &self.run {
            Some(run) => Some(Timer::new(run.deadline, pulse)),
            None => pulse.map(Timer::pulse),
        };
    }

    /// Says something to a client that has heard nothing for too long. A response that has not begun begins by it.
    fn keep_alive(&mut self) {
        if self.written.is_none() {
            return self.keep_tunnel_alive();
        }
        let Some(due) = self.written.as_mut().and_then(|written| written.keep_alive(clock::now())) else {
            return;
        };
        match due {
            KeepAlive::Comment => {
                if let Some(headers) = self.written.as_ref().map(|written| written.headers_of(0))
                    && !self.downstream.has_begun()
                {
                    self.begin((200, &headers, false));
                }
                self.downstream.comment(COMMENT);
            }
            KeepAlive::Event => self.pass_on(),
        }
    }

    /// As [`Session::keep_alive`], of a stream that a provider makes or will make, also while it waits for its slot.
    fn keep_tunnel_alive(&mut self) {
        let now = clock::now();
        if self.silence.as_mut().and_then(|silence| silence.due(now)).is_none() {
            return;
        }
        if !self.downstream.has_begun() {
            // Its body may still have to be sent, so nothing is let go of.
            self.say_draining();
            let headers = [Header { name: "content-type".to_owned(), value: EVENT_STREAM.into() }];
            let answer = answer(&self.plan, self.grant.as_deref(), &self.attempt, None);
            self.downstream.begin((200, &headers, false), &answer);
        }
        if self.downstream.may_insert() {
            let is_messages = self.plan.surface == Surface::Messages;
            self.downstream.comment(if is_messages { PING } else { COMMENT });
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
            (true, true) => Fault::Draining,
            (true, false) => Fault::Cancelled,
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
            Step::Dispatch(grant) => self.dispatch(grant).err().map(WayOut::Refuse),
            Step::Input(read) => read.and_then(|input| self.input(*input)).err().map(WayOut::Refuse),
            Step::Refused(reason) => Some(WayOut::Refuse(reason.into())),
            Step::Head { status, headers, until_close } => match &mut self.written {
                Some(written) => written.head(status, &headers).err().map(WayOut::Refuse),
                None => self.head((status, &headers, until_close)).err().map(WayOut::Refuse),
            },
            Step::Run(event) => self.run_event(*event),
            Step::Body(bytes) => self.body(bytes),
            Step::Complete => {
                self.end_run();
                let told = match &mut self.written {
                    Some(written) => written.end(),
                    None => {
                        self.downstream.release_held();
                        if self.downstream.lacks_end() { Err(Fault::UpstreamTruncated) } else { Ok(()) }
                    }
                };
                if told.is_ok() || self.downstream.has_begun() {
                    self.pass_on();
                }
                if let Err(fault) = told {
                    return Some(WayOut::Refuse(fault));
                }
                self.downstream.client.finish();
                Some(WayOut::Complete)
            }
            Step::Failed(cause) => {
                self.end_run();
                Some(WayOut::Refuse(self.fault_of(cause)))
            }
        }
    }

    /// Takes the head of a raw answer.
    ///
    /// # Errors
    /// The response had begun by a sign of life, and this is not what was promised by it.
    fn head(&mut self, head: (u16, &[Header], bool)) -> Result<(), Fault> {
        if self.downstream.has_begun() {
            let (status, headers, _) = head;
            if let Some(fault) = broken_promise(status, headers) {
                return Err(fault);
            }
            self.let_go();
        } else {
            self.begin(head);
        }
        if !self.downstream.is_event_stream() {
            self.silence = None;
        }
        let hides = outgoing::hides_usage(&self.plan, &self.shard.settings);
        self.downstream.count(hides);
        Ok(())
    }

    /// Begins the response with the provider's status and headers, or those of an answer that the Edge writes.
    fn begin(&mut self, head: (u16, &[Header], bool)) {
        self.say_draining();
        self.let_go();
        let answer = answer(&self.plan, self.grant.as_deref(), &self.attempt, self.written.as_deref());
        self.downstream.begin(head, &answer);
    }

    fn say_draining(&mut self) {
        if self.shard.draining.is_closed() {
            self.downstream.client.set_draining();
        }
    }

    /// What has begun to answer is not sent again: a long stream must not hold a long prompt.
    fn let_go(&mut self) {
        self.plan.body = Body::default();
        self.plan.headers = Vec::new();
        self.plan.provider_auth = None;
    }

    /// Passes on what an event of a native run says. The response begins with the first of it: until then a failure has a
    /// status of its own.
    fn run_event(&mut self, event: RunEvent) -> Option<WayOut> {
        // A Node that answers a tunnel as if it were a run.
        let Some(written) = &mut self.written else { return Some(WayOut::Refuse(Fault::UpstreamProtocol)) };
        self.downstream.drained(written::cost(&event));
        let is_last = matches!(event.kind, RunEventKind::Complete { .. });
        let told = written.event(event);
        if is_last {
            self.end_run();
        }
        if let Err(fault) = told {
            return Some(WayOut::Refuse(fault));
        }
        self.pass_on();
        is_last.then(|| {
            self.downstream.client.finish();
            WayOut::Complete
        })
    }

    /// Passes on what more of a tunnelled answer says.
    fn body(&mut self, bytes: Vec<u8>) -> Option<WayOut> {
        panic_point!("edge.relay");
        let Some(written) = &mut self.written else {
            if let Some(silence) = &mut self.silence {
                silence.broken(clock::now());
            }
            if self.downstream.push(bytes) {
                self.note_first_byte();
            }
            return None;
        };
        self.downstream.drained(bytes.len());
        let told = written.body(&bytes);
        // What was said before it went wrong has been said, whether or not both came at once.
        self.pass_on();
        told.err().map(WayOut::Refuse)
    }

    /// Hands what an answer that the Edge writes has become to the client.
    fn pass_on(&mut self) {
        let Some(written) = self.written.as_mut().filter(|written| !written.out.is_empty()) else { return };
        let mut out = std::mem::take(&mut written.out);
        if !self.downstream.has_begun() {
            let headers = written.headers_of(out.len());
            self.begin((200, &headers, false));
        } else if !self.plan.body.is_empty() {
            // It had begun by a sign of life.
            self.let_go();
        }
        if self.downstream.write(&out) {
            self.note_first_byte();
        }
        out.clear();
        if let Some(written) = &mut self.written {
            // Its room serves again.
            written.out = out;
        }
    }

    fn fault_of(&self, cause: Cause) -> Fault {
        match cause {
            // The input is what the client asked for, so a refusal of it is the client's to answer. The request of a tunnel
            // is ours.
            Cause::Execution(ExecutionError { kind: ErrorKind::InvalidRequest, message, .. })
                if self.written.as_ref().is_some_and(|written| written.is_run()) =>
            {
                Fault::ProviderRefused { words: message }
            }
            Cause::Execution(error) => error.kind.into(),
            Cause::NodeLost => Fault::NodeLost,
            Cause::Violation => Fault::UpstreamProtocol,
        }
    }

    /// The Node needs no cancel any more.
    fn end_run(&mut self) {
        if let Some(mut run) = self.run.take() {
            run.over = true;
        }
    }

    /// Sends the request out: as a tunnel or as a run, by the provider that was granted. What has to be made of a large body is made
    /// first, elsewhere.
    ///
    /// # Errors
    /// It cannot run on what was granted, and on nothing else of its kind.
    fn dispatch(&mut self, grant: Box<Grant>) -> Result<(), Fault> {
        if grant.attempt == 1 {
            self.shard.metrics.queue_wait.observe(grant.queued_for.as_secs_f64());
        }
        panic_point!("edge.dispatch");
        self.written = None;
        let settings = &self.shard.settings;
        let goal = match Way::of(settings, &grant, self.plan.surface) {
            Some(Way::Raw) => {
                let tunnel = outgoing::raw_tunnel(&self.plan, &grant, settings);
                let body = outgoing::raw_body(&self.plan, &grant, settings);
                self.send(grant, RequestMessage::Tunnel(Box::new(tunnel)), body);
                return Ok(());
            }
            Some(Way::Normalized) => Goal::Run,
            Some(Way::Translated) => Goal::chat(settings, &grant, self.plan.scan.stream),
            None => {
                self.grant = Some(grant);
                return Err(Fault::Unservable);
            }
        };
        let job = Job { surface: self.plan.surface, policy: self.plan.generation, goal };
        let read = reading::begin(self.shard, (self.events.id, grant.lease), &self.plan.body, job);
        // The client is told whose language it was, also where it goes no further.
        self.grant = Some(grant);
        read.map_or(Ok(()), |read| self.input(*read?))
    }

    /// Sends out what was made of the body.
    ///
    /// # Errors
    /// A defect: nothing is granted.
    fn input(&mut self, input: Input) -> Result<(), Fault> {
        let grant = self.grant.take().ok_or(Fault::Internal)?;
        let Input { json, is_chat, tools, single_call, manner, metadata } = input;
        let openai = &self.shard.settings.openai;
        let written = Written::new(&self.plan, openai, (is_chat, single_call), tools, manner);
        self.written = Some(Box::new(written));
        let request = if is_chat {
            RequestMessage::Tunnel(Box::new(outgoing::chat_tunnel(&self.plan, &grant)))
        } else {
            RequestMessage::Run(Box::new(outgoing::run(&self.plan, &grant, metadata)))
        };
        self.send(grant, request, Body::from(json));
        Ok(())
    }

    fn send(&mut self, grant: Box<Grant>, request: RequestMessage, body: Body) {
        let Some(lease) = self.attempt.lease() else { return };
        let margin = self.shard.settings.openai.response_wait_margin;
        self.run = Some(Run {
            shard: Rc::clone(self.shard),
            connection: grant.connection,
            lease: grant.lease,
            deadline: clock::now() + grant.request_timeout + margin,
            over: false,
        });
        let open = Open {
            connection: grant.connection,
            lease: grant.lease,
            claim: lease.claim().clone(),
            request: self.events.id,
            request_message: Some(request),
            body,
        };
        self.shard.to_connection(grant.connection, ToShard::Open(Box::new(open)));
        self.grant = Some(grant);
    }

    fn note_first_byte(&self) {
        if let Some(took) = self.downstream.first_byte() {
            self.shard.metrics.first_byte.observe(took.as_secs_f64());
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

    /// What is known of the tokens of an answer that has begun.
    fn observed(&self, is_whole: bool) -> Option<Observed> {
        if !self.downstream.has_begun() {
            return None;
        }
        match &self.written {
            Some(written) => Some(written.observed(is_whole)),
            None => self.downstream.observed(is_whole),
        }
    }

    async fn finish(&mut self, way_out: WayOut) -> Ended {
        self.withdraw();
        // Stops the run and returns the lease before anything is written to a client that may be slow.
        self.run = None;
        self.attempt.abandon();
        self.shard.metrics.response_bytes.inc_by(self.downstream.bytes());
        let usage = self.observed(matches!(way_out, WayOut::Complete));
        if let Some(usage) = &usage {
            self.shard.metrics.used(usage);
        }
        let unknown = self.written.as_ref().map_or(0, |written| written.unknown_calls());
        self.shard.metrics.text_tools_unknown.inc_by(unknown);
        let (outcome, reusable) = match way_out {
            WayOut::Complete => ("ok", true),
            WayOut::ClientGone => (CLIENT_GONE, false),
            WayOut::ClientStalled => (CLIENT_STALLED, false),
            WayOut::Untold(fault) => (fault.outcome(), false),
            WayOut::Refuse(fault) => {
                if self.shard.draining.is_closed() {
                    self.downstream.client.set_draining();
                }
                let begun = self.written.as_mut().filter(|_| self.downstream.has_begun());
                let end = begun.and_then(|written| written.failed(&fault));
                let written = self.written.as_deref();
                let answer = answer(&self.plan, self.grant.as_deref(), &self.attempt, written);
                let told = self.downstream.refuse(&fault, &answer, &self.plan.scan.model, end);
                (fault.outcome(), told.await)
            }
        };
        Ended {
            outcome,
            reusable,
            status: self.downstream.status(),
            provider: self.grant.as_ref().map(|g| Arc::clone(&g.provider)),
            attempts: self.attempt.dispatches(),
            bytes: self.downstream.bytes(),
            queued: queued(self.grant.as_deref()),
            first_byte: self.downstream.first_byte(),
            usage,
        }
    }
}

/// What to tell a client that was promised a stream, of a provider's answer that is none.
fn broken_promise(status: u16, headers: &[Header]) -> Option<Fault> {
    if !(200..300).contains(&status) {
        return Some(Fault::ProviderStatus { status });
    }
    let kind = headers.iter().find(|header| header.name == "content-type");
    let is_stream = kind.is_some_and(|kind| response::names(&kind.value, EVENT_STREAM));
    (!is_stream).then_some(Fault::UpstreamProtocol)
}

/// How the answer came about, so far.
fn answer<'a>(
    plan: &'a Plan,
    grant: Option<&'a Grant>,
    attempt: &Attempt,
    written: Option<&Written>,
) -> Answer<'a> {
    Answer {
        request_id: &plan.request_id,
        provider: grant.map(|grant| &*grant.provider),
        attempts: attempt.dispatches(),
        queued: queued(grant),
        text_tools: written.is_some_and(Written::has_text_tools),
        surface: plan.surface,
        took: Some(clock::now().saturating_duration_since(plan.started)),
        allow_origin: plan.allow_origin.as_deref(),
    }
}

/// Time in the queue up to the last grant.
fn queued(grant: Option<&Grant>) -> Duration {
    grant.map_or(Duration::ZERO, |grant| grant.queued_for)
}
