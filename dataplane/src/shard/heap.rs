//! The memory of a process: in small pages, and given back when the shard's tasks have freed it.
//!
//! The programs' allocator keeps freed pages of a thread's heap for that thread, and hands them to the system only while it
//! is at work for it: a shard that grew for a thousand slow clients and then rests would keep all of it.

use std::time::Duration;

use crate::{clock, time::sleep_until};

/// Time between two looks: short against people's patience, long against what one costs (some 100 µs for a large heap).
const PAUSE: Duration = Duration::from_secs(5);

/// Asks the kernel for small pages only (PR_SET_THP_DISABLE, prctl(2)), for the whole process; before its threads start. The first
/// touch of a huge page clears 2 MiB, some milliseconds in which a shard does nothing else: eight large request bodies at a time held
/// up every stream for 30 ms and more. Best effort.
pub fn use_small_pages() {
    // SAFETY: takes no pointer and changes nothing but how later page faults of this process are served.
    #[expect(unsafe_code, reason = "no safe binding of prctl in our crates")]
    let _best_effort = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

/// Gives freed memory back from time to time. Never ends.
pub(super) async fn give_back() {
    loop {
        sleep_until(clock::now() + PAUSE).await;
        // SAFETY: the call takes no pointer; it works on the calling thread's own heap, and does nothing much in a program
        // whose allocator is another one.
        #[expect(unsafe_code, reason = "no safe binding of mi_collect")]
        unsafe {
            libmimalloc_sys::mi_collect(false);
        }
    }
}
