//! The client against raw servers on threads of their own, on both drivers.

mod cancel;
mod framing;
mod reuse;
mod secure;
mod server;
mod upload;
