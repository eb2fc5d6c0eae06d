//! `iop-perf`: the scripted provider and the load generator that measure and test IOP from outside.
//!
//! Nothing here depends on the product's crates, so the harness and the product share no bug, and the
//! provider can be as broken as a test needs. The provider's runtime is tokio on epoll: it must run where
//! io_uring is refused. The load's is the same, or glommio on io_uring, as [`load::Engine`] says.
//!
//! Reading order:
//! - [`provider`]: an OpenAI-compatible server whose every reply follows a [`provider::Script`];
//! - [`load`]: a client, closed or on a schedule, that verifies every stream it receives;
//! - [`replay`]: a recorded trace as such a load;
//! - [`idle`]: silent streams, and what processes hold for them;
//! - [`subject`]: something to measure, as a file describes it, set up, started and ended;
//! - [`compare`]: subjects under the same loads, interleaved in rounds, as ratios within a round;
//! - [`instructions`]: what a relayed event and a request cost a subject in instructions, against a baseline;
//! - [`chunked`]: the chunked transfer coding, strict, used at both ends;
//! - [`digest`]: the digest that ties a stream's text at its source to the text that arrived;
//! - [`descriptors`]: the limit of open files;
//! - [`procfs`]: CPU time and memory of the measured processes.

pub mod chunked;
pub mod compare;
pub mod descriptors;
pub mod digest;
pub mod idle;
pub mod instructions;
pub mod load;
pub mod procfs;
pub mod provider;
pub mod replay;
pub mod subject;
