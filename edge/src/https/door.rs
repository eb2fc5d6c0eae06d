//! The handshake of each connection to a port of HTTPS.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::pin,
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use dataplane::{
    clock,
    crowd::Crowd,
    http::{
        limits::Limits,
        server::{Connection, Handshake, Wire, handshake},
    },
    net::Stream,
    relay::HandshakeError,
    shard::boxed,
    tls::refusal::{Origin, Refusal},
};
use futures::future::{Either, select};

use crate::shard_state::ShardState;

/// Handshakes of one port and shard that may be going on; over it the oldest one gives way, so that mute connections cannot keep
/// clients out: theirs take milliseconds.
const HANDSHAKES_MAX: usize = 512;
/// The least time between two lines about clients whose handshake failed.
const PAUSE: Duration = Duration::from_secs(10);

/// How a handshake ended; the label of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// HTTP follows.
    Good,
    /// It names application protocols, and none of ours.
    Alpn,
    /// The client went away, or the connection broke.
    Closed,
    /// It gave way to newer ones.
    Displaced,
    /// A first byte that is none of TLS: plain HTTP, most of the time.
    NotTls,
    /// Anything else against TLS.
    Protocol,
    /// The client refused us: it does not trust the certificate, or it is not for the name that was dialled.
    RefusedByClient,
    /// It was not over within `limits.head_timeout_ms`.
    TimedOut,
    /// The client speaks no version of TLS that we do.
    TlsVersion,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Good,
        Self::Alpn,
        Self::Closed,
        Self::Displaced,
        Self::NotTls,
        Self::Protocol,
        Self::RefusedByClient,
        Self::TimedOut,
        Self::TlsVersion,
    ];

    /// The word for metrics and logs.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Alpn => "alpn",
            Self::Closed => "closed",
            Self::Displaced => "displaced",
            Self::NotTls => "not_tls",
            Self::Protocol => "protocol",
            Self::RefusedByClient => "refused_by_client",
            Self::TimedOut => "timed_out",
            Self::TlsVersion => "tls_version",
        }
    }

    fn of(error: &HandshakeError) -> Self {
        let HandshakeError::Tls(fault) = error else { return Self::Closed };
        match (fault.origin(), fault.refusal()) {
            (_, Refusal::HandshakeTimeout) => Self::TimedOut,
            (Origin::Peer, _) => Self::RefusedByClient,
            (_, Refusal::TlsVersion) => Self::TlsVersion,
            (_, Refusal::WrongAlpn) => Self::Alpn,
            _ => Self::Protocol,
        }
    }
}

/// What was accepted and may be served.
#[derive(Debug)]
pub enum Greeted {
    /// A client that speaks what it should.
    Well(Wire),
    /// One that speaks plain HTTP where it should have spoken TLS, with what it said so far.
    Misdirected(Stream, BytesMut),
}

impl Greeted {
    /// The connection; a misdirected client's has one fault to tell it.
    #[must_use]
    pub fn open(self, limits: Rc<Limits>) -> Connection {
        match self {
            Self::Well(wire) => Connection::new(wire, limits),
            Self::Misdirected(stream, received) => Connection::misdirected(stream, received, limits),
        }
    }
}

/// One port of HTTPS on one shard.
#[derive(Debug)]
pub struct Door {
    going_on: RefCell<Crowd>,
    /// When the log last told of a failure.
    said: Cell<Option<Instant>>,
}

impl Door {
    /// With nobody at it.
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::new(Self { going_on: RefCell::new(Crowd::new(HANDSHAKES_MAX)), said: Cell::new(None) })
    }

    /// Shakes hands with what was accepted, in the time of a head; its place is taken at once. `None` = there is nobody to serve.
    pub fn greet(
        self: &Rc<Self>,
        state: Rc<ShardState>,
        stream: Stream,
        limits: &Limits,
    ) -> impl Future<Output = Option<Greeted>> + use<> {
        let door = Rc::clone(self);
        let until = clock::now() + limits.head_deadline;
        let (place, displaces) = door.going_on.borrow_mut().enter();
        if displaces {
            state.metrics.client_handshake(Outcome::Displaced);
        }
        async move {
            let peer = stream.peer_addr();
            let config = state.https.borrow().clone()?;
            // On the heap for as long as it lasts: an idle connection is to be small.
            let ended = {
                let shaking = boxed(|| handshake(stream, config, until));
                match select(shaking, pin!(place.displaced())).await {
                    Either::Left((ended, _)) => ended,
                    Either::Right(_) => return None,
                }
            };
            drop(place);
            let (outcome, greeted) = match ended {
                Ok(Handshake::Secure(secure)) => {
                    state.metrics.client_handshake(Outcome::Good);
                    return Some(Greeted::Well(Wire::Secure(secure)));
                }
                Ok(Handshake::Plain(stream, received)) => {
                    (Outcome::NotTls, Some(Greeted::Misdirected(stream, received)))
                }
                Err(error) => {
                    let outcome = Outcome::of(&error);
                    if door.may_speak(outcome) {
                        tracing::warn!(%peer, outcome = outcome.label(), %error, "a client's TLS handshake failed");
                    }
                    (outcome, None)
                }
            };
            state.metrics.client_handshake(outcome);
            greeted
        }
    }

    /// Whether a failure is worth a line now. Port scans and health checks say nothing and are none.
    fn may_speak(&self, outcome: Outcome) -> bool {
        let now = clock::now();
        let silent = matches!(outcome, Outcome::Closed | Outcome::TimedOut)
            || self.said.get().is_some_and(|said| now.saturating_duration_since(said) < PAUSE);
        if !silent {
            self.said.set(Some(now));
        }
        !silent
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use dataplane::tls::refusal::TlsFault;
    use rustls::AlertDescription;

    use super::*;

    #[test]
    fn labels_are_a_closed_set() {
        let labels: HashSet<_> = Outcome::ALL.iter().map(|outcome| outcome.label()).collect();
        assert_eq!(labels.len(), Outcome::ALL.len());
    }

    #[test]
    fn a_client_that_does_not_trust_us_is_told_from_one_that_breaks_tls() {
        let of = |error: rustls::Error| Outcome::of(&HandshakeError::Tls(error.into()));
        assert_eq!(of(rustls::Error::AlertReceived(AlertDescription::UnknownCA)), Outcome::RefusedByClient);
        assert_eq!(of(rustls::Error::NoApplicationProtocol), Outcome::Alpn);
        assert_eq!(of(rustls::Error::DecryptError), Outcome::Protocol);
        let late = TlsFault::local(Refusal::HandshakeTimeout);
        assert_eq!(Outcome::of(&HandshakeError::Tls(late)), Outcome::TimedOut);
        assert_eq!(Outcome::of(&HandshakeError::Closed), Outcome::Closed);
    }
}
