//! The product's own files that threads meet in, compiled a second time with [loom](https://docs.rs/loom) in the place of what
//! they are made of: `dataplane::sync` and the socket pair that wakes a shard. Nothing of them is written twice; a model in
//! `tests/` runs them under every interleaving and every reordering that the memory model allows, or where those are too many,
//! under all in which no more than a few threads are interrupted where they need not wait. loom takes sequentially consistent
//! accesses for weaker ones than they are: what holds here leans on fences alone.
//!
//! A wake that is lost shows as a deadlock, which loom reports with the place at which each thread waits.
// The files bring tests of their own, for the crates that they belong to.
#![cfg(not(test))]
#![allow(
    dead_code,
    missing_debug_implementations,
    reason = "the product's files, of which a model needs a part"
)]

// The Edge's file names them so.
extern crate self as dataplane;

pub mod shard;
pub mod sync;

#[path = "../../../dataplane/src/clock.rs"]
pub mod clock;
#[path = "../../../edge/src/lease.rs"]
pub mod lease;
#[path = "../../../dataplane/src/local.rs"]
pub mod local;
#[path = "../../../dataplane/src/mailbox/mod.rs"]
pub mod mailbox;

/// What leases need of the Edge's vocabulary: the type of the mail that their bell belongs to.
pub mod mail {
    /// Mail for control.
    #[derive(Debug, PartialEq, Eq)]
    pub enum ToControl {
        /// Any.
        Mail(u8),
    }
}

/// Runs a model under every interleaving.
pub fn every_interleaving(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = None;
    builder.check(model);
}

/// Runs a model under every interleaving with at most so many switches away from a thread that could go on.
pub fn interleavings(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// `mailbox::turn::ring_bells`, for the models.
pub async fn ring_bells() {
    mailbox::turn::ring_bells().await;
}
