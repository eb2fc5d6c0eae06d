//! A process that stands still for a while: SIGSTOP, SIGCONT.

use std::{thread, time::Instant};

use iop_tests::bench::{Bench, RECONNECT, assert_broken_stream, eventually};

use super::{DEADLINE, INTERVAL, Path, SLACK, assert_took, rest, side_by_side};

/// Which one.
#[derive(Clone, Copy)]
enum Who {
    Edge,
    Node,
}

fn signal(bench: &Bench, who: Who, signal: libc::c_int) {
    match who {
        Who::Edge => bench.edge.process.signal(signal),
        Who::Node => bench.node.signal(signal),
    }
}

fn stopped_for_less(who: Who) -> anyhow::Result<()> {
    let path = Path::start(8)?;
    for _ in 0..2 {
        let mut streams = path.streams(4, "events=300 gap=20ms")?;
        let mut silent = path.bench.begin(true, "prefill=5s events=3")?;
        signal(&path.bench, who, libc::SIGSTOP);
        thread::sleep(DEADLINE / 2);
        signal(&path.bench, who, libc::SIGCONT);
        for stream in &mut streams {
            rest(stream)?.assert_sealed();
        }
        silent.answer()?.assert_sealed();
        path.is_untouched()?;
    }
    path.serves_again()
}

// req: HBT-2
#[test]
fn an_edge_or_node_that_stands_still_for_less_than_the_deadline_loses_nothing() -> anyhow::Result<()> {
    side_by_side(&[Who::Edge, Who::Node], |who| stopped_for_less(*who))
}

fn node_stopped_for_longer() -> anyhow::Result<()> {
    let path = Path::start(4)?;
    let mut streams = path.streams(3, "events=100000 gap=20ms")?;
    signal(&path.bench, Who::Node, libc::SIGSTOP);
    let since = Instant::now();
    for stream in &mut streams {
        assert_broken_stream(&rest(stream)?, "upstream_error");
    }
    assert_took(since, DEADLINE - INTERVAL * 2, DEADLINE + SLACK);
    signal(&path.bench, Who::Node, libc::SIGCONT);
    eventually(RECONNECT, "the node is back", || Ok(path.connections() == 2))?;
    path.serves_again()
}

fn edge_stopped_for_longer() -> anyhow::Result<()> {
    let path = Path::start(4)?;
    let mut streams = path.streams(3, "events=100000 gap=20ms")?;
    signal(&path.bench, Who::Edge, libc::SIGSTOP);
    eventually(DEADLINE + SLACK, "the node gives it up", || Ok(path.heartbeat_timeouts() == 1))?;
    eventually(RECONNECT, "and its provider is free", || Ok(path.bench.seen("requests_open")? == 0))?;
    signal(&path.bench, Who::Edge, libc::SIGCONT);
    for stream in &mut streams {
        assert_broken_stream(&rest(stream)?, "upstream_error");
    }
    eventually(RECONNECT, "the node is back", || Ok(path.connections() == 2))?;
    path.serves_again()
}

// req: HBT-1, FEN-2, FEN-6, SUP-6
#[test]
fn an_edge_or_node_that_stands_still_for_longer_is_given_up_and_found_again() -> anyhow::Result<()> {
    side_by_side(&[edge_stopped_for_longer, node_stopped_for_longer], |run| run())
}
