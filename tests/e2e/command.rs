//! `iop-edge node command` with a real Node and a scripted provider (CMD-1, CAP-1).

use iop_tests::{
    EdgeYaml, ProviderYaml, Site,
    http::{self, Raw},
    ollama::Ollama,
    site::{path, tool},
};
use serde_json::Value;

use crate::support::{Bench, MODEL, NODE, SOON, eventually, node_status, run, site, start_node, yaml};

const SOCKET: &str = "admin.sock";
const ADAPTER: &str = "p1-adapter";

fn bench(health: &str) -> anyhow::Result<Bench> {
    let health = health.to_owned();
    let provider = |provider| ProviderYaml { extra: health, ..provider };
    Bench::with(&["--models", MODEL], provider, |yaml| EdgeYaml { admin_socket: SOCKET.to_owned(), ..yaml })
}

/// What `iop-edge node command NODE …` prints, as it must.
fn ask(site: &Site, words: &[&str]) -> anyhow::Result<String> {
    let socket = site.dir().join(SOCKET);
    let args = [&["node", "command", NODE], words, &["--socket", path(&socket)?]].concat();
    tool(&site.program("iop-edge"), &args)
}

/// What it says when it must fail.
fn refusal(site: &Site, node: &str, words: &[&str]) -> anyhow::Result<String> {
    let socket = site.dir().join(SOCKET);
    let args = [&["node", "command", node], words, &["--socket", path(&socket)?]].concat();
    let (code, said) = run(site, "iop-edge", &args)?;
    assert_eq!(code, 1, "{said}");
    Ok(said)
}

/// Sets what the provider answers with on a route.
fn script(bench: &Bench, route: &str, script: &str) -> anyhow::Result<()> {
    let mut raw = Raw::connect(bench.provider.url.trim_start_matches("http://"))?;
    let bytes = script.len();
    raw.send(format!(
        "POST /script/{route} HTTP/1.1\r\nhost: provider\r\ncontent-length: {bytes}\r\nconnection: close\r\n\r\n{script}"
    ))?;
    let answer = raw.answer()?;
    anyhow::ensure!(answer.status < 300, "{}", answer.text());
    Ok(())
}

fn probe(bench: &Bench, target: &str) -> anyhow::Result<(String, u64)> {
    let words = ["capabilities", "--adapter", ADAPTER, "--target", target, "--json"];
    let told: Value = serde_json::from_str(&ask(&bench.site, &words)?)?;
    let fields = &told["fields"];
    assert_eq!((&told["node"], &fields["adapter_key"]), (&NODE.into(), &ADAPTER.into()), "{told}");
    assert_eq!(fields["target"], target, "{told}");
    let sequence = fields["health_observation_seq"].as_str().unwrap_or_default().parse()?;
    Ok((fields["provider_status"].as_str().unwrap_or_default().to_owned(), sequence))
}

// req: CAP-1, CMD-1, STL-11
#[test]
fn an_operator_sees_what_a_probe_finds_by_list_path_and_one_token() -> anyhow::Result<()> {
    let bench = bench("health: { path: /health, generation: true }")?;
    assert_eq!(probe(&bench, MODEL)?, ("available".to_owned(), 1));
    assert_eq!(bench.seen("requests_started")?, 1, "one token was generated");
    assert_eq!(probe(&bench, "other")?, ("unavailable".to_owned(), 2));
    // A list that answers over an engine that does not.
    script(&bench, "chat", "status=500")?;
    assert_eq!(probe(&bench, MODEL)?, ("unavailable".to_owned(), 3));
    script(&bench, "chat", "")?;
    script(&bench, "health", "status=503")?;
    assert_eq!(probe(&bench, MODEL)?, ("unavailable".to_owned(), 4));
    let shown = ask(&bench.site, &["capabilities", "--adapter", ADAPTER, "--target", MODEL])?;
    assert!(shown.lines().any(|line| line == "provider_status         unavailable"), "{shown}");
    let shown = ask(&bench.site, &["transport"])?;
    assert!(
        shown.lines().any(|line| line.starts_with("provider.p1 ") && line.ends_with(" ready")),
        "{shown}"
    );
    Ok(())
}

// req: CMD-1
#[test]
fn what_cannot_be_answered_is_said() -> anyhow::Result<()> {
    let mut bench = bench("")?;
    let unknown = refusal(&bench.site, "box9", &["transport"])?;
    assert!(unknown.contains("has no node `box9`; it has box1"), "{unknown}");
    let words = ["capabilities", "--adapter", "none", "--target", MODEL];
    assert!(refusal(&bench.site, NODE, &words)?.contains("this node has no such adapter"));
    let words = ["ollama", "--adapter", ADAPTER, "tags"];
    assert!(refusal(&bench.site, NODE, &words)?.contains("not of type ollama"));
    let found = http::get(&bench.edge.ops, "/node-command?node=box1&command=transport", None)?;
    assert_eq!(found.status, 404, "only the admin socket takes questions");
    bench.node.kill();
    eventually(SOON, "the node is gone", || Ok(node_status(&bench.edge)?["connected"] == false))?;
    assert!(refusal(&bench.site, NODE, &["transport"])?.contains("is not connected"));
    Ok(())
}

// req: CMD-1
#[test]
fn the_api_of_an_ollama_server_can_be_read() -> anyhow::Result<()> {
    let (site, server) = (site()?, Ollama::start()?);
    let yaml = yaml().with(ProviderYaml::ollama("o1", NODE, &server.url(), &[MODEL]));
    let edge = site.edge(&EdgeYaml { admin_socket: SOCKET.to_owned(), ..yaml })?;
    let (_node, _) = start_node(&site, NODE, &edge.node)?;
    let words = |operation| ["ollama", "--adapter", "o1-adapter", operation];
    let version: Value = serde_json::from_str(&ask(&site, &words("version"))?)?;
    assert!(version["version"].is_string(), "{version}");
    let tags: Value = serde_json::from_str(&ask(&site, &words("tags"))?)?;
    let models = tags["models"].as_array().map_or(0, Vec::len);
    assert!(models > 0, "{tags}");
    let missing = refusal(&site, NODE, &[&words("show")[..], &["no-such-model"]].concat())?;
    assert!(missing.contains("the Ollama server answers with status 404"), "{missing}");
    assert!(server.refused().is_empty(), "{:?}", server.refused());
    Ok(())
}
