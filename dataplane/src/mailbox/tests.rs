use super::*;
use crate::shard::{DriverWish, Shard, ShardSpec};

fn shard_receives_everything(driver: DriverWish) {
    let (sender, seed) = for_shard::<u64>(1024).unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    let spec = ShardSpec { name: "t".to_owned(), cpu: None, driver };
    let shard = Shard::start(spec, move || async move {
        let mut inbox = seed.open().unwrap();
        let (mut sum, mut count, mut batch) = (0, 0, Vec::new());
        while count < 60_000 {
            inbox.receive(&mut batch, 64).await;
            count += batch.len();
            sum += batch.drain(..).sum::<u64>();
        }
        done.send(sum).unwrap();
    })
    .unwrap();
    let threads: Vec<_> = (0..3u64)
        .map(|t| {
            let sender = sender.clone();
            thread::spawn(move || {
                for i in 0..20_000 {
                    let mut item = t * 20_000 + i;
                    while let Err(back) = sender.push(item) {
                        item = back;
                        sender.ring();
                        thread::yield_now();
                    }
                    if i % 7 == 0 || i == 19_999 {
                        sender.ring();
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(is_done.recv_timeout(Duration::from_secs(30)).unwrap(), (0..60_000u64).sum::<u64>());
    assert!(shard.join());
}

#[test]
fn a_shard_on_epoll_receives_every_item_of_three_senders() {
    shard_receives_everything(DriverWish::Epoll);
}

#[test]
fn a_shard_on_the_best_driver_receives_every_item_of_three_senders() {
    shard_receives_everything(DriverWish::Auto);
}

#[test]
fn a_full_mailbox_gives_the_item_back() {
    let (sender, inbox) = for_thread::<u8>(2);
    assert!(sender.send(1).is_ok() && sender.send(2).is_ok());
    assert_eq!(sender.send(3), Err(3));
    assert_eq!(inbox.try_pop(), Some(1));
    assert!(sender.send(3).is_ok());
}

#[test]
fn a_parked_thread_wakes_for_each_item() {
    let (sender, inbox) = for_thread::<u32>(16);
    let thread = thread::spawn(move || {
        inbox.adopt();
        let mut seen = 0;
        while seen < 1_000 {
            match inbox.try_pop() {
                Some(_) => seen += 1,
                None => inbox.park(None, || false),
            }
        }
    });
    for i in 0..1_000 {
        while sender.send(i).is_err() {
            thread::yield_now();
        }
    }
    thread.join().unwrap();
}

#[test]
fn what_is_sent_unhurried_wakes_who_sleeps_and_not_who_dozes_before_half_the_room_is_taken() {
    let (sender, inbox) = for_thread::<u8>(6);
    let door = &sender.0.door;
    door.fall_asleep();
    sender.send_unhurried(1).unwrap();
    assert!(!door.is_asleep());
    door.doze();
    sender.send_unhurried(2).unwrap();
    assert!(door.is_asleep(), "two of six wait");
    sender.send_unhurried(3).unwrap();
    assert!(!door.is_asleep(), "half the room is taken");
    inbox.try_pop();
    door.doze();
    sender.send_unhurried(4).unwrap();
    assert!(!door.is_asleep());
    while inbox.try_pop().is_some() {}
    door.doze();
    sender.send(5).unwrap();
    assert!(!door.is_asleep(), "what cannot wait wakes it");
}
