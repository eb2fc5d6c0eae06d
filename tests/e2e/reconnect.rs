//! The Node's supervisor: it needs no Edge to start, comes back to one that was away, and knows when to give up.

use std::time::Duration;

use iop_tests::{EdgeYaml, http, site::path};

use crate::support::{
    Bench, MODEL, NODE, RECONNECT, RETRY, SOON, eventually, node_status, provider_at, site, yaml,
};

/// A port that is free now and likely to stay so for the length of a test.
fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

// req: SUP-1
#[test]
fn a_node_that_starts_before_its_edge_connects_when_the_edge_is_there() -> anyhow::Result<()> {
    let site = site()?;
    let provider = site.provider(&[])?;
    let address = format!("127.0.0.1:{}", free_port()?);
    let mut node = site.node_with(NODE, &address, RETRY)?;
    node.wait_for("dial failed")?;
    let edge = site.edge(&EdgeYaml { node: address, ..yaml() }.with(provider_at(&provider.base_url())))?;
    node.wait_for("node ready")?;
    let answer = http::chat(&edge.http, site.token(), &http::chat_body(MODEL, true, ""))?;
    assert!(answer.is_done());
    Ok(())
}

// req: SUP-2, SUP-6, FEN-3
#[test]
fn the_same_process_comes_back_to_an_edge_that_was_killed() -> anyhow::Result<()> {
    let site = site()?;
    let provider = site.provider(&[])?;
    let address = format!("127.0.0.1:{}", free_port()?);
    let config = EdgeYaml { node: address.clone(), ..yaml() }.with(provider_at(&provider.base_url()));
    let mut edge = site.edge(&config)?;
    let mut node = site.node_with(NODE, &address, RETRY)?;
    node.wait_for("node ready")?;
    let pid = node.pid();
    let running = http::Raw::connect(&edge.http).and_then(|mut client| {
        client.send(http::chat_request(site.token(), &http::chat_body(MODEL, true, "prefill=60s")))?;
        Ok(client)
    })?;
    eventually(SOON, "the provider works", || Ok(crate::support::stats(&provider)?["requests_open"] == 1))?;

    edge.process.kill();
    drop(running);
    eventually(SOON, "its run is dropped", || Ok(crate::support::stats(&provider)?["requests_open"] == 0))?;
    let edge = site.edge(&config)?;
    // Whoever comes in the meantime waits and is served.
    let answer = http::chat(&edge.http, site.token(), &http::chat_body(MODEL, true, ""))?;
    assert!(answer.is_done(), "{}", answer.text());
    assert_eq!(node.text().matches("node ready").count(), 2);
    assert_eq!(node.pid(), pid);
    Ok(())
}

// req: SUP-6
#[test]
fn a_node_that_was_killed_and_started_again_is_served_at_once() -> anyhow::Result<()> {
    let mut bench = Bench::start()?;
    for _ in 0..3 {
        bench.node.kill();
        bench.node = bench.site.node(NODE, &bench.edge)?;
        assert_eq!(bench.chat(true, "")?.status, 200);
    }
    assert_eq!(bench.metric("iop_edge_node_links")?, 1.0);
    bench.settles()
}

// req: SUP-3, SUP-4, SUP-5
#[test]
fn so_many_dials_as_allowed_and_then_exit_code_1() -> anyhow::Result<()> {
    let site = site()?;
    let address = format!("127.0.0.1:{}", free_port()?);
    let mut node = site.node_with(NODE, &address, "reconnect: { interval_sec: 0, max_attempts: 3 }")?;
    assert_eq!(node.wait_exit(Duration::from_secs(10))?, 1);
    assert_eq!(node.text().matches("dial failed").count(), 3, "{}", node.text());
    Ok(())
}

// req: SUP-2, SUP-4, SUP-5
#[test]
fn a_refusal_by_the_edge_is_retried_and_the_nodes_own_files_are_not() -> anyhow::Result<()> {
    let site = site()?;
    let edge = site.edge(&yaml().with(provider_at("http://127.0.0.1:9/v1")))?;
    // No such node in the Edge's configuration: it may be added there, so this is retried.
    let mut unknown =
        site.node_with("box9", &edge.node, "reconnect: { interval_sec: 0, max_attempts: 4 }")?;
    assert_eq!(unknown.wait_exit(Duration::from_secs(20))?, 1);
    assert_eq!(unknown.text().matches("dial failed").count(), 4, "{}", unknown.text());

    // A key that is not the certificate's.
    let (good, other) = (site.join_bundle(NODE, &edge.node)?, site.join_bundle("box2", &edge.node)?);
    let key = |text: &str| -> String {
        text.lines()
            .skip_while(|l| !l.contains("key_pem"))
            .skip(1)
            .take_while(|l| !l.contains("edge_ca_pem"))
            .map(|l| format!("{l}\n"))
            .collect()
    };
    let (good, other) = (std::fs::read_to_string(good)?, std::fs::read_to_string(other)?);
    let mixed = site.dir().join("mixed.yaml");
    std::fs::write(&mixed, good.replace(&key(&good), &key(&other)))?;
    let mut broken = site.start("broken", "iop-node", &["run", "--join", path(&mixed)?])?;
    assert_eq!(broken.wait_exit(Duration::from_secs(5))?, 1);
    assert!(!broken.text().contains("dial"), "it never dialled: {}", broken.text());
    Ok(())
}

// req: SUP-4
#[test]
fn a_local_shutdown_exits_0_connected_or_not() -> anyhow::Result<()> {
    let site = site()?;
    let address = format!("127.0.0.1:{}", free_port()?);
    let mut node = site.node_with(NODE, &address, "reconnect: { interval_sec: 60, max_attempts: 0 }")?;
    node.wait_for("dial failed")?;
    node.signal(libc::SIGTERM);
    assert_eq!(node.wait_exit(Duration::from_secs(5))?, 0);

    let edge = site.edge(&yaml().with(provider_at("http://127.0.0.1:9/v1")))?;
    let mut node = site.node(NODE, &edge)?;
    node.signal(libc::SIGINT);
    assert_eq!(node.wait_exit(Duration::from_secs(5))?, 0);
    eventually(RECONNECT, "the edge knows", || Ok(node_status(&edge)?["connected"] == false))
}
