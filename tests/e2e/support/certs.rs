//! Certificates for tests: out of join files, and made to be wrong.

use std::{path::Path, sync::Arc};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};

/// A certificate chain and its key, as PEM texts.
#[derive(Clone)]
pub struct Identity {
    pub cert: String,
    pub key: String,
}

impl Identity {
    /// What a join file carries.
    pub fn of_bundle(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file)?;
        Ok(Self { cert: block(&text, "cert_pem")?, key: block(&text, "key_pem")? })
    }

    /// Two PEM files.
    pub fn of_files(cert: &Path, key: &Path) -> anyhow::Result<Self> {
        Ok(Self { cert: std::fs::read_to_string(cert)?, key: std::fs::read_to_string(key)? })
    }

    /// A certificate of the usual profile whose only name is `uri`.
    pub fn issue(uri: &str, ca: &Self) -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(uri.try_into()?)];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let issuer = Issuer::from_ca_cert_pem(&ca.cert, KeyPair::from_pem(&ca.key)?)?;
        Ok(Self { cert: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
    }

    /// A CA of somebody else's.
    pub fn authority(name: &str) -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        Ok(Self { cert: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
    }

    /// A server's certificate for these DNS names and addresses.
    pub fn server(names: &[&str], ca: &Self) -> anyhow::Result<Self> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let issuer = Issuer::from_ca_cert_pem(&ca.cert, KeyPair::from_pem(&ca.key)?)?;
        Ok(Self { cert: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
    }

    /// The certificates, the workload's own first.
    pub fn chain(&self) -> anyhow::Result<Vec<CertificateDer<'static>>> {
        Ok(CertificateDer::pem_slice_iter(self.cert.as_bytes()).collect::<Result<_, _>>()?)
    }
}

/// The literal block of a YAML key, without its indentation.
fn block(yaml: &str, key: &str) -> anyhow::Result<String> {
    let mut lines = yaml.lines().skip_while(|line| line.trim() != format!("{key}: |"));
    lines.next().with_context(|| format!("no {key} in the join file"))?;
    Ok(lines.take_while(|line| line.starts_with("    ")).map(|line| format!("{}\n", line.trim())).collect())
}

/// A TLS client of the Node link that trusts any Edge and presents `identity`, if any.
pub fn client(identity: Option<&Identity>) -> anyhow::Result<Arc<ClientConfig>> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyEdge));
    let mut config = match identity {
        Some(identity) => builder.with_client_auth_cert(
            identity.chain()?,
            PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?,
        )?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"iop-node/1".to_vec()];
    Ok(Arc::new(config))
}

/// The certificate that a server of HTTPS presents to a new connection.
pub fn presented(address: &str) -> anyhow::Result<CertificateDer<'static>> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyEdge))
        .with_no_client_auth();
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_read_timeout(Some(iop_tests::http::PATIENCE))?;
    let mut tls = rustls::ClientConnection::new(Arc::new(config), ServerName::try_from("localhost")?)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut stream)?;
    }
    let chain = tls.peer_certificates().context("no certificate")?;
    Ok(chain.first().context("no certificate")?.clone())
}

/// The tests ask what the Edge refuses; whom they talk to they know.
#[derive(Debug)]
struct AnyEdge;

impl ServerCertVerifier for AnyEdge {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
