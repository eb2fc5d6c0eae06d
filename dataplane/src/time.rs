//! Timers of a shard. Granularity is about 2 ms (the runtime's timer wheel).

use std::{future::Future, pin::pin, time::Instant};

use futures::future::{Either, select};

use crate::clock;

/// Sleeps until `deadline`; at once when it has passed.
pub async fn sleep_until(deadline: Instant) {
    let now = clock::now();
    if deadline > now {
        // The runtime's timer is 640 bytes at an alignment of 128, which every future around it would pay for, waiting or not.
        Box::pin(monoio::time::sleep(deadline - now)).await;
    }
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
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if yielded {
            return std::task::Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
