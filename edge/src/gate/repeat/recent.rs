//! Where the last runes of a text were seen before: a table of the fingerprints of its windows.

use super::fingerprint::Fingerprint;

/// One window in so many is kept. In a text that repeats every `p` runes, each kept window comes back after exactly `p` runes and
/// never earlier, so this costs at most so many runes until it is noticed, and no precision.
pub(super) const EVERY: u64 = 16;

/// Most windows that are kept; a power of two.
const KEPT: usize = 64;

/// How far back a window is found at least, in runes.
pub(super) const REACH: u64 = KEPT as u64 * EVERY - EVERY;

const BUCKETS: usize = 256;

/// The last windows, with hash chains over a ring as in zlib's `deflate`: a link that leads to a newer window leads to a place that
/// was taken again, and ends its chain.
#[derive(Debug)]
pub(super) struct Recent {
    windows: [Window; KEPT],
    /// Place of the newest window of each bucket.
    newest: [u8; BUCKETS],
}

#[derive(Clone, Copy, Debug)]
struct Window {
    fingerprint: Fingerprint,
    /// Runes of the text at its end; 0 where there is none yet.
    end: u64,
    /// Place of the next older one of its bucket.
    older: u8,
}

impl Recent {
    pub(super) fn new() -> Self {
        let none = Window { fingerprint: Fingerprint::default(), end: 0, older: 0 };
        Self { windows: [none; KEPT], newest: [0; BUCKETS] }
    }

    /// Keeps the window that ends at rune `end`, in the place of the oldest one.
    pub(super) fn keep(&mut self, fingerprint: Fingerprint, end: u64) {
        let place = (end / EVERY) as usize % KEPT;
        if let Some(newest) = self.newest.get_mut(bucket(fingerprint))
            && let Some(window) = self.windows.get_mut(place)
        {
            *window = Window { fingerprint, end, older: *newest };
            *newest = place as u8;
        }
    }

    /// Where the same window ended last.
    pub(super) fn last(&self, fingerprint: Fingerprint) -> Option<u64> {
        let mut place = *self.newest.get(bucket(fingerprint))?;
        let mut newer = u64::MAX;
        loop {
            let window = self.windows.get(usize::from(place))?;
            if window.end == 0 || window.end >= newer {
                return None;
            }
            if window.fingerprint == fingerprint {
                return Some(window.end);
            }
            (place, newer) = (window.older, window.end);
        }
    }
}

const fn bucket(fingerprint: Fingerprint) -> usize {
    fingerprint.bits() as usize % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(n: u32) -> Fingerprint {
        Fingerprint::default().with(char::from_u32(n).unwrap())
    }

    #[test]
    fn what_was_kept_within_reach_is_found_where_it_was_last_and_nothing_else_is() {
        // So few different ones that they come again, and so many that buckets are shared.
        let mut seed = 7_u32;
        let mut kept = Vec::new();
        let mut recent = Recent::new();
        for i in 1..20_000_u64 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let fingerprint = number(seed >> 22);
            let end = i * EVERY;
            let expected = kept
                .iter()
                .rev()
                .take(KEPT)
                .find(|(_, known)| *known == fingerprint)
                .map(|(end, _): &(u64, _)| *end);
            assert_eq!(recent.last(fingerprint), expected);
            recent.keep(fingerprint, end);
            kept.push((end, fingerprint));
        }
    }
}
