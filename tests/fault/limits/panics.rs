//! Defects: a panic anywhere ends what it was in and nothing else, is counted and logged, and the process serves on; where
//! state can no longer be trusted, the process ends.

use std::os::unix::process::ExitStatusExt;

use anyhow::Context;
use iop_tests::{
    ProviderYaml,
    bench::{RECONNECT, SOON, assert_broken_stream, assert_error, eventually, node_status},
    http::{self, Raw},
};

use super::place::Place;

/// One slot, and a stream of another provider's that must not notice anything.
struct Scene {
    place: Place,
    bystander: Raw,
}

impl Scene {
    fn start() -> anyhow::Result<Self> {
        let second = |provider: &ProviderYaml| ProviderYaml {
            id: "p2".to_owned(),
            models: vec!["m2".to_owned()],
            capacity: 4,
            ..provider.clone()
        };
        let mut place = Place::with(
            |provider| ProviderYaml { capacity: 1, ..provider },
            |edge| {
                let second = second(&edge.providers[0]);
                edge.with(second)
            },
        )?;
        place.bench.panics = true;
        let mut bystander = other(&place, "events=150 gap=20ms")?;
        bystander.wait_for("data:")?;
        Ok(Self { place, bystander })
    }

    /// The bystander's stream came to its end, every slot is free, and the next request is served.
    fn goes_on(mut self) -> anyhow::Result<()> {
        let head = self.bystander.read_head()?;
        let answer = self.bystander.body_of(head)?;
        assert!(answer.is_done() && answer.whole, "others are not touched: {}", answer.text());
        self.serves()
    }

    fn serves(&mut self) -> anyhow::Result<()> {
        let bench = &mut self.place.bench;
        assert!(bench.edge.process.is_running()? && bench.node.is_running()?);
        bench.settles()?;
        for stream in [true, false] {
            let answer = bench.chat(stream, "")?;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        bench.settles()
    }
}

/// A stream of the other model.
fn other(place: &Place, script: &str) -> anyhow::Result<Raw> {
    let mut client = place.bench.client()?;
    let body = http::chat_body("m2", true, script);
    client.send(http::chat_request(place.bench.site.token(), &body))?;
    Ok(client)
}

/// One line with the point in it, and the count.
fn is_told(place: &Place, point: &str) -> anyhow::Result<()> {
    eventually(SOON, "it is counted", || Ok(place.edge_panics()? == 1.0))?;
    let text = place.bench.edge.process.text();
    let line = text.lines().find(|line| line.contains("panicked")).context("the log tells")?;
    assert!(line.contains("ERROR") && line.contains(point) && line.contains(".rs:"), "{line}");
    Ok(())
}

#[test]
fn a_panic_before_the_answer_is_a_500_and_frees_the_slot() -> anyhow::Result<()> {
    // Before a route is found; and when a slot has just been given.
    for (point, route) in [("edge.request", "none"), ("edge.dispatch", "chat_completions")] {
        let scene = Scene::start()?;
        let bench = &scene.place.bench;
        scene.place.in_edge.arm(point)?;
        let mut client = bench.begin(true, "")?;
        let answer = client.answer()?;
        assert_error(&answer, 500, None);
        assert_eq!(client.fill()?, 0, "{point}: its connection is closed");
        is_told(&scene.place, point)?;
        let internal = format!("iop_edge_requests_total{{outcome=\"internal\",route=\"{route}\"}}");
        assert_eq!(bench.metric(&internal)?, 1.0, "{point}");
        scene.goes_on()?;
    }
    Ok(())
}

#[test]
fn a_panic_in_the_middle_of_a_stream_is_an_error_event_and_a_broken_end() -> anyhow::Result<()> {
    let mut scene = Scene::start()?;
    // The bystander's stream passes the same point: it is done first.
    let head = scene.bystander.read_head()?;
    assert!(scene.bystander.body_of(head)?.is_done());
    let (place, bench) = (&scene.place, &scene.place.bench);
    let mut client = bench.begin(true, "events=100000 gap=10ms")?;
    client.wait_for("data:")?;
    place.in_edge.arm("edge.relay")?;
    let head = client.read_head()?;
    let answer = client.body_of(head)?;
    assert_eq!(answer.status, 200);
    assert!(!answer.whole && !answer.is_done(), "{}", answer.text());
    let error = answer.error_events().pop().context("an error event")?;
    assert_eq!((&error["type"], &error["code"]), (&"server_error".into(), &serde_json::Value::Null));
    is_told(place, "edge.relay")?;
    assert_eq!(bench.outcomes("internal")?, 1.0);
    eventually(SOON, "the provider is left alone", || Ok(bench.seen("requests_open")? == 0))?;
    scene.serves()
}

#[test]
fn a_panic_of_a_connection_between_requests_breaks_that_connection_only() -> anyhow::Result<()> {
    let scene = Scene::start()?;
    let mut client = scene.place.bench.client()?;
    scene.place.in_edge.arm("edge.connection")?;
    client.send(scene.place.bench.request(true, ""))?;
    assert_eq!(client.fill()?, 0, "closed without an answer");
    is_told(&scene.place, "edge.connection")?;
    scene.goes_on()
}

/// What is behind the connection of a Node, by any of its parts.
fn link_panic(point: &str, in_node: bool) -> anyhow::Result<()> {
    let mut scene = Scene::start()?;
    let place = &scene.place;
    let mut streaming = place.bench.begin(true, "events=100000 gap=10ms")?;
    streaming.wait_for("data:")?;
    let trap = if in_node { &place.in_node } else { &place.in_edge };
    trap.arm(point)?;
    // Something has to pass everywhere: a request does.
    let _whatever = other(place, "")?;
    trap.sprung(SOON)?;
    for client in [&mut streaming, &mut scene.bystander] {
        let head = client.read_head()?;
        assert_broken_stream(&client.body_of(head)?, "upstream_error");
    }
    assert!(place.bench.outcomes("node_lost")? >= 2.0, "{point}");
    if in_node {
        eventually(SOON, "the Node counts it", || {
            Ok(place.bench.node_metric("iop_node_task_panics")? == 1.0)
        })?;
        assert!(place.bench.node.text().contains(point));
    } else {
        is_told(place, point)?;
        let closed = "iop_edge_node_link_closed_total{reason=\"internal\"}";
        eventually(SOON, closed, || Ok(place.bench.metric(closed)? == 1.0))?;
    }
    let bench = &place.bench;
    eventually(RECONNECT, "the Node is back", || {
        Ok(bench.node.text().matches("node ready").count() >= 2
            && node_status(&bench.edge)?["connected"] == true)
    })?;
    // The runs were lost with their link, and not only when the Node took its own place.
    let log = bench.edge.process.text();
    let (fenced, back) = (log.find("node fenced"), log.rfind("node link up"));
    assert!(fenced.is_some() && fenced < back, "{point}: {log}");
    eventually(SOON, "the provider is left alone", || Ok(bench.seen("requests_open")? == 0))?;
    scene.serves()
}

#[test]
fn a_panic_in_the_reader_of_a_nodes_connection_makes_the_node_reconnect() -> anyhow::Result<()> {
    link_panic("link.reader", false)
}

#[test]
fn a_panic_in_the_writer_of_a_nodes_connection_makes_the_node_reconnect() -> anyhow::Result<()> {
    link_panic("link.writer", false)
}

#[test]
fn a_panic_in_the_handler_of_a_nodes_connection_makes_the_node_reconnect() -> anyhow::Result<()> {
    link_panic("edge.link.handler", false)
}

#[test]
fn a_panic_over_mail_for_a_nodes_connection_makes_the_node_reconnect() -> anyhow::Result<()> {
    link_panic("edge.link.mail", false)
}

#[test]
fn a_panic_in_the_nodes_own_end_of_its_connection_makes_it_reconnect() -> anyhow::Result<()> {
    for point in ["node.session", "link.reader", "link.writer"] {
        link_panic(point, true)?;
    }
    Ok(())
}

#[test]
fn a_request_whose_slot_was_given_when_its_link_panicked_is_told_at_once() -> anyhow::Result<()> {
    let mut scene = Scene::start()?;
    scene.place.in_edge.arm("edge.link.mail")?;
    // Nothing of it was sent: it may wait for the Node to come back, or is told that the Node was lost.
    let answer = scene.place.bench.chat(true, "")?;
    assert!(matches!(answer.status, 200 | 502), "{}", answer.text());
    scene.serves()
}

#[test]
fn a_panic_of_a_run_on_the_node_is_a_500_before_the_answer_and_an_error_event_after() -> anyhow::Result<()> {
    let mut scene = Scene::start()?;
    let place = &scene.place;
    place.in_node.arm("node.run")?;
    assert_error(&place.bench.chat(true, "")?, 500, None);
    eventually(SOON, "the Node counts it", || Ok(place.bench.node_metric("iop_node_task_panics")? == 1.0))?;
    assert_eq!(place.bench.node_metric("iop_node_runs_total{outcome=\"internal\"}")?, 1.0);

    // The bystander passes the next point too.
    let head = scene.bystander.read_head()?;
    assert!(scene.bystander.body_of(head)?.is_done(), "others are not touched");
    let mut client = place.bench.begin(true, "events=100000 gap=10ms")?;
    client.wait_for("data:")?;
    place.in_node.arm("node.adapter")?;
    let head = client.read_head()?;
    let answer = client.body_of(head)?;
    assert!(!answer.whole && !answer.is_done() && answer.error_events().len() == 1, "{}", answer.text());
    eventually(SOON, "the provider is left alone", || Ok(place.bench.seen("requests_open")? == 0))?;
    assert_eq!(place.bench.node_metric("iop_node_task_panics")?, 2.0);
    assert_eq!(place.bench.node_metric("iop_node_runs_in_flight")?, 0.0);
    assert_eq!(place.bench.outcomes("internal")?, 2.0);
    let log = place.bench.node.text();
    assert!(
        log.contains("panicked") && log.contains("node.run") && !log.contains("connection to the edge lost")
    );
    scene.serves()
}

#[test]
fn a_panic_while_a_node_joins_is_a_failed_dial_and_it_dials_again() -> anyhow::Result<()> {
    let mut scene = Scene::start()?;
    let bench = &scene.place.bench;
    scene.place.in_node.arm("node.apply")?;
    // A broken connection makes it join anew.
    scene.place.in_edge.arm("edge.link.handler")?;
    scene.place.in_node.sprung(RECONNECT)?;
    eventually(RECONNECT, "the Node is back", || {
        Ok(bench.node.text().matches("node ready").count() >= 2
            && node_status(&bench.edge)?["connected"] == true)
    })?;
    assert_eq!(scene.place.bench.node_metric("iop_node_dials_total{outcome=\"broken\"}")?, 1.0);
    scene.serves()
}

#[test]
fn a_panic_over_a_request_of_an_operator_breaks_that_request_only() -> anyhow::Result<()> {
    let scene = Scene::start()?;
    let place = &scene.place;
    for (trap, point, address) in [
        (&place.in_edge, "edge.ops", &*place.bench.edge.ops),
        (&place.in_node, "node.ops", &*place.bench.node_ops),
    ] {
        trap.arm(point)?;
        assert!(http::get(address, "/metrics", None).is_err(), "{point}");
        assert_eq!(http::get(address, "/metrics", None)?.status, 200, "{point}");
    }
    is_told(place, "edge.ops")?;
    scene.goes_on()
}

#[test]
fn a_panic_in_what_a_shard_needs_ends_the_process_with_an_exit_code() -> anyhow::Result<()> {
    for point in ["edge.mail", "edge.accept"] {
        let mut scene = Scene::start()?;
        scene.place.in_edge.arm(point)?;
        let _broken = scene.place.bench.begin(true, "");
        let edge = &mut scene.place.bench.edge.process;
        assert_eq!(edge.wait_exit(SOON)?, 1, "{point}");
        let text = edge.text();
        assert!(
            text.contains("panicked") && text.contains(point) && text.contains("ended by itself"),
            "{text}"
        );
    }
    Ok(())
}

#[test]
fn a_panic_of_the_control_thread_aborts_the_process_and_tells_why() -> anyhow::Result<()> {
    let mut scene = Scene::start()?;
    scene.place.in_edge.arm("control")?;
    let _broken = scene.place.bench.begin(true, "");
    let edge = &mut scene.place.bench.edge.process;
    let status = edge.wait_end(SOON)?;
    assert!(!status.success());
    assert_eq!(status.signal(), Some(libc::SIGABRT));
    let text = edge.text();
    assert!(text.contains("a test wants a panic at control"), "{text}");
    assert!(text.contains("the control thread failed an assertion: aborting"), "{text}");
    Ok(())
}
