//! The two rustls configurations of the Node link, and their bounds.
//!
//! TLS 1.3 only, `iop-node/1` only, certificates on both ends, and never a resumed session: no tickets, no session
//! storage, no early data.

use std::{fmt, net::Ipv4Addr, sync::Arc, time::Duration};

use proto::identity::Name;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::Resumption,
    crypto::{CryptoProvider, ring},
    server::NoServerSessionStorage,
    time_provider::{DefaultTimeProvider, TimeProvider},
    version::TLS13,
};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, ServerName};
use thiserror::Error;
use x509_parser::parse_x509_certificate;

use super::{
    leaf::LeafFault,
    local::LocalIdentity,
    verify::{EdgeVerifier, NodeVerifier},
};

/// The one application protocol of the Node link (RFC 7301). A peer that does not choose it is refused, which keeps
/// other protocols' traffic from being replayed here.
pub const ALPN: &[u8] = b"iop-node/1";
/// Most certificates in a presented chain, the leaf included.
pub const CHAIN_CERTS_MAX: usize = 4;
/// Most bytes in a presented chain, over all certificates.
pub const CHAIN_BYTES_MAX: usize = 16 * 1024;
/// How long a driver lets a handshake take before it closes with
/// [`Refusal::HandshakeTimeout`](super::refusal::Refusal::HandshakeTimeout).
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Most CA certificates in a trust bundle.
pub const ROOTS_MAX: usize = 64;

/// Whom we trust: CA certificates, revocation lists and the clock they are judged by.
#[derive(Clone)]
pub struct Trust {
    pub(super) roots: Arc<RootCertStore>,
    pub(super) crls: Vec<CertificateRevocationListDer<'static>>,
    time: Arc<dyn TimeProvider>,
}

/// Why a configuration cannot be made.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A revocation list that cannot be read.
    #[error("a certificate revocation list cannot be used")]
    Crl,
    /// A trust bundle without a certificate.
    #[error("the trust bundle is empty")]
    NoRoots,
    /// A certificate in the trust bundle that is no CA certificate.
    #[error("certificate {0} of the trust bundle is not a CA certificate")]
    NotCa(usize),
    /// rustls refuses.
    #[error("the tls configuration is refused")]
    Tls(#[source] rustls::Error),
    /// Over [`ROOTS_MAX`].
    #[error("the trust bundle has more than {ROOTS_MAX} certificates")]
    TooManyRoots,
}

impl Trust {
    /// Trusts these CAs, judged by the system's clock.
    ///
    /// # Errors
    /// [`ConfigError::NoRoots`], [`ConfigError::TooManyRoots`], or [`ConfigError::NotCa`] with the position from 1: a
    /// leaf among the roots is a mistake in the file, and the peer's name would not be signed by anybody.
    pub fn new(roots: Vec<CertificateDer<'static>>) -> Result<Self, ConfigError> {
        if roots.len() > ROOTS_MAX {
            return Err(ConfigError::TooManyRoots);
        }
        let mut store = RootCertStore::empty();
        for (index, root) in roots.into_iter().enumerate() {
            if !is_ca(&root) || store.add(root).is_err() {
                return Err(ConfigError::NotCa(index + 1));
            }
        }
        if store.is_empty() {
            return Err(ConfigError::NoRoots);
        }
        Ok(Self { roots: Arc::new(store), crls: Vec::new(), time: Arc::new(DefaultTimeProvider) })
    }

    /// Adds revocation lists. With at least one, every certificate below a root must be covered by a list that is not
    /// past its `nextUpdate`; without any, nothing is checked for revocation. Only the Edge looks at them.
    #[must_use]
    pub fn with_crls(mut self, crls: Vec<CertificateRevocationListDer<'static>>) -> Self {
        self.crls = crls;
        self
    }

    /// Judges dates by another clock.
    #[must_use]
    pub fn with_time(mut self, time: Arc<dyn TimeProvider>) -> Self {
        self.time = time;
        self
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (roots, crls) = (self.roots.len(), self.crls.len());
        f.debug_struct("Trust").field("roots", &roots).field("crls", &crls).finish_non_exhaustive()
    }
}

/// The Edge's end: presents `identity`, and accepts only Nodes signed by the node CAs in `node_ca`.
///
/// # Errors
/// [`ConfigError::Crl`] and [`ConfigError::Tls`].
pub fn edge_server_config(
    identity: &LocalIdentity,
    node_ca: &Trust,
) -> Result<Arc<ServerConfig>, ConfigError> {
    let verifier = EdgeVerifier::new(node_ca)?;
    let mut config = ServerConfig::builder_with_details(provider(), Arc::clone(&node_ca.time))
        .with_protocol_versions(&[&TLS13])
        .map_err(ConfigError::Tls)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(identity.resolver());
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// The Node's end: presents `identity`, and accepts only the Edge `edge`, signed by the edge CAs in `edge_ca`.
///
/// # Errors
/// [`ConfigError::Tls`].
pub fn node_client_config(
    identity: &LocalIdentity,
    edge_ca: &Trust,
    edge: Name,
) -> Result<Arc<ClientConfig>, ConfigError> {
    let mut config = ClientConfig::builder_with_details(provider(), Arc::clone(&edge_ca.time))
        .with_protocol_versions(&[&TLS13])
        .map_err(ConfigError::Tls)?
        // "dangerous" because a verifier can be written wrongly; ours delegates chain and signatures to rustls.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(NodeVerifier::new(edge_ca, edge)))
        .with_client_cert_resolver(identity.resolver());
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    Ok(Arc::new(config))
}

/// What a dialling Node tells a proxy on the way (SNI): the host if it is a DNS name, else nothing. It has no part in
/// authentication, which goes by the workload name.
#[must_use]
pub fn server_name(host: &str) -> ServerName<'static> {
    ServerName::try_from(host.to_owned()).unwrap_or(ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into()))
}

/// The cryptography of every TLS configuration: ring, with AES-128-GCM first because it is the fastest here and both
/// ends are ours.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    let suites = &ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite != suites);
    Arc::new(provider)
}

/// Bounds what a verifier looks at.
pub(super) fn check_chain(leaf: &CertificateDer<'_>, rest: &[CertificateDer<'_>]) -> Result<(), LeafFault> {
    let certs = rest.len() + 1;
    let bytes = rest.iter().map(|certificate| certificate.len()).sum::<usize>() + leaf.len();
    if certs > CHAIN_CERTS_MAX || bytes > CHAIN_BYTES_MAX {
        return Err(LeafFault::Chain { certs, bytes });
    }
    Ok(())
}

fn is_ca(certificate: &CertificateDer<'_>) -> bool {
    parse_x509_certificate(certificate).is_ok_and(|(_, parsed)| parsed.is_ca())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::certs::{Authority, Leaf};

    #[test]
    fn leaf_in_a_trust_bundle_is_refused() {
        let authority = Authority::new("node-ca");
        let leaf = authority.issue(&Leaf::node("box1"));
        let bundle = vec![authority.root(), leaf.der()];
        assert!(matches!(Trust::new(bundle), Err(ConfigError::NotCa(2))));
        assert!(matches!(Trust::new(Vec::new()), Err(ConfigError::NoRoots)));
        assert!(matches!(Trust::new(vec![authority.root(); ROOTS_MAX + 1]), Err(ConfigError::TooManyRoots)));
    }

    #[test]
    fn only_dns_names_are_sent_as_server_name() {
        assert!(matches!(server_name("edge.example.org"), ServerName::DnsName(_)));
        assert!(matches!(server_name("not a name"), ServerName::IpAddress(_)));
        assert!(matches!(server_name("::1"), ServerName::IpAddress(_)));
    }
}
