//! The closed list of reasons for which a link ends.

use std::fmt;

use rustls::AlertDescription;

use super::mux::LinkFault;
use crate::tls::refusal::{Origin, Refusal, TlsFault};

/// Why a link ended; the label of logs and metrics, and the word of the goodbye.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The certificate's `notAfter` has passed.
    CertificateExpired,
    /// The certificate was revoked.
    CertificateRevoked,
    /// The socket broke.
    ConnectionLost,
    /// More control messages wait than a link can hold: the peer does not read, or we talk too much.
    ControlOverflow,
    /// This process is going away in good order.
    Draining,
    /// The peer announced a frame over the bound (WIR-2).
    FrameTooLarge,
    /// No answer to a heartbeat (HBT-1).
    HeartbeatTimeout,
    /// A defect of ours.
    Internal,
    /// The peer closed without a word.
    PeerClosed,
    /// The peer said goodbye; why, it said in [`Goodbye`](proto::message::Goodbye).
    PeerGoodbye,
    /// The peer sent something that is no message, or not now (WIR-3).
    ProtocolError,
    /// The registered Node did not become ready in time (REG-11).
    ReadyTimeout,
    /// The registration was refused, or is no longer the current one (REG-7).
    Rejected,
    /// A newer connection of the same Node took over (REG-8).
    Superseded,
    /// TLS ended the connection. On TLS 1.3 a Node learns here, not in its handshake, that the Edge refused it.
    Tls {
        /// Why.
        refusal: Refusal,
        /// Who refused whom.
        origin: Origin,
        /// The peer's alert, when it sent one.
        alert: Option<AlertDescription>,
    },
    /// The peer took no bytes for too long.
    WriteStall,
}

impl CloseReason {
    /// The fixed lower-case word for logs, metrics and the goodbye.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::CertificateExpired => "certificate_expired",
            Self::CertificateRevoked => "certificate_revoked",
            Self::ConnectionLost => "connection_lost",
            Self::ControlOverflow => "control_overflow",
            Self::Draining => "draining",
            Self::FrameTooLarge => "frame_too_large",
            Self::HeartbeatTimeout => "heartbeat_timeout",
            Self::Internal => "internal",
            Self::PeerClosed => "peer_closed",
            Self::PeerGoodbye => "peer_goodbye",
            Self::ProtocolError => "protocol_error",
            Self::ReadyTimeout => "ready_timeout",
            Self::Rejected => "rejected",
            Self::Superseded => "superseded",
            Self::Tls { .. } => "tls",
            Self::WriteStall => "write_stall",
        }
    }

    /// How much of a farewell the peer is given.
    pub(super) const fn farewell(self) -> Farewell {
        match self {
            Self::ConnectionLost | Self::WriteStall => Farewell::None,
            Self::PeerClosed | Self::PeerGoodbye | Self::Tls { .. } => Farewell::TlsOnly,
            _ => Farewell::Goodbye,
        }
    }
}

/// How much of a farewell a peer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Farewell {
    /// It would not arrive.
    None,
    /// An alert or close_notify.
    TlsOnly,
    /// Waiting control messages, a goodbye with the reason, and close_notify.
    Goodbye,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls { refusal, origin, alert } => {
                let who = if *origin == Origin::Peer { "the peer refused us" } else { "we refused the peer" };
                write!(f, "tls: {who}: {refusal}")?;
                alert.map_or(Ok(()), |alert| write!(f, " (alert {alert:?})"))
            }
            other => f.pad(other.label()),
        }
    }
}

impl From<LinkFault> for CloseReason {
    fn from(fault: LinkFault) -> Self {
        match fault {
            LinkFault::HeartbeatTimeout => Self::HeartbeatTimeout,
            LinkFault::ControlQueueFull => Self::ControlOverflow,
            LinkFault::StreamReused(_) => Self::ProtocolError,
        }
    }
}

impl From<&TlsFault> for CloseReason {
    fn from(fault: &TlsFault) -> Self {
        let cause = std::error::Error::source(fault).and_then(|cause| cause.downcast_ref::<rustls::Error>());
        let alert = match cause {
            Some(rustls::Error::AlertReceived(alert)) => Some(*alert),
            _ => None,
        };
        Self::Tls { refusal: fault.refusal(), origin: fault.origin(), alert }
    }
}
