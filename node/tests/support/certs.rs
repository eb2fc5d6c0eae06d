//! Certificates as `iop-edge pki` makes them.

use std::sync::Arc;

use dataplane::tls::{
    config::{Trust, edge_server_config, node_client_config},
    local::LocalIdentity,
    pem,
};
use proto::identity::Role;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::{ClientConfig, ServerConfig};

/// A CA.
pub struct Ca(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub struct Issued {
    pub cert_pem: String,
    pub key_pem: String,
}

impl Ca {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn issue(&self, role: Role, name: &str) -> Issued {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let uri = format!("spiffe://iop.local/iop/{}/{name}", role.as_str());
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into().unwrap())];
        params.is_ca = IsCa::NoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Issued { cert_pem: certificate.pem(), key_pem: key.serialize_pem() }
    }
}

impl Issued {
    fn identity(&self, role: Role) -> LocalIdentity {
        LocalIdentity::load(self.cert_pem.as_bytes(), self.key_pem.as_bytes(), role, None).unwrap()
    }
}

fn trust(ca: &Ca) -> Trust {
    Trust::new(pem::certs(ca.pem().as_bytes()).unwrap()).unwrap()
}

/// Both CAs of one installation.
pub struct Pki {
    pub edge_ca: Ca,
    pub node_ca: Ca,
}

impl Pki {
    pub fn new() -> Self {
        Self { edge_ca: Ca::new("edge-ca"), node_ca: Ca::new("node-ca") }
    }

    /// The TLS of an Edge with this name.
    pub fn edge_tls(&self, name: &str) -> Arc<ServerConfig> {
        let identity = self.edge_ca.issue(Role::Edge, name).identity(Role::Edge);
        edge_server_config(&identity, &trust(&self.node_ca)).unwrap()
    }

    /// The TLS of a Node with this name that accepts the Edge `edge`.
    pub fn node_tls(&self, name: &str, edge: &str) -> Arc<ClientConfig> {
        let identity = self.node_ca.issue(Role::Node, name).identity(Role::Node);
        node_client_config(&identity, &trust(&self.edge_ca), edge.parse().unwrap()).unwrap()
    }
}
