//! Signals and queues between tasks of one shard. No atomics: nothing here leaves its thread.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// Wakes one waiting task; a set that comes before the wait is not lost. Several sets before a wait are one.
#[derive(Debug, Default)]
pub struct Signal {
    set: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Signal {
    /// A signal that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets it and wakes the waiter.
    pub fn set(&self) {
        self.set.set(true);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready once it was set; clears it. One waiter at a time: a second one takes the first one's place.
    pub fn poll_wait(&self, cx: &Context<'_>) -> Poll<()> {
        if self.set.replace(false) {
            return Poll::Ready(());
        }
        self.waker.replace(Some(cx.waker().clone()));
        Poll::Pending
    }

    /// Waits until it is set and clears it. Loses nothing when dropped.
    pub async fn wait(&self) {
        poll_fn(|cx| self.poll_wait(cx)).await;
    }
}

/// A one-way switch that any number of tasks may wait for.
#[derive(Debug, Default)]
pub struct Latch {
    closed: Cell<bool>,
    waiters: RefCell<Waiters>,
}

/// Wakers of the waits that are pending now, each at a place of its own that its wait frees when it is dropped: a wait
/// that comes and goes with every request must leave nothing behind.
#[derive(Debug, Default)]
struct Waiters {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Latch {
    /// An open latch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Closes it for good and wakes everyone.
    pub fn close(&self) {
        self.closed.set(true);
        let wakers: Vec<_> = self.waiters.borrow_mut().wakers.iter_mut().filter_map(Option::take).collect();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Waits until it is closed. Loses nothing when dropped.
    pub fn closed(&self) -> Closed<'_> {
        Closed { latch: self, place: None }
    }
}

/// A wait for a [`Latch`].
#[derive(Debug)]
pub struct Closed<'a> {
    latch: &'a Latch,
    place: Option<usize>,
}

impl Future for Closed<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.latch.is_closed() {
            return Poll::Ready(());
        }
        let mut waiters = self.latch.waiters.borrow_mut();
        let place = *self.place.get_or_insert_with(|| {
            waiters.free.pop().unwrap_or_else(|| {
                waiters.wakers.push(None);
                waiters.wakers.len() - 1
            })
        });
        if let Some(waker) = waiters.wakers.get_mut(place)
            && !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker()))
        {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut waiters = self.latch.waiters.borrow_mut();
        if let Some(waker) = waiters.wakers.get_mut(place) {
            *waker = None;
        }
        waiters.free.push(place);
    }
}

/// A queue with one reading task on the same shard. Its bound is the caller's: what is pushed is already bounded by
/// credit or by the number of requests.
#[derive(Debug)]
pub struct Queue<T> {
    items: RefCell<VecDeque<T>>,
    signal: Signal,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { items: RefCell::new(VecDeque::new()), signal: Signal::new() }
    }
}

impl<T> Queue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an item and wakes the reader.
    pub fn push(&self, item: T) {
        self.items.borrow_mut().push_back(item);
        self.signal.set();
    }

    /// Adds an item as [`Queue::push`] does, unless `join` makes it a part of the last one that waits.
    pub fn push_joined(&self, item: T, join: impl FnOnce(&mut T, T) -> Option<T>) {
        let mut items = self.items.borrow_mut();
        let alone = match items.back_mut() {
            Some(last) => join(last, item),
            None => Some(item),
        };
        items.extend(alone);
        drop(items);
        self.signal.set();
    }

    /// The next item, if there is one.
    pub fn try_pop(&self) -> Option<T> {
        self.items.borrow_mut().pop_front()
    }

    /// How many items wait.
    pub fn len(&self) -> usize {
        self.items.borrow().len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.items.borrow().is_empty()
    }

    /// Waits for the next item. Loses nothing when dropped.
    pub async fn pop(&self) -> T {
        loop {
            if let Some(item) = self.try_pop() {
                return item;
            }
            self.signal.wait().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_wait_that_is_dropped_leaves_nothing_in_the_latch() {
        let latch = Latch::new();
        let mut kept = Box::pin(latch.closed());
        assert!(kept.as_mut().now_or_never().is_none());
        for _ in 0..1_000 {
            assert!(latch.closed().now_or_never().is_none());
        }
        assert_eq!(latch.waiters.borrow().wakers.len(), 2);
        latch.close();
        assert!(kept.now_or_never().is_some() && latch.closed().now_or_never().is_some());
    }

    #[test]
    fn a_signal_that_is_set_before_the_wait_is_not_lost_and_counts_once() {
        let signal = Signal::new();
        signal.set();
        signal.set();
        assert!(signal.wait().now_or_never().is_some());
        assert!(signal.wait().now_or_never().is_none());
    }
}
