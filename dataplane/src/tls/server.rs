//! HTTPS for clients: the certificate, and the rustls configuration of a port that presents it. A renewed certificate is another
//! configuration, for the handshakes that begin from then on.
//!
//! Clients are not asked for a certificate. Sessions are never resumed: so every new connection gets the certificate of now, and no
//! key of a ticket has to be kept.

use std::{fmt, sync::Arc};

use rustls::{
    InconsistentKeys, ServerConfig,
    server::NoServerSessionStorage,
    sign::{CertifiedKey, SingleCertAndKey},
    version::{TLS12, TLS13},
};
use rustls_pki_types::CertificateDer;
use thiserror::Error;
use x509_parser::{extensions::GeneralName, parse_x509_certificate};

use super::{
    config::{CHAIN_BYTES_MAX, ConfigError, provider},
    pem::{self, PemError},
};

/// The application protocols that are offered (RFC 7301), in our order. A client that names none of them is refused; one that names nothing gets HTTP/1.1. The last one is what `curl --http1.0` names.
pub const ALPN: [&[u8]; 3] = [b"h2", b"http/1.1", b"http/1.0"];
/// Most certificates in a chain that is presented to clients, the leaf included.
pub const CHAIN_CERTS_MAX: usize = 10;
/// Names of a certificate that are kept for people.
const NAMES_MAX: usize = 8;

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinVersion {
    /// TLS 1.2 and 1.3.
    Tls12,
    /// TLS 1.3 alone.
    Tls13,
}

/// The configuration of a port that presents `certificate`.
///
/// # Errors
/// [`ConfigError::Tls`] when rustls refuses.
pub fn https_server_config(
    certificate: &ServerCertificate,
    min_version: MinVersion,
) -> Result<Arc<ServerConfig>, ConfigError> {
    let versions: &[_] = match min_version {
        MinVersion::Tls12 => &[&TLS13, &TLS12],
        MinVersion::Tls13 => &[&TLS13],
    };
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .map_err(ConfigError::Tls)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&certificate.key))));
    config.alpn_protocols = ALPN.iter().map(|protocol| protocol.to_vec()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// A certificate chain and its key, checked, and what people want to know of it. Cloning is a reference count.
#[derive(Clone)]
pub struct ServerCertificate {
    key: Arc<CertifiedKey>,
    names: Arc<[String]>,
    not_before: u64,
    not_after: u64,
}

/// Why a certificate and key cannot be presented. No error shows key material.
#[derive(Debug, Error)]
pub enum ServerCertificateError {
    /// The certificate text.
    #[error("the certificate cannot be used")]
    Certificate(#[source] PemError),
    /// The first certificate is none that can be read.
    #[error("the first certificate is malformed")]
    Encoding,
    /// Over a bound: no client needs so much.
    #[error(
        "expected a chain of at most {CHAIN_CERTS_MAX} certificates in {CHAIN_BYTES_MAX} bytes, found {certs} in {bytes} bytes; the root need not be in it"
    )]
    Chain {
        /// How many there are.
        certs: usize,
        /// How many bytes they take.
        bytes: usize,
    },
    /// The key text.
    #[error("the private key cannot be used")]
    Key(#[source] PemError),
    /// A key of a kind that TLS cannot sign with.
    #[error("the private key is not of a usable kind (ECDSA P-256 or P-384, Ed25519, RSA)")]
    KeyKind(#[source] rustls::Error),
    /// The key of another certificate.
    #[error(
        "the private key does not belong to the first certificate: the server's own certificate stands first, and CAs behind it"
    )]
    Mismatch,
}

impl ServerCertificateError {
    /// Whether it is the key's file that has to be looked at, and not the certificate's.
    #[must_use]
    pub const fn is_of_the_key(&self) -> bool {
        matches!(self, Self::Key(_) | Self::KeyKind(_) | Self::Mismatch)
    }
}

impl ServerCertificate {
    /// Loads a PEM chain, leaf first, and its key. The dates are not judged: see [`not_after`](Self::not_after).
    ///
    /// # Errors
    /// [`ServerCertificateError`].
    pub fn load(chain_pem: &[u8], key_pem: &[u8]) -> Result<Self, ServerCertificateError> {
        let chain = pem::certs(chain_pem).map_err(ServerCertificateError::Certificate)?;
        let (certs, bytes) = (chain.len(), chain.iter().map(|certificate| certificate.len()).sum());
        if certs > CHAIN_CERTS_MAX || bytes > CHAIN_BYTES_MAX {
            return Err(ServerCertificateError::Chain { certs, bytes });
        }
        let leaf = chain.first().and_then(Leaf::read).ok_or(ServerCertificateError::Encoding)?;
        let key = pem::key(key_pem).map_err(ServerCertificateError::Key)?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                ServerCertificateError::Mismatch
            }
            other => ServerCertificateError::KeyKind(other),
        })?;
        let Leaf { names, not_before, not_after } = leaf;
        Ok(Self { key: Arc::new(key), names: names.into(), not_before, not_after })
    }

    /// DNS names and addresses that it is for, some of them where there are many. Empty = no client of today accepts it.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether clients would be presented the same chain.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.key.cert == other.key.cert
    }

    /// When its life begins, in seconds since 1970.
    #[must_use]
    pub const fn not_before(&self) -> u64 {
        self.not_before
    }

    /// When its life ends, in seconds since 1970.
    #[must_use]
    pub const fn not_after(&self) -> u64 {
        self.not_after
    }
}

impl fmt::Debug for ServerCertificate {
    /// The key is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificate").field("names", &self.names).finish_non_exhaustive()
    }
}

/// What is read out of a server's certificate.
struct Leaf {
    names: Vec<String>,
    not_before: u64,
    not_after: u64,
}

impl Leaf {
    fn read(der: &CertificateDer<'static>) -> Option<Self> {
        let (_, parsed) = parse_x509_certificate(der).ok()?;
        let validity = parsed.validity();
        let seconds = |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0);
        let sans = parsed.subject_alternative_name().ok().flatten();
        let names = sans.iter().flat_map(|sans| &sans.value.general_names).filter_map(plain_name);
        Some(Self {
            names: names.take(NAMES_MAX).collect(),
            not_before: seconds(validity.not_before),
            not_after: seconds(validity.not_after),
        })
    }
}

/// A name that clients compare with what they dialled.
fn plain_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(|it| std::net::Ipv4Addr::from(it).to_string());
            let v6 = || <[u8; 16]>::try_from(*bytes).map(|it| std::net::Ipv6Addr::from(it).to_string());
            v4.or_else(|_| v6()).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::certs::{Authority, Issued, Leaf as Shape, NOW};

    fn load(certificate: &Issued, key: &Issued) -> Result<ServerCertificate, ServerCertificateError> {
        ServerCertificate::load(certificate.cert_pem.as_bytes(), key.key_pem.as_bytes())
    }

    #[test]
    fn a_good_pair_tells_its_names_and_dates() {
        let issued = Authority::new("ca").issue(&Shape::server(&["box.test", "192.0.2.7", "::1"]));
        let loaded = load(&issued, &issued).unwrap();
        assert_eq!(loaded.names(), ["box.test", "192.0.2.7", "::1"]);
        assert_eq!((loaded.not_before(), loaded.not_after()), (NOW - 3600, NOW + 3600));
    }

    #[test]
    fn each_wrong_pair_says_what_is_wrong_and_with_which_file() {
        let authority = Authority::new("ca");
        let (one, two) =
            (authority.issue(&Shape::server(&["a.test"])), authority.issue(&Shape::server(&["a.test"])));
        let error = load(&one, &two).unwrap_err();
        assert!(matches!(error, ServerCertificateError::Mismatch) && error.is_of_the_key(), "{error}");
        let swapped = ServerCertificate::load(one.key_pem.as_bytes(), one.cert_pem.as_bytes()).unwrap_err();
        assert!(matches!(swapped, ServerCertificateError::Certificate(_)) && !swapped.is_of_the_key());
        let no_key = ServerCertificate::load(one.cert_pem.as_bytes(), b"").unwrap_err();
        assert!(matches!(no_key, ServerCertificateError::Key(_)) && no_key.is_of_the_key());
        let long = one.cert_pem.repeat(CHAIN_CERTS_MAX + 1);
        let long = ServerCertificate::load(long.as_bytes(), one.key_pem.as_bytes()).unwrap_err();
        assert!(matches!(long, ServerCertificateError::Chain { certs: 11, .. }), "{long}");
        // A chain the wrong way round: the CA's certificate first.
        let chain = authority.root_pem() + &one.cert_pem;
        let turned = ServerCertificate::load(chain.as_bytes(), one.key_pem.as_bytes()).unwrap_err();
        assert!(turned.to_string().contains("stands first"), "{turned}");
    }

    // req: CRD-6
    #[test]
    fn nothing_that_is_printed_shows_key_material() {
        let authority = Authority::new("ca");
        let (one, two) =
            (authority.issue(&Shape::server(&["a.test"])), authority.issue(&Shape::server(&["a.test"])));
        let good = load(&one, &one).unwrap();
        let shown = format!("{good:?} {:?}", load(&one, &two));
        for line in one.key_pem.lines().chain(two.key_pem.lines()).filter(|line| !line.starts_with("-----")) {
            assert!(!shown.contains(line));
        }
    }
}
