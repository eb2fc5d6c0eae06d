//! An Edge that does what a test says, message by message, over the real link.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    net::SocketAddr,
    pin::pin,
    rc::Rc,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use dataplane::{
    clock,
    local::Latch,
    mailbox::{self, Sender},
    net::{Listener, Patience, Stream},
    relay::{CloseReason, Handler, HeartbeatTimes, Incoming, Link, LinkHandle, LinkLimits, accept},
    shard::{Shard, ShardSpec, spawn_guarded},
};
use futures::future::{Either, select};
use proto::message::{
    Cancel, ErrorKind, ExecutionError, Header, Message, NodeConfigPayload, NodeReadyResponse,
    RegisterResponse, RunEvent, RunEventKind, RunRequest, StreamNo, TunnelFrame, TunnelFrameKind,
    TunnelRequest, Usage,
};
use rustls::ServerConfig;

use super::{PATIENCE, QUIET};

/// What the Edge saw.
#[derive(Debug)]
pub enum Seen {
    /// A handshake that was refused.
    Refused(String),
    /// A Node's link stands; its workload name.
    Connected(String),
    /// A message of it.
    Incoming(Incoming),
    /// The link ended.
    Closed(CloseReason),
}

enum Order {
    Send(Message),
    Open { request: TunnelRequest, body: Bytes },
    OpenRun { request: RunRequest, input: Bytes },
    Release { stream: StreamNo, bytes: usize },
    Close(StreamNo),
    Shutdown(CloseReason),
    Stop,
}

/// The Edge; one link at a time.
pub struct Edge {
    pub address: SocketAddr,
    orders: Sender<Order>,
    seen: mpsc::Receiver<Seen>,
    shard: Option<Shard>,
}

struct Acceptor {
    tls: Arc<ServerConfig>,
    heartbeat: HeartbeatTimes,
    told: mpsc::Sender<Seen>,
    current: Rc<RefCell<Option<LinkHandle>>>,
}

impl Acceptor {
    async fn take(&self, stream: Stream) {
        let deadline = clock::now() + Duration::from_secs(5);
        let told = self.told.clone();
        match accept(stream, Arc::clone(&self.tls), deadline).await {
            Err(error) => drop(told.send(Seen::Refused(error.to_string()))),
            Ok(established) => {
                let mut limits = LinkLimits::default();
                limits.mux.heartbeat = self.heartbeat;
                let name = established.session.peer().unwrap().name().to_string();
                let link = Link::new(established.session, limits);
                *self.current.borrow_mut() = Some(link.handle());
                let _test_over = told.send(Seen::Connected(name));
                spawn_guarded(async move {
                    let mut relay = Relay(told.clone());
                    let reason = link.run(established.stream, established.early, &mut relay).await;
                    let _test_over = told.send(Seen::Closed(reason));
                });
            }
        }
    }
}

struct Relay(mpsc::Sender<Seen>);

impl Handler for Relay {
    fn on_incoming(&mut self, incoming: Incoming) {
        let _test_over = self.0.send(Seen::Incoming(incoming));
    }

    fn on_batch_end(&mut self) {}
}

impl Edge {
    pub fn start(tls: Arc<ServerConfig>) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), tls, HeartbeatTimes::default())
    }

    pub fn start_at(address: SocketAddr, tls: Arc<ServerConfig>, heartbeat: HeartbeatTimes) -> Self {
        let listener = Listener::bind(address, Patience::with_readers()).unwrap();
        let address = listener.local_addr().unwrap();
        let (orders, inbox) = mailbox::for_shard(4096).unwrap();
        let (told, seen) = mpsc::channel();
        let spec = ShardSpec { name: "fake-edge".to_owned(), cpu: None, driver: super::driver() };
        let shard = Shard::start(spec, move || async move {
            let current: Rc<RefCell<Option<LinkHandle>>> = Rc::default();
            let (stop, closed) = (Rc::new(Latch::new()), Rc::new(Latch::new()));
            let acceptor = Acceptor { tls, heartbeat, told, current: Rc::clone(&current) };
            let (until, done) = (Rc::clone(&stop), Rc::clone(&closed));
            let mut listener = Listener::open(listener).unwrap();
            spawn_guarded(async move {
                while let Either::Left((Ok(stream), _)) =
                    select(pin!(listener.accept()), pin!(until.closed())).await
                {
                    acceptor.take(stream).await;
                }
                // A task that is left behind would keep its socket, and with it a share of the port.
                drop(listener);
                done.close();
            });
            obey(inbox.open().unwrap(), &current, &stop).await;
            closed.closed().await;
        })
        .unwrap();
        Self { address, orders, seen, shard: Some(shard) }
    }

    fn order(&self, order: Order) {
        assert!(self.orders.send(order).is_ok());
    }

    pub fn send(&self, message: Message) {
        self.order(Order::Send(message));
    }

    /// Sends a tunnel request, and the rest of its body in chunks under credit.
    pub fn open(&self, request: TunnelRequest, rest: Bytes) {
        self.order(Order::Open { request, body: rest });
    }

    pub fn cancel(&self, stream: StreamNo) {
        self.send(Message::Cancel(Cancel { stream, run_id: String::new() }));
    }

    pub fn release(&self, stream: StreamNo, bytes: usize) {
        self.order(Order::Release { stream, bytes });
    }

    pub fn shutdown(&self, reason: CloseReason) {
        self.order(Order::Shutdown(reason));
    }

    /// The next thing seen.
    pub fn next(&self) -> Seen {
        self.seen.recv_timeout(PATIENCE).expect("the edge saw nothing")
    }

    /// Nothing is seen for a while, credit excepted.
    pub fn is_quiet(&self) {
        let until = clock::now() + QUIET;
        while let Ok(seen) = self.seen.recv_timeout(until.saturating_duration_since(clock::now())) {
            assert!(
                matches!(seen, Seen::Incoming(Incoming::Credit { .. } | Incoming::Ignored)),
                "saw {seen:?}"
            );
        }
    }

    /// Nothing but the start and body of an answer is seen for a while.
    pub fn is_quiet_but_for_bodies(&self) {
        let until = clock::now() + QUIET;
        while let Ok(seen) = self.seen.recv_timeout(until.saturating_duration_since(clock::now())) {
            let Seen::Incoming(Incoming::Data { message: Message::TunnelFrame(frame), .. }) = &seen else {
                panic!("saw {seen:?}");
            };
            let expected =
                matches!(frame.kind, TunnelFrameKind::ResponseStart { .. } | TunnelFrameKind::Body(_));
            assert!(expected, "saw {seen:?}");
        }
    }

    /// Waits until the Node says that it drains; the start and body of an answer may come before that.
    pub fn draining(&self) {
        loop {
            match self.next() {
                Seen::Incoming(Incoming::Control(Message::NodeDraining)) => return,
                Seen::Incoming(Incoming::Data { message: Message::TunnelFrame(frame), .. })
                    if matches!(
                        frame.kind,
                        TunnelFrameKind::ResponseStart { .. } | TunnelFrameKind::Body(_)
                    ) => {}
                other => panic!("expected that the node drains, saw {other:?}"),
            }
        }
    }

    /// Sends a normalized run, and the rest of its input in chunks under credit.
    pub fn open_run(&self, request: RunRequest, rest: Bytes) {
        self.order(Order::OpenRun { request, input: rest });
    }

    /// The next control message.
    pub fn message(&self) -> Message {
        loop {
            match self.next() {
                Seen::Incoming(Incoming::Control(message)) => return message,
                Seen::Incoming(Incoming::Credit { .. }) => {}
                other => panic!("expected a control message, saw {other:?}"),
            }
        }
    }

    /// Waits for a link and registers its Node, up to the ready ack.
    pub fn make_ready(&self, config: NodeConfigPayload) {
        let name = self.connected();
        let Message::RegisterRequest(request) = self.message() else { panic!("expected a registration") };
        assert_eq!(request.node_id.as_str(), name);
        let node_id = request.node_id;
        self.send(Message::RegisterResponse(RegisterResponse::Accepted { node_id: node_id.clone(), config }));
        let Message::NodeReadyRequest(ready) = self.message() else { panic!("expected readiness") };
        assert_eq!(ready.node_id, node_id);
        self.send(Message::NodeReadyResponse(NodeReadyResponse { ready: true, reason: String::new() }));
    }

    /// Waits for a link; its Node's name.
    pub fn connected(&self) -> String {
        match self.next() {
            Seen::Connected(name) => name,
            other => panic!("expected a link, saw {other:?}"),
        }
    }

    /// Waits for the end of the link, whatever comes before it.
    pub fn closed(&self) -> CloseReason {
        loop {
            if let Seen::Closed(reason) = self.next() {
                return reason;
            }
        }
    }

    /// The next tunnel frame, on any stream.
    pub fn frame(&self) -> TunnelFrame {
        let deadline = clock::now() + PATIENCE;
        self.frame_by(deadline).expect("no frame came")
    }

    /// The next tunnel frame, if one comes in time.
    pub fn frame_until(&self, deadline: Instant) -> Option<TunnelFrame> {
        self.frame_by(deadline)
    }

    fn frame_by(&self, deadline: Instant) -> Option<TunnelFrame> {
        loop {
            match self.seen.recv_timeout(deadline.saturating_duration_since(clock::now())).ok()? {
                Seen::Incoming(Incoming::Data { message: Message::TunnelFrame(frame), .. }) => {
                    return Some(frame);
                }
                Seen::Incoming(Incoming::Credit { .. } | Incoming::Ignored) => {}
                other => panic!("expected a tunnel frame, saw {other:?}"),
            }
        }
    }

    /// Everything of one stream up to its terminal, releasing credit as it comes.
    pub fn response(&self, stream: StreamNo) -> Response {
        let mut response = Response { status: 0, headers: Vec::new(), body: BytesMut::new(), result: Ok(()) };
        loop {
            let frame = self.frame();
            assert_eq!(frame.stream, stream, "a frame of another stream");
            match frame.kind {
                TunnelFrameKind::ResponseStart { status, headers, .. } => {
                    (response.status, response.headers) = (status, headers);
                }
                TunnelFrameKind::Body(body) => {
                    self.release(stream, body.len());
                    response.body.extend_from_slice(&body);
                }
                TunnelFrameKind::Usage(_) => {}
                TunnelFrameKind::End => break,
                TunnelFrameKind::Error(error) => {
                    response.result = Err(error);
                    break;
                }
            }
        }
        self.order(Order::Close(stream));
        response
    }

    /// The next event of a normalized run, on any stream; its credit is not released.
    pub fn event(&self) -> RunEvent {
        loop {
            match self.next() {
                Seen::Incoming(Incoming::Data { message: Message::RunEvent(event), .. }) => return event,
                Seen::Incoming(Incoming::Credit { .. } | Incoming::Ignored) => {}
                other => panic!("expected a run event, saw {other:?}"),
            }
        }
    }

    /// The text of a run's next delta, unless nothing is seen for a while.
    pub fn quiet_delta(&self) -> Option<String> {
        let until = clock::now() + QUIET;
        loop {
            match self.seen.recv_timeout(until.saturating_duration_since(clock::now())).ok()? {
                Seen::Incoming(Incoming::Credit { .. } | Incoming::Ignored) => {}
                Seen::Incoming(Incoming::Data { message: Message::RunEvent(event), .. }) => {
                    match event.kind {
                        RunEventKind::Delta { text, .. } => return Some(text),
                        other => panic!("expected a delta, saw {other:?}"),
                    }
                }
                other => panic!("expected a delta, saw {other:?}"),
            }
        }
    }

    /// Everything of one run up to its terminal, releasing credit as it comes; numbers have no gap.
    pub fn outcome(&self, stream: StreamNo) -> Outcome {
        let mut outcome = Outcome::default();
        for sequence in 0.. {
            let event = self.event();
            assert_eq!((event.stream, event.sequence), (stream, sequence), "{event:?}");
            match &event.kind {
                RunEventKind::Start => outcome.start = Some(event.metadata),
                RunEventKind::Delta { text, reasoning } => {
                    self.release(stream, text.len() + reasoning.len());
                    outcome.text.push_str(text);
                    outcome.reasoning.push_str(reasoning);
                }
                RunEventKind::Usage(_) => {}
                RunEventKind::Complete { .. } | RunEventKind::Error(_) | RunEventKind::Cancelled => {
                    outcome.end = Some(event);
                    break;
                }
            }
        }
        self.order(Order::Close(stream));
        outcome
    }

    pub fn stop(mut self) {
        self.order(Order::Stop);
        self.shard.take().unwrap().join();
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        if let Some(shard) = self.shard.take() {
            self.order(Order::Stop);
            shard.join();
        }
    }
}

async fn obey(mut inbox: mailbox::ShardInbox<Order>, current: &RefCell<Option<LinkHandle>>, stop: &Latch) {
    let mut batch = Vec::new();
    while !stop.is_closed() {
        inbox.receive(&mut batch, 64).await;
        for order in batch.drain(..) {
            let link = current.borrow().clone();
            match (order, link) {
                (Order::Stop, link) => {
                    stop.close();
                    if let Some(link) = link {
                        link.shutdown(CloseReason::Draining);
                        link.ended().await;
                    }
                }
                (Order::Send(message), Some(link)) => link.send(message),
                (Order::Open { request, body }, Some(link)) => {
                    let (stream, window) = (request.stream, request.window_bytes);
                    link.open(stream, window, window).unwrap();
                    link.queue(stream, Message::TunnelRequest(Box::new(request))).unwrap();
                    link.queue_body(stream, body).unwrap();
                }
                (Order::OpenRun { request, input }, Some(link)) => {
                    let (stream, window) = (request.stream, request.window_bytes);
                    link.open(stream, window, window).unwrap();
                    link.queue(stream, Message::RunRequest(Box::new(request))).unwrap();
                    link.queue_body(stream, input).unwrap();
                }
                (Order::Release { stream, bytes }, Some(link)) => link.release(stream, bytes),
                (Order::Close(stream), Some(link)) => link.close(stream),
                (Order::Shutdown(reason), Some(link)) => link.shutdown(reason),
                (_, None) => panic!("no link"),
            }
        }
    }
}

/// One whole run.
#[derive(Debug, Default)]
pub struct Outcome {
    pub start: Option<BTreeMap<String, String>>,
    pub text: String,
    pub reasoning: String,
    pub end: Option<RunEvent>,
}

impl Outcome {
    /// Kind and words of its error.
    pub fn error(self) -> (ErrorKind, String) {
        match self.end.unwrap().kind {
            RunEventKind::Error(error) => {
                assert_eq!(error.failure, None);
                (error.kind, error.message)
            }
            other => panic!("expected an error: {other:?}"),
        }
    }

    /// Reason, counts and metadata of its completion.
    pub fn completion(&self) -> (&str, Usage, &BTreeMap<String, String>) {
        let end = self.end.as_ref().unwrap();
        match &end.kind {
            RunEventKind::Complete { finish_reason, usage } => (finish_reason, usage.unwrap(), &end.metadata),
            other => panic!("expected a completion: {other:?}"),
        }
    }
}

/// One whole answer.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<Header>,
    pub body: BytesMut,
    pub result: Result<(), ExecutionError>,
}
