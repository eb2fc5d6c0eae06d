//! The driver of one client connection: requests in, responses out, one at a time; or of one stream of a connection that has
//! many ([`http2`]), which is the same to its owner but has one request.
//!
//! One task owns a [`Connection`] and calls, per request: [`Connection::next_request`], [`Connection::read_body`],
//! [`Connection::begin`], [`Connection::push`] and [`Connection::flush`] as often as needed, [`Connection::finish`] and a
//! last flush. When `next_request` has no more it calls [`Connection::close`]. After a fault it may answer once.
//!
//! While a connection is idle, or its response is silent, it holds no buffer. While a response is pending, [`Connection::watch`] tells that the client
//! sent something or went away, and [`Connection::check_gone`] which of the two. Given back with [`Connection::keep_watch`], a watch that has not
//! fired also waits for the next request: a request then costs one poll of the ring, and no cancel.

mod body;
mod close;
mod connection;
mod response;
mod secure;
mod spare;
#[cfg(test)]
mod tests;
mod wire;

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Instant,
};

use bytes::BytesMut;

pub(super) use body::Pace;
pub use body::ReadFault;
pub use connection::Connection;
pub use response::ResponseBody;
pub(super) use response::Writing;
pub use secure::{Handshake, Secure, handshake};
pub use wire::Wire;

use super::{
    h1::{
        body::BodyDecoder,
        parse::{HeadFault, HeadScan},
    },
    head::{Method, RequestHead, Version, list_elements},
    http2::{self, PREFACE_HEAD},
    limits::Limits,
};
use crate::{clock, net::Stream, time::before, tls::session::HANDSHAKE_RECORD};

/// Bytes asked for at a time while a head is read.
const HEAD_READ: usize = 8 * 1024;
/// Bytes asked for at a time while a response is pending.
const LOOK_AHEAD_READ: usize = 4 * 1024;

thread_local! {
    /// Where heads are received before they are copied.
    static SCRATCH: RefCell<BytesMut> = RefCell::new(BytesMut::with_capacity(HEAD_READ));
}

/// Why there is no next request. The caller may answer once, where [`RequestFault::status`] says with what, and must
/// close the connection.
#[derive(Debug, thiserror::Error)]
pub enum RequestFault {
    /// The head is refused.
    #[error("refused request head: {0}")]
    Head(#[from] HeadFault),
    /// The head did not come in time.
    #[error("the request head did not come in time")]
    TimedOut,
    /// TLS on a port of plain HTTP. An answer in plain text is what clients know this by.
    #[error("the client speaks TLS, and this port plain HTTP: write http:// in the base URL")]
    SpeaksTls,
    /// Plain HTTP on a port of HTTPS.
    #[error("the client speaks plain HTTP, and this port HTTPS: write https:// in the base URL")]
    SpeaksPlain,
    /// The client closed in the middle of the head.
    #[error("the connection ended inside a request head")]
    Truncated,
    /// The connection broke.
    #[error("the connection broke")]
    Broken(#[source] io::Error),
    /// It is none of HTTP/1: the client speaks HTTP/2, for which there is [`Connection::into_http2`].
    #[error("the client speaks HTTP/2")]
    Http2,
}

impl RequestFault {
    /// Status to answer with; `None` when nobody would read it.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Head(fault) => Some(fault.status()),
            Self::TimedOut => Some(408),
            Self::SpeaksTls | Self::SpeaksPlain | Self::Truncated => Some(400),
            Self::Http2 => Some(505),
            Self::Broken(_) => None,
        }
    }
}

/// What a client did while its response was pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It closed its side or the connection broke: nobody waits for the response.
    Yes,
    /// It is there; watch again.
    No,
    /// It has sent so much in advance that it is not listened to any more: do not watch again.
    Deaf,
}

/// The wait for a client to send something or to go away; armed by its first poll. It may be dropped freely, and is not to be
/// polled again once it has fired. It has its own hold on the socket, which stays open until it is dropped too.
pub struct Watch(Pin<Box<dyn Future<Output = io::Result<()>>>>);

impl Watch {
    fn of(wire: &Wire) -> Self {
        Self(Box::pin(wire.watch()))
    }

    /// Of one stream of several: it ends when that is reset, or its connection is over.
    fn of_stream(stream: Rc<http2::Stream>) -> Self {
        Self(Box::pin(poll_fn(move |cx| stream.poll_gone(cx).map(Ok))))
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Future for Watch {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

/// The client's end of a connection. It keeps the socket open for as long as it exists.
#[derive(Debug)]
pub struct Peer(Whom);

#[derive(Debug)]
enum Whom {
    Socket(Wire),
    Stream(Rc<http2::Stream>),
}

impl Peer {
    /// Whether the client has closed its side or the connection broke, as far as can be seen past what it has sent in advance.
    #[must_use]
    pub fn has_left(&self) -> bool {
        match &self.0 {
            Whom::Socket(wire) => wire.has_left(),
            Whom::Stream(stream) => stream.is_gone(),
        }
    }
}

/// An HTTP/1 connection.
#[derive(Debug)]
struct Http1 {
    wire: Wire,
    limits: Rc<Limits>,
    /// Received and not yet used.
    buf: BytesMut,
    scan: HeadScan,
    /// There was no request yet.
    fresh: bool,
    /// By when the head must be whole, once it is being waited for.
    head_deadline: Option<Instant>,
    /// By when a next request must begin.
    idle_deadline: Option<Instant>,
    /// The request body's unread rest.
    body: BodyDecoder,
    /// The client waits for `100 Continue`.
    expects: bool,
    asked_head: bool,
    asked_http10: bool,
    /// Whether another request may follow.
    persist: bool,
    draining: bool,
    /// Whether unread input is to be expected at the close.
    linger: bool,
    /// Whether any close but a proper one is a reset.
    resets: bool,
    /// Whether the client should have spoken TLS.
    misdirected: bool,
    /// Whether output was lost: nothing that follows would be in its place.
    broken: bool,
    writing: Writing,
    out: Vec<u8>,
    /// A wait that has not fired: from one request's answer to the next request.
    watch: Option<Watch>,
}

impl Http1 {
    /// An accepted connection; the deadline of its first head runs from now.
    fn resume(wire: impl Into<Wire>, received: BytesMut, limits: Rc<Limits>) -> Self {
        let head_deadline = Some(clock::now() + limits.head_deadline);
        Self {
            wire: wire.into(),
            limits,
            buf: received,
            scan: HeadScan::default(),
            fresh: true,
            head_deadline,
            idle_deadline: None,
            body: BodyDecoder::none(),
            expects: false,
            asked_head: false,
            asked_http10: false,
            persist: true,
            draining: false,
            linger: false,
            resets: false,
            misdirected: false,
            broken: false,
            writing: Writing::Done,
            out: Vec::new(),
            watch: None,
        }
    }

    fn misdirected(stream: Stream, received: BytesMut, limits: Rc<Limits>) -> Self {
        Self { misdirected: true, ..Self::resume(stream, received, limits) }
    }

    fn awaits_answer(&self) -> bool {
        self.writing == Writing::Waiting && self.out.is_empty()
    }

    fn peer_addr(&self) -> SocketAddr {
        self.wire.peer_addr()
    }

    fn into_wire(mut self) -> (Wire, BytesMut) {
        self.watch = None;
        (self.wire, self.buf)
    }

    fn set_draining(&mut self) {
        self.draining = true;
    }

    async fn next_request(&mut self) -> Result<Option<RequestHead>, RequestFault> {
        loop {
            if self.draining || !self.persist || self.writing != Writing::Done || !self.out.is_empty() {
                return Ok(None);
            }
            if self.fresh && !self.misdirected && self.buf.starts_with(PREFACE_HEAD) {
                return Err(RequestFault::Http2);
            }
            match self.scan.request_head(&mut self.buf, &self.limits) {
                Ok(Some(_)) if self.misdirected => return Err(self.fail(RequestFault::SpeaksPlain)),
                Ok(Some(head)) => return self.take_request(head).map(Some),
                _ if self.buf.first() == Some(&HANDSHAKE_RECORD) => {
                    return Err(self.fail(RequestFault::SpeaksTls));
                }
                Ok(None) => {}
                Err(fault) => return Err(self.fail(fault.into())),
            }
            let deadline = self.arm();
            self.release_empty();
            // The one that was kept knows nothing of what was buffered since.
            if self.wire.has_buffered() {
                self.watch = None;
            }
            let watch = self.watch.get_or_insert_with(|| Watch::of(&self.wire));
            let stirred = before(deadline, watch).await;
            if stirred.is_some() {
                self.watch = None;
            }
            let received = match stirred {
                None if self.has_begun() => return Err(self.fail(RequestFault::TimedOut)),
                None => Ok(Some(0)),
                Some(Ok(())) => self.receive_head(),
                Some(Err(error)) => Err(error),
            };
            match received {
                Ok(Some(0)) => {
                    self.persist = false;
                    return if self.has_begun() { Err(self.fail(RequestFault::Truncated)) } else { Ok(None) };
                }
                Ok(_) => {}
                Err(_) if !self.has_begun() => {
                    self.persist = false;
                    return Ok(None);
                }
                Err(error) => return Err(self.fail(RequestFault::Broken(error))),
            }
        }
    }

    /// Receives a part of a head, usually all of it and the body, into a buffer of just that size: the body may have to wait
    /// in it for long.
    fn receive_head(&mut self) -> io::Result<Option<usize>> {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            let received = self.wire.try_read(scratch, HEAD_READ)?;
            self.buf.extend_from_slice(scratch);
            Ok(received)
        })
    }

    /// Whether a head has begun, other than by an empty line that is ignored.
    fn has_begun(&self) -> bool {
        !b"\r\n".starts_with(&self.buf)
    }

    /// The deadline of what is being waited for now.
    fn arm(&mut self) -> Instant {
        if let Some(deadline) = self.head_deadline {
            return deadline;
        }
        if self.has_begun() {
            *self.head_deadline.insert(clock::now() + self.limits.head_deadline)
        } else {
            *self.idle_deadline.get_or_insert_with(|| clock::now() + self.limits.keepalive_idle)
        }
    }

    fn take_request(&mut self, head: RequestHead) -> Result<RequestHead, RequestFault> {
        self.fresh = false;
        self.head_deadline = None;
        self.idle_deadline = None;
        self.body = match BodyDecoder::for_request(&head, &self.limits) {
            Ok(body) => body,
            Err(fault) => return Err(self.fail(fault.into())),
        };
        self.expects = head.expects_continue() && !self.body.is_end();
        self.asked_head = head.method == Method::Head;
        self.asked_http10 = head.version == Version::Http10;
        let closes = head
            .headers
            .get_all("connection")
            .flat_map(list_elements)
            .any(|option| option.eq_ignore_ascii_case(b"close"));
        self.persist = !closes && !self.asked_http10;
        self.writing = Writing::Waiting;
        self.release_empty();
        Ok(head)
    }

    /// Lets go of the receive buffer where nothing is in it: it may be the tail of a large body's.
    fn release_empty(&mut self) {
        if self.buf.is_empty() {
            self.buf = BytesMut::new();
        }
    }

    /// After a fault: one answer, then the end.
    fn fail(&mut self, fault: RequestFault) -> RequestFault {
        self.persist = false;
        self.linger = true;
        self.body = BodyDecoder::none();
        self.expects = false;
        self.asked_head = false;
        self.asked_http10 = false;
        self.writing = Writing::Waiting;
        fault
    }

    /// One that was kept is taken up again: it may have fired for what has been read since.
    fn watch(&mut self) -> Watch {
        self.watch.take().filter(|_| !self.wire.has_buffered()).unwrap_or_else(|| Watch::of(&self.wire))
    }

    fn keep_watch(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    fn peer(&self) -> Peer {
        Peer(Whom::Socket(self.wire.share()))
    }

    /// What the client sent in advance is kept for its next request, up to [`Limits::look_ahead`].
    fn check_gone(&mut self) -> Gone {
        let room = self.limits.look_ahead.saturating_sub(self.buf.len());
        if room == 0 {
            return Gone::Deaf;
        }
        match self.wire.try_read(&mut self.buf, room.min(LOOK_AHEAD_READ)) {
            Ok(Some(0)) | Err(_) => {
                self.persist = false;
                Gone::Yes
            }
            Ok(Some(_)) if self.buf.len() >= self.limits.look_ahead => Gone::Deaf,
            Ok(_) => Gone::No,
        }
    }
}
