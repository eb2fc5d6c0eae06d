//! Output buffers that are used again: a connection holds one only from what is appended to its flush.

use std::cell::RefCell;

/// Longest capacity of a buffer that is kept for the next response of the shard.
const BYTES_MAX: usize = 128 * 1024;
/// How many are kept.
const KEPT_MAX: usize = 16;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer, one that was used before if there is one.
pub(super) fn take() -> Vec<u8> {
    SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Keeps a buffer for [`take`], or lets go of it.
pub(super) fn keep(mut buffer: Vec<u8>) {
    if !(1..=BYTES_MAX).contains(&buffer.capacity()) {
        return;
    }
    buffer.clear();
    SPARE.with_borrow_mut(|spares| {
        if spares.len() < KEPT_MAX {
            spares.push(buffer);
        }
    });
}
