//! The harness's bench, and what only this suite needs: certificates, TLS and Nodes of its own making.

pub mod certs;
pub mod fake_node;
pub mod tls_front;

pub use iop_tests::bench::*;
