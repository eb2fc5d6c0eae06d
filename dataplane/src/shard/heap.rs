//! The memory of a process: in small pages, and given back when the shard's tasks have freed it.
//!
//! The programs' allocator keeps freed pages of a thread's heap for that thread, and hands them to the system only while it
//! is at work for it: a shard that grew for a thousand slow clients and then rests would keep all of it.

use std::{
    alloc::{GlobalAlloc, Layout},
    time::Duration,
};

use crate::{clock, time::sleep_until};

/// Time between two looks: short against people's patience, long against what one costs (some 100 µs for a large heap).
const PAUSE: Duration = Duration::from_secs(5);

/// What every block of the allocator is aligned to, or to its size's power of two where that is less.
const NATURAL_ALIGN: usize = 16;

/// The programs' allocator, mimalloc: measured cheaper than glibc's on this load.
///
/// Its ordinary entries serve every usual layout. Those for an alignment, which the crate of that name calls for every layout, look
/// whether a block happens to fit, and take a detour of over a hundred instructions for most blocks over 1 KiB.
#[derive(Debug)]
pub struct Allocator;

impl Allocator {
    /// Whether an ordinary block of `size` bytes is aligned enough.
    const fn is_natural(size: usize, align: usize) -> bool {
        align <= NATURAL_ALIGN && align <= size
    }
}

// SAFETY: mimalloc's blocks are valid for their size until they are freed, and it frees and moves blocks of all its entries alike.
// `is_natural` asks for no more alignment than it promises for a size (its `MI_MAX_ALIGN_SIZE`).
#[expect(unsafe_code, reason = "the trait of an allocator is unsafe")]
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: takes any size, and any alignment that a layout can have.
        unsafe {
            if Self::is_natural(size, align) {
                libmimalloc_sys::mi_malloc(size).cast()
            } else {
                libmimalloc_sys::mi_malloc_aligned(size, align).cast()
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: as in `alloc`.
        unsafe {
            if Self::is_natural(size, align) {
                libmimalloc_sys::mi_zalloc(size).cast()
            } else {
                libmimalloc_sys::mi_zalloc_aligned(size, align).cast()
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: the caller's word that it has the block from here.
        unsafe { libmimalloc_sys::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `alloc` and `dealloc`. A block that stays where it is has the alignment that it was asked with.
        unsafe {
            if Self::is_natural(size, layout.align()) {
                libmimalloc_sys::mi_realloc(block.cast(), size).cast()
            } else {
                libmimalloc_sys::mi_realloc_aligned(block.cast(), size, layout.align()).cast()
            }
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes around every class that matters, and alignments from a byte's to more than a page's.
    fn layouts() -> impl Iterator<Item = Layout> {
        let sizes =
            (1..200).chain((0..18).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1, 3 << bit]));
        sizes
            .filter(|size| *size > 0)
            .flat_map(|size| (0..14).map(move |bit| Layout::from_size_align(size, 1 << bit).unwrap()))
    }

    #[test]
    #[expect(unsafe_code, reason = "an allocator is used by pointers")]
    fn blocks_are_aligned_apart_and_keep_their_bytes_when_they_grow_and_shrink() {
        let whole = |block: *const u8, n: usize, with: u8| {
            // SAFETY: the callers' blocks have at least `n` bytes, all written.
            unsafe { std::slice::from_raw_parts(block, n) }.iter().all(|byte| *byte == with)
        };
        for layout in layouts() {
            let (size, align) = (layout.size(), layout.align());
            // SAFETY: each block is used within its size, with the layout it has by then, and freed once.
            unsafe {
                let blocks = [0x11_u8, 0x22, 0x33].map(|fill| {
                    let block = Allocator.alloc(layout);
                    assert_eq!((block.is_null(), block.align_offset(align)), (false, 0), "{layout:?}");
                    block.write_bytes(fill, size);
                    (block, fill)
                });
                for (block, fill) in blocks {
                    assert!(whole(block, size, fill), "{layout:?}");
                    let grown = Allocator.realloc(block, layout, 2 * size + 1);
                    assert_eq!((grown.is_null(), grown.align_offset(align)), (false, 0), "{layout:?}");
                    assert!(whole(grown, size, fill), "{layout:?}");
                    let wide = Layout::from_size_align(2 * size + 1, align).unwrap();
                    let least = Allocator.realloc(grown, wide, 1);
                    assert_eq!((least.is_null(), least.align_offset(align)), (false, 0), "{layout:?}");
                    assert!(whole(least, 1, fill), "{layout:?}");
                    Allocator.dealloc(least, Layout::from_size_align(1, align).unwrap());
                }
                let zeroed = Allocator.alloc_zeroed(layout);
                assert_eq!((zeroed.is_null(), zeroed.align_offset(align)), (false, 0), "{layout:?}");
                assert!(whole(zeroed, size, 0), "{layout:?}");
                Allocator.dealloc(zeroed, layout);
            }
        }
    }
}
