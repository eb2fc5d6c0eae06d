//! What is no stall: an end that comes first, and a client that does not read.

use std::{
    io::Read,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use iop_tests::{
    EdgeYaml, ProviderYaml,
    bench::{NODE, RETRY, SOON, eventually, metric, node_metric, node_ops, site, sum, yaml},
    http::{self, PATIENCE, Raw},
    played::{Exchange, Played},
};
use proto::message::{ErrorKind, ExecutionError};
use serde_json::json;

use super::{
    DRILL, Stand, TIMEOUT, Told,
    scene::{Case, Health, Kind, Leaves, Stop},
};

const KINDS: [Kind; 2] = [Kind::Tunnel, Kind::Run];

fn silent(stop: Stop) -> impl Iterator<Item = Case> {
    KINDS.into_iter().map(move |kind| Case { kind, stop, health: Health::Dead, leaves: Leaves::AtOnce })
}

/// The only terminal of the only execution at a provider.
fn terminal(told: &[Told]) -> anyhow::Result<&ExecutionError> {
    let [told] = told else { anyhow::bail!("{told:?}") };
    let [(_, Some(error))] = told.terminals.as_slice() else { anyhow::bail!("{:?}", told.terminals) };
    Ok(error)
}

/// No stall was seen by anybody, for longer than one takes.
fn nothing_stalls(stand: &Stand) -> anyhow::Result<()> {
    std::thread::sleep(TIMEOUT + Duration::from_secs(1));
    ensure!(!stand.node.text().contains("node_response_stall_observation"), "a stall");
    ensure!(sum(&stand.edge, "iop_edge_provider_health_evidence_total")? == 0.0, "evidence");
    for scene in &stand.scenes {
        ensure!(!stand.is_overlaid(scene)?, "{} is out", scene.name());
    }
    eventually(SOON, "every slot is free", || Ok(metric(&stand.edge, "iop_edge_leases")? == 0.0))
}

// req: PRE-1, STL-6, TUN-8
#[test]
fn a_deadline_as_long_as_a_stall_takes_comes_first_and_is_no_evidence() -> anyhow::Result<()> {
    for stop in [Stop::BeforeHeaders, Stop::AfterHeaders] {
        let stand = Stand::with(silent(stop), &format!("request_timeout_ms: {}", TIMEOUT.as_millis()))?;
        let clients =
            stand.scenes.iter().map(|scene| stand.ask(scene, DRILL)).collect::<anyhow::Result<Vec<_>>>()?;
        for mut client in clients {
            let answer = client.answer()?;
            ensure!(answer.status == 504 || !answer.whole, "{}{}", answer.head, answer.text());
        }
        let told = stand.told();
        for scene in &stand.scenes {
            let error = terminal(told.get(scene.name()).context("it was dispatched")?)?;
            assert_eq!((error.kind, &error.failure), (ErrorKind::Deadline, &None), "{}", scene.name());
        }
        nothing_stalls(&stand)?;
    }
    Ok(())
}

// req: PRE-1, STL-6, CAN-1
#[test]
fn a_client_that_leaves_before_a_stall_is_a_cancel_and_no_evidence() -> anyhow::Result<()> {
    let stand = Stand::with(silent(Stop::AfterHeaders), "priority: 0")?;
    let clients =
        stand.scenes.iter().map(|scene| stand.ask(scene, DRILL)).collect::<anyhow::Result<Vec<_>>>()?;
    for scene in &stand.scenes {
        eventually(PATIENCE, scene.name(), || Ok(scene.stage.arrived.load(SeqCst) == 1))?;
    }
    drop(clients);
    for scene in &stand.scenes {
        eventually(SOON, scene.name(), || Ok(scene.stage.left.load(SeqCst) == 1))?;
    }
    nothing_stalls(&stand)?;
    let told = stand.told();
    for scene in &stand.scenes {
        let [told] = told.get(scene.name()).context("it was dispatched")?.as_slice() else {
            anyhow::bail!("dispatched once");
        };
        let [(_, end)] = told.terminals.as_slice() else { anyhow::bail!("{:?}", told.terminals) };
        let is_cancel =
            |error: &ExecutionError| error.kind == ErrorKind::Cancelled && error.failure.is_none();
        ensure!(end.as_ref().is_none_or(is_cancel), "{end:?}");
    }
    Ok(())
}

/// Bytes of an event of a provider that is never silent.
const LARGE: usize = 4000;

/// Sends until it is told that it is enough, and ends as it should.
fn pours(kind: Kind, exchange: &mut Exchange, enough: &AtomicBool) -> anyhow::Result<()> {
    let text = "x".repeat(LARGE);
    if kind == Kind::Run {
        exchange.begin(200, "application/x-ndjson")?;
        let line = |text: &str, done| {
            let message = json!({ "role": "assistant", "content": text });
            format!("{}\n", json!({ "model": "m", "message": message, "done": done, "done_reason": "stop" }))
        };
        while !enough.load(SeqCst) {
            exchange.part(line(&text, false).as_bytes())?;
        }
        exchange.part(line("", true).as_bytes())?;
    } else {
        exchange.begin(200, "text/event-stream")?;
        let event =
            json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }] });
        while !enough.load(SeqCst) {
            exchange.part(format!("data: {event}\n\n").as_bytes())?;
        }
        exchange.part(b"data: [DONE]\n\n")?;
    }
    exchange.end()
}

// req: STL-3, WIR-6
#[test]
fn a_client_that_reads_nothing_for_longer_than_a_stall_takes_is_none() -> anyhow::Result<()> {
    let (site, enough) = (site()?, Arc::new(AtomicBool::new(false)));
    let played = KINDS
        .into_iter()
        .map(|kind| {
            let enough = Arc::clone(&enough);
            Played::start(move |exchange| pours(kind, exchange, &enough))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let extra = format!("response_stall_timeout_ms: {}", TIMEOUT.as_millis());
    let providers = [
        ProviderYaml::new("tunnel", NODE, &format!("{}/v1", played[0].url()), "tunnel"),
        ProviderYaml::ollama("run", NODE, &played[1].url(), &["run"]),
    ];
    let limits = "write_stall_ms: 60000".to_owned();
    let config = providers
        .into_iter()
        .fold(EdgeYaml { limits, ..yaml() }, |yaml, p| yaml.with(ProviderYaml { extra: extra.clone(), ..p }));
    let edge = site.edge(&config)?;
    let metrics = format!("{RETRY}\nmetrics: {{ listen: \"127.0.0.1:0\" }}");
    let mut node = site.node_with(NODE, &edge.node, &metrics)?;
    node.wait_for("node ready")?;
    let node_ops = node_ops(&node)?;

    let mut clients = Vec::new();
    for model in ["tunnel", "run"] {
        let mut client = Raw::connect_narrow(&edge.http, 16 * 1024)?;
        client.send(http::chat_request(site.token(), &http::chat_body(model, true, "")))?;
        client.stream.read_exact(&mut [0; LARGE])?;
        clients.push(client);
    }
    // Until nothing comes from the providers any more, and then for longer than they may be silent.
    let read = || node_metric(&node_ops, "iop_node_provider_read_bytes_total");
    let mut last = 0.0;
    eventually(PATIENCE, "all stands still", || {
        std::thread::sleep(Duration::from_millis(300));
        let before = std::mem::replace(&mut last, read()?);
        Ok(before == last && last > 0.0)
    })?;
    std::thread::sleep(2 * TIMEOUT);
    assert_eq!(read()?, last, "it still stands");
    enough.store(true, SeqCst);
    for mut client in clients {
        let mut rest = Vec::new();
        client.stream.set_read_timeout(Some(PATIENCE))?;
        // To the end of the chunked body.
        while !rest.ends_with(b"0\r\n\r\n") {
            let mut buffer = [0; 64 * 1024];
            let n = client.stream.read(&mut buffer)?;
            ensure!(n > 0, "cut: {}", String::from_utf8_lossy(&rest[rest.len().saturating_sub(300)..]));
            rest.extend_from_slice(&buffer[..n]);
        }
        let end = String::from_utf8_lossy(&rest[rest.len().saturating_sub(300)..]).into_owned();
        ensure!(end.contains("[DONE]") && !end.contains("\"error\""), "{end}");
    }
    ensure!(!node.text().contains("node_response_stall_observation"), "a stall");
    eventually(SOON, "every slot is free", || Ok(metric(&edge, "iop_edge_leases")? == 0.0))?;
    node.kill();
    Ok(())
}
