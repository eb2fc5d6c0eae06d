//! A coarse clock for what happens with every event of a stream: reading the real one costs more than all else that the watchdog
//! does for an event.
//!
//! It ticks for as long as anything on the shard is under way, and not on a quiet one.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use dataplane::{clock, shard::spawn_guarded, time::sleep_until};

/// How far [`Pulse::now`] may be ahead.
pub const TICK: Duration = Duration::from_millis(250);

thread_local! {
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
    static HOLDERS: Cell<usize> = const { Cell::new(0) };
    static TICKING: Cell<bool> = const { Cell::new(false) };
}

/// The clock of this shard; it ticks while one of these exists.
#[derive(Debug)]
pub struct Pulse(());

impl Pulse {
    /// Starts the clock, or joins it, at `now`.
    #[must_use]
    pub fn start(now: Instant) -> Self {
        HOLDERS.set(HOLDERS.get() + 1);
        show(now);
        if !TICKING.replace(true) {
            spawn_guarded(tick());
        }
        Self(())
    }

    /// No earlier than now, and no more than [`TICK`] later: whoever counts a time from here never counts it short.
    #[must_use]
    pub fn now(&self) -> Instant {
        NOW.get().unwrap_or_else(clock::now)
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        // At the end of its thread the count may be gone before it.
        let _gone = HOLDERS.try_with(|holders| holders.set(holders.get().saturating_sub(1)));
    }
}

fn show(now: Instant) {
    NOW.set(now.checked_add(TICK));
}

/// Ends when nobody wants to know the time. A panic's way out too must let the next one start it.
async fn tick() {
    struct Ticking;
    impl Drop for Ticking {
        fn drop(&mut self) {
            let _gone = TICKING.try_with(|ticking| ticking.set(false));
        }
    }
    let _ticking = Ticking;
    while HOLDERS.get() > 0 {
        let now = clock::now();
        show(now);
        sleep_until(now + TICK).await;
    }
}
