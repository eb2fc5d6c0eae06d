//! What this repository's tests may ask of a build with the `test-hooks` feature, by environment variables that no other
//! build knows.

use std::time::Duration;

use crate::relay::HeartbeatTimes;

/// `times`, or what `IOP_TEST_HEARTBEAT_INTERVAL_MS` and `IOP_TEST_HEARTBEAT_DEADLINE_MS` say.
pub(crate) fn heartbeat(times: HeartbeatTimes) -> HeartbeatTimes {
    HeartbeatTimes {
        interval: millis("IOP_TEST_HEARTBEAT_INTERVAL_MS").unwrap_or(times.interval),
        timeout: millis("IOP_TEST_HEARTBEAT_DEADLINE_MS").unwrap_or(times.timeout),
    }
}

fn millis(variable: &str) -> Option<Duration> {
    std::env::var(variable).ok()?.parse().ok().map(Duration::from_millis)
}

/// Panics here when a test wants it: `IOP_TEST_PANIC` names a file, and the first one to pass the point whose name the file
/// holds removes the file and panics.
///
/// # Panics
/// That is what it is for.
pub fn panic_point(point: &str) {
    static FILE: std::sync::OnceLock<Option<std::path::PathBuf>> = std::sync::OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os("IOP_TEST_PANIC").map(Into::into));
    if let Some(file) = file
        && std::fs::read_to_string(file).is_ok_and(|wanted| wanted == point)
        && std::fs::remove_file(file).is_ok()
    {
        panic!("a test wants a panic at {point}");
    }
}

/// Waits here when a test wants it: `IOP_TEST_HOLD` names a file, and the first to pass the point whose name the file holds writes
/// `held` to it and waits until the file is gone.
pub fn hold_point(point: &str) {
    static FILE: std::sync::OnceLock<Option<std::path::PathBuf>> = std::sync::OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os("IOP_TEST_HOLD").map(Into::into));
    if let Some(file) = file
        && std::fs::read_to_string(file).is_ok_and(|wanted| wanted == point)
        && std::fs::write(file, "held").is_ok()
    {
        while file.exists() {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}
