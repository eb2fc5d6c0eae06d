//! Paired muxes over a virtual link and clock, and real links over TLS on loopback.

mod control;
mod flow;
mod handshake;
mod heartbeat;
mod loopback;
mod pair;
mod pki;
mod property;
mod socket;
