//! Reading a request's body whole, under a size limit and a minimum rate.

use std::{io, time::Instant};

use bytes::{Bytes, BytesMut};

use super::Connection;
use crate::{
    clock,
    http::h1::{
        body::{BodyFault, Decoded},
        encode::CONTINUE,
    },
    time::{before, yield_now},
};

/// Most bytes asked for at a time.
const READ: usize = 64 * 1024;
/// Reads after which other tasks of the shard have their turn.
const READS_PER_TURN: u32 = 16;

/// Why there is no body. The caller may answer once, where [`ReadFault::status`] says with what, and must close the
/// connection.
#[derive(Debug, thiserror::Error)]
pub enum ReadFault {
    /// Over the size limit.
    #[error("the request body is too large")]
    TooLarge,
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
            Self::TimedOut => Some(408),
            Self::Malformed(_) | Self::Truncated => Some(400),
            Self::Broken(_) => None,
        }
    }
}

/// The minimum rate: each window must bring its share, or the end of the body.
struct Pace {
    deadline: Instant,
    received: u64,
}

impl Connection {
    /// The body of the current request, at most `max` bytes; empty when there is none or it was read already. A client that
    /// waits for `100 Continue` gets it here, and only when the announced length is within `max`.
    ///
    /// Memory grows with what arrives. When the future is dropped what was read of a chunked body is lost, so drop it only
    /// to close the connection.
    ///
    /// # Errors
    /// The body is too large, too slow, malformed or cut short.
    pub async fn read_body(&mut self, max: usize) -> Result<Bytes, ReadFault> {
        let read = self.read_whole(max).await;
        if read.is_err() {
            self.persist = false;
            self.linger = true;
        }
        read
    }

    async fn read_whole(&mut self, max: usize) -> Result<Bytes, ReadFault> {
        let announced = self.body.remaining();
        if announced.is_some_and(|length| length > max as u64) {
            return Err(ReadFault::TooLarge);
        }
        if std::mem::take(&mut self.expects) && self.buf.is_empty() {
            self.out.extend_from_slice(CONTINUE);
            self.flush().await.map_err(|fault| ReadFault::Broken(io::Error::other(fault)))?;
        }
        let mut pace = Pace { deadline: clock::now() + self.limits.body_grace, received: 0 };
        match announced.and_then(|length| usize::try_from(length).ok()) {
            Some(length) => self.read_known(length, &mut pace).await,
            None => self.read_chunked(max, &mut pace).await,
        }
    }

    /// Lets the body grow in the receive buffer and cuts it off there, without a copy.
    async fn read_known(&mut self, length: usize, pace: &mut Pace) -> Result<Bytes, ReadFault> {
        let mut reads = 0;
        while self.buf.len() < length {
            let missing = length - self.buf.len();
            if missing / 3 <= self.buf.len() {
                self.buf.reserve(missing);
            }
            self.receive(missing.min(READ), pace, &mut reads).await?;
        }
        let mut body = self.buf.split_to(length);
        self.release_empty();
        match self.body.decode(&mut body)? {
            Decoded::Data(body) => Ok(body),
            Decoded::NeedMore | Decoded::End => Ok(Bytes::new()),
        }
    }

    async fn read_chunked(&mut self, max: usize, pace: &mut Pace) -> Result<Bytes, ReadFault> {
        let mut only = Bytes::new();
        let mut whole = BytesMut::new();
        let mut reads = 0;
        loop {
            match self.body.decode(&mut self.buf)? {
                Decoded::Data(piece) if only.len() + whole.len() + piece.len() > max => {
                    return Err(ReadFault::TooLarge);
                }
                Decoded::Data(piece) if only.is_empty() && whole.is_empty() => only = piece,
                Decoded::Data(piece) => {
                    whole.extend_from_slice(&std::mem::take(&mut only));
                    whole.extend_from_slice(&piece);
                }
                Decoded::NeedMore => self.receive(READ, pace, &mut reads).await?,
                Decoded::End => {
                    self.release_empty();
                    return Ok(if whole.is_empty() { only } else { whole.freeze() });
                }
            }
        }
    }

    /// Receives at least one byte in time.
    async fn receive(&mut self, most: usize, pace: &mut Pace, reads: &mut u32) -> Result<(), ReadFault> {
        let window = u64::try_from(self.limits.body_grace.as_millis()).unwrap_or(u64::MAX);
        let share = self.limits.body_min_rate.saturating_mul(window) / 1000;
        loop {
            let received = match self.stream.try_read(&mut self.buf, most) {
                Ok(None) => {
                    before(pace.deadline, self.stream.readable())
                        .await
                        .ok_or(ReadFault::TimedOut)?
                        .map_err(ReadFault::Broken)?;
                    continue;
                }
                Ok(Some(0)) => return Err(ReadFault::Truncated),
                Ok(Some(n)) => n as u64,
                Err(error) => return Err(ReadFault::Broken(error)),
            };
            pace.received += received;
            let now = clock::now();
            if pace.received >= share {
                pace.received = 0;
                pace.deadline = now + self.limits.body_grace;
            } else if now >= pace.deadline {
                return Err(ReadFault::TimedOut);
            }
            *reads += 1;
            if reads.is_multiple_of(READS_PER_TURN) {
                yield_now().await;
            }
            return Ok(());
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
                Ok(Decoded::NeedMore) => match self.stream.try_read(&mut self.buf, READ) {
                    Ok(Some(n)) if n > 0 => {}
                    _ => return false,
                },
                Err(_) => return false,
            }
        }
    }
}
