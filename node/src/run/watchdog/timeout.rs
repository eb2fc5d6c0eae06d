//! Which stall timeouts there are (STL-1, STL-10).

use std::time::Duration;

use thiserror::Error;

/// The timeout that 0 means.
pub const DEFAULT: Duration = Duration::from_millis(300_000);
/// The longest one in milliseconds: what a signed 64-bit number of nanoseconds holds.
pub const MILLIS_MAX: i64 = i64::MAX / 1_000_000;

/// A timeout that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("response_stall_timeout_ms is {0}; expected 0 (for 300000) to {MILLIS_MAX}")]
pub struct OutOfRange(pub i64);

/// The timeout of a request.
///
/// # Errors
/// [`OutOfRange`]: the request is to be refused before anything of an adapter is called.
pub fn from_millis(millis: i64) -> Result<Duration, OutOfRange> {
    match u64::try_from(millis) {
        Ok(0) => Ok(DEFAULT),
        Ok(positive) if millis <= MILLIS_MAX => Ok(Duration::from_millis(positive)),
        _ => Err(OutOfRange(millis)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: STL-1, STL-10
    #[test]
    fn nothing_means_five_minutes_and_what_no_clock_can_hold_is_refused() {
        for (millis, timeout) in [
            (0, Ok(Duration::from_secs(300))),
            (1, Ok(Duration::from_millis(1))),
            (300_000, Ok(DEFAULT)),
            (MILLIS_MAX, Ok(Duration::from_millis(9_223_372_036_854))),
            (MILLIS_MAX + 1, Err(OutOfRange(MILLIS_MAX + 1))),
            (-1, Err(OutOfRange(-1))),
            (i64::MIN, Err(OutOfRange(i64::MIN))),
            (i64::MAX, Err(OutOfRange(i64::MAX))),
        ] {
            assert_eq!(from_millis(millis), timeout, "{millis}");
        }
    }
}
