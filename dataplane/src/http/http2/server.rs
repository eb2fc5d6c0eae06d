//! The driver of one HTTP/2 connection: one task owns a [`Server`] and calls [`Server::next`] until there is no more.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Instant,
};

use ::h2::{
    Reason,
    server::{Builder, Connection as Protocol, Handshake},
};
use bytes::BytesMut;
use futures::future::{Either, select};

use super::{
    exchange::{Exchange, Shared},
    frames::ErrorCode,
    limits::Http2Limits,
    piece::Piece,
    wire::{PREFACE, Port},
};
use crate::{
    clock,
    http::{
        limits::Limits,
        server::{Connection, Wire},
    },
    net::Progress,
    time::{before, sleep_until_maybe},
};

/// Exchanges that may exist for each stream that may be open: their owners take a moment to learn that a stream was reset.
const EXCHANGES_PER_STREAM: usize = 2;
/// Bytes read and thrown away after the last word, so that it arrives.
const LINGER_BYTES: usize = 1024 * 1024;
/// Of them at a time.
const DISCARD: usize = 16 * 1024;

/// What is told of a connection's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// We reset a stream.
    Reset(ErrorCode),
    /// The client reset one.
    ResetByClient(ErrorCode),
    /// We told the client that the connection ends.
    Gone(ErrorCode),
    /// The client told us.
    GoneByClient(ErrorCode),
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client closed it.
    Closed,
    /// No request came for [`Limits::keepalive_idle`].
    Idle,
    /// [`Server::drain`] was called.
    Drained,
    /// The client asked for more work than its requests are.
    Flood,
    /// It broke the protocol.
    Protocol,
    /// It took nothing for [`Limits::write_stall`], or did not begin in time.
    Stalled,
    /// The connection broke.
    Broken,
}

impl Ending {
    /// Every one, for registering counters.
    pub const ALL: [Self; 7] =
        [Self::Closed, Self::Idle, Self::Drained, Self::Flood, Self::Protocol, Self::Stalled, Self::Broken];

    /// The word for logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Idle => "idle",
            Self::Drained => "drained",
            Self::Flood => "flood",
            Self::Protocol => "protocol",
            Self::Stalled => "stalled",
            Self::Broken => "broken",
        }
    }
}

enum State {
    Preface(Handshake<Port, Piece>),
    Open(Protocol<Port, Piece>),
    Over,
}

/// What the driver waits for besides the client, and so what its timer is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// The client's first frames.
    Preface,
    /// A request.
    Idle,
    /// The responses that are under way.
    Nothing,
    /// The socket.
    Room,
    /// That the last word is sent.
    End,
}

/// What a poll gave.
enum Step {
    Stream(Box<Connection>),
    /// The timer is to be set anew.
    Rearm,
    Over,
}

/// One connection. Dropped, it is closed, and whoever waits on its streams is told.
pub struct Server {
    // Before the port, which it has a hold on too.
    state: State,
    port: Port,
    wire: Wire,
    shared: Rc<Shared>,
    bounds: Http2Limits,
    deadline: Instant,
    /// When the last request ended, while there is none.
    idle_since: Option<Instant>,
    /// The judgement of a write that waits.
    progress: Option<Progress>,
    ending: Option<Ending>,
    /// A last word is on its way.
    ends: bool,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("ending", &self.ending).finish_non_exhaustive()
    }
}

impl Server {
    /// A connection whose client speaks HTTP/2; `early` is what has been received of it. `notify` is told of resets and ends.
    pub fn new(
        wire: Wire,
        early: BytesMut,
        limits: Rc<Limits>,
        bounds: Http2Limits,
        notify: Box<dyn Fn(Notice)>,
    ) -> Self {
        let now = clock::now();
        let port = Port::new(wire.share(), (early, PREFACE), &bounds, notify, now);
        let header_list = u32::try_from(limits.head_bytes).unwrap_or(u32::MAX).min(bounds.header_list_bytes);
        let mut builder = Builder::new();
        builder
            .max_concurrent_streams(bounds.streams)
            .max_header_list_size(header_list)
            .initial_window_size(bounds.stream_window)
            .initial_connection_window_size(bounds.connection_window)
            .max_send_buffer_size(bounds.send_buffer);
        let deadline = now + limits.head_deadline;
        let shared = Shared {
            peer: wire.peer_addr(),
            limits,
            open: Cell::new(0),
            blocked: Cell::new(false),
            driver: RefCell::new(None),
        };
        Self {
            state: State::Preface(builder.handshake(port.clone())),
            port,
            wire,
            shared: Rc::new(shared),
            bounds,
            deadline,
            idle_since: Some(now),
            progress: None,
            ending: None,
            ends: false,
        }
    }

    /// Whether a response is under way, or waits for the socket.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let unsent = self.shared.blocked.get();
        let streams = matches!(&self.state, State::Open(protocol) if protocol.has_streams());
        !matches!(self.state, State::Over) && (self.shared.open.get() > 0 || streams || unsent)
    }

    /// Why it ended, once [`Server::next`] has no more.
    #[must_use]
    pub fn ending(&self) -> Ending {
        self.ending.unwrap_or(Ending::Closed)
    }

    /// Tells the client to send no more requests here. Those that are there are answered, and those that cross this word.
    pub fn drain(&mut self) {
        self.ending.get_or_insert(Ending::Drained);
        match &mut self.state {
            State::Open(protocol) => protocol.graceful_shutdown(),
            State::Preface(_) => self.state = State::Over,
            State::Over => {}
        }
    }

    /// Waits for the next request, and drives the connection meanwhile. `None` = there is no more, and the client has been told.
    /// Loses nothing when dropped; deadlines go on running then. `busy` is told after each turn whether the connection
    /// [is busy](Self::is_busy).
    pub async fn next(&mut self, mut busy: impl FnMut(bool)) -> Option<Connection> {
        loop {
            let waits = self.waits();
            let due = self.due(waits);
            let step = {
                let polled = poll_fn(|cx| {
                    let polled = self.poll(cx, waits);
                    busy(self.is_busy());
                    polled
                });
                match select(pin!(polled), pin!(sleep_until_maybe(due))).await {
                    Either::Left((step, _)) => Some(step),
                    Either::Right(((), _)) => None,
                }
            };
            match step {
                Some(Step::Stream(connection)) => return Some(*connection),
                Some(Step::Rearm) => {}
                Some(Step::Over) => {
                    self.linger().await;
                    return None;
                }
                None => self.handle_timeout(waits, clock::now()),
            }
        }
    }

    fn waits(&self) -> Waits {
        match &self.state {
            _ if self.ends => Waits::End,
            State::Preface(_) => Waits::Preface,
            _ if self.shared.blocked.get() => Waits::Room,
            _ if self.shared.open.get() > 0 => Waits::Nothing,
            _ => Waits::Idle,
        }
    }

    fn due(&self, waits: Waits) -> Option<Instant> {
        match waits {
            Waits::Nothing => None,
            Waits::Idle => self.idle_since.map(|since| since + self.shared.limits.keepalive_idle),
            Waits::Room => self.progress.as_ref().map(Progress::poll_timeout),
            Waits::Preface | Waits::End => Some(self.deadline),
        }
    }

    fn handle_timeout(&mut self, waits: Waits, now: Instant) {
        match waits {
            Waits::Nothing => {}
            Waits::Idle => self.end(Ending::Idle, Reason::NO_ERROR, now),
            Waits::Preface => self.over(Ending::Stalled),
            Waits::End => self.cut(Ending::Stalled),
            Waits::Room => {
                let queued = self.wire.unacknowledged();
                let judged =
                    self.progress.as_mut().zip(queued.ok()).map(|(it, queued)| it.handle(queued, now));
                if !matches!(judged, Some(Ok(()))) {
                    self.cut(Ending::Stalled);
                }
            }
        }
    }

    /// Says a last word, and lets it take a moment.
    fn end(&mut self, ending: Ending, reason: Reason, now: Instant) {
        if let State::Open(protocol) = &mut self.state
            && !self.ends
        {
            self.ending.get_or_insert(ending);
            self.ends = true;
            self.deadline = now + self.bounds.farewell;
            protocol.abrupt_shutdown(reason);
        }
    }

    fn over(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
        // Its streams are told by the drop.
        self.state = State::Over;
    }

    /// The client takes nothing: what waits for it goes too.
    fn cut(&mut self, ending: Ending) {
        self.wire.reset_on_close();
        self.over(ending);
    }

    fn poll(&mut self, cx: &mut Context<'_>, waits: Waits) -> Poll<Step> {
        let now = clock::now();
        self.shared.driver.replace(Some(cx.waker().clone()));
        self.port.begin_turn(now);
        let mut polled = self.poll_protocol(cx);
        if let Some(flood) = self.port.flood()
            && !self.ends
        {
            tracing::debug!(client = %self.shared.peer, ?flood, "an HTTP/2 client floods");
            self.end(Ending::Flood, Reason::ENHANCE_YOUR_CALM, now);
            polled = self.poll_protocol(cx);
        }
        self.send(cx, now);
        if let Poll::Ready(step) = polled {
            return Poll::Ready(step);
        }
        if matches!(self.state, State::Over) {
            return Poll::Ready(Step::Over);
        }
        self.idle_since = match self.shared.open.get() {
            0 => self.idle_since.or(Some(now)),
            _ => None,
        };
        if self.waits() == waits { Poll::Pending } else { Poll::Ready(Step::Rearm) }
    }

    fn poll_protocol(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        loop {
            let (ended, taken) = match &mut self.state {
                State::Over => return Poll::Ready(Step::Over),
                State::Preface(handshake) => match Pin::new(handshake).poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(protocol)) => {
                        self.state = State::Open(protocol);
                        continue;
                    }
                    Poll::Ready(Err(error)) => (Err(error), None),
                },
                // Until some owners have learned that their streams are gone, no more are taken, and then no more come.
                State::Open(protocol) if self.shared.open.get() >= most_exchanges(&self.bounds) => {
                    match protocol.poll_closed(cx) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(ended) => (ended, None),
                    }
                }
                State::Open(protocol) => match protocol.poll_accept(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(None) => (Ok(()), None),
                    Poll::Ready(Some(Err(error))) => (Err(error), None),
                    Poll::Ready(Some(Ok(taken))) => (Ok(()), Some(taken)),
                },
            };
            if let Some((request, respond)) = taken {
                let exchange = Exchange::new(request, respond, &self.shared);
                self.idle_since = None;
                return Poll::Ready(Step::Stream(Box::new(Connection::of_stream(exchange))));
            }
            self.over(ended.err().map_or(Ending::Closed, |error| ending_of(&error)));
        }
    }

    /// Sends what the protocol has said.
    fn send(&mut self, cx: &mut Context<'_>, now: Instant) {
        match self.port.poll_send(cx) {
            Poll::Ready(Ok(())) => {
                self.shared.blocked.set(false);
                self.progress = None;
            }
            Poll::Ready(Err(_)) => self.over(Ending::Broken),
            Poll::Pending if self.progress.is_none() => {
                self.shared.blocked.set(true);
                let queued = self.wire.unacknowledged().unwrap_or_default();
                self.progress = Some(Progress::new(self.shared.limits.write_stall, queued, now));
            }
            Poll::Pending => {}
        }
    }

    /// Says that nothing more comes. Closing over what was not read would take the last word from the client.
    async fn linger(&mut self) {
        self.state = State::Over;
        if matches!(self.ending(), Ending::Stalled | Ending::Broken) {
            return;
        }
        if self.wire.say_goodbye(self.bounds.farewell).await.is_err() {
            return self.wire.reset_on_close();
        }
        self.wire.shutdown_write();
        if !matches!(self.ending(), Ending::Flood | Ending::Protocol) {
            return;
        }
        let end = clock::now() + self.bounds.farewell;
        let (mut budget, mut scratch) = (LINGER_BYTES, BytesMut::new());
        while budget > 0 {
            match before(end, self.wire.discard_some(&mut scratch, DISCARD)).await {
                Some(Ok(read)) if read > 0 => budget = budget.saturating_sub(read),
                _ => return,
            }
            scratch.clear();
        }
    }
}

fn most_exchanges(bounds: &Http2Limits) -> usize {
    usize::try_from(bounds.streams).unwrap_or(usize::MAX).saturating_mul(EXCHANGES_PER_STREAM)
}

fn ending_of(error: &::h2::Error) -> Ending {
    match error.reason() {
        _ if error.is_io() => match error.get_io().map(io::Error::kind) {
            Some(io::ErrorKind::UnexpectedEof) => Ending::Closed,
            _ => Ending::Broken,
        },
        Some(Reason::NO_ERROR) => Ending::Closed,
        _ if error.is_remote() => Ending::Closed,
        Some(Reason::ENHANCE_YOUR_CALM) => Ending::Flood,
        _ => Ending::Protocol,
    }
}
