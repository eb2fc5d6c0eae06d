//! The timers of one shard, behind a single timer of the runtime.
//!
//! A timer of the runtime's own is 640 bytes in a box of its own, and every silent stream waits for two or three. Here a wait is a place
//! in a list and an entry in an ordered set, some 60 bytes together; one task, the *ringer*, sleeps until the earliest of
//! them is due.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    future::Future,
    marker::PhantomData,
    mem,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use futures::future::select;

use crate::{clock, local::Signal};

/// The ringer looks this often at the least; the runtime's wheel has an end.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

thread_local! {
    static ALARMS: RefCell<Alarms> = RefCell::default();
}

/// A wait's time has come.
struct HasRung;

/// The place of one wait.
type Place = u32;

#[derive(Default)]
struct Alarms {
    /// The waits that are pending, the earliest first.
    due: BTreeSet<(Instant, Place)>,
    /// Whom to wake, by place: nobody once it has rung.
    wakers: Vec<Option<Waker>>,
    free: Vec<Place>,
    /// When the ringer wakes next.
    rings: Option<Instant>,
    /// Tells the ringer of an earlier one.
    earlier: Rc<Signal>,
}

impl Alarms {
    fn enter(&mut self, deadline: Instant, waker: Waker) -> Place {
        let place = self.free.pop().unwrap_or_else(|| {
            self.wakers.push(None);
            // 2^32 waits do not fit memory.
            Place::try_from(self.wakers.len() - 1).unwrap_or(Place::MAX)
        });
        if let Some(free) = self.wakers.get_mut(place as usize) {
            *free = Some(waker);
        }
        self.due.insert((deadline, place));
        if self.rings.is_none_or(|rings| deadline < rings) {
            self.rings = Some(deadline);
            self.earlier.set();
        }
        place
    }

    /// Has a pending wait wake `waker`; gives back whom it would have woken instead.
    fn renew(&mut self, place: Place, waker: &Waker) -> Result<Option<Waker>, HasRung> {
        let known = self.wakers.get_mut(place as usize).and_then(Option::as_mut).ok_or(HasRung)?;
        Ok(if known.will_wake(waker) { None } else { Some(mem::replace(known, waker.clone())) })
    }

    fn leave(&mut self, deadline: Instant, place: Place) -> Option<Waker> {
        let waker = self.wakers.get_mut(place as usize).and_then(Option::take);
        if waker.is_some() {
            self.due.remove(&(deadline, place));
        }
        self.free.push(place);
        waker
    }

    /// Takes the next wait whose time has come at `now`.
    fn ring(&mut self, now: Instant) -> Option<Waker> {
        while let Some(&(_, place)) = self.due.first().filter(|(deadline, _)| *deadline <= now) {
            self.due.pop_first();
            if let Some(waker) = self.wakers.get_mut(place as usize).and_then(Option::take) {
                return Some(waker);
            }
        }
        self.rings = self.due.first().map(|(deadline, _)| *deadline);
        None
    }
}

/// The ringer of the calling shard. Never ends.
pub(super) async fn ring() {
    let earlier = ALARMS.with_borrow(|alarms| Rc::clone(&alarms.earlier));
    loop {
        let now = clock::now();
        while let Some(waker) = ALARMS.with_borrow_mut(|alarms| alarms.ring(now)) {
            waker.wake();
        }
        match ALARMS.with_borrow(|alarms| alarms.rings) {
            Some(next) => {
                let pause = next.saturating_duration_since(now).min(SLEEP_MAX);
                select(pin!(monoio::time::sleep(pause)), pin!(earlier.wait())).await;
            }
            None => earlier.wait().await,
        }
    }
}

/// A wait for a point in time, on the shard that polls it. Ready from then on; loses nothing when dropped.
#[derive(Debug)]
#[must_use = "it waits only when it is polled"]
pub struct Sleep {
    deadline: Instant,
    place: Option<Place>,
    /// Its place is on one thread.
    _here: PhantomData<*const ()>,
}

impl Sleep {
    /// Until `deadline`.
    pub(crate) const fn until(deadline: Instant) -> Self {
        Self { deadline, place: None, _here: PhantomData }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(place) = self.place {
            // A waker may hold the last of a task, and that other waits: it is dropped out here.
            let renewed = ALARMS.with_borrow_mut(|alarms| alarms.renew(place, cx.waker()));
            return if renewed.is_ok() { Poll::Pending } else { Poll::Ready(()) };
        }
        if self.deadline <= clock::now() {
            return Poll::Ready(());
        }
        let deadline = self.deadline;
        self.place = Some(ALARMS.with_borrow_mut(|alarms| alarms.enter(deadline, cx.waker().clone())));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        // At the end of its thread the list may be gone before it. A waker may hold the last of a task: it goes outside.
        let _waker = ALARMS.try_with(|alarms| alarms.try_borrow_mut().ok()?.leave(self.deadline, place));
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::mpsc};

    use futures::FutureExt;

    use super::*;
    use crate::shard::{DriverWish, Shard, ShardSpec, spawn_guarded};

    fn on_a_shard<F: Future<Output = ()>>(driver: DriverWish, main: impl FnOnce() -> F + Send + 'static) {
        let (ended, end) = mpsc::channel();
        let spec = ShardSpec { name: "alarms".to_owned(), cpu: None, driver };
        let shard = Shard::start(spec, move || async move {
            main().await;
            ended.send(()).unwrap();
        });
        assert!(shard.unwrap().join(), "the shard panicked");
        end.try_recv().unwrap();
    }

    fn after(millis: u64) -> Sleep {
        Sleep::until(clock::now() + Duration::from_millis(millis))
    }

    #[test]
    fn waits_end_in_the_order_of_their_times_and_not_before_them() {
        for driver in [DriverWish::Auto, DriverWish::Epoll] {
            on_a_shard(driver, || async {
                let order = Rc::new(RefCell::new(Vec::new()));
                // The later ones first: the ringer hears of each that is earlier.
                for millis in [40, 30, 10, 20] {
                    let order = Rc::clone(&order);
                    spawn_guarded(async move {
                        let begun = clock::now();
                        after(millis).await;
                        assert!(clock::now() - begun >= Duration::from_millis(millis));
                        order.borrow_mut().push(millis);
                    });
                }
                after(60).await;
                assert_eq!(*order.borrow(), [10, 20, 30, 40]);
            });
        }
    }

    #[test]
    fn one_that_is_dropped_leaves_its_place_and_rings_nobody() {
        on_a_shard(DriverWish::Auto, || async {
            let woken = Rc::new(Cell::new(0));
            let places = |alarms: &Alarms| (alarms.due.len(), alarms.wakers.len() - alarms.free.len());
            // The shard has a timer of its own, which begins with its second turn.
            after(1).await;
            let before = ALARMS.with_borrow(places);
            let mut kept = Box::pin(after(20));
            for _ in 0..1_000 {
                let count = Rc::clone(&woken);
                let mut dropped = Box::pin(after(5).map(move |()| count.set(1)));
                assert!(futures::poll!(dropped.as_mut()).is_pending());
            }
            assert!(futures::poll!(kept.as_mut()).is_pending());
            assert_eq!(ALARMS.with_borrow(places), (before.0 + 1, before.1 + 1));
            assert!(ALARMS.with_borrow(|alarms| alarms.wakers.len()) < 10);
            kept.as_mut().await;
            // It stays ready, and its place is its own until it is dropped.
            assert!(futures::poll!(kept.as_mut()).is_ready());
            drop(kept);
            assert_eq!((ALARMS.with_borrow(places), woken.get()), (before, 0));
        });
    }

    #[test]
    fn a_time_that_has_passed_is_ready_at_once() {
        assert!(Sleep::until(clock::now()).now_or_never().is_some());
    }
}
