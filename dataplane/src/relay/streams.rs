//! Maps keyed by numbers that we choose ourselves: no keyed hash is paid for (WIR-10).

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use proto::message::StreamNo;

/// Values by a number that this side or its authenticated Edge chooses, rising, such as a stream's, a request's or a lease's.
pub type ByNumber<K, T> = HashMap<K, T, BuildHasherDefault<NumberHasher>>;

/// Streams by number.
pub(super) type Streams<T> = ByNumber<StreamNo, T>;

/// Spreads rising numbers over all bits by one multiplication. Not keyed, and it need not be: only the authenticated Edge
/// chooses the numbers that get into a map, rising from 1, and it would slow down nobody but its own link.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

/// 2^64 divided by the golden ratio, odd: neighbours land far apart (Knuth, The Art of Computer Programming 3, 6.4).
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        // The map takes its bucket from the low bits, and a product is mixed best in the high ones.
        self.0.rotate_left(32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(SPREAD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rising_numbers_spread_over_low_and_high_bits() {
        let hash = |number: u64| {
            let mut hasher = NumberHasher::default();
            hasher.write_u64(number);
            hasher.finish()
        };
        let low: std::collections::HashSet<u64> = (1..=4096).map(|n| hash(n) & 4095).collect();
        let high: std::collections::HashSet<u64> = (1..=4096).map(|n| hash(n) >> 57).collect();
        assert!(low.len() > 2048, "only {} of 4096 buckets used", low.len());
        assert_eq!(high.len(), 128);
    }
}
