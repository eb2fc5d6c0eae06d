//! `iop-perf` as a whole: the provider on a raw socket, the load generator against the provider, and the
//! command itself.

mod command;
mod compare;
mod harness;
mod idle;
mod load;
mod provider;
mod replay;
