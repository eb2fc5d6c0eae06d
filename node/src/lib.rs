//! The Node: dials an Edge, takes its configuration from there, and executes against providers on its own machine.
//!
//! ```text
//!   boot ─▶ shard ─▶ daemon ─▶ supervisor (pure)         when to dial, wait, give up
//!                      └▶ session ─▶ registration (pure)  from connected to ready
//!                            └▶ core ─▶ run::tunnel ─▶ adapters::openai_compat ─▶ provider
//!                                    or run::normalized ─▶ adapters::native ─▶ backend
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
//! | [`roots`] | which CAs a provider's certificate may be signed by |
//! | [`metrics`], [`ops`], [`logging`] | what an operator sees |
//! | [`boot`], [`cli`] | threads and command line |
//!
//! A Node listens on nothing but its metrics address: there is no way to reach it for execution but through the Edge that
//! it dialled itself (FRB-1).

/// Whether a deliberate mistake is made here; `false`, and no code, without the feature.
#[cfg(feature = "planted-faults")]
macro_rules! planted {
    ($fault:ident) => {
        $crate::fault::is($crate::fault::Fault::$fault)
    };
}
#[cfg(not(feature = "planted-faults"))]
macro_rules! planted {
    ($fault:ident) => {
        false
    };
}

pub mod adapters;
pub mod boot;
pub mod cli;
pub mod config;
pub mod daemon;
#[cfg(feature = "planted-faults")]
pub mod fault;
pub mod gate;
pub mod health;
pub mod logging;
pub mod metrics;
pub mod ops;
pub mod resolve;
pub mod roots;
pub mod run;
pub mod session;
pub mod supervisor;
