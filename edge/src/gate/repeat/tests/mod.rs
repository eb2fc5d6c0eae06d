//! Loops are found within their bound however they are cut, and nothing else is.

mod corpus;
mod cuts;
mod history;
mod loops;

use std::sync::Arc;

use super::*;

fn guard() -> RepeatGuard {
    RepeatGuard::new(Arc::new(History::default()), 500)
}

fn look(channel: Channel, text: &str) -> Option<Repetition> {
    guard().push(channel, text)
}

/// Numbers that are the same on every run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn text(&mut self, alphabet: &[char], runes: usize) -> String {
        (0..runes).map(|_| *self.pick(alphabet)).collect()
    }
}

/// Letters to make texts of.
fn alphabets() -> Vec<Vec<char>> {
    let of = |letters: &str| letters.chars().collect();
    vec![
        of("etaoin shrdlu cmfwyp, vbgkjqxz. "),
        of("ab"),
        of("다시 말씀드리지만죄송합니다."),
        of("的一是不了人我在有他这为之大来以个中上们。，"),
        of("😀😂🙏👍🏽✨🔥"),
        of(" \n\t"),
        of("{}[]:,\"0123456789abc\n "),
        of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"),
    ]
}

/// Shortest period of a text that is nothing but whole copies of it.
fn shortest_period(unit: &[char]) -> usize {
    let divides = |p: &usize| unit.len().is_multiple_of(*p);
    (1..=unit.len()).filter(divides).find(|p| unit.iter().zip(&unit[*p..]).all(|(a, b)| a == b)).unwrap()
}
