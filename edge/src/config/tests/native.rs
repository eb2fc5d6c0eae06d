//! Backends with a language of their own: types `ollama` and `cli` (POL-7).

use std::{collections::BTreeMap, time::Duration};

use control::{
    effect::Grant,
    input::{ConnectionId, LeaseId, RequestId},
};
use proto::message::{AdapterSettings, CliConfig, OllamaConfig};

use super::*;
use crate::config::capability;

/// A model that a tunnel, an Ollama server and a program serve.
const MIXED: &str = r#"openai:
  provider_id: local
  model_routes:
    - { model: raw, adapter: own, target: "llama3:8b" }
models:
  - id: m
    providers: [vllm, ollama, cli]
nodes:
  - id: box1
    adapters:
      - { name: tunnel, type: openai_compat }
      - { name: own, type: ollama, settings: { endpoint: "http://h:11434/" } }
      - { name: program, type: cli }
    providers:
      - { id: vllm, type: vllm, category: local_inference, adapter: tunnel, models: [m] }
      - { id: ollama, type: ollama, category: local_inference, adapter: own, models: [m], context_size: 8192 }
      - { id: cli, type: cli, category: cli, adapter: program, models: [m], command: /usr/bin/llm, args: ["-m", "${HOST}"], env: { KEY: "${SECRET}" }, output_format: json }
"#;

fn adapters(settings: &Settings) -> Vec<&AdapterSettings> {
    settings.nodes[0].payload.adapters.iter().map(|adapter| &adapter.settings).collect()
}

fn granted(adapter: &str, provider: &str, direct: bool) -> Grant {
    Grant {
        request: RequestId(1),
        lease: LeaseId(1),
        connection: ConnectionId(1),
        generation: 1,
        node: "box1".into(),
        direct,
        provider: provider.into(),
        adapter: adapter.into(),
        target: "m".into(),
        stall_timeout: Duration::ZERO,
        request_timeout: Duration::ZERO,
        queued_for: Duration::ZERO,
        attempt: 1,
    }
}

// req: POL-7, CFG-5
#[test]
fn one_model_mixes_providers_of_every_type_and_the_adapter_decides_the_path() {
    let settings = load(MIXED).unwrap();
    let members: Vec<&str> = settings.pool.groups[0].members.iter().map(|member| &*member.provider).collect();
    assert_eq!(members, ["vllm", "ollama", "cli"]);
    let needed = capability::union(capability::CHAT, capability::STREAMING);
    let providers = &settings.pool.nodes[0].providers;
    assert!(providers.iter().all(|provider| provider.capabilities.covers(needed)), "no type is excluded");
    assert!(
        !providers[1].capabilities.covers(capability::COUNT_TOKENS),
        "what it cannot do is no capability of it"
    );
    let others = capability::union(capability::MESSAGES, capability::RESPONSES);
    assert!(providers.iter().all(|provider| provider.capabilities.covers(others)), "by translation");
    for provider in &settings.nodes[0].providers {
        assert!(!provider.capabilities.covers(capability::MESSAGES), "what it has itself is something else");
    }
    let AdapterSettings::OpenAiCompat(_) = adapters(&settings)[0] else { panic!("a tunnel") };
    assert_eq!(
        adapters(&settings)[1],
        &AdapterSettings::Ollama(OllamaConfig { base_url: "http://h:11434".to_owned(), context_size: 8192 })
    );
    assert_eq!(
        adapters(&settings)[2],
        &AdapterSettings::Cli(CliConfig {
            command: "/usr/bin/llm".to_owned(),
            args: vec!["-m".to_owned(), "10.0.0.7".to_owned()],
            env: BTreeMap::from([("KEY".to_owned(), "hunter2".to_owned())]),
            mode: "stdin".to_owned(),
            output_format: "json".to_owned(),
        })
    );
    assert_eq!(settings.nodes[0].payload.providers[1].models, ["m"]);
    for (adapter, provider, native) in
        [("tunnel", "vllm", false), ("own", "ollama", true), ("program", "cli", true)]
    {
        assert_eq!(settings.is_native(&granted(adapter, provider, false)), native, "{provider}");
        // Of a direct route the provider is but a name.
        assert_eq!(settings.is_native(&granted(adapter, "anyone", true)), native, "{adapter}");
    }
}

// req: CFG-12, CFG-10
#[test]
fn the_single_instance_of_earlier_files_is_one_without_settings_of_its_own() {
    let text = "openai: { provider_id: x }\nmodels: [{ id: m, providers: [p] }]\nnodes:\n  - id: box1\n    adapters: { ollama: { enabled: true } }\n    providers: [{ id: p, type: ollama, category: local_inference, adapter: ollama, models: [m] }]\n";
    let settings = load(text).unwrap();
    let config = OllamaConfig { base_url: "http://127.0.0.1:11434".to_owned(), context_size: 0 };
    assert_eq!(adapters(&settings), [&AdapterSettings::Ollama(config)]);
    assert_eq!(settings.nodes[0].payload.adapters[0].name, "ollama");
}

// req: FRB-3
#[test]
fn what_makes_no_sense_is_refused_with_its_place() {
    for (from, to, part) in [
        ("command: /usr/bin/llm", "command: ''", "nodes[0].providers[2].command: expected the program"),
        ("command: /usr/bin/llm", "command: llm", "nodes[0].providers[2].command: expected an absolute path"),
        (
            "command: /usr/bin/llm",
            "command: ./llm",
            "nodes[0].providers[2].command: expected an absolute path",
        ),
        (
            "command: /usr/bin/llm",
            "command: /usr/bin/llm, resume_args: [\"-r\"]",
            "nodes[0].providers[2].resume_args: expected none",
        ),
        (
            "command: /usr/bin/llm",
            "command: /usr/bin/llm, mode: pty",
            "nodes[0].providers[2].mode: expected one of stdin",
        ),
        (
            "output_format: json",
            "output_format: xml",
            "nodes[0].providers[2].output_format: expected one of text, json, stream-json",
        ),
        (
            "command: /usr/bin/llm",
            "command: /usr/bin/llm, context_size: 5",
            "nodes[0].providers[2].context_size: this key belongs",
        ),
        (
            "command: /usr/bin/llm",
            "command: /usr/bin/llm, base_url: 'http://h'",
            "nodes[0].providers[2].base_url: this key belongs",
        ),
        ("KEY:", "'K-Y':", "nodes[0].providers[2].env.K-Y: expected the name of a variable"),
        ("context_size: 8192", "context_size: -1", "nodes[0].providers[1].context_size: expected"),
        (
            "context_size: 8192",
            "command: x",
            "nodes[0].providers[1].command: this key belongs to providers of type cli",
        ),
        ("context_size: 8192", "profile: ollama", "nodes[0].providers[1].profile: this key belongs"),
        ("context_size: 8192", "headers: { x-a: b }", "nodes[0].providers[1].headers: this key belongs"),
        (
            "context_size: 8192",
            "base_url: 'http://h:1/v1'",
            "nodes[0].providers[1].base_url: type ollama speaks Ollama's own API: expected its address without /v1",
        ),
        (
            "id: ollama, type: ollama",
            "id: ollama, type: vllm, profile: vllm, base_url: 'http://h'",
            "nodes[0].providers[1].context_size: this key belongs",
        ),
        (
            "adapter: own, models",
            "adapter: tunnel, models",
            "nodes[0].providers[1].type: a provider of type ollama needs an adapter of that type, and `tunnel` is of type openai_compat",
        ),
        (
            "models: [m], context_size",
            "models: [other], context_size",
            "models[0].providers[1]: provider `ollama` does not serve `m`: its models are other; use one of these names",
        ),
        (
            "category: cli, adapter: program",
            "category: cli, adapter: own",
            "category cli needs an adapter of type cli",
        ),
    ] {
        assert!(MIXED.contains(from), "{from}");
        let report = report(&MIXED.replace(from, to));
        assert!(report.contains(part), "{to}: expected {part} in\n{report}");
    }
    let second = "      - { id: second, type: ollama, category: local_inference, adapter: own, models: [m], context_size: 1 }\n";
    refused(
        &format!("{MIXED}{second}"),
        "18:9: nodes[0].providers[3].base_url: adapter `own` also serves providers[1], which has another address or context_size",
        &[],
    );
}

#[test]
fn what_is_shown_of_a_mixed_pool_loads_again_and_means_the_same() {
    let shown = effective::comes_back(MIXED);
    // None of the keys that belong to other types is filled in with something that would be refused.
    assert!(shown.contains("output_format: json") && shown.contains("context_size: 8192"), "{shown}");
}

#[test]
fn the_shipped_example_of_a_mixed_pool_loads() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/edge-mixed.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let env = |name: &str| match name {
        "IOP_ADVERTISE" => Some("edge.example.org:9443".to_owned()),
        "IOP_TOKEN_HASH_LAPTOP" => Some("0".repeat(64)),
        _ => None,
    };
    let settings = load_text(&text, Path::new(file), &env).unwrap();
    assert_eq!(settings.pool.groups[0].members.len(), 2);
}
