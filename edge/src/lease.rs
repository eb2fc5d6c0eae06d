//! The lease as a value: whoever drops it has given it back.
//!
//! The return path is a queue of its own with room for every lease that can exist (`control::LEASES_MAX`), so no
//! cancelled future, panic or full channel can lose a slot.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use control::input::LeaseId;
use crossbeam::queue::ArrayQueue;

use crate::mail::ToControl;

/// Where dropped leases go. Rings control's bell.
#[derive(Debug)]
pub struct Returns {
    queue: ArrayQueue<(LeaseId, bool)>,
    bell: dataplane::mailbox::Sender<ToControl>,
}

impl Returns {
    /// Room for `capacity` leases; `bell` wakes the control thread.
    pub fn new(capacity: usize, bell: dataplane::mailbox::Sender<ToControl>) -> Self {
        Self { queue: ArrayQueue::new(capacity), bell }
    }

    /// The next returned lease, and whether its request had been sent.
    pub fn pop(&self) -> Option<(LeaseId, bool)> {
        self.queue.pop()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// A hold on one slot of one provider for one run.
#[derive(Debug)]
pub struct Lease {
    id: LeaseId,
    sent: Arc<AtomicBool>,
    returns: Arc<Returns>,
}

impl Lease {
    /// The value for a lease that control just granted.
    pub fn new(id: LeaseId, returns: &Arc<Returns>) -> Self {
        Self { id, sent: Arc::default(), returns: Arc::clone(returns) }
    }

    /// Which.
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// The flag that the connection's shard sets when it hands the request over.
    pub fn sent_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.sent)
    }

    /// Whether the request was handed to the Node's connection.
    pub fn is_sent(&self) -> bool {
        self.sent.load(SeqCst)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let returned = self.returns.queue.push((self.id, self.sent.load(SeqCst)));
        debug_assert!(returned.is_ok(), "the return queue has room for every lease");
        if returned.is_err() {
            tracing::error!(lease = self.id.0, "lease return queue full");
        }
        self.returns.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_lease_comes_back_once_also_out_of_a_panic() {
        let (bell, _inbox) = dataplane::mailbox::for_thread(4);
        let returns = Arc::new(Returns::new(8, bell));
        let lease = Lease::new(LeaseId(7), &returns);
        lease.sent_flag().store(true, SeqCst);
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _held = lease;
            panic!("holder died");
        }));
        assert!(unwound.is_err());
        drop(Lease::new(LeaseId(8), &returns));
        assert_eq!(returns.pop(), Some((LeaseId(7), true)));
        assert_eq!(returns.pop(), Some((LeaseId(8), false)));
        assert_eq!(returns.pop(), None);
    }
}
