//! The heartbeat's own 30 s and 45 s, in real time: on the first row only.

use std::{
    thread,
    time::{Duration, Instant},
};

use iop_tests::{
    ProviderYaml,
    bench::{
        Bench, MODEL, NODE, SOON, assert_broken_stream, driver, eventually, metric, node_status, provider_at,
        shards, site, yaml,
    },
    fault_proxy::{BOTH, FaultProxy, Flow},
    http::{self, Raw},
    kernel,
};

use super::{AT_ONCE, absent::a_vanished_provider_is_found_out, assert_exact, rest, side_by_side};

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
    assert_exact(&talkative.answer()?);
    assert!(started.elapsed() > Duration::from_secs(seconds), "the stream outlived the silence");
    assert_exact(&silent.answer()?);
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
    // Neither shards nor driver change what takes so long here.
    if shards() != 1 || driver().is_some_and(|driver| driver != "io_uring") {
        println!("skipped: the first row has it");
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

/// Three Nodes on one Edge, each behind its own proxy, with a stream each: one link goes half-open, one is held and one
/// loses every packet for 40 s.
fn the_deadline_is_45_s_and_40_s_of_silence_are_none() -> anyhow::Result<()> {
    const SILENCE: Duration = Duration::from_secs(40);
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
    let mut registered = Vec::new();
    for (name, model) in names.into_iter().zip(models) {
        let link = FaultProxy::start(&edge.node)?;
        registered.push(Instant::now());
        let mut node = site.node_with(name, &link.address(), AT_ONCE)?;
        node.wait_for("node ready")?;
        let mut client = Raw::connect(&edge.http)?;
        client.stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        client
            .send(http::chat_request(site.token(), &http::chat_body(model, true, "events=2500 gap=20ms")))?;
        client.wait_for("data:")?;
        // The last answer is the registration; the first ping leaves in 30 s.
        match name {
            NODE => link.flow(&BOTH, Flow::Swallow),
            "box2" => link.flow(&BOTH, Flow::Hold),
            _ if kernel::bounds_retransmission() => link.vanish()?,
            _ => println!("left out: this kernel doubles its retransmission pause without end"),
        }
        links.push((link, Instant::now()));
        nodes.push(node);
        streams.push(client);
    }
    for (link, since) in &links[1..] {
        thread::sleep(SILENCE.saturating_sub(since.elapsed()));
        link.heal()?;
    }
    assert!(!edge.process.text().contains("node link closed"), "{}", edge.process.text());
    assert!(!nodes[0].text().contains("lost"), "{}", nodes[0].text());
    assert_broken_stream(&rest(&mut streams[0])?, "upstream_error");
    let took = registered[0].elapsed();
    println!("half-open link: {took:?} after the Node was started");
    // The second is the farewell that a dead peer is given; the rest is the Node's start and a busy machine.
    assert!(took >= Duration::from_secs(45) && took < Duration::from_secs(50), "{took:?}");
    let series = "iop_edge_node_link_closed_total{reason=\"heartbeat_timeout\"}";
    eventually(SOON, series, || Ok(metric(&edge, series)? == 1.0))?;
    for stream in &mut streams[1..] {
        assert_exact(&rest(stream)?);
    }
    for node in &nodes[1..] {
        assert_eq!(node.text().matches("node ready").count(), 1, "{}", node.text());
    }
    links[0].0.heal()?;
    eventually(Duration::from_secs(60), "the first is back", || {
        Ok(nodes[0].text().matches("node ready").count() == 2)
    })?;
    let answer = http::chat(&edge.http, site.token(), &http::chat_body(MODEL, true, ""))?;
    assert_exact(&answer);
    for mut node in nodes {
        node.kill();
    }
    Ok(())
}
