//! A fake Edge, a fake provider and a Node under test, each on threads of its own, for tests that speak in turns.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

pub mod certs;
pub mod edge;
pub mod log;
pub mod node;
pub mod provider;

use std::time::Duration;

/// Longest wait for anything that must happen.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long something that must not happen is waited for.
pub const QUIET: Duration = Duration::from_millis(150);

/// The driver that `IOP_DRIVER` asks for, so that the same tests run on each.
pub fn driver() -> dataplane::shard::DriverWish {
    std::env::var("IOP_DRIVER").unwrap_or_default().parse().unwrap()
}
