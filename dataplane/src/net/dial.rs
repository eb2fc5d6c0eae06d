//! Connecting to a peer. Names are resolved by the caller, off the shard: a resolver blocks.

use std::{io, net::SocketAddr, time::Instant};

use monoio::net::TcpStream;

use super::Stream;
use crate::time::before;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No answer until the deadline.
    #[error("no answer from {0} in time")]
    TimedOut(SocketAddr),
    /// Refused or unreachable.
    #[error("cannot connect to {0}")]
    Io(SocketAddr, #[source] io::Error),
}

/// Connects to `address`.
///
/// # Errors
/// The peer refuses or does not answer until `deadline`.
pub async fn dial(address: SocketAddr, deadline: Instant) -> Result<Stream, DialError> {
    // Dropping a pending connect closes its socket, which is what a time-out wants.
    let connected =
        before(deadline, TcpStream::connect_addr(address)).await.ok_or(DialError::TimedOut(address))?;
    connected.and_then(|stream| Stream::new(stream, address)).map_err(|error| DialError::Io(address, error))
}
