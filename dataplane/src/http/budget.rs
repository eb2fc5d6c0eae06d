//! How much memory the request bodies of the whole process may take, shared by its shards without a lock.
//!
//! A body takes room as it grows, not by what it announces: a client that announces much and sends nothing takes nothing
//! from others. Room goes back when the last piece of a body that holds it is dropped, whoever has it then.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::{Bytes, BytesMut};

use super::body::Body;

/// A body of at most this takes its room also from the part that is kept free of large ones.
pub const SMALL_BODY_BYTES: u64 = 64 * 1024;
/// The part of a budget that large bodies leave to small ones, as its divisor: requests of the usual size are served while
/// uploads have used up theirs.
const KEPT_FOR_SMALL: u64 = 8;
/// Least length of a body's first piece.
const PIECE_MIN: usize = 16 * 1024;
/// The longest piece.
const PIECE_MAX: usize = 256 * 1024;

/// A bound of bytes. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<State>);

#[derive(Debug)]
struct State {
    max: u64,
    held: AtomicU64,
}

/// Room for some bytes; its drop gives it back.
#[derive(Debug)]
pub struct Room {
    budget: Budget,
    bytes: u64,
}

impl Budget {
    /// A budget of `max` bytes.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self(Arc::new(State { max, held: AtomicU64::new(0) }))
    }

    /// Bytes that are held now.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.0.held.load(Relaxed)
    }

    /// The bound.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.0.max
    }

    /// Whether a body of `bytes` would find room now. A promise of nothing.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        self.held().saturating_add(bytes) <= self.bound(bytes)
    }

    /// Room for `bytes` more of a body that has `before` already; `None` when there is none.
    #[must_use]
    pub fn take(&self, before: u64, bytes: u64) -> Option<Room> {
        let bound = self.bound(before.saturating_add(bytes));
        let grown = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= bound);
        self.0.held.fetch_update(Relaxed, Relaxed, grown).ok()?;
        Some(Room { budget: self.clone(), bytes })
    }

    /// How full the budget may become for the sake of a body of this size.
    fn bound(&self, body: u64) -> u64 {
        let max = self.0.max;
        if body <= SMALL_BODY_BYTES { max } else { max - max / KEPT_FOR_SMALL }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.budget.0.held.fetch_sub(self.bytes, Relaxed);
    }
}

/// Bytes with the room that they take.
struct Roomed {
    bytes: BytesMut,
    _room: Room,
}

impl AsRef<[u8]> for Roomed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Room {
    /// Ties the room to `bytes`: it goes back with the last slice of them.
    #[must_use]
    pub fn tie(self, bytes: BytesMut) -> Bytes {
        Bytes::from_owner(Roomed { bytes, _room: self })
    }
}

/// A piece of a body that is being filled. The first one has room for [`PIECE_MIN`], unless the body is shorter; each next one
/// is as long as all before it, up to [`PIECE_MAX`], so that a body takes at most about twice the memory of what is there, and
/// is never moved.
#[derive(Debug)]
pub(super) struct Piece {
    bytes: BytesMut,
    capacity: usize,
    room: Room,
}

impl Piece {
    /// The next piece of a body of which `before` bytes are there and at most `left` may come; `None` when there is no room.
    pub(super) fn next(budget: &Budget, before: usize, left: usize) -> Option<Self> {
        let capacity = before.clamp(PIECE_MIN, PIECE_MAX).min(left);
        let room = budget.take(before as u64, capacity as u64)?;
        Some(Self { bytes: BytesMut::with_capacity(capacity), capacity, room })
    }

    /// Bytes in it.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that it still takes.
    pub(super) fn missing(&self) -> usize {
        self.capacity - self.bytes.len()
    }

    /// What at most [`Piece::missing`] bytes are to be put behind.
    pub(super) fn bytes(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// Takes at most [`Piece::missing`] bytes.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// It is full, or the body is over.
    pub(super) fn push_to(self, body: &mut Body) {
        body.push(self.room.tie(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: u64 = SMALL_BODY_BYTES + 1;

    #[test]
    fn bodies_together_are_bounded_and_a_dropped_one_makes_room() {
        let budget = Budget::new(8 * LARGE);
        let large: Vec<_> = (0..7).map_while(|_| budget.take(0, LARGE)).collect();
        assert_eq!((large.len(), budget.held()), (7, 7 * LARGE));
        assert!(!budget.has_room(LARGE) && budget.take(0, LARGE).is_none());
        // What counts is the body's whole size, however small its last part.
        assert!(budget.take(LARGE, 1).is_none());
        let small = budget.take(0, LARGE - 1).unwrap();
        assert!(budget.has_room(1) && budget.take(0, 2).is_none() && budget.take(0, u64::MAX).is_none());
        drop((large, small));
        assert_eq!(budget.held(), 0);
        assert!(budget.take(0, LARGE).is_some());
    }

    #[test]
    fn room_goes_back_with_the_last_slice_of_its_bytes() {
        let budget = Budget::new(100);
        let mut bytes = budget.take(0, 10).unwrap().tie(BytesMut::from(&b"0123456789"[..]));
        let slice = bytes.split_to(1);
        drop(bytes);
        assert_eq!((budget.held(), slice.as_ref()), (10, &b"0"[..]));
        drop(slice);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn shards_that_take_at_the_same_time_never_hold_more_than_the_bound() {
        let budget = Budget::new(1000);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..10_000 {
                        let rooms: Vec<_> = (0..3).map_while(|_| budget.take(0, 150)).collect();
                        assert!(budget.held() <= 1000);
                        drop(rooms);
                    }
                });
            }
        });
        assert_eq!(budget.held(), 0);
    }
}
