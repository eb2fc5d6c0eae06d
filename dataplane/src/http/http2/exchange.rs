//! One stream: a request and its response.
//!
//! What [`Exchange::begin`], [`Exchange::push`] and [`Exchange::finish`] say is kept until [`Exchange::flush`] hands it to the connection, as
//! much at a time as the client's windows allow. A response that was not finished never ends by END_STREAM: dropped or closed, its
//! stream is reset (API-1).

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use ::h2::{Reason, RecvStream, SendStream, server::SendResponse};
use ::http::{Request, Response};
use bytes::BytesMut;
use futures::future::{Either, select};

use super::{
    head,
    piece::{Flight, Piece},
};
use crate::{
    clock,
    http::{
        h1::parse::HeadFault,
        head::{Method, RequestHead, ResponseHead},
        limits::Limits,
        server::{ResponseBody, Writing},
    },
    net::WriteFault,
    time::{before, sleep_until},
};

/// What the streams of one connection and its driver know of each other.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) peer: SocketAddr,
    pub(super) limits: Rc<Limits>,
    /// Exchanges that exist.
    pub(super) open: Cell<usize>,
    /// The socket takes nothing now: that a stream waits is no fault of its own.
    pub(super) blocked: Cell<bool>,
    /// Wakes the driver.
    pub(super) driver: RefCell<Option<Waker>>,
}

impl Shared {
    pub(super) fn wake_driver(&self) {
        let driver = self.driver.borrow_mut().take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

/// A stream as its owner, its watch and its [`Peer`](crate::http::server::Peer) see it.
pub(crate) struct Stream {
    send: RefCell<Send>,
    gone: Cell<bool>,
    flight: Rc<Flight>,
}

/// Where a response goes.
enum Send {
    /// Nothing has begun.
    Head(SendResponse<Piece>),
    Body(SendStream<Piece>),
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("gone", &self.gone).finish_non_exhaustive()
    }
}

impl Stream {
    /// Ready once the client has reset the stream or left.
    pub(crate) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.gone.get() {
            return Poll::Ready(());
        }
        let polled = match &mut *self.send.borrow_mut() {
            Send::Head(send) => send.poll_reset(cx),
            Send::Body(send) => send.poll_reset(cx),
        };
        polled.map(|_why| self.gone.set(true))
    }

    /// Whether the client is known to have gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.get()
    }

    fn reset(&self, reason: Reason) {
        match &mut *self.send.borrow_mut() {
            Send::Head(send) => send.send_reset(reason),
            Send::Body(send) => send.send_reset(reason),
        }
    }

    fn inform(&self, head: Response<()>) -> Result<(), ::h2::Error> {
        match &mut *self.send.borrow_mut() {
            Send::Head(send) => send.send_informational(head),
            Send::Body(_) => Ok(()),
        }
    }

    fn begin(&self, head: Response<()>, is_all: bool) -> Result<(), ::h2::Error> {
        let mut send = self.send.borrow_mut();
        if let Send::Head(response) = &mut *send {
            let body = response.send_response(head, is_all)?;
            *send = Send::Body(body);
        }
        Ok(())
    }

    /// Hands over a part of `out` that the client has room for, and its end where `is_last` says so. Ready with 0 when there
    /// was nothing to hand over.
    fn poll_hand_over(
        &self,
        cx: &mut Context<'_>,
        out: &mut BytesMut,
        is_last: bool,
    ) -> Poll<Result<usize, ::h2::Error>> {
        let mut send = self.send.borrow_mut();
        let Send::Body(send) = &mut *send else { return Poll::Ready(Ok(0)) };
        let mut room = 0;
        if !out.is_empty() {
            send.reserve_capacity(out.len());
            room = send.capacity();
            while room == 0 {
                match ready!(send.poll_capacity(cx)) {
                    Some(found) => room = found?.min(send.capacity()),
                    None => return Poll::Ready(Err(Reason::CANCEL.into())),
                }
            }
        } else if !is_last {
            return Poll::Ready(Ok(0));
        }
        let part = out.split_to(room.min(out.len())).freeze();
        let handed = part.len();
        send.send_data(Piece::new(part, &self.flight), is_last && out.is_empty())?;
        Poll::Ready(Ok(handed))
    }
}

/// One request, up to the end of its response.
pub(crate) struct Exchange {
    pub(super) shared: Rc<Shared>,
    pub(super) stream: Rc<Stream>,
    request: Option<Result<RequestHead, HeadFault>>,
    /// The request's body, until it has been read.
    pub(super) body: Option<RecvStream>,
    pub(super) announced: Option<u64>,
    /// The client waits for `100 Continue`.
    pub(super) expects: bool,
    asked_head: bool,
    writing: Writing,
    /// A head that waits for a flush.
    head: Option<Response<()>>,
    /// A part of the body that waits for one.
    out: BytesMut,
    /// The response was finished as it should be.
    whole: bool,
    /// Its end was handed over.
    ended: bool,
    /// Output was lost.
    broken: bool,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("writing", &self.writing).finish_non_exhaustive()
    }
}

impl Exchange {
    pub(super) fn new(
        request: Request<RecvStream>,
        respond: SendResponse<Piece>,
        shared: &Rc<Shared>,
    ) -> Self {
        let (parts, body) = head::apart(request);
        let head = head::request(&parts, &shared.limits);
        shared.open.set(shared.open.get() + 1);
        let has_body = !body.is_end_stream();
        let known = head.as_ref().ok();
        Self {
            shared: Rc::clone(shared),
            stream: Rc::new(Stream {
                send: RefCell::new(Send::Head(respond)),
                gone: Cell::new(false),
                flight: Rc::default(),
            }),
            announced: known.and_then(head::announced),
            expects: has_body && known.is_some_and(RequestHead::expects_continue),
            asked_head: parts.method == ::http::Method::HEAD
                || known.is_some_and(|head| head.method == Method::Head),
            request: Some(head),
            body: has_body.then_some(body),
            writing: Writing::Waiting,
            head: None,
            out: BytesMut::new(),
            whole: false,
            ended: false,
            broken: false,
        }
    }

    pub(crate) fn peer_addr(&self) -> SocketAddr {
        self.shared.peer
    }

    /// The one request, and then no more.
    pub(crate) fn next_request(&mut self) -> Result<Option<RequestHead>, HeadFault> {
        self.request.take().transpose()
    }

    pub(crate) fn awaits_answer(&self) -> bool {
        self.writing == Writing::Waiting && !self.stream.is_gone()
    }

    pub(crate) fn stream(&self) -> Rc<Stream> {
        Rc::clone(&self.stream)
    }

    pub(super) fn carry_on(&self) -> io::Result<()> {
        self.stream.inform(head::carry_on()).map_err(io::Error::other)
    }

    pub(crate) fn begin(&mut self, told: &ResponseHead, body: ResponseBody) {
        let bodiless = told.is_informational() || matches!(told.status, 204 | 304);
        let (length, writing) = match body {
            _ if bodiless => (None, Writing::Discarded),
            ResponseBody::None => (Some(0), Writing::Length(0)),
            ResponseBody::Length(length) => (Some(length), Writing::Length(length)),
            // Frames end a body, whatever the provider had for it.
            ResponseBody::Chunked | ResponseBody::UntilClose => (None, Writing::Chunked),
        };
        self.writing = if self.asked_head { Writing::Discarded } else { writing };
        self.head = Some(head::response(told, length));
    }

    pub(crate) fn push(&mut self, data: &[u8]) {
        match self.writing {
            Writing::Chunked | Writing::UntilClose => self.out.extend_from_slice(data),
            Writing::Length(left) => {
                let fits = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
                self.out.extend_from_slice(data.get(..fits).unwrap_or_default());
                self.writing = Writing::Length(left.saturating_sub(fits as u64));
            }
            Writing::Waiting | Writing::Discarded | Writing::Done => {}
        }
    }

    /// Ends the body. One shorter than announced is not whole: its stream will be reset.
    pub(crate) fn finish(&mut self) {
        self.whole = !matches!(self.writing, Writing::Waiting | Writing::Length(1..));
        self.writing = Writing::Done;
    }

    pub(crate) fn pending(&self) -> usize {
        // A head alone counts as something to write.
        self.out.len() + usize::from(self.head.is_some() || (self.whole && !self.ended))
    }

    /// Hands over all output. Drive it to its end: dropped, the response is cut.
    ///
    /// # Errors
    /// The client opens no window for `write_stall`, or has gone.
    pub(crate) async fn flush(&mut self) -> Result<(), WriteFault> {
        if self.broken {
            return Err(broken());
        }
        if self.pending() == 0 {
            return Ok(());
        }
        self.broken = true;
        let result = match poll_fn(|cx| Poll::Ready(self.poll_flush(cx))).await {
            Poll::Ready(result) => result,
            // In a box of its own, as HTTP/1's.
            Poll::Pending => Box::pin(self.flush_patiently()).await,
        };
        self.broken = result.is_err();
        result
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WriteFault>> {
        if let Some(head) = self.head.take() {
            self.ended = self.whole && self.out.is_empty();
            self.stream.begin(head, self.ended).map_err(|_| broken())?;
        }
        while !self.ended && (self.whole || !self.out.is_empty()) {
            let handed = ready!(self.stream.poll_hand_over(cx, &mut self.out, self.whole));
            handed.map_err(|_| broken())?;
            self.ended = self.whole && self.out.is_empty();
        }
        Poll::Ready(Ok(()))
    }

    /// A client that opens its window by a little all the time reads slowly; one whose window stays shut for so long does not read.
    async fn flush_patiently(&mut self) -> Result<(), WriteFault> {
        let shared = Rc::clone(&self.shared);
        let stall = shared.limits.write_stall;
        let mut waits_for = self.out.len();
        let mut deadline = clock::now() + stall;
        loop {
            let flushed = poll_fn(|cx| match self.poll_flush(cx) {
                Poll::Pending if self.out.len() < waits_for => Poll::Ready(None),
                polled => polled.map(Some),
            });
            match select(pin!(flushed), pin!(sleep_until(deadline))).await {
                Either::Left((Some(flushed), _)) => return flushed,
                // The connection's own deadline runs while its socket takes nothing from it.
                Either::Right(((), _)) if !shared.blocked.get() => return Err(WriteFault::Stalled),
                Either::Left((None, _)) | Either::Right(((), _)) => {}
            }
            waits_for = self.out.len();
            deadline = clock::now() + stall;
        }
    }

    /// Ends the stream: what is pending is handed over, and a response that is not whole is reset behind it. What still comes of a
    /// body that was not read is thrown away for a while.
    pub(crate) async fn close(mut self) {
        if self.flush().await.is_err() {
            return;
        }
        if self.ended {
            return self.discard().await;
        }
        // A reset overtakes what waits in the connection.
        let flight = Rc::clone(&self.stream.flight);
        let gone = poll_fn(|cx| self.stream.poll_gone(cx));
        let late = sleep_until(clock::now() + self.shared.limits.write_stall);
        let _sent = select(pin!(flight.landed()), select(pin!(gone), pin!(late))).await;
    }

    /// Takes what still comes of a body that nobody reads, for a while: there are clients that send all of it before they look, and a
    /// reset meanwhile takes the answer from them (curl 7.88).
    async fn discard(&mut self) {
        let Some(mut unread) = self.body.take() else { return };
        let limits = Rc::clone(&self.shared.limits);
        let end = clock::now() + limits.linger;
        let mut budget = limits.linger_bytes;
        loop {
            let next = poll_fn(|cx| unread.poll_data(cx));
            match before(end.min(clock::now() + limits.linger_idle), next).await {
                Some(Some(Ok(data))) if data.len() <= budget => {
                    budget -= data.len();
                    if unread.flow_control().release_capacity(data.len()).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    }

    /// Resets the stream at once. What waits is lost.
    pub(crate) fn abort(self) {
        self.stream.reset(Reason::INTERNAL_ERROR);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.ended {
            self.stream.reset(Reason::INTERNAL_ERROR);
        }
        self.shared.open.set(self.shared.open.get().saturating_sub(1));
        self.shared.wake_driver();
    }
}

fn broken() -> WriteFault {
    WriteFault::Io(io::ErrorKind::BrokenPipe.into())
}
