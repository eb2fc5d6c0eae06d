//! Direct routes (CFG-4), and providers that health evidence cannot tell apart (CAP-4).

use std::time::Duration;

use super::*;

/// [`SMALL`] with these routes.
fn with_routes(routes: &str) -> String {
    small("provider_id: local\n", &format!("provider_id: local\n  model_routes:\n{routes}"))
}

const GOOD: &str = "    - { model: raw, adapter: vllm-1, target: 'Qwen/Q' }\n";

// req: CFG-4, STL-2
#[test]
fn a_route_has_its_own_attribution_or_that_of_the_surface_and_names_no_provider() {
    let more = "    - { model: other, adapter: vllm-1, target: b, provider_id: elsewhere }\n";
    let settings = load(&with_routes(&format!("{GOOD}{more}"))).unwrap();
    let routes: Vec<_> = settings
        .pool
        .routes
        .iter()
        .map(|route| [&route.model, &route.adapter, &route.target, &route.provider].map(|it| &**it))
        .collect();
    assert_eq!(routes, [["raw", "vllm-1", "Qwen/Q", "local"], ["other", "vllm-1", "b", "elsewhere"]]);
    let route = &settings.pool.routes[0];
    assert_eq!((route.stall_timeout, route.request_timeout), (Duration::ZERO, Duration::from_secs(3600)));
    assert!(settings.direct_model("raw").is_some() && settings.model("raw").is_none());
    assert!(settings.direct_model("qwen3").is_none());
    assert_eq!(settings.pool.nodes[0].adapters, ["vllm-1".into()]);
}

// req: CFG-4, POL-12
#[test]
fn a_route_that_leads_nowhere_or_twice_is_refused_with_its_place() {
    for (from, to, start, parts) in [
        ("raw", "qwen3", "4:16: openai.model_routes[0].model: ", &["models[0] has the same name"][..]),
        (
            "adapter: vllm-1",
            "adapter: vlm-1",
            "4:30: openai.model_routes[0].adapter: ",
            &["no adapter of nodes[].adapters has name `vlm-1`", "did you mean `vllm-1`?"],
        ),
        ("adapter: vllm-1, ", "", "4:7: openai.model_routes[0].adapter: ", &["the key is missing"]),
        ("target: 'Qwen/Q'", "target: ''", "4:46: openai.model_routes[0].target: ", &["an empty one"]),
        ("'Qwen/Q'", "a, provider_id: ' '", "4:62: openai.model_routes[0].provider_id: ", &["an empty one"]),
        ("'Qwen/Q'", "a, provider_id: ''", "4:62: openai.model_routes[0].provider_id: ", &["an empty one"]),
        ("'Qwen/Q'", "a, provder_id: a", "4:49: openai.model_routes[0].provder_id: ", &["`provider_id`"]),
    ] {
        assert_eq!(GOOD.matches(from).count(), 1, "{from}");
        refused(&with_routes(&GOOD.replace(from, to)), start, parts);
    }
    let twice = with_routes(&format!("{GOOD}{GOOD}"));
    refused(&twice, "5:16: openai.model_routes[1].model: ", &["openai.model_routes[0] has the same name"]);
}

// req: CFG-4
#[test]
fn a_blank_attribution_of_the_surface_is_told_last() {
    let text = with_routes("    - { model: raw, adapter: gone, target: t }\n");
    let told = report(&text.replace("provider_id: local\n", "provider_id: ' '\n"));
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(
        lines[0].contains("model_routes[0].adapter") && lines[1].contains("openai.provider_id"),
        "{told}"
    );
}

// req: POL-12
#[test]
fn the_adapter_must_be_one_that_a_node_is_told_of() {
    let unused = "type: openai_compat }\n      - { name: spare, type: openai_compat }\n";
    let text = with_routes(&GOOD.replace("vllm-1", "spare")).replace("type: openai_compat }\n", unused);
    refused(&text, "4:30: openai.model_routes[0].adapter: ", &["no provider is on adapter `spare`"]);
    let off = text.replace("name: spare,", "name: spare, enabled: false,");
    refused(&off, "4:30: openai.model_routes[0].adapter: ", &["adapter `spare` is disabled on every node"]);
    // One of a native type is as good as any, and what is granted there is a run.
    let native = format!(
        "{}      - {{ id: own, type: ollama, category: local_inference, adapter: spare, models: [x] }}\n",
        text.trim_end_matches('\n').to_owned() + "\n",
    )
    .replace("name: spare, type: openai_compat", "name: spare, type: ollama");
    let settings = load(&native).unwrap();
    assert_eq!(settings.pool.routes.len(), 1);
}

/// What is warned of: `two` beside a provider `one`, which serves `q` on adapter `a`; models `q` and `r` name them as given.
fn told_of(two: &str, q: &str, r: &str) -> Vec<String> {
    let text = format!(
        "openai: {{ provider_id: x, principal_tokens: [{{ token_ref: t, principal_ref: t, token_hash_sha256: {:064} }}] }}
models: [{{ id: q, providers: [{q}] }}, {{ id: r, providers: [{r}] }}]
nodes:
  - id: n
    adapters: [{{ name: a, type: vllm }}, {{ name: b, type: vllm }}]
    providers:
      - {{ id: one, adapter: a, models: [q, r], type: vllm, category: local_inference }}
      - {{ id: two, {two}, type: vllm, category: local_inference }}
",
        0
    );
    load(&text).unwrap().warnings.iter().map(ToString::to_string).collect()
}

// req: CAP-4
#[test]
fn two_providers_that_evidence_cannot_tell_apart_are_a_warning() {
    let told = told_of("adapter: a, models: [q, r]", "one, two", "two");
    assert_eq!(told.len(), 1, "{told:?}");
    let start = "8:9: nodes[0].providers[1]: providers[0] of this node serves `q` on adapter `a` too: ";
    assert!(told[0].contains(start), "{}", told[0]);
    assert_eq!(told_of("adapter: a, enabled: false, models: [q, r]", "two, one", "one").len(), 1);
    // Another model, another adapter: what is said of one is not meant for the other.
    for (two, q, r) in
        [("adapter: a, models: [q, r]", "one", "two"), ("adapter: b, models: [q, r]", "one, two", "two, one")]
    {
        assert_eq!(told_of(two, q, r), Vec::<String>::new(), "{two}");
    }
}
