//! Fingerprints of texts: the value of a text's runes as a polynomial modulo the prime 2^61 - 1 (Karp and Rabin, "Efficient
//! randomized pattern-matching algorithms", 1987). Those of any two ends of a text give that of what is between them.

const PRIME: u64 = (1 << 61) - 1;

/// Where the polynomial is taken: any large number that nobody's text was made for.
const BASE: u64 = 0x0a3b_19d8_5f4c_7e63;

const fn mul(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    // 2^61 = 1 modulo the prime: the high part is added to the low one. Both are below 2^61, so nothing is lost.
    let folded = (product as u64 & PRIME) + (product >> 61) as u64;
    if folded >= PRIME { folded - PRIME } else { folded }
}

/// Of a text from its start, rune by rune.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    /// Of the same text with `rune` behind it.
    pub(super) const fn with(self, rune: char) -> Self {
        // No rune is zero, so that texts of different length differ.
        let sum = mul(self.0, BASE) + rune as u64 + 1;
        Self(if sum >= PRIME { sum - PRIME } else { sum })
    }

    /// Of what stands behind `start`, when self is of all of it; `span` is for its length.
    pub(super) const fn since(self, start: Self, span: Span) -> Self {
        let before = mul(start.0, span.0);
        Self(if self.0 >= before { self.0 - before } else { self.0 + PRIME - before })
    }

    /// A number for tables.
    pub(super) const fn bits(self) -> u64 {
        self.0
    }
}

/// What a text's fingerprint is multiplied with when so many runes follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span(u64);

impl Span {
    /// Of `runes` runes.
    pub(super) const fn of(runes: usize) -> Self {
        let (mut power, mut i) = (1, 0);
        while i < runes {
            power = mul(power, BASE);
            i += 1;
        }
        Self(power)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Fingerprint {
        text.chars().fold(Fingerprint::default(), Fingerprint::with)
    }

    #[test]
    fn what_stands_between_two_ends_has_the_fingerprint_of_itself() {
        let text = "Über\u{10ffff} die\0 Brücke \u{d7ff}";
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        for (i, &start) in ends.iter().enumerate() {
            for (j, &end) in ends.iter().enumerate().skip(i) {
                let between = of(&text[..end]).since(of(&text[..start]), Span::of(j - i));
                assert_eq!(between, of(&text[start..end]), "{start}..{end}");
            }
        }
    }

    #[test]
    fn length_order_and_every_rune_count() {
        let texts = ["", "\0", "\0\0", "a", "ab", "ba", "abab", "\u{1f600}", "\u{1f601}", "é", "e\u{301}"];
        let distinct: std::collections::HashSet<_> = texts.map(|text| of(text).bits()).into();
        assert_eq!(distinct.len(), texts.len());
    }
}
