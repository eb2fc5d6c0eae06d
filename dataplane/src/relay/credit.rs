//! Flow control of one stream (WIR-6): what a frame costs, what may be sent, what may arrive.
//!
//! Both ends count with [`cost`], so they always agree. Credit starts as the window named in the request message and
//! comes back in [`Credit`](proto::message::Credit) messages. The receiver gives it back in pieces of at least half a
//! window: fewer messages, and a sender whose frame costs at most half a window is never stuck for want of the rest.

use proto::message::{Message, RunEventKind, TunnelFrameKind};
use thiserror::Error;

/// Credit that one message uses, in bytes: the payload that a slow receiver would have to hold. A tunnel's body bytes, a
/// delta's text and reasoning, a chunk's data; 0 for everything else.
#[must_use]
pub fn cost(message: &Message) -> usize {
    match message {
        Message::TunnelFrame(frame) => match &frame.kind {
            TunnelFrameKind::Body(body) => body.len(),
            _ => 0,
        },
        Message::RunEvent(event) => event_cost(&event.kind),
        Message::BodyChunk(chunk) => chunk.data.len(),
        _ => 0,
    }
}

/// [`cost`] of a run event.
pub(super) fn event_cost(kind: &RunEventKind) -> usize {
    match kind {
        RunEventKind::Delta { text, reasoning } => text.len() + reasoning.len(),
        _ => 0,
    }
}

/// A peer granted so much that the sum does not fit: a defect of the peer, the end of that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the peer granted more credit than a window can hold")]
pub struct CreditOverflow;

/// A peer sent more than its credit: a defect of the peer, the end of that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the peer sent {sent} bytes with a credit of {credit}")]
pub struct CreditExceeded {
    /// Cost of the message that went too far.
    pub sent: usize,
    /// What the peer had left.
    pub credit: u32,
}

/// The sending end: how much the peer is ready to take.
#[derive(Clone, Copy, Debug)]
pub struct SendWindow {
    window: u32,
    credit: u32,
}

impl SendWindow {
    /// A full window of `window` bytes.
    #[must_use]
    pub const fn new(window: u32) -> Self {
        Self { window, credit: window }
    }

    /// The window that it started with: also the bound of what a stream may have queued.
    #[must_use]
    pub const fn window(&self) -> usize {
        self.window as usize
    }

    /// Bytes that may be sent now.
    #[must_use]
    pub const fn credit(&self) -> usize {
        self.credit as usize
    }

    /// Uses `bytes` of the credit; `false`, and nothing used, when there is less.
    #[must_use]
    pub fn consume(&mut self, bytes: usize) -> bool {
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.credit.checked_sub(bytes));
        left.is_some_and(|left| {
            self.credit = left;
            true
        })
    }

    /// Takes a grant of the peer.
    ///
    /// # Errors
    /// The sum is over `u32::MAX`; the credit stays as it was.
    pub fn handle_credit(&mut self, bytes: u32) -> Result<(), CreditOverflow> {
        self.credit = self.credit.checked_add(bytes).ok_or(CreditOverflow)?;
        Ok(())
    }
}

/// The receiving end: how much the peer may still send, and what it gets back.
///
/// `credit + released + what the owner holds = window`, always; so the owner holds at most a window.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWindow {
    window: u32,
    credit: u32,
    released: u32,
}

impl ReceiveWindow {
    /// A full window of `window` bytes.
    #[must_use]
    pub const fn new(window: u32) -> Self {
        Self { window, credit: window, released: 0 }
    }

    /// Bytes that arrived and were not released: what the owner holds.
    #[must_use]
    pub const fn held(&self) -> u32 {
        self.window - self.credit - self.released
    }

    /// Takes note of an arrived message that costs `bytes`.
    ///
    /// # Errors
    /// It is more than the peer was granted; the window stays as it was.
    pub fn handle_data(&mut self, bytes: usize) -> Result<(), CreditExceeded> {
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.credit.checked_sub(bytes));
        self.credit = left.ok_or(CreditExceeded { sent: bytes, credit: self.credit })?;
        Ok(())
    }

    /// The owner is done with `bytes` of what it holds. `true` when enough is released to be given back with
    /// [`Self::take_grant`]. More than is held counts as all of it.
    pub fn release(&mut self, bytes: usize) -> bool {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.held());
        self.released += bytes;
        self.grant_is_due()
    }

    /// Whether at least half a window waits to be given back.
    #[must_use]
    pub const fn grant_is_due(&self) -> bool {
        self.released > 0 && self.released >= self.window / 2
    }

    /// Gives everything released back to the peer: the bytes of the credit message to send, 0 for none.
    #[must_use]
    pub fn take_grant(&mut self) -> u32 {
        let grant = std::mem::take(&mut self.released);
        self.credit += grant;
        grant
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_used_up_and_comes_back() {
        let mut send = SendWindow::new(100);
        assert!(send.consume(60) && !send.consume(41) && send.consume(40));
        assert_eq!(send.credit(), 0);
        send.handle_credit(50).unwrap();
        assert_eq!(send.credit(), 50);
    }

    #[test]
    fn a_grant_that_does_not_fit_is_a_fault_and_changes_nothing() {
        let mut send = SendWindow::new(100);
        assert_eq!(send.handle_credit(u32::MAX), Err(CreditOverflow));
        assert_eq!(send.credit(), 100);
        assert!(!send.consume(usize::MAX));
    }

    // req: WIR-6
    #[test]
    fn the_receiver_gives_back_at_half_a_window_and_not_before() {
        let mut receive = ReceiveWindow::new(100);
        receive.handle_data(100).unwrap();
        assert_eq!(receive.held(), 100);
        assert!(!receive.release(49));
        assert!(receive.release(1));
        assert_eq!(receive.take_grant(), 50);
        assert_eq!(receive.take_grant(), 0);
        assert_eq!(receive.held(), 50);
    }

    // req: WIR-6
    #[test]
    fn a_peer_that_sends_more_than_its_credit_is_found_out_at_once() {
        let mut receive = ReceiveWindow::new(100);
        receive.handle_data(90).unwrap();
        assert_eq!(receive.handle_data(11), Err(CreditExceeded { sent: 11, credit: 10 }));
        // Released but not yet granted bytes are not the peer's to use.
        receive.release(40);
        assert_eq!(receive.handle_data(11), Err(CreditExceeded { sent: 11, credit: 10 }));
        receive.handle_data(10).unwrap();
    }

    #[test]
    fn an_owner_cannot_release_more_than_it_holds() {
        let mut receive = ReceiveWindow::new(100);
        receive.handle_data(60).unwrap();
        assert!(receive.release(1_000_000));
        assert_eq!((receive.held(), receive.take_grant()), (0, 60));
    }
}
