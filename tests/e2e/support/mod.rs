//! The harness's bench, and what only this suite needs: certificates and Nodes of its own making.

pub mod certs;
pub mod fake_node;

pub use iop_tests::bench::*;
