//! Random numbers that a seed decides, the same on every build and for ever: checked-in seeds depend on it.
//!
//! xoshiro256++ (Blackman, Vigna: <https://prng.di.unimi.it/xoshiro256plusplus.c>, public domain), filled by splitmix64.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(core::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// The next number, uniform over all of `u64`.
    pub fn word(&mut self) -> u64 {
        let Self(s) = self;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Below `end`; 0 for `end` 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(end)) >> 64) as u64
    }

    /// From `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// An index into something of this length, which is not 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }

    /// True in `share` of all cases, 0.0 to 1.0.
    pub fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.unit() < share
    }

    /// Exponentially distributed with this mean, cut at ten times it.
    pub fn around(&mut self, mean: u64) -> u64 {
        let unit = self.unit().max(f64::EPSILON);
        ((-unit.ln()).min(10.0) * mean as f64) as u64
    }

    fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut rng = Rng::new(1);
        let first: Vec<_> = (0..3).map(|_| rng.word()).collect();
        assert_eq!(
            first,
            [14_971_601_782_005_023_387, 13_781_649_495_232_077_965, 1_847_458_086_238_483_744]
        );
        let (mut low, mut high) = (u64::MAX, 0);
        for _ in 0..10_000 {
            let drawn = rng.range(3, 7);
            (low, high) = (low.min(drawn), high.max(drawn));
        }
        assert_eq!((low, high), (3, 7));
    }
}
