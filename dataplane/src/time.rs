//! Timers of a shard. Granularity is about 2 ms (the runtime's timer wheel).

use std::{future::Future, pin::pin, time::Instant};

use futures::future::{Either, select};

use crate::shard::{Sleep, wake_behind_others};

/// Sleeps until `deadline`; at once when it has passed. Only on a [`Shard`](crate::shard::Shard).
pub const fn sleep_until(deadline: Instant) -> Sleep {
    Sleep::until(deadline)
}

/// Sleeps until `deadline`, for ever when there is none.
pub async fn sleep_until_maybe(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The output of `future`, or `None` when `deadline` comes first. **Drops** the future then: only for futures that lose
/// nothing when dropped (mailboxes, signals, readiness), never for a completion read or accept.
pub async fn before<F: Future>(deadline: Instant, future: F) -> Option<F::Output> {
    let future = pin!(future);
    let sleep = pin!(sleep_until(deadline));
    match select(future, sleep).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(((), _)) => None,
    }
}

/// Lets every other ready task run once. (`sleep(0)` costs a millisecond.)
///
/// The runtime puts a task that wakes itself while it runs at the *front* of its queue: it would run on, with nobody else between. So
/// another task wakes it, from the back.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if yielded {
            return std::task::Poll::Ready(());
        }
        yielded = true;
        wake_behind_others(cx.waker().clone());
        std::task::Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc, time::Duration};

    use super::*;
    use crate::{
        clock,
        shard::{DriverWish, Shard, ShardSpec, spawn_guarded},
    };

    #[test]
    fn tasks_that_yield_take_turns() {
        let (told, turns) = std::sync::mpsc::channel();
        let spec = ShardSpec { name: "turns".to_owned(), cpu: None, driver: DriverWish::Epoll };
        let shard = Shard::start(spec, move || async move {
            let turns = Rc::new(RefCell::new(String::new()));
            for name in ['a', 'b', 'c'] {
                let turns = Rc::clone(&turns);
                spawn_guarded(async move {
                    for _ in 0..50 {
                        turns.borrow_mut().push(name);
                        yield_now().await;
                    }
                });
            }
            sleep_until(clock::now() + Duration::from_millis(20)).await;
            told.send(turns.take()).unwrap();
        });
        assert!(shard.unwrap().join());
        assert_eq!(turns.recv().unwrap(), "abc".repeat(50));
    }
}
