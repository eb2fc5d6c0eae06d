//! Who may register: only a Node of ours, by its own name. Everybody else is refused in the handshake, with a reason.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use iop_tests::{
    Edge, Site, http,
    site::{path, with_reconnect},
};
use proto::message::RegisterResponse;

use crate::support::{
    MODEL, NODE, SOON,
    certs::{self, Identity},
    eventually,
    fake_node::FakeNode,
    metric, node_status, provider_at, site, yaml,
};

fn edge_of(site: &Site) -> anyhow::Result<Edge> {
    site.edge(&yaml().with(provider_at("http://127.0.0.1:9/v1")))
}

/// The refusal is counted and logged by its reason, and nothing was registered.
fn is_refused(edge: &Edge, reason: &str) -> anyhow::Result<()> {
    let series = format!("iop_edge_node_handshake_refused_total{{reason=\"{reason}\"}}");
    eventually(SOON, &series, || Ok(metric(edge, &series)? == 1.0))
        .map_err(|error| error.context(edge.process.text()))?;
    let label = format!("reason=\"{reason}\"");
    let log = edge.process.text();
    let told = log.lines().find(|line| line.contains("node refused"));
    assert!(
        told.is_some_and(|line| line.contains(&label) || line.contains(&format!("reason={reason}"))),
        "{log}"
    );
    for line in ["node registered", "node connected", "node link up"] {
        assert!(!log.contains(line), "{log}");
    }
    assert_eq!(node_status(edge)?["connected"], false);
    assert_eq!(metric(edge, "iop_edge_node_links")?, 0.0);
    Ok(())
}

/// Dials with `identity` and registers as [`NODE`]; the Edge must not let it come to that.
fn dial_fails(edge: &Edge, identity: Option<&Identity>) -> anyhow::Result<()> {
    let registered =
        FakeNode::dial_as(&edge.node, certs::client(identity)?).and_then(|mut node| node.register(NODE));
    assert!(registered.is_err(), "it could register: {registered:?}");
    Ok(())
}

// req: IDN-2
#[test]
fn plaintext_on_the_node_port_is_refused_and_gets_no_answer() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let mut socket = TcpStream::connect(&edge.node)?;
    socket.set_read_timeout(Some(SOON * 5))?;
    socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: edge\r\n\r\n")?;
    let mut answer = Vec::new();
    let _closed_or_reset = socket.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "{answer:?}");
    is_refused(&edge, "plaintext")
}

// req: IDN-1, IDN-2
#[test]
fn a_node_without_a_certificate_is_refused() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    dial_fails(&edge, None)?;
    is_refused(&edge, "no_certificate")
}

// req: IDN-2
#[test]
fn a_node_of_another_deployments_ca_is_refused_however_right_its_name_is() -> anyhow::Result<()> {
    let (site, other) = (site()?, site()?);
    let edge = edge_of(&site)?;
    let bundle = other.join_bundle(NODE, &edge.node)?;
    dial_fails(&edge, Some(&Identity::of_bundle(&bundle)?))?;
    is_refused(&edge, "unknown_ca")
}

// req: IDN-1, IDN-2
#[test]
fn an_edges_certificate_is_no_nodes() -> anyhow::Result<()> {
    let site = site()?;
    let pki = site.dir().join("pki");
    // The Edge's own pair: signed by the CA for Edges, which is trusted for no Node.
    let edge = edge_of(&site)?;
    dial_fails(&edge, Some(&Identity::of_files(&pki.join("edge.crt"), &pki.join("edge.key"))?))?;
    is_refused(&edge, "unknown_ca")?;

    // An Edge's name under the CA for Nodes.
    let edge = edge_of(&site)?;
    let ca = Identity::of_files(&pki.join("node-ca.crt"), &pki.join("node-ca.key"))?;
    dial_fails(&edge, Some(&Identity::issue("spiffe://iop.local/iop/edge/box1", &ca)?))?;
    is_refused(&edge, "wrong_role")
}

// req: IDN-2, IDN-3
#[test]
fn a_name_that_is_not_configured_or_is_none_is_refused() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let bundle = site.join_bundle("stranger", &edge.node)?;
    dial_fails(&edge, Some(&Identity::of_bundle(&bundle)?))?;
    is_refused(&edge, "wrong_name")?;

    let pki = site.dir().join("pki");
    let ca = Identity::of_files(&pki.join("node-ca.crt"), &pki.join("node-ca.key"))?;
    let edge = edge_of(&site)?;
    dial_fails(&edge, Some(&Identity::issue("https://example.org/box1", &ca)?))?;
    is_refused(&edge, "bad_san")
}

// req: IDN-1, IDN-2
#[test]
fn a_node_refuses_an_edge_of_another_name_or_another_ca() -> anyhow::Result<()> {
    let (site, other) = (site()?, site()?);
    let edge = edge_of(&site)?;
    let bundle = site.join_bundle(NODE, &edge.node)?;
    let text = std::fs::read_to_string(&bundle)?;
    let policy = "reconnect: { interval_sec: 0, max_attempts: 1 }";
    let wrong_name = text.replace("name: \"edge-1\"", "name: \"other-edge\"");
    assert_ne!(wrong_name, text);
    // The identity of this site's Node, and the CA of the other site's Edges.
    let foreign = std::fs::read_to_string(other.join_bundle(NODE, &edge.node)?)?;
    let ca = |text: &str| text.split("edge_ca_pem: |").nth(1).unwrap_or_default().to_owned();
    let wrong_ca = text.replace(&ca(&text), &ca(&foreign));
    for (label, bundle, reason) in [("name", wrong_name, "wrong"), ("ca", wrong_ca, "ca")] {
        let file = site.dir().join(format!("{label}.yaml"));
        std::fs::write(&file, with_reconnect(&bundle, policy))?;
        let mut node = site.start(label, "iop-node", &["run", "--join", path(&file)?])?;
        assert_eq!(node.wait_exit(SOON * 5)?, 1, "{}", node.text());
        let log = node.text();
        let failed = log.lines().find(|line| line.contains("dial failed")).unwrap_or_default();
        assert!(failed.contains("tls") && failed.contains(reason), "{log}");
        assert!(!edge.process.text().contains("node registered"));
    }
    assert_eq!(node_status(&edge)?["connected"], false);
    Ok(())
}

// req: IDN-3
#[test]
fn a_certificate_of_one_node_claims_no_other() -> anyhow::Result<()> {
    let site = site()?;
    let box2 = iop_tests::ProviderYaml::new("p2", "box2", "http://127.0.0.1:9/v1", "m2");
    let edge = site.edge(&yaml().with(provider_at("http://127.0.0.1:9/v1")).with(box2))?;
    let mut honest = FakeNode::ready(&site, &edge, NODE)?;
    let mut liar = FakeNode::dial(&site, &edge, "box2")?;
    let answer = liar.register(NODE)?;
    assert!(matches!(answer, RegisterResponse::Rejected { .. }), "{answer:?}");
    liar.wait_closed()?;
    assert_eq!(metric(&edge, "iop_edge_registrations_total{outcome=\"identity_mismatch\"}")?, 1.0);
    // Whom it wanted to replace does not notice.
    assert_eq!(node_status(&edge)?["connected"], true);
    assert!(honest.ask_ready(NODE)?.ready);
    Ok(())
}

// req: IDN-5
#[test]
fn certificates_of_an_external_pki_work_as_well() -> anyhow::Result<()> {
    let site = site()?;
    let provider = site.provider(&[])?;
    let ca = Identity::authority("somebody else's node CA")?;
    let own = Identity::issue(&format!("spiffe://example.org/iop/node/{NODE}"), &ca)?;
    for (name, text) in [("external-ca.crt", &ca.cert), ("box1.crt", &own.cert), ("box1.key", &own.key)] {
        std::fs::write(site.dir().join(name), text)?;
    }
    let config = site.configure(&yaml().with(provider_at(&provider.base_url())))?;
    let text = std::fs::read_to_string(&config)?;
    std::fs::write(&config, text.replace("pki/node-ca.crt", "external-ca.crt"))?;
    let edge = site.edge_on(&config)?;
    let file = site.dir().join("node.yaml");
    std::fs::write(
        &file,
        format!(
            "node: {{ name: {NODE} }}\nedge: {{ address: \"{}\", name: edge-1 }}\n\
             identity: {{ cert_file: box1.crt, key_file: box1.key, edge_ca_file: pki/edge-ca.crt }}\n",
            edge.node
        ),
    )?;
    let mut node = site.start("external", "iop-node", &["run", "--config", path(&file)?])?;
    node.wait_for("node ready")?;
    let answer = http::chat(&edge.http, site.token(), &http::chat_body(MODEL, true, ""))?;
    assert!(answer.is_done());
    Ok(())
}

#[test]
fn mute_connections_to_the_node_port_keep_no_node_out() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    // More than all shards together let shake hands at a time.
    let mute: Vec<_> = (0..600).map(|_| TcpStream::connect(&edge.node)).collect::<Result<_, _>>()?;
    let _node = site.node_unready(NODE, &edge.node)?;
    eventually(SOON * 2, "the node is ready beside them", || Ok(node_status(&edge)?["connected"] == true))?;
    assert_eq!(mute.len(), 600);
    Ok(())
}

#[test]
fn a_node_that_is_not_configured_is_told_so() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let mut node = site.node_unready("stranger", &edge.node)?;
    node.wait_for("not_configured")?;
    Ok(())
}
