//! TLS of the Node link, to providers and for clients: who may talk, and bytes in, bytes out.
//!
//! Nothing here touches a socket, a clock or a shard. A driver feeds ciphertext to a [`session::Session`] and sends what
//! the session gives back; the certificates are judged inside the handshake, so that a peer that is not who it must be
//! never gets as far as a first frame (IDN-1, IDN-2).
//!
//! | Module | Owns |
//! |---|---|
//! | [`session`] | one connection: ciphertext to plaintext and back |
//! | [`config`] | the link's two rustls configurations, Edge and Node, and their bounds |
//! | [`https`] | the rustls configuration for providers, and how a connection to one fails |
//! | [`server`] | the rustls configuration for clients, and the certificate they are presented |
//! | [`verify`] | the certificate verifiers that run inside the handshake |
//! | [`leaf`] | what a workload certificate must look like, and what is read out of it |
//! | [`local`] | this process's own certificate and key, checked before use |
//! | [`pem`] | PEM text to certificates, keys and revocation lists |
//! | [`refusal`] | the closed list of reasons a handshake fails |
//!
//! Sessions of the link are never resumed: a resumed handshake takes the peer's certificate out of a ticket and does not judge it
//! again, so an expired or revoked workload could come back. There are no tickets, no session cache and no early data.

pub mod config;
pub mod https;
pub mod leaf;
pub mod local;
pub mod pem;
pub mod refusal;
pub mod server;
pub mod session;
pub mod verify;

#[cfg(test)]
pub(crate) mod tests;
