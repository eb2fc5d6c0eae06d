//! The proof matrix: every wrong peer fails inside the handshake, with its reason, and gets nothing through.

use std::sync::Arc;

use proto::identity::Role;
use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SanType};
use rustls::{ClientConfig, ServerConfig, version::TLS13};

use super::{
    certs::{Authority, FixedTime, Issued, Leaf, NOW, raw_uri_sans},
    pair::{Deployment, Pair},
};
use crate::tls::{
    config::{ALPN, CHAIN_BYTES_MAX, edge_server_config, provider},
    pem,
    refusal::{Origin, Refusal},
    verify::{EdgeVerifier, NodeVerifier},
};

/// A Node that presents whatever it is given, unlike ours, which would refuse to start with it.
pub(super) fn node_with(issued: &Issued, deployment: &Deployment) -> ClientConfig {
    let verifier = NodeVerifier::new(&deployment.edge_ca.trust(), "edge-1".parse().unwrap());
    let mut config = ClientConfig::builder_with_details(provider(), Arc::new(FixedTime(NOW)))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(
            pem::certs(issued.cert_pem.as_bytes()).unwrap(),
            pem::key(issued.key_pem.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

/// An Edge that presents whatever it is given.
pub(super) fn edge_with(issued: &Issued, deployment: &Deployment) -> ServerConfig {
    let mut config = ServerConfig::builder_with_details(provider(), Arc::new(FixedTime(NOW)))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_client_cert_verifier(Arc::new(EdgeVerifier::new(&deployment.node_ca.trust()).unwrap()))
        .with_single_cert(
            pem::certs(issued.cert_pem.as_bytes()).unwrap(),
            pem::key(issued.key_pem.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

/// Joins the two, with a Node that talks as soon as it may: a TLS 1.3 client is done before the server has judged it.
pub(super) fn join_eagerly(node: Arc<ClientConfig>, edge: Arc<ServerConfig>) -> Pair {
    let mut pair = Pair::new(node, edge);
    let mut spoken = false;
    while pair.node.wants_write() || pair.edge.wants_write() {
        let mut bytes = Vec::new();
        pair.node.flush(&mut bytes);
        if !pair.node.is_handshaking() && !spoken {
            spoken = pair.node.send(b"register", &mut bytes).is_ok();
        }
        pair.feed_edge(&bytes);
        bytes.clear();
        pair.edge.flush(&mut bytes);
        pair.feed_node(&bytes);
    }
    pair
}

/// The Edge refuses a Node with this certificate, and nothing reaches the layer above.
fn assert_edge_refuses(case: &str, issued: &Issued, deployment: &Deployment, expected: Refusal) {
    let pair = join_eagerly(Arc::new(node_with(issued, deployment)), deployment.edge());
    assert_eq!(pair.edge_refusal(), Some(expected), "{case}: {:?}", pair.edge_fault);
    assert_edge_saw_nothing(case, &pair);
}

fn assert_edge_saw_nothing(case: &str, pair: &Pair) {
    assert!(pair.edge_got.is_empty(), "{case}: plaintext got through");
    assert!(pair.edge.peer().is_none(), "{case}: there is a peer");
    assert!(pair.edge.alpn().is_none() || pair.edge_fault.is_some(), "{case}");
    assert!(pair.node_fault.is_some(), "{case}: the node was not told");
}

/// A Node refuses an Edge with this certificate before it has sent its own.
fn assert_node_refuses(case: &str, issued: &Issued, deployment: &Deployment, expected: Refusal) {
    let pair = join_eagerly(deployment.node(), Arc::new(edge_with(issued, deployment)));
    assert_eq!(pair.node_refusal(), Some(expected), "{case}: {:?}", pair.node_fault);
    assert!(pair.node.is_handshaking() && pair.node.peer().is_none(), "{case}");
    assert!(pair.edge.is_handshaking() && pair.edge.peer().is_none(), "{case}: the edge believes in a peer");
    assert!(pair.edge_got.is_empty() && pair.node_got.is_empty(), "{case}: plaintext got through");
}

// req: IDN-1
#[test]
fn good_peers_learn_each_other_s_role_and_name() {
    let pair = join_eagerly_good();
    let (node, edge) = (pair.edge.peer().unwrap(), pair.node.peer().unwrap());
    assert_eq!((node.role(), node.name().as_str()), (Role::Node, "box1"));
    assert_eq!((edge.role(), edge.name().as_str()), (Role::Edge, "edge-1"));
    assert_eq!(node.workload.trust_domain.as_str(), "iop.local");
    assert_eq!(node.serial, "1f02");
    assert_eq!((node.not_before, node.not_after), (NOW - 3600, NOW + 3600));
    assert_ne!(node.spki_sha256, edge.spki_sha256);
    assert_eq!(pair.edge.alpn(), Some(ALPN));
    assert_eq!(&pair.edge_got[..], b"register");
}

fn join_eagerly_good() -> Pair {
    let deployment = Deployment::new();
    join_eagerly(deployment.node(), deployment.edge())
}

// req: IDN-1, IDN-2
#[test]
fn edge_refuses_a_node_without_certificate() {
    let deployment = Deployment::new();
    let mut node = ClientConfig::builder_with_details(provider(), Arc::new(FixedTime(NOW)))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(NodeVerifier::new(
            &deployment.edge_ca.trust(),
            "edge-1".parse().unwrap(),
        )))
        .with_no_client_auth();
    node.alpn_protocols = vec![ALPN.to_vec()];
    let pair = join_eagerly(Arc::new(node), deployment.edge());
    assert_eq!(pair.edge_refusal(), Some(Refusal::NoCertificate));
    assert_edge_saw_nothing("no certificate", &pair);
    // The alert tells the Node the same.
    let told = pair.node_fault.unwrap();
    assert_eq!((told.refusal(), told.origin()), (Refusal::NoCertificate, Origin::Peer));
}

// req: IDN-1, IDN-2
#[test]
fn edge_refuses_nodes_of_wrong_cas() {
    let deployment = Deployment::new();
    let node = Leaf::node("box1");
    let stranger = Authority::new("stranger");
    assert_edge_refuses("wrong ca", &stranger.issue(&node), &deployment, Refusal::UnknownCa);
    let namesake = Authority::new("node-ca");
    assert_edge_refuses("another ca of that name", &namesake.issue(&node), &deployment, Refusal::UnknownCa);
    assert_edge_refuses("self-signed", &node.self_signed(), &deployment, Refusal::UnknownCa);
    assert_edge_refuses("edge ca", &deployment.edge_ca.issue(&node), &deployment, Refusal::UnknownCa);
    // A valid Edge of this deployment is no Node either.
    let edge = deployment.edge_ca.issue(&Leaf::edge("edge-1"));
    assert_edge_refuses("an edge", &edge, &deployment, Refusal::UnknownCa);
}

// req: IDN-1, IDN-2
#[test]
fn edge_refuses_an_edge_role_signed_by_the_node_ca() {
    let deployment = Deployment::new();
    let issued = deployment.node_ca.issue(&Leaf::edge("edge-1"));
    assert_edge_refuses("role", &issued, &deployment, Refusal::WrongRole);
}

// req: IDN-1, IDN-2
#[test]
fn node_refuses_edges_of_wrong_cas_roles_and_names() {
    let deployment = Deployment::new();
    let edge = Leaf::edge("edge-1");
    let refuses = |case, issued, expected| assert_node_refuses(case, &issued, &deployment, expected);
    refuses("wrong ca", Authority::new("stranger").issue(&edge), Refusal::UnknownCa);
    refuses("another ca of that name", Authority::new("edge-ca").issue(&edge), Refusal::UnknownCa);
    refuses("self-signed", edge.self_signed(), Refusal::UnknownCa);
    refuses("a stolen node certificate", deployment.node_ca.issue(&Leaf::node("box1")), Refusal::UnknownCa);
    refuses("the node ca made an edge", deployment.node_ca.issue(&edge), Refusal::UnknownCa);
    refuses("node role", deployment.edge_ca.issue(&Leaf::node("edge-1")), Refusal::WrongRole);
    refuses("wrong name", deployment.edge_ca.issue(&Leaf::edge("edge-2")), Refusal::WrongName);
    // A DNS name or address that fits is worth nothing.
    let tempting = Leaf::edge("edge-2").with(|leaf| {
        leaf.sans.push(SanType::DnsName("edge-1".try_into().unwrap()));
        leaf.sans.push(SanType::IpAddress("127.0.0.1".parse().unwrap()));
    });
    refuses("wrong name, right address", deployment.edge_ca.issue(&tempting), Refusal::WrongName);
    refuses("expired", deployment.edge_ca.issue(&expired(Leaf::edge("edge-1"))), Refusal::Expired);
    refuses("dns only", deployment.edge_ca.issue(&dns_only()), Refusal::BadSan);
}

fn expired(leaf: Leaf) -> Leaf {
    leaf.with(|leaf| leaf.not_after = leaf.not_before + 10)
}

fn dns_only() -> Leaf {
    Leaf::of(vec![SanType::DnsName("edge-1".try_into().unwrap())])
}

// req: IDN-2
#[test]
fn edge_refuses_expired_and_future_nodes() {
    let deployment = Deployment::new();
    let now = i64::try_from(NOW).unwrap();
    let issue = |leaf: &Leaf| deployment.node_ca.issue(leaf);
    assert_edge_refuses("expired", &issue(&expired(Leaf::node("box1"))), &deployment, Refusal::Expired);
    let one_second_over = Leaf::node("box1").with(|leaf| leaf.not_after = now - 1);
    assert_edge_refuses("just expired", &issue(&one_second_over), &deployment, Refusal::Expired);
    let future = Leaf::node("box1").with(|leaf| leaf.not_before = now + 1);
    assert_edge_refuses("future", &issue(&future), &deployment, Refusal::NotYetValid);
    let lapsed = deployment.node_ca.intermediate("node-ca-2", now - 1).issue(&Leaf::node("box1"));
    assert_edge_refuses("expired intermediate", &lapsed, &deployment, Refusal::Expired);
}

// req: IDN-1, IDN-2
#[test]
fn edge_refuses_leaves_without_exactly_one_uri_san() {
    let deployment = Deployment::new();
    let refuses = |case, leaf: &Leaf| {
        assert_edge_refuses(case, &deployment.node_ca.issue(leaf), &deployment, Refusal::BadSan);
    };
    refuses("no san at all", &Leaf::of(Vec::new()));
    refuses("dns only", &dns_only());
    let two = Leaf::node("box1").with(|leaf| leaf.sans.extend(Leaf::node("box2").sans));
    refuses("two uris", &two);
    let twice = Leaf::node("box1").with(|leaf| leaf.sans.extend(Leaf::node("box1").sans));
    refuses("the same uri twice", &twice);
    let foreign = Leaf::node("box1").with(|leaf| leaf.sans.extend(Leaf::uri("https://example.org/").sans));
    refuses("a foreign uri beside", &foreign);
}

// req: IDN-2
#[test]
fn edge_refuses_uris_outside_the_form() {
    let deployment = Deployment::new();
    let long = format!("spiffe://iop.local/iop/node/{}", "a".repeat(64));
    let forms: [&[u8]; 17] = [
        b"spiffe://iop.local/iop/node/box1\0",
        b"spiffe://iop.local/iop/node/bo\0x1",
        b"spiffe://iop.local/iop/node/box%31",
        b"spiffe://iop.local/iop/node/Box1",
        b"SPIFFE://iop.local/iop/node/box1",
        b"spiffe://iop.local/iop/node/..",
        b"spiffe://iop.local/iop/edge/../node/box1",
        b"spiffe://iop.local/iop//box1",
        b"spiffe://iop.local/iop/node/box1/",
        b"spiffe://iop.local/iop/node",
        b"spiffe://iop.local/iop/admin/box1",
        b"spiffe://iop.local/other/node/box1",
        b"spiffe:///iop/node/box1",
        b"spiffe://iop.local:8443/iop/node/box1",
        b"spiffe://iop.local/iop/node/b\xf6x1",
        b"",
        long.as_bytes(),
    ];
    for uri in forms {
        let leaf = Leaf::of(Vec::new()).with(|leaf| leaf.extensions = vec![raw_uri_sans(&[uri])]);
        let case = String::from_utf8_lossy(uri);
        assert_edge_refuses(&case, &deployment.node_ca.issue(&leaf), &deployment, Refusal::BadSan);
    }
    // A good URI beside one that is not even UTF-8 is two.
    let sans = raw_uri_sans(&[b"spiffe://iop.local/iop/node/box1", b"\xff"]);
    let leaf = Leaf::of(Vec::new()).with(|leaf| leaf.extensions = vec![sans]);
    assert_edge_refuses("unreadable beside", &deployment.node_ca.issue(&leaf), &deployment, Refusal::BadSan);
}

// req: IDN-2
#[test]
fn edge_refuses_leaves_outside_the_profile() {
    let deployment = Deployment::new();
    let refuses = |case, change: fn(&mut Leaf)| {
        let issued = deployment.node_ca.issue(&Leaf::node("box1").with(change));
        assert_edge_refuses(case, &issued, &deployment, Refusal::BadCertificate);
    };
    refuses("ca", |leaf| leaf.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    refuses("no key usage", |leaf| leaf.usages.clear());
    refuses("key encipherment only", |leaf| leaf.usages = vec![KeyUsagePurpose::KeyEncipherment]);
    refuses("keyCertSign", |leaf| leaf.usages.push(KeyUsagePurpose::KeyCertSign));
    refuses("cRLSign", |leaf| leaf.usages.push(KeyUsagePurpose::CrlSign));
    refuses("clientAuth only", |leaf| leaf.purposes = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    refuses("serverAuth only", |leaf| leaf.purposes = vec![ExtendedKeyUsagePurpose::ServerAuth]);
}

// req: IDN-2
#[test]
fn edge_refuses_revoked_nodes_and_stale_lists() {
    let deployment = Deployment::new();
    let edge = |crl, at| {
        let identity = deployment.edge_ca.issue(&Leaf::edge("edge-1")).identity(Role::Edge);
        let trust = deployment.node_ca.trust().with_crls(vec![crl]).with_time(Arc::new(FixedTime(at)));
        edge_server_config(&identity, &trust).unwrap()
    };
    let node = Leaf::node("box1").with(|leaf| leaf.not_after += 100_000);
    let node = Arc::new(node_with(&deployment.node_ca.issue(&node), &deployment));
    let join = |crl, at| join_eagerly(Arc::clone(&node), edge(crl, at));

    let pair = join(deployment.node_ca.revoke(&[0x1f02]), NOW);
    assert_eq!(pair.edge_refusal(), Some(Refusal::Revoked));
    assert_edge_saw_nothing("revoked", &pair);
    assert_eq!(join(deployment.node_ca.revoke(&[7]), NOW).edge_refusal(), None);
    assert_eq!(join(deployment.node_ca.revoke(&[7]), NOW + 3601).edge_refusal(), Some(Refusal::Revoked));
    let silent = Authority::new("stranger").revoke(&[7]);
    assert_eq!(join(silent, NOW).edge_refusal(), Some(Refusal::Revoked));
}

// req: IDN-2
#[test]
fn chains_are_accepted_up_to_their_bound() {
    let deployment = Deployment::new();
    let forever = i64::try_from(NOW).unwrap() + 10_000;
    let mut authority = deployment.node_ca.intermediate("level-1", forever);
    for level in 2..=3 {
        authority = authority.intermediate(&format!("level-{level}"), forever);
    }
    let four = authority.issue(&Leaf::node("box1"));
    let pair = join_eagerly(Arc::new(node_with(&four, &deployment)), deployment.edge());
    assert!(pair.edge_fault.is_none(), "{:?}", pair.edge_fault);
    let five = authority.intermediate("level-4", forever).issue(&Leaf::node("box1"));
    assert_edge_refuses("five certificates", &five, &deployment, Refusal::BadCertificate);
    let fat = Leaf::node("box1").with(|leaf| {
        let padding = vec![0; CHAIN_BYTES_MAX];
        leaf.extensions =
            vec![rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], padding)];
    });
    assert_edge_refuses("16 kib", &deployment.node_ca.issue(&fat), &deployment, Refusal::BadCertificate);
}

// req: IDN-1, IDN-2
#[test]
fn stolen_certificate_without_its_key_is_refused() {
    let deployment = Deployment::new();
    let victim = deployment.node_ca.issue(&Leaf::node("box1"));
    let thief = deployment.node_ca.issue(&Leaf::node("box2"));
    let mut node = node_with(&victim, &deployment);
    let key = provider().key_provider.load_private_key(pem::key(thief.key_pem.as_bytes()).unwrap()).unwrap();
    let chain = pem::certs(victim.cert_pem.as_bytes()).unwrap();
    let stolen = Arc::new(rustls::sign::CertifiedKey::new(chain, key));
    node.client_auth_cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(stolen));
    let pair = join_eagerly(Arc::new(node), deployment.edge());
    assert_eq!(pair.edge_refusal(), Some(Refusal::BadCertificate), "{:?}", pair.edge_fault);
    assert_edge_saw_nothing("stolen", &pair);
}
