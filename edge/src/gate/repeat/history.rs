//! What the assistant said before in the same conversation.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
};

use super::fingerprint::Fingerprint;

/// Shortest text in runes that counts. Agents say `Let me run the tests again.` before different calls, and that is no circle.
pub const HISTORY_RUNES_MIN: u64 = 200;

/// Runes by which a long text is known, when not all of it can be held back until it is judged.
pub const HISTORY_RUNES: u64 = 2048;

/// Most texts of a conversation that are looked at, and most bytes of them: the latest.
pub const HISTORY_TEXTS_MAX: usize = 1024;
#[expect(missing_docs, reason = "see above")]
pub const HISTORY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What the assistant said more than once, word for word, as it was when the request came: nothing of it changes afterwards (SEG-3).
/// It has fingerprints, lengths and counts, and no text (SEG-4).
#[derive(Debug, Default)]
pub struct History {
    said: Vec<Said>,
}

/// A text that was said at least twice.
#[derive(Clone, Copy, Debug)]
struct Said {
    runes: u64,
    whole: Fingerprint,
    /// Of its first [`HISTORY_RUNES`], or fewer where it has fewer.
    head: Fingerprint,
    times: u32,
}

/// By what a text that was said before is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sign {
    /// Runes of the answer when it is compared.
    pub(super) runes: u64,
    pub(super) fingerprint: u64,
    pub(super) times: u32,
}

impl History {
    /// Of the assistant's texts in a conversation, the oldest first. Texts of other kinds (reasoning, calls, what tools or the user
    /// said) do not belong here.
    #[must_use]
    pub fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let mut latest = VecDeque::new();
        let mut bytes = 0_usize;
        for text in texts {
            // A rune has at least one byte: what is too short in bytes is so in runes.
            if (text.len() as u64) < HISTORY_RUNES_MIN {
                continue;
            }
            latest.push_back(text);
            bytes = bytes.saturating_add(text.len());
            while latest.len() > HISTORY_TEXTS_MAX || bytes > HISTORY_BYTES_MAX {
                bytes -= latest.pop_front().map_or(bytes, str::len);
            }
        }
        // Fixed keys, as only the client itself can lose by two texts of its own that are taken for one.
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let mut places: HashMap<(u64, usize), Option<usize>> = HashMap::with_capacity(latest.len());
        let mut said: Vec<Said> = Vec::new();
        for text in latest {
            match places.entry((hasher.hash_one(text), text.len())) {
                Entry::Vacant(first) => {
                    first.insert(None);
                }
                Entry::Occupied(mut again) => match again.get().and_then(|place| said.get_mut(place)) {
                    Some(known) => known.times = known.times.saturating_add(1),
                    None => {
                        again.insert(Some(said.len()));
                        said.push(Said::twice(text));
                    }
                },
            }
        }
        said.retain(|text| text.runes >= HISTORY_RUNES_MIN);
        Self { said }
    }

    /// What to compare an answer with, the shortest first, when `hold_runes` of it can be held back.
    pub(super) fn signs(&self, hold_runes: usize) -> Vec<Sign> {
        let whole_max = HISTORY_RUNES.max(hold_runes as u64);
        let sign = |said: &Said| {
            let (runes, fingerprint) =
                if said.runes <= whole_max { (said.runes, said.whole) } else { (HISTORY_RUNES, said.head) };
            Sign { runes, fingerprint: fingerprint.bits(), times: said.times }
        };
        let mut signs: Vec<Sign> = self.said.iter().map(sign).collect();
        signs.sort_unstable();
        signs
    }
}

impl Said {
    fn twice(text: &str) -> Self {
        let mut said =
            Self { runes: 0, whole: Fingerprint::default(), head: Fingerprint::default(), times: 2 };
        for rune in text.chars() {
            said.whole = said.whole.with(rune);
            if said.runes < HISTORY_RUNES {
                said.head = said.whole;
            }
            said.runes += 1;
        }
        said
    }
}
