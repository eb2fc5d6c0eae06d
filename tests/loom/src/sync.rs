//! In the place of `dataplane::sync`.

use std::{fmt, sync::Mutex};

use atomic::{AtomicBool, Ordering};

pub use crate::thread_local_of_loom as thread_local;

/// In the place of `std::sync::atomic`.
pub mod atomic {
    pub use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
}

/// In the place of `std::thread`.
pub mod thread {
    use std::time::Duration;

    pub use loom::thread::{Thread, current, park};

    /// The time is over at once: whatever was to happen in it happens later.
    pub fn park_timeout(_: Duration) {
        loom::thread::yield_now();
    }
}

/// `thread_local!` as the product writes it; loom's threads are none of the system's.
#[macro_export]
macro_rules! thread_local_of_loom {
    (static $name:ident: $type:ty = const $init:block;) => {
        loom::thread_local! { static $name: $type = $init }
    };
}

/// In the place of `std::sync::OnceLock`: who may not have seen the value set does not see it.
pub struct OnceLock<T> {
    is_set: AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    /// Without a value.
    pub fn new() -> Self {
        Self { is_set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
    }

    /// Sets the first value.
    ///
    /// # Errors
    /// There is one: the new one comes back.
    pub fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.is_set.store(true, Ordering::Release);
        Ok(())
    }

    /// The value, if it has been set.
    pub fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Items that one queue of a model may see in all.
const ITEMS_MAX: usize = 4;

/// In the place of `crossbeam::queue::ArrayQueue`, for one receiver, with no more than what any queue must give: who sees an
/// item sees what its sender did before, and an item that has been pushed is not missed because one before it is still being
/// written: that one is waited for. Unlike there one that is being written and has nothing behind it is not there yet, so that
/// what holds with this holds with that. What else a queue does is nothing that loom looks at, for it would multiply
/// what it has to go through.
pub struct ArrayQueue<T> {
    capacity: usize,
    /// An item's own place for the whole model, never used again.
    slots: Vec<Slot<T>>,
    pushed: std::sync::atomic::AtomicUsize,
    popped: std::sync::atomic::AtomicUsize,
}

struct Slot<T> {
    is_there: AtomicBool,
    /// Never waited for: loom switches threads at its own types only.
    value: Mutex<Option<T>>,
}

impl<T> ArrayQueue<T> {
    /// Room for `capacity` items.
    pub fn new(capacity: usize) -> Self {
        let slot = |_| Slot { is_there: AtomicBool::new(false), value: Mutex::new(None) };
        Self { capacity, slots: (0..ITEMS_MAX).map(slot).collect(), pushed: 0.into(), popped: 0.into() }
    }

    /// How many items it has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Adds an item.
    ///
    /// # Errors
    /// There is no room: it comes back.
    pub fn push(&self, item: T) -> Result<(), T> {
        let number = self.pushed.load(Ordering::SeqCst);
        if number - self.popped.load(Ordering::SeqCst) >= self.capacity {
            return Err(item);
        }
        self.pushed.store(number + 1, Ordering::SeqCst);
        let slot = &self.slots[number];
        *slot.value.lock().unwrap() = Some(item);
        slot.is_there.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes the oldest item.
    pub fn pop(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let number = self.popped.fetch_add(1, Ordering::SeqCst);
        while !self.slots[number].is_there.load(Ordering::Acquire) {
            loom::thread::yield_now();
        }
        self.slots[number].value.lock().unwrap().take()
    }

    /// How many items are there that nothing is written before.
    pub fn len(&self) -> usize {
        self.waiting().take_while(|slot| slot.is_there.load(Ordering::Acquire)).count()
    }

    /// Whether there is none, also none behind one that is being written.
    pub fn is_empty(&self) -> bool {
        let first = self.waiting().position(|slot| slot.is_there.load(Ordering::Acquire));
        if first.is_some_and(|first| first > 0) {
            // Whoever comes back for it lets the other one finish.
            loom::thread::yield_now();
        }
        first.is_none()
    }

    fn waiting(&self) -> impl Iterator<Item = &Slot<T>> {
        let (popped, pushed) = (self.popped.load(Ordering::SeqCst), self.pushed.load(Ordering::SeqCst));
        self.slots[..pushed].iter().skip(popped)
    }
}

impl<T> fmt::Debug for ArrayQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayQueue").finish_non_exhaustive()
    }
}
