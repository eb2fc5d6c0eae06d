//! The clients that people have: the newest `openai` SDK; and the engines that they have: llama.cpp's own server.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::bail;
use iop_tests::{
    EdgeYaml, ProviderYaml,
    engine::{Context, Engine},
    http,
};

use crate::support::{Bench, MODEL, NODE, is_matrix_only, site, skip, yaml};

/// A model that no engine has to download.
const TINY: &str = "tiny";

/// The interpreter with the SDK tests' packages; `None`, and a line, where there is none and that is no failure.
pub fn python() -> anyhow::Result<Option<PathBuf>> {
    if is_matrix_only() {
        return Ok(None);
    }
    match std::env::var_os("IOP_TEST_PYTHON") {
        Some(python) => Ok(Some(python.into())),
        None => {
            skip("IOP_TEST_PYTHON is not set; `cargo xtask test` makes the environment and sets it")?;
            Ok(None)
        }
    }
}

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// Runs the SDK's checks against an Edge; what they say is the error.
fn check(python: &Path, edge: &str, token: &str, model: &str, checks: &str) -> anyhow::Result<()> {
    run(python, "sdk/openai_client.py", edge, &[token, model, checks])
}

/// Runs one of the scripts against an Edge; what it says is the error.
pub fn run(python: &Path, script: &str, edge: &str, args: &[&str]) -> anyhow::Result<()> {
    let url = format!("http://{edge}/v1");
    let output = Command::new(python).arg(here(script)).arg(url).args(args).output()?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    if !output.status.success() {
        bail!("{script}: {text}");
    }
    Ok(())
}

#[test]
fn the_openai_sdk_streams_lists_and_gets_its_typed_errors() -> anyhow::Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let bench = Bench::with(&[], |p| p, |edge| EdgeYaml { limits: "body_bytes: 200000".to_owned(), ..edge })?;
    check(&python, &bench.edge.http, bench.site.token(), MODEL, "scripted")?;
    bench.settles()
}

#[test]
fn the_openai_sdk_that_leaves_a_stream_stops_the_provider() -> anyhow::Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let bench = Bench::one_slot()?;
    check(&python, &bench.edge.http, bench.site.token(), MODEL, "leaving")?;
    bench.settles()?;
    assert!(bench.seen("aborts_seen")? >= 1);
    Ok(())
}

// req: POL-5
#[test]
fn the_openai_sdk_understands_that_the_edge_is_full_and_when_to_come_again() -> anyhow::Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let bench = Bench::with(
        &[],
        |provider| ProviderYaml { capacity: 1, ..provider },
        |edge| EdgeYaml { pool: "max_queue: 1, queue_timeout_ms: 1000".to_owned(), ..edge },
    )?;
    check(&python, &bench.edge.http, bench.site.token(), MODEL, "overloaded")?;
    bench.settles()
}

#[test]
fn a_real_engine_streams_its_tokens_through_node_and_edge() -> anyhow::Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let site = site()?;
    let engine = Engine::start(&python, site.dir(), Context::Short)?;
    let edge = site.edge(&yaml().with(ProviderYaml::new("llama", NODE, &engine.base_url(), TINY)))?;
    let _node = site.node(NODE, &edge)?;

    let mut body = http::chat_body(TINY, true, "");
    body["max_tokens"] = 24.into();
    body["stream_options"] = serde_json::json!({ "include_usage": true });
    let answer = http::chat(&edge.http, site.token(), &body)?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.is_done() && answer.whole, "{}", answer.text());
    let tokens = answer.events().iter().filter(|event| event.contains("\"content\"")).count();
    assert!(tokens >= 8, "a token at a time: {}", answer.text());
    assert!(
        answer.text().contains("\"finish_reason\":\"length\"")
            || answer.text().contains("\"finish_reason\":\"stop\"")
    );
    check(&python, &edge.http, site.token(), TINY, "engine")
}
