//! Configuration files: nothing makes the loader panic, and what loads comes back when it is shown.
//!
//! `IOP_FUZZ_VARIANTS=N` has N seeded changes of every input judged beside it: after each call libFuzzer looks through the counters
//! of the whole program, which takes ten times as long as the loader.
#![no_main]

mod mutate;
mod oracle;

use std::sync::LazyLock;

use mutate::{Random, mutated};

static VARIANTS: LazyLock<u32> = LazyLock::new(|| {
    let number = std::env::var("IOP_FUZZ_VARIANTS").ok();
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    oracle::config(input);
    if *VARIANTS > 0 {
        let seed = input.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(0x100_0000_01B3) ^ u64::from(*byte));
        let (corpus, mut random) = ([input.to_vec()], Random(seed));
        for _ in 0..*VARIANTS {
            oracle::config(&mutated(&corpus, &mut random));
        }
    }
});
