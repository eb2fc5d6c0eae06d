//! `iop-perf`: the scripted provider and the load generator that measure and test IOP from outside.
//!
//! Nothing here depends on the product's crates, so the harness and the product share no bug, and the
//! provider can be as broken as a test needs. The runtime is tokio on epoll: the provider must run where
//! io_uring is refused.
//!
//! Reading order:
//! - [`provider`]: an OpenAI-compatible server whose every reply follows a [`provider::Script`];
//! - [`load`]: a closed-loop client that verifies every stream it receives;
//! - [`chunked`]: the chunked transfer coding, strict, used at both ends;
//! - [`digest`]: the digest that ties a stream's text at its source to the text that arrived;
//! - [`procfs`]: CPU time and memory of the measured processes.

pub mod chunked;
pub mod digest;
pub mod load;
pub mod procfs;
pub mod provider;
