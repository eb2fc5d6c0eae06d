//! The ways a connection ends.

use bytes::BytesMut;

use super::{Http1, response::Writing};
use crate::{clock, time::before};

/// Bytes thrown away at a time.
const DISCARD: usize = 64 * 1024;

impl Http1 {
    /// What is pending is written, then FIN, under TLS behind close_notify. Where unread input is to be expected it is thrown away for a while, because closing
    /// over it would reset the connection and take the answer from the client. A body that nothing but the end of the connection
    /// ends is reset instead, where it was not finished.
    pub(super) async fn close(mut self) {
        // It would hold the socket until its cancellation is through.
        self.watch = None;
        let written = self.flush().await.is_ok() && self.writing != Writing::UntilClose;
        if !written || self.wire.say_goodbye(self.limits.write_stall).await.is_err() {
            // Also because what the kernel still holds for the client would stay there for as long as it pleases.
            self.wire.reset_on_close();
            return;
        }
        if self.resets {
            // What only a close ends has been written to its end.
            self.wire.end_on_close();
        }
        self.wire.shutdown_write();
        if self.linger || !self.buf.is_empty() || self.wire.has_buffered() {
            self.discard().await;
        }
    }

    /// What was pushed is written, then FIN without the body's end.
    pub(super) async fn break_off(mut self) {
        self.linger = true;
        self.close().await;
    }

    /// At once or when the last watch is dropped.
    pub(super) fn abort_hard(self) {
        self.wire.reset_on_close();
    }

    async fn discard(&mut self) {
        let end = clock::now() + self.limits.linger;
        let mut budget = self.limits.linger_bytes;
        let mut scratch = BytesMut::new();
        self.buf = BytesMut::new();
        while budget > 0 {
            let read = self.wire.discard_some(&mut scratch, DISCARD.min(budget));
            match before(end.min(clock::now() + self.limits.linger_idle), read).await {
                Some(Ok(n)) if n > 0 => budget = budget.saturating_sub(n),
                _ => return,
            }
            scratch.clear();
        }
    }
}
