//! The rules of the ledger as tables of what is accepted and what is refused.

use std::time::Duration;

use proto::message::{AdapterSettings, Message, RegisterResponse};

use super::*;
use crate::{
    config::{
        capability,
        gate::{Enforcement, Environment, FilterKind, Scope},
        settings::{Attribution, UsageAttribution},
    },
    surface::cors::Cors,
};

/// Two Nodes with a provider each; `{a}` and `{b}` are more keys of theirs.
fn two(top: &str, a: &str, b: &str) -> String {
    let node = |id: &str, more: &str| {
        format!(
            "  - id: {id}\n    adapters: [{{ type: vllm }}]\n    providers:\n      - {{ id: {id}-p, type: vllm, category: api, adapter: vllm, models: [m]{more} }}\n"
        )
    };
    format!(
        "openai: {{ provider_id: x }}\n{top}models: [{{ id: m, providers: [a-p, b-p] }}]\nnodes:\n{}{}",
        node("a", a),
        node("b", b)
    )
}

// req: CFG-8
#[test]
fn queue_settings_of_providers_count_when_they_agree_and_nothing_stands_for_all() {
    let half_minute = Some(Duration::from_secs(30));
    let second = Some(Duration::from_secs(1));
    for (top, a, b, max, timeout) in [
        // All equal: promoted, defaults filled in and an explicit 0 kept.
        ("", ", max_queue: 7, queue_timeout_ms: 1000", ", max_queue: 7, queue_timeout_ms: 1000", 7, second),
        ("", ", max_queue: 7", ", max_queue: 7, queue_timeout_ms: 30000", 7, half_minute),
        ("", ", queue_timeout_ms: 0", ", queue_timeout_ms: 0, max_queue: 0", 16, None),
        ("", ", max_queue: 16", "", 16, half_minute),
        // A disabled provider takes no part.
        ("", ", max_queue: 7", ", max_queue: 8, enabled: false", 7, half_minute),
        ("", ", max_queue: 7, enabled: false", "", 16, half_minute),
        // `provider_pool`, empty or in part: they count for nothing, and its missing keys are defaults.
        ("provider_pool: {}\n", ", max_queue: 7", ", max_queue: 8", 16, half_minute),
        ("provider_pool: { max_queue: 3 }\n", ", queue_timeout_ms: 1000", "", 3, half_minute),
        ("provider_pool: { queue_timeout_ms: 1000 }\n", ", max_queue: 7", ", max_queue: 7", 16, second),
    ] {
        let settings = load(&two(top, a, b)).unwrap();
        assert_eq!((settings.pool.queue_max, settings.pool.queue_timeout), (max, timeout), "{top}{a}{b}");
        let told = settings.warnings.iter().any(|warning| warning.path.ends_with(".max_queue"));
        assert_eq!(told, a.contains("queue") || b.contains("queue"), "{top}{a}{b}");
    }
    for (a, b, start) in [
        (", max_queue: 7", ", max_queue: 8", "11:86: nodes[1].providers[0].max_queue: max_queue and"),
        (", max_queue: 7", "", "11:9: nodes[1].providers[0].max_queue: "),
        (", queue_timeout_ms: 0", ", queue_timeout_ms: 1", "11:93: nodes[1].providers[0].max_queue: "),
    ] {
        refused(&two("", a, b), start, &["one queue for all", "write `provider_pool:"]);
    }
    // Even where they count for nothing they keep their bounds.
    refused(
        &two("provider_pool: {}\n", ", max_queue: -1", ""),
        "8:86: nodes[0].providers[0].max_queue: expected 0 to",
        &[],
    );
}

// req: CFG-10, CFG-12
#[test]
fn a_single_instance_by_its_type_is_an_instance_with_that_name() {
    let legacy = r#"openai: { provider_id: x }
nodes:
  - id: n
    adapters:
      vllm: { enabled: true, base_url: "http://h:1/v1", headers: { x-a: b }, provider: mine }
      openai_compat:
    providers:
      - { id: p, type: vllm, category: api, adapter: vllm, models: [m] }
      - { id: q, type: openai_compat, category: api, adapter: openai_compat, models: [m], base_url: "http://g" }
"#;
    let listed = legacy
        .replace(
            "      vllm: { enabled: true, base_url: \"http://h:1/v1\", headers: { x-a: b }, provider: mine }\n",
            "      - { name: vllm, type: vllm, settings: { base_url: \"http://h:1/v1\", headers: { x-a: b }, provider: mine } }\n",
        )
        .replace("      openai_compat:\n", "      - { type: openai_compat }\n");
    assert_ne!(legacy, listed);
    let (legacy_payload, payload) =
        (load(legacy).unwrap().nodes[0].payload.clone(), load(&listed).unwrap().nodes[0].payload.clone());
    assert_eq!(legacy_payload, payload);
    assert_eq!(payload.adapters[0].name, "vllm");
    for (from, to, start, part) in [
        (
            "enabled: true, base_url",
            "enabled: false, base_url",
            "8:54: nodes[0].providers[0].adapter: ",
            "is disabled",
        ),
        (
            "vllm: { enabled: true",
            "vlm: { enabled: true",
            "5:7: nodes[0].adapters[0].type: ",
            "did you mean `vllm`?",
        ),
        (
            "enabled: true, base_url",
            "enabled: true, base_uri",
            "5:30: nodes[0].adapters.vllm.base_uri: ",
            "`base_url`",
        ),
        ("      openai_compat:\n", "      vllm:\n", "6:7: nodes[0].adapters.vllm: ", "a second time"),
    ] {
        assert_eq!(legacy.matches(from).count(), 1, "{from}");
        let report = report(&legacy.replace(from, to));
        let first = report.lines().next().unwrap();
        assert!(first.starts_with(start) && first.contains(part), "expected {start}{part}\n{report}");
    }
}

// req: CFG-9
#[test]
fn the_label_is_the_providers_the_adapters_or_the_alias() {
    let label = |adapter: &str, provider: &str| {
        let text = small("type: openai_compat }", &format!("{adapter} }}"));
        let text = text.replace("type: vllm\n", &format!("{provider}\n        base_url: http://h\n"));
        match &load(&text).unwrap().nodes[0].payload.adapters[0].settings {
            AdapterSettings::OpenAiCompat(config) => config.provider_label.clone(),
            other => panic!("{other:?}"),
        }
    };
    let alias = "type: seulgivibe_claude";
    for (adapter, provider, expected) in [
        (alias, "type: vllm", "seulgivibe_claude"),
        ("type: openai_compat", alias, "seulgivibe_claude"),
        ("type: openai_compat", "type: vllm", "openai_compat"),
        ("type: openai_compat, settings: { provider: adapters }", alias, "adapters"),
        (
            "type: openai_compat, settings: { provider: adapters }",
            "type: seulgivibe_openai\n        provider: own",
            "own",
        ),
    ] {
        assert_eq!(label(adapter, provider), expected, "{adapter} {provider}");
    }
}

// req: CFG-5
#[test]
fn a_model_has_its_window_its_limits_and_its_attribution() {
    let keys = "id: qwen3\n    context_window_tokens: 131072\n    default_max_tokens: 4096\n    min_max_tokens: 16\n    default_thinking_token_budget: 1024\n    usage_attribution: model_group";
    let settings = load_small("id: qwen3", keys).unwrap();
    let model = settings.model("qwen3").unwrap();
    assert_eq!(model.context_window_tokens, Some(131_072));
    assert_eq!(model.generation.default_max_tokens, Some(4096));
    assert_eq!(model.generation.min_max_tokens, Some(16));
    assert_eq!(model.generation.default_thinking_token_budget, Some(1024));
    assert_eq!(model.usage_attribution, UsageAttribution::ModelGroup);
    // Omitted and 0 mean that nothing is known or done.
    for zero in ["", "\n    context_window_tokens: 0\n    default_max_tokens: 0\n    min_max_tokens: 0"] {
        let settings = load_small("id: qwen3", &format!("id: qwen3{zero}")).unwrap();
        let model = settings.model("qwen3").unwrap();
        assert_eq!((model.context_window_tokens, model.generation), (None, Default::default()));
        assert_eq!(model.usage_attribution, UsageAttribution::Provider);
    }
    // Providers of different kinds may serve one model.
    let mixed = two("", ", profile: anthropic, base_url: 'http://h'", "");
    let settings = load(&mixed).unwrap();
    assert_eq!(settings.pool.groups[0].members.len(), 2);
    for (key, value, expected) in [
        ("usage_attribution", "group", "expected one of provider, model_group"),
        ("context_window_tokens", "-1", "expected at least 0"),
        ("default_max_tokens", "-1", "expected at least 0"),
        ("default_thinking_token_budget", "-1", "expected at least 0"),
    ] {
        refused(
            &small("id: qwen3", &format!("id: qwen3\n    {key}: {value}")),
            "5:",
            &[&format!("models[0].{key}: {expected}")],
        );
    }
}

// req: CFG-13
#[test]
fn attribution_stays_on_the_edge_and_names_are_never_mixed() {
    let profile = "protocol_profiles:\n  p: { base: vllm, model_mapping: { qwen3: Qwen/Qwen3-32B } }\n";
    let text = small("models: [qwen3]", "models: [qwen3]\n        profile: p");
    for (rule, kind, usage) in [
        ("provider", UsageAttribution::Provider, "box1-vllm"),
        ("model_group", UsageAttribution::ModelGroup, "qwen3"),
    ] {
        let text = text.replace("id: qwen3\n", &format!("id: qwen3\n    usage_attribution: {rule}\n"));
        let settings = load(&format!("{profile}{text}")).unwrap();
        let expected = Attribution { provider: "box1-vllm".into(), kind, usage: usage.into() };
        assert_eq!(settings.attribution("qwen3", "box1-vllm"), Some(expected));
        // A target, an adapter and the fallback are none of these names.
        assert_eq!(settings.attribution("Qwen/Qwen3-32B", "box1-vllm"), None);
        assert_eq!(settings.attribution("qwen3", "vllm-1"), None);
        assert_eq!(settings.attribution("qwen3", "local"), None);
        // The rule is not in what the Node is told: its message is the same for both.
        let node = &settings.nodes[0];
        let config = proto::message::NodeConfigPayload::clone(&node.payload);
        let told = Message::RegisterResponse(RegisterResponse::Accepted { node_id: node.id.clone(), config });
        let told = format!("{told:?}");
        assert!(told.contains("Qwen/Qwen3-32B") && !told.contains("model_group"), "{told}");
    }
}

#[test]
fn origins_are_all_or_the_ones_that_are_named() {
    let cors = |keys: &str| small("openai:\n", &format!("openai:\n  cors: {{ {keys} }}\n"));
    let only = |origins: &[&str]| Cors::Only(origins.iter().map(|&origin| origin.into()).collect());
    for (keys, expected) in [
        ("", Cors::default()),
        ("allowed_origins: ['*']", Cors::default()),
        ("allowed_origins: [https://chat.example, '*']", Cors::default()),
        ("allowed_origins: [https://chat.example]", only(&["https://chat.example"])),
        ("allowed_origins: []", only(&[])),
    ] {
        assert_eq!(load(&cors(keys)).unwrap().openai.cors, expected, "{keys}");
    }
    refused(
        &cors("allowed_origins: ['https://chat.example/']"),
        "2:29: openai.cors.allowed_origins[0]: ",
        &["expected an origin as browsers write it, such as https://chat.example, or *"],
    );
}

// req: CFG-3
#[test]
fn provider_auth_has_its_defaults_and_its_rules() {
    let auth = |keys: &str| small("openai:\n", &format!("openai:\n  provider_auth: {{ {keys} }}\n"));
    for (keys, from, target, scheme, required) in [
        ("", "x-iop-provider-authorization", "authorization", "Bearer", true),
        (
            "from_header: X-Key, target_header: X-Api-Key, scheme: '', required: false",
            "x-key",
            "x-api-key",
            "",
            false,
        ),
        ("scheme: Basic", "x-iop-provider-authorization", "authorization", "Basic", true),
    ] {
        let auth = load(&auth(keys)).unwrap().openai.provider_auth;
        assert!(!auth.enabled);
        assert_eq!((&*auth.from_header, &*auth.target_header), (from, target), "{keys}");
        assert_eq!((&*auth.scheme, auth.required), (scheme, required), "{keys}");
    }
    for (keys, start, part) in [
        ("from_header: 'a b'", "2:33: openai.provider_auth.from_header: ", "expected a header name"),
        (
            "from_header: Authorization",
            "2:33: openai.provider_auth.from_header: ",
            "holds the client's token",
        ),
        ("target_header: Host", "2:35: openai.provider_auth.target_header: ", "belongs to the connection"),
        ("target_header: X-IOP-Key", "2:35: openai.provider_auth.target_header: ", "lets none through"),
        (
            "target_header: Accept-Encoding",
            "2:35: openai.provider_auth.target_header: ",
            "sets `Accept-Encoding` itself",
        ),
        ("scheme: 'Bearer x'", "2:28: openai.provider_auth.scheme: ", "expected one word"),
    ] {
        refused(&auth(keys), start, &[part]);
    }
    // Together with a managed credential it is refused for that.
    let managed =
        "protocol_profiles: { p: { base: vllm, auth: { header: Authorization, scheme: Bearer } } }\n";
    let report = report(&format!("{managed}{}", auth("enabled: true")));
    assert!(
        report.starts_with("3:29: openai.provider_auth.enabled: expected either the client's credential or a managed one: protocol_profiles.p.auth"),
        "{report}"
    );
}

// req: CFG-6
#[test]
fn category_cli_needs_an_adapter_of_type_cli() {
    let text = small("category: local_inference", "category: cli");
    let report = report(&text);
    assert!(
        report.contains("13:19: nodes[0].providers[0].category: category cli needs an adapter of type cli, and `vllm-1` is none"),
        "{report}"
    );
    let cli = text
        .replace("type: openai_compat", "type: cli")
        .replace("type: vllm", "type: cli\n        command: /usr/bin/llm");
    load(&cli).unwrap();
}

// req: PRF-7
#[test]
fn a_provider_whose_output_can_be_looked_into_has_that_ability_and_no_profile_can_list_it() {
    let output =
        capability::OUTPUT.iter().fold(capability::NONE, |all, (_, bit)| capability::union(all, *bit));
    let abilities = |lines: &str, top: &str| {
        let settings = load(&format!("{top}{}", with_provider(lines))).unwrap();
        settings.pool.nodes[0].providers[0].capabilities
    };
    assert!(abilities("priority: 0", "").covers(output));
    assert!(abilities("profile: anthropic\nbase_url: 'http://h'", "").covers(output));
    // One that only lists and counts has no output.
    let top = "protocol_profiles:\n  p: { base: vllm, operations: { chat_completions: , responses: , count_tokens: /c } }\n";
    let bare = abilities("profile: p", top);
    assert!(!bare.covers(capability::OUTPUT_REPEAT_GUARD) && bare.covers(capability::MODELS));
    // It is in no profile and not in what the Node is told.
    let payload = format!("{:?}", load(SMALL).unwrap().nodes[0].payload);
    assert!(!payload.contains("output."), "{payload}");
    let listed = "protocol_profiles:\n  p: { base: vllm, capabilities: [output.repeat_guard] }\n";
    refused(
        &format!("{listed}{SMALL}"),
        "2:35: protocol_profiles.p.capabilities[0]: expected one of models, chat",
        &[],
    );
}

fn gate(keys: &str) -> String {
    small("openai:\n", &format!("openai:\n  stream_evidence_gate:\n    {}\n", keys.replace('\n', "\n    ")))
}

// req: SEG-1
#[test]
fn the_gate_has_its_defaults_and_bounds() {
    for (keys, request, strategy, snapshot, environment) in [
        ("enabled: false", 3, 3, 16_777_216, Environment::Dev),
        ("max_request_fault_recovery: 1", 1, 1, 16_777_216, Environment::Dev),
        ("max_request_fault_recovery: 0", 0, 0, 16_777_216, Environment::Dev),
        ("max_request_fault_recovery: 2\nmax_strategy_fault_recovery: 0", 2, 0, 16_777_216, Environment::Dev),
        ("max_strategy_fault_recovery: 3", 3, 3, 16_777_216, Environment::Dev),
        ("max_ingress_snapshot_bytes: 0\nenvironment: dev-corp", 3, 3, 16_777_216, Environment::DevCorp),
        ("max_ingress_snapshot_bytes: 1\nenvironment: ''", 3, 3, 1, Environment::Dev),
    ] {
        let gate = load(&gate(keys)).unwrap().openai.gate;
        assert!(!gate.enabled && gate.filters.is_empty());
        assert_eq!(
            (
                gate.request_recoveries_max,
                gate.strategy_recoveries_max,
                gate.snapshot_bytes_max,
                gate.environment
            ),
            (request, strategy, snapshot, environment),
            "{keys}"
        );
    }
    assert!(load(&gate("enabled: true")).unwrap().openai.gate.enabled);
    for (keys, start, part) in [
        ("max_request_fault_recovery: 4", "3:33: ", "expected 0 to 3, found 4"),
        ("max_request_fault_recovery: -1", "3:33: ", "expected 0 to 3"),
        (
            "max_request_fault_recovery: 1\nmax_strategy_fault_recovery: 2",
            "4:34: ",
            "expected 0 to 1, found 2",
        ),
        ("max_ingress_snapshot_bytes: 16777217", "3:33: ", "expected 0 to 16777216"),
        ("environment: prod", "3:18: ", "expected one of dev, dev-corp"),
    ] {
        refused(&gate(keys), start, &["openai.stream_evidence_gate.", part]);
    }
}

// req: SEG-2
#[test]
fn a_filter_has_its_defaults_and_its_rules() {
    let keys = "filters:\n  - { filter: repeat_guard }\n  - filter: schema_gate\n    enabled: false\n    enforcement: observe_only\n    capability: streaming\n    hold_evidence_runes: 100\n    timeout_ms: 9\n    selectors:\n      - { model_group: qwen3, enabled: true }\n      - { provider: box1-vllm, enforcement: blocking }\n      - { model: qwen3, enabled: false }\n      - { environment: dev-corp, enabled: true }";
    let gate_settings = load(&gate(keys)).unwrap().openai.gate;
    let [first, second] = gate_settings.filters.as_slice() else { panic!("{gate_settings:?}") };
    assert_eq!((first.kind, first.base.enabled), (FilterKind::RepeatGuard, true));
    assert_eq!(
        (first.base.enforcement, first.capability),
        (Enforcement::Blocking, capability::OUTPUT_REPEAT_GUARD)
    );
    assert_eq!((first.hold_runes, first.timeout), (500, Duration::from_secs(5)));
    assert_eq!((second.kind, second.base.enabled), (FilterKind::SchemaGate, false));
    assert_eq!(
        (second.base.enforcement, second.capability),
        (Enforcement::ObserveOnly, capability::STREAMING)
    );
    assert_eq!((second.hold_runes, second.timeout), (100, Duration::from_millis(9)));
    let scopes: Vec<_> = second.selectors.iter().map(|selector| selector.scope.clone()).collect();
    assert_eq!(
        scopes,
        [
            Scope::ModelGroup("qwen3".into()),
            Scope::Provider("box1-vllm".into()),
            Scope::Model("qwen3".into()),
            Scope::Environment(Environment::DevCorp),
        ]
    );
    for (filter, start, part) in [
        ("{ filter: repeat_gaurd }", "4:19: ", "filters[0].filter: expected one of repeat_guard"),
        ("{ enabled: true }", "4:9: ", "filters[0].filter: expected one of repeat_guard"),
        ("{ filter: repeat_guard, enforcement: block }", "4:46: ", "did you mean `blocking`?"),
        ("{ filter: repeat_guard, capability: output.repeat }", "4:45: ", "output.repeat_guard"),
        ("{ filter: repeat_guard, hold_evidence_runes: -1 }", "4:54: ", "expected 0 to"),
        ("{ filter: repeat_guard, timeout_ms: -1 }", "4:45: ", "expected 0 to"),
        (
            "{ filter: repeat_guard, selectors: [{ enabled: true }] }",
            "4:45: ",
            "expected exactly one of environment, model_group, model and provider, found none",
        ),
        (
            "{ filter: repeat_guard, selectors: [{ model: qwen3, provider: box1-vllm, enabled: true }] }",
            "4:45: ",
            "found 2",
        ),
        ("{ filter: repeat_guard, selectors: [{ provider: box1-vllm }] }", "4:45: ", "changes nothing"),
        (
            "{ filter: repeat_guard, selectors: [{ provider: box1-vlm, enabled: true }] }",
            "4:57: ",
            "no provider of nodes[].providers has id `box1-vlm`; did you mean `box1-vllm`?",
        ),
        (
            "{ filter: repeat_guard, selectors: [{ model_group: qwen, enabled: true }] }",
            "4:60: ",
            "no model of models[] has id `qwen`",
        ),
        (
            "{ filter: repeat_guard, selectors: [{ model: llama, enabled: true }] }",
            "4:54: ",
            "no provider of a model calls it `llama`",
        ),
        (
            "{ filter: repeat_guard, selectors: [{ caller: x, enabled: true }] }",
            "4:47: ",
            "unknown key `caller`",
        ),
        (
            "{ filter: repeat_guard, selectors: [{ model: qwen3, enabled: true }, { model: qwen3, enabled: false }] }",
            "4:78: ",
            "names the same",
        ),
        ("{ filter: repeat_guard }\n  - { filter: repeat_guard }", "5:19: ", "a second time"),
    ] {
        let report = report(&gate(&format!("filters:\n  - {filter}")));
        let first = report.lines().next().unwrap();
        assert!(
            first.starts_with(start) && first.contains(part),
            "expected {start}{part}\n{report}\nof {filter}"
        );
    }
}

#[test]
fn a_name_that_nobody_has_is_no_error_while_somebody_has_no_readable_name() {
    let text = small("- id: box1-vllm", "- id: [box1-vllm]");
    refused(&text, "11:13: nodes[0].providers[0].id: expected a single value, found a list", &[]);
}

// req: SEG-2, PRF-7
#[test]
fn a_provider_that_a_blocking_filter_cannot_look_into_is_no_candidate_where_the_filter_blocks() {
    let members = |keys: &str| load(&gate(keys)).unwrap().pool.groups[0].members.len();
    let filter = "filters: [{ filter: repeat_guard, capability: count_tokens";
    let selected = "selectors: [{ provider: box1-vllm, enforcement: observe_only }]";
    assert_eq!(members("enabled: true\nfilters: [{ filter: repeat_guard }]"), 1, "it can look into it");
    assert_eq!(members(&format!("enabled: true\n{filter} }}]")), 0);
    assert_eq!(members(&format!("enabled: true\n{filter}, {selected} }}]")), 1, "it only records there");
    assert_eq!(members(&format!("enabled: false\n{filter} }}]")), 1);
}
