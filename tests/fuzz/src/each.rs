//! An input and seeded changes of it, and the ways in which bytes may arrive.
//!
//! `IOP_FUZZ_VARIANTS=N` has N changes of every input judged beside it: after each call libFuzzer looks through the counters of the
//! whole program, which takes far longer than these readers do.

use std::sync::LazyLock;

static VARIANTS: LazyLock<u32> = LazyLock::new(|| {
    let number = std::env::var("IOP_FUZZ_VARIANTS").ok();
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
});

/// SplitMix64.
pub struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `bound`, or 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or(0)
    }

    /// `bytes` in up to four pieces.
    pub fn pieces<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        for _ in 0..self.below(4) {
            let (piece, rest) = bytes.split_at(self.below(bytes.len() + 1));
            pieces.push(piece);
            bytes = rest;
        }
        pieces.push(bytes);
        pieces
    }
}

/// Judges `input`, and changes of it in which `words` stand.
pub fn each(input: &[u8], words: &[&[u8]], judge: impl Fn(&[u8], &mut Random)) {
    let seed = input.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(0x100_0000_01B3) ^ u64::from(*byte));
    let mut random = Random(seed);
    judge(input, &mut random);
    for _ in 0..*VARIANTS {
        let changed = changed(input, words, &mut random);
        judge(&changed, &mut random);
    }
}

/// One to four changes.
fn changed(input: &[u8], words: &[&[u8]], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let len = random.below((bytes.len() - at).min(16) + 1);
        match random.below(5) {
            0 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.next() as u8;
                }
            }
            1 => drop(bytes.drain(at..at + len)),
            2 => {
                let piece = bytes[at..at + len].to_vec();
                bytes.splice(at..at, piece);
            }
            3 => {
                let word = words[random.below(words.len())];
                bytes.splice(at..at + len, word.iter().copied());
            }
            _ => {
                let word = words[random.below(words.len())];
                bytes.splice(at..at, word.iter().copied());
            }
        }
    }
    bytes
}
