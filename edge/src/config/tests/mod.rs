//! What loads, what does not, and what is said about it.

mod accepted;
mod effective;
mod files;
mod generated;
mod health;
mod native;
mod references;
mod refused;
mod routes;
mod rules;
mod slips;

use std::path::Path;

use super::{LoadErrors, Settings, load_text};

/// A complete small file; tests replace one line of it.
const SMALL: &str = r#"openai:
  provider_id: local
models:
  - id: qwen3
    providers: [box1-vllm]
nodes:
  - id: box1
    adapters:
      - { name: vllm-1, type: openai_compat }
    providers:
      - id: box1-vllm
        type: vllm
        category: local_inference
        adapter: vllm-1
        models: [qwen3]
"#;

fn env(name: &str) -> Option<String> {
    match name {
        "HOST" => Some("10.0.0.7".to_owned()),
        "SECRET" => Some("hunter2".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn load(text: &str) -> Result<Settings, LoadErrors> {
    load_text(text, Path::new("/etc/iop/edge.yaml"), &env)
}

/// Loads [`SMALL`] with one piece of it replaced.
fn load_small(from: &str, to: &str) -> Result<Settings, LoadErrors> {
    load(&small(from, to))
}

fn small(from: &str, to: &str) -> String {
    assert_eq!(SMALL.matches(from).count(), 1, "{from:?} does not stand exactly once in the small file");
    SMALL.replace(from, to)
}

/// [`SMALL`] with lines added to its one provider.
fn with_provider(lines: &str) -> String {
    format!("{SMALL}        {}\n", lines.replace('\n', "\n        "))
}

/// The report for a text that must not load.
fn report(text: &str) -> String {
    match load(text) {
        Ok(_) => panic!("loads, but must not:\n{text}"),
        Err(errors) => errors.to_string().replace("/etc/iop/edge.yaml:", ""),
    }
}

/// Asserts that `text` is refused with exactly one error that begins with `start` and contains every part.
fn refused(text: &str, start: &str, parts: &[&str]) {
    let report = report(text);
    assert_eq!(report.lines().count(), 1, "expected one error:\n{report}\nof\n{text}");
    assert!(report.starts_with(start), "expected {start}\n   found {report}\nof\n{text}");
    for part in parts {
        assert!(report.contains(part), "expected {part:?} in\n{report}\nof\n{text}");
    }
}
