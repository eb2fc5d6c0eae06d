//! What a probe looks at (STL-11), and what it cannot look at.

use proto::message::HealthCheck;

use super::*;

fn health(lines: &str) -> HealthCheck {
    load(&with_provider(lines)).unwrap().nodes[0].payload.providers[0].health.clone()
}

// req: STL-11
#[test]
fn path_and_generation_are_told_to_the_node() {
    assert_eq!(health("enabled: true"), HealthCheck::default());
    assert_eq!(health("health: { path: \"\", generation: false }"), HealthCheck::default());
    let both = HealthCheck { path: "/health".to_owned(), generation: true };
    assert_eq!(health("health: { path: /health, generation: true }"), both);
}

#[test]
fn a_path_that_could_not_be_sent_and_a_generation_that_nothing_can_do_are_refused() {
    let at = "nodes[0].providers[0].health";
    for path in [
        "health",
        "http://other/health",
        "\"/a b\"",
        "\"/a\\r\\nx: y\"",
        "/a?b=1",
        "//other/health",
        "/a/../b",
    ] {
        let report = report(&with_provider(&format!("health: {{ path: {path} }}")));
        assert!(report.contains(&format!("{at}.path: ")) && report.lines().count() == 1, "{report}");
    }
    let mute = "protocol_profiles:\n  mute: { base: vllm, operations: { chat_completions: null, responses: null, messages: null } }\n";
    let asks = with_provider("profile: mute\nhealth: { generation: true }");
    let said = report(&format!("{mute}{asks}"));
    assert!(
        said.contains(&format!("{at}.generation: profile `mute` has no operation that generates")),
        "{said}"
    );
    for (kind, lines, path) in [
        ("ollama", "health: { path: /health }", "path: this key belongs to"),
        ("cli", "command: /bin/true\nhealth: { generation: true }", "generation: a command is not run"),
    ] {
        let native = with_provider(lines).replace("type: vllm", &format!("type: {kind}"));
        let said = report(&native.replace("openai_compat", kind));
        assert!(said.contains(&format!("{at}.{path}")), "{said}");
    }
}
