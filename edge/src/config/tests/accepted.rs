//! Defaults and meanings.

use std::time::Duration;

use control::config::{Capabilities, Group};
use dataplane::tls::server::MinVersion;
use proto::message::{AdapterSettings, OpenAiCompatConfig, Operation};

use super::*;
use crate::config::{
    SLOTS_MAX, capability,
    settings::{LogFormat, LogLevel, UsageAttribution},
};

fn compat(settings: &Settings, adapter: usize) -> &OpenAiCompatConfig {
    match &settings.nodes[0].payload.adapters[adapter].settings {
        AdapterSettings::OpenAiCompat(config) => config,
        other => panic!("{other:?}"),
    }
}

fn target(settings: &Settings) -> &str {
    let Group { members, .. } = &settings.pool.groups[0];
    &members[0].target
}

#[test]
fn a_missing_key_has_its_default() {
    let settings = load(SMALL).unwrap();
    assert_eq!(settings.generation, 1);
    assert_eq!(settings.edge.name.as_str(), "edge-1");
    assert_eq!([settings.edge.shard_count(1), settings.edge.shard_count(8)], [1, 7]);
    assert_eq!(settings.edge.cpus, [0usize; 0]);
    let addresses = |list: &[std::net::SocketAddr]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(addresses(&settings.listen.http), ["0.0.0.0:8080", "[::]:8080"]);
    assert_eq!(addresses(&settings.listen.node), ["0.0.0.0:9443"]);
    assert_eq!(settings.listen.ops.to_string(), "127.0.0.1:9090");
    assert_eq!(settings.listen.admin_socket, None);
    assert_eq!(settings.identity.cert, Path::new("/etc/iop/pki/edge.crt"));
    assert_eq!(settings.identity.key, Path::new("/etc/iop/pki/edge.key"));
    assert_eq!(settings.identity.node_ca, Path::new("/etc/iop/pki/node-ca.crt"));
    assert_eq!((settings.limits.head_bytes, settings.limits.head_fields), (65_536, 100));
    assert_eq!(settings.limits.head_timeout, Duration::from_secs(10));
    assert_eq!((settings.limits.body_bytes, settings.limits.body_memory), (33_554_432, 536_870_912));
    assert_eq!(settings.limits.body_timeout, Duration::from_secs(10));
    assert_eq!(settings.limits.body_min_rate, 1024);
    assert_eq!(settings.limits.keepalive_idle, Duration::from_secs(100));
    assert_eq!(settings.limits.h2_streams, 100);
    assert_eq!(settings.limits.write_stall, Duration::from_secs(60));
    assert_eq!(settings.limits.drain_grace, Duration::from_secs(30));
    assert_eq!((settings.logging.level, settings.logging.format), (LogLevel::Info, LogFormat::Text));
    assert!(settings.metrics_enabled && settings.openai.enabled);
    assert_eq!(settings.advertise, None);
    assert_eq!(settings.openai.keepalive_comment, Duration::from_secs(15));
    assert_eq!(settings.openai.keepalive_event, Duration::from_secs(60));
    assert!(!settings.openai.keepalive_tunnel && !settings.openai.usage_require);
    assert_eq!(settings.openai.response_wait_margin, Duration::from_secs(15));
    assert_eq!(settings.long_context_threshold_tokens, 100_000);
    let model = settings.model("qwen3").unwrap();
    assert_eq!(model.display_name.as_ref(), "qwen3");
    assert_eq!(model.usage_attribution, UsageAttribution::Provider);
    assert_eq!(model.context_window_tokens, None);
    assert!(settings.model("qwen").is_none() && settings.node("box2").is_none());
}

#[test]
fn a_key_without_a_value_is_a_missing_key() {
    let text =
        format!("edge:\nlisten:\nlimits:\n  head_bytes:\nbootstrap: {{}}\nprotocol_profiles:\n{SMALL}");
    assert_eq!(load(&text).unwrap().limits.head_bytes, 65_536);
}

// req: POL-3
#[test]
fn an_omitted_capacity_is_one_and_an_omitted_long_capacity_is_the_capacity() {
    for (lines, capacity, long) in [
        ("priority: 0", 1, 1),
        ("capacity: 4", 4, 4),
        ("capacity: 4\nlong_context_capacity: 0", 4, 0),
        ("capacity: 4\nlong_context_capacity: 4", 4, 4),
        ("long_context_capacity: 0", 1, 0),
        ("capacity: 32768", 32_768, 32_768),
    ] {
        let settings = load(&with_provider(lines)).unwrap();
        let provider = &settings.pool.nodes[0].providers[0];
        assert_eq!((provider.capacity, provider.long_capacity), (capacity, long), "{lines}");
    }
}

// req: STL-10
#[test]
fn an_omitted_or_zero_stall_timeout_is_five_minutes() {
    let largest = i64::MAX / 1_000_000;
    for (lines, millis) in [
        ("priority: 0".to_owned(), 300_000),
        ("response_stall_timeout_ms: 0".to_owned(), 300_000),
        ("response_stall_timeout_ms: 1".to_owned(), 1),
        (format!("response_stall_timeout_ms: {largest}"), largest),
    ] {
        let settings = load(&with_provider(&lines)).unwrap();
        let expected = Duration::from_millis(millis.unsigned_abs());
        assert_eq!(settings.pool.nodes[0].providers[0].stall_timeout, expected, "{lines}");
        assert_eq!(settings.nodes[0].payload.providers[0].response_stall_timeout_ms, millis, "{lines}");
    }
}

#[test]
fn a_request_timeout_of_zero_is_one_hour() {
    for (lines, seconds) in [("request_timeout_ms: 0", 3600), ("request_timeout_ms: 90000", 90)] {
        let settings = load(&with_provider(lines)).unwrap();
        assert_eq!(
            settings.pool.nodes[0].providers[0].request_timeout,
            Duration::from_secs(seconds),
            "{lines}"
        );
    }
}

// req: POL-5
#[test]
fn queue_policy_tells_an_omitted_wait_from_an_explicit_zero() {
    let half_minute = Some(Duration::from_secs(30));
    for (pool, max, timeout) in [
        ("", 16, half_minute),
        ("provider_pool: {}\n", 16, half_minute),
        ("provider_pool: { max_queue: 0 }\n", 16, half_minute),
        ("provider_pool: { max_queue: 3 }\n", 3, half_minute),
        ("provider_pool: { queue_timeout_ms: 0 }\n", 16, None),
        ("provider_pool: { max_queue: 3, queue_timeout_ms: 250 }\n", 3, Some(Duration::from_millis(250))),
    ] {
        let settings = load(&format!("{pool}{SMALL}")).unwrap();
        assert_eq!((settings.pool.queue_max, settings.pool.queue_timeout), (max, timeout), "{pool}");
    }
}

// req: PRF-2
#[test]
fn a_type_chooses_the_profile_that_is_not_named() {
    let vllm = load(SMALL).unwrap();
    assert_eq!(compat(&vllm, 0).profile.id, "vllm");
    assert_eq!(compat(&vllm, 0).profile.base_url, "http://127.0.0.1:8000/v1");
    let generic =
        load_small("type: vllm", "type: openai_compat\n        base_url: http://10.1.1.1:9").unwrap();
    assert_eq!(compat(&generic, 0).profile.id, "openai_compat");
    assert_eq!(compat(&generic, 0).profile.operations[0].url, "http://10.1.1.1:9/v1/models");
    let named = load(&with_provider("profile: llama_cpp")).unwrap();
    assert_eq!(compat(&named, 0).profile.base_url, "http://127.0.0.1:8080/v1");
}

// req: PRF-2, PRF-6
#[test]
fn the_payload_carries_the_resolved_profile_with_absolute_urls() {
    let settings = load(&with_provider("base_url: http://${HOST}:8000/v1/")).unwrap();
    let profile = &compat(&settings, 0).profile;
    assert_eq!(
        (profile.driver.as_str(), profile.base_url.as_str()),
        ("openai_chat", "http://10.0.0.7:8000/v1")
    );
    let operations: Vec<_> =
        profile.operations.iter().map(|it| (it.operation, it.method.as_str(), it.url.as_str())).collect();
    assert_eq!(
        operations,
        [
            (Operation::Models, "GET", "http://10.0.0.7:8000/v1/models"),
            (Operation::ChatCompletions, "POST", "http://10.0.0.7:8000/v1/chat/completions"),
            (Operation::Responses, "POST", "http://10.0.0.7:8000/v1/responses"),
        ]
    );
    assert_eq!(profile.capabilities, ["models", "chat", "responses", "streaming", "tool_calling"]);
}

#[test]
fn an_adapter_has_room_for_all_its_providers() {
    let second = "    - { id: b, type: vllm, category: api, adapter: vllm-1, models: [m], capacity: 5, enabled: false }\n";
    let settings = load(&format!("{}  {second}", with_provider("capacity: 3"))).unwrap();
    let payload = &settings.nodes[0].payload;
    assert_eq!((payload.adapters[0].capacity, payload.providers.len()), (8, 2));
    assert!(payload.providers[0].enabled && !payload.providers[1].enabled);
}

#[test]
fn an_overlay_extends_a_built_in_profile_or_another_overlay() {
    let profiles = r#"protocol_profiles:
  near: { base: far, model_mapping: { qwen3: Qwen/Qwen3-32B }, operations: { responses: } }
  far:
    base: sglang
    base_url: "http://${HOST}:1/base/"
    model_mapping: { qwen3: wrong, other: kept }
    operations: { chat_completions: /chat, count_tokens: "http://elsewhere:2/count" }
    capabilities: [chat, streaming, count_tokens, responses]
"#;
    let text = format!("{profiles}{}", with_provider("profile: near"));
    let settings = load(&text).unwrap();
    let profile = &compat(&settings, 0).profile;
    assert_eq!((profile.id.as_str(), profile.base_url.as_str()), ("near", "http://10.0.0.7:1/base"));
    let urls: Vec<_> = profile.operations.iter().map(|it| it.url.as_str()).collect();
    assert_eq!(
        urls,
        ["http://10.0.0.7:1/base/v1/models", "http://10.0.0.7:1/base/chat", "http://elsewhere:2/count"]
    );
    // The operation that was taken away took its capability with it.
    assert_eq!(profile.capabilities, ["chat", "streaming", "count_tokens"]);
    assert_eq!(target(&settings), "Qwen/Qwen3-32B");
    let bits = capability::union(
        capability::union(capability::CHAT, capability::STREAMING),
        capability::COUNT_TOKENS,
    );
    assert!(settings.pool.nodes[0].providers[0].capabilities.covers(bits));
    let (node, provider) = settings.provider("box1-vllm").unwrap();
    assert_eq!((node.id.as_str(), provider.profile.as_ref(), provider.capabilities), ("box1", "near", bits));
}

// req: PRF-5
#[test]
fn a_model_is_mapped_to_what_the_provider_serves() {
    let profile = "protocol_profiles:\n  p: { base: vllm, model_mapping: { qwen3: Qwen/Qwen3-32B } }\n";
    // By the name that clients ask for, or by the name that the server knows.
    for models in ["[qwen3]", "[Qwen/Qwen3-32B]", "[other, qwen3]"] {
        let text = small("models: [qwen3]", &format!("models: {models}\n        profile: p"));
        let settings = load(&format!("{profile}{text}")).unwrap();
        assert_eq!(target(&settings), "Qwen/Qwen3-32B", "{models}");
        let served = &settings.nodes[0].payload.providers[0].models;
        assert!(served.iter().any(|name| name == "Qwen/Qwen3-32B"), "{models}: {served:?}");
    }
    assert_eq!(target(&load(SMALL).unwrap()), "qwen3");
}

// req: CFG-9
#[test]
fn a_seulgivibe_type_is_an_openai_compatible_one_with_its_alias_as_label() {
    for alias in ["seulgivibe_claude", "seulgivibe_openai"] {
        let text =
            small("type: openai_compat", &format!("type: {alias}, settings: {{ base_url: 'http://h/v1' }}"));
        let text = text.replace("type: vllm", &format!("type: {alias}"));
        let settings = load(&text).unwrap();
        let config = compat(&settings, 0);
        assert_eq!((config.provider_label.as_str(), config.profile.id.as_str()), (alias, "openai_compat"));
        assert_eq!(config.profile.base_url, "http://h/v1");
        let labelled = text.replace("settings: {", "settings: { provider: mine,");
        assert_eq!(compat(&load(&labelled).unwrap(), 0).provider_label, "mine");
        let by_provider = small("type: vllm", &format!("type: {alias}\n        base_url: http://h/v1"));
        assert_eq!(compat(&load(&by_provider).unwrap(), 0).provider_label, alias);
    }
}

#[test]
fn own_fields_win_over_the_adapters_and_these_over_the_profiles() {
    let adapter = "settings: { endpoint: 'http://adapter', headers: { X-A: adapter, x-b: adapter } } }";
    let text = small("type: openai_compat }", &format!("type: openai_compat, {adapter}"));
    let settings = load(&text).unwrap();
    assert_eq!(compat(&settings, 0).profile.base_url, "http://adapter");
    let settings =
        load(&format!("{text}        base_url: http://own\n        headers: {{ x-a: own }}\n")).unwrap();
    assert_eq!(compat(&settings, 0).profile.base_url, "http://own");
    let headers: Vec<_> =
        compat(&settings, 0).headers.iter().map(|it| (it.name.as_str(), it.value.as_ref())).collect();
    assert_eq!(headers, [("x-b", b"adapter".as_slice()), ("x-a", b"own")]);
}

#[test]
fn cpus_give_the_number_of_shards() {
    let settings = load(&format!("edge: {{ cpus: [2, 3, 4] }}\n{SMALL}")).unwrap();
    assert_eq!((settings.edge.shard_count(64), settings.edge.cpus.as_slice()), (3, [2, 3, 4].as_slice()));
    let settings = load(&format!("edge: {{ shards: 2 }}\n{SMALL}")).unwrap();
    assert_eq!(settings.edge.shard_count(64), 2);
}

#[test]
fn the_admin_socket_stands_in_the_runtime_directory() {
    let env = |name: &str| (name == "RUNTIME_DIRECTORY").then(|| "/run/iop:/run/other".to_owned());
    let settings = load_text(SMALL, Path::new("edge.yaml"), &env).unwrap();
    assert_eq!(settings.listen.admin_socket.as_deref(), Some(Path::new("/run/iop/iop-edge.sock")));
    let text = format!("listen: {{ admin_socket: a.sock }}\n{SMALL}");
    let settings = load_text(&text, Path::new("/etc/iop/edge.yaml"), &env).unwrap();
    assert_eq!(settings.listen.admin_socket.as_deref(), Some(Path::new("/etc/iop/a.sock")));
}

#[test]
fn a_second_factor_is_compared_and_never_shown() {
    let settings = load_small("id: box1\n", "id: box1\n    token: ${SECRET}\n").unwrap();
    let node = settings.node("box1").unwrap();
    assert!(node.token_ok("hunter2") && !node.token_ok("hunter3") && !node.token_ok(""));
    assert!(!format!("{settings:?}").contains("hunter2"));
    assert!(load(SMALL).unwrap().nodes[0].token_ok("anything"));
}

// req: CFG-2
#[test]
fn several_tokens_may_share_a_principal() {
    let (a, b) = ("A".repeat(64), "0b".repeat(32));
    let tokens = format!(
        "  principal_tokens:\n    - {{ token_ref: laptop, token_hash_sha256: {a}, principal_ref: alice, principal_alias: Alice }}\n    - {{ token_ref: ci, token_hash_sha256: \"{b}\", principal_ref: alice }}\n"
    );
    let settings = load_small("models:\n", &format!("{tokens}models:\n")).unwrap();
    let seen: Vec<_> = settings
        .principals
        .iter()
        .map(|it| {
            (
                it.hash,
                it.principal.token_ref.as_ref(),
                it.principal.principal_ref.as_ref(),
                it.principal.alias.as_deref(),
            )
        })
        .collect();
    assert_eq!(seen, [([0xAA; 32], "laptop", "alice", Some("Alice")), ([0x0B; 32], "ci", "alice", None)]);
    assert!(settings.warnings.is_empty());
}

#[test]
fn what_is_surely_not_meant_is_a_warning() {
    let warnings = load(&with_provider("enabled: false")).unwrap().warnings;
    let text: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(text.len(), 2, "{text:?}");
    assert!(text[0].starts_with("2:3: openai.principal_tokens: there are no tokens"), "{text:?}");
    assert!(text[1].starts_with("4:5: models[0].providers: every provider"), "{text:?}");
}

#[test]
fn an_address_that_names_an_operation_is_a_warning() {
    let told = |url: &str| {
        let warnings = load(&with_provider(&format!("base_url: {url}"))).unwrap().warnings;
        warnings.iter().filter(|warning| warning.path == "nodes[0].providers[0].base_url").count()
    };
    assert_eq!(told("http://h/v1/chat/completions"), 1);
    assert_eq!(told("http://h/chat/completions/"), 1);
    assert_eq!(told("http://h/v1"), 0);
    assert_eq!(told("http://h/chat"), 0);
}

#[test]
fn as_many_slots_as_can_be_leased_are_accepted() {
    let settings = load(&with_provider(&format!("capacity: {SLOTS_MAX}"))).unwrap();
    assert_eq!(i64::from(settings.pool.nodes[0].providers[0].capacity), SLOTS_MAX);
}

#[test]
fn capability_names_and_bits_belong_together() {
    for (name, bit) in capability::ALL {
        assert_eq!(capability::named(name), Some(bit));
        assert_eq!(capability::names(bit), [name]);
    }
    let all = capability::ALL.iter().fold(Capabilities(0), |all, (_, bit)| capability::union(all, *bit));
    assert_eq!(capability::names(all).len(), 7);
}

#[test]
fn a_certificate_makes_https_of_the_addresses_or_of_those_of_its_own() {
    let listen = |text: &str| load(&format!("listen: {{ {text} }}\n{SMALL}")).unwrap().listen;
    let plain = |list: &[std::net::SocketAddr]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    let off = listen("tls: { cert_file: '', key_file: '' }, https: []");
    assert!(off.tls.is_none() && off.https.is_empty() && off.http.len() == 2);

    let same = listen("http: ['127.0.0.1:1', '[::1]:1'], tls: { cert_file: a.crt, key_file: /b.key }");
    assert_eq!(plain(&same.https), ["127.0.0.1:1", "[::1]:1"]);
    assert!(same.http.is_empty());
    let tls = same.tls.unwrap();
    assert_eq!((&*tls.cert.0, &*tls.key.0), (Path::new("/etc/iop/a.crt"), Path::new("/b.key")));
    assert_eq!(tls.min_version, MinVersion::Tls12);

    let files = "tls: { cert_file: a, key_file: b, min_version: '1.3' }";
    let both = listen(&format!("https: ['[::]:8443'], {files}"));
    assert_eq!(plain(&both.http), ["0.0.0.0:8080", "[::]:8080"]);
    assert_eq!(plain(&both.https), ["[::]:8443"]);
    assert_eq!(both.tls.map(|tls| tls.min_version), Some(MinVersion::Tls13));
    let alone = listen(&format!("http: [], https: ['[::]:8443'], {files}"));
    assert!(alone.http.is_empty() && alone.https.len() == 1);
}
