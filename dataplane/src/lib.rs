//! The data plane: thread-per-core shards and everything that moves bytes on them.
//!
//! It knows sockets, frames, streams and credit. It does not know what a lease, model or tenant is.

pub mod clock;
pub mod crowd;
pub mod drain;
pub mod http;
pub mod local;
pub mod log;
pub mod mailbox;
pub mod net;
pub mod relay;
pub mod shard;
pub mod sync;
#[cfg(feature = "test-hooks")]
pub mod test_hooks;
pub mod time;
pub mod tls;

/// Under the feature `test-hooks` a place where a test can have a thread wait (`test_hooks::hold_point`); else nothing at all.
#[macro_export]
macro_rules! hold_point {
    ($point:literal) => {
        #[cfg(feature = "test-hooks")]
        $crate::test_hooks::hold_point($point);
    };
}

/// Under the feature `test-hooks` a place where a test can have a panic (`test_hooks::panic_point`); else nothing at all.
#[macro_export]
macro_rules! panic_point {
    ($point:literal) => {
        #[cfg(feature = "test-hooks")]
        $crate::test_hooks::panic_point($point);
    };
}
