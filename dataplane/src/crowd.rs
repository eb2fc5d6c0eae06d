//! A bound on connections of one kind, for those that should be short: over it the oldest one gives way, so that mute or slow
//! peers cannot keep proper ones out.

use std::{
    collections::VecDeque,
    rc::{Rc, Weak},
};

use crate::local::Latch;

/// Who is there, oldest first.
#[derive(Debug)]
pub struct Crowd {
    most: usize,
    places: VecDeque<Weak<Latch>>,
}

/// A place in a [`Crowd`]; its drop frees it.
#[derive(Debug)]
pub struct Place(Rc<Latch>);

impl Place {
    /// Waits until the place is wanted for a newer one. May be dropped freely.
    pub async fn displaced(&self) {
        self.0.closed().await;
    }
}

impl Crowd {
    /// Room for `most`.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, places: VecDeque::new() }
    }

    /// A place for one more; whether the oldest one had to give way for it.
    pub fn enter(&mut self) -> (Place, bool) {
        self.places.retain(|place| place.strong_count() > 0);
        let full = self.places.len() >= self.most;
        if full && let Some(oldest) = self.places.pop_front().and_then(|place| place.upgrade()) {
            oldest.close();
        }
        let place = Rc::new(Latch::new());
        self.places.push_back(Rc::downgrade(&place));
        (Place(place), full)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn the_oldest_gives_way_when_there_is_no_room_and_a_freed_place_is_used_first() {
        let mut crowd = Crowd::new(2);
        let (first, one) = crowd.enter();
        let (second, two) = crowd.enter();
        assert!(!one && !two);
        drop(first);
        let (third, displaced) = crowd.enter();
        assert!(!displaced && second.displaced().now_or_never().is_none());
        let (fourth, displaced) = crowd.enter();
        assert!(displaced && second.displaced().now_or_never().is_some());
        assert!(third.displaced().now_or_never().is_none() && fourth.displaced().now_or_never().is_none());
    }
}
