//! Files as they stand on disk.

use std::{collections::HashMap, fs, path::PathBuf};

use super::*;
use crate::config::{FILE_BYTES_MAX, load_with};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/edge.yaml")
}

/// The environment that the public example asks for.
fn example_env(name: &str) -> Option<String> {
    match name {
        "IOP_ADVERTISE" => Some("edge.example.org:9443".to_owned()),
        "IOP_TOKEN_HASH_LAPTOP" => Some("5".repeat(64)),
        "IOP_VLLM_HOST" => Some("127.0.0.1".to_owned()),
        _ => None,
    }
}

// req: CFG-1
#[test]
fn the_public_example_loads_and_takes_hosts_and_credentials_from_the_environment() {
    let settings = load_with(&example(), &example_env).unwrap();
    assert_eq!(settings.advertise.as_deref(), Some("edge.example.org:9443"));
    assert_eq!(settings.principals[0].hash, [0x55; 32]);
    assert!(settings.model("qwen3").is_some() && settings.warnings.is_empty(), "{:?}", settings.warnings);
    // Without them it does not load: none of them stands in the file.
    let report = load_with(&example(), &|_| None).unwrap_err().to_string();
    for name in ["IOP_ADVERTISE", "IOP_TOKEN_HASH_LAPTOP", "IOP_VLLM_HOST"] {
        assert!(report.contains(&format!("the environment variable {name} is not set")), "{report}");
    }
    let text = fs::read_to_string(example()).unwrap();
    assert!(
        !text.bytes().collect::<Vec<_>>().split(|byte| !byte.is_ascii_hexdigit()).any(|run| run.len() >= 64)
    );
}

// req: CFG-1
#[test]
fn the_public_example_shows_every_key() {
    let text = fs::read_to_string(example()).unwrap();
    for (path, _) in crate::config::class::TABLE {
        let key = path.rsplit('.').next().unwrap();
        assert!(text.contains(&format!("{key}:")), "{path} is not in configs/edge.yaml");
    }
}

#[test]
fn file_names_are_relative_to_the_file_that_holds_them() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("edge.yaml");
    fs::write(directory.path().join("factor"), "hunter2\r\n").unwrap();
    fs::write(&file, small("id: box1\n", "id: box1\n    token_file: factor\n")).unwrap();
    let settings = load_with(&file, &env).unwrap();
    assert!(settings.nodes[0].token_ok("hunter2"));
    assert_eq!(settings.source, file);
    assert_eq!(settings.identity.key, directory.path().join("pki/edge.key"));
    let absolute = format!("identity: {{ cert_file: /abs/edge.crt }}\n{SMALL}");
    assert_eq!(load(&absolute).unwrap().identity.cert, Path::new("/abs/edge.crt"));
    fs::write(directory.path().join("factor"), "x".repeat(513)).unwrap();
    assert!(
        load_with(&file, &env).unwrap_err().to_string().contains("nodes[0].token_file: expected 1 to 512")
    );
}

#[test]
fn a_file_that_cannot_be_read_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("edge.yaml");
    let told = |part: &str| {
        let report = load_with(&file, &env).unwrap_err().to_string();
        assert!(report.starts_with(&format!("{}:", file.display())) && report.contains(part), "{report}");
    };
    told(": cannot read the file: ");
    fs::write(&file, b"edge:\n  name: \xff\n").unwrap();
    told(":2:1: expected UTF-8 text");
    fs::write(&file, vec![b'#'; FILE_BYTES_MAX + 1]).unwrap();
    told(": expected a file of at most 8388608 bytes");
    fs::write(&file, format!("\u{feff}{SMALL}").replace('\n', "\r\n")).unwrap();
    load_with(&file, &env).unwrap();
}

// req: REG-10
#[test]
fn a_nodes_configuration_has_no_store_and_no_directory() {
    // The configuration cannot ask for one, and nothing of this machine's paths reaches the payload.
    for key in ["store: /x", "working_directory: /x", "workdir: /x", "state_dir: /x"] {
        let report = report(&small("id: box1\n", &format!("id: box1\n    runtime: {{ {key} }}\n")));
        assert!(
            report.contains("unknown key") && report.contains("the keys here are concurrency"),
            "{report}"
        );
    }
    let payload = format!("{:?}", load(SMALL).unwrap().nodes[0].payload);
    assert!(!payload.contains("/etc/iop"), "{payload}");
}

#[test]
fn what_cannot_travel_to_a_node_is_refused_at_load() {
    // Short names in the file, long ones at the server: the frame would be far larger than the file.
    let mapping: String = (0..500).map(|i| format!("      m{i}: {}{i}\n", "x".repeat(240))).collect();
    let models: String = (0..500).map(|i| format!("m{i}, ")).collect();
    let provider = |i: usize, models: &str| {
        format!(
            "      - {{ id: p{i}, type: vllm, category: api, adapter: a, profile: p, models: {models} }}\n"
        )
    };
    let text = |count: usize| {
        let first = provider(0, &format!("&m [{models}]"));
        let rest: String = (1..count).map(|i| provider(i, "*m")).collect();
        format!(
            "openai: {{ provider_id: x }}\nprotocol_profiles:\n  p:\n    base: vllm\n    model_mapping:\n{mapping}nodes:\n  - id: n\n    adapters: [{{ name: a, type: vllm }}]\n    providers:\n{first}{rest}"
        )
    };
    load(&text(10)).unwrap();
    refused(&text(80), "507:5: nodes[0]: what this node would be told takes", &["expected at most 8388608"]);
}

/// The tree of the contract, as a file: every key with a value of its kind.
#[test]
fn every_key_of_the_contract_is_known() {
    let text = r#"
edge: { name: edge-1, shards: 0, cpus: [] }
listen: { http: ["0.0.0.0:8080", "[::]:8080"], https: [], tls: { cert_file: "", key_file: "", min_version: "1.2" }, node: ["0.0.0.0:9443"], ops: "127.0.0.1:9090", admin_socket: "" }
identity: { cert_file: pki/edge.crt, key_file: pki/edge.key, node_ca_file: pki/node-ca.crt, crl_file: "" }
limits: { head_bytes: 65536, head_fields: 100, head_timeout_ms: 10000, body_bytes: 33554432, body_memory_bytes: 536870912, body_timeout_ms: 10000, body_min_rate: 1024, keepalive_idle_ms: 100000, h2_streams: 100, write_stall_ms: 60000, drain_grace_ms: 30000 }
logging: { level: info, format: text }
metrics: { enabled: true }
bootstrap: {}
console: { enabled: false }
control_plane: { enabled: false }
a2a: { enabled: false }
openai:
  enabled: true
  provider_id: local-default
  principal_tokens:
    - { token_ref: laptop, token_hash_sha256: "0000000000000000000000000000000000000000000000000000000000000000", principal_ref: alice, principal_alias: "Alice" }
  revoked_tokens_file: ""
  provider_auth: { enabled: false }
  model_routes: []
  keepalive: { comment_ms: 15000, event_ms: 60000, tunnel: false }
  usage: { require: false }
  response_wait_margin_ms: 15000
  stream_evidence_gate: { enabled: false }
long_context_threshold_tokens: 100000
provider_pool: { max_queue: 16, queue_timeout_ms: 30000 }
protocol_profiles:
  my-vllm: { base: vllm, base_url: "http://127.0.0.1:8000/v1", model_mapping: { "qwen3": "Qwen/Qwen3-32B" } }
models:
  - id: qwen3
    display_name: "Qwen3 32B"
    providers: [box1-vllm]
    usage_attribution: provider
    context_window_tokens: 131072
    default_max_tokens: 4096
    min_max_tokens: 0
    default_thinking_token_budget: 0
nodes:
  - id: box1
    alias: "GPU box under the desk"
    token: ""
    runtime: { concurrency: 0 }
    adapters:
      - { name: vllm-1, type: openai_compat, enabled: true, settings: {} }
    providers:
      - id: box1-vllm
        type: vllm
        category: local_inference
        adapter: vllm-1
        profile: my-vllm
        models: ["qwen3"]
        enabled: true
        capacity: 4
        long_context_capacity: 1
        total_context_tokens: 262144
        priority: 0
        response_stall_timeout_ms: 0
        request_timeout_ms: 0
        health: { path: "", generation: false }
"#;
    let settings = load(text).unwrap();
    assert_eq!(settings.pool.groups[0].members[0].target.as_ref(), "Qwen/Qwen3-32B");
    assert_eq!(settings.model("qwen3").unwrap().context_window_tokens, Some(131_072));
    assert_eq!(settings.nodes[0].alias.as_ref(), "GPU box under the desk");
}

#[test]
fn no_single_changed_byte_makes_the_loader_panic() {
    let mut outcomes: HashMap<bool, usize> = HashMap::new();
    for at in 0..SMALL.len() {
        for byte in [b'\n', b':', b'[', b'"', b'*'] {
            let mut bytes = SMALL.as_bytes().to_vec();
            bytes[at] = byte;
            let text = String::from_utf8(bytes).unwrap();
            *outcomes.entry(load(&text).is_ok()).or_default() += 1;
        }
    }
    assert!(outcomes[&true] > 10 && outcomes[&false] > 1000, "{outcomes:?}");
}
