//! Seeded changes of an input, where no fuzzer makes them. Shared as the oracle is.

/// SplitMix64: the same numbers everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
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
pub(crate) fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
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
