//! Answers that were given before.

use super::*;

fn answer(seed: u64, runes: usize) -> String {
    Numbers(seed).text(&alphabets()[0], runes)
}

fn look(texts: &[&str], hold_runes: usize, answer: &str) -> Option<Repetition> {
    let history = Arc::new(History::of(texts.iter().copied()));
    let whole = RepeatGuard::new(Arc::clone(&history), hold_runes).push(Channel::Content, answer);
    let mut guard = RepeatGuard::new(history, hold_runes);
    let in_runes =
        answer.chars().find_map(|rune| guard.push(Channel::Content, rune.encode_utf8(&mut [0; 4])));
    assert_eq!(whole, in_runes);
    whole
}

// req: SEG-4
#[test]
fn what_was_said_twice_before_is_found_when_it_is_said_again() {
    let (said, other) = (answer(1, 700), answer(2, 900));
    let found = look(&[&said, &other, &said], 500, &said);
    let expected = Repetition { unit_runes: 700, repeats: 3, begins_at_rune: 0, found_at_rune: 700 };
    assert_eq!(found, Some(expected));
    assert_eq!(look(&[&said, &said, &other, &said], 500, &said).map(|found| found.repeats), Some(4));
    // Two circles in one conversation.
    let both = [&*said, &other, &said, &other];
    assert_eq!(look(&both, 500, &other).map(|found| found.found_at_rune), Some(900));
    assert_eq!(look(&both, 500, &said).map(|found| found.found_at_rune), Some(700));
}

// req: SEG-4
#[test]
fn who_asks_once_for_the_same_text_again_gets_it() {
    let said = answer(1, 700);
    assert_eq!(look(&[], 500, &said), None);
    assert_eq!(look(&[&said], 500, &said), None);
    assert_eq!(look(&[&said, &answer(2, 700)], 500, &said), None);
}

// req: SEG-4
#[test]
fn what_differs_before_its_end_or_begins_otherwise_or_is_short_is_not_found() {
    let said = answer(1, 700);
    let twice = [&*said, &said];
    let end: String = said.chars().take(699).collect();
    assert_eq!(look(&twice, 500, &(end.clone() + "¶ and so on")), None);
    assert_eq!(look(&twice, 500, &end), None, "it may still go on otherwise");
    assert_eq!(look(&twice, 500, &("¶".to_owned() + &said)), None);
    let short = answer(3, 199);
    assert_eq!(look(&[&short, &short, &short], 500, &short), None);
    let wide = "다".repeat(199);
    assert_eq!(look(&[&wide, &wide], 500, &wide), None, "runes count, not bytes");
    let mut guard = RepeatGuard::new(Arc::new(History::of(twice.into_iter())), 500);
    assert_eq!(guard.push(Channel::Reasoning, &said), None, "thoughts are not in a history");
}

// req: SEG-4
#[test]
fn a_long_text_is_known_by_its_beginning_unless_it_can_be_held() {
    let said = answer(1, 5000);
    let twice = [&*said, &said];
    assert_eq!(look(&twice, 500, &said).map(|found| found.found_at_rune), Some(HISTORY_RUNES));
    assert_eq!(look(&twice, 5000, &said).map(|found| found.found_at_rune), Some(5000));
    let exact = answer(4, 2048);
    assert_eq!(look(&[&exact, &exact], 1, &exact).map(|found| found.unit_runes), Some(2048));
}

// req: SEG-4
#[test]
fn only_the_latest_of_a_long_conversation_are_looked_at() {
    let (first, last) = (answer(1, 300), answer(2, 300));
    let between: Vec<String> = (0..HISTORY_TEXTS_MAX as u64 - 2).map(|i| answer(10 + i, 250)).collect();
    let mut texts = vec![&*first, &first];
    texts.extend(between.iter().map(String::as_str));
    texts.extend([&*last, &last]);
    assert_eq!(look(&texts, 500, &first), None);
    assert!(look(&texts, 500, &last).is_some());
    let huge = answer(3, HISTORY_BYTES_MAX);
    assert_eq!(look(&[&first, &first, &huge], 500, &first), None);
    assert!(look(&[&huge, &first, &first], 500, &first).is_some());
}

// req: SEG-3, SEG-4
#[test]
fn a_history_is_that_of_the_start_of_its_request() {
    let said = answer(1, 700);
    let mut conversation = vec![said.clone()];
    let history = Arc::new(History::of(conversation.iter().map(String::as_str)));
    // What is said meanwhile, by this request or in the client's next one, is not in it.
    conversation.extend([said.clone(), said.clone()]);
    for _ in 0..3 {
        assert_eq!(RepeatGuard::new(Arc::clone(&history), 500).push(Channel::Content, &said), None);
    }
    let next = Arc::new(History::of(conversation.iter().map(String::as_str)));
    drop(conversation);
    // Each attempt of that request is judged alike.
    for _ in 0..3 {
        assert!(RepeatGuard::new(Arc::clone(&next), 500).push(Channel::Content, &said).is_some());
    }
    assert!(!format!("{next:?}").contains(&said[..20]));
}
