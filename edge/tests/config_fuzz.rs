//! What CI runs of the fuzz target `config`: its corpus, and seeded mutations of it. tests/fuzz/README.md has the long way.

#[path = "../../tests/fuzz/src/oracle.rs"]
mod oracle;

use std::{fs, path::Path};

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

/// SplitMix64: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or(0)
    }
}

/// One to four changes: a byte, a piece taken away, doubled, or brought in from another file.
fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    const PIECES: [&str; 22] = [
        "\n",
        "  ",
        "- ",
        ": ",
        "[",
        "]",
        "{",
        "}",
        "*a",
        "&a ",
        "${HOST}",
        "${",
        "\"",
        "'",
        "0",
        "-1",
        "true",
        "99999999999999999999",
        "null",
        "<<: ",
        "\t",
        "!!int ",
    ];
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        let end = (at + random.below(24)).min(input.len());
        match random.below(5) {
            0 if at < input.len() => input[at] = u8::try_from(random.below(256)).unwrap_or(0),
            1 => drop(input.drain(at..end)),
            2 => {
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
            3 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len());
                let to = (from + random.below(80)).min(other.len());
                input.splice(at..at, other[from..to].iter().copied());
            }
            _ => {
                let piece = PIECES[random.below(PIECES.len())];
                input.splice(at..at, piece.bytes());
            }
        }
    }
    input
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
