//! The coded bytes of a body, taken from its beginning; what has been taken is let go.

use std::io::{self, Read};

use bytes::{Buf, Bytes};

use crate::http::body::Body;

/// What is left of a body.
#[derive(Debug)]
pub(super) struct Source {
    /// None of them empty; the next one last.
    pieces: Vec<Bytes>,
}

impl Source {
    pub(super) fn new(body: Body) -> Self {
        let mut pieces = body.into_pieces();
        pieces.reverse();
        Self { pieces }
    }

    /// The bytes that come next, as far as they lie together; empty only at the end.
    pub(super) fn chunk(&self) -> &[u8] {
        self.pieces.last().map_or(&[], |piece| piece)
    }

    /// Takes `count` bytes of the chunk.
    pub(super) fn advance(&mut self, count: usize) {
        let Some(piece) = self.pieces.last_mut() else { return };
        piece.advance(count.min(piece.len()));
        if piece.is_empty() {
            self.pieces.pop();
        }
    }

    /// Takes one byte.
    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = *self.chunk().first()?;
        self.advance(1);
        Some(byte)
    }

    /// Takes `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.byte()?;
        }
        Some(bytes)
    }

    /// The first bytes, up to `N` of them, without taking them.
    pub(super) fn peek<const N: usize>(&self) -> ([u8; N], usize) {
        let mut bytes = [0; N];
        let mut count = 0;
        let ahead = self.pieces.iter().rev().flat_map(|piece| piece.iter());
        for (to, from) in bytes.iter_mut().zip(ahead) {
            *to = *from;
            count += 1;
        }
        (bytes, count)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

impl Read for Source {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let chunk = self.chunk();
        let count = chunk.len().min(into.len());
        for (to, from) in into.iter_mut().zip(chunk) {
            *to = *from;
        }
        self.advance(count);
        Ok(count)
    }
}
