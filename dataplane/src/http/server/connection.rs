//! What the owner of a request holds, by whichever protocol it came.

use std::{net::SocketAddr, rc::Rc};

use bytes::{Bytes, BytesMut};

use super::{Gone, Http1, Peer, ReadFault, RequestFault, ResponseBody, Watch, Whom, Wire};
use crate::{
    http::{
        body::Body,
        budget::Budget,
        head::{RequestHead, ResponseHead},
        http2::{Exchange, Http2Limits, Notice, Server},
        limits::Limits,
    },
    net::{Stream, WriteFault},
};

/// One client connection, or one stream of an HTTP/2 connection. Dropped in the middle of a response it leaves the client with a
/// broken end.
#[derive(Debug)]
pub struct Connection(Kind);

#[derive(Debug)]
enum Kind {
    Http1(Http1),
    Stream(Exchange),
}

impl Connection {
    /// An accepted connection; the deadline of its first head runs from now.
    pub fn new(wire: impl Into<Wire>, limits: Rc<Limits>) -> Self {
        Self::resume(wire, BytesMut::new(), limits)
    }

    /// As [`Connection::new`], where the first bytes were received already.
    pub fn resume(wire: impl Into<Wire>, received: BytesMut, limits: Rc<Limits>) -> Self {
        Self(Kind::Http1(Http1::resume(wire, received, limits)))
    }

    /// A connection of a client that speaks plain HTTP where it should have spoken TLS: its first request is a fault.
    pub fn misdirected(stream: Stream, received: BytesMut, limits: Rc<Limits>) -> Self {
        Self(Kind::Http1(Http1::misdirected(stream, received, limits)))
    }

    /// Whether its client has asked for HTTP/2 before its first byte ([`Wire::is_http2`]): it is to be made one at once, by
    /// [`Connection::into_http2`].
    #[must_use]
    pub fn is_http2(&self) -> bool {
        match &self.0 {
            Kind::Http1(connection) => connection.wire.is_http2(),
            Kind::Stream(_) => false,
        }
    }

    pub(in crate::http) fn of_stream(exchange: Exchange) -> Self {
        Self(Kind::Stream(exchange))
    }

    #[cfg(test)]
    pub(super) fn http1(&self) -> &Http1 {
        match &self.0 {
            Kind::Http1(connection) => connection,
            Kind::Stream(_) => panic!("a stream"),
        }
    }

    /// The connection that is HTTP/2, as [`Connection::is_http2`] or [`RequestFault::Http2`] tells; `None` for a stream of one. `notify` is told of resets and
    /// ends of both sides.
    #[must_use]
    pub fn into_http2(self, bounds: Http2Limits, notify: Box<dyn Fn(Notice)>) -> Option<Server> {
        match self.0 {
            Kind::Http1(connection) => {
                let limits = Rc::clone(&connection.limits);
                let (wire, received) = connection.into_wire();
                Some(Server::new(wire, received, limits, bounds, notify))
            }
            Kind::Stream(_) => None,
        }
    }

    /// Whether a request is there to which nothing has been answered yet.
    pub fn awaits_answer(&self) -> bool {
        match &self.0 {
            Kind::Http1(connection) => connection.awaits_answer(),
            Kind::Stream(exchange) => exchange.awaits_answer(),
        }
    }

    /// The client's address.
    pub fn peer_addr(&self) -> SocketAddr {
        match &self.0 {
            Kind::Http1(connection) => connection.peer_addr(),
            Kind::Stream(exchange) => exchange.peer_addr(),
        }
    }

    /// Ends the connection after the response that is pending, if any; responses that begin from now on say so. A stream ends after
    /// its response anyway, and its connection is told by [`Server::drain`].
    pub fn set_draining(&mut self) {
        if let Kind::Http1(connection) = &mut self.0 {
            connection.set_draining();
        }
    }

    /// Waits for the next request. `None` = no more: the client closed, was idle for too long, the last response ended
    /// the connection, or the connection drains. Loses nothing when dropped; deadlines go on running then.
    ///
    /// # Errors
    /// The head is refused, late or cut short, or none of HTTP/1.
    pub async fn next_request(&mut self) -> Result<Option<RequestHead>, RequestFault> {
        match &mut self.0 {
            Kind::Http1(connection) => connection.next_request().await,
            Kind::Stream(exchange) => exchange.next_request().map_err(RequestFault::Head),
        }
    }

    /// The body of the current request, at most `max` bytes, with its room in `budget`; empty when there is none or it was
    /// read already. A client that waits for `100 Continue` gets it here, and only when the announced length is within
    /// `max` and there is room for it now.
    ///
    /// Memory and room grow with what arrives. When the future is dropped what was read is lost, so drop it only to close
    /// the connection.
    ///
    /// # Errors
    /// The body is too large, too slow, malformed or cut short, or there is no room for it.
    pub async fn read_body(&mut self, max: usize, budget: &Budget) -> Result<Body, ReadFault> {
        match &mut self.0 {
            Kind::Http1(connection) => connection.read_body(max, budget).await,
            Kind::Stream(exchange) => exchange.read_body(max, budget).await,
        }
    }

    /// Ends when [`Connection::check_gone`] is to be called. Stays armed while the response is written.
    pub fn watch(&mut self) -> Watch {
        match &mut self.0 {
            Kind::Http1(connection) => connection.watch(),
            Kind::Stream(exchange) => Watch::of_stream(exchange.stream()),
        }
    }

    /// Takes back a watch of this connection that has not fired, to wait for the next request with.
    pub fn keep_watch(&mut self, watch: Watch) {
        if let Kind::Http1(connection) = &mut self.0 {
            connection.keep_watch(watch);
        }
    }

    /// A hold on the client for asking, while a write is going on, whether it has left.
    pub fn peer(&self) -> Peer {
        match &self.0 {
            Kind::Http1(connection) => connection.peer(),
            Kind::Stream(exchange) => Peer(Whom::Stream(exchange.stream())),
        }
    }

    /// After the watch has fired: whether the client has gone. What it sent in advance is kept for its next request, up
    /// to [`Limits::look_ahead`].
    pub fn check_gone(&mut self) -> Gone {
        match &mut self.0 {
            Kind::Http1(connection) => connection.check_gone(),
            Kind::Stream(exchange) if exchange.stream().is_gone() => Gone::Yes,
            Kind::Stream(_) => Gone::No,
        }
    }

    /// Appends the head of the response to the output. Framing fields come from `body` and from the state of the connection,
    /// not from the head's fields.
    pub fn begin(&mut self, head: &ResponseHead, body: ResponseBody) {
        match &mut self.0 {
            Kind::Http1(connection) => connection.begin(head, body),
            Kind::Stream(exchange) => exchange.begin(head, body),
        }
    }

    /// Appends a piece of the body. Bytes over an announced length are not sent.
    pub fn push(&mut self, data: &[u8]) {
        match &mut self.0 {
            Kind::Http1(connection) => connection.push(data),
            Kind::Stream(exchange) => exchange.push(data),
        }
    }

    /// Appends pieces of the body together.
    pub fn push_parts(&mut self, parts: &[Bytes]) {
        match &mut self.0 {
            Kind::Http1(connection) => connection.push_parts(parts),
            Kind::Stream(exchange) => parts.iter().for_each(|part| exchange.push(part)),
        }
    }

    /// Ends the body. One shorter than announced gets a broken end, so that the client can tell.
    pub fn finish(&mut self) {
        match &mut self.0 {
            Kind::Http1(connection) => connection.finish(),
            Kind::Stream(exchange) => exchange.finish(),
        }
    }

    /// Bytes that wait for a flush, about.
    pub fn pending(&self) -> usize {
        match &self.0 {
            Kind::Http1(connection) => connection.pending(),
            Kind::Stream(exchange) => exchange.pending(),
        }
    }

    /// Writes all output. Drive it to its end: dropped, the output is lost and the connection of no use.
    ///
    /// # Errors
    /// The client takes nothing for [`Limits::write_stall`], or the connection broke, now or before.
    pub async fn flush(&mut self) -> Result<(), WriteFault> {
        match &mut self.0 {
            Kind::Http1(connection) => connection.flush().await,
            Kind::Stream(exchange) => exchange.flush().await,
        }
    }

    /// Sends a whole response.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub async fn respond(&mut self, head: &ResponseHead, body: &[u8]) -> Result<(), WriteFault> {
        self.begin(head, ResponseBody::Length(body.len() as u64));
        self.push(body);
        self.finish();
        self.flush().await
    }

    /// Ends the connection: what is pending is written, then it is closed in a way that takes no answer from the client.
    ///
    /// A body that was not finished lacks its end then, which the client can tell.
    pub async fn close(self) {
        match self.0 {
            Kind::Http1(connection) => connection.close().await,
            Kind::Stream(exchange) => exchange.close().await,
        }
    }

    /// Ends the connection in the middle of a body: what was pushed is written, and the body lacks its end.
    pub async fn break_off(self) {
        match self.0 {
            Kind::Http1(connection) => connection.break_off().await,
            Kind::Stream(exchange) => exchange.close().await,
        }
    }

    /// Ends the connection by a reset, at once or when the last watch is dropped. What was not flushed is lost.
    pub fn abort_hard(self) {
        match self.0 {
            Kind::Http1(connection) => connection.abort_hard(),
            Kind::Stream(exchange) => exchange.abort(),
        }
    }
}
