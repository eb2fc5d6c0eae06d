//! Giving memory back that the shard's tasks have freed.
//!
//! The programs' allocator keeps freed pages of a thread's heap for that thread, and hands them to the system only while it
//! is at work for it: a shard that grew for a thousand slow clients and then rests would keep all of it.

use std::time::Duration;

use crate::{clock, time::sleep_until};

/// Time between two looks: short against people's patience, long against what one costs (some 100 µs for a large heap).
const PAUSE: Duration = Duration::from_secs(5);

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
