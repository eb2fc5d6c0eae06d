//! What becomes of a connection whose request is given up: dropped at whatever point it is, the request leaves it in the
//! custody of its caller, who can wait for the provider's return.

use std::{cell::RefCell, io, rc::Rc};

use bytes::BytesMut;

use super::{
    RECEIVE_MAX,
    abort::{Abort, Heard, Return},
    conn::{OpenConnection, Wire},
};
use crate::{clock, time::before};

/// Receives the connection of one request that is dropped after all of it was sent and before its answer has ended. Cloning
/// shares it. Where nobody takes the connection out it is closed with the last clone.
#[derive(Clone, Debug, Default)]
pub struct Custody(Rc<RefCell<Option<Abandoned>>>);

impl Custody {
    /// The connection, if the request left one.
    #[must_use]
    pub fn take(&self) -> Option<Abandoned> {
        self.0.take()
    }

    pub(super) fn give(&self, wire: Wire, open: OpenConnection) {
        self.0.replace(Some(Abandoned { wire, told: None, _open: open }));
    }
}

/// A connection whose provider works, or has worked, on a request that nobody waits for. Dropping it closes it.
#[derive(Debug)]
pub struct Abandoned {
    wire: Wire,
    /// Since the provider was told to stop.
    told: Option<Abort>,
    _open: OpenConnection,
}

impl Abandoned {
    /// Waits as [`Abandoned::returns`] does, but no longer than [`CLOSE_GRACE`](super::abort::CLOSE_GRACE): a provider that is
    /// silent for all of it is reset. May be dropped freely; the connection is closed then.
    pub async fn returned(mut self, scratch: &RefCell<BytesMut>) -> Return {
        let deadline = self.tell().deadline();
        match before(deadline, self.returns(scratch)).await {
            Some(returned) => returned,
            None => {
                self.give_up();
                Return::Unconfirmed
            }
        }
    }

    /// Tells the provider to stop, throws away what it still sends, and waits until it has returned or shows that it will not
    /// return by itself: then it is reset. Never [`Return::Unconfirmed`]. May be dropped and called again: nothing is lost.
    pub async fn returns(&mut self, scratch: &RefCell<BytesMut>) -> Return {
        let mut abort = self.tell();
        loop {
            let heard = match self.wire.readable().await {
                Err(_) => Some(Heard::End),
                Ok(()) => self.hear(scratch),
            };
            let returned = heard.and_then(|heard| abort.handle(clock::now(), heard));
            self.told = Some(abort);
            let Some(returned) = returned else { continue };
            if returned != Return::Confirmed {
                self.give_up();
            }
            return returned;
        }
    }

    /// Has the connection reset when it is dropped, so that the provider's next write fails.
    pub fn give_up(&self) {
        self.wire.reset_on_close();
    }

    fn tell(&mut self) -> Abort {
        *self.told.get_or_insert_with(|| {
            self.wire.shutdown_write();
            Abort::new(clock::now(), self.wire.unread())
        })
    }

    fn hear(&self, scratch: &RefCell<BytesMut>) -> Option<Heard> {
        let mut scratch = scratch.borrow_mut();
        scratch.clear();
        match self.wire.try_read(&mut scratch, RECEIVE_MAX) {
            Ok(None) => None,
            // What breaks TLS is sent by somebody who goes on sending.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Some(Heard::Bytes(usize::MAX)),
            Ok(Some(0)) | Err(_) => Some(Heard::End),
            Ok(Some(bytes)) => Some(Heard::Bytes(bytes)),
        }
    }
}
