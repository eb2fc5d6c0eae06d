//! TLS to providers: a client of public or private servers, judged by their DNS name or address.
//!
//! Other than on the Node link, TLS 1.2 is spoken where a server knows nothing newer, and sessions may be resumed: a ticket spares a
//! round trip and the proof of a certificate that this process has judged before. There is no early data.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use rustls::{
    AlertDescription, CertificateError, ClientConfig, PeerIncompatible, RootCertStore,
    client::Resumption,
    time_provider::TimeProvider,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{ServerName, UnixTime};

use super::{
    config::{ConfigError, provider},
    refusal::{Refusal, TlsFault},
};
use crate::{http::date, relay::handshake::HandshakeError};

/// How long connecting to a provider and the handshake may take together.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The application protocol (RFC 7301). A server that names none is taken to speak it.
const ALPN: &[u8] = b"http/1.1";
/// Providers whose tickets are remembered.
const TICKETS_MAX: usize = 64;
/// Names of a certificate that an error quotes.
const NAMES_MAX: usize = 4;

/// The dialling end: accepts servers whose certificate is for the dialled name and signed by one of `roots`. Every connection
/// that shares the configuration shares its tickets.
///
/// # Errors
/// [`ConfigError::Tls`] when rustls refuses.
pub fn https_client_config(
    roots: Arc<RootCertStore>,
    time: Arc<dyn TimeProvider>,
) -> Result<Arc<ClientConfig>, ConfigError> {
    let mut config = ClientConfig::builder_with_details(provider(), time)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(ConfigError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::in_memory_sessions(TICKETS_MAX);
    config.enable_early_data = false;
    Ok(Arc::new(config))
}

/// What is wrong between us and a server that was to speak TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Its certificate breaks the rules in another way than those below; in rustls' words.
    BadCertificate(String),
    /// It asks for a certificate of ours, which we do not have.
    ClientCertificate,
    /// It closed the connection during the handshake.
    Closed,
    /// `notAfter` has passed, of the certificate or of one between it and its root; when that was, if known.
    Expired(Option<u64>),
    /// The socket broke during the handshake; in the system's words.
    Io(String),
    /// `notBefore` has not come; when it will, if known.
    NotYetValid(Option<u64>),
    /// Its first byte is none of TLS.
    NotTls,
    /// Anything else against TLS, such as a corrupt record; in rustls' words.
    Protocol(String),
    /// It ended the connection with this alert.
    Refused(AlertDescription),
    /// Neither TLS 1.3 nor 1.2.
    TlsVersion,
    /// The handshake was not over within [`CONNECT_TIMEOUT`].
    TimedOut,
    /// Not signed by a CA that is trusted here.
    UnknownIssuer,
    /// Its certificate is for other names, of which these are some.
    WrongName(Vec<String>),
}

impl Trouble {
    /// Every [`label`](Self::label), for registering counters.
    pub const LABELS: [&'static str; 13] = [
        "tls_bad_certificate",
        "tls_client_certificate",
        "tls_closed",
        "tls_expired",
        "tls_io",
        "tls_not_yet_valid",
        "tls_not_tls",
        "tls_protocol",
        "tls_refused",
        "tls_version",
        "tls_timed_out",
        "tls_unknown_issuer",
        "tls_wrong_name",
    ];

    /// The word for logs and metrics.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::BadCertificate(_) => "tls_bad_certificate",
            Self::ClientCertificate => "tls_client_certificate",
            Self::Closed => "tls_closed",
            Self::Expired(_) => "tls_expired",
            Self::Io(_) => "tls_io",
            Self::NotYetValid(_) => "tls_not_yet_valid",
            Self::NotTls => "tls_not_tls",
            Self::Protocol(_) => "tls_protocol",
            Self::Refused(_) => "tls_refused",
            Self::TlsVersion => "tls_version",
            Self::TimedOut => "tls_timed_out",
            Self::UnknownIssuer => "tls_unknown_issuer",
            Self::WrongName(_) => "tls_wrong_name",
        }
    }

    fn from_certificate(error: &CertificateError) -> Self {
        let seconds = |moment: &UnixTime| Some(moment.as_secs());
        match error {
            CertificateError::Expired => Self::Expired(None),
            CertificateError::ExpiredContext { not_after, .. } => Self::Expired(seconds(not_after)),
            CertificateError::NotValidYet => Self::NotYetValid(None),
            CertificateError::NotValidYetContext { not_before, .. } => Self::NotYetValid(seconds(not_before)),
            // A chain to a CA of the right name and another key was signed by another CA of that name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownIssuer,
            CertificateError::NotValidForName => Self::WrongName(Vec::new()),
            CertificateError::NotValidForNameContext { presented, .. } => {
                Self::WrongName(presented.iter().take(NAMES_MAX).map(|name| plain_name(name)).collect())
            }
            // webpki's own word, which rustls passes on in a box; `openssl req -x509` makes such certificates.
            other if format!("{other:?}").contains("CaUsedAsEndEntity") => Self::BadCertificate(
                "it says that it is a CA's: a server's has basicConstraints CA:FALSE".to_owned(),
            ),
            other => Self::BadCertificate(rustls::Error::from(other.clone()).to_string()),
        }
    }
}

/// `box.test` out of `DnsName("box.test")`, as rustls quotes what a certificate names.
fn plain_name(quoted: &str) -> String {
    let inner = quoted.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(quoted);
    inner.trim_matches('"').to_owned()
}

impl From<&TlsFault> for Trouble {
    fn from(fault: &TlsFault) -> Self {
        use rustls::Error;
        match (fault.refusal(), fault.tls_error()) {
            (Refusal::Plaintext, _) => Self::NotTls,
            (Refusal::HandshakeTimeout, _) => Self::TimedOut,
            (_, Some(Error::InvalidCertificate(error))) => Self::from_certificate(error),
            (
                _,
                Some(Error::AlertReceived(
                    AlertDescription::CertificateRequired | AlertDescription::NoCertificate,
                )),
            ) => Self::ClientCertificate,
            (Refusal::TlsVersion, _) => Self::TlsVersion,
            (_, Some(Error::AlertReceived(alert))) => Self::Refused(*alert),
            (_, Some(Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon))) => {
                Self::Protocol("it speaks no cipher suite that we do".to_owned())
            }
            (_, Some(error)) => Self::Protocol(error.to_string()),
            (_, None) => Self::Protocol("it breaks the rules of TLS".to_owned()),
        }
    }
}

impl From<&HandshakeError> for Trouble {
    fn from(error: &HandshakeError) -> Self {
        match error {
            HandshakeError::Tls(fault) => fault.into(),
            HandshakeError::Closed => Self::Closed,
            HandshakeError::Io(error) => Self::Io(error.to_string()),
        }
    }
}

/// [`Trouble`] with a certain server. Its words say what was found and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    /// `host:port`, with the address behind it where the host is a name.
    server: String,
    /// What it is.
    pub trouble: Trouble,
}

impl TlsError {
    /// With the server of `name` at `address`.
    #[must_use]
    pub fn new(name: &ServerName<'_>, address: SocketAddr, trouble: Trouble) -> Self {
        let server = match name {
            ServerName::DnsName(name) => format!("{}:{} ({})", name.as_ref(), address.port(), address.ip()),
            _ => address.to_string(),
        };
        Self { server, trouble }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = &self.server;
        match &self.trouble {
            Trouble::BadCertificate(why) => {
                write!(f, "the certificate of {server} cannot be accepted ({why}): it must be issued anew")
            }
            Trouble::ClientCertificate => write!(
                f,
                "{server} asks for a client certificate, which this release cannot present: put a proxy that has one in front of it"
            ),
            Trouble::Closed => write!(
                f,
                "{server} closed the connection during the TLS handshake: check host and port of its base_url"
            ),
            Trouble::Expired(since) => write!(
                f,
                "the certificate of {server} has expired{}: it must be renewed there; if that is not so, set this machine's clock",
                moment("on", *since)
            ),
            Trouble::Io(why) => write!(f, "the connection to {server} broke during the TLS handshake: {why}"),
            Trouble::NotYetValid(from) => write!(
                f,
                "the certificate of {server} is not valid yet{}: set this machine's clock, or wait",
                moment("until", *from)
            ),
            Trouble::NotTls => write!(
                f,
                "{server} does not speak TLS: write http:// in its base_url, or the port where it speaks https"
            ),
            Trouble::Protocol(why) => write!(f, "{server} sent what is no proper TLS: {why}"),
            Trouble::Refused(alert) => write!(
                f,
                "{server} refused the TLS connection ({alert:?}): check host and port of its base_url, and its own log"
            ),
            Trouble::TlsVersion => {
                write!(
                    f,
                    "{server} speaks neither TLS 1.2 nor 1.3: it must be updated, or reached through a proxy"
                )
            }
            Trouble::TimedOut => write!(
                f,
                "{server} did not finish the TLS handshake within {} s: if it speaks plain HTTP, write http:// in its base_url",
                CONNECT_TIMEOUT.as_secs()
            ),
            Trouble::UnknownIssuer => write!(
                f,
                "the certificate of {server} is not signed by a CA that this machine trusts: add the CA to the system's store, or start the node with SSL_CERT_FILE naming a PEM file that has it"
            ),
            Trouble::WrongName(names) if names.is_empty() => {
                write!(
                    f,
                    "the certificate of {server} is not for this host: write a host that it names in base_url"
                )
            }
            Trouble::WrongName(names) => write!(
                f,
                "the certificate of {server} is not for this host but for {}: write such a host in base_url, or have it issued anew",
                names.join(", ")
            ),
        }
    }
}

impl std::error::Error for TlsError {}

/// ` on Tue, 15 Nov 1994 08:12:31 GMT`
fn moment(preposition: &str, unix_seconds: Option<u64>) -> String {
    unix_seconds.map_or_else(String::new, |seconds| {
        format!(" {preposition} {}", String::from_utf8_lossy(&date::format(seconds)))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn labels_are_a_closed_set() {
        let all = [
            Trouble::BadCertificate(String::new()),
            Trouble::ClientCertificate,
            Trouble::Closed,
            Trouble::Expired(None),
            Trouble::Io(String::new()),
            Trouble::NotYetValid(None),
            Trouble::NotTls,
            Trouble::Protocol(String::new()),
            Trouble::Refused(AlertDescription::HandshakeFailure),
            Trouble::TlsVersion,
            Trouble::TimedOut,
            Trouble::UnknownIssuer,
            Trouble::WrongName(Vec::new()),
        ];
        let labels: Vec<_> = all.iter().map(Trouble::label).collect();
        assert_eq!(labels, Trouble::LABELS);
        assert_eq!(labels.iter().collect::<HashSet<_>>().len(), labels.len());
    }

    #[test]
    fn an_error_says_which_server_what_and_what_to_do() {
        let address = "192.0.2.7:443".parse().unwrap();
        let name = ServerName::try_from("api.test").unwrap();
        for (trouble, parts) in [
            (Trouble::UnknownIssuer, &["api.test:443 (192.0.2.7)", "SSL_CERT_FILE"][..]),
            (
                Trouble::WrongName(vec![plain_name("DnsName(\"other.test\")")]),
                &["api.test:443", "but for other.test:", "base_url"],
            ),
            (Trouble::Expired(Some(784_887_151)), &["expired on Tue, 15 Nov 1994 08:12:31 GMT", "renewed"]),
            (Trouble::NotYetValid(Some(784_887_151)), &["not valid yet until Tue, 15 Nov", "clock"]),
            (Trouble::NotTls, &["does not speak TLS", "http://"]),
            (Trouble::TimedOut, &["within 5 s", "http://"]),
            (Trouble::ClientCertificate, &["client certificate", "proxy"]),
        ] {
            let text = TlsError::new(&name, address, trouble).to_string();
            for part in parts {
                assert!(text.contains(part), "{part:?} is not in {text:?}");
            }
        }
        let by_address = TlsError::new(&ServerName::IpAddress(address.ip().into()), address, Trouble::Closed);
        assert!(by_address.to_string().starts_with("192.0.2.7:443 closed"), "{by_address}");
    }
}
