//! Bells of one shard, rung together when every task that is ready has had its turn.
//!
//! A wake of another thread costs more than all else that a piece of mail does: a system call here, a switch of tasks there,
//! and a receiver that works off one item at a time. Tasks that run one after the other in one turn of the shard have mail for
//! the same receivers, control above all.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use super::bell::Doorbell;
use crate::{local::Signal, sync::thread_local};

thread_local! {
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// What is to be rung at the end of the calling shard's turn.
struct Turn {
    doors: Vec<Arc<Doorbell>>,
    signal: Rc<Signal>,
}

/// Rings at the end of the turn, on a shard; at once on any other thread.
pub(super) fn ring_at_end(door: &Arc<Doorbell>) {
    // At the end of a thread the place may be gone already.
    let deferred = TURN.try_with(|turn| match &mut *turn.borrow_mut() {
        Some(turn) => {
            // As many as there are threads: a handful.
            if !turn.doors.iter().any(|known| Arc::ptr_eq(known, door)) {
                turn.doors.push(Arc::clone(door));
                turn.signal.set();
            }
            true
        }
        None => false,
    });
    if !deferred.unwrap_or(false) {
        door.ring();
    }
}

/// Rings the bells of the calling shard, turn by turn. Never ends; when it is dropped what is due is rung, and later bells ring
/// at once.
pub(crate) async fn ring_bells() {
    let signal = Rc::new(Signal::new());
    TURN.with(|turn| turn.replace(Some(Turn { doors: Vec::new(), signal: Rc::clone(&signal) })));
    let _end = EndGuard;
    loop {
        // Woken by the first bell of a turn, it stands behind all tasks that were ready then.
        signal.wait().await;
        ring_due();
    }
}

fn ring_due() {
    TURN.with(|turn| {
        let mut turn = turn.borrow_mut();
        let doors = turn.as_mut().map(|turn| &mut turn.doors);
        doors.into_iter().flat_map(|doors| doors.drain(..)).for_each(|door| door.ring());
    });
}

struct EndGuard;

impl Drop for EndGuard {
    fn drop(&mut self) {
        let due = TURN.try_with(RefCell::take).ok().flatten();
        due.into_iter().flat_map(|turn| turn.doors).for_each(|door| door.ring());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{super::for_thread, *};
    use crate::{shard::spawn_guarded, time::yield_now};

    fn on_a_runtime(test: impl Future<Output = ()>) {
        monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().build().unwrap().block_on(test);
    }

    #[test]
    fn what_the_tasks_of_a_turn_send_wakes_its_receiver_once_and_at_its_end() {
        let (sender, inbox) = for_thread::<u8>(8);
        on_a_runtime(async {
            spawn_guarded(ring_bells());
            yield_now().await;
            inbox.shared.door.fall_asleep();
            let asleep = Rc::new(Cell::new(0));
            for item in 0..3 {
                let (sender, asleep) = (sender.clone(), Rc::clone(&asleep));
                spawn_guarded(async move {
                    sender.send(item).unwrap();
                    asleep.set(asleep.get() + usize::from(sender.0.door.is_asleep()));
                });
            }
            yield_now().await;
            assert_eq!((asleep.get(), inbox.len()), (3, 3), "nobody is woken before all have sent");
            yield_now().await;
            assert!(!sender.0.door.is_asleep());
        });
    }

    #[test]
    fn what_is_due_when_a_shard_ends_is_rung_and_what_comes_later_at_once() {
        let (sender, inbox) = for_thread::<u8>(8);
        on_a_runtime(async {
            let mut bells = Box::pin(ring_bells());
            assert!(futures::FutureExt::now_or_never(bells.as_mut()).is_none());
            inbox.shared.door.fall_asleep();
            sender.send(1).unwrap();
            assert!(sender.0.door.is_asleep());
            drop(bells);
            assert!(!sender.0.door.is_asleep());
        });
        inbox.shared.door.fall_asleep();
        sender.send(2).unwrap();
        assert!(!sender.0.door.is_asleep());
    }
}
