//! A client that brings its own credential for the provider.

use iop_tests::http::{self, Raw};

use crate::support::{
    Bench, MODEL, NODE, assert_error, fake_node::FakeNode, metric, provider_at, site, yaml,
};

// req: CFG-3
#[test]
fn the_provider_gets_the_clients_own_credential_and_nobody_else_sees_it() -> anyhow::Result<()> {
    const SECRET: &str = "sk-canary-5d1f0c";
    let site = site()?;
    let file = site.configure(&yaml().with(provider_at("http://127.0.0.1:9/v1")))?;
    let text = std::fs::read_to_string(&file)?
        .replace("  provider_id: test\n", "  provider_id: test\n  provider_auth: { enabled: true }\n");
    std::fs::write(&file, text)?;
    let mut site = site;
    site.set_env("RUST_LOG", "trace");
    let edge = site.edge_on(&file)?;
    let mut node = FakeNode::ready(&site, &edge, NODE)?;
    let ask = |lines: &str| -> anyhow::Result<Raw> {
        let request = http::chat_request(site.token(), &http::chat_body(MODEL, false, ""));
        let request = String::from_utf8(request)?.replacen("\r\n", &format!("\r\n{lines}"), 1);
        let mut client = Raw::connect(&edge.http)?;
        client.send(request)?;
        Ok(client)
    };
    let mut client = ask(&format!("X-IOP-Provider-Authorization: Bearer {SECRET}\r\n"))?;
    let request = node.request()?;
    let auth = request.provider_auth.clone().expect("a credential for the provider");
    assert_eq!(
        (auth.name.as_str(), auth.value.as_ref()),
        ("authorization", format!("Bearer {SECRET}").as_bytes())
    );
    assert!(
        request
            .headers
            .iter()
            .all(|header| !header.value.windows(SECRET.len()).any(|w| w == SECRET.as_bytes()))
    );
    node.answer(request.stream, "{}")?;
    assert_eq!(client.answer()?.status, 200);
    for lines in [String::new(), format!("x-iop-provider-authorization: {SECRET}\r\n").repeat(2)] {
        let answer = ask(&lines)?.answer()?;
        assert_error(&answer, 401, Some("provider_authorization"));
        assert!(answer.text().contains("x-iop-provider-authorization") && !answer.text().contains(SECRET));
    }
    assert_eq!(metric(&edge, "iop_edge_control_events_total{event=\"admitted\"}")?, 1.0);
    assert!(!edge.process.text().contains(SECRET), "the credential is in the log");
    Ok(())
}

// req: TUN-7
#[test]
fn credentials_of_different_clients_never_share_a_connection() -> anyhow::Result<()> {
    let auth = |yaml: iop_tests::EdgeYaml| iop_tests::EdgeYaml {
        openai: "  provider_auth: { enabled: true }\n".to_owned(),
        ..yaml
    };
    let bench = Bench::with(&[], |provider| provider, auth)?;
    let ask = |secret: &str| -> anyhow::Result<()> {
        let request = String::from_utf8(bench.request(false, "events=1"))?;
        let line = format!("\r\nX-IOP-Provider-Authorization: Bearer {secret}\r\n");
        let mut client = bench.client()?;
        client.send(request.replacen("\r\n", &line, 1))?;
        assert_eq!(client.answer()?.status, 200);
        Ok(())
    };
    let before = bench.seen("connections_serving")?;
    for secret in ["sk-one", "sk-one", "sk-two", "sk-one", "sk-two"] {
        ask(secret)?;
    }
    assert_eq!(bench.seen("connections_serving")? - before, 2, "one for each credential");
    Ok(())
}
