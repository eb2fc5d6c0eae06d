//! A client that leaves: wherever its request is, the provider's work stops and the slot comes back.

use std::{
    net::Shutdown,
    time::{Duration, Instant},
};

use iop_tests::http::Raw;

use crate::support::{Bench, SOON, eventually};

/// Closes so that the peer sees a reset.
fn reset(client: Raw) -> anyhow::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the option's type is `linger`, whose address and size are given; the descriptor is open.
    let set = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&client.stream),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            libc::socklen_t::try_from(size_of::<libc::linger>())?,
        )
    };
    anyhow::ensure!(set == 0, "SO_LINGER");
    Ok(())
}

// req: POL-10
#[test]
fn a_client_that_leaves_while_it_waits_frees_its_place_and_reaches_no_provider() -> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let mut running = bench.begin(true, "events=300 gap=10ms")?;
    running.wait_for("data:")?;
    let waiting = [bench.begin(true, "")?, bench.begin(false, "")?];
    eventually(SOON, "two wait", || Ok(bench.metric("iop_edge_queued")? == 2.0))?;
    assert_eq!(bench.provider_status()?["queued"], 2);
    let [first, second] = waiting;
    drop(first);
    reset(second)?;
    eventually(SOON, "nobody waits", || Ok(bench.metric("iop_edge_queued")? == 0.0))?;
    let head = running.read_head()?;
    assert!(running.body_of(head)?.is_done());
    bench.settles()?;
    assert_eq!(bench.seen("requests_started")?, 1);
    assert_eq!(bench.outcomes("client_gone")?, 2.0);
    Ok(())
}

// req: TUN-4, CAN-1, POL-11
#[test]
fn a_client_that_leaves_at_any_later_point_stops_the_provider_and_frees_the_slot() -> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let mut expected = 0;
    for (stream, script, sees) in [
        (false, "prefill=60s", ""),
        (true, "prefill=60s late-head", ""),
        (true, "stall-before-headers", ""),
        (true, "prefill=60s", ""),
        (true, "events=100000 gap=5ms", "data:"),
        (true, "events=20 stall-after=3", "data:"),
        (true, "events=100000 bytes=4000", "data:"),
    ] {
        for by_reset in [false, true] {
            let mut client = bench.begin(stream, script)?;
            eventually(SOON, "the provider works", || Ok(bench.seen("requests_open")? == 1))?;
            client.wait_for(sees)?;
            if by_reset {
                reset(client)?
            } else {
                drop(client)
            };
            expected += 1;
            eventually(SOON, script, || Ok(bench.seen("aborts_seen")? == expected))?;
            bench.settles()?;
            // The only slot is free: the next one is served.
            assert_eq!(bench.chat(false, "events=1")?.status, 200, "after {script}");
            bench.settles()?;
        }
    }
    assert_eq!(bench.outcomes("client_gone")?, f64::from(u32::try_from(expected)?));
    Ok(())
}

// req: CAN-1
#[test]
fn a_cancelled_run_takes_no_other_run_with_it() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let mut stays = bench.begin(true, "events=150 gap=10ms")?;
    stays.wait_for("data:")?;
    for _ in 0..5 {
        let mut leaves = bench.begin(true, "events=1000 gap=2ms")?;
        leaves.wait_for("data:")?;
    }
    let head = stays.read_head()?;
    let answer = stays.body_of(head)?;
    assert!(answer.is_done() && answer.whole);
    eventually(SOON, "five were stopped", || Ok(bench.seen("aborts_seen")? == 5))?;
    bench.settles()
}

// req: TUN-4
#[test]
fn aborts_one_after_the_other_leak_no_slot() -> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let started = Instant::now();
    for round in 0..40 {
        let mut client = bench.begin(true, "events=1000 gap=1ms")?;
        client.wait_for("data:")?;
        drop(client);
        // No wait in between: the next request comes while the slot is still being given back.
        let answer = bench.chat(round % 2 == 0, "events=2")?;
        assert_eq!((answer.status, answer.whole), (200, true), "round {round}");
    }
    // Each stream would go on for a second by itself.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    bench.settles()?;
    assert_eq!(bench.seen("aborts_seen")?, 40);
    Ok(())
}

#[test]
fn a_crowd_that_leaves_at_once_leaves_nothing_behind() -> anyhow::Result<()> {
    let bench = Bench::with(
        &[],
        |provider| iop_tests::ProviderYaml { capacity: 60, ..provider },
        |edge| iop_tests::EdgeYaml { pool: "max_queue: 40".to_owned(), ..edge },
    )?;
    let crowd: Vec<_> = (0..100).map(|_| bench.begin(true, "prefill=60s")).collect::<Result<_, _>>()?;
    eventually(SOON * 2, "sixty run and forty wait", || {
        Ok(bench.seen("requests_open")? == 60 && bench.metric("iop_edge_queued")? == 40.0)
    })?;
    drop(crowd);
    eventually(SOON, "no request is open", || Ok(bench.seen("requests_open")? == 0))?;
    bench.settles()?;
    eventually(SOON, "no connection is open", || Ok(bench.metric("iop_edge_client_connections")? == 0.0))
}

// req: POL-11, PRE-3
#[test]
fn the_slot_of_a_client_that_left_is_free_when_the_provider_has_returned_and_not_before() -> anyhow::Result<()>
{
    let bench = Bench::one_slot()?;
    let mut client = bench.begin(true, "events=1000 gap=5ms ignore-abort=3s")?;
    client.wait_for("data:")?;
    let left = Instant::now();
    drop(client);
    eventually(SOON, "the abort is seen", || Ok(bench.seen("aborts_seen")? == 1))?;
    eventually(SOON, "the slot waits for it", || Ok(bench.metric("iop_edge_leases_cancelling")? == 1.0))?;
    let mut next = bench.begin(false, "")?;
    // It is asked only when the provider has returned.
    eventually(SOON * 2, "the next one runs", || Ok(bench.seen("requests_started")? == 2))?;
    assert!(left.elapsed() >= Duration::from_secs(3), "{:?}", left.elapsed());
    assert_eq!(next.answer()?.status, 200);
    bench.settles()
}

/// RFC 9112 section 9.6 lets a server take a half-close for an end; what must not happen is a run that nobody stops.
#[test]
fn a_client_that_closes_its_half_holds_no_slot_for_ever() -> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let mut client = bench.begin(true, "events=20 gap=10ms")?;
    client.stream.shutdown(Shutdown::Write)?;
    client.stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let _answered_or_closed = client.answer();
    bench.settles()
}

// req: POL-10, TUN-4
#[test]
fn a_client_that_buries_its_leaving_under_data_holds_no_slot() -> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let mut client = bench.begin(true, "stall-before-headers")?;
    eventually(SOON, "it runs", || Ok(bench.metric("iop_edge_leases")? == 1.0))?;
    // The Edge stops reading at some point: what the sockets do not take is not needed.
    client.stream.set_write_timeout(Some(SOON))?;
    let _full = client.send(vec![b'x'; 3_000_000]);
    drop(client);
    bench.settles()
}
