//! Every loop is found, at its bound.

use super::*;

/// The unit for ever, behind `before`; returns what was found and how long the text was then.
fn run_into(channel: Channel, before: &str, unit: &str) -> Repetition {
    let mut guard = guard();
    assert_eq!(guard.push(channel, before), None);
    for _ in 0..=10_000 {
        if let Some(found) = guard.push(channel, unit) {
            return found;
        }
    }
    panic!("{unit:?} is not found");
}

fn bound_of(unit: &[char], channel: Channel) -> u64 {
    let mut counted = bound::Unit::default();
    unit.iter().for_each(|rune| counted.push(*rune));
    counted.bound(channel, false)
}

// req: SEG-4
#[test]
fn a_loop_of_any_unit_is_found_exactly_at_its_bound() {
    let mut numbers = Numbers(4);
    let alphabets = alphabets();
    for runes in 1..=UNIT_RUNES_MAX {
        // Each alphabet in turn, and all of them for the shortest, where it matters.
        let some = if runes <= 40 { &alphabets[..] } else { &alphabets[runes % alphabets.len()..][..1] };
        for alphabet in some {
            let unit: Vec<char> = numbers.text(alphabet, runes).chars().collect();
            let period = shortest_period(&unit);
            // What is before it ends with a rune that no unit has, so that the run begins where it seems to.
            let before_runes = numbers.below(3000);
            let before = numbers.text(&alphabets[0], before_runes) + "¶";
            let bound = bound_of(&unit[..period], Channel::Content);
            let begins_at_rune = (before_runes + 1 + period) as u64;
            let expected = Repetition {
                unit_runes: period,
                repeats: u32::try_from(bound / period as u64).unwrap() + 1,
                begins_at_rune,
                found_at_rune: begins_at_rune + bound,
            };
            let unit: String = unit.iter().collect();
            assert_eq!(run_into(Channel::Content, &before, &unit), expected, "{unit:?}");
            assert!(bound <= MADE && (period > 128 || bound <= SHORT || bound == MADE));
        }
    }
}

// req: SEG-4
#[test]
fn loops_that_were_seen_are_stopped_early() {
    let seen = [
        ("the ", SHORT),
        ("!", SHORT),
        ("\n", SHORT),
        ("\n\n    ", SHORT),
        ("😂", SHORT),
        ("I'm sorry. ", SHORT),
        ("0", MADE),
        ("</div>", MADE),
        ("-", SHORT),
        ("Wait, let me reconsider the problem once more. ", PHRASE),
        ("对不起，我不能这样做。请再告诉我一次您想要什么，我会尽力的。\n", SHORT),
        (
            "Let me check the file again to make sure that the change was applied. I will open it and look at the \
             function. Actually, I should first run the tests to see whether they still fail.\n\n",
            LONG,
        ),
    ];
    for channel in [Channel::Content, Channel::Reasoning] {
        for (unit, bound) in seen {
            let found = run_into(channel, "Sure! Here it is:\n\n", unit);
            assert_eq!(found.found_at_rune - found.begins_at_rune, bound, "{unit:?}");
        }
    }
    let call = run_into(Channel::Arguments, "{\"text\":\"", "and again, ");
    assert_eq!(call.found_at_rune - call.begins_at_rune, MADE);
}

// req: SEG-4
#[test]
fn sparse_patterns_with_many_near_periods_are_found_too() {
    // Rows of zeros with a one now and then: between two ones every part of it looks like every other one.
    for gaps in [[100, 120, 140], [10, 12, 14], [300, 200, 301], [1, 1, 2], [90, 90, 91]] {
        let unit: String = gaps.iter().map(|gap| "o".repeat(*gap) + "x").collect();
        assert_eq!(run_into(Channel::Content, "", &unit).unit_runes, unit.len());
    }
    // Fibonacci words are as full of near repetitions as a text can be without one that goes on.
    let (mut shorter, mut longer) = ("a".to_owned(), "ab".to_owned());
    while longer.len() < 20_000 {
        (shorter, longer) = (longer.clone(), longer + &shorter);
    }
    assert_eq!(look(Channel::Content, &longer), None);
    assert_eq!(run_into(Channel::Content, "", &longer[..610]).unit_runes, 610);
}

// req: SEG-4
#[test]
fn a_loop_is_found_when_another_one_ended_shortly_before() {
    let text = "no ".repeat(1200) + "But then: " + &"yes and no. ".repeat(100) + "Well. ¶";
    let found = run_into(Channel::Content, &text, "maybe ");
    assert_eq!((found.unit_runes, found.found_at_rune - found.begins_at_rune), (6, SHORT));
    assert_eq!(found.begins_at_rune, text.chars().count() as u64 + 6);
}

// req: SEG-4
#[test]
fn what_counts_or_changes_is_no_loop() {
    let counted: String = (1..4000).map(|i| format!("{i}. Check the door again.\n")).collect();
    let letters: String =
        ('a'..='z').cycle().take(3000).enumerate().map(|(i, c)| format!("{c}{i} x\n")).collect();
    let steps: String =
        (1..500).map(|i| format!("Step {i}: {}\n", "do the same as before, ".repeat(20))).collect();
    // One rune differs, and always another one.
    let mut numbers = Numbers(11);
    let line = "All work and no play makes Jack a dull boy.\n";
    let drifting: String = (0..500)
        .map(|_| {
            let mut changed: Vec<char> = line.chars().collect();
            changed[numbers.below(43)] = char::from(b'a' + u8::try_from(numbers.below(26)).unwrap());
            changed.into_iter().collect::<String>()
        })
        .collect();
    for text in [counted, letters, steps, drifting] {
        assert_eq!(look(Channel::Content, &text), None, "{:?}", &text[..60]);
    }
}

// req: SEG-4
#[test]
fn one_rune_less_than_the_bound_is_no_loop() {
    let bounds =
        [("and again ", SHORT), ("0.0, ", MADE), ("Are we there yet? No, not for a long time. ", PHRASE)];
    for (unit, bound) in bounds {
        let runes = usize::try_from(bound).unwrap() + unit.len();
        let text: String = unit.chars().cycle().take(runes).collect();
        assert_eq!(look(Channel::Content, &text[..runes - 1]), None);
        assert!(look(Channel::Content, &text).is_some());
        let interrupted = text[..runes - 1].to_owned() + "¶" + &text[..runes - 1];
        assert_eq!(look(Channel::Content, &interrupted), None);
    }
}

// req: SEG-4
#[test]
fn code_in_a_fence_may_repeat_itself_for_longer() {
    let line = "    this.render(); // again, and nothing else is done in here\n";
    let fenced = format!("Here:\n```js\n{}```\n", line.repeat(80));
    assert_eq!(look(Channel::Content, &fenced), None);
    let words = "do not forget to call the parent before the child is called\n";
    let found = run_into(Channel::Content, "Here:\n```js\n", words);
    assert_eq!(found.found_at_rune - found.begins_at_rune, MADE);
    // A block that is said over and over is not inside of one.
    let block = format!("```js\n{}```\n", words.repeat(3));
    let found = run_into(Channel::Content, "Here:\n", &block);
    assert!(found.found_at_rune - found.begins_at_rune < MADE, "{found:?}");
}

// req: SEG-4
#[test]
fn a_guard_has_bounded_memory_and_no_text() {
    let mut guard = guard();
    let mut numbers = Numbers(2);
    let alphabet = &alphabets()[0];
    for _ in 0..200 {
        for channel in [Channel::Content, Channel::Reasoning, Channel::Arguments] {
            assert_eq!(guard.push(channel, &numbers.text(alphabet, 1000)), None);
        }
    }
    let sentinel = "Sentinel-7f3a9c says hello to the secret plan";
    assert_eq!(guard.push(Channel::Content, sentinel), None);
    for rounds in [&guard.content, &guard.reasoning, &guard.arguments] {
        assert!(rounds.bytes() <= 24 * 1024, "{}", rounds.bytes());
    }
    let shown = format!("{guard:?}");
    for word in sentinel.split(' ').filter(|word| word.len() > 4) {
        assert!(!shown.contains(word), "{word}");
    }
}
