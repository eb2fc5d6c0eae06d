//! Bounded lock-free queues between threads: many senders, one receiver, one wake for a batch.
//!
//! A sender pushes any number of items and then rings once. On a shard the bells of one turn ring together at its end (see
//! `turn.rs`): a receiver that sleeps is woken once for all that the shard's tasks had for it. Order: items of one sender arrive in the order of its
//! pushes, and a push that happens after another thread's push was observed arrives after it (one FIFO for all), which
//! the Edge relies on: what control tells a link's shard comes before what a client's shard does because of it.

mod bell;
pub(crate) mod turn;

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    clock,
    shard::ear::{Ear, EarSeed},
    sync::{ArrayQueue, thread},
};
use bell::{Bell, Doorbell};

struct Shared<T> {
    queue: ArrayQueue<T>,
    door: Arc<Doorbell>,
}

/// The sending side; cloned freely.
pub struct Sender<T>(Arc<Shared<T>>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("len", &self.0.queue.len()).finish_non_exhaustive()
    }
}

impl<T> Sender<T> {
    /// Adds an item without waking the receiver; call [`Sender::ring`] after the batch.
    ///
    /// # Errors
    /// The queue is full: the item comes back, and what that means is the caller's to decide.
    pub fn push(&self, item: T) -> Result<(), T> {
        self.0.queue.push(item)
    }

    /// Wakes the receiver if it sleeps; costs a fence otherwise. On a shard the wake comes when every task that is ready has
    /// had its turn, and is one with those of other pushes.
    pub fn ring(&self) {
        if self.0.door.is_asleep() {
            turn::ring_at_end(&self.0.door);
        }
    }

    /// [`Sender::push`] and [`Sender::ring`].
    ///
    /// # Errors
    /// As [`Sender::push`].
    pub fn send(&self, item: T) -> Result<(), T> {
        self.push(item)?;
        self.ring();
        Ok(())
    }

    /// As [`Sender::ring`], for mail that can wait until the receiver wakes for another reason: it is woken only where it asked
    /// for such mail too ([`ThreadInbox::park`]), or where half the room is taken.
    pub fn ring_unless_dozing(&self) {
        if self.0.door.is_fast_asleep() || self.len() >= self.0.queue.capacity().div_ceil(2) {
            self.ring();
        }
    }

    /// [`Sender::push`] and [`Sender::ring_unless_dozing`].
    ///
    /// # Errors
    /// As [`Sender::push`].
    pub fn send_unhurried(&self, item: T) -> Result<(), T> {
        self.push(item)?;
        self.ring_unless_dozing();
        Ok(())
    }

    /// Items waiting.
    pub fn len(&self) -> usize {
        self.0.queue.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.0.queue.is_empty()
    }
}

/// A receiving side for a shard that has not started yet; [`ShardInboxSeed::open`] it there.
pub struct ShardInboxSeed<T> {
    shared: Arc<Shared<T>>,
    ear: EarSeed,
}

impl<T> std::fmt::Debug for ShardInboxSeed<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardInboxSeed").finish_non_exhaustive()
    }
}

/// A mailbox of `capacity` items whose receiver is a shard.
///
/// # Errors
/// No file descriptors left for the bell.
pub fn for_shard<T>(capacity: usize) -> io::Result<(Sender<T>, ShardInboxSeed<T>)> {
    let (bell, ear) = Bell::shard()?;
    let shared = Arc::new(Shared { queue: ArrayQueue::new(capacity), door: Arc::new(Doorbell::new(bell)) });
    Ok((Sender(Arc::clone(&shared)), ShardInboxSeed { shared, ear }))
}

impl<T> ShardInboxSeed<T> {
    /// Opens the receiving side on the calling shard.
    ///
    /// # Errors
    /// The bell cannot be registered with the shard's driver.
    pub fn open(self) -> io::Result<ShardInbox<T>> {
        Ok(ShardInbox { shared: self.shared, ear: self.ear.open()? })
    }
}

/// The receiving side on a shard.
pub struct ShardInbox<T> {
    shared: Arc<Shared<T>>,
    ear: Ear,
}

impl<T> std::fmt::Debug for ShardInbox<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardInbox").finish_non_exhaustive()
    }
}

impl<T> ShardInbox<T> {
    /// Waits until there is something and moves at most `max` items to `batch`.
    pub async fn receive(&mut self, batch: &mut Vec<T>, max: usize) {
        loop {
            self.drain(batch, max);
            if !batch.is_empty() {
                return;
            }
            self.shared.door.fall_asleep();
            if self.shared.queue.is_empty() {
                self.ear.listen().await;
            }
            self.shared.door.wake_up();
        }
    }

    /// Whether more waits already.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.shared.queue.is_empty()
    }

    fn drain(&self, batch: &mut Vec<T>, max: usize) {
        while batch.len() < max {
            let Some(item) = self.shared.queue.pop() else { return };
            batch.push(item);
        }
    }
}

/// The receiving side on a plain thread.
pub struct ThreadInbox<T> {
    shared: Arc<Shared<T>>,
}

impl<T> std::fmt::Debug for ThreadInbox<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadInbox").finish_non_exhaustive()
    }
}

/// A mailbox of `capacity` items whose receiver is a plain thread; it must call [`ThreadInbox::adopt`] first.
pub fn for_thread<T>(capacity: usize) -> (Sender<T>, ThreadInbox<T>) {
    let door = Arc::new(Doorbell::new(Bell::thread()));
    let shared = Arc::new(Shared { queue: ArrayQueue::new(capacity), door });
    (Sender(Arc::clone(&shared)), ThreadInbox { shared })
}

impl<T> ThreadInbox<T> {
    /// Makes the calling thread the one that is woken. What was sent before stays.
    pub fn adopt(&self) {
        self.shared.door.adopt(thread::current());
    }

    /// The next item, without waiting.
    pub fn try_pop(&self) -> Option<T> {
        self.shared.queue.pop()
    }

    /// Items waiting.
    pub fn len(&self) -> usize {
        self.shared.queue.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.shared.queue.is_empty()
    }

    /// Sleeps until `ready()` says that there is something to do, someone rings, or `deadline` comes. `ready` is asked
    /// after the sleeping flag is up, so that no wake is lost; it may look at further queues that ring the same bell.
    pub fn park(&self, deadline: Option<Instant>, ready: impl Fn() -> bool) {
        self.shared.door.fall_asleep();
        self.rest(deadline, ready);
    }

    /// As [`ThreadInbox::park`], but what is sent unhurried waits until something else wakes it: nobody waits for what would
    /// come of it.
    pub fn doze(&self, deadline: Option<Instant>, ready: impl Fn() -> bool) {
        self.shared.door.doze();
        self.rest(deadline, ready);
    }

    fn rest(&self, deadline: Option<Instant>, ready: impl Fn() -> bool) {
        if self.shared.queue.is_empty() && !ready() {
            match deadline.map(|d| d.saturating_duration_since(clock::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => {}
                Some(wait) => thread::park_timeout(wait),
            }
        }
        self.shared.door.wake_up();
    }
}

#[cfg(test)]
mod tests;
