//! What arrives on a link: judged, and handed to the owner.

use std::time::Instant;

use proto::message::{Credit, Message, StreamNo};
use thiserror::Error;

use super::{LinkFault, Mux, schedule, stream_of};
use crate::relay::{
    credit::{CreditExceeded, CreditOverflow, cost},
    heartbeat::Beat,
    sequence::Violation,
};

/// What one arrived message is to the owner.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// Registration, readiness, requests, commands, goodbye: for the owner to act on.
    Control(Message),
    /// A tunnel frame, run event or body chunk of an open stream, in sequence and within credit. The owner gives `cost`
    /// bytes back with [`Mux::release`] once it no longer holds them.
    Data {
        /// Its stream.
        stream: StreamNo,
        /// Itself.
        message: Message,
        /// What it used of the window; 0 for frames without payload.
        cost: usize,
    },
    /// The peer drained: [`Mux::sendable`] has grown.
    Credit {
        /// Its stream.
        stream: StreamNo,
    },
    /// The peer wants an open stream stopped.
    Cancel {
        /// Its stream.
        stream: StreamNo,
    },
    /// The peer broke the rules of one stream. Nothing of this stream is passed on any more; its owner cancels and closes.
    StreamFault {
        /// Its stream.
        stream: StreamNo,
        /// How.
        fault: StreamFault,
    },
    /// Nothing to do: a heartbeat, a message of a newer build, or one for a stream that is gone.
    Ignored,
}

/// How a peer broke the rules of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StreamFault {
    /// Out of order (TUN-2).
    #[error(transparent)]
    Sequence(#[from] Violation),
    /// More data than credit (WIR-6).
    #[error(transparent)]
    CreditExceeded(#[from] CreditExceeded),
    /// More credit than there can be.
    #[error(transparent)]
    CreditOverflow(#[from] CreditOverflow),
}

impl Mux {
    /// Takes the next message of the peer.
    ///
    /// # Errors
    /// [`LinkFault`]: the link must be closed.
    pub fn handle(&mut self, now: Instant, message: Message) -> Result<Incoming, LinkFault> {
        self.stats.received += 1;
        match message {
            Message::TunnelFrame(_) | Message::RunEvent(_) | Message::BodyChunk(_) => {
                Ok(self.handle_data(message))
            }
            Message::Credit(credit) => Ok(self.handle_credit(credit)),
            Message::Cancel(cancel) => Ok(self.handle_cancel(cancel.stream)),
            Message::HeartbeatPing => {
                self.pong_due = true;
                Ok(Incoming::Ignored)
            }
            Message::HeartbeatPong => {
                self.heartbeat.handle_pong(now);
                Ok(Incoming::Ignored)
            }
            Message::Unknown => {
                self.stats.unknown += 1;
                Ok(Incoming::Ignored)
            }
            Message::RunRequest(ref request) => self.handle_request(request.stream, message),
            Message::TunnelRequest(ref request) => self.handle_request(request.stream, message),
            control => Ok(Incoming::Control(control)),
        }
    }

    fn late(&mut self) -> Incoming {
        self.stats.late += 1;
        Incoming::Ignored
    }

    fn handle_request(&mut self, stream: StreamNo, message: Message) -> Result<Incoming, LinkFault> {
        if stream <= self.last_request {
            return Err(LinkFault::StreamReused(stream));
        }
        self.last_request = stream;
        Ok(Incoming::Control(message))
    }

    fn handle_cancel(&mut self, stream: StreamNo) -> Incoming {
        match self.streams.get_mut(&stream) {
            Some(found) if !found.finishing => Incoming::Cancel { stream },
            Some(found) => {
                // Its owner is done, and no credit will come for what still waits: only the terminal is of any use.
                found.outbox.discard_before_end();
                schedule(&mut self.ready, stream, &mut found.scheduled);
                Incoming::Ignored
            }
            None => self.late(),
        }
    }

    fn handle_data(&mut self, message: Message) -> Incoming {
        let Some(stream) = stream_of(&message) else { return self.late() };
        let Some(found) = self.streams.get_mut(&stream).filter(|found| !found.deaf) else {
            return self.late();
        };
        let cost = cost(&message);
        // Sequence first: a frame that is none must not use up credit that nobody will give back.
        let checked = found.sequence.handle(&message).map_err(StreamFault::from);
        match checked.and_then(|()| found.receive.handle_data(cost).map_err(StreamFault::from)) {
            Ok(()) => Incoming::Data { stream, message, cost },
            Err(fault) => {
                found.deaf = true;
                Incoming::StreamFault { stream, fault }
            }
        }
    }

    fn handle_credit(&mut self, credit: Credit) -> Incoming {
        let stream = credit.stream;
        let Some(found) = self.streams.get_mut(&stream) else { return self.late() };
        if let Err(fault) = found.send.handle_credit(credit.bytes) {
            found.deaf = true;
            return Incoming::StreamFault { stream, fault: fault.into() };
        }
        if !found.outbox.is_empty() {
            schedule(&mut self.ready, stream, &mut found.scheduled);
        }
        if found.finishing { Incoming::Ignored } else { Incoming::Credit { stream } }
    }

    /// When [`Self::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        self.heartbeat.poll_timeout()
    }

    /// Does what is due at `now`. `true` when there is a heartbeat to send.
    ///
    /// # Errors
    /// [`LinkFault::HeartbeatTimeout`]: the link must be closed.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<bool, LinkFault> {
        match self.heartbeat.handle_timeout(now) {
            None => Ok(false),
            Some(Beat::Ping) => {
                self.ping_due = true;
                Ok(true)
            }
            Some(Beat::Dead) => Err(LinkFault::HeartbeatTimeout),
        }
    }
}
