//! What CI runs of the fuzz target `config`: its corpus, and seeded mutations of it. tests/fuzz/README.md has the long way.

#[path = "../../tests/fuzz/src/oracle.rs"]
mod oracle;

#[path = "../../tests/fuzz/src/mutate.rs"]
mod mutate;

use std::{fs, path::Path};

use mutate::{Random, mutated};

/// Inputs beside the corpus itself; `IOP_FUZZ_INPUTS` sets another number.
const INPUTS: u64 = 8_000;

fn corpus() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for directory in ["../tests/fuzz/corpus/config", "src/config/tests/slips"] {
        let entries = fs::read_dir(root.join(directory)).expect("the corpus is there");
        files.extend(entries.map(|entry| entry.expect("a readable directory").path()));
    }
    files.retain(|path| path.extension().is_some_and(|kind| kind == "yaml"));
    files.sort();
    files.iter().map(|path| fs::read(path).expect("a readable file")).collect()
}

// req: CFG-11
#[test]
fn no_input_makes_the_loader_panic_and_what_loads_comes_back() {
    let corpus = corpus();
    assert!(corpus.len() > 5, "{}", corpus.len());
    for input in &corpus {
        oracle::config(input);
    }
    let inputs =
        std::env::var("IOP_FUZZ_INPUTS").ok().and_then(|number| number.parse().ok()).unwrap_or(INPUTS);
    let mut random = Random(1);
    for number in 0..inputs {
        let input = mutated(&corpus, &mut random);
        let outcome = std::panic::catch_unwind(|| oracle::config(&input));
        assert!(outcome.is_ok(), "input {number}:\n{}", String::from_utf8_lossy(&input));
    }
}
