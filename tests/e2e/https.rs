//! A provider that is called by https, over real processes and real certificates.

use iop_tests::{ProviderYaml, http};

use crate::support::{
    Bench, MODEL, NODE, SOON, assert_error,
    certs::Identity,
    eventually, provider_at, site, start_node,
    tls_front::{TlsFront, trust_file},
    yaml,
};

/// Edge, Node and a provider behind TLS, called at `https://localhost:PORT/v1`. The Node trusts `trusted` alone.
fn bench(ca: &Identity, names: &[&str], trusted: &Identity) -> anyhow::Result<Bench> {
    let mut site = site()?;
    let file = site.dir().join("provider-ca.pem");
    trust_file(trusted, &file)?;
    site.set_env("SSL_CERT_FILE", file.to_str().unwrap_or_default());
    let provider = site.provider(&[])?;
    let backend = provider.url.trim_start_matches("http://");
    let front = TlsFront::start(backend, ca, names)?;
    let url = format!("https://localhost:{}/v1", front.port);
    let edge = site.edge(&yaml().with(ProviderYaml { capacity: 1, ..provider_at(&url) }))?;
    let (node, node_ops) = start_node(&site, NODE, &edge.node)?;
    Ok(Bench { node, node_ops, edge, provider, site, panics: false })
}

#[test]
fn streams_pass_whole_through_a_provider_that_is_called_by_https_and_a_cancel_reaches_it()
-> anyhow::Result<()> {
    let ca = Identity::authority("provider-ca")?;
    let bench = bench(&ca, &["localhost"], &ca)?;
    for round in 0..20 {
        let answer = bench.chat(true, "events=50")?;
        assert_eq!(answer.status, 200, "round {round}: {}", answer.text());
        answer.assert_sealed();
    }
    assert_eq!(bench.chat(false, "")?.status, 200);
    assert_eq!(bench.node_metric("iop_node_provider_connections")?, 1.0, "one connection serves them all");
    let mut client = bench.begin(true, "events=100000 gap=5ms")?;
    client.wait_for("data:")?;
    drop(client);
    bench.settles()?;
    eventually(SOON, "the provider has returned", || {
        Ok(bench.node_metric("iop_node_aborts_total{return=\"confirmed\"}")? == 1.0)
    })?;
    bench.chat(true, "events=5")?.assert_sealed();
    Ok(())
}

#[test]
fn a_certificate_that_proves_nothing_is_a_502_whose_reason_the_nodes_log_tells() -> anyhow::Result<()> {
    let ours = Identity::authority("provider-ca")?;
    let theirs = Identity::authority("other-ca")?;
    for (ca, name, label, words) in [
        (&theirs, "localhost", "tls_unknown_issuer", "is not signed by a CA that this machine trusts"),
        (&ours, "elsewhere.test", "tls_wrong_name", "is not for this host but for elsewhere.test"),
    ] {
        let mut bench = bench(ca, &[name], &ours)?;
        let answer = http::chat(&bench.edge.http, bench.site.token(), &http::chat_body(MODEL, true, ""))?;
        assert_error(&answer, 502, Some("upstream_error"));
        bench.node.wait_for(words)?;
        assert!(
            bench.node_metric(&format!("iop_node_provider_connects_failed_total{{reason=\"{label}\"}}"))?
                > 0.0
        );
        assert_eq!(bench.seen("requests_started")?, 0, "no request reaches it");
        assert_eq!(bench.outcomes("upstream_connect")?, 1.0);
        bench.settles()?;
    }
    Ok(())
}
