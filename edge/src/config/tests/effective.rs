//! What is shown loads again and means the same.

use proptest::prelude::*;

use super::*;
use crate::config::{effective::Effective, schema};

const FILE: &str = "/etc/iop/edge.yaml";

fn effective(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Effective {
    Effective::of_text(text, Path::new(FILE), env).unwrap_or_else(|errors| panic!("{errors}\nof\n{text}"))
}

/// Everything that counts of a configuration, to be compared.
fn meaning(settings: &Settings) -> String {
    let tokens: Vec<_> =
        settings.nodes.iter().map(|node| node.token.as_ref().map(|it| it.matches("hunter2"))).collect();
    format!(
        "{:#?}",
        (
            (&settings.edge, &settings.listen, &settings.identity, &settings.limits, &settings.logging),
            (settings.metrics_enabled, &settings.advertise, &settings.openai, &settings.principals),
            (
                settings.long_context_threshold_tokens,
                &settings.pool,
                &settings.models,
                &settings.nodes,
                tokens
            ),
        )
    )
}

/// Asserts that what is shown of `text` loads again, means the same, and is shown again as it is.
pub(super) fn comes_back(text: &str) -> String {
    let shown = effective(text, &env);
    // What was masked is in the environment of whoever loads the result.
    let with_secrets =
        |name: &str| env(name).or_else(|| name.starts_with("MASKED_").then(|| "hunter2".to_owned()));
    for yaml in [shown.values(), shown.with_origins()] {
        let again = load_text(&yaml, Path::new(FILE), &with_secrets)
            .unwrap_or_else(|errors| panic!("{errors}\nof\n{yaml}\nof\n{text}"));
        let (found, wanted) = (meaning(&again), meaning(&load(text).unwrap()));
        let differing: Vec<_> = found.lines().zip(wanted.lines()).filter(|(a, b)| a != b).take(5).collect();
        assert!(found == wanted, "{differing:#?}\n{yaml}\nof\n{text}");
        let twice = effective(&yaml, &with_secrets);
        assert_eq!(twice.values(), shown.values(), "of\n{text}");
    }
    shown.with_origins()
}

// req: CFG-9, CFG-10, PRF-1
#[test]
fn what_is_shown_loads_again_and_means_the_same() {
    let overlays = "protocol_profiles:\n  near: { base: far, model_mapping: { qwen3: Qwen/Qwen3-32B }, operations: { responses: } }\n  far:\n    base: sglang\n    base_url: \"http://${HOST}:1/base/\"\n    model_mapping: { qwen3: wrong, other: kept }\n    operations: { chat_completions: /chat, count_tokens: \"http://elsewhere:2/count\" }\n    capabilities: [chat, streaming, count_tokens, responses]\n";
    for text in [
        SMALL.to_owned(),
        format!(
            "edge: {{ cpus: [1, 0x2] }}\nlisten: {{ http: ['127.0.0.1:0'], ops: '127.0.0.1:1' }}\n{SMALL}"
        ),
        format!("limits: {{ body_bytes: 268435456 }}\nlogging: {{ level: '', format: json }}\n{SMALL}"),
        format!("{overlays}{}", with_provider("profile: near")),
        format!("{overlays}{SMALL}"),
        with_provider("capacity: 4\nresponse_stall_timeout_ms: 0\nmax_queue: 9\nqueue_timeout_ms: 0"),
        with_provider("headers: { x-a: hunter2, x-b: '${SECRET}' }\nendpoint: 'http://h:9'"),
        with_provider("enabled: false").replace("adapter: vllm-1", "adapter: gone"),
        small("id: box1\n", "id: box1\n    token: hunter2\n"),
        small("id: box1\n", "id: box1\n    token: ${SECRET}\n    alias: 'a $${x} \"b\"'\n"),
        small("- { name: vllm-1, type: openai_compat }", "- { type: seulgivibe_claude }")
            .replace("type: vllm", "type: vllm\n        base_url: http://h")
            .replace("adapter: vllm-1", "adapter: openai_compat"),
        small("type: vllm", "type: seulgivibe_openai\n        base_url: http://h"),
        small(
            "    adapters:\n      - { name: vllm-1, type: openai_compat }\n",
            "    adapters: { vllm: { base_url: 'http://h', provider: x } }\n",
        )
        .replace("adapter: vllm-1", "adapter: vllm"),
        small(
            "provider_id: local",
            "provider_id: local\n  model_routes: [{ model: raw, adapter: vllm-1, target: t }]\n  stream_evidence_gate: { max_request_fault_recovery: 1, filters: [{ filter: schema_gate, selectors: [{ model: qwen3, enabled: false }] }] }",
        ),
        "openai: { enabled: false }\n".to_owned(),
    ] {
        comes_back(&text);
    }
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/edge.yaml");
    let example = std::fs::read_to_string(example).unwrap();
    for name in ["IOP_ADVERTISE", "IOP_TOKEN_HASH_LAPTOP", "IOP_VLLM_HOST"] {
        assert!(example.contains(name));
    }
    let example = example
        .replace("${IOP_ADVERTISE}", "edge.example.org:9443")
        .replace("${IOP_TOKEN_HASH_LAPTOP}", &"5".repeat(64))
        .replace("${IOP_VLLM_HOST}", "127.0.0.1");
    comes_back(&example);
}

#[test]
fn every_value_says_where_it_comes_from() {
    let text = r#"openai:
  provider_id: local
protocol_profiles:
  mine: { base: vllm, base_url: "http://${HOST}:8000/v1", operations: { responses: } }
models:
  - { id: qwen3, providers: [p] }
nodes:
  - id: box1
    token: hunter2
    adapters: { seulgivibe_claude: }
    providers:
      - { id: p, type: vllm, category: api, adapter: seulgivibe_claude, models: [qwen3], profile: mine, capacity: 3, max_queue: 5 }
      - { id: q, type: vllm, category: api, adapter: seulgivibe_claude, models: [qwen3], profile: mine, enabled: false }
"#;
    let shown = comes_back(text);
    for line in [
        "  name: edge-1  # default",
        "  provider_id: local  # edge.yaml:2",
        "  max_queue: 5  # earlier form: the queue settings of the providers",
        "    driver: openai_chat  # profile vllm",
        "    base_url: \"http://${HOST}:8000/v1\"  # edge.yaml:4",
        "      chat_completions: /v1/chat/completions  # profile vllm",
        "      responses: null  # edge.yaml:4",
        "    capabilities: [models, chat, streaming, tool_calling]  # profile vllm",
        "    display_name: qwen3  # the id",
        "    token: \"${MASKED_NODES_0_TOKEN}\"  # edge.yaml:9",
        "        type: openai_compat  # earlier form: seulgivibe_claude is another name of it",
        "          provider: seulgivibe_claude  # the type as it was typed",
        "        capacity: 3  # edge.yaml:12",
        "        long_context_capacity: 3  # capacity",
        "        response_stall_timeout_ms: 300000  # default",
        "        base_url: \"http://${HOST}:8000/v1\"  # profile mine",
    ] {
        assert!(
            shown.lines().any(|found| found == line || found == line.replacen("    ", "  - ", 1)),
            "{line}\nis not in\n{shown}"
        );
    }
    assert!(!shown.contains("hunter2") && !shown.contains("10.0.0.7"), "{shown}");
}

// req: CFG-11
#[test]
fn the_defaults_of_the_page_are_those_of_the_loader() {
    // Shown, every default of the schema stands in the file, and the loader sees no difference.
    let shown = effective(SMALL, &env).values();
    let mut compared = 0;
    for (path, _) in crate::config::class::TABLE {
        if schema::find(schema::raw(), path).is_some_and(|schema| schema.get("default").is_some()) {
            let key = path.rsplit('.').next().unwrap();
            compared += usize::from(shown.contains(&format!("{key}: ")));
        }
    }
    assert!(compared > 60, "{compared}");
    assert_eq!(meaning(&load(&shown).unwrap()), meaning(&load(SMALL).unwrap()));
}

#[test]
fn a_file_that_does_not_load_shows_nothing() {
    let errors = Effective::of_text("edge: { nmae: x }\n", Path::new(FILE), &env).unwrap_err();
    assert!(errors.to_string().contains("nmae"));
}

/// Lines that may stand in a file or not.
fn one_of(lines: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop_oneof![2 => Just(""), 3 => proptest::sample::select(lines)]
}

prop_compose! {
    fn file()(
        edge in one_of(&["edge: { name: e }\n", "edge: { cpus: [1, 2] }\n", "edge: { shards: 3 }\n", "edge:\n"]),
        listen in one_of(&["listen: { http: ['127.0.0.1:80'] }\n", "listen: { admin_socket: a.sock, ops: '${HOST}:1' }\n", "listen: { tls: {}, node: ['[::1]:1', '[::1]:2'] }\n"]),
        limits in one_of(&["limits: { body_bytes: 268435456 }\n", "limits: { head_bytes: 1024, drain_grace_ms: 0 }\n", "limits: { body_memory_bytes: 67108864 }\n"]),
        logging in one_of(&["logging: { level: debug }\n", "logging: { format: '' }\n"]),
        pool in one_of(&["provider_pool: {}\n", "provider_pool: { max_queue: 0, queue_timeout_ms: 0 }\n", "provider_pool: { max_queue: 7 }\nlong_context_threshold_tokens: 9\n"]),
        gate in one_of(&["  stream_evidence_gate: { environment: dev-corp, max_request_fault_recovery: 0 }\n", "  stream_evidence_gate: { filters: [{ filter: provider_error, timeout_ms: 0, selectors: [{ provider: p, enforcement: observe_only }] }] }\n"]),
        auth in one_of(&["  provider_auth: { scheme: '', from_header: X-A }\n", "  provider_auth: {}\n  keepalive: { comment_ms: 1 }\n"]),
        tokens in one_of(&["  principal_tokens: [{ token_ref: a, token_hash_sha256: 00000000000000000000000000000000000000000000000000000000000000ff, principal_ref: yes }]\n"]),
        routes in one_of(&["  model_routes: [{ model: raw, adapter: A, target: t }]\n", "  model_routes: [{ model: raw, adapter: A, target: '$${t}', provider_id: é }]\n"]),
        profiles in proptest::sample::select(&["", "protocol_profiles: { o: { base: vllm } }\n", "protocol_profiles:\n  o: { base: u, capabilities: [chat] }\n  u: { base: openai_compat, base_url: 'http://${HOST}', operations: { models: , responses: r }, model_mapping: { m: 'M', x: y } }\n", "protocol_profiles:\n  o: { base: anthropic, base_url: 'http://h/anthropic', model_mapping: { m: m } }\n"][..]),
        profile in proptest::sample::select(&["", ", profile: ''", ", profile: sglang", ", profile: o"][..]),
        adapters in proptest::sample::select(&["[{ name: A, type: vllm }]", "[{ name: A, type: seulgivibe_claude, settings: { provider: l } }]", "[{ name: A, type: openai_compat, settings: { base_url: 'http://a/v1/', headers: { x-a: hunter2 } } }, { type: vllm, enabled: false }]", "[{ name: A, type: vllm, settings: { endpoint: 'http://b' } }]"][..]),
        named in proptest::sample::select(&["A", "vllm", "openai_compat", "seulgivibe_claude"][..]),
        kind in proptest::sample::select(&["vllm", "openai_compat", "seulgivibe_openai"][..]),
        numbers in one_of(&[", capacity: 5", ", capacity: 5, long_context_capacity: 0", ", priority: 3, request_timeout_ms: 5000", ", max_queue: 3", ", response_stall_timeout_ms: 0, total_context_tokens: 900000"]),
        upstream in one_of(&[", base_url: 'http://own'", ", endpoint: 'http://own/v1/'", ", headers: { x-b: hunter2 }", ", provider: label"]),
        second in one_of(&["      - { id: q, type: vllm, category: local_inference, adapter: A, models: [m], enabled: false }\n", "      - { id: q, type: seulgivibe_claude, category: api, adapter: gone, models: [n], enabled: false, base_url: 'http://z' }\n"]),
        node in one_of(&["    token: '${SECRET}'\n", "    token: hunter2\n    alias: \"x # y\"\n", "    runtime: { concurrency: 4 }\n"]),
        model in one_of(&[", display_name: '5'", ", usage_attribution: model_group, context_window_tokens: 1000", ", default_max_tokens: 7, min_max_tokens: 0"]),
    ) -> String {
        format!("{edge}{listen}{limits}{logging}{pool}openai:\n  provider_id: x\n{gate}{auth}{tokens}{routes}{profiles}models: [{{ id: m, providers: [p]{model} }}]\nnodes:\n  - id: box\n{node}    adapters: {adapters}\n    providers:\n      - {{ id: p, type: {kind}, category: api, adapter: {named}, models: [m]{profile}{numbers}{upstream} }}\n{second}")
    }
}

// req: CFG-11
#[test]
fn any_file_that_loads_comes_back() {
    // `PROPTEST_CASES=20000` looks longer.
    let config = ProptestConfig::default();
    let cases = config.cases;
    let loaded = std::cell::Cell::new(0);
    let comes = |text: String| {
        if load(&text).is_ok() {
            loaded.set(loaded.get() + 1);
            comes_back(&text);
        }
        Ok(())
    };
    proptest::test_runner::TestRunner::new(config).run(&file(), comes).unwrap();
    // About three in ten do: far fewer would prove little, and a draw must not decide whether this test passes.
    assert!(loaded.get() > cases / 8, "only {} of {cases} files load", loaded.get());
}
