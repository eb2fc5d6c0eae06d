//! What is refused or turned off whatever the certificate: protocol, version, plaintext, resumption; and renewal.

use std::sync::Arc;

use proto::identity::Role;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    version::TLS13,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::{
    certs::{Authority, FixedTime, Leaf, NOW},
    matrix::{edge_with, join_eagerly, node_with},
    pair::{Deployment, Pair},
};
use crate::tls::{
    config::{ALPN, Trust, edge_server_config, node_client_config, provider},
    pem,
    refusal::{Origin, Refusal},
};

// req: IDN-1
#[test]
fn peers_without_the_link_s_protocol_are_refused() {
    let deployment = Deployment::new();
    let issued = deployment.node_ca.issue(&Leaf::node("box1"));
    for protocols in [vec![], vec![b"h2".to_vec()], vec![b"iop-node/2".to_vec()]] {
        let mut node = node_with(&issued, &deployment);
        node.alpn_protocols = protocols.clone();
        let mut pair = Pair::new(Arc::new(node), deployment.edge());
        pair.settle();
        assert_eq!(pair.edge_refusal(), Some(Refusal::WrongAlpn), "{protocols:?}: {:?}", pair.edge_fault);
        assert!(pair.edge.peer().is_none() && pair.edge_got.is_empty());
    }
    // And an Edge that chooses none gets no certificate of the Node.
    let issued = deployment.edge_ca.issue(&Leaf::edge("edge-1"));
    let mut edge = edge_with(&issued, &deployment);
    edge.alpn_protocols.clear();
    let mut pair = Pair::new(deployment.node(), Arc::new(edge));
    pair.settle();
    assert_eq!(pair.node_refusal(), Some(Refusal::WrongAlpn));
    assert!(pair.node.peer().is_none() && pair.edge.peer().is_none());
}

// req: IDN-1
#[test]
fn older_tls_is_refused() {
    let mut pair = Pair::new(Deployment::new().node(), Deployment::new().edge());
    pair.feed_edge(&tls12_client_hello());
    assert_eq!(pair.edge_refusal(), Some(Refusal::TlsVersion), "{:?}", pair.edge_fault);
    assert!(pair.edge.wants_write());
    // Alert (0x15), fatal (2), protocol_version (70).
    let mut alert = Vec::new();
    pair.edge.flush(&mut alert);
    assert_eq!((alert[0], &alert[5..]), (0x15, &[2, 70][..]));
    // And the Node reads such an alert as what it is.
    pair.feed_node(&[0x15, 3, 3, 0, 2, 2, 70]);
    let told = pair.node_fault.unwrap();
    assert_eq!((told.refusal(), told.origin()), (Refusal::TlsVersion, Origin::Peer));
}

/// A ClientHello of TLS 1.2 (RFC 5246 section 7.4.1.2): no supported_versions extension.
fn tls12_client_hello() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]); // random
    body.push(0); // no session id
    body.extend([0, 2, 0xc0, 0x2b]); // TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
    body.extend([1, 0]); // no compression
    let extensions: [&[u8]; 3] = [
        &[0, 10, 0, 4, 0, 2, 0, 23], // supported_groups: secp256r1
        &[0, 11, 0, 2, 1, 0],        // ec_point_formats: uncompressed
        &[0, 13, 0, 4, 0, 2, 4, 3],  // signature_algorithms: ecdsa_secp256r1_sha256
    ];
    let extensions = extensions.concat();
    body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend(extensions);
    let mut message = vec![1, 0];
    message.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    message.extend(body);
    let mut record = vec![0x16, 3, 1];
    record.extend(u16::try_from(message.len()).unwrap().to_be_bytes());
    record.extend(message);
    record
}

// req: IDN-1
#[test]
fn plaintext_is_told_from_tls_by_its_first_byte() {
    let deployment = Deployment::new();
    for first in [&b"G"[..], b"GET / HTTP/1.1\r\n\r\n", b"\0", b"\x17\x03\x03\x00\x01x"] {
        let mut pair = Pair::new(deployment.node(), deployment.edge());
        pair.feed_edge(first);
        assert_eq!(pair.edge_refusal(), Some(Refusal::Plaintext));
        assert!(!pair.edge.wants_write(), "a stranger gets no answer");
    }
    let mut pair = Pair::new(deployment.node(), deployment.edge());
    pair.feed_node(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert_eq!(pair.node_refusal(), Some(Refusal::Plaintext));
}

// req: IDN-2
#[test]
fn second_handshake_is_full_although_the_peer_would_resume() {
    let deployment = Deployment::new();
    let node = {
        let mut node = node_with(&deployment.node_ca.issue(&Leaf::node("box1")), &deployment);
        node.resumption = Resumption::in_memory_sessions(16);
        node.enable_early_data = true;
        Arc::new(node)
    };
    let edge = deployment.edge();
    for _ in 0..2 {
        let pair = join_eagerly(Arc::clone(&node), Arc::clone(&edge));
        assert!(pair.edge_fault.is_none());
        assert!(!pair.edge.is_resumed() && !pair.node.is_resumed());
        assert_eq!(&pair.edge_got[..], b"register");
    }
    // Against an Edge that would resume, our own Node does not ask for it.
    let mut lax = edge_with(&deployment.edge_ca.issue(&Leaf::edge("edge-1")), &deployment);
    lax.send_tls13_tickets = 2;
    let (lax, node) = (Arc::new(lax), deployment.node());
    for _ in 0..2 {
        let pair = join_eagerly(Arc::clone(&node), Arc::clone(&lax));
        assert!(pair.node_fault.is_none());
        assert!(!pair.node.is_resumed());
    }
}

/// The control of the test above: with lax configurations on both ends the second handshake does resume, so that
/// `is_resumed` is known to see it.
#[test]
fn lax_peers_do_resume() {
    #[derive(Debug)]
    struct Trusting;
    impl ServerCertVerifier for Trusting {
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
            provider().signature_verification_algorithms.supported_schemes()
        }
    }
    let deployment = Deployment::new();
    let issued = deployment.node_ca.issue(&Leaf::node("box1"));
    let mut node = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_client_auth_cert(
            pem::certs(issued.cert_pem.as_bytes()).unwrap(),
            pem::key(issued.key_pem.as_bytes()).unwrap(),
        )
        .unwrap();
    node.dangerous().set_certificate_verifier(Arc::new(Trusting));
    node.alpn_protocols = vec![ALPN.to_vec()];
    let mut edge = edge_with(&deployment.edge_ca.issue(&Leaf::edge("edge-1")), &deployment);
    edge.send_tls13_tickets = 2;
    let (node, edge) = (Arc::new(node), Arc::new(edge));
    let kinds = [(); 2].map(|()| {
        let pair = join_eagerly(Arc::clone(&node), Arc::clone(&edge));
        assert!(pair.edge_fault.is_none(), "{:?}", pair.edge_fault);
        pair.edge.is_resumed()
    });
    assert_eq!(kinds, [false, true]);
}

// Half of IDN-4: the reload itself comes with configuration refresh.
#[test]
fn renewed_configuration_judges_new_connections_only() {
    let deployment = Deployment::new();
    let mut open = Pair::new(deployment.node(), deployment.edge());
    open.settle();
    // The node CA is replaced: new connections of the old Node fail, the open one goes on.
    let identity = deployment.edge_ca.issue(&Leaf::edge("edge-1")).identity(Role::Edge);
    let renewed = edge_server_config(&identity, &Authority::new("node-ca").trust()).unwrap();
    assert_eq!(join_eagerly(deployment.node(), renewed).edge_refusal(), Some(Refusal::UnknownCa));
    let mut bytes = Vec::new();
    open.node.send(b"still here", &mut bytes).unwrap();
    open.feed_edge(&bytes);
    assert_eq!(&open.edge_got[..], b"still here");
}

// Half of IDN-4: the reload itself comes with configuration refresh.
#[test]
fn bundle_of_two_cas_accepts_both_while_one_is_replaced() {
    let (old, new) = (Deployment::new(), Deployment::new());
    let both =
        Trust::new(vec![old.node_ca.root(), new.node_ca.root()]).unwrap().with_time(Arc::new(FixedTime(NOW)));
    let identity = old.edge_ca.issue(&Leaf::edge("edge-1")).identity(Role::Edge);
    let edge = edge_server_config(&identity, &both).unwrap();
    for authority in [&old.node_ca, &new.node_ca] {
        let node = authority.issue(&Leaf::node("box1")).identity(Role::Node);
        let node = node_client_config(&node, &old.edge_ca.trust(), "edge-1".parse().unwrap()).unwrap();
        let pair = join_eagerly(node, Arc::clone(&edge));
        assert!(pair.edge_fault.is_none(), "{:?}", pair.edge_fault);
    }
}
