//! The closed list of reasons for which a TLS peer is refused.

use std::{error::Error as StdError, fmt};

use rustls::{AlertDescription, CertificateError, PeerIncompatible};

use super::leaf::LeafFault;

/// Why a handshake failed; the label of logs and of `handshake_rejected_total{reason}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// Breaks the certificate profile in another way than its SAN: a CA certificate, wrong key usage, a chain over its
    /// bound, an unreadable encoding, a signature that its key did not make.
    BadCertificate,
    /// Not exactly one URI SAN, or one that is no workload identity.
    BadSan,
    /// `notAfter` has passed, for the leaf or for an intermediate.
    Expired,
    /// The handshake was not complete within [`HANDSHAKE_TIMEOUT`](super::config::HANDSHAKE_TIMEOUT). Made by drivers.
    HandshakeTimeout,
    /// The peer presented no certificate.
    NoCertificate,
    /// `notBefore` has not come yet.
    NotYetValid,
    /// The first byte is not that of a TLS handshake record: HTTP or something else on the Node port.
    Plaintext,
    /// Anything else against TLS, such as a corrupt record.
    Protocol,
    /// On the revocation list, or the list is too old or silent about this issuer.
    Revoked,
    /// The peer does not speak TLS 1.3.
    TlsVersion,
    /// Not signed by a CA that is trusted for this role.
    UnknownCa,
    /// The peer does not speak `iop-node/1`.
    WrongAlpn,
    /// An Edge, but not the expected one.
    WrongName,
    /// A Node where an Edge is expected, or an Edge where a Node is.
    WrongRole,
}

impl Refusal {
    /// Every reason, for registering counters.
    pub const ALL: [Self; 14] = [
        Self::BadCertificate,
        Self::BadSan,
        Self::Expired,
        Self::HandshakeTimeout,
        Self::NoCertificate,
        Self::NotYetValid,
        Self::Plaintext,
        Self::Protocol,
        Self::Revoked,
        Self::TlsVersion,
        Self::UnknownCa,
        Self::WrongAlpn,
        Self::WrongName,
        Self::WrongRole,
    ];

    /// The fixed lower-case word for logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::BadCertificate => "bad_certificate",
            Self::BadSan => "bad_san",
            Self::Expired => "expired",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::NoCertificate => "no_certificate",
            Self::NotYetValid => "not_yet_valid",
            Self::Plaintext => "plaintext",
            Self::Protocol => "protocol",
            Self::Revoked => "revoked",
            Self::TlsVersion => "tls_version",
            Self::UnknownCa => "unknown_ca",
            Self::WrongAlpn => "wrong_alpn",
            Self::WrongName => "wrong_name",
            Self::WrongRole => "wrong_role",
        }
    }

    /// Classifies an error of rustls, our own verifiers' included.
    ///
    /// A fatal alert of the peer is classified by what the peer complains about, so a Node whose certificate has expired
    /// reads `expired` too; [`TlsFault::origin`] tells the two apart.
    #[must_use]
    pub fn from_error(error: &rustls::Error) -> Self {
        use rustls::Error;
        if let Some(fault) = LeafFault::carried_by(error) {
            return fault.refusal();
        }
        match error {
            Error::AlertReceived(alert) => Self::from_alert(*alert),
            Error::InvalidCertificate(error) => Self::from_certificate_error(error),
            Error::InvalidCertRevocationList(_) => Self::Revoked,
            Error::NoApplicationProtocol => Self::WrongAlpn,
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::PeerIncompatible(
                PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
                | PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled,
            ) => Self::TlsVersion,
            _ => Self::Protocol,
        }
    }

    fn from_certificate_error(error: &CertificateError) -> Self {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            CertificateError::Revoked
            | CertificateError::UnknownRevocationStatus
            | CertificateError::ExpiredRevocationList
            | CertificateError::ExpiredRevocationListContext { .. } => Self::Revoked,
            CertificateError::UnknownIssuer => Self::UnknownCa,
            _ => Self::BadCertificate,
        }
    }

    const fn from_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate => Self::BadCertificate,
            AlertDescription::CertificateExpired => Self::Expired,
            AlertDescription::CertificateRequired | AlertDescription::NoCertificate => Self::NoCertificate,
            AlertDescription::CertificateRevoked => Self::Revoked,
            AlertDescription::NoApplicationProtocol => Self::WrongAlpn,
            AlertDescription::ProtocolVersion => Self::TlsVersion,
            AlertDescription::UnknownCA => Self::UnknownCa,
            _ => Self::Protocol,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// Which end refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// We refuse the peer.
    Local,
    /// The peer refused us with an alert; its log knows more than we do.
    Peer,
}

/// The end of a session; every later call on the session gives the same fault.
#[derive(Clone, Debug)]
pub struct TlsFault {
    refusal: Refusal,
    origin: Origin,
    cause: Option<Cause>,
}

#[derive(Clone, Debug)]
enum Cause {
    Leaf(LeafFault),
    Tls(rustls::Error),
}

impl TlsFault {
    /// A fault that rustls knows nothing of: [`Refusal::Plaintext`], [`Refusal::WrongAlpn`],
    /// [`Refusal::HandshakeTimeout`].
    #[must_use]
    pub const fn local(refusal: Refusal) -> Self {
        Self { refusal, origin: Origin::Local, cause: None }
    }

    /// The reason.
    #[must_use]
    pub const fn refusal(&self) -> Refusal {
        self.refusal
    }

    /// Which end refused.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        self.origin
    }

    /// What rustls says, where it was asked.
    #[must_use]
    pub const fn tls_error(&self) -> Option<&rustls::Error> {
        match &self.cause {
            Some(Cause::Tls(error)) => Some(error),
            Some(Cause::Leaf(_)) | None => None,
        }
    }
}

impl From<rustls::Error> for TlsFault {
    fn from(error: rustls::Error) -> Self {
        let refusal = Refusal::from_error(&error);
        let origin =
            if matches!(error, rustls::Error::AlertReceived(_)) { Origin::Peer } else { Origin::Local };
        let cause = LeafFault::carried_by(&error).cloned().map_or(Cause::Tls(error), Cause::Leaf);
        Self { refusal, origin, cause: Some(cause) }
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.origin {
            Origin::Local => write!(f, "tls peer refused: {}", self.refusal),
            Origin::Peer => write!(f, "tls peer refused us: {}", self.refusal),
        }
    }
}

impl StdError for TlsFault {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self.cause.as_ref()? {
            Cause::Leaf(fault) => Some(fault),
            Cause::Tls(error) => Some(error),
        }
    }
}
