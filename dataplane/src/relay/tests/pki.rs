//! A throw-away deployment: an Edge `edge-1` and a Node `box1`, each signed by its own CA.

use std::sync::Arc;

use proto::identity::Role;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::{ClientConfig, ServerConfig};

use crate::tls::{
    config::{Trust, edge_server_config, node_client_config},
    local::LocalIdentity,
};

pub(super) struct Deployment {
    edge_ca: CertifiedIssuer<'static, KeyPair>,
    node_ca: CertifiedIssuer<'static, KeyPair>,
}

impl Deployment {
    pub(super) fn new() -> Self {
        Self { edge_ca: authority(), node_ca: authority() }
    }

    pub(super) fn edge(&self) -> Arc<ServerConfig> {
        edge_server_config(&issue(&self.edge_ca, Role::Edge), &trust(&self.node_ca)).unwrap()
    }

    pub(super) fn node(&self) -> Arc<ClientConfig> {
        self.node_signed_by(&self.node_ca)
    }

    /// A Node whose certificate comes from somewhere else.
    pub(super) fn stranger(&self) -> Arc<ClientConfig> {
        self.node_signed_by(&authority())
    }

    fn node_signed_by(&self, ca: &CertifiedIssuer<'static, KeyPair>) -> Arc<ClientConfig> {
        node_client_config(&issue(ca, Role::Node), &trust(&self.edge_ca), "edge-1".parse().unwrap()).unwrap()
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn trust(ca: &CertifiedIssuer<'static, KeyPair>) -> Trust {
    Trust::new(vec![ca.der().clone()]).unwrap()
}

fn issue(ca: &CertifiedIssuer<'static, KeyPair>, role: Role) -> LocalIdentity {
    let uri = match role {
        Role::Edge => "spiffe://iop.local/iop/edge/edge-1",
        Role::Node => "spiffe://iop.local/iop/node/box1",
    };
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, ca).unwrap();
    LocalIdentity::load(certificate.pem().as_bytes(), key.serialize_pem().as_bytes(), role, None).unwrap()
}
