//! What a program would inherit of the Node's own way to run, and does not: the core that the shard is pinned to, and that the
//! Node does without huge pages. A model gets the machine as the Node found it. All of it is best effort.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use rustix::{
    process::getpid,
    thread::{
        disable_transparent_huge_pages, sched_getaffinity, sched_setaffinity,
        transparent_huge_pages_are_disabled,
    },
};

/// Lets the calling thread, and what it starts, run on every core that the process may use: whoever started it may be pinned to
/// one. The process's first thread never is.
pub(super) fn leave_core() {
    if let Ok(cores) = sched_getaffinity(Some(getpid())) {
        let _best_effort = sched_setaffinity(None, &cores);
    }
}

/// What is started for as long as one of these exists may have huge pages. That is a switch of the whole process, which a program
/// takes over at its exec: the Node's own faults meanwhile may be served with huge pages, too.
///
/// Two threads may overtake each other here, and then a program has none. The switch never stays on: whoever turns it on leaves
/// later, and the last to leave turns it off.
#[derive(Debug)]
pub(super) struct HugePages(());

/// Starts under way.
static STARTS: AtomicUsize = AtomicUsize::new(0);
/// The Node does without huge pages otherwise.
static WERE_OFF: AtomicBool = AtomicBool::new(false);

impl HugePages {
    pub(super) fn allow() -> Self {
        if STARTS.fetch_add(1, SeqCst) == 0 && transparent_huge_pages_are_disabled().unwrap_or(false) {
            WERE_OFF.store(true, SeqCst);
            let _best_effort = disable_transparent_huge_pages(false);
        }
        Self(())
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if STARTS.fetch_sub(1, SeqCst) == 1 && WERE_OFF.load(SeqCst) {
            let _best_effort = disable_transparent_huge_pages(true);
        }
    }
}
