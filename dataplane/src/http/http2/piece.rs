//! Bytes on their way to a client, and how a stream learns that they are no more its own.

use std::{cell::Cell, rc::Rc};

use bytes::{Buf, Bytes};

use crate::local::Signal;

/// The bytes of one stream that the connection holds.
#[derive(Debug, Default)]
pub(super) struct Flight {
    pieces: Cell<usize>,
    landed: Signal,
}

impl Flight {
    /// Waits until the connection has passed on all of them, or thrown them away. One waiter at a time.
    pub(super) async fn landed(&self) {
        while self.pieces.get() > 0 {
            self.landed.wait().await;
        }
    }
}

/// A part of a response's body, from its stream until it stands before the socket.
#[derive(Debug)]
pub(super) struct Piece {
    bytes: Bytes,
    flight: Rc<Flight>,
}

impl Piece {
    pub(super) fn new(bytes: Bytes, flight: &Rc<Flight>) -> Self {
        flight.pieces.set(flight.pieces.get() + 1);
        Self { bytes, flight: Rc::clone(flight) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let left = self.flight.pieces.get().saturating_sub(1);
        self.flight.pieces.set(left);
        if left == 0 {
            self.flight.landed.set();
        }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}
