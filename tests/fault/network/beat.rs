//! The heartbeat's own 30 s and 45 s, in real time: on one row only.

use std::{
    thread,
    time::{Duration, Instant},
};

use iop_tests::{
    ProviderYaml,
    bench::{
        Bench, MODEL, NODE, SOON, assert_broken_stream, driver, eventually, metric, node_status, provider_at,
        site, yaml,
    },
    fault_proxy::{BOTH, FaultProxy, Flow},
    http::{self, Raw},
    kernel,
};

use super::{AT_ONCE, absent::a_vanished_provider_is_found_out, rest, side_by_side};

/// A silent stream of so many seconds beside one that speaks all the time.
fn both_end_well(seconds: u64) -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let started = Instant::now();
    let mut silent = bench.begin(true, &format!("prefill={seconds}s events=5"))?;
    let mut silent_whole = bench.begin(false, &format!("prefill={seconds}s events=5"))?;
    let mut talkative = bench.begin(true, &format!("events={} gap=20ms", (seconds + 2) * 50))?;
    for client in [&silent, &silent_whole, &talkative] {
        client.stream.set_read_timeout(Some(Duration::from_secs(seconds + 60)))?;
    }
    talkative.answer()?.assert_sealed();
    assert!(started.elapsed() > Duration::from_secs(seconds), "the stream outlived the silence");
    silent.answer()?.assert_sealed();
    assert_eq!(silent_whole.answer()?.status, 200);

    assert_eq!(node_status(&bench.edge)?["connected"], true);
    assert_eq!(bench.provider_status()?["health"], "healthy");
    assert_eq!(bench.node.text().matches("node ready").count(), 1, "it was connected throughout");
    let log = bench.edge.process.text();
    assert!(!log.contains("node link closed") && !log.contains("node fenced"), "{log}");
    assert_eq!(bench.metric("iop_edge_node_link_closed_total{reason=\"heartbeat_timeout\"}")?, 0.0);
    bench.settles()
}

// req: HBT-1, HBT-2, HBT-3, HBT-4
#[test]
fn in_real_time_a_silent_prefill_of_90_s_ends_normally_and_only_the_dead_are_given_up() -> anyhow::Result<()>
{
    // Neither shards nor driver change what takes so long here. Where a kernel has both drivers, `io_uring` is a row too.
    if driver().is_some_and(|driver| driver != "io_uring") && kernel::has_io_uring() {
        println!("the row with io_uring has it");
        return Ok(());
    }
    let all = [
        || both_end_well(90),
        the_deadline_is_45_s_and_40_s_of_silence_are_none,
        a_vanished_provider_is_found_out,
    ];
    side_by_side(&all, |one| one())
}

/// Run it with `cargo test -p iop-tests --test fault -- --ignored a_silent_prefill_of_310_s`.
// req: HBT-2, HBT-4
#[test]
#[ignore = "takes 310 s"]
fn a_silent_prefill_of_310_s_ends_normally() -> anyhow::Result<()> {
    both_end_well(310)
}

/// Three Nodes on one Edge, each behind its own proxy, with a stream each: one link goes half-open, one is held for 40 s and
/// one loses every packet for as long as that.
fn the_deadline_is_45_s_and_40_s_of_silence_are_none() -> anyhow::Result<()> {
    const SILENCE: Duration = Duration::from_secs(40);
    // A kernel that doubles its pause between retransmissions without end makes at most twice of it.
    let lossy = if kernel::bounds_retransmission() { SILENCE } else { Duration::from_secs(18) };
    let site = site()?;
    let provider = site.provider(&[])?;
    let names = [NODE, "box2", "box3"];
    let models = [MODEL, "m2", "m3"];
    let mut config = yaml().with(provider_at(&provider.base_url()));
    config = config.with(ProviderYaml::new("p2", names[1], &provider.base_url(), models[1]));
    config = config.with(ProviderYaml::new("p3", names[2], &provider.base_url(), models[2]));
    let edge = site.edge(&config)?;
    let mut links = Vec::new();
    let mut nodes = Vec::new();
    let mut streams = Vec::new();
    let (mut started, mut ready) = (Vec::new(), Vec::new());
    for (name, model) in names.into_iter().zip(models) {
        let link = FaultProxy::start(&edge.node)?;
        started.push(Instant::now());
        let mut node = site.node_with(name, &link.address(), AT_ONCE)?;
        node.wait_for("node ready")?;
        ready.push(Instant::now());
        let mut client = Raw::connect(&edge.http)?;
        client.stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        client
            .send(http::chat_request(site.token(), &http::chat_body(model, true, "events=2500 gap=20ms")))?;
        client.wait_for("data:")?;
        // The last answer is the registration; the first ping leaves in 30 s.
        let silence = match name {
            NODE => {
                link.flow(&BOTH, Flow::Swallow);
                Duration::MAX
            }
            "box2" => {
                link.flow(&BOTH, Flow::Hold);
                SILENCE
            }
            _ => {
                link.vanish()?;
                lossy
            }
        };
        links.push((link, Instant::now(), silence));
        nodes.push(node);
        streams.push(client);
    }
    thread::scope(|scope| {
        let healed = links[1..].iter().map(|(link, since, silence)| {
            scope.spawn(|| {
                thread::sleep(silence.saturating_sub(since.elapsed()));
                link.heal()
            })
        });
        let healed: Vec<_> = healed.collect();
        healed.into_iter().try_for_each(|one| one.join().map_err(|_| anyhow::anyhow!("no panic"))?)
    })?;
    assert!(!edge.process.text().contains("node link closed"), "{}", edge.process.text());
    assert!(!nodes[0].text().contains("lost"), "{}", nodes[0].text());
    assert_broken_stream(&rest(&mut streams[0])?, "upstream_error");
    // The registration was between the two.
    let (longest, took) = (started[0].elapsed(), ready[0].elapsed());
    println!("half-open link: {longest:?} after the Node was started, {took:?} after it was ready");
    // The second is the farewell that a dead peer is given; the rest is a busy machine.
    assert!(longest >= Duration::from_secs(45) && took < Duration::from_secs(50), "{longest:?}, {took:?}");
    let series = "iop_edge_node_link_closed_total{reason=\"heartbeat_timeout\"}";
    eventually(SOON, series, || Ok(metric(&edge, series)? == 1.0))?;
    for stream in &mut streams[1..] {
        rest(stream)?.assert_sealed();
    }
    for node in &nodes[1..] {
        assert_eq!(node.text().matches("node ready").count(), 1, "{}", node.text());
    }
    links[0].0.heal()?;
    eventually(Duration::from_secs(60), "the first is back", || {
        Ok(nodes[0].text().matches("node ready").count() == 2)
    })?;
    let answer = http::chat(&edge.http, site.token(), &http::chat_body(MODEL, true, ""))?;
    answer.assert_sealed();
    for mut node in nodes {
        node.kill();
    }
    Ok(())
}
