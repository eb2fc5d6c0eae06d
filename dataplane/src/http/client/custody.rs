//! What becomes of a connection whose request is given up: dropped at whatever point it is, the request leaves it in the
//! custody of its caller, who can wait for the provider's return.

use std::{cell::RefCell, rc::Rc};

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
        self.0.replace(Some(Abandoned { wire, _open: open }));
    }
}

/// A connection whose provider works, or has worked, on a request that nobody waits for. Dropping it closes it.
#[derive(Debug)]
pub struct Abandoned {
    wire: Wire,
    _open: OpenConnection,
}

impl Abandoned {
    /// Tells the provider to stop, throws away what it still sends, and waits until it has returned or shows that it will
    /// not. May be dropped freely; the connection is closed then.
    pub async fn returned(self, scratch: &RefCell<BytesMut>) -> Return {
        self.wire.shutdown_write();
        let mut abort = Abort::new(clock::now(), self.wire.unread());
        loop {
            let returned = match before(abort.deadline(), self.wire.readable()).await {
                None => Some(Return::Unconfirmed),
                Some(Err(_)) => abort.handle(clock::now(), Heard::End),
                Some(Ok(())) => self.hear(scratch).and_then(|heard| abort.handle(clock::now(), heard)),
            };
            let Some(returned) = returned else { continue };
            if returned != Return::Confirmed {
                self.wire.reset_on_close();
            }
            return returned;
        }
    }

    fn hear(&self, scratch: &RefCell<BytesMut>) -> Option<Heard> {
        let mut scratch = scratch.borrow_mut();
        scratch.clear();
        match self.wire.try_read(&mut scratch, RECEIVE_MAX) {
            Ok(None) => None,
            Ok(Some(0)) | Err(_) => Some(Heard::End),
            Ok(Some(bytes)) => Some(Heard::Bytes(bytes)),
        }
    }
}
