//! Fencing between threads, one step at a time: the real control, machine, shards, mailboxes, links and attempts, and a test that
//! says which of them takes its mail next.

use std::{path::Path, rc::Rc, sync::Arc};

use control::{
    Machine,
    config::Capabilities,
    input::{Admit, ConnectionId, Input, LeaseId},
};
use dataplane::{
    clock,
    http::{body::Body, budget::Budget},
    mailbox::{self, ShardInbox},
    relay::{Link, LinkLimits},
    shard::{DriverWish, Shard, ShardSpec, spawn_guarded},
    time::yield_now,
    tls::{
        config::{Trust, edge_server_config},
        local::LocalIdentity,
        pem,
        session::Session,
    },
};
use proto::{
    identity::{Role, TrustDomain, WorkloadId},
    message::{Operation, TunnelRequest},
};
use rustls::ServerConfig;

use super::attempt::{Attempt, Cause, Step};
use crate::{
    config::{Settings, load_text},
    control_loop::ControlLoop,
    lease::Returns,
    link::NodeLink,
    mail::{Frame, Open, RequestMessage, ToControl, ToShard},
    metrics::Metrics,
    pki::authority::Authority,
    requests::{Event, Registered},
    shard_state::ShardState,
};

/// The Node of these tests, its one provider and its model.
const NODE: &str = "box1";
const CAPACITY: usize = 8;
const CONFIG: &str = r#"openai:
  provider_id: local
models:
  - id: m
    providers: [p]
nodes:
  - id: box1
    adapters:
      - { name: a, type: openai_compat }
    providers:
      - id: p
        type: vllm
        category: local_inference
        adapter: a
        models: [m]
        capacity: 8
"#;

/// Requests are on the first shard, links on the second.
const REQUESTS: usize = 0;
const LINKS: usize = 1;

/// An Edge whose threads have been taken apart: nothing happens that the test does not ask for.
struct World {
    control: ControlLoop,
    states: Vec<Rc<ShardState>>,
    inboxes: Vec<ShardInbox<ToShard>>,
    tls: Arc<ServerConfig>,
}

/// A request on its way.
struct Asked {
    registered: Registered,
    attempt: Attempt,
}

/// Runs a test on a shard of its own.
fn on_a_shard<F: Future<Output = ()> + 'static>(test: impl FnOnce() -> F + Send + 'static) {
    let spec = ShardSpec { name: "fencing".to_owned(), cpu: None, driver: DriverWish::Epoll };
    assert!(Shard::start(spec, test).unwrap().join(), "see the panic above");
}

fn tls() -> Arc<ServerConfig> {
    let (now, domain): (_, TrustDomain) = (clock::unix_seconds(), "iop".parse().unwrap());
    let (authority, ca) = Authority::create(Role::Edge, &domain, now).unwrap();
    let workload = WorkloadId { trust_domain: domain, role: Role::Edge, name: "edge-1".parse().unwrap() };
    let issued = authority.issue(&workload, now).unwrap();
    let (cert, key) = (issued.certificate.as_bytes(), issued.key.expose().as_bytes());
    let identity = LocalIdentity::load(cert, key, Role::Edge, None).unwrap();
    let trust = Trust::new(pem::certs(ca.certificate.as_bytes()).unwrap()).unwrap();
    edge_server_config(&identity, &trust).unwrap()
}

impl World {
    /// With so much room in the mailboxes of control and of the shards.
    fn new(control_room: usize, shard_room: usize) -> Self {
        let settings: Arc<Settings> =
            Arc::new(load_text(CONFIG, Path::new("/etc/iop/edge.yaml"), &|_| None).unwrap());
        let metrics = Arc::new(Metrics::new().unwrap());
        let (to_control, inbox) = mailbox::for_thread(control_room);
        let (senders, seeds): (Vec<_>, Vec<_>) =
            [REQUESTS, LINKS].into_iter().map(|_| mailbox::for_shard(shard_room).unwrap()).unzip();
        let returns = Arc::new(Returns::new(control::LEASES_MAX, to_control.clone()));
        let machine = Machine::new(Arc::clone(&settings.pool));
        let control = ControlLoop::new(machine, inbox, returns, senders.clone(), Arc::clone(&metrics));
        let state = |index| {
            let (settings, metrics) = (Arc::clone(&settings), Arc::clone(&metrics));
            let (bodies, control) = (Budget::new(1 << 20), to_control.clone());
            Rc::new(ShardState::new(index, settings, metrics, bodies, control, senders.clone()))
        };
        Self {
            control,
            states: [REQUESTS, LINKS].map(state).into(),
            inboxes: seeds.into_iter().map(|seed| seed.open().unwrap()).collect(),
            tls: tls(),
        }
    }

    /// A connection of the Node on the shard of links, past its handshake.
    fn link(&self) -> (ConnectionId, Rc<NodeLink>) {
        let state = &self.states[LINKS];
        let id = state.next_connection();
        let session = Session::server(Arc::clone(&self.tls)).unwrap();
        let handle = Link::new(session, LinkLimits::default()).handle();
        let link = Rc::new(NodeLink::new(id, NODE.parse().unwrap(), handle, Rc::clone(state)));
        state.links.borrow_mut().insert(id, Rc::clone(&link));
        (id, link)
    }

    fn registers(&self, connection: ConnectionId) {
        let (certified, claimed) = (NODE.into(), NODE.into());
        let input = Input::Register { connection, certified, claimed, token_ok: true };
        self.states[LINKS].tell_control(ToControl::FromLink { shard: LINKS, input });
    }

    fn says_ready(&self, connection: ConnectionId) {
        let input = Input::Ready { connection, claimed: NODE.into() };
        self.states[LINKS].tell_control(ToControl::FromLink { shard: LINKS, input });
    }

    /// A new connection of the Node that is ready, with the mail about it taken.
    async fn ready_link(&mut self) -> (ConnectionId, Rc<NodeLink>) {
        let (id, link) = self.link();
        self.registers(id);
        self.says_ready(id);
        assert!(self.control.turn());
        self.shard_takes(LINKS).await;
        (id, link)
    }

    /// A request asks for a slot.
    fn asks(&self) -> Asked {
        let registered = self.states[REQUESTS].requests.enter();
        let admit = Admit {
            request: registered.id,
            group: "m".into(),
            needs: Capabilities::default(),
            long: false,
            avoid: Vec::new(),
        };
        self.states[REQUESTS].admit(admit).unwrap();
        Asked { registered, attempt: Attempt::default() }
    }

    /// A shard takes all the mail that is in its mailbox; how much.
    async fn shard_takes(&mut self, shard: usize) -> usize {
        let mut batch = Vec::new();
        if self.inboxes[shard].has_more() {
            self.inboxes[shard].receive(&mut batch, 1_000).await;
        }
        let count = batch.len();
        for mail in batch {
            self.states[shard].take(mail);
        }
        count
    }

    /// The request's task takes the next thing that it was told, and sends its request out when it has been granted.
    fn goes_on(&self, asked: &mut Asked) -> Step {
        let event = asked.registered.events.try_pop().expect("it was told something");
        let step = asked.attempt.handle(event);
        if let Step::Dispatch(grant) = &step {
            let lease = asked.attempt.lease().unwrap();
            let open = Open {
                connection: grant.connection,
                lease: lease.id(),
                claim: lease.claim().clone(),
                request: asked.registered.id,
                request_message: Some(RequestMessage::Tunnel(Box::new(tunnel()))),
                body: Body::default(),
            };
            self.states[REQUESTS].to_connection(grant.connection, ToShard::Open(Box::new(open)));
        }
        step
    }

    /// Slots granted and returned, and whether all tables agree.
    fn slots(&self) -> (u64, u64) {
        self.control.machine().audit().unwrap();
        let counters = self.control.machine().counters();
        (counters.granted, counters.settled)
    }
}

fn tunnel() -> TunnelRequest {
    TunnelRequest {
        stream: 0,
        run_id: "run".to_owned(),
        adapter: "a".to_owned(),
        target: "m".to_owned(),
        method: String::new(),
        path: String::new(),
        headers: Vec::new(),
        body: bytes::Bytes::new(),
        body_bytes: 0,
        stream_response: false,
        timeout_sec: 60,
        metadata: std::collections::BTreeMap::new(),
        operation: Some(Operation::ChatCompletions),
        session_id: String::new(),
        response_stall_timeout_ms: 0,
        window_bytes: 0,
        credential: None,
        provider_auth: None,
    }
}

fn lease_of(step: &Step) -> LeaseId {
    match step {
        Step::Dispatch(grant) => grant.lease,
        other => panic!("expected a dispatch, got {other:?}"),
    }
}

// req: FEN-7, REG-8
#[test]
fn a_grant_that_is_fenced_while_it_is_on_its_way_to_the_link_is_not_sent_and_runs_on_the_next_one() {
    on_a_shard(|| async {
        let mut w = World::new(64, 64);
        let (_, old) = w.ready_link().await;
        let mut asked = w.asks();
        w.control.turn();
        w.shard_takes(REQUESTS).await;
        let first = lease_of(&w.goes_on(&mut asked));

        // The request lies in the mailbox of the link's shard when another connection takes the Node's place.
        let (id, new) = w.link();
        w.registers(id);
        w.control.turn();
        assert_eq!(w.slots(), (1, 1), "its slot came back with the fence");
        w.shard_takes(REQUESTS).await;
        assert!(matches!(w.goes_on(&mut asked), Step::Nothing), "it is not lost: nothing has been sent");
        w.shard_takes(LINKS).await;
        assert_eq!(
            old.runs(),
            0,
            "and nothing is any more, although the link is still up when its shard comes to it"
        );

        w.control.turn();
        w.shard_takes(REQUESTS).await;
        assert!(matches!(w.goes_on(&mut asked), Step::Nothing));
        assert!(asked.attempt.is_waiting(), "it waits again");
        assert_eq!(w.control.machine().counters().requeued, 1);

        w.says_ready(id);
        w.control.turn();
        w.shard_takes(REQUESTS).await;
        assert_ne!(lease_of(&w.goes_on(&mut asked)), first);
        w.shard_takes(LINKS).await;
        assert_eq!((old.runs(), new.runs()), (0, 1));
        assert_eq!((w.slots(), asked.attempt.dispatches()), ((2, 1), 2));
    });
}

// req: FEN-6, FEN-2
#[test]
fn one_that_was_sent_before_the_fence_came_is_lost_and_sent_nowhere_else() {
    on_a_shard(|| async {
        let mut w = World::new(64, 64);
        let (id, old) = w.ready_link().await;
        let mut asked = w.asks();
        w.control.turn();
        w.shard_takes(REQUESTS).await;
        w.goes_on(&mut asked);
        w.shard_takes(LINKS).await;
        assert_eq!(old.runs(), 1);
        w.states[LINKS].input(Input::ConnectionClosed { connection: id });
        w.control.turn();
        w.shard_takes(REQUESTS).await;
        assert!(matches!(w.goes_on(&mut asked), Step::Failed(Cause::NodeLost)));
        w.control.turn();
        assert_eq!((w.slots(), w.control.machine().counters().requeued), ((1, 1), 0));
        assert_eq!(w.shard_takes(REQUESTS).await, 0);
    });
}

// req: FEN-7
#[test]
fn a_grant_for_a_link_that_is_gone_or_going_is_returned_and_readmitted() {
    on_a_shard(|| async {
        for is_gone in [true, false] {
            let mut w = World::new(64, 64);
            let (id, old) = w.ready_link().await;
            let mut asked = w.asks();
            w.control.turn();
            w.shard_takes(REQUESTS).await;
            // The link ends before its shard comes to the request, and before control knows.
            if is_gone {
                w.states[LINKS].links.borrow_mut().remove(&id);
            } else {
                old.close(dataplane::relay::CloseReason::ConnectionLost);
            }
            w.goes_on(&mut asked);
            w.shard_takes(LINKS).await;
            assert_eq!(old.runs(), 0);
            w.states[LINKS].input(Input::ConnectionClosed { connection: id });
            w.control.turn();
            while w.shard_takes(REQUESTS).await > 0 {
                while !asked.registered.events.is_empty() {
                    let step = w.goes_on(&mut asked);
                    // Where control granted the same link again before it knew, that was not sent either.
                    assert!(matches!(step, Step::Nothing | Step::Dispatch(_)), "{step:?}");
                }
                w.shard_takes(LINKS).await;
                w.control.turn();
            }
            assert!(asked.attempt.is_waiting());
            let (granted, settled) = w.slots();
            assert!(granted == settled && w.control.machine().counters().requeued == granted);
        }
    });
}

// req: FEN-5, FEN-2, FEN-3
#[test]
fn no_transition_waits_for_or_is_lost_in_a_mailbox_that_is_full() {
    on_a_shard(|| async {
        let mut w = World::new(64, 2);
        let (id, _old) = w.ready_link().await;
        let mut asked: Vec<_> = (0..CAPACITY).map(|_| w.asks()).collect();
        w.control.turn();
        assert_eq!(w.slots(), (CAPACITY as u64, 0));
        // The shard of the requests takes no mail at all, and has room for two pieces of it.
        w.states[LINKS].input(Input::ConnectionClosed { connection: id });
        w.control.turn();
        assert_eq!(w.slots(), (CAPACITY as u64, CAPACITY as u64), "every slot is back, once");
        assert_eq!(w.control.machine().counters().leases_fenced, CAPACITY as u64);
        let waiting = w.asks();
        let (_, new) = w.ready_link().await;
        assert_eq!(
            w.slots(),
            (CAPACITY as u64 + 1, CAPACITY as u64),
            "and the next connection serves who waits"
        );
        asked.push(waiting);
        assert!(w.states[LINKS].metrics.mail_overflow.get() >= 2 * CAPACITY as u64 - 2);

        // It wakes up: each request has been told all that concerns it, in order.
        let mut mail = 0;
        loop {
            let taken = w.shard_takes(REQUESTS).await;
            if taken == 0 {
                break;
            }
            assert!(taken <= 2);
            mail += taken;
            w.control.turn();
        }
        assert_eq!(mail, 2 * CAPACITY + 1);
        let last = asked.pop().unwrap();
        for mut asked in asked {
            assert_eq!(asked.registered.events.len(), 2);
            let granted = asked.registered.events.try_pop().unwrap();
            assert!(matches!(asked.attempt.handle(granted), Step::Dispatch(_)));
            assert!(asked.attempt.lease().unwrap().claim().send(), "as its link would have");
            assert!(matches!(w.goes_on(&mut asked), Step::Failed(Cause::NodeLost)));
        }
        let mut last = last;
        lease_of(&w.goes_on(&mut last));
        w.shard_takes(LINKS).await;
        assert_eq!(new.runs(), 1);
    });
}

// req: FEN-5
#[test]
fn the_end_of_a_connection_reaches_control_although_its_inbox_is_full() {
    on_a_shard(|| async {
        let mut w = World::new(2, 64);
        let (id, _old) = w.ready_link().await;
        let asked = [w.asks(), w.asks()];
        let state = Rc::clone(&w.states[LINKS]);
        spawn_guarded(Rc::clone(&state).forward_pending());
        state.input(Input::ConnectionClosed { connection: id });
        assert_eq!(state.metrics.mail_overflow.get(), 1, "there was no room");
        w.control.turn();
        assert_eq!(w.slots(), (2, 0), "control has not been told yet");
        // It comes by itself when there is room.
        let end = clock::now() + std::time::Duration::from_secs(10);
        while w.control.machine().counters().generations_fenced == 0 {
            assert!(clock::now() < end, "it never comes");
            yield_now().await;
            w.control.turn();
        }
        assert_eq!(w.slots(), (2, 2));
        drop(asked);
    });
}

#[test]
fn a_question_is_answered_with_all_that_came_with_it() {
    on_a_shard(|| async {
        let mut w = World::new(64, 64);
        let (connection, _link) = w.ready_link().await;
        let mut asked = w.asks();
        w.control.turn();
        w.shard_takes(REQUESTS).await;
        let lease = lease_of(&w.goes_on(&mut asked));
        w.shard_takes(LINKS).await;

        let answers = Rc::new(dataplane::local::Queue::new());
        w.states[REQUESTS].inspections.borrow_mut().insert(1, Rc::clone(&answers));
        w.states[REQUESTS].input(Input::Inspect { token: 1, detail: false });
        // Of neither control is told in a hurry.
        w.states[LINKS].input_unhurried(Input::Terminal { connection, lease, error: None, sequence: 0 });
        let ended = asked.attempt.handle(Event::Frame(lease, 0, Frame::End));
        assert!(matches!(ended, Step::Complete));
        w.control.turn();
        w.shard_takes(REQUESTS).await;
        assert_eq!(answers.try_pop().map(|snapshot| snapshot.leases), Some(0));
        assert_eq!(w.slots(), (1, 1));
    });
}

#[test]
fn whoever_waits_gets_a_slot_that_comes_free_though_control_is_not_told_in_a_hurry() {
    let (started, control) = std::sync::mpsc::channel();
    on_a_shard(move || async move {
        let mut w = World::new(64, 64);
        let (connection, _link) = w.ready_link().await;
        // One more than there are slots.
        let asked: Vec<_> = (0..=CAPACITY).map(|_| w.asks()).collect();
        let World { control, states, mut inboxes, .. } = w;
        started.send(std::thread::spawn(move || control.run())).unwrap();
        let mut grants = Vec::new();
        let mut batch = Vec::new();
        while grants.len() <= CAPACITY {
            let within = clock::now() + std::time::Duration::from_secs(20);
            let received = inboxes[REQUESTS].receive(&mut batch, 100);
            assert!(dataplane::time::before(within, received).await.is_some(), "{} granted", grants.len());
            for mail in batch.drain(..) {
                let ToShard::Granted(grant, mut lease) = mail else { panic!("{mail:?}") };
                assert!(lease.claim().send());
                lease.settle();
                grants.push((grant.lease, lease));
            }
            if grants.len() == CAPACITY {
                let lease = grants[0].0;
                states[LINKS].input_unhurried(Input::Terminal {
                    connection,
                    lease,
                    error: None,
                    sequence: 0,
                });
            }
        }
        drop((grants, asked));
        states[LINKS].tell_control(ToControl::Stop);
    });
    // Not before: a shard wakes others at the end of its turn.
    control.recv().unwrap().join().unwrap();
}
