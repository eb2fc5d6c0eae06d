//! What can go wrong between the Node and a provider.

use std::io;

use proto::message::ErrorKind;

use crate::{
    http::h1::{body::BodyFault, encode::EncodeFault, parse::HeadFault},
    net::{DialError, WriteFault},
    tls::https::TlsError,
};

/// Why there is no connection to a provider.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// TCP.
    #[error(transparent)]
    Tcp(#[from] DialError),
    /// TLS over it.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl ConnectError {
    /// Every [`label`](Self::label) of TCP, for registering counters; those of TLS are [`Trouble::LABELS`].
    ///
    /// [`Trouble::LABELS`]: crate::tls::https::Trouble::LABELS
    pub const TCP_LABELS: [&'static str; 2] = ["timed_out", "refused"];

    /// The word for logs and metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Tcp(DialError::TimedOut(_)) => "timed_out",
            Self::Tcp(DialError::Io(..)) => "refused",
            Self::Tls(error) => error.trouble.label(),
        }
    }
}

/// Why there is no whole answer. The connection is closed after any of these.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection.
    #[error("no connection to the provider")]
    Connect(#[from] ConnectError),
    /// The request could not be written, and no answer had come.
    #[error("the request could not be sent")]
    Write(#[from] WriteFault),
    /// Method, target or a field cannot be sent as HTTP/1.1.
    #[error("the request cannot be sent as HTTP/1.1")]
    Request(#[source] EncodeFault),
    /// The provider closed before the first byte of an answer.
    #[error("the provider closed the connection without an answer")]
    NoAnswer,
    /// The connection broke.
    #[error("the connection to the provider broke")]
    ConnectionReset(#[source] io::Error),
    /// The answer ended inside its head, before its Content-Length or without its last chunk.
    #[error("the provider's answer ended before its end")]
    Truncated,
    /// The head of the answer is not valid HTTP, or too large.
    #[error("the head of the provider's answer is not valid")]
    Head(#[from] HeadFault),
    /// The body of the answer is not framed as valid HTTP.
    #[error("the body of the provider's answer is not valid")]
    Body(#[from] BodyFault),
    /// More than [`Limits::informational`](crate::http::limits::Limits::informational) 1xx heads.
    #[error("the provider sent too many informational heads")]
    TooManyInformational,
    /// This exchange has already reported an error.
    #[error("the exchange has already failed")]
    AlreadyFailed,
}

impl ClientError {
    /// What the Edge is told.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Connect(_) => ErrorKind::Connect,
            Self::Request(_) => ErrorKind::InvalidRequest,
            Self::Head(_) | Self::Body(_) | Self::TooManyInformational => ErrorKind::UpstreamProtocol,
            Self::Write(_)
            | Self::NoAnswer
            | Self::ConnectionReset(_)
            | Self::Truncated
            | Self::AlreadyFailed => ErrorKind::UpstreamTruncated,
        }
    }
}
