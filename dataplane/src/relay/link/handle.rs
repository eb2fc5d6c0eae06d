//! The side of a link that its owner and its owner's tasks hold.

use std::rc::Rc;

use bytes::Bytes;
use proto::message::{Message, StreamNo};

use super::Shared;
#[cfg(doc)]
use crate::relay::Mux;
use crate::{
    clock,
    relay::{CloseReason, MuxStats, OpenError, QueueError},
};

/// A link as tasks of its shard see it. Cheap to clone; after the link's end everything is a no-op or `NotOpen`.
#[derive(Clone)]
pub struct LinkHandle(pub(super) Rc<Shared>);

impl std::fmt::Debug for LinkHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkHandle").field("mux", &self.0.mux).finish_non_exhaustive()
    }
}

impl LinkHandle {
    /// As [`Mux::send`]; a full queue ends the link.
    pub fn send(&self, message: Message) {
        let sent = self.0.mux.borrow_mut().send(message);
        match sent {
            Ok(()) => self.0.wake.set(),
            Err(fault) => self.0.stop(fault.into()),
        }
    }

    /// As [`Mux::open`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(&self, stream: StreamNo, send_window: u32, receive_window: u32) -> Result<(), OpenError> {
        self.0.mux.borrow_mut().open(stream, send_window, receive_window)
    }

    /// As [`Mux::queue`].
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn queue(&self, stream: StreamNo, message: Message) -> Result<(), QueueError> {
        self.0.mux.borrow_mut().queue(stream, message)?;
        self.0.wake.set();
        Ok(())
    }

    /// As [`Mux::queue_body`].
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn queue_body(&self, stream: StreamNo, body: Bytes) -> Result<(), QueueError> {
        self.0.mux.borrow_mut().queue_body(stream, body)?;
        self.0.wake.set();
        Ok(())
    }

    /// As [`Mux::queue_pieces`].
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn queue_pieces(
        &self,
        stream: StreamNo,
        pieces: impl IntoIterator<Item = Bytes>,
    ) -> Result<(), QueueError> {
        self.0.mux.borrow_mut().queue_pieces(stream, pieces)?;
        self.0.wake.set();
        Ok(())
    }

    /// As [`Mux::sendable`].
    #[must_use]
    pub fn sendable(&self, stream: StreamNo) -> usize {
        self.0.mux.borrow().sendable(stream)
    }

    /// As [`Mux::release`].
    pub fn release(&self, stream: StreamNo, bytes: usize) {
        if self.0.mux.borrow_mut().release(stream, bytes) {
            self.0.wake.set();
        }
    }

    /// As [`Mux::discard`].
    pub fn discard(&self, stream: StreamNo) {
        self.0.mux.borrow_mut().discard(stream);
    }

    /// As [`Mux::finish`].
    pub fn finish(&self, stream: StreamNo) {
        self.0.mux.borrow_mut().finish(stream);
    }

    /// As [`Mux::close`].
    pub fn close(&self, stream: StreamNo) {
        self.0.mux.borrow_mut().close(stream);
    }

    /// As [`Mux::restart_heartbeat`], from now.
    pub fn restart_heartbeat(&self) {
        self.0.mux.borrow_mut().restart_heartbeat(clock::now());
    }

    /// As [`Mux::has_stream_data`].
    #[must_use]
    pub fn has_stream_data(&self) -> bool {
        self.0.mux.borrow().has_stream_data()
    }

    /// Open streams.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.0.mux.borrow().streams()
    }

    /// Counters of the link.
    #[must_use]
    pub fn stats(&self) -> MuxStats {
        self.0.mux.borrow().stats()
    }

    /// Ends the link: what control messages wait leaves, then a goodbye with the reason; stream data is dropped. Only the
    /// first reason counts.
    pub fn shutdown(&self, reason: CloseReason) {
        self.0.stop(reason);
    }

    /// Whether the link ends or has ended.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.0.is_stopping()
    }

    /// Waits until the link has ended and its socket is closed. May be dropped freely.
    pub async fn ended(&self) {
        self.0.ended.closed().await;
    }
}
