//! Large request bodies and run inputs in parts (WIR-9): cut by the sender, put together by the receiver.
//!
//! A body of at most [`INLINE_BODY_MAX`] bytes travels inside its request message. A longer one travels wholly as chunks
//! of at most [`CHUNK_BYTES_MAX`] bytes, and the request message holds none of it, so that a large prompt waits for credit
//! and never for a place in front of other runs.
//!
//! ```text
//!            first.len() == total                 Start::Complete
//!   new ───┬──────────────────────────────────────────────────────▶ done
//!          │ first.len() < total     push(last, sum == total)
//!          └──────────▶ Assembler ──────────────────────────────────▶ done
//!                        │   ▲ │ push(sum < total)
//!                        │   └─┘
//!                        └─ anything else ─▶ AssembleError, and the assembler is ended
//! ```

use alloc::{collections::VecDeque, vec::Vec};
use core::mem;

use bytes::Bytes;
use thiserror::Error;

pub use crate::limits::{BODY_BYTES_MAX, CHUNK_BYTES_MAX, INLINE_BODY_MAX};
use crate::message::{BodyChunk, StreamNo};

/// Cuts a body into the part that travels inside its request message and the part that follows as [`Chunks`].
///
/// One of the two is always empty: bodies of at most [`INLINE_BODY_MAX`] bytes go inline, longer ones wholly as chunks.
#[must_use]
pub fn split_body(body: Bytes) -> (Bytes, Bytes) {
    if body.len() <= INLINE_BODY_MAX { (body, Bytes::new()) } else { (Bytes::new(), body) }
}

/// The chunks of a body, in order, each a slice of it that shares its memory. The last one is marked; an empty body has
/// none.
#[derive(Clone, Debug)]
pub struct Chunks {
    stream: StreamNo,
    /// None of them empty.
    rest: VecDeque<Bytes>,
    bytes_left: usize,
}

impl Chunks {
    /// The chunks of `rest`, the second part of [`split_body`], for one run.
    #[must_use]
    pub fn new(stream: StreamNo, rest: Bytes) -> Self {
        Self::of_pieces(stream, [rest])
    }

    /// The chunks of a body that is held in pieces, for one run. A chunk ends where its piece ends.
    #[must_use]
    pub fn of_pieces(stream: StreamNo, pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let rest: VecDeque<_> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let bytes_left = rest.iter().map(Bytes::len).sum();
        Self { stream, rest, bytes_left }
    }

    /// Bytes that no chunk has carried yet.
    #[must_use]
    pub const fn bytes_left(&self) -> usize {
        self.bytes_left
    }

    /// The next chunk with at most `bytes_max` bytes of data, for a sender that holds less credit than a whole chunk;
    /// `None` when nothing is left or `bytes_max` is 0.
    pub fn next_within(&mut self, bytes_max: usize) -> Option<BodyChunk> {
        let piece = self.rest.front_mut()?;
        let len = piece.len().min(CHUNK_BYTES_MAX).min(bytes_max);
        if len == 0 {
            return None;
        }
        let data = piece.split_to(len);
        if piece.is_empty() {
            self.rest.pop_front();
        }
        self.bytes_left -= len;
        Some(BodyChunk { stream: self.stream, data, last: self.bytes_left == 0 })
    }
}

impl Iterator for Chunks {
    type Item = BodyChunk;

    fn next(&mut self) -> Option<BodyChunk> {
        self.next_within(CHUNK_BYTES_MAX)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let chunks = self.rest.iter().map(|piece| piece.len().div_ceil(CHUNK_BYTES_MAX)).sum();
        (chunks, Some(chunks))
    }
}

impl ExactSizeIterator for Chunks {}

/// Why the parts of a body do not make the body that was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AssembleError {
    /// The announced length is over the bound.
    #[error("the body has {total} bytes, at most {max} are allowed")]
    TooLarge {
        /// What the request announced.
        total: u64,
        /// The bound.
        max: u64,
    },
    /// More bytes than announced, or all of them without the mark of the last chunk.
    #[error("the parts hold {received} bytes and more may follow, {total} were announced")]
    LengthMismatch {
        /// What arrived, this part included.
        received: u64,
        /// What the request announced.
        total: u64,
    },
    /// The last chunk came before the announced length was reached.
    #[error("the last chunk came after {received} of {total} bytes")]
    LastTooEarly {
        /// What arrived, this part included.
        received: u64,
        /// What the request announced.
        total: u64,
    },
    /// A chunk of 0 or of more than [`CHUNK_BYTES_MAX`] bytes.
    #[error("a chunk has {0} bytes, 1 to {CHUNK_BYTES_MAX} are allowed")]
    ChunkSize(usize),
    /// A chunk after the last one or after an error.
    #[error("a chunk came after the last one")]
    AfterLast,
}

/// What [`Assembler::new`] found.
#[derive(Debug)]
pub enum Start {
    /// The request message held the whole body; no chunk follows.
    Complete(Bytes),
    /// Chunks follow.
    Partial(Assembler),
}

/// What a chunk led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More chunks follow.
    More {
        /// Bytes so far.
        received: u64,
    },
    /// The whole body.
    Complete(Bytes),
}

/// Puts one body together. Holds at most the announced length.
#[derive(Debug)]
pub struct Assembler {
    total: usize,
    parts: Vec<u8>,
    ended: bool,
}

impl Assembler {
    /// Begins with the length that the request announced and the part that it held.
    ///
    /// # Errors
    /// [`AssembleError::TooLarge`] when `total` is over `body_bytes_max`, [`AssembleError::LengthMismatch`] when `first` is
    /// longer than `total`.
    #[expect(clippy::new_ret_no_self, reason = "a body that is whole at once needs no assembler")]
    pub fn new(total: u64, first: Bytes, body_bytes_max: u64) -> Result<Start, AssembleError> {
        let too_large = AssembleError::TooLarge { total, max: body_bytes_max };
        if total > body_bytes_max {
            return Err(too_large);
        }
        let received = first.len() as u64;
        if received > total {
            return Err(AssembleError::LengthMismatch { received, total });
        }
        if received == total {
            return Ok(Start::Complete(first));
        }
        let total = usize::try_from(total).map_err(|_| too_large)?;
        let mut assembler = Self { total, parts: Vec::new(), ended: false };
        assembler.append(&first);
        Ok(Start::Partial(assembler))
    }

    /// Takes the next chunk.
    ///
    /// # Errors
    /// [`AssembleError`] when the chunk does not fit; the assembler is ended then and each further chunk is
    /// [`AssembleError::AfterLast`].
    pub fn push(&mut self, chunk: &BodyChunk) -> Result<Progress, AssembleError> {
        if self.ended {
            return Err(AssembleError::AfterLast);
        }
        self.ended = true;
        let len = chunk.data.len();
        if len == 0 || len > CHUNK_BYTES_MAX {
            return Err(AssembleError::ChunkSize(len));
        }
        let sum = self.parts.len() + len;
        let (received, total) = (sum as u64, self.total as u64);
        if sum > self.total || (sum == self.total && !chunk.last) {
            return Err(AssembleError::LengthMismatch { received, total });
        }
        if sum < self.total && chunk.last {
            return Err(AssembleError::LastTooEarly { received, total });
        }
        self.append(&chunk.data);
        if chunk.last {
            return Ok(Progress::Complete(Bytes::from(mem::take(&mut self.parts))));
        }
        self.ended = false;
        Ok(Progress::More { received })
    }

    /// The first part makes room for all: pages that nothing is written to cost nothing, so a claimed length alone takes no
    /// memory, and a body that grew by doubling would be copied, megabytes at a time, while everything else waits.
    fn append(&mut self, part: &[u8]) {
        if self.parts.capacity() == 0 && !part.is_empty() {
            self.parts.reserve_exact(self.total);
        }
        self.parts.extend_from_slice(part);
    }
}
