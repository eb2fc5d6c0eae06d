//! Links that are slow or far: the heartbeat passes, nothing is buffered beyond what the way takes, nobody waits for another.

use std::{
    thread,
    time::{Duration, Instant, SystemTime},
};

use iop_tests::{
    bench::SOON,
    bench::eventually,
    fault_proxy::{BOTH, Segments, Way},
    http::Raw,
};

use super::{DEADLINE, Path, beating, rest, side_by_side};

// req: HBT-2, WIR-6
#[test]
fn heartbeats_pass_on_a_link_full_of_stream_data() -> anyhow::Result<()> {
    let path = Path::over(Segments::Loopback, beating()?, 21, |yaml| yaml)?;
    path.link.throttle(&[Way::Up], 200_000);
    let since = Instant::now();
    // 20 streams, 4 MB: within their windows, so the Node has all of it at once, and the link needs 20 s for it. A kernel
    // that may take what it likes takes more than half of it.
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(path.bench.begin(true, "events=1000 bytes=200 gap=0")?);
    }
    // And one who reads nothing.
    let _stalled = path.bench.begin(true, "events=100000 gap=0")?;
    for stream in &mut streams {
        stream.stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        stream.answer()?.assert_sealed();
    }
    assert!(since.elapsed() > DEADLINE * 3 / 2, "{:?}: it was not slow", since.elapsed());
    path.is_untouched()
}

/// How long each event was on its way, by the provider's stamp; sorted.
fn latencies(client: &mut Raw) -> anyhow::Result<Vec<Duration>> {
    let mut all = Vec::new();
    loop {
        let line = match client.line()? {
            Some(line) if line.contains("[DONE]") => break,
            Some(line) => line,
            None => anyhow::bail!("no [DONE]"),
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let Some(event) = line.strip_prefix("data: ") else { continue };
        let event: serde_json::Value = serde_json::from_str(event)?;
        if let Some(sent) = event["t"].as_u64() {
            all.push(now.saturating_sub(Duration::from_nanos(sent)));
        }
    }
    all.sort();
    Ok(all)
}

// req: WIR-6, TUN-3
#[test]
fn a_far_link_adds_its_own_way_and_no_event_waits_for_another() -> anyhow::Result<()> {
    const ONE_WAY: Duration = Duration::from_millis(50);
    let path = Path::start(33)?;
    path.link.delay(&BOTH, ONE_WAY);
    // One who takes nothing: its window fills and stays full.
    let stalled = path.bench.begin(true, "events=100000 bytes=2000 gap=0")?;
    eventually(SOON, "the stalled one has come to a stand", || {
        let before = path.bench.seen("events_written")?;
        thread::sleep(Duration::from_millis(300));
        Ok(before > 0 && path.bench.seen("events_written")? == before)
    })?;
    let clients: Vec<_> = (0..32)
        .map(|_| {
            let mut client = path.bench.begin(true, "stamp events=100 gap=40ms")?;
            Ok(thread::spawn(move || latencies(&mut client)))
        })
        .collect::<anyhow::Result<_>>()?;
    let mut all = Vec::new();
    for client in clients {
        let one = client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        assert_eq!(one.len(), 100);
        all.extend(one);
    }
    all.sort();
    let (median, p99) = (all[all.len() / 2], all[all.len() * 99 / 100]);
    println!("far link, one way {ONE_WAY:?}: median {median:?}, p99 {p99:?} of {} events", all.len());
    assert!(all[0] >= ONE_WAY, "{:?}: the way itself", all[0]);
    // An event that waited for credit, or for the next one, would take a round trip or a gap more.
    assert!(median < ONE_WAY * 2, "median {median:?}");
    drop(stalled);
    path.is_untouched()?;
    path.link.heal()?;
    path.serves_again()
}

// req: TUN-3
#[test]
fn a_slow_way_to_the_client_or_from_the_provider_changes_no_byte() -> anyhow::Result<()> {
    side_by_side(&[false, true], |at_the_client| {
        let path = Path::start(4)?;
        let slow = if *at_the_client { &path.front } else { &path.upstream };
        slow.throttle(&[Way::Down], 20_000);
        let mut client = path.far_client(true, "events=300")?;
        client.wait_for("data:")?;
        rest(&mut client)?.assert_sealed();
        slow.heal()?;
        path.serves_again()
    })
}
