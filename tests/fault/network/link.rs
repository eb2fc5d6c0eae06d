//! Between Node and Edge: half-open, silent for a while, reset, half-closed, cut anywhere.

use std::{
    thread,
    time::{Duration, Instant},
};

use iop_tests::{
    bench::{RECONNECT, SOON, assert_broken_stream, assert_error, eventually},
    fault_proxy::{BOTH, End, FaultProxy, Flow, Way},
};

use super::{DEADLINE, INTERVAL, Path, SLACK, assert_took, assert_whole_or_broken, rest, side_by_side};

/// A link that is lost one way or another, from a moment on: who runs is told at the deadline, and everything comes back.
fn half_open(lose: impl Fn(&FaultProxy) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let path = Path::start(6)?;
    // Slow enough that no window fills: a stream without credit may stop in the middle of an event.
    let mut streams = path.streams(3, "events=100000 gap=20ms")?;
    let mut silent = path.bench.begin(true, "prefill=600s")?;
    let mut whole = path.bench.begin(false, "prefill=600s")?;
    eventually(SOON, "all run", || Ok(path.bench.seen("requests_open")? == 5))?;
    lose(&path.link)?;
    let since = Instant::now();
    for stream in &mut streams {
        assert_broken_stream(&rest(stream)?, "upstream_error");
    }
    // Its client had nothing yet.
    let answer = silent.answer()?;
    assert_eq!(answer.status, 502, "{}", answer.head);
    // The last answer came up to an interval before the silence.
    assert_took(since, DEADLINE - INTERVAL - Duration::from_millis(500), DEADLINE + SLACK);
    assert_error(&whole.answer()?, 502, Some("upstream_error"));
    assert!(path.bench.edge.process.text().contains("node fenced"));
    eventually(SOON, "every slot is back", || Ok(path.bench.metric("iop_edge_leases")? == 0.0))?;
    // The Node may see its end only by its own heartbeat, a moment later; then it dials without end.
    path.link.heal()?;
    eventually(DEADLINE + RECONNECT, "the node is back", || Ok(path.connections() == 2))?;
    assert!(path.heartbeat_timeouts() >= 1, "{}", path.bench.edge.process.text());
    path.serves_again()
}

// req: HBT-1, HBT-3, FEN-1, FEN-2, FEN-6, PRE-2
#[test]
fn a_half_open_link_ends_at_the_deadline_and_the_node_comes_back_by_itself() -> anyhow::Result<()> {
    // Neither hears the other; the Edge hears nothing; the Node hears nothing; neither hears even an acknowledgement.
    let ways: [&[Way]; 4] = [&BOTH, &[Way::Up], &[Way::Down], &[]];
    side_by_side(&ways, |ways| {
        half_open(|link| {
            link.flow(ways, Flow::Swallow);
            if ways.is_empty() { link.vanish() } else { Ok(()) }
        })
    })
}

// req: HBT-2
#[test]
fn a_link_that_is_silent_for_less_than_the_deadline_loses_nothing() -> anyhow::Result<()> {
    // Held: acknowledged until the window is full. Vanished: every packet is lost.
    side_by_side(&[false, true], |vanishes| {
        let path = Path::start(8)?;
        for _ in 0..2 {
            let mut streams = path.streams(4, "events=300 gap=20ms")?;
            let mut silent = path.bench.begin(true, "prefill=5s events=3")?;
            if *vanishes {
                path.link.vanish()?
            } else {
                path.link.flow(&BOTH, Flow::Hold)
            }
            thread::sleep(DEADLINE / 2);
            path.link.heal()?;
            for stream in &mut streams {
                rest(stream)?.assert_sealed();
            }
            silent.answer()?.assert_sealed();
            path.is_untouched()?;
        }
        path.serves_again()
    })
}

// req: FEN-2, FEN-6, SUP-2, API-1
#[test]
fn a_reset_or_a_half_close_of_the_link_breaks_what_runs_at_once() -> anyhow::Result<()> {
    let path = Path::start(4)?;
    let breaks: [(&str, &dyn Fn()); 3] = [
        ("reset", &|| path.link.reset()),
        ("the node's half", &|| path.link.half_close(Way::Up)),
        ("the edge's half", &|| path.link.half_close(Way::Down)),
    ];
    for (index, (what, cut)) in breaks.into_iter().enumerate() {
        let mut streams = path.streams(3, "events=100000 gap=5ms")?;
        let since = Instant::now();
        cut();
        for stream in &mut streams {
            assert_broken_stream(&rest(stream)?, "upstream_error");
        }
        assert!(since.elapsed() < DEADLINE - INTERVAL, "{what}: that was the heartbeat");
        eventually(RECONNECT, what, || Ok(path.connections() == index + 2))?;
        path.serves_again()?;
    }
    assert_eq!(path.heartbeat_timeouts(), 0);
    Ok(())
}

// req: API-1, FEN-2
#[test]
fn a_link_cut_at_any_byte_of_its_frames_ends_streams_visibly() -> anyhow::Result<()> {
    let path = Path::start(4)?;
    let (mut broken, mut ready) = (0, 1);
    // A frame of an event here is about 250 bytes with its record: offsets in every part of one, and of its neighbours.
    let offsets = (0..30).chain((30..600).step_by(41));
    for (index, offset) in offsets.enumerate() {
        let end = if index % 2 == 0 { End::Reset } else { End::Close };
        let way = if index % 5 == 4 { Way::Down } else { Way::Up };
        let mut stream = path.bench.begin(true, "events=100 gap=2ms")?;
        stream.wait_for("data:")?;
        path.link.cut_after(way, if way == Way::Down { offset % 40 } else { offset }, end);
        broken += usize::from(!assert_whole_or_broken(&rest(&mut stream)?));
        // Little goes down: where the stream was over first, the next heartbeat takes the bytes.
        eventually(RECONNECT, "the link is new", || Ok(path.connections() > ready))?;
        ready = path.connections();
    }
    assert!(broken >= 30, "only {broken} were cut in the middle");
    path.serves_again()
}

/// Cuts of handshakes, many, one way.
fn handshakes_cut(way: Way) -> anyhow::Result<()> {
    let path = Path::start(4)?;
    path.serves_again()?;
    let before = path.bench.edge_tasks()?;
    for end in [End::Close, End::Reset] {
        // Hello, certificate and finish are within 2 KiB each way.
        path.link.cut_next(way, (0..8).chain((8..1600).step_by(120)), end);
        path.link.reset();
        eventually(RECONNECT * 4, "all were cut", || Ok(path.link.cuts_left() == 0))?;
        // The last of them may stand, with a cut that is still to come.
        path.link.reset();
        eventually(RECONNECT, "the next one serves", || Ok(path.bench.chat(true, "")?.is_done()))?;
        path.serves_again()?;
    }
    eventually(SOON, "no task is left", || Ok(path.bench.edge_tasks()? <= before))
}

// req: SUP-2
#[test]
fn a_handshake_cut_at_any_byte_leaves_nothing_behind() -> anyhow::Result<()> {
    side_by_side(&BOTH, |way| handshakes_cut(*way))
}

#[test]
fn a_handshake_of_a_byte_in_100_ms_is_given_up_with_its_reason() -> anyhow::Result<()> {
    side_by_side(&BOTH, |way| {
        let path = Path::start(4)?;
        path.link.throttle(&[*way], 10);
        path.link.reset();
        // The Edge's reason where it waits; where the Node does, it is gone by the same 5 s.
        let series = "iop_edge_node_handshake_refused_total{reason=\"handshake_timeout\"}";
        eventually(RECONNECT * 2, "it took too long", || match way {
            Way::Up => Ok(path.bench.metric(series)? > 0.0),
            Way::Down => Ok(path.bench.node.text().contains("dial failed")),
        })?;
        path.link.heal()?;
        path.link.reset();
        eventually(RECONNECT, "the node is back", || Ok(path.connections() == 2))?;
        path.serves_again()
    })
}
