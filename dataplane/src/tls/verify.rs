//! The certificate verifiers that run inside the handshake.
//!
//! Each judges in this order: bounds of the chain, chain to a trusted CA with dates and revocation (rustls-webpki), form
//! of the leaf, role, name. A failure ends the handshake with an alert, before any application data is read.
//!
//! Chain building and the proof that the peer holds the key of its certificate (`verify_tls13_signature`) are always
//! delegated to rustls: a verifier that answers the latter by itself accepts stolen certificates.

use std::{fmt, sync::Arc};

use proto::identity::{Name, Role};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    server::{
        ParsedCertificate, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::{
    config::{ConfigError, Trust, check_chain, provider},
    leaf::PeerIdentity,
};

/// The Edge's judge of those who dial it: Nodes signed by a node CA, never anonymous.
///
/// Every Node name passes; whether the name may register is decided with the configuration at hand, later.
#[derive(Debug)]
pub struct EdgeVerifier {
    chain: Arc<dyn ClientCertVerifier>,
}

impl EdgeVerifier {
    /// A judge by these node CAs and revocation lists.
    ///
    /// # Errors
    /// [`ConfigError::Crl`] when a revocation list cannot be read.
    pub fn new(node_ca: &Trust) -> Result<Self, ConfigError> {
        let chain = WebPkiClientVerifier::builder_with_provider(Arc::clone(&node_ca.roots), provider())
            .with_crls(node_ca.crls.iter().cloned())
            .enforce_revocation_expiration()
            .build()
            .map_err(|_| ConfigError::Crl)?;
        Ok(Self { chain })
    }
}

impl ClientCertVerifier for EdgeVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        check_chain(end_entity, intermediates)?;
        let verified =
            self.chain.verify_client_cert(end_entity, intermediates, now).map_err(as_unknown_issuer)?;
        PeerIdentity::from_leaf(end_entity)?.expect(Role::Node, None)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// The Node's judge of what it dialled: one Edge by its workload name, signed by an edge CA. DNS names and addresses in
/// the certificate are not looked at.
pub struct NodeVerifier {
    roots: Arc<RootCertStore>,
    edge: Name,
    provider: Arc<CryptoProvider>,
}

impl NodeVerifier {
    /// A judge by these edge CAs; `edge` is the only name that passes.
    #[must_use]
    pub fn new(edge_ca: &Trust, edge: Name) -> Self {
        Self { roots: Arc::clone(&edge_ca.roots), edge, provider: provider() }
    }
}

impl fmt::Debug for NodeVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeVerifier").field("edge", &self.edge).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for NodeVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        check_chain(end_entity, intermediates)?;
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)
            .map_err(as_unknown_issuer)?;
        PeerIdentity::from_leaf(end_entity)?.expect(Role::Edge, Some(&self.edge))?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A chain that does not verify under a CA of the right subject name was signed by another CA of that name. Without this
/// the operator would read of a bad certificate where the CA file is the wrong one.
fn as_unknown_issuer(error: Error) -> Error {
    match error {
        Error::InvalidCertificate(CertificateError::BadSignature) => CertificateError::UnknownIssuer.into(),
        other => other,
    }
}
