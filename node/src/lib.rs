//! The Node: dials an Edge, takes its configuration from there, and executes against providers on its own machine.
//!
//! ```text
//!   boot ─▶ shard ─▶ daemon ─▶ supervisor (pure)         when to dial, wait, give up
//!                      └▶ session ─▶ registration (pure)  from connected to ready
//!                            └▶ core ─▶ run::tunnel ─▶ adapters::openai_compat ─▶ provider
//!                                          └▶ terminal    one END or ERROR, whatever happens
//! ```
//!
//! | Module | Owns |
//! |---|---|
//! | [`config`] | node.yaml and join bundles, own certificate and key |
//! | [`supervisor`] | the reconnect policy |
//! | [`daemon`] | does what the policy says; drain at a signal |
//! | [`session`] | one connection to the Edge |
//! | [`run`] | one execution |
//! | [`adapters`] | what executes |
//! | [`health`] | whether a provider serves a target |
//! | [`gate`] | the capacity of one adapter instance |
//! | [`resolve`] | names to addresses, off the shard |
//! | [`metrics`], [`ops`], [`logging`] | what an operator sees |
//! | [`boot`], [`cli`] | threads and command line |
//!
//! A Node listens on nothing but its metrics address: there is no way to reach it for execution but through the Edge that
//! it dialled itself (FRB-1).

pub mod adapters;
pub mod boot;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod gate;
pub mod health;
pub mod logging;
pub mod metrics;
pub mod ops;
pub mod resolve;
pub mod run;
pub mod session;
pub mod supervisor;
