//! A Node's life as the Edge sees it: start, pending, ready, gone, back again.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::{Duration, Instant},
};

use iop_tests::{
    Edge, Process, ProviderYaml, Site,
    http::{self, Raw},
};
use proto::message::{ErrorKind, ExecutionError, Message, TunnelFrameKind};

use crate::support::{
    Bench, MODEL, NODE, RECONNECT, RETRY, SOON, assert_broken_stream, assert_error, eventually,
    fake_node::{FakeNode, ask, edge_of},
    metric, node_status, provider_at, site, yaml,
};

// req: REG-2, REG-4, REG-9, WIR-1, SNP-2
#[test]
fn a_request_that_comes_before_the_node_waits_and_is_served_when_it_is_ready() -> anyhow::Result<()> {
    let site = site()?;
    let provider = site.provider(&[])?;
    let edge = site.edge(&yaml().with(provider_at(&provider.base_url())))?;
    let mut client = Raw::connect(&edge.http)?;
    client.send(http::chat_request(site.token(), &http::chat_body(MODEL, true, "")))?;
    eventually(SOON, "it waits", || Ok(metric(&edge, "iop_edge_queued")? == 1.0))?;
    let shown = node_status(&edge)?;
    assert_eq!((&shown["id"], &shown["connected"]), (&NODE.into(), &false.into()));
    let line = &shown["providers"][0];
    assert_eq!(
        (&line["id"], &line["status"], &line["health"]),
        (&"p1".into(), &"unavailable".into(), &"offline".into())
    );
    for number in
        ["capacity", "in_flight", "queued", "long_context_capacity", "long_in_flight", "long_queued"]
    {
        assert_eq!(line[number], 0, "{number}");
    }

    // All that the Node has is a join file: identity, CA and address. The provider's URL is not in it.
    let bundle = std::fs::read_to_string(site.join_bundle(NODE, &edge.node)?)?;
    assert!(!bundle.contains(&provider.url));
    let _node = site.node(NODE, &edge)?;
    let answer = client.answer()?;
    assert!(answer.is_done() && answer.whole, "{}", answer.text());
    let shown = node_status(&edge)?;
    assert_eq!((&shown["connected"], &shown["providers"][0]["status"]), (&true.into(), &"available".into()));
    assert_eq!(shown["providers"][0]["capacity"], 4);
    let status = http::get(&edge.ops, "/status", None)?.text();
    assert!(!status.contains("127.0.0.1") && !status.contains(site.token()), "no address or token: {status}");
    assert_eq!(http::get(&edge.ops, "/readyz", None)?.status, 200);
    Ok(())
}

// req: FEN-2, FEN-6, SNP-2
#[test]
fn a_node_that_dies_in_a_stream_ends_it_at_once_with_an_error_event() -> anyhow::Result<()> {
    let mut bench = Bench::one_slot()?;
    let mut streaming = bench.begin(true, "events=100000 gap=5ms")?;
    streaming.wait_for("data:")?;
    let mut waiting = bench.begin(false, "")?;
    eventually(SOON, "one waits", || Ok(bench.metric("iop_edge_queued")? == 1.0))?;

    bench.node.kill();
    let killed = Instant::now();
    let head = streaming.read_head()?;
    let answer = streaming.body_of(head)?;
    assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
    assert_broken_stream(&answer, "upstream_error");
    eventually(SOON, "it is offline", || {
        let node = node_status(&bench.edge)?;
        let line = &node["providers"][0];
        Ok(node["connected"] == false
            && line["status"] == "unavailable"
            && line["health"] == "offline"
            && line["in_flight"] == 0)
    })?;
    assert_eq!(bench.metric("iop_edge_leases")?, 0.0, "the lease went with its generation");
    assert_eq!(bench.outcomes("node_lost")?, 1.0);
    // The one who waited still waits, and is served by the Node that comes back (FEN-3).
    assert_eq!(bench.metric("iop_edge_queued")?, 1.0);
    bench.node = bench.site.node(NODE, &bench.edge)?;
    assert_eq!(waiting.answer()?.status, 200);
    bench.settles()
}

// req: FEN-6
#[test]
fn a_node_that_dies_before_the_response_has_begun_is_a_502() -> anyhow::Result<()> {
    let mut bench = Bench::start()?;
    let mut clients = [bench.begin(true, "prefill=60s late-head")?, bench.begin(false, "prefill=60s")?];
    eventually(SOON, "both run", || Ok(bench.seen("requests_open")? == 2))?;
    bench.node.kill();
    for client in &mut clients {
        assert_error(&client.answer()?, 502, Some("upstream_error"));
    }
    eventually(SOON, "the provider is left alone", || Ok(bench.seen("requests_open")? == 0))
}

// req: REG-8, FEN-1
#[test]
fn a_second_process_of_the_same_identity_takes_over_from_the_first() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let mut streaming = bench.begin(true, "events=100000 gap=5ms")?;
    streaming.wait_for("data:")?;
    let mut second =
        bench.site.node_with(NODE, &bench.edge.node, "reconnect: { interval_sec: 60, max_attempts: 0 }")?;
    second.wait_for("node ready")?;
    let head = streaming.read_head()?;
    assert_broken_stream(&streaming.body_of(head)?, "upstream_error");
    // The older one is told why and, after its interval, takes over in its turn: it is a Node like any other.
    eventually(RECONNECT, "the first is superseded", || {
        Ok(bench.node.text().contains("connection to the edge lost"))
    })?;
    assert!(bench.metric("iop_edge_node_link_closed_total{reason=\"superseded\"}")? >= 1.0);
    eventually(RECONNECT, "the first is back", || Ok(bench.node.text().matches("node ready").count() >= 2))?;
    eventually(SOON, "exactly one is connected", || {
        Ok(bench.metric("iop_edge_node_links")? == 1.0 && node_status(&bench.edge)?["connected"] == true)
    })?;
    assert_eq!(bench.chat(true, "")?.status, 200);
    bench.settles()
}

// req: CAN-1, SUP-4
#[test]
fn a_node_that_is_told_to_stop_finishes_what_runs_and_exits_0() -> anyhow::Result<()> {
    let mut bench = Bench::start()?;
    let mut streaming = bench.begin(true, "events=100 gap=10ms")?;
    streaming.wait_for("data:")?;
    bench.node.signal(libc::SIGTERM);
    let head = streaming.read_head()?;
    let answer = streaming.body_of(head)?;
    assert!(answer.is_done() && answer.whole, "{}", answer.text());
    assert_eq!(bench.node.wait_exit(Duration::from_secs(5))?, 0);
    eventually(SOON, "the edge knows", || Ok(node_status(&bench.edge)?["connected"] == false))
}

/// A Node that dials again and again, once it is ready.
fn ready(site: &Site, name: &str, edge: &Edge) -> anyhow::Result<Process> {
    let mut node = site.node_with(name, &edge.node, RETRY)?;
    node.wait_for("node ready")?;
    Ok(node)
}

// req: POL-2, WIR-1
#[test]
fn two_nodes_share_the_work_and_the_one_that_is_left_does_it_all() -> anyhow::Result<()> {
    let site = site()?;
    let providers = [site.provider(&[])?, site.provider(&[])?];
    let mut config = yaml();
    for (index, provider) in providers.iter().enumerate() {
        let (id, node) = (format!("p{index}"), format!("box{index}"));
        config = config.with(ProviderYaml::new(&id, &node, &provider.base_url(), MODEL));
    }
    let edge = site.edge(&config)?;
    let mut nodes = [ready(&site, "box0", &edge)?, ready(&site, "box1", &edge)?];
    let chat = |script: &str| -> anyhow::Result<Raw> {
        let mut client = Raw::connect(&edge.http)?;
        client.send(http::chat_request(site.token(), &http::chat_body(MODEL, true, script)))?;
        Ok(client)
    };
    let mut running = (0..4).map(|_| chat("events=50 gap=5ms")).collect::<anyhow::Result<Vec<_>>>()?;
    let mut by: Vec<_> = Vec::new();
    for client in &mut running {
        let answer = client.answer()?;
        assert!(answer.is_done());
        by.push(answer.header("x-iop-provider").unwrap_or_default().to_owned());
    }
    by.sort();
    assert_eq!(by, ["p0", "p0", "p1", "p1"], "the least busy one is chosen");

    nodes[0].kill();
    eventually(SOON, "box0 is gone", || Ok(node_status(&edge)?["connected"] == false))?;
    for _ in 0..6 {
        assert_eq!(chat("")?.answer()?.header("x-iop-provider"), Some("p1"));
    }
    Ok(())
}

// req: POL-2, SUP-4, SNP-2
#[test]
fn a_node_that_is_told_to_stop_leaves_new_requests_to_the_other_one() -> anyhow::Result<()> {
    for capacity in [1, 4] {
        let site = site()?;
        let provider = site.provider(&[])?;
        let on = |id: &str, node: &str| ProviderYaml {
            capacity,
            ..ProviderYaml::new(id, node, &provider.base_url(), MODEL)
        };
        let mut edge = site.edge(&yaml().with(on("p0", "box0")).with(on("p1", "box1")))?;
        let mut nodes = [ready(&site, "box0", &edge)?, ready(&site, "box1", &edge)?];
        let chat = |script: &str| -> anyhow::Result<Raw> {
            let mut client = Raw::connect(&edge.http)?;
            client.send(http::chat_request(site.token(), &http::chat_body(MODEL, true, script)))?;
            Ok(client)
        };
        let mut streaming = chat("events=250 gap=20ms")?;
        streaming.wait_for("x-iop-provider: p0")?;
        streaming.wait_for("data:")?;
        nodes[0].signal(libc::SIGTERM);
        edge.process.wait_for("node draining")?;

        let done_by_other = |client: &mut Raw| -> anyhow::Result<()> {
            let answer = client.answer()?;
            assert!(answer.is_done() && answer.whole, "{}{}", answer.head, answer.text());
            let told = (answer.header("x-iop-provider"), answer.header("x-iop-attempts"));
            assert_eq!(told, (Some("p1"), Some("1")));
            Ok(())
        };
        for _ in 0..20 {
            done_by_other(&mut chat("events=2 gap=1ms")?)?;
        }
        // More than there are slots: some of them wait.
        let mut clients = (0..6).map(|_| chat("events=5 gap=5ms")).collect::<anyhow::Result<Vec<_>>>()?;
        clients.iter_mut().try_for_each(done_by_other)?;

        let shown = node_status(&edge)?;
        let line = &shown["providers"][0];
        assert_eq!(
            (&shown["connected"], &line["status"], &line["health"], &line["in_flight"]),
            (&false.into(), &"unavailable".into(), &"offline".into(), &0.into())
        );
        eventually(SOON, "its slot is held all the same", || Ok(metric(&edge, "iop_edge_leases")? == 1.0))?;
        assert!(nodes[0].is_running()?, "it was draining all the time");

        let head = streaming.read_head()?;
        let answer = streaming.body_of(head)?;
        assert!(answer.is_done() && answer.whole, "{}", answer.text());
        assert_eq!(nodes[0].wait_exit(SOON)?, 0);
        assert_eq!(metric(&edge, "iop_edge_control_events_total{event=\"busy\"}")?, 0.0);
    }
    Ok(())
}

// req: FEN-3, SUP-4
#[test]
fn a_request_waits_while_its_only_node_drains_and_is_served_by_the_next_process() -> anyhow::Result<()> {
    let mut bench = Bench::start()?;
    let mut streaming = bench.begin(true, "events=100 gap=10ms")?;
    streaming.wait_for("data:")?;
    bench.node.signal(libc::SIGTERM);
    bench.edge.process.wait_for("node draining")?;
    let mut waiting = bench.begin(true, "")?;
    eventually(SOON, "it waits", || Ok(bench.metric("iop_edge_queued")? == 1.0))?;

    let head = streaming.read_head()?;
    let answer = streaming.body_of(head)?;
    assert!(answer.is_done() && answer.whole, "{}", answer.text());
    assert_eq!(bench.node.wait_exit(SOON)?, 0);
    assert_eq!(bench.metric("iop_edge_queued")?, 1.0, "it still waits");

    bench.node = bench.site.node(NODE, &bench.edge)?;
    let answer = waiting.answer()?;
    assert!(answer.is_done() && answer.whole, "{}{}", answer.head, answer.text());
    assert_eq!(answer.header("x-iop-attempts"), Some("1"));
    bench.settles()
}

// req: GAT-2
#[test]
fn what_crosses_the_word_of_a_draining_node_is_placed_anew_however_often_it_was_busy() -> anyhow::Result<()> {
    let site = site()?;
    let edge = edge_of(&site)?;
    let mut old = FakeNode::ready(&site, &edge, NODE)?;
    let mut client = ask(&site, &edge, false)?;
    let busy = || TunnelFrameKind::Error(ExecutionError::new(ErrorKind::Busy, "full"));
    let first = old.request()?.stream;
    old.frame(first, 0, busy())?;
    let second = old.request()?.stream;
    old.send(&Message::NodeDraining)?;
    // Said again it means nothing new.
    old.send(&Message::NodeDraining)?;
    old.frame(second, 0, busy())?;
    eventually(SOON, "it waits", || Ok(metric(&edge, "iop_edge_queued")? == 1.0))?;
    assert!(old.poll(Duration::from_millis(300))?.is_none(), "nothing more is asked of it");
    assert_eq!(edge.process.text().matches("node draining").count(), 1);

    let mut new = FakeNode::ready(&site, &edge, NODE)?;
    let third = new.request()?.stream;
    new.answer(third, "{}")?;
    let answer = client.answer()?;
    assert_eq!((answer.status, answer.header("x-iop-attempts")), (200, Some("3")));
    Ok(())
}

#[test]
fn nodes_are_restarted_one_after_the_other_under_load_without_a_failed_request() -> anyhow::Result<()> {
    let site = site()?;
    let provider = site.provider(&[])?;
    let on = |id: &str, node: &str| ProviderYaml::new(id, node, &provider.base_url(), MODEL);
    let edge = site.edge(&yaml().with(on("p0", "box0")).with(on("p1", "box1")))?;
    let mut nodes = [ready(&site, "box0", &edge)?, ready(&site, "box1", &edge)?];
    let over = AtomicBool::new(false);
    let (address, token) = (edge.http.as_str(), site.token());
    let answers = std::thread::scope(|scope| -> anyhow::Result<_> {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| -> anyhow::Result<Vec<(u16, bool)>> {
                    let mut answers = Vec::new();
                    while !over.load(SeqCst) {
                        let answer =
                            http::chat(address, token, &http::chat_body(MODEL, true, "events=5 gap=2ms"))?;
                        answers.push((answer.status, answer.is_done() && answer.whole));
                    }
                    Ok(answers)
                })
            })
            .collect();
        let mut restarts = || -> anyhow::Result<()> {
            for round in 0..4 {
                let (name, node) =
                    if round % 2 == 0 { ("box0", &mut nodes[0]) } else { ("box1", &mut nodes[1]) };
                node.signal(libc::SIGTERM);
                assert_eq!(node.wait_exit(RECONNECT)?, 0);
                *node = ready(&site, name, &edge)?;
            }
            Ok(())
        };
        let restarted = restarts();
        over.store(true, SeqCst);
        let mut answers = Vec::new();
        for client in clients {
            answers.extend(client.join().expect("a client thread ends by itself")?);
        }
        restarted.map(|()| answers)
    })?;
    assert!(answers.len() > 40, "{}", answers.len());
    assert!(answers.iter().all(|answer| *answer == (200, true)), "{answers:?}");
    Ok(())
}
