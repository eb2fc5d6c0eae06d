//! It does not matter how a stream is cut, and what is found is what a plain look at the whole text finds.

use proptest::{collection::vec, prelude::*};

use super::*;

fn push_cut(text: &str, lengths: &[usize]) -> Option<Repetition> {
    let runes: Vec<char> = text.chars().collect();
    let mut guard = guard();
    let (mut at, mut found) = (0, None);
    for length in lengths.iter().cycle() {
        if at == runes.len() {
            return found;
        }
        let end = runes.len().min(at + length);
        let delta: String = runes[at..end].iter().collect();
        found = guard.push(Channel::Content, &delta).or(found);
        at = end;
    }
    found
}

/// Finds the first loop with the text in hand: every period is followed at every rune.
fn plain_look(text: &str) -> Option<Repetition> {
    let runes: Vec<char> = text.chars().collect();
    let mut equal = vec![0_usize; UNIT_RUNES_MAX + 1];
    for i in 0..runes.len() {
        for period in 1..=UNIT_RUNES_MAX.min(i) {
            equal[period] = if runes[i] == runes[i - period] { equal[period] + 1 } else { 0 };
        }
        let Some(period) = (1..=UNIT_RUNES_MAX).find(|period| equal[*period] >= UNIT_RUNES_MAX) else {
            continue;
        };
        let mut unit = bound::Unit::default();
        runes[i - period..i].iter().for_each(|rune| unit.push(*rune));
        let bound = unit.bound(Channel::Content, false);
        if equal[period] as u64 >= bound {
            return Some(Repetition {
                unit_runes: period,
                repeats: u32::try_from(bound / period as u64).unwrap() + 1,
                begins_at_rune: (i + 1 - equal[period]) as u64,
                found_at_rune: i as u64 + 1,
            });
        }
    }
    None
}

/// A text of pieces that are said again and again, some of them made of others.
fn text(pieces: &[(u8, u16, u16)], seed: u64) -> String {
    let mut numbers = Numbers(seed);
    let alphabets = alphabets();
    let mut text = String::new();
    for (alphabet, runes, repeated) in pieces {
        let alphabet = &alphabets[usize::from(*alphabet) % alphabets.len()];
        let mut unit = numbers.text(alphabet, 1 + usize::from(runes % 300));
        if runes % 3 == 0 {
            unit = unit.repeat(2) + &numbers.text(alphabet, 1);
        }
        let runes = usize::from(*repeated);
        text.extend(unit.chars().cycle().take(runes));
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    // req: SEG-4
    #[test]
    fn any_cut_gives_the_same_finding_at_the_same_rune_as_a_plain_look_at_the_text(
        pieces in vec((any::<u8>(), any::<u16>(), 1_u16..4500), 1..5),
        seed in any::<u64>(),
        lengths in vec(1_usize..400, 1..20),
    ) {
        let text = text(&pieces, seed);
        let whole = look(Channel::Content, &text);
        prop_assert_eq!(whole, plain_look(&text));
        prop_assert_eq!(push_cut(&text, &lengths), whole);
        prop_assert_eq!(push_cut(&text, &[1]), whole);
    }
}

// req: SEG-4
#[test]
fn channels_are_apart_and_the_first_finding_is_the_only_one() {
    let mut guard = guard();
    for i in 0..3000 {
        let counted = format!("{i} ");
        assert_eq!(guard.push(Channel::Reasoning, &counted), None);
        if let Some(found) = guard.push(Channel::Content, "round ") {
            assert_eq!((found.unit_runes, found.found_at_rune), (6, SHORT + 6));
            assert_eq!(guard.push(Channel::Content, &"round ".repeat(5000)), None);
            assert_eq!(guard.push(Channel::Reasoning, &"round ".repeat(5000)), None);
            return;
        }
    }
    panic!("what is said between two deltas of a channel hides its loop");
}
