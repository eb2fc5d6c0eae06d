//! Files that do not load: the place, the key path, and what was expected.

use super::*;

// req: CFG-11
#[test]
fn what_cannot_be_read_is_told_with_its_place() {
    for (text, start, parts) in [
        ("edge:\n  nmae: x\n", "2:3: edge.nmae: unknown key `nmae`", &["did you mean `name`?"][..]),
        ("edge: {}\nopnai: {}\n", "2:1: opnai: unknown key", &["did you mean `openai`?"]),
        ("colour: red\n", "1:1: colour: unknown key `colour`; the keys here are edge, listen", &[]),
        (
            "nodes:\n  - id: a\n  - id: b\n    runtime:\n      concurency: 1\n",
            "5:7: nodes[1].runtime.concurency: ",
            &["`concurrency`"],
        ),
        (
            "edge:\n  capacity: 1\n",
            "2:3: edge.capacity: `capacity` is not a key of edge; it belongs at nodes[].providers[].capacity",
            &[],
        ),
        ("edge: {}\nedge: {}\n", "2:1: edge: the key `edge` stands here a second time, first in line 1", &[]),
        (
            "protocol_profiles:\n  a: {base: vllm}\n  a: {base: vllm}\n",
            "3:3: protocol_profiles.a: the key `a`",
            &[],
        ),
        ("edge:\n\tname: x\n", "2:1: ", &["a tab cannot indent YAML: use spaces"]),
        ("edge:\n  shards: two\n", "2:11: edge.shards: expected an integer, found a text", &[]),
        (
            "edge:\n  shards: 1.5\n",
            "2:11: edge.shards: expected an integer, found a number with a fraction",
            &[],
        ),
        (
            "edge:\n  shards: \"2\"\n",
            "2:11: edge.shards: expected an integer, found a text in quotes",
            &["without quotes"],
        ),
        ("edge:\n  shards: ${N}\n", "2:11: edge.shards: expected an integer, found a text", &["environment"]),
        (
            "limits:\n  head_timeout_ms: 10s\n",
            "2:20: limits.head_timeout_ms: expected an integer",
            &["without a unit"],
        ),
        ("edge:\n  shards: 99999999999999999999\n", "2:11: edge.shards: expected an integer", &["64 bits"]),
        ("openai:\n  enabled: maybe\n", "2:12: openai.enabled: expected true or false", &[]),
        ("openai:\n  enabled: 'true'\n", "2:12: openai.enabled: expected true or false", &["without quotes"]),
        ("edge: edge-1\n", "1:7: edge: expected a mapping", &[]),
        ("listen:\n  http: 0.0.0.0:8080\n", "2:9: listen.http: expected a list", &["[value]"]),
        ("edge:\n  name: {a: b}\n", "2:9: edge.name: expected a single value", &[]),
        ("edge:\n  name: [\n", "2:9: ", &["no closing ] or }"]),
        ("edge:\n  name: a: b\n", "2:10", &["a text that holds `: ` is written in quotes"]),
        ("edge: {}\n---\nedge: {}\n", "3:1: expected one YAML document", &[]),
        ("- edge\n", "1:1: expected a mapping", &["without `- ` in front"]),
    ] {
        let text = format!("{text}{}", if text.starts_with("openai") { "  provider_id: x\n" } else { "" });
        let report = report(&text);
        // Most of these files have no provider_id either.
        let lines: Vec<_> = report.lines().filter(|line| !line.contains("openai.provider_id")).collect();
        assert_eq!(lines.len(), 1, "{report}\nof\n{text}");
        assert!(lines[0].starts_with(start), "expected {start}\n   found {report}");
        for part in parts {
            assert!(lines[0].contains(part), "expected {part:?} in\n{report}");
        }
    }
}

// req: CFG-11
#[test]
fn slips_of_every_kind_are_told_together_and_hide_nothing() {
    let text = r#"edge: { nmae: Big, shards: "2" }
openai: { provider_id: x, enabled: 1 }
provider_pool: { max_queue: -1, max_queue: 3 }
models:
  - { idd: m, providers: [p, nobody] }
  - oops
nodes:
  - id: n
    adapters: [{ name: a, type: vllm }]
    providers:
      - { id: p, type: vllm, category: api, adapter: a, models: [m, [n]], capacity: 0 }
"#;
    let report = report(text);
    let starts: Vec<String> =
        report.lines().map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        starts,
        [
            "1:9 edge.nmae",
            "1:28 edge.shards",
            "2:36 openai.enabled",
            "3:33 provider_pool.max_queue",
            "5:7 models[0].idd",
            "6:5 models[1]",
            "11:69 nodes[0].providers[0].models[1]",
            "3:29 provider_pool.max_queue",
            "11:85 nodes[0].providers[0].capacity",
            "5:30 models[0].providers[1]",
        ],
        "{report}"
    );
}

#[test]
fn nothing_of_a_misplaced_secret_is_told() {
    let hash = "openai:\n  provider_id: a\n  principal_tokens: [{token_ref: a, principal_ref: b, token_hash_sha256: sk-secret}]\n";
    for text in [
        hash,
        "nodes: [{id: a, token: 'sk secret'}]\nopenai: {provider_id: a}\n",
        "nodes:\n  - providers:\n      - headers: sk-secret\n",
        "nodes:\n  - providers: sk-secret\n",
        "edge:\n  shards: sk-secret\n",
        &with_provider("headers: { X-Ab: \"sk-secret\\u0001\" }"),
        &with_provider("headers: { Authorization: Bearer sk-secret }"),
        &with_provider("base_url: 'http://u:sk-secret@h'"),
    ] {
        let report = report(text);
        assert!(!report.contains("secret"), "{report}");
    }
    let report = report(&small("id: box1\n", "id: ${SECRET} x\n"));
    assert!(report.contains("${SECRET}") && !report.contains("hunter2"), "{report}");
}

#[test]
fn all_wrong_values_of_a_file_are_told_together() {
    let text = r#"edge: { name: Edge_1, shards: -1 }
listen:
  http: ["localhost:8080"]
limits: { head_bytes: 12 }
logging: { level: verbose, format: xml }
openai:
  enabled: true
  principal_tokens: [{ token_ref: a }]
provider_pool: { max_queue: -1 }
protocol_profiles:
  p: { base: vlm }
models:
  - { id: m, providers: [box1-vlm] }
nodes:
  - id: box1
    adapters: [{ name: a, type: vllm }]
    providers:
      - { id: box1-vllm, type: vllm, category: api, adapter: b, models: [m], capacity: 0 }
"#;
    let report = report(text);
    let starts: Vec<_> =
        report.lines().map(|line| line.splitn(4, ": ").take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        starts,
        [
            "1:15 edge.name",
            "1:31 edge.shards",
            "3:10 listen.http[0]",
            "4:23 limits.head_bytes",
            "5:19 logging.level",
            "5:36 logging.format",
            "8:22 openai.principal_tokens[0].token_hash_sha256",
            "8:22 openai.principal_tokens[0].principal_ref",
            "9:29 provider_pool.max_queue",
            "11:14 protocol_profiles.p.base",
            "18:88 nodes[0].providers[0].capacity",
            "18:62 nodes[0].providers[0].adapter",
            "13:26 models[0].providers[0]",
            "7:3 openai.provider_id",
        ],
        "{report}"
    );
}

#[test]
fn an_error_is_one_line_whatever_a_key_holds() {
    let text = format!("protocol_profiles:\n  \"a\\nb\\x1b[2J\": {{ base: vlm }}\n{SMALL}");
    let report = report(&text);
    assert!(report.lines().all(|line| line.contains("protocol_profiles.ab[2J")), "{report}");
    assert!(!report.contains('\u{1b}'), "{report}");
}

#[test]
fn a_report_has_an_end() {
    let providers: String = (0..150).map(|_| "      - { }\n".to_owned()).collect();
    let report = report(&format!("nodes:\n  - providers:\n{providers}"));
    assert_eq!(report.lines().count(), 101);
    assert!(report.lines().last().unwrap().ends_with("more errors"), "{report}");
}

// req: CFG-2
#[test]
fn principal_tokens_have_unique_refs_and_hashes() {
    let (a, b) = ("a".repeat(64), "b".repeat(64));
    let one = format!("{{ token_ref: one, token_hash_sha256: {a}, principal_ref: p }}");
    for (second, start, part) in [
        (
            format!("{{ token_ref: one, token_hash_sha256: {b}, principal_ref: p }}"),
            "6:20",
            "token_ref: expected a value of its own: openai.principal_tokens[0]",
        ),
        (
            format!("{{ token_ref: two, token_hash_sha256: {a}, principal_ref: p }}"),
            "6:44",
            "token_hash_sha256: expected a value of its own",
        ),
        (
            format!("{{ token_ref: two, token_hash_sha256: {}, principal_ref: p }}", "A".repeat(64)),
            "6:44",
            "token_hash_sha256: expected a value of its own",
        ),
        (
            format!("{{ token_ref: '', token_hash_sha256: {b}, principal_ref: p }}"),
            "6:20",
            "token_ref: expected a value, found an empty one",
        ),
        (
            format!("{{ token_ref: ' ', token_hash_sha256: {b}, principal_ref: p }}"),
            "6:20",
            "token_ref: expected a value, found an empty one",
        ),
        (
            format!("{{ token_hash_sha256: {b}, principal_ref: p }}"),
            "6:7",
            "token_ref: expected a value, but the key is missing",
        ),
        (
            format!("{{ token_ref: two, token_hash_sha256: {b} }}"),
            "6:7",
            "principal_ref: expected a value, but the key is missing",
        ),
        (
            format!("{{ token_ref: two, token_hash_sha256: {b}, principal_ref: '' }}"),
            "6:125",
            "principal_ref: expected a value, found an empty one",
        ),
        (
            format!("{{ token_ref: two, token_hash_sha256: {}, principal_ref: p }}", &b[1..]),
            "6:44",
            "expected 64 hexadecimal digits, found 63",
        ),
        (
            format!("{{ token_ref: two, token_hash_sha256: {}g, principal_ref: p }}", &b[1..]),
            "6:44",
            "expected 64 hexadecimal digits, found 64",
        ),
        (
            "{ token_ref: two, token_hash_sha256: iop_x, principal_ref: p }".to_owned(),
            "6:44",
            "the token itself never stands here",
        ),
    ] {
        let text = format!(
            "openai:\n  enabled: true\n  provider_id: x\n  principal_tokens:\n    - {one}\n    - {second}\n"
        );
        refused(&text, &format!("{start}: openai.principal_tokens[1]."), &[part]);
    }
}

#[test]
fn a_blank_provider_id_is_told_after_everything_else() {
    refused(
        "openai: { enabled: true }\n",
        "1:9: openai.provider_id: expected a value, but the key is missing",
        &[],
    );
    refused(
        "openai: { provider_id: '  ' }\n",
        "1:24: openai.provider_id: expected a value, found an empty one",
        &[],
    );
    refused("", "1:1: openai.provider_id: ", &[]);
    load("openai: { enabled: false }\n").unwrap();
    load("openai: { enabled: false, provider_id: '' }\n").unwrap();
    let report = report("openai: {}\nmodels: [{ id: m, providers: [nobody] }]\n");
    assert!(report.lines().next().unwrap().contains("models[0].providers[0]"), "{report}");
    assert!(report.lines().last().unwrap().contains("openai.provider_id"), "{report}");
}

#[test]
fn numbers_have_bounds() {
    for (text, start, part) in [
        (
            with_provider("capacity: 0"),
            "16:19: nodes[0].providers[0].capacity: ",
            "expected 1 to 32768, found 0",
        ),
        (with_provider("capacity: 32769"), "16:19: nodes[0].providers[0].capacity: ", "expected 1 to 32768"),
        (
            with_provider("capacity: 2\nlong_context_capacity: 3"),
            "17:32: nodes[0].providers[0].long_context_capacity: ",
            "expected 0 to 2, found 3",
        ),
        (with_provider("priority: -1"), "16:19: nodes[0].providers[0].priority: ", "expected 0 to"),
        (
            with_provider("request_timeout_ms: -1"),
            "16:29: nodes[0].providers[0].request_timeout_ms: ",
            "expected 0 to",
        ),
        (
            with_provider("total_context_tokens: -1"),
            "16:31: nodes[0].providers[0].total_context_tokens: ",
            "expected at least 0",
        ),
        (
            format!("long_context_threshold_tokens: 0\n{SMALL}"),
            "1:32: long_context_threshold_tokens: ",
            "expected at least 1",
        ),
        (
            format!("provider_pool: {{ queue_timeout_ms: -5 }}\n{SMALL}"),
            "1:36: provider_pool.queue_timeout_ms: ",
            "expected 0 to",
        ),
        (format!("limits: {{ body_bytes: 0 }}\n{SMALL}"), "1:23: limits.body_bytes: ", "expected 1 to"),
        (
            format!("limits: {{ body_bytes: 268435457 }}\n{SMALL}"),
            "1:23: limits.body_bytes: ",
            "expected 1 to 268435456",
        ),
        (
            format!("limits: {{ body_memory_bytes: 67108863 }}\n{SMALL}"),
            "1:30: limits.body_memory_bytes: ",
            "expected at least 67108864, twice limits.body_bytes",
        ),
        (
            format!("limits: {{ body_memory_bytes: 0 }}\n{SMALL}"),
            "1:30: limits.body_memory_bytes: ",
            "expected 1 to",
        ),
        (format!("edge: {{ shards: 65 }}\n{SMALL}"), "1:17: edge.shards: ", "expected 0 to 64"),
        (
            small("id: box1\n", "id: box1\n    runtime: { concurrency: -1 }\n"),
            "8:29: nodes[0].runtime.concurrency: ",
            "expected 0 to",
        ),
        (
            small("id: qwen3", "id: qwen3\n    min_max_tokens: -1"),
            "5:21: models[0].min_max_tokens: ",
            "expected at least 0",
        ),
    ] {
        refused(&text, start, &[part]);
    }
}

// req: STL-10
#[test]
fn a_stall_timeout_that_is_negative_or_overflows_is_refused() {
    for millis in [-1, i64::MIN, i64::MAX / 1_000_000 + 1, i64::MAX] {
        let text = with_provider(&format!("response_stall_timeout_ms: {millis}"));
        refused(
            &text,
            "16:36: nodes[0].providers[0].response_stall_timeout_ms: expected 0 to 9223372036854,",
            &[],
        );
    }
}

#[test]
fn too_many_slots_in_all_are_refused() {
    let second = "      - { id: b, type: vllm, category: api, adapter: vllm-1, models: [m], capacity: 2 }\n";
    let text = format!("{}{second}", with_provider("capacity: 32767"));
    refused(&text, "17:9: nodes[0].providers[1].capacity: ", &["at most 32768 slots", "makes 32769"]);
}

// req: CFG-7
#[test]
fn the_context_budget_holds_every_long_request_at_its_longest() {
    let model = |text: String| text.replace("id: qwen3\n", "id: qwen3\n    context_window_tokens: 1000\n");
    let enough = model(with_provider("capacity: 4\nlong_context_capacity: 2\ntotal_context_tokens: 2000"));
    load(&enough).unwrap();
    load(&model(with_provider("capacity: 4\nlong_context_capacity: 0\ntotal_context_tokens: 1"))).unwrap();
    load(&model(with_provider("capacity: 4"))).unwrap();
    let short = enough.replace("2000", "1999");
    refused(
        &short,
        "19:31: nodes[0].providers[0].total_context_tokens: expected at least 2000",
        &["qwen3", "1999"],
    );
    let vast = enough.replace("tokens: 1000", "tokens: 9223372036854775807");
    refused(&vast, "19:31: ", &["expected at least 18446744073709551614"]);
    for (text, start) in [
        (with_provider("priority: -1"), "16:19: nodes[0].providers[0].priority"),
        (format!("long_context_threshold_tokens: 0\n{SMALL}"), "1:32: long_context_threshold_tokens"),
        (format!("long_context_threshold_tokens: -1\n{SMALL}"), "1:32: long_context_threshold_tokens"),
    ] {
        refused(&text, start, &[]);
    }
}

#[test]
fn addresses_and_names_have_a_form() {
    for (section, start, part) in [
        ("listen: { http: [] }", "1:17: listen.http: ", "expected 1 to 16 addresses"),
        ("listen: { http: ['8080'] }", "1:18: listen.http[0]: ", "such as 127.0.0.1:8080"),
        ("listen: { node: ['::1:8080'] }", "1:18: listen.node[0]: ", "[::1]:8080"),
        ("listen: { ops: 'localhost:9090' }", "1:16: listen.ops: ", "expected an address and port"),
        (
            "listen: { http: ['0.0.0.0:9443'] }",
            "1:9: listen.node: 0.0.0.0:9443 is already the address of listen.http[0]",
            "",
        ),
        ("listen: { http: ['127.0.0.1:1', '127.0.0.1:1'] }", "1:33: listen.http[1]: ", "listen.http[0]"),
        ("listen: { ops: '${NOPE}:1' }", "1:16: listen.ops: the environment variable NOPE is not set", ""),
        ("listen: { ops: '${NOPE' }", "1:16: listen.ops: expected ${NAME}", ""),
        ("bootstrap: { advertise: edge.example.org }", "1:25: bootstrap.advertise: ", "host:port"),
        ("edge: { name: '-x' }", "1:15: edge.name: ", "expected a name of a-z"),
        ("edge: { cpus: [1, 1] }", "1:19: edge.cpus[1]: CPU 1 is already in the list", ""),
        ("edge: { cpus: [1, 2], shards: 3 }", "1:15: edge.cpus: expected one CPU for each of 3 shards", ""),
        (
            "logging: { level: warning }",
            "1:19: logging.level: expected one of error, warn",
            "did you mean `warn`?",
        ),
    ] {
        refused(&format!("{section}\n{SMALL}"), start, &[part]);
    }
    let long = "a".repeat(110);
    let text = format!("listen: {{ admin_socket: /{long} }}\n{SMALL}");
    refused(&text, "1:25: listen.admin_socket: ", &["at most 107 bytes"]);
    load(&format!("listen: {{ http: ['127.0.0.1:0', '127.0.0.1:0'] }}\n{SMALL}")).unwrap();
}

#[test]
fn https_needs_both_files_and_addresses_of_its_own() {
    let refuse = |listen: &str, at: &str, words: &[&str]| {
        refused(&format!("listen: {{ {listen} }}\n{SMALL}"), at, words);
    };
    refuse("tls: { cert_file: a }", "1:29: listen.tls.cert_file: ", &["set listen.tls.key_file as well"]);
    refuse("tls: { key_file: a }", "1:28: listen.tls.key_file: ", &["set listen.tls.cert_file as well"]);
    refuse(
        "https: ['[::]:8443']",
        "1:19: listen.https[0]: ",
        &["needs a certificate", "listen.tls.cert_file"],
    );
    let files = "cert_file: a, key_file: b";
    refuse(
        &format!("tls: {{ {files}, min_version: '1.1' }}"),
        "1:58: listen.tls.min_version: ",
        &["1.2, 1.3", "`1.1`"],
    );
    refuse(&format!("tls: {{ {files} }}, http: []"), "1:53: listen.http: ", &["1 to 16 addresses"]);
    refuse(
        &format!("tls: {{ {files} }}, http: ['[::1]:1'], https: ['[::1]:1']"),
        "1:74: listen.https[0]: ",
        &["[::1]:1 is already the address of listen.http[0]"],
    );
}

#[test]
fn keys_of_later_parts_are_accepted_off_and_refused_on() {
    let off = r#"listen: { tls: { cert_file: "", key_file: "" } }
identity: { crl_file: "" }
console: { enabled: false }
control_plane: { enabled: false }
a2a: { enabled: false }
openai:
  provider_id: x
  revoked_tokens_file: ""
  provider_auth: { enabled: false, from_header: A, target_header: B, scheme: Bearer, required: true }
  model_routes: []
  keepalive: { comment_ms: 15000, event_ms: 60000, tunnel: false }
  stream_evidence_gate: { enabled: false, max_request_fault_recovery: 3, max_strategy_fault_recovery: 3, max_ingress_snapshot_bytes: 0, environment: dev, filters: [] }
protocol_profiles:
  p: { base: vllm, auth: {}, extensions: {} }
nodes:
  - id: box1
    adapters: [{ name: a, type: vllm }]
    providers:
      - id: b
        type: vllm
        category: local_inference
        adapter: a
        models: [m]
        health: { path: "", generation: false }
        command: ""
        args: []
        env: {}
        mode: ""
        resume_args: []
        output_format: ""
        context_size: 0
"#;
    load(off).unwrap();
    for (from, to, at, path) in [
        ("crl_file: \"\"", "crl_file: a", "2:23", "identity.crl_file"),
        ("console: { enabled: false", "console: { enabled: true", "3:21", "console.enabled"),
        (
            "control_plane: { enabled: false",
            "control_plane: { enabled: true",
            "4:27",
            "control_plane.enabled",
        ),
        ("a2a: { enabled: false", "a2a: { enabled: true", "5:17", "a2a.enabled"),
        ("auth: {}", "auth: { header: x }", "14:26", "protocol_profiles.p.auth"),
        ("extensions: {}", "extensions: { a: [1] }", "14:42", "protocol_profiles.p.extensions"),
    ] {
        assert_eq!(off.matches(from).count(), 1, "{from}");
        refused(&off.replace(from, to), &format!("{at}: {path}: "), &["is not available in this release"]);
    }
    for (from, to) in [
        ("command: \"\"", "command: x"),
        ("args: []\n        env", "args: [x]\n        env"),
        ("env: {}", "env: { A: b }"),
        ("mode: \"\"", "mode: x"),
        ("resume_args: []", "resume_args: [x]"),
        ("format: \"\"", "format: x"),
        ("context_size: 0", "context_size: 1"),
    ] {
        assert_eq!(off.matches(from).count(), 1, "{from}");
        let report = report(&off.replace(from, to));
        assert!(report.ends_with("this key belongs to providers of type cli or ollama"), "{report}");
    }
}
