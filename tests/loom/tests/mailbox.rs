//! No wake is lost: mailboxes of threads and of shards, their bells and their turns.

use std::{pin::pin, sync::Arc};

use futures::future::{Either, select};
use iop_loom::{
    every_interleaving, interleavings,
    mailbox::{Sender, ThreadInbox, for_shard, for_thread},
    ring_bells,
    sync::ArrayQueue,
};
use loom::{future::block_on, thread};

/// Takes items until `count` have come, as control does: all that is there, then sleep.
fn take(inbox: &ThreadInbox<u8>, count: usize) -> Vec<u8> {
    inbox.adopt();
    let mut taken = Vec::new();
    loop {
        taken.extend(std::iter::from_fn(|| inbox.try_pop()));
        if taken.len() >= count {
            return taken;
        }
        inbox.park(None, || false);
    }
}

#[test]
fn a_thread_that_falls_asleep_is_woken_for_what_two_senders_push_and_drop() {
    interleavings(3, || {
        let (first, inbox) = for_thread(4);
        let second = first.clone();
        // Each sender is gone when it has rung.
        let senders =
            [(first, 1), (second, 2)].map(|(sender, item)| thread::spawn(move || sender.send(item).unwrap()));
        let mut taken = take(&inbox, 2);
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

#[test]
fn a_thread_that_falls_asleep_is_woken_for_one_item_of_its_own_queue_or_of_the_one_beside_it() {
    for to_own in [true, false] {
        every_interleaving(move || {
            let (sender, inbox) = for_thread(2);
            let beside = Arc::new(ArrayQueue::new(2));
            let other = Arc::clone(&beside);
            let sending =
                thread::spawn(
                    move || {
                        if to_own { sender.send(1).unwrap() } else { push_beside(&other, &sender, 1) }
                    },
                );
            inbox.adopt();
            while inbox.try_pop().or_else(|| beside.pop()).is_none() {
                inbox.park(None, || !beside.is_empty());
            }
            sending.join().unwrap();
        });
    }
}

#[test]
fn a_shard_that_falls_asleep_is_woken_for_one_item() {
    every_interleaving(|| {
        let (sender, seed) = for_shard(2).unwrap();
        let sending = thread::spawn(move || sender.send(1).unwrap());
        block_on(async {
            let mut batch = Vec::new();
            seed.open().unwrap().receive(&mut batch, 8).await;
            assert_eq!(batch, [1]);
        });
        sending.join().unwrap();
    });
}

#[test]
fn a_batch_is_rung_for_once_and_comes_in_order() {
    interleavings(4, || {
        let (sender, inbox) = for_thread(4);
        let batch = thread::spawn(move || {
            sender.push(1).unwrap();
            sender.push(2).unwrap();
            sender.ring();
            sender.send(3).unwrap();
        });
        assert_eq!(take(&inbox, 3), [1, 2, 3]);
        batch.join().unwrap();
    });
}

#[test]
fn a_sender_that_found_the_queue_full_gets_its_item_through_when_it_rings_and_comes_again() {
    interleavings(4, || {
        let (sender, inbox) = for_thread(1);
        let (done, is_done) = for_thread(1);
        let full = thread::spawn(move || {
            sender.send(1).unwrap();
            // As `Outbox::flush` and `flush_pending`: what was refused is kept, and the receiver is rung.
            let mut refused = 0;
            while sender.push(2).is_err() {
                refused += 1;
                assert!(refused < 3, "told that there is room, it finds none");
                sender.ring();
                take(&is_done, 1);
            }
            sender.ring();
        });
        inbox.adopt();
        let mut taken = Vec::new();
        while taken.len() < 2 {
            match inbox.try_pop() {
                Some(item) => {
                    taken.push(item);
                    let _told_already = done.send(0);
                }
                None => inbox.park(None, || false),
            }
        }
        assert_eq!(taken, [1, 2]);
        full.join().unwrap();
    });
}

/// A queue beside the mailbox that rings the mailbox's bell, as returned leases do.
fn push_beside(beside: &ArrayQueue<u8>, bell: &Sender<u8>, item: u8) {
    beside.push(item).unwrap();
    bell.ring();
}

#[test]
fn two_queues_behind_one_bell_are_both_looked_at_before_it_sleeps() {
    interleavings(3, || {
        let (sender, inbox) = for_thread(2);
        let beside = Arc::new(ArrayQueue::new(2));
        let (bell, other) = (sender.clone(), Arc::clone(&beside));
        let threads = [
            thread::spawn(move || sender.send(1).unwrap()),
            thread::spawn(move || push_beside(&other, &bell, 2)),
        ];
        inbox.adopt();
        let (mut mail, mut returned) = (0, 0);
        while mail + returned < 3 {
            mail += inbox.try_pop().unwrap_or_default();
            returned += beside.pop().unwrap_or_default();
            if mail + returned < 3 {
                inbox.park(None, || !beside.is_empty());
            }
        }
        assert_eq!((mail, returned), (1, 2));
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_sleep_whose_time_is_over_leaves_no_flag_that_swallows_a_later_wake() {
    every_interleaving(|| {
        let (sender, inbox) = for_thread(2);
        let sending = thread::spawn(move || sender.send(1).unwrap());
        inbox.adopt();
        // Time that is over, and time that is over while it sleeps.
        inbox.park(Some(iop_loom::clock::now()), || false);
        inbox.park(Some(iop_loom::clock::now() + std::time::Duration::from_secs(3600)), || false);
        assert_eq!(take(&inbox, 1), [1]);
        sending.join().unwrap();
    });
}

#[test]
fn a_shard_that_falls_asleep_is_woken_for_what_two_senders_push_and_drop() {
    interleavings(3, || {
        let (first, seed) = for_shard(4).unwrap();
        let second = first.clone();
        let senders =
            [(first, 1), (second, 2)].map(|(sender, item)| thread::spawn(move || sender.send(item).unwrap()));
        let mut taken = block_on(async {
            let (mut inbox, mut taken) = (seed.open().unwrap(), Vec::new());
            while taken.len() < 2 {
                let mut batch = Vec::new();
                inbox.receive(&mut batch, 1).await;
                assert_eq!(batch.len(), 1);
                taken.append(&mut batch);
            }
            taken
        });
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

#[test]
fn a_shard_asks_and_is_answered_though_it_rings_at_the_end_of_its_turn_only() {
    interleavings(4, || {
        let (ask, control) = for_thread(2);
        let (answer, seed) = for_shard::<u8>(2).unwrap();
        let answering = thread::spawn(move || {
            let asked = take(&control, 2);
            answer.send(asked.iter().sum()).unwrap();
        });
        block_on(async {
            let mut inbox = seed.open().unwrap();
            let task = async {
                // Two pieces of mail of one turn ring together; who sent them then waits for what comes of them.
                ask.send(1).unwrap();
                ask.send(2).unwrap();
                let mut batch = Vec::new();
                inbox.receive(&mut batch, 8).await;
                batch
            };
            // The bells' task is polled first, as on a shard it was started first.
            let batch = match select(pin!(ring_bells()), pin!(task)).await {
                Either::Right((batch, _)) => batch,
                Either::Left(_) => unreachable!("the bells never end"),
            };
            assert_eq!(batch, [3]);
        });
        answering.join().unwrap();
    });
}

#[test]
fn what_a_shard_sent_in_its_last_turn_wakes_its_receiver() {
    every_interleaving(|| {
        let (sender, control) = for_thread(2);
        let shard = thread::spawn(move || {
            block_on(async {
                // It ends before its bells have their turn: what is due is rung by their end.
                select(pin!(ring_bells()), pin!(async { sender.send(1).unwrap() })).await;
            });
        });
        assert_eq!(take(&control, 1), [1]);
        shard.join().unwrap();
    });
}

#[test]
fn who_dozes_finds_what_could_wait_before_what_could_not() {
    interleavings(4, || {
        let (sender, inbox) = for_thread(4);
        let sending = thread::spawn(move || {
            sender.send_unhurried(1).unwrap();
            sender.send(2).unwrap();
        });
        inbox.adopt();
        let mut taken = Vec::new();
        while taken.len() < 2 {
            match inbox.try_pop() {
                Some(item) => taken.push(item),
                None => inbox.doze(None, || false),
            }
        }
        assert_eq!(taken, [1, 2]);
        sending.join().unwrap();
    });
}

#[test]
fn who_sleeps_is_woken_for_what_could_wait_though_it_dozed_before() {
    interleavings(4, || {
        let (first, inbox) = for_thread(8);
        let second = first.clone();
        let senders = [
            thread::spawn(move || first.send(2).unwrap()),
            thread::spawn(move || second.send_unhurried(1).unwrap()),
        ];
        // As control: it sleeps from the moment at which someone waits, told by the first item.
        inbox.adopt();
        let mut taken = Vec::new();
        while taken.len() < 2 {
            match inbox.try_pop() {
                Some(item) => taken.push(item),
                None if taken.contains(&2) => inbox.park(None, || false),
                None => inbox.doze(None, || false),
            }
        }
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

#[test]
fn who_dozes_is_woken_where_half_the_room_is_taken() {
    interleavings(3, || {
        let (first, inbox) = for_thread(4);
        let second = first.clone();
        let senders = [(first, 1), (second, 2)]
            .map(|(sender, item)| thread::spawn(move || sender.send_unhurried(item).unwrap()));
        inbox.adopt();
        // It does not take the first while the second is not there, so that two are half the room.
        while inbox.len() < 2 {
            inbox.doze(None, || inbox.len() == 2);
            if inbox.len() == 1 {
                thread::yield_now();
            }
        }
        for sender in senders {
            sender.join().unwrap();
        }
    });
}
