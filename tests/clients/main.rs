//! The clients that people have, unchanged, against Edge and Node over real sockets: `cargo xtask test --clients`.
//!
//! Environment, all set by that command: `IOP_TEST_PYTHON` (an interpreter with the SDKs), `IOP_TEST_SDKS` (a directory with the
//! `node_modules` of the SDKs, and Node beside the interpreter), `IOP_TEST_AGENTS` (likewise, of the agents), and those of the `e2e`
//! suite.

mod agents;
mod curl;
mod sdk;
mod stand;
