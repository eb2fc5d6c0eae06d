//! An Edge that is told to stop: it takes nothing new, finishes what runs, and exits 0.

use std::{net::TcpStream, time::Duration};

use iop_tests::{EdgeYaml, http};

use crate::support::{Bench, MODEL, SOON, assert_broken_stream, assert_error, eventually};

#[test]
fn what_runs_is_finished_nothing_new_is_taken_and_the_exit_code_is_0() -> anyhow::Result<()> {
    let mut bench = Bench::start()?;
    let mut streaming = bench.begin(true, "events=150 gap=10ms")?;
    streaming.wait_for("data:")?;
    let mut idle = bench.client()?;
    idle.send(format!(
        "GET /v1/models HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {}\r\n\r\n",
        bench.site.token()
    ))?;
    assert_eq!(idle.answer()?.status, 200);

    bench.edge.process.signal(libc::SIGTERM);
    eventually(SOON, "new connections are refused", || Ok(TcpStream::connect(&bench.edge.http).is_err()))?;
    assert_eq!(http::get(&bench.edge.ops, "/readyz", None)?.status, 503);
    idle.send(http::chat_request(bench.site.token(), &http::chat_body(MODEL, true, "")))?;
    let answer = idle.answer()?;
    assert_error(&answer, 503, Some("overloaded"));
    assert_eq!((answer.header("retry-after"), answer.header("connection")), (Some("5"), Some("close")));
    assert_eq!(idle.fill()?, 0, "it is closed behind the answer");
    let head = streaming.read_head()?;
    let answer = streaming.body_of(head)?;
    assert!(answer.is_done() && answer.whole, "{}", answer.text());
    assert_eq!(bench.edge.process.wait_exit(Duration::from_secs(5))?, 0);
    bench.node.wait_for("connection to the edge lost")?;
    Ok(())
}

#[test]
fn an_idle_edge_stops_at_once() -> anyhow::Result<()> {
    let mut bench = Bench::start()?;
    bench.edge.process.signal(libc::SIGTERM);
    assert_eq!(bench.edge.process.wait_exit(SOON)?, 0);
    Ok(())
}

#[test]
fn what_outlasts_the_grace_is_broken_off_with_an_error() -> anyhow::Result<()> {
    let mut bench =
        Bench::with(&[], |p| p, |edge| EdgeYaml { limits: "drain_grace_ms: 700".to_owned(), ..edge })?;
    let mut streaming = bench.begin(true, "events=100000 gap=5ms")?;
    streaming.wait_for("data:")?;
    bench.edge.process.signal(libc::SIGTERM);
    let head = streaming.read_head()?;
    assert_broken_stream(&streaming.body_of(head)?, "cancelled");
    assert_eq!(bench.edge.process.wait_exit(Duration::from_secs(6))?, 0);
    eventually(SOON, "the provider is left alone", || Ok(bench.seen("requests_open")? == 0))
}

#[test]
fn a_request_whose_body_is_still_coming_is_answered_before_the_edge_stops() -> anyhow::Result<()> {
    let mut bench = Bench::start()?;
    let request = bench.request(false, "");
    let (first, rest) = request.split_at(request.len() - 10);
    let mut client = bench.client()?;
    client.send(first)?;
    eventually(SOON, "its head is there", || Ok(bench.metric("iop_edge_requests_active")? == 1.0))?;
    bench.edge.process.signal(libc::SIGTERM);
    bench.edge.process.wait_for("told to stop")?;
    client.send(rest)?;
    let answer = client.answer()?;
    assert_eq!((answer.status, answer.whole, answer.header("connection")), (200, true, Some("close")));
    assert_eq!(bench.edge.process.wait_exit(SOON)?, 0);
    Ok(())
}
