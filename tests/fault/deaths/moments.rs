//! Deaths at moments that a draw would hardly hit, and what follows a death.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use iop_tests::{
    Edge, EdgeYaml, Process, ProviderYaml,
    bench::{
        MODEL, SOON, assert_broken_stream, assert_error, eventually, metric, provider_at, site, stats,
        steady_address, yaml,
    },
    http::{self, Answer, Raw},
    procfs,
    random::Random,
    site::{path, with_reconnect},
};

use super::{
    crowd::{self, Ask, Outcome, Progress, Seen},
    place::{AT_ONCE, Place, SLOTS, Victim},
};

const STREAM: Ask = Ask { stream: true, script: "events=5 gap=1ms", events: 5 };
const WHOLE: Ask = Ask { stream: false, script: "events=5", events: 5 };

/// Several of these at once.
fn together(place: &Place, asks: &[Ask]) -> anyhow::Result<Vec<Seen>> {
    let (edge, token) = (&place.bench.edge.http, place.bench.site.token());
    std::thread::scope(|scope| {
        let ask =
            |ask| scope.spawn(move || crowd::ask(edge, token, ask, Duration::ZERO, &Progress::default()));
        let clients: Vec<_> = asks.iter().map(ask).collect();
        clients.into_iter().map(|client| client.join().map_err(|_| anyhow::anyhow!("panicked"))?).collect()
    })
}

// req: API-1
#[test]
fn an_answer_that_only_a_close_ends_is_reset_when_the_edge_or_the_node_dies() -> anyhow::Result<()> {
    let mut place = Place::start(|edge| edge)?;
    for victim in [Victim::Edge, Victim::Node, Victim::Edge, Victim::Node] {
        let mut whole = place.bench.begin(false, "close-delimited events=150 split=400 split-gap=20ms")?;
        let body = http::chat_body(MODEL, true, "events=1000 gap=5ms").to_string();
        let mut old = place.bench.client()?;
        old.send(format!(
            "POST /v1/chat/completions HTTP/1.0\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
            place.bench.site.token(),
            body.len()
        ))?;
        whole.wait_for("\"content\":\"")?;
        old.wait_for("data: ")?;
        place.kill(victim)?;
        for client in [&mut whole, &mut old] {
            while client.fill()? > 0 {}
            assert!(client.was_reset, "{victim:?}: {}", String::from_utf8_lossy(client.buffered()));
        }
        place.revive(victim)?;
        place.node_is_back()?;
        let served = place.bench.chat(false, "close-delimited")?;
        assert!(served.whole && served.json().is_ok(), "{victim:?}: {}", served.head);
        place.balances()?;
    }
    Ok(())
}

// req: API-1
#[test]
fn an_answer_that_only_a_close_ends_and_that_stops_in_its_json_is_reset_when_the_provider_dies()
-> anyhow::Result<()> {
    let mut place = Place::start(|edge| edge)?;
    for _ in 0..5 {
        let mut whole = place.bench.begin(false, "close-delimited events=150 split=400 split-gap=20ms")?;
        whole.wait_for("\"content\":\"")?;
        place.kill(Victim::Provider)?;
        while whole.fill()? > 0 {}
        assert!(whole.was_reset, "{}", String::from_utf8_lossy(whole.buffered()));
        place.revive(Victim::Provider)?;
    }
    assert_eq!(place.bench.outcomes("upstream_truncated")?, 5.0);
    place.balances()
}

// req: PRE-2
#[test]
fn what_a_dead_edge_asked_for_is_dropped_at_once_also_in_a_long_prefill() -> anyhow::Result<()> {
    let mut place = Place::start(|edge| edge)?;
    for _ in 0..5 {
        let mut clients = Vec::new();
        for slot in 0..SLOTS {
            clients.push(place.bench.begin(slot % 2 == 0, "late-head prefill=600s")?);
        }
        eventually(SOON, "all of them run", || Ok(place.bench.seen("requests_open")? == SLOTS as u64))?;
        place.kill(Victim::Edge)?;
        eventually(SOON, "the provider is left alone", || Ok(place.bench.seen("requests_open")? == 0))?;
        place.revive(Victim::Edge)?;
        // Not one of their slots is missing.
        let asks = [Ask { script: "prefill=20ms events=5", ..STREAM }; SLOTS];
        for seen in together(&place, &asks)? {
            let Seen::Answer(answer) = seen else { anyhow::bail!("{seen:?}") };
            ensure!(answer.whole && answer.is_done(), "{} {}", answer.head, answer.text());
        }
        place.balances()?;
    }
    Ok(())
}

// req: API-1, FEN-6
#[test]
fn a_node_that_dies_while_the_edge_stops_fails_its_streams_and_holds_nobody_up() -> anyhow::Result<()> {
    let mut place = Place::start(|edge| EdgeYaml { limits: "drain_grace_ms: 60000".to_owned(), ..edge })?;
    let mut running: Vec<Raw> = Vec::new();
    for _ in 0..SLOTS {
        let mut client = place.bench.begin(true, "events=100000 gap=5ms")?;
        client.wait_for("data: ")?;
        running.push(client);
    }
    let mut waiting = place.bench.begin(true, "")?;
    eventually(SOON, "one waits", || Ok(place.bench.metric("iop_edge_queued")? == 1.0))?;
    place.bench.edge.process.signal(libc::SIGTERM);
    place.bench.edge.process.wait_for("told to stop")?;
    place.kill(Victim::Node)?;
    for mut client in running {
        assert_broken_stream(&client.answer()?, "upstream_error");
    }
    // It was taken before the Edge was told to stop: a Node that comes back in time serves it.
    place.revive(Victim::Node)?;
    let answer = waiting.answer()?;
    assert!(answer.is_done() && answer.whole, "{} {}", answer.head, answer.text());
    assert_eq!(place.bench.edge.process.wait_exit(SOON)?, 0);
    Ok(())
}

// req: FEN-2, FEN-6
#[test]
fn requests_that_meet_the_death_of_their_node_are_served_after_it_or_failed_and_never_both()
-> anyhow::Result<()> {
    let mut place = Place::start(|edge| edge)?;
    let mut random = Random::for_test("bursts");
    let texts = crowd::texts(&place.bench)?;
    let (mut served, mut failed, mut requeued) = (0, 0, 0);
    for burst in 0..60 {
        let delay = random.before(Duration::from_millis(4));
        let asks: Vec<_> = (0..SLOTS).map(|i| if i % 2 == 0 { STREAM } else { WHOLE }).collect();
        let before = stats(&place.bench.provider)?["requests_started"].as_u64().context("started")?;
        let (edge, token) = (place.bench.edge.http.clone(), place.bench.site.token().to_owned());
        let seen = std::thread::scope(|scope| -> anyhow::Result<Vec<Seen>> {
            let ask = |ask| {
                let (edge, token) = (&edge, &token);
                scope.spawn(move || crowd::ask(edge, token, ask, Duration::ZERO, &Progress::default()))
            };
            let clients: Vec<_> = asks.iter().map(ask).collect();
            std::thread::sleep(delay);
            place.kill(Victim::Node)?;
            place.revive(Victim::Node)?;
            place.node_is_back()?;
            clients.into_iter().map(|c| c.join().map_err(|_| anyhow::anyhow!("panicked"))?).collect()
        })?;
        for (ask, seen) in asks.iter().zip(&seen) {
            let outcome = crowd::judge(ask, seen, &texts).with_context(|| format!("{seen:?}"))?;
            let Seen::Answer(answer) = seen else { anyhow::bail!("burst {burst}: {seen:?}") };
            let attempts: u32 = answer.header("x-iop-attempts").context("attempts")?.parse()?;
            match outcome {
                Outcome::Exact => served += 1,
                Outcome::ErrorEvent(code) | Outcome::Refused(502, code) if code == "upstream_error" => {
                    failed += 1
                }
                _ => anyhow::bail!("burst {burst}: {outcome}: {seen:?}"),
            }
            requeued += usize::from(attempts > 1);
        }
        place.balances()?;
        // Whatever may have reached the provider has not been sent there twice.
        let started = stats(&place.bench.provider)?["requests_started"].as_u64().context("started")?;
        ensure!(started - before <= asks.len() as u64, "{} requests for {}", started - before, asks.len());
    }
    println!("{served} served, {failed} failed, {requeued} placed again");
    assert!(served > 0 && failed > 0, "the kills hit both sides of the sending");
    Ok(())
}

// req: TUN-7
#[test]
fn a_provider_that_was_replaced_under_kept_connections_serves_the_next_requests_at_once() -> anyhow::Result<()>
{
    let mut place = Place::start(|edge| edge)?;
    let texts = crowd::texts(&place.bench)?;
    let slow = Ask { stream: false, script: "prefill=30ms events=5", events: 5 };
    for death in 0..20 {
        // Six at a time make six connections, which the Node keeps.
        together(&place, &[slow; SLOTS])?;
        let kept = stats(&place.bench.provider)?["connections_serving"].as_u64().context("serving")?;
        ensure!(kept >= SLOTS as u64, "{kept} connections");
        place.kill(Victim::Provider)?;
        place.revive(Victim::Provider)?;
        let asks = [STREAM, WHOLE, STREAM, WHOLE, STREAM, WHOLE];
        for (ask, seen) in asks.iter().zip(together(&place, &asks)?) {
            let outcome = crowd::judge(ask, &seen, &texts)?;
            ensure!(outcome == Outcome::Exact, "death {death}: {outcome}: {seen:?}");
        }
        ensure!(stats(&place.bench.provider)?["requests_started"] == SLOTS, "each came once");
    }
    place.balances()
}

// req: SUP-5
#[test]
fn a_node_that_dials_at_once_does_not_spin_while_its_edge_is_away() -> anyhow::Result<()> {
    const DIALS: f64 = 50.0;
    let mut place = Place::start(|edge| edge)?;
    let failed = |place: &Place| place.bench.node_metric("iop_node_dials_total{outcome=\"connect\"}");
    place.kill(Victim::Edge)?;
    eventually(SOON, "it dials", || Ok(failed(&place)? > 0.0))?;
    let pid = place.bench.node.pid();
    let (started, before, cpu) = (Instant::now(), failed(&place)?, procfs::cpu(pid)?);
    eventually(SOON * 6, "it goes on dialling", || Ok(failed(&place)? >= before + DIALS))?;
    let (took, dials, cpu) = (started.elapsed(), failed(&place)? - before, procfs::cpu(pid)? - cpu);
    println!("{dials} dials and {cpu:?} of CPU time in {took:?}");
    // 20 ms, less a fifth, for each but the first.
    assert!(took.as_secs_f64() > (dials - 2.0) * 0.016, "{dials} dials in {took:?}");
    assert!(cpu < took / 4, "{cpu:?} in {took:?}");
    place.revive(Victim::Edge)?;
    assert!(place.bench.chat(true, "")?.is_done());
    Ok(())
}

/// Nodes of the herd.
const HERD_NODES: usize = 3;
/// Its clients, and what each wants answered.
const HERD_CLIENTS: usize = 20;
const HERD_REQUESTS: usize = 8;

/// What stood between a client and its answers.
#[derive(Debug, Default)]
struct Hurdles {
    /// Broken off, or without an answer; and when the last of them was begun.
    broken: usize,
    last_broken: Option<Instant>,
    /// Nothing listened.
    refused: usize,
    /// 429 with a time.
    told_to_wait: usize,
}

/// Asks until it has all its answers, as an SDK does: again after a refusal, and not before it was told.
fn insist(edge: &str, token: &str, give_up: Instant) -> anyhow::Result<Hurdles> {
    let mut hurdles = Hurdles::default();
    let mut served = 0;
    while served < HERD_REQUESTS {
        ensure!(Instant::now() < give_up, "{served} served: {hurdles:?}");
        let (begun, mut wait) = (Instant::now(), Duration::from_millis(50));
        match Raw::connect(edge) {
            Err(_) => hurdles.refused += 1,
            Ok(mut client) => {
                let body = http::chat_body(MODEL, served % 2 == 0, "events=5 gap=4ms");
                let answer: Option<Answer> = client
                    .send(http::chat_request(token, &body))
                    .and_then(|()| client.answer())
                    .ok()
                    .filter(|answer| answer.whole);
                match answer {
                    None => {
                        hurdles.broken += 1;
                        hurdles.last_broken = Some(begun);
                    }
                    Some(answer) if answer.status == 429 => {
                        assert_error(&answer, 429, Some("rate_limit_exceeded"));
                        hurdles.told_to_wait += 1;
                        wait = Duration::from_secs(
                            answer.header("retry-after").context("retry-after")?.parse()?,
                        );
                    }
                    Some(answer) => {
                        ensure!(answer.status == 200, "{} {}", answer.head, answer.text());
                        served += 1;
                        continue;
                    }
                }
            }
        }
        std::thread::sleep(wait);
    }
    Ok(hurdles)
}

/// An Edge whose queue is the default's 16, with [`HERD_NODES`] of two slots each.
fn herd(site: &iop_tests::Site, base_url: &str) -> anyhow::Result<(std::path::PathBuf, Edge, Vec<Process>)> {
    let mut yaml = EdgeYaml { http: steady_address()?, node: steady_address()?, ..yaml() };
    for n in 1..=HERD_NODES {
        let provider = ProviderYaml { capacity: 2, ..provider_at(base_url) };
        yaml = yaml.with(ProviderYaml { id: format!("p{n}"), node: format!("box{n}"), ..provider });
    }
    let config = site.configure(&yaml)?;
    let edge = site.edge_on(&config)?;
    let mut nodes = Vec::new();
    for n in 1..=HERD_NODES {
        let join = site.join_bundle(&format!("box{n}"), &edge.node)?;
        std::fs::write(&join, with_reconnect(&std::fs::read_to_string(&join)?, AT_ONCE))?;
        let mut node = site.start("node", "iop-node", &["run", "--join", path(&join)?])?;
        node.wait_for("node ready")?;
        nodes.push(node);
    }
    Ok((config, edge, nodes))
}

/// Case 90 with one Edge: its death fails what is in flight, once, and nothing else.
// req: SUP-2, FEN-3
#[test]
fn a_herd_that_comes_again_after_the_death_of_the_edge_is_served_without_another_failure()
-> anyhow::Result<()> {
    let site = site()?;
    let provider = site.provider(&[])?;
    let (config, mut edge, nodes) = herd(&site, &provider.base_url())?;
    let (address, token) = (edge.http.clone(), site.token().to_owned());
    let give_up = Instant::now() + Duration::from_secs(60);
    let (hurdles, back) = std::thread::scope(|scope| -> anyhow::Result<(Vec<Hurdles>, Instant)> {
        let insist = || scope.spawn(|| insist(&address, &token, give_up));
        let clients: Vec<_> = (0..HERD_CLIENTS).map(|_| insist()).collect();
        eventually(SOON, "the herd is at work", || {
            Ok(metric(&edge, "iop_edge_requests_active")? > 0.0
                && stats(&provider)?["requests_completed"].as_u64() > Some(20))
        })?;
        edge.process.kill();
        edge = site.edge_on(&config)?;
        let back = Instant::now();
        let hurdles = clients.into_iter().map(|c| c.join().map_err(|_| anyhow::anyhow!("panicked"))?);
        Ok((hurdles.collect::<anyhow::Result<_>>()?, back))
    })?;
    let sum = |of: fn(&Hurdles) -> usize| hurdles.iter().map(of).sum::<usize>();
    println!(
        "{} broken, {} found nobody, {} told to wait",
        sum(|h| h.broken),
        sum(|h| h.refused),
        sum(|h| h.told_to_wait)
    );
    for one in &hurdles {
        assert!(one.last_broken < Some(back), "a failure after the restart: {hurdles:?}");
    }
    assert!(sum(|h| h.broken) > 0, "the death hit something: {hurdles:?}");
    for gauge in ["iop_edge_leases", "iop_edge_queued", "iop_edge_requests_active"] {
        eventually(SOON, gauge, || Ok(metric(&edge, gauge)? == 0.0))?;
    }
    for node in &nodes {
        assert_eq!(node.text().matches("node ready").count(), 2, "{}", node.text());
    }
    Ok(())
}
