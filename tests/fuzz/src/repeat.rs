//! Answers that may go round in circles: however they are cut the same is found, and what is found is there.
//!
//! The input is units that are repeated: each begins with a byte that says for how long, and ends with 0xff.
#![no_main]

mod each;

use std::sync::Arc;

use iop_edge::gate::{
    reading::Channel,
    repeat::{History, LONG, MADE, RepeatGuard, Repetition, UNIT_RUNES_MAX},
};

const WORDS: [&[u8]; 12] = [
    b"\xff",
    b"\xff\xff",
    b"\n",
    b"```\n",
    b"| 0 | 0 |\n",
    b"ha",
    b"0, ",
    "다시 ".as_bytes(),
    "😂".as_bytes(),
    b"    ",
    b"1",
    b"and again ",
];

/// The text, and whether it has a run that must be found whatever it is made of.
fn text(input: &[u8]) -> (Vec<char>, bool) {
    let (mut text, mut must) = (Vec::new(), false);
    for piece in input.split(|byte| *byte == 0xff).take(6) {
        let Some((times, unit)) = piece.split_first() else { continue };
        let unit: Vec<char> = String::from_utf8_lossy(unit).chars().collect();
        let runes = usize::from(*times) * 50;
        text.extend(unit.iter().cycle().take(runes));
        must |= (1..=UNIT_RUNES_MAX).contains(&unit.len()) && runes as u64 >= MADE + unit.len() as u64;
    }
    (text, must)
}

fn found(text: &[char], cuts: &[usize]) -> Option<Repetition> {
    let mut guard = RepeatGuard::new(Arc::new(History::default()), 500);
    let mut at = 0;
    for end in cuts.iter().copied().chain([text.len()]) {
        let delta: String = text[at..end].iter().collect();
        if let Some(found) = guard.push(Channel::Content, &delta) {
            return Some(found);
        }
        at = end;
    }
    None
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    each::each(input, &WORDS, |input, random| {
        let (text, must) = text(input);
        let mut cuts: Vec<usize> = (0..5).map(|_| random.below(text.len() + 1)).collect();
        cuts.sort_unstable();
        let whole = found(&text, &[]);
        assert_eq!(found(&text, &cuts), whole, "{cuts:?}");
        assert!(whole.is_some() || !must);
        if let Some(found) = whole {
            let (begins, end) = (found.begins_at_rune as usize, found.found_at_rune as usize);
            let unit = found.unit_runes;
            assert!((1..=UNIT_RUNES_MAX).contains(&unit));
            assert!((LONG..=MADE).contains(&(found.found_at_rune - found.begins_at_rune)));
            assert_eq!(text[begins..end], text[begins - unit..end - unit]);
            assert!(begins == unit || text[begins - 1] != text[begins - 1 - unit]);
        }
    });
});
