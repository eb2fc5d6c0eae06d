//! The lease as a value: whoever drops it has given it back.
//!
//! The return path is a queue of its own with room for every lease that can exist (`control::LEASES_MAX`), so no
//! cancelled future, panic or full channel can lose a slot.

use std::sync::Arc;

use control::input::LeaseId;
use dataplane::sync::{
    ArrayQueue,
    atomic::{AtomicU8, Ordering::SeqCst},
};

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

/// Whether a lease's request goes out: settled once, between the connection's shard, which is about to send it, and the
/// request's shard, which has learned that the Node is lost. Without it a request that is sent on a connection that is
/// about to close would be answered by nobody.
#[derive(Clone, Debug, Default)]
pub struct Claim(Arc<AtomicU8>);

const OPEN: u8 = 0;
const SENT: u8 = 1;
const REVOKED: u8 = 2;

impl Claim {
    /// The connection's shard sends the request now; `false` when the request's shard has revoked it.
    #[must_use]
    pub fn send(&self) -> bool {
        self.0.compare_exchange(OPEN, SENT, SeqCst, SeqCst).is_ok()
    }

    /// What was claimed could not be sent after all. A revocation stays.
    pub fn unsend(&self) {
        let _claimed = self.0.compare_exchange(SENT, OPEN, SeqCst, SeqCst);
    }

    /// The request's shard forbids it; `false` when it was sent already.
    #[must_use]
    pub fn revoke(&self) -> bool {
        self.0.compare_exchange(OPEN, REVOKED, SeqCst, SeqCst).is_ok() || self.0.load(SeqCst) == REVOKED
    }
}

/// A hold on one slot of one provider for one run.
#[derive(Debug)]
pub struct Lease {
    id: LeaseId,
    claim: Claim,
    returns: Arc<Returns>,
    /// Control has been told already that its slot is free.
    is_settled: bool,
}

impl Lease {
    /// The value for a lease that control just granted.
    pub fn new(id: LeaseId, returns: &Arc<Returns>) -> Self {
        Self { id, claim: Claim::default(), returns: Arc::clone(returns), is_settled: false }
    }

    /// Its run has come to its proper end, of which control was told: that the holder leaves too can wait.
    pub fn settle(&mut self) {
        self.is_settled = true;
    }

    /// Which.
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// Whether its request goes out.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Either it was sent by now, or it never will be: control returns the slot of an unsent one at once.
        let sent = !self.claim.revoke();
        let returned = self.returns.queue.push((self.id, sent));
        debug_assert!(returned.is_ok(), "the return queue has room for every lease");
        if returned.is_err() {
            tracing::error!(lease = self.id.0, "lease return queue full");
        }
        let waiting = self.returns.queue.len();
        if self.is_settled && waiting < self.returns.queue.capacity().div_ceil(2) {
            self.returns.bell.ring_unless_dozing();
        } else {
            self.returns.bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::RecvTimeoutError;

    use super::*;

    #[test]
    fn a_request_is_either_sent_or_revoked() {
        let sent = Claim::default();
        assert!(sent.send() && !sent.send() && !sent.revoke());
        sent.unsend();
        assert!(sent.revoke(), "it was not sent after all");
        let revoked = Claim::default();
        assert!(revoked.revoke() && revoked.revoke() && !revoked.send());
        revoked.unsend();
        assert!(!revoked.send(), "a revocation stays");
        let (bell, _inbox) = dataplane::mailbox::for_thread(4);
        let lease = Lease::new(LeaseId(1), &Arc::new(Returns::new(8, bell)));
        let claim = lease.claim().clone();
        drop(lease);
        assert!(!claim.send(), "its slot may be another one's by now");
    }

    #[test]
    fn who_dozes_is_not_woken_for_a_lease_whose_run_has_ended_before_half_of_all_are_back() {
        let (bell, inbox) = dataplane::mailbox::for_thread(64);
        let returns = Arc::new(Returns::new(8, bell));
        let leases: Vec<_> = (0..5).map(|id| Lease::new(LeaseId(id), &returns)).collect();
        let (until, woken) = std::sync::mpsc::channel();
        let seen = Arc::clone(&returns);
        let control = std::thread::spawn(move || {
            inbox.adopt();
            until.send(0).unwrap();
            while seen.len() < 5 {
                inbox.doze(None, || seen.len() == 5);
                // What it was woken for may not be all by now; that it is at least so much is what counts.
                until.send(seen.len()).unwrap();
            }
        });
        woken.recv().unwrap();
        for (id, mut lease) in leases.into_iter().enumerate() {
            if id < 4 {
                lease.settle();
            }
            drop(lease);
        }
        loop {
            match woken.recv_timeout(std::time::Duration::from_secs(30)) {
                Ok(back) => assert!(back >= 4, "woken when {back} were back"),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("not woken for one whose run did not end"),
            }
        }
        control.join().unwrap();
    }

    #[test]
    fn a_dropped_lease_comes_back_once_also_out_of_a_panic() {
        let (bell, _inbox) = dataplane::mailbox::for_thread(4);
        let returns = Arc::new(Returns::new(8, bell));
        let lease = Lease::new(LeaseId(7), &returns);
        assert!(lease.claim().send());
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
