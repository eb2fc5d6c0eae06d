//! Shards and drivers: what the environment asks for is what runs.

use std::collections::BTreeSet;

use iop_tests::http;

use crate::support::{Bench, driver, shards};

#[test]
fn the_metrics_name_the_driver_and_every_shard_that_was_asked_for() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let metrics = http::get(&bench.edge.ops, "/metrics", None)?.text();
    let lines: Vec<_> = metrics.lines().filter(|line| line.starts_with("iop_edge_shard_driver{")).collect();
    assert_eq!(lines.len(), shards(), "{lines:?}");
    for shard in 0..shards() {
        let label = format!("shard=\"{shard}\"");
        let line =
            lines.iter().find(|line| line.contains(&label)).unwrap_or_else(|| panic!("{label}: {lines:?}"));
        assert!(line.ends_with(" 1"));
        match driver() {
            Some(driver) => assert!(line.contains(&format!("driver=\"{driver}\"")), "{line}"),
            None => {
                assert!(line.contains("driver=\"io_uring\"") || line.contains("driver=\"epoll\""), "{line}")
            }
        }
    }
    if let Some(driver) = driver() {
        assert!(bench.node.text().contains(&driver), "the Node runs on it too: {}", bench.node.text());
    }
    Ok(())
}

#[test]
fn connections_of_many_clients_are_served_by_whichever_shard_has_them() -> anyhow::Result<()> {
    let bench =
        Bench::with(&[], |provider| iop_tests::ProviderYaml { capacity: 64, ..provider }, |edge| edge)?;
    let mut clients =
        (0..40).map(|_| bench.begin(true, "events=20 gap=2ms")).collect::<anyhow::Result<Vec<_>>>()?;
    let mut ids = BTreeSet::new();
    for client in &mut clients {
        let answer = client.answer()?;
        assert!(answer.is_done() && answer.whole, "{}", answer.text());
        ids.insert(answer.header("x-request-id").unwrap_or_default().to_owned());
    }
    assert_eq!(ids.len(), 40, "request ids are unique across shards");
    for shard in 0..shards() {
        assert_eq!(bench.metric(&format!("iop_edge_shard_task_panics{{shard=\"{shard}\"}}"))?, 0.0);
    }
    bench.settles()
}
