//! Reading a request's body whole, under a size limit, a minimum rate and the process's budget of memory.

use std::{io, time::Instant};

use bytes::BytesMut;

use super::{Http1, Wire};
use crate::{
    clock,
    http::{
        body::Body,
        budget::{Budget, Piece},
        h1::{
            body::{BodyFault, Decoded},
            encode::CONTINUE,
        },
        limits::Limits,
    },
    time::{before, yield_now},
};

/// Most bytes asked for at a time.
const READ: usize = 64 * 1024;
/// Reads after which other tasks of the shard have their turn.
const READS_PER_TURN: u32 = 4;

/// Why there is no body. The caller may answer once, where [`ReadFault::status`] says with what, and must close the
/// connection.
#[derive(Debug, thiserror::Error)]
pub enum ReadFault {
    /// Over the size limit.
    #[error("the request body is too large")]
    TooLarge,
    /// The process's budget is used up by other bodies.
    #[error("there is no memory left for another request body")]
    NoRoom,
    /// Slower than the minimum rate.
    #[error("the request body did not come in time")]
    TimedOut,
    /// The chunked coding is malformed.
    #[error("malformed request body: {0}")]
    Malformed(#[from] BodyFault),
    /// The client closed before the body's end.
    #[error("the connection ended inside a request body")]
    Truncated,
    /// The connection broke.
    #[error("the connection broke")]
    Broken(#[source] io::Error),
}

impl ReadFault {
    /// Status to answer with; `None` when nobody would read it.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::TooLarge => Some(413),
            Self::NoRoom => Some(503),
            Self::TimedOut => Some(408),
            Self::Malformed(_) | Self::Truncated => Some(400),
            Self::Broken(_) => None,
        }
    }
}

/// The minimum rate: each window must bring its share, or the end of the body.
pub(in crate::http) struct Pace {
    deadline: Instant,
    received: u64,
    reads: u32,
}

impl Pace {
    /// The first window begins now.
    pub(in crate::http) fn new(limits: &Limits) -> Self {
        Self { deadline: clock::now() + limits.body_grace, received: 0, reads: 0 }
    }

    /// By when the window's share must have come.
    pub(in crate::http) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Takes note of bytes that came, and lets others have their turn now and then.
    pub(in crate::http) async fn took(&mut self, received: usize, limits: &Limits) -> Result<(), ReadFault> {
        let window = u64::try_from(limits.body_grace.as_millis()).unwrap_or(u64::MAX);
        let share = limits.body_min_rate.saturating_mul(window) / 1000;
        self.received += received as u64;
        let now = clock::now();
        if self.received >= share {
            self.received = 0;
            self.deadline = now + limits.body_grace;
        } else if now >= self.deadline {
            return Err(ReadFault::TimedOut);
        }
        self.reads += 1;
        if self.reads.is_multiple_of(READS_PER_TURN) {
            yield_now().await;
        }
        Ok(())
    }

    /// Waits in time until there is something to receive: until then a body takes no memory.
    async fn stirs(&self, wire: &Wire) -> Result<(), ReadFault> {
        let ready = before(self.deadline, wire.readable()).await.ok_or(ReadFault::TimedOut)?;
        ready.map_err(ReadFault::Broken)
    }

    /// Receives at least one byte in time.
    async fn receive(
        &mut self,
        wire: &Wire,
        limits: &Limits,
        into: &mut BytesMut,
        most: usize,
    ) -> Result<(), ReadFault> {
        let received = loop {
            match wire.try_read(into, most) {
                Ok(None) => self.stirs(wire).await?,
                Ok(Some(0)) => return Err(ReadFault::Truncated),
                Ok(Some(n)) => break n,
                Err(error) => return Err(ReadFault::Broken(error)),
            }
        };
        self.took(received, limits).await
    }
}

impl Http1 {
    /// As [`Connection::read_body`](super::Connection::read_body).
    pub(super) async fn read_body(&mut self, max: usize, budget: &Budget) -> Result<Body, ReadFault> {
        let read = self.read_whole(max, budget).await;
        if read.is_err() {
            self.persist = false;
            self.linger = true;
        }
        read
    }

    async fn read_whole(&mut self, max: usize, budget: &Budget) -> Result<Body, ReadFault> {
        let announced = self.body.remaining();
        if announced.is_some_and(|length| length > max as u64) {
            return Err(ReadFault::TooLarge);
        }
        // Better now than after most of it was sent.
        if !budget.has_room(announced.unwrap_or(1)) {
            return Err(ReadFault::NoRoom);
        }
        if std::mem::take(&mut self.expects) && self.buf.is_empty() {
            self.out.extend_from_slice(CONTINUE);
            self.flush().await.map_err(|fault| ReadFault::Broken(io::Error::other(fault)))?;
        }
        let mut pace = Pace::new(&self.limits);
        let body = match announced.and_then(|length| usize::try_from(length).ok()) {
            Some(length) => self.read_known(length, budget, &mut pace).await?,
            None => self.read_chunked(max, budget, &mut pace).await?,
        };
        self.release_empty();
        Ok(body)
    }

    /// Receives into the body's pieces, without a copy but for what came with the head.
    async fn read_known(
        &mut self,
        length: usize,
        budget: &Budget,
        pace: &mut Pace,
    ) -> Result<Body, ReadFault> {
        let mut body = Body::default();
        while body.len() < length {
            if self.buf.is_empty() {
                pace.stirs(&self.wire).await?;
            }
            let mut piece = Piece::next(budget, body.len(), length - body.len()).ok_or(ReadFault::NoRoom)?;
            let early = self.buf.len().min(piece.missing());
            piece.extend(&self.buf.split_to(early));
            while piece.missing() > 0 {
                let most = piece.missing().min(READ);
                pace.receive(&self.wire, &self.limits, piece.bytes(), most).await?;
            }
            self.body.skip(piece.len());
            piece.push_to(&mut body);
        }
        Ok(body)
    }

    /// Copies what the chunks hold into the body's pieces, so that the smallest chunks cost no more than others.
    async fn read_chunked(
        &mut self,
        max: usize,
        budget: &Budget,
        pace: &mut Pace,
    ) -> Result<Body, ReadFault> {
        let mut body = Body::default();
        let mut filling: Option<Piece> = None;
        loop {
            match self.body.decode(&mut self.buf)? {
                Decoded::Data(mut data) => {
                    while !data.is_empty() {
                        let mut piece = match filling.take() {
                            Some(piece) => piece,
                            None if body.len() >= max => return Err(ReadFault::TooLarge),
                            None => {
                                Piece::next(budget, body.len(), max - body.len()).ok_or(ReadFault::NoRoom)?
                            }
                        };
                        piece.extend(&data.split_to(data.len().min(piece.missing())));
                        if piece.missing() > 0 {
                            filling = Some(piece);
                        } else {
                            piece.push_to(&mut body);
                        }
                    }
                }
                Decoded::NeedMore => {
                    pace.receive(&self.wire, &self.limits, &mut self.buf, READ).await?;
                }
                Decoded::End => {
                    if let Some(last) = filling {
                        last.push_to(&mut body);
                    }
                    return Ok(body);
                }
            }
        }
    }

    /// Before a response begins: throws away the rest of the request body where it is there already and small, and
    /// otherwise gives the connection up, because the rest would be read as the next request.
    pub(super) fn settle_body(&mut self) {
        if self.body.is_end() {
            return;
        }
        if !self.persist || self.expects || !self.drain_body() {
            self.persist = false;
            self.linger = true;
        }
    }

    /// Whether the body is at its end now.
    fn drain_body(&mut self) -> bool {
        let mut budget = self.limits.drain_bytes;
        if self.body.remaining().is_some_and(|left| left > budget as u64) {
            return false;
        }
        loop {
            match self.body.decode(&mut self.buf) {
                Ok(Decoded::End) => return true,
                Ok(Decoded::Data(piece)) => match budget.checked_sub(piece.len()) {
                    Some(left) => budget = left,
                    None => return false,
                },
                Ok(Decoded::NeedMore) => match self.wire.try_read(&mut self.buf, READ) {
                    Ok(Some(n)) if n > 0 => {}
                    _ => return false,
                },
                Err(_) => return false,
            }
        }
    }
}
