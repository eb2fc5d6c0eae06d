//! Signals and queues between tasks of one shard. No atomics: nothing here leaves its thread.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
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
    wakers: RefCell<Vec<Waker>>,
}

impl Latch {
    /// An open latch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Closes it for good and wakes everyone.
    pub fn close(&self) {
        self.closed.set(true);
        let wakers = std::mem::take(&mut *self.wakers.borrow_mut());
        for waker in wakers {
            waker.wake();
        }
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Waits until it is closed. Loses nothing when dropped.
    pub async fn closed(&self) {
        poll_fn(|cx| {
            if self.closed.get() {
                return Poll::Ready(());
            }
            let mut wakers = self.wakers.borrow_mut();
            if !wakers.iter().any(|w| w.will_wake(cx.waker())) {
                wakers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
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
