//! What must hold of any input. Shared by the libFuzzer targets and by the tests that CI runs (edge/tests/config_fuzz.rs).

use std::path::Path;

use iop_edge::config::{Effective, Settings, load_text};

/// The environment of the files.
fn env(name: &str) -> Option<String> {
    match name {
        "HOST" => Some("10.0.0.7".to_owned()),
        "EMPTY" => Some(String::new()),
        "RUNTIME_DIRECTORY" => Some("/run/iop".to_owned()),
        // What was a secret of the file, and some text for everything else.
        _ => (name.len() < 64).then(|| "0123456789abcdef".repeat(4)),
    }
}

/// Loads a text as a configuration file. One that loads is shown, loads again, means the same and is shown as before; one that
/// does not is told of with at least one error, each on one line.
///
/// # Panics
/// When any of it does not hold.
pub(crate) fn config(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    // No file of this machine is read.
    if text.contains("token_file") {
        return;
    }
    let path = Path::new("edge.yaml");
    let settings = match load_text(&text, path, &env) {
        Ok(settings) => settings,
        Err(errors) => {
            assert_eq!(
                errors.to_string().lines().count(),
                errors.errors.len() + usize::from(errors.dropped > 0)
            );
            assert!(!errors.errors.is_empty() && errors.errors.iter().all(|error| !error.message.is_empty()));
            return;
        }
    };
    // Showing costs a hundred times what loading costs.
    if input.iter().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte)) % 64 != 0 {
        return;
    }
    let shown = Effective::of_text(&text, path, &env).expect("what loads can be shown").values();
    let again = load_text(&shown, path, &env).unwrap_or_else(|errors| panic!("{errors}\n{shown}"));
    let (wanted, found) = (meaning(&settings), meaning(&again));
    let differing: Vec<_> = wanted.lines().zip(found.lines()).filter(|(a, b)| a != b).take(5).collect();
    assert!(wanted == found, "{differing:#?}\n{shown}");
    let twice = Effective::of_text(&shown, path, &env).expect("what loads can be shown").values();
    assert_eq!(shown, twice);
}

/// Everything that counts of a configuration. Secrets are not in it: what stood in the file was masked.
fn meaning(settings: &Settings) -> String {
    let text = format!(
        "{:#?}",
        (
            (&settings.edge, &settings.listen, &settings.identity, &settings.limits, &settings.logging),
            (settings.metrics_enabled, &settings.advertise, &settings.openai, &settings.principals),
            (settings.long_context_threshold_tokens, &settings.pool, &settings.models, &settings.nodes),
        )
    );
    // A masked header has another length.
    text.lines().filter(|line| !line.ends_with(" bytes>,")).collect::<Vec<_>>().join("\n")
}
