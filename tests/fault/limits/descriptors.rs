//! No descriptor left: who is served goes on, who comes waits, and everything comes back by itself.

use std::time::{Duration, Instant};

use iop_tests::{
    Process, ProviderYaml,
    bench::{SOON, assert_error, eventually, metric},
    http::{self, Raw},
    procfs,
};

use super::place::Place;

/// The lowest descriptor number that is free.
fn lowest_free(pid: u32) -> anyhow::Result<u64> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"))?;
    let mut numbers: Vec<u64> =
        open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    let gap = numbers.iter().enumerate().position(|(at, number)| at as u64 != *number);
    Ok(gap.unwrap_or(numbers.len()) as u64)
}

/// The process opens nothing more until the limit that this gives is given back: the lowest number that is free is over it.
/// What is being closed at this moment is waited for.
fn exhaust(process: &Process) -> anyhow::Result<u64> {
    let pid = process.pid();
    let mut lowest = lowest_free(pid)?;
    let limit = procfs::limit_fds(pid, lowest)?;
    let mut same = 0;
    while same < 10 {
        std::thread::sleep(Duration::from_millis(20));
        let now = lowest_free(pid)?;
        same = if now == lowest { same + 1 } else { 0 };
        if now != lowest {
            procfs::limit_fds(pid, now)?;
        }
        lowest = now;
    }
    Ok(limit)
}

#[test]
fn an_edge_without_descriptors_serves_on_spins_not_and_takes_who_waited_when_it_has_some_again()
-> anyhow::Result<()> {
    let place = Place::start()?;
    let bench = &place.bench;
    let pid = bench.edge.process.pid();
    let mut streaming = bench.begin(true, "events=600 gap=20ms")?;
    streaming.wait_for("data:")?;
    let mut kept = bench.client()?;
    kept.send(bench.request(false, ""))?;
    assert_eq!(kept.answer()?.status, 200);

    let limit = exhaust(&bench.edge.process)?;
    let mut waiting = (0..12).map(|_| bench.begin(true, "events=2")).collect::<anyhow::Result<Vec<_>>>()?;
    let exhausted = "iop_edge_accepts_exhausted_total";
    eventually(SOON, "it is counted while it lasts, and told on a connection that is new", || {
        Ok(metric(&bench.edge, exhausted)? >= 1.0)
    })?;
    let (cpu, counted) = (procfs::cpu(pid)?, metric(&bench.edge, exhausted)?);
    std::thread::sleep(Duration::from_secs(2));
    let used = procfs::cpu(pid)? - cpu;
    println!("{used:?} of CPU in 2 s without descriptors");
    assert!(used < Duration::from_millis(500), "{used:?} of CPU in 2 s without descriptors");
    let more = metric(&bench.edge, exhausted)? - counted;
    assert!((1.0..100.0).contains(&more), "{more} tries in 2 s");
    assert_eq!(http::get(&bench.edge.ops, "/healthz", None)?.status, 200);
    kept.send(bench.request(false, ""))?;
    assert_eq!(kept.answer()?.status, 200, "who is there is served");
    for client in &mut waiting {
        client.stream.set_nonblocking(true)?;
        assert!(client.fill().is_err(), "who comes waits");
        client.stream.set_nonblocking(false)?;
    }

    procfs::limit_fds(pid, limit)?;
    let given_back = Instant::now();
    for client in &mut waiting {
        let answer = client.answer()?;
        assert!(answer.is_done() && answer.whole, "{}", answer.text());
    }
    assert!(given_back.elapsed() < SOON, "{:?}", given_back.elapsed());
    let head = streaming.read_head()?;
    let answer = streaming.body_of(head)?;
    assert!(answer.is_done() && answer.whole, "the stream went on");
    bench.settles()
}

#[test]
fn a_node_joins_by_itself_once_the_edge_has_descriptors_again() -> anyhow::Result<()> {
    let mut place = Place::start()?;
    let pid = place.bench.edge.process.pid();
    place.bench.node.kill();
    eventually(SOON, "the edge knows", || Ok(metric(&place.bench.edge, "iop_edge_node_links")? == 0.0))?;
    let limit = exhaust(&place.bench.edge.process)?;
    let site = &place.bench.site;
    let mut node =
        site.node_with("box1", &place.bench.edge.node, "reconnect: { interval_sec: 1, max_attempts: 0 }")?;
    eventually(SOON, "it knocks", || {
        Ok(metric(&place.bench.edge, "iop_edge_accepts_exhausted_total")? >= 1.0)
    })?;
    procfs::limit_fds(pid, limit)?;
    node.wait_for("node ready")?;
    assert_eq!(place.bench.chat(true, "")?.status, 200);
    drop(node);
    Ok(())
}

#[test]
fn a_node_without_descriptors_fails_runs_as_not_connected_and_returns_their_slots() -> anyhow::Result<()> {
    let place = Place::with(|provider| ProviderYaml { capacity: 2, ..provider }, |edge| edge)?;
    let bench = &place.bench;
    let pid = bench.node.pid();
    let mut streaming = bench.begin(true, "events=300 gap=20ms")?;
    streaming.wait_for("data:")?;
    let limit = exhaust(&bench.node)?;
    let cpu = procfs::cpu(pid)?;
    for round in 0..30 {
        let answer = bench.chat(round % 2 == 0, "")?;
        assert_error(&answer, 502, Some("upstream_error"));
    }
    assert_eq!(bench.outcomes("upstream_connect")?, 30.0);
    eventually(SOON, "only the stream holds a slot", || Ok(bench.metric("iop_edge_leases")? == 1.0))?;
    assert_eq!(place.bench.node_metric("iop_node_runs_total{outcome=\"connect\"}")?, 30.0);
    std::thread::sleep(Duration::from_secs(1));
    let used = procfs::cpu(pid)? - cpu;
    assert!(used < Duration::from_secs(1), "{used:?} of CPU");
    streaming.wait_for("data:")?;

    procfs::limit_fds(pid, limit)?;
    assert_eq!(bench.chat(true, "")?.status, 200);
    let head = streaming.read_head()?;
    let answer = streaming.body_of(head)?;
    assert!(answer.is_done() && answer.whole, "the stream went on");
    assert_eq!(bench.node.text().matches("connection to the edge lost").count(), 0);
    bench.settles()
}

#[test]
fn a_metrics_scraper_that_keeps_its_connection_is_served_without_descriptors() -> anyhow::Result<()> {
    let place = Place::start()?;
    let edge = &place.bench.edge;
    let mut scraper = Raw::connect(&edge.ops)?;
    let mut scrape = || -> anyhow::Result<u16> {
        scraper.send("GET /metrics HTTP/1.1\r\nhost: e\r\n\r\n")?;
        Ok(scraper.answer()?.status)
    };
    assert_eq!(scrape()?, 200);
    let limit = exhaust(&edge.process)?;
    assert_eq!(scrape()?, 200);
    procfs::limit_fds(edge.process.pid(), limit)?;
    Ok(())
}
