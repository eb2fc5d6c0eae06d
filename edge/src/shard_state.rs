//! What every task of one Edge shard shares, and how mail leaves the shard.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    rc::Rc,
    sync::Arc,
};

use control::input::{Admit, ConnectionId, Input};
use dataplane::{
    http::budget::Budget,
    local::{Latch, Signal},
    mailbox::Sender,
    panic_point,
    relay::{ByNumber, CloseReason},
    shard::guarded_call,
    time,
};

use rustls::ServerConfig;

use crate::{
    config::Settings,
    link::{self, NodeLink},
    mail::{NodeQuestion, ToControl, ToShard, Told},
    metrics::Metrics,
    ops::inputs,
    requests::{Event, Requests},
    revocation::permits::Permits,
};

/// Bits of a connection number that count connections; the shard stands above them.
const COUNTER_BITS: u32 = 48;

/// One shard's state.
#[derive(Debug)]
pub struct ShardState {
    /// Which shard.
    pub index: usize,
    /// The configuration in force.
    pub settings: Arc<Settings>,
    /// Metrics of the process.
    pub metrics: Arc<Metrics>,
    /// The memory that the request bodies of the process may take.
    pub bodies: Budget,
    /// Live requests.
    pub requests: Rc<Requests>,
    /// Live Node connections.
    pub links: RefCell<ByNumber<ConnectionId, Rc<NodeLink>>>,
    /// Closed when the process drains: no new request is taken.
    pub draining: Latch,
    /// Closed when the grace is over.
    pub stopping: Latch,
    /// What lets requests go on.
    pub permits: Permits,
    /// What new connections of HTTPS are presented; `None` without HTTPS.
    pub https: RefCell<Option<Arc<ServerConfig>>>,
    /// Waiters for snapshots, by token.
    pub inspections: RefCell<HashMap<u64, Rc<dataplane::local::Queue<Arc<control::effect::Snapshot>>>>>,
    /// Who waits for a Node's answer, by token.
    pub(crate) questions: RefCell<HashMap<u64, Rc<dataplane::local::Queue<Told>>>>,
    /// Who waits for the text of a dump.
    pub(crate) dump: RefCell<inputs::Awaited>,
    control: Sender<ToControl>,
    shards: Vec<Sender<ToShard>>,
    pending: RefCell<Pending>,
    pending_signal: Signal,
    next_connection: Cell<u64>,
}

/// Control's inbox is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("control's inbox is full")]
pub struct Overloaded;

/// Mail that found its mailbox full. Bounded by what exists: credit bounds frames, and the rest is a few per request.
#[derive(Debug, Default)]
struct Pending {
    control: VecDeque<ToControl>,
    shards: Vec<VecDeque<ToShard>>,
}

impl ShardState {
    /// The state of shard `index`.
    pub fn new(
        index: usize,
        settings: Arc<Settings>,
        metrics: Arc<Metrics>,
        bodies: Budget,
        control: Sender<ToControl>,
        shards: Vec<Sender<ToShard>>,
    ) -> Self {
        let permits = Permits::new(&settings.principals);
        let pending =
            Pending { control: VecDeque::new(), shards: shards.iter().map(|_| VecDeque::new()).collect() };
        Self {
            index,
            settings,
            metrics,
            bodies,
            requests: Rc::new(Requests::new(index)),
            links: RefCell::default(),
            draining: Latch::new(),
            stopping: Latch::new(),
            permits,
            https: RefCell::default(),
            inspections: RefCell::default(),
            questions: RefCell::default(),
            dump: RefCell::default(),
            control,
            shards,
            pending: RefCell::new(pending),
            pending_signal: Signal::new(),
            next_connection: Cell::new(1),
        }
    }

    /// A number for a new Node connection of this shard.
    pub fn next_connection(&self) -> ConnectionId {
        let count = self.next_connection.get();
        self.next_connection.set(count + 1);
        ConnectionId((self.index as u64) << COUNTER_BITS | count)
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Asks control for a slot.
    ///
    /// # Errors
    /// The request must be refused.
    pub fn admit(&self, admit: Admit) -> Result<(), Overloaded> {
        if !self.pending.borrow().control.is_empty() {
            return Err(Overloaded);
        }
        self.control.send(ToControl::Input(Input::Admit(admit))).map_err(|_| Overloaded)
    }

    /// Tells control; what finds no room waits here.
    pub fn tell_control(&self, mail: ToControl) {
        self.tell_control_by(mail, Sender::send);
    }

    /// Tells control an input of the machine that can wait until control wakes for another reason, unless a request waits for
    /// a slot.
    pub fn input_unhurried(&self, input: Input) {
        self.tell_control_by(ToControl::Input(input), Sender::send_unhurried);
    }

    fn tell_control_by(
        &self,
        mail: ToControl,
        send: impl FnOnce(&Sender<ToControl>, ToControl) -> Result<(), ToControl>,
    ) {
        let mut pending = self.pending.borrow_mut();
        if pending.control.is_empty() {
            match send(&self.control, mail) {
                Ok(()) => return,
                Err(mail) => pending.control.push_back(mail),
            }
        } else {
            pending.control.push_back(mail);
        }
        self.metrics.mail_overflow.inc();
        self.pending_signal.set();
    }

    /// Tells control an input of the machine.
    pub fn input(&self, input: Input) {
        self.tell_control(ToControl::Input(input));
    }

    /// Adds mail for a shard without waking it; [`ShardState::ring`] after the batch. Mail for this shard itself is
    /// carried out at once.
    pub fn post(self: &Rc<Self>, shard: usize, mail: ToShard) {
        if shard == self.index {
            self.take(mail);
            return;
        }
        let Some(sender) = self.shards.get(shard) else { return };
        let mut pending = self.pending.borrow_mut();
        let Some(waiting) = pending.shards.get_mut(shard) else { return };
        if waiting.is_empty() {
            match sender.push(mail) {
                Ok(()) => return,
                Err(mail) => waiting.push_back(mail),
            }
        } else {
            waiting.push_back(mail);
        }
        self.metrics.mail_overflow.inc();
        self.pending_signal.set();
    }

    /// The mailbox of this shard, for a thread that works for it; a shard of the process always has one.
    pub fn sender(&self) -> Option<Sender<ToShard>> {
        self.shards.get(self.index).cloned()
    }

    /// Wakes a shard that mail was posted to.
    pub fn ring(&self, shard: usize) {
        if shard != self.index
            && let Some(sender) = self.shards.get(shard)
        {
            sender.ring();
        }
    }

    /// Mail for the shard of a Node connection.
    pub fn to_connection(self: &Rc<Self>, connection: ConnectionId, mail: ToShard) {
        let shard = usize::try_from(connection.0 >> COUNTER_BITS).unwrap_or(usize::MAX);
        self.post(shard, mail);
        self.ring(shard);
    }

    /// Carries out one piece of mail.
    pub fn take(self: &Rc<Self>, mail: ToShard) {
        match mail {
            ToShard::Granted(grant, lease) => self.to_request(grant.request, Event::Granted(grant, lease)),
            ToShard::Refused(request, reason) => self.to_request(request, Event::Refused(reason)),
            ToShard::Requeued(request, lease) => {
                if !self.requests.deliver(request, Event::Requeued(lease)) {
                    // Its client left meanwhile: nobody waits at the place it got back.
                    self.input(Input::Withdraw { request });
                }
            }
            ToShard::Fenced(request, lease) => self.to_request(request, Event::Fenced(lease)),
            ToShard::Failed(request, lease, failed) => self.to_request(request, Event::Failed(lease, failed)),
            ToShard::Frame(request, lease, sequence, frame) => {
                self.to_request(request, Event::Frame(lease, sequence, frame));
            }
            ToShard::Input(request, lease, read) => self.to_request(request, Event::Input(lease, read)),
            ToShard::Registration(connection, outcome) => {
                self.with_link(connection, |l| l.registration(outcome))
            }
            ToShard::Readiness(connection, outcome) => self.with_link(connection, |l| l.readiness(outcome)),
            ToShard::CloseConnection(connection, reason) => {
                self.with_link(connection, |l| l.close(link::close_reason(reason)))
            }
            ToShard::Probe(probe) => self.with_link(probe.connection, |l| l.probe(*probe)),
            ToShard::Open(mut open) => self.open(&mut open),
            ToShard::Cancel(connection, lease) => self.with_link(connection, |l| l.cancel(lease)),
            ToShard::Release(connection, lease, bytes) => {
                self.with_link(connection, |l| l.release(lease, bytes))
            }
            ToShard::Snapshot(token, snapshot) => {
                if let Some(waiter) = self.inspections.borrow_mut().remove(&token) {
                    waiter.push(snapshot);
                }
            }
            ToShard::Dump(token, dump) => inputs::write(self, token, dump),
            ToShard::DumpText(token, text) => inputs::deliver(self, token, text),
            ToShard::NodeQuestion(question) => self.ask_node(*question),
            ToShard::NodeTold(token, told) => {
                let waiter = self.questions.borrow().get(&token).map(Rc::clone);
                if let Some(waiter) = waiter {
                    waiter.push(told);
                }
            }
            ToShard::Drain => self.draining.close(),
            ToShard::Https(config) => {
                self.https.replace(Some(config));
            }
            ToShard::Revoked(tokens) => tokens.iter().for_each(|token_ref| self.permits.revoke(token_ref)),
            ToShard::Stop => {
                self.stopping.close();
                self.permits.end_all();
            }
        }
    }

    fn to_request(&self, request: control::input::RequestId, event: Event) {
        let _gone = self.requests.deliver(request, event);
    }

    fn open(&self, open: &mut crate::mail::Open) {
        let link = self.links.borrow().get(&open.connection).map(Rc::clone);
        match link {
            Some(link) if self.guarded(&link, |link| link.start(open)) => {}
            // Whether it was sent is known by its claim: what was sent is lost with its link.
            Some(_) if !open.claim.revoke() => {}
            _ => self.input(Input::NotSent { lease: open.lease }),
        }
    }

    /// Passes a question on to the ready connection of its Node, if that is on this shard.
    fn ask_node(self: &Rc<Self>, question: NodeQuestion) {
        let (from, token) = (question.from, question.token);
        let link =
            self.links.borrow().values().find(|link| link.takes_questions(&question.node)).map(Rc::clone);
        let is_here = link.is_some_and(|link| self.guarded(&link, |link| link.ask(question)));
        if !is_here {
            self.tell(from, token, Told::NotHere);
        }
    }

    /// Answers a question of a shard.
    pub(crate) fn tell(self: &Rc<Self>, shard: usize, token: u64, told: Told) {
        self.post(shard, ToShard::NodeTold(token, told));
        self.ring(shard);
    }

    fn with_link(&self, connection: ConnectionId, act: impl FnOnce(&NodeLink)) {
        let link = self.links.borrow().get(&connection).map(Rc::clone);
        if let Some(link) = link {
            self.guarded(&link, act);
        }
    }

    /// Acts on a link from the task of someone else, who is not to end by a panic that concerns the link: the link ends
    /// instead. Whether it went well.
    fn guarded(&self, link: &NodeLink, act: impl FnOnce(&NodeLink)) -> bool {
        let acted = guarded_call(|| {
            panic_point!("edge.link.mail");
            act(link);
        });
        if acted.is_none() {
            link.close(CloseReason::Internal);
        }
        acted.is_some()
    }

    /// Sends on what found its mailbox full, as room comes. Never ends.
    pub async fn forward_pending(self: Rc<Self>) {
        loop {
            if self.flush_pending() {
                self.pending_signal.wait().await;
            } else {
                // The receiver does not tell when it has room; a shard or control that is behind is looked at again soon.
                time::sleep_until(dataplane::clock::now() + std::time::Duration::from_millis(1)).await;
            }
        }
    }

    /// Whether nothing waits any more.
    fn flush_pending(&self) -> bool {
        let mut pending = self.pending.borrow_mut();
        while let Some(mail) = pending.control.pop_front() {
            if let Err(mail) = self.control.send(mail) {
                pending.control.push_front(mail);
                break;
            }
        }
        for (waiting, sender) in pending.shards.iter_mut().zip(&self.shards) {
            let had = !waiting.is_empty();
            while let Some(mail) = waiting.pop_front() {
                if let Err(mail) = sender.push(mail) {
                    waiting.push_front(mail);
                    break;
                }
            }
            if had {
                sender.ring();
            }
        }
        pending.control.is_empty() && pending.shards.iter().all(VecDeque::is_empty)
    }
}
