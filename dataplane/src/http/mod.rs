//! HTTP/1.1 (RFC 9110, RFC 9112) for both sides of the gateway: strict, bounded, and our own framing over `httparse`; and HTTP/2 for
//! clients.
//!
//! [`h1`] holds the pure parsers and encoders, [`hop`] what may cross the gateway, [`sse`] an observer of event streams,
//! [`body`] a body in memory, [`budget`] how much memory bodies may take, [`coding`] what takes a content coding off a body,
//! [`server`] the driver of one client connection, [`http2`] that of one with many requests at a time.

pub mod body;
pub mod budget;
pub mod client;
pub mod coding;
pub mod date;
pub mod h1;
pub mod head;
pub mod hop;
pub mod http2;
pub mod limits;
pub mod pool;
pub mod server;
pub mod sse;
