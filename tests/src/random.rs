//! Numbers that look random and can be had again: a test that draws them prints the seed.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    ops::Range,
    time::Duration,
};

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The numbers of the seed that `IOP_TEST_SEED` names, else of a new one. Prints the seed: it is shown when the test
    /// fails.
    pub fn for_test(what: &str) -> Self {
        let named = std::env::var("IOP_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = named.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        println!("{what}: IOP_TEST_SEED={seed}");
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of a range that is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next_u64() % (range.end - range.start)
    }

    /// A time below `end`, in steps of 1 µs.
    pub fn before(&mut self, end: Duration) -> Duration {
        Duration::from_micros(self.within(0..u64::try_from(end.as_micros()).unwrap_or(u64::MAX).max(1)))
    }

    /// Puts things into another order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            let other = usize::try_from(self.within(0..last as u64 + 1)).unwrap_or(0);
            things.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_are_those_of_the_paper() {
        let mut random = Random::new(1_234_567);
        let first = [random.next_u64(), random.next_u64()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        let mut order: Vec<_> = (0..20).collect();
        random.shuffle(&mut order);
        assert_ne!(order, (0..20).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..20).collect::<Vec<_>>());
    }
}
