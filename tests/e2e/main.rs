//! The product as its users meet it: whole processes, real sockets, real certificates.
//!
//! Environment: `IOP_TEST_SHARDS` (shards of the Edge, 1), `IOP_TEST_DRIVER` (`io_uring` or `epoll`; else whatever the
//! kernel allows), `IOP_TEST_PYTHON` (an interpreter with the packages that `cargo xtask test` installs),
//! `IOP_TEST_MATRIX_ONLY` (leave out what neither shards nor driver can change), `IOP_TEST_KEEP` (keep the directories).

mod bodies;
mod cancel;
mod chat;
mod cli;
mod client_tls;
mod command;
mod corpus;
mod dev;
mod direct;
mod drain;
mod errors;
mod framing;
mod http2;
mod https;
mod hung;
mod identity;
mod keepalive;
mod ladder;
mod matrix;
mod mixed;
mod nodes;
mod normalized;
mod ollama;
mod overlay;
mod overload;
mod policy;
mod provider_auth;
mod provider_errors;
mod reconnect;
mod recovery;
mod reports;
mod revocation;
mod runs;
mod sdk;
mod status;
mod streams;
mod support;
mod surfaces;
mod takeover;
mod translated;
mod usage;
mod wire;
