//! The seal of a completion: a digest of its text, carried in `system_fingerprint` of the last
//! content-bearing object.
//!
//! The provider puts the seal into the finish chunk (or the whole reply), the load generator computes it
//! again from what arrived. Lost, doubled, reordered or changed text shows in every single stream, whatever
//! stands between the two.
//!
//! ```text
//! perf-<fnv1a64 of the UTF-8 text, 16 hex digits>-<content events>-<text bytes>
//! ```

use std::fmt::Write as _;

/// What every seal starts with; a fingerprint without it is not ours and is not checked.
pub const SEAL_PREFIX: &str = "perf-";

/// A running digest over the text of one completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    fnv: u64,
    /// Content events added so far.
    pub events: u64,
    /// UTF-8 bytes of text added so far.
    pub bytes: u64,
}

impl Default for Seal {
    fn default() -> Self {
        // FNV-1a 64-bit offset basis.
        Self { fnv: 0xcbf2_9ce4_8422_2325, events: 0, bytes: 0 }
    }
}

impl Seal {
    /// Adds the text of one content event.
    pub fn add(&mut self, text: &str) {
        for byte in text.bytes() {
            // FNV-1a: xor, then multiply by the 64-bit prime.
            self.fnv = (self.fnv ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.events += 1;
        self.bytes += text.len() as u64;
    }

    /// The seal as it stands in `system_fingerprint`.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut out = String::with_capacity(40);
        // Writing to a String cannot fail.
        let _ = write!(out, "{SEAL_PREFIX}{:016x}-{}-{}", self.fnv, self.events, self.bytes);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seal_changes_with_order_loss_and_doubling() {
        let seal = |parts: &[&str]| {
            let mut seal = Seal::default();
            parts.iter().for_each(|part| seal.add(part));
            seal.fingerprint()
        };
        let right = seal(&["a", "b", "c"]);
        assert!(right.starts_with(SEAL_PREFIX) && right.ends_with("-3-3"));
        for wrong in [&["a", "c", "b"][..], &["a", "b"], &["a", "b", "b", "c"], &["ab", "c"]] {
            assert_ne!(right, seal(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn seal_of_known_text_is_the_published_fnv1a_vector() {
        let mut seal = Seal::default();
        seal.add("foobar");
        assert_eq!(seal.fingerprint(), "perf-85944171f73967e8-1-6");
    }
}
