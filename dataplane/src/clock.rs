//! The only place that reads the clock. Machines are handed the result.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

/// Now, on the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds since the first call in this process; never decreases.
pub fn monotonic_nanos() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(now);
    u64::try_from(now().saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX)
}

/// Seconds since 1970 on the wall clock; for log lines, certificates and `created` fields only, never for timers.
pub fn unix_seconds() -> u64 {
    since_1970().as_secs()
}

/// Time since 1970 on the wall clock, for log lines only.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn since_1970() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
