//! What the shard, and the end of the Node, can tell the thread of a program while that waits in `poll`.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use rustix::event::{EventfdFlags, eventfd};

use super::BATCHES_MAX;

/// One program's.
#[derive(Debug)]
pub(super) struct Link {
    bell: Bell,
    stop: AtomicBool,
    /// Batches that were sent and not taken.
    unread: AtomicUsize,
}

impl Link {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { bell: Bell::new()?, stop: AtomicBool::new(false), unread: AtomicUsize::new(0) })
    }

    /// The program is of no use any more.
    pub(super) fn stop(&self) {
        self.stop.store(true, SeqCst);
        self.bell.ring();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(SeqCst)
    }

    /// A batch is about to be sent.
    pub(super) fn sends(&self) {
        self.unread.fetch_add(1, SeqCst);
    }

    /// A batch was taken. Whoever waits for room hears of it: it asked for room after [`BATCHES_MAX`] were reached, and this
    /// rings after one of them is gone.
    pub(super) fn taken(&self) {
        if self.unread.fetch_sub(1, SeqCst) >= BATCHES_MAX {
            self.bell.ring();
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.unread.load(SeqCst) < BATCHES_MAX
    }

    /// Readable when there is something new to look at.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.0.as_fd()
    }

    /// To be called before the news are looked at, so that later ones ring again.
    pub(super) fn heard(&self) {
        let _none = rustix::io::read(&self.bell.0, &mut [0; 8]);
    }
}

#[derive(Debug)]
struct Bell(OwnedFd);

impl Bell {
    fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    fn ring(&self) {
        // Full means that it rings already.
        let _rung = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// The Node ends.
pub(super) static LAST_CALL: LastCall = LastCall { made: AtomicBool::new(false), bell: OnceLock::new() };

/// What tells every program's thread at once, now and in time to come.
#[derive(Debug)]
pub(super) struct LastCall {
    made: AtomicBool,
    bell: OnceLock<Bell>,
}

impl LastCall {
    pub(super) fn call(&self) {
        self.made.store(true, SeqCst);
        if let Some(bell) = self.bell() {
            bell.ring();
        }
    }

    pub(super) fn is_made(&self) -> bool {
        self.made.load(SeqCst)
    }

    /// Readable for ever once the call is made; `None` when no descriptor was left for it.
    pub(super) fn hear(&self) -> Option<BorrowedFd<'_>> {
        self.bell().map(|bell| bell.0.as_fd())
    }

    fn bell(&self) -> Option<&Bell> {
        if self.bell.get().is_none() {
            // No descriptor may be left at one time, and some at another.
            let _another_was_first = self.bell.set(Bell::new().ok()?);
        }
        self.bell.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(link: &Link) -> bool {
        rustix::io::read(link.bell(), &mut [0; 8]).is_ok()
    }

    // req: WIR-6
    #[test]
    fn a_thread_that_waits_for_room_is_told_of_it_and_no_other() {
        let link = Link::new().unwrap();
        for _ in 0..BATCHES_MAX {
            assert!(link.has_room());
            link.sends();
        }
        assert!(!link.has_room() && !rings(&link));
        link.taken();
        assert!(link.has_room() && rings(&link));
        link.taken();
        assert!(!rings(&link), "it did not wait");
        assert!(!link.is_stopped());
        link.stop();
        assert!(link.is_stopped() && rings(&link));
    }
}
