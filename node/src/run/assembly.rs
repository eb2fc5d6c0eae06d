//! Request bodies and run inputs that come in parts, and how much memory all of them together may take (WIR-9).

use std::{cell::Cell, rc::Rc};

use bytes::Bytes;
use proto::{
    body::{AssembleError, Assembler, Progress, Start},
    limits::BODY_BYTES_CONFIGURED_MAX,
    message::ErrorKind,
};

use super::{
    control::RunControl,
    terminal::{Failed, Terminal},
};

/// What a body may grow by when the Edge puts the provider's name of the model into it.
const RENAMED_BYTES: u64 = 4096;
/// Announced bytes of all bodies that are being put together at one time: eight of the largest that clients may send unless
/// the Edge is configured otherwise. A further body is answered with `busy`: nothing ran.
pub const ASSEMBLING_BYTES_MAX: u64 = BODY_BYTES_CONFIGURED_MAX + 8 * RENAMED_BYTES;

/// The bound, shared by everything on a shard. Cloning shares it.
#[derive(Clone, Debug)]
pub struct AssemblyBudget(Rc<State>);

#[derive(Debug)]
struct State {
    max: u64,
    reserved: Cell<u64>,
}

/// A part of the budget; its drop gives it back.
#[derive(Debug)]
pub struct Reservation {
    state: Rc<State>,
    bytes: u64,
}

impl AssemblyBudget {
    /// A budget of `max` bytes.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self(Rc::new(State { max, reserved: Cell::new(0) }))
    }

    /// Room for a body of `bytes` bytes, or `None` when there is none.
    #[must_use]
    pub fn reserve(&self, bytes: u64) -> Option<Reservation> {
        let reserved = self.0.reserved.get().checked_add(bytes).filter(|sum| *sum <= self.0.max)?;
        self.0.reserved.set(reserved);
        Some(Reservation { state: Rc::clone(&self.0), bytes })
    }

    /// Bytes that are reserved now.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.0.reserved.get()
    }
}

/// The whole of a body or input of `total` bytes that begins with `first`. Credit goes back as parts are copied.
///
/// # Errors
/// [`ErrorKind::InvalidRequest`]: the parts are not what was announced.
pub async fn whole(
    control: &RunControl,
    terminal: &Terminal,
    first: Bytes,
    total: u64,
) -> Result<Bytes, Failed> {
    let mut assembler = match Assembler::new(total, first, ASSEMBLING_BYTES_MAX).map_err(invalid)? {
        Start::Complete(body) => return Ok(body),
        Start::Partial(assembler) => assembler,
    };
    loop {
        let chunk = control.chunks.pop().await;
        let progress = assembler.push(&chunk).map_err(invalid)?;
        terminal.release(chunk.data.len());
        if let Progress::Complete(body) = progress {
            return Ok(body);
        }
    }
}

fn invalid(error: AssembleError) -> Failed {
    Failed::error(ErrorKind::InvalidRequest, error)
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.state.reserved.set(self.state.reserved.get().saturating_sub(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: WIR-9
    #[test]
    fn bodies_together_are_bounded_and_a_dropped_one_makes_room() {
        let budget = AssemblyBudget::new(100);
        let first = budget.reserve(60).unwrap();
        assert!(budget.reserve(41).is_none());
        assert!(budget.reserve(u64::MAX).is_none());
        let _second = budget.reserve(40).unwrap();
        drop(first);
        assert_eq!(budget.reserved(), 40);
        assert!(budget.reserve(60).is_some());
    }
}
