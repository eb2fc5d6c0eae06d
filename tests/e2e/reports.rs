//! What users of such gateways report, where it fits no topic of its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use iop_tests::{
    EdgeYaml, ProviderYaml,
    http::{self, Raw},
    played::{Exchange, Played},
};
use serde_json::Value;

use crate::support::{
    MODEL, NODE, SOON, eventually, is_matrix_only, node_status, provider_at, site, start_node, sum, yaml,
};

const SSE: &str = "text/event-stream";
/// What a client brings for its provider.
const CLIENTS: &str = "sk-canary-of-the-client-2f77";
/// What stands in the configuration, by way of the environment.
const CONFIGURED: &str = "canary-of-the-file-91c0";

/// How a provider fails: said by the request itself, as its user's words.
fn fail(exchange: &mut Exchange<'_>) -> anyhow::Result<()> {
    if exchange.method == "GET" {
        return exchange.answer_json(200, &serde_json::json!({ "data": [{ "id": MODEL }] }));
    }
    let how = exchange.json()?["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
    match how.as_str() {
        "500" => exchange.answer_json(500, &serde_json::json!({ "error": { "message": "x" } })),
        "401" => exchange.answer_json(401, &serde_json::json!({ "error": { "message": "no such key" } })),
        "302" => exchange.answer(302, "text/plain", b"elsewhere"),
        "not json" => exchange.answer(200, "application/json", b"{\"choices\":"),
        "cut in a body" => {
            exchange.begin(200, "application/json")?;
            exchange.part(b"{\"choices\":")?;
            anyhow::bail!("cut")
        }
        "cut in a stream" => {
            exchange.begin(200, SSE)?;
            exchange.part(b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")?;
            anyhow::bail!("cut")
        }
        "an error in a stream" => {
            exchange.begin(200, SSE)?;
            exchange.part(b"data: {\"error\":{\"message\":\"no\",\"code\":500}}\n\n")?;
            exchange.end()
        }
        "a long field" => exchange.answer(200, &"x".repeat(200_000), b"{}"),
        "silence" => {
            exchange.is_left(Duration::from_secs(60))?;
            anyhow::bail!("left")
        }
        // No answer at all: the connection ends.
        _ => anyhow::bail!("cut before the head"),
    }
}

// Case 41 of what users report: whatever goes wrong, no credential comes to light.
#[test]
fn no_way_to_fail_brings_a_credential_to_light() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let played = Played::start(fail)?;
    let plain = played.url().replace("http://", "");
    let mut site = site()?;
    site.set_env("RUST_LOG", "trace");
    site.set_env("IOP_CANARY", CONFIGURED);
    let at = |id: &str, url: String| ProviderYaml {
        models: vec![id.to_owned()],
        extra: "headers: { x-canary: \"${IOP_CANARY}\" }, response_stall_timeout_ms: 1000".to_owned(),
        ..ProviderYaml::new(id, NODE, &url, id)
    };
    let config = EdgeYaml {
        openai: "  provider_auth: { enabled: true }\n".to_owned(),
        ..yaml()
            .with(at(MODEL, format!("{}/v1", played.url())))
            .with(at("refused", "http://127.0.0.1:9/v1".to_owned()))
            .with(at("nowhere", "http://no-such-host.invalid/v1".to_owned()))
            .with(at("no-tls", format!("https://{plain}/v1")))
    };
    let edge = site.edge(&config)?;
    let (node, node_ops) = start_node(&site, NODE, &edge.node)?;
    let ask = |model: &str, how: &str, stream: bool| -> anyhow::Result<Raw> {
        let mut body = http::chat_body(model, stream, "");
        body["messages"] = serde_json::json!([{ "role": "user", "content": how }]);
        let request = String::from_utf8(http::chat_request(site.token(), &body))?;
        let line = format!("\r\nX-IOP-Provider-Authorization: Bearer {CLIENTS}\r\n");
        let mut client = Raw::connect(&edge.http)?;
        client.send(request.replacen("\r\n", &line, 1))?;
        Ok(client)
    };
    let mut told = Vec::new();
    for how in [
        "500",
        "401",
        "302",
        "not json",
        "cut in a body",
        "cut in a stream",
        "an error in a stream",
        "a long field",
        "silence",
        "nothing",
    ] {
        for stream in [false, true] {
            told.push((how, ask(MODEL, how, stream)?.answer()?));
        }
    }
    for model in ["refused", "nowhere", "no-tls", "unknown"] {
        told.push((model, ask(model, "x", false)?.answer()?));
    }
    // One that leaves, and a head that is refused with the credential in it.
    let leaves = ask(MODEL, "silence", true)?;
    eventually(SOON, "it runs", || Ok(node_status(&edge)?["providers"][0]["in_flight"] == 1))?;
    drop(leaves);
    eventually(SOON, "it has left", || Ok(node_status(&edge)?["providers"][0]["in_flight"] == 0))?;
    let mut refused = Raw::connect(&edge.http)?;
    refused.send(format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nX-IOP-Provider-Authorization: Bearer {CLIENTS}\r\n \
         folded\r\n\r\n"
    ))?;
    told.push(("a head that is refused", refused.answer()?));

    // The ways to fail were taken: otherwise nothing is proved.
    for (how, answer) in &told {
        let is_bad = answer.status >= 300 || !answer.whole || !answer.error_events().is_empty();
        assert!(is_bad || *how == "not json", "{how}: {}\n{}", answer.head, answer.text());
    }
    let mut places: Vec<_> = told.iter().map(|(how, a)| (*how, format!("{}{}", a.head, a.text()))).collect();
    places.push(("the Edge's log", edge.process.text()));
    places.push(("the Node's log", node.text()));
    for (name, address) in [("the Edge", &edge.ops), ("the Node", &node_ops)] {
        places.push((name, http::get(address, "/metrics", None)?.text()));
    }
    places.push(("status", http::get(&edge.ops, "/status", None)?.text()));
    let file = site.dir().join("edge.yaml");
    let shown = std::process::Command::new(site.program("iop-edge"))
        .args(["config", "show", "--effective", "--config"])
        .arg(&file)
        .env("IOP_CANARY", CONFIGURED)
        .output()?;
    anyhow::ensure!(shown.status.success(), "{shown:?}");
    places.push(("the effective configuration", String::from_utf8_lossy(&shown.stdout).into_owned()));
    for (place, text) in &places {
        for canary in [CLIENTS, CONFIGURED] {
            let at = text.lines().find(|line| line.contains(canary));
            assert!(at.is_none(), "{place}: {at:?}");
        }
    }
    let log = edge.process.text();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "the log is one of everything");
    Ok(())
}

/// A provider like uvicorn behind a short `--timeout-keep-alive`: it ends a connection that has been quiet for a moment, without
/// a look at what may be on its way.
fn impatient(served: &Arc<AtomicUsize>) -> anyhow::Result<Played> {
    let served = Arc::clone(served);
    Played::start(move |exchange| {
        if exchange.method == "GET" {
            return exchange.answer_json(200, &serde_json::json!({ "data": [{ "id": MODEL }] }));
        }
        served.fetch_add(1, Relaxed);
        exchange.answer_json(200, &serde_json::json!({ "choices": [] }))?;
        anyhow::ensure!(!exchange.is_quiet(Duration::from_millis(20))?, "quiet for too long");
        Ok(())
    })
}

// Case 78 of what users report: connections that their server ends while they wait for the next request.
#[test]
fn ten_thousand_requests_with_pauses_meet_no_connection_that_their_provider_is_ending() -> anyhow::Result<()>
{
    if is_matrix_only() {
        return Ok(());
    }
    const CLIENTS: usize = 40;
    const EACH: usize = 250;
    let served = Arc::new(AtomicUsize::new(0));
    let played = impatient(&served)?;
    let site = site()?;
    let provider = ProviderYaml { capacity: 64, ..provider_at(&format!("{}/v1", played.url())) };
    let edge = site.edge(&yaml().with(provider))?;
    let (node, _) = start_node(&site, NODE, &edge.node)?;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (address, token) = (edge.http.clone(), site.token().to_owned());
            std::thread::spawn(move || -> anyhow::Result<()> {
                let mut random = iop_tests::random::Random::new(client as u64);
                let request = http::chat_request(&token, &http::chat_body(MODEL, false, ""));
                let mut connection = Raw::connect(&address)?;
                for _ in 0..EACH {
                    connection.send(&request)?;
                    let answer = connection.answer()?;
                    anyhow::ensure!(answer.status == 200, "{}\n{}", answer.head, answer.text());
                    // Most of all around the moment at which the provider ends what is quiet.
                    std::thread::sleep(Duration::from_micros(random.within(0..45_000)));
                }
                Ok(())
            })
        })
        .collect();
    for client in clients {
        client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
    }
    // Not one of them was run twice, either.
    assert_eq!(served.load(Relaxed), CLIENTS * EACH);
    assert_eq!(sum(&edge, "iop_edge_requests_total{outcome=\"ok\"")?, (CLIENTS * EACH) as f64);
    let status: Value = node_status(&edge)?;
    assert_eq!(status["providers"][0]["in_flight"], 0, "{status}");
    drop(node);
    Ok(())
}
