//! What threads share is made of, named in one place. The crate `tests/loom` compiles the files that use it (mailboxes, leases)
//! a second time with loom's counterparts in its stead, and runs them under every interleaving.

pub use std::{
    sync::{OnceLock, atomic},
    thread, thread_local,
};

pub use crossbeam::queue::ArrayQueue;
