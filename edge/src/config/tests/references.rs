//! Things that name other things: models, providers, adapters, profiles.

use super::*;

/// Two adapters and one provider; `{adapter}` names what the provider names.
fn with_adapters(adapters: &str, adapter: &str, enabled: bool) -> String {
    format!(
        "openai: {{ provider_id: x }}\nnodes:\n  - id: n\n    adapters: [{adapters}]\n    providers:\n      - {{ id: p, type: vllm, category: api, models: [m], enabled: {enabled}, adapter: {adapter} }}\n"
    )
}

// req: CFG-6
#[test]
fn a_provider_names_an_enabled_adapter_of_its_node() {
    let a = "{ name: a, type: openai_compat }";
    let b = "{ name: b, type: openai_compat }";
    let v = "{ name: v, type: vllm }";
    let off = "{ name: off, type: vllm, enabled: false }";
    let trap = "{ name: vllm, type: openai_compat }";
    for (adapters, adapter, found) in [
        (format!("{a}, {b}"), "b", "b"),
        (format!("{a}, {v}"), "openai_compat", "a"),
        (format!("{a}, {v}"), "vllm", "v"),
        // The exact name wins over the type, and a disabled instance does not make a type ambiguous.
        (format!("{v}, {trap}"), "vllm", "vllm"),
        (format!("{v}, {off}"), "vllm", "v"),
        ("{ type: vllm }".to_owned(), "vllm", "vllm"),
        ("{ name: s, type: seulgivibe_openai }".to_owned(), "openai_compat", "s"),
    ] {
        let settings = load(&with_adapters(&adapters, adapter, true)).unwrap();
        assert_eq!(settings.nodes[0].payload.providers[0].adapter, found, "{adapters} {adapter}");
        assert_eq!(settings.pool.nodes[0].providers[0].adapter.as_ref(), found);
        let names: Vec<_> = settings.nodes[0].payload.adapters.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, [found], "adapters that nobody uses are left out");
    }
    for (adapters, adapter, part) in [
        (format!("{a}, {b}"), "c", "expected the name of an enabled adapter of this node (a, b), found `c`"),
        (
            format!("{a}, {b}"),
            "openai_compat",
            "2 adapters of this node have type `openai_compat`: expected one of their names: a, b",
        ),
        (off.to_owned(), "off", "adapter `off` of this node is disabled"),
        (off.to_owned(), "vllm", "expected the name of an enabled adapter"),
        (String::new(), "a", "(none), found `a`"),
        ("{ name: vllm-one, type: vllm }".to_owned(), "vllm_one", "did you mean `vllm-one`?"),
    ] {
        let text = with_adapters(&adapters, adapter, true);
        let report = report(&text);
        assert!(report.contains("nodes[0].providers[0].adapter: ") && report.contains(part), "{report}");
        assert_eq!(report.lines().count(), 1, "{report}");
        // A disabled provider skips this check, and is not sent to the Node.
        let settings = load(&with_adapters(&adapters, adapter, false)).unwrap();
        assert_eq!(settings.pool.nodes[0].providers.len(), 1);
        assert!(!settings.pool.nodes[0].providers[0].enabled);
    }
}

// req: CFG-6
#[test]
fn a_disabled_provider_keeps_the_structural_rules() {
    for (from, to, part) in [
        ("type: vllm", "type: vlm", "nodes[0].providers[0].type: expected one of"),
        (
            "category: local_inference",
            "category: local",
            "nodes[0].providers[0].category: expected one of api, cli, local_inference",
        ),
        (
            "        category: local_inference\n",
            "",
            "nodes[0].providers[0].category: expected one of api, cli, local_inference",
        ),
        ("models: [qwen3]", "models: []", "nodes[0].providers[0].models: expected at least one model"),
        ("        models: [qwen3]\n", "", "nodes[0].providers[0].models: expected at least one model"),
        (
            "models: [qwen3]",
            "models: [qwen3]\n        capacity: 0",
            "nodes[0].providers[0].capacity: expected 1 to",
        ),
        ("- id: box1-vllm", "- id: ''", "nodes[0].providers[0].id: expected a value"),
    ] {
        let text = small(from, to)
            .replace("        adapter: vllm-1", "        enabled: false\n        adapter: gone");
        let text = text.replace("providers: [box1-vllm]", "providers: [other]");
        let other = "  - id: box2\n    adapters: [{ name: v, type: vllm }]\n    providers: [{ id: other, type: vllm, category: api, adapter: v, models: [qwen3] }]\n";
        let text = format!("{text}{other}");
        let report = report(&text);
        assert!(
            report.contains(part) && report.lines().count() == 1,
            "expected {part} in\n{report}\nof\n{text}"
        );
    }
}

// req: CFG-6
#[test]
fn ids_are_unique() {
    let node = "  - id: box2\n    adapters: [{ name: v, type: vllm }]\n    providers: [{ id: box1-vllm, type: vllm, category: api, adapter: v, models: [m] }]\n";
    refused(
        &format!("{SMALL}{node}"),
        "18:17: nodes[1].providers[0].id: nodes[0].providers[0] has the same id",
        &["whole file"],
    );
    refused(&format!("{SMALL}  - id: box1\n"), "16:9: nodes[1].id: nodes[0] has the same id", &[]);
    let model = "  - { id: qwen3, providers: [box1-vllm] }\nnodes:\n";
    refused(&small("nodes:\n", model), "6:11: models[1].id: models[0] has the same id", &[]);
    let adapter = "- { name: vllm-1, type: openai_compat }\n      - { name: vllm-1, type: vllm }";
    let text = small("- { name: vllm-1, type: openai_compat }", adapter);
    refused(&text, "10:17: nodes[0].adapters[1].name: nodes[0].adapters[0] has the same name", &[]);
}

#[test]
fn a_model_names_providers_that_exist_and_serve_it() {
    refused(
        &small("[box1-vllm]", "[box1-vlm]"),
        "5:17: models[0].providers[0]: ",
        &["no provider", "did you mean `box1-vllm`?"],
    );
    refused(&small("[box1-vllm]", "[]"), "5:16: models[0].providers: expected the id of at least one", &[]);
    refused(&small("    providers: [box1-vllm]\n", ""), "4:5: models[0].providers: expected the id", &[]);
    refused(
        &small("[box1-vllm]", "[box1-vllm, box1-vllm]"),
        "5:28: models[0].providers[1]: ",
        &["already in the list"],
    );
    refused(&small("id: qwen3", "id: ''"), "4:9: models[0].id: expected a value, found an empty one", &[]);
    refused(
        &small("[box1-vllm]", "[box1-vllm]\n    usage_attribution: group"),
        "6:24: models[0].usage_attribution: ",
        &["expected one of provider, model_group"],
    );
}

// req: PRF-5
#[test]
fn a_mapped_model_must_be_one_that_the_provider_serves() {
    refused(
        &small("models: [qwen3]", "models: [llama]"),
        "5:17: models[0].providers[0]: provider `box1-vllm` does not serve `qwen3`",
        &["its models are llama"],
    );
    let profile = "protocol_profiles:\n  p: { base: vllm, model_mapping: { qwen3: Big, small: qwen3 } }\n";
    let text = small("models: [qwen3]", "models: [small]\n        profile: p");
    refused(
        &format!("{profile}{text}"),
        "7:17: models[0].providers[0]: ",
        &["does not serve `Big`", "profile `p`"],
    );
}

#[test]
fn providers_of_one_adapter_agree_on_how_it_is_called() {
    let second = |more: &str| {
        format!("{SMALL}      - {{ id: b, type: vllm, category: api, adapter: vllm-1, models: [m]{more} }}\n")
    };
    load(&second("")).unwrap();
    load(&second(", profile: vllm, base_url: 'http://127.0.0.1:8000/v1'")).unwrap();
    for more in [", profile: sglang", ", base_url: 'http://127.0.0.1:8001'", ", headers: { x-a: b }"] {
        let report = report(&second(more));
        assert!(
            report.contains("nodes[0].providers[1].profile: adapter `vllm-1` also serves providers[0]"),
            "{report}"
        );
        assert!(report.starts_with("16:") && report.lines().count() == 1, "{report}");
    }
}

// req: PRF-1
#[test]
fn an_overlay_has_one_base_that_exists_and_no_cycle() {
    for (profiles, start, parts) in [
        (
            "  p: { base: vlm }\n",
            "2:14: protocol_profiles.p.base: unknown profile `vlm`",
            &["did you mean `vllm`?"][..],
        ),
        ("  p: { driver: openai_chat }\n", "2:3: protocol_profiles.p.base: expected a value", &[]),
        ("  p: { base: p }\n", "2:14: protocol_profiles.p.base: the bases form a cycle: p → p", &[]),
        (
            "  a: { base: b }\n  b: { base: c }\n  c: { base: b }\n",
            "4:14: protocol_profiles.c.base: the bases form a cycle",
            &["→ b"],
        ),
        (
            "  a: { base: b }\n  b: { base: nope }\n  c: { base: a }\n",
            "3:14: protocol_profiles.b.base: unknown profile `nope`",
            &[],
        ),
        ("  vllm: { base: sglang }\n", "2:3: protocol_profiles.vllm: ", &["built-in profile"]),
        (
            "  p: { base: vllm, driver: grpc }\n",
            "2:28: protocol_profiles.p.driver: expected one of openai_chat",
            &[],
        ),
        (
            "  p: { base: vllm, driver: anthropic_messages, operations: { responses: , chat_completions: } }\n",
            "",
            &[],
        ),
        (
            "  p: { base: vllm, driver: anthropic_messages }\n",
            "2:28: protocol_profiles.p.operations: driver anthropic_messages has no operation chat_completions",
            &["responses"],
        ),
        (
            "  p: { base: vllm, operations: { chat: /chat } }\n",
            "2:34: protocol_profiles.p.operations.chat: expected one of models, chat_completions",
            &[],
        ),
        (
            "  p: { base: vllm, operations: { messages: /m } }\n",
            "2:32: protocol_profiles.p.operations: driver openai_chat has no operation messages",
            &[],
        ),
        (
            "  p: { base: vllm, operations: { models: 'a b' } }\n",
            "2:42: protocol_profiles.p.operations.models: a URL holds visible ASCII",
            &[],
        ),
        (
            "  p: { base: vllm, capabilities: [chat, vision] }\n",
            "2:41: protocol_profiles.p.capabilities[1]: expected one of models, chat",
            &[],
        ),
        (
            "  p: { base: vllm, capabilities: [messages] }\n",
            "2:35: protocol_profiles.p.capabilities[0]: ",
            &["offers no operation for capability `messages`"],
        ),
        (
            "  p: { base: vllm, capabilities: [''] }\n",
            "2:35: protocol_profiles.p.capabilities[0]: expected one of",
            &["no value"],
        ),
        (
            "  p: { base: vllm, base_url: 127.0.0.1:8000 }\n",
            "2:30: protocol_profiles.p.base_url: expected a URL that begins with http://",
            &[],
        ),
        (
            "  p: { base: vllm, model_mapping: { a: '' } }\n",
            "2:40: protocol_profiles.p.model_mapping.a: expected a value",
            &[],
        ),
    ] {
        let text = format!("protocol_profiles:\n{profiles}{SMALL}");
        if start.is_empty() {
            load(&text).unwrap();
            continue;
        }
        let report = report(&text);
        assert!(report.starts_with(start), "expected {start}\n   found {report}");
        for part in parts {
            assert!(report.contains(part), "expected {part:?} in\n{report}");
        }
    }
    refused(
        &with_provider("profile: vlm"),
        "16:18: nodes[0].providers[0].profile: unknown profile `vlm`; did you mean `vllm`?",
        &[],
    );
}

#[test]
fn a_provider_without_an_address_is_refused() {
    refused(
        &small("type: vllm", "type: openai_compat"),
        "11:9: nodes[0].providers[0].base_url: profile `openai_compat` has no address",
        &[],
    );
    refused(
        &with_provider("base_url: 'http://a'\nendpoint: 'http://b'"),
        "17:19: nodes[0].providers[0].endpoint: ",
        &["only one of them"],
    );
    load(&with_provider("base_url: 'http://a'\nendpoint: 'http://a/'")).unwrap();
}

#[test]
fn headers_that_are_not_the_configurations_are_refused() {
    for (header, part) in [
        ("Host: a", "belongs to the connection"),
        ("Content-Length: '5'", "belongs to the connection"),
        ("Authorization: Bearer x", "a credential cannot be configured as a header"),
        ("X-Api-Key: x", "a credential cannot be configured as a header"),
        ("cookie: x", "a credential cannot be configured as a header"),
        ("'a b': x", "expected a header name"),
        ("x-a: ''", "expected a header value"),
        ("x-a: \"b\\r\\nc: d\"", "expected a header value"),
        ("x-a: ' b'", "expected a header value"),
        ("x-a: b, X-A: c", "a second time; case makes no difference"),
        ("x-a: '${NOPE}'", "the environment variable NOPE is not set"),
    ] {
        refused(
            &with_provider(&format!("headers: {{ {header} }}")),
            "16:",
            &["nodes[0].providers[0].headers.", part],
        );
    }
}

#[test]
fn a_second_factor_has_one_source() {
    let text = |lines: &str| small("id: box1\n", &format!("id: box1\n    {lines}\n"));
    refused(&text("token: a\n    token_file: b"), "9:17: nodes[0].token_file: expected only one", &[]);
    refused(
        &text("token_file: /nonexistent/token"),
        "8:17: nodes[0].token_file: cannot read `/nonexistent/token`",
        &[],
    );
    refused(&text("token: 'a b'"), "8:12: nodes[0].token: expected 1 to 512 visible", &[]);
    refused(&text("token: '${NOPE}'"), "8:12: nodes[0].token: the environment variable NOPE", &[]);
    refused(
        &small("id: box1\n", "alias: a\n"),
        "7:5: nodes[0].id: expected the name in the Node's certificate",
        &[],
    );
    refused(&small("id: box1\n", "id: Box1\n"), "7:9: nodes[0].id: expected a name of a-z", &["`Box1`"]);
}
