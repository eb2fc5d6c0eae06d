//! Texts that repeat themselves and are as they should be: none of them is a loop. Lengths are what people ask for and get:
//! hundreds of rows, kilobytes of dumps.

mod code;
mod data;
mod lists;
mod tables;
mod words;

use super::*;

/// A name to find it by, and the text.
pub(super) type Named = (String, String);

fn named(name: impl Into<String>, text: impl Into<String>) -> Named {
    (name.into(), text.into())
}

fn texts() -> Vec<Named> {
    [tables::texts(), code::texts(), data::texts(), lists::texts(), words::texts()].concat()
}

// req: SEG-4
#[test]
fn no_legitimate_text_is_a_loop() {
    let texts = texts();
    let mut names = std::collections::HashSet::new();
    let mut found = Vec::new();
    for (name, text) in &texts {
        assert!(names.insert(name), "{name} is there twice");
        // Alone, inside of an answer, as thoughts, inside of a fence, and as a tool's argument, where JSON writes its line ends as
        // two runes.
        let answer = format!("Here is what you asked for:\n\n{text}\n\nTell me if you need anything else.");
        let fenced = format!("Here it is:\n```\n{text}\n```\n");
        let argument = serde_json::json!({ "path": "out.txt", "content": text }).to_string();
        for (way, channel, text) in [
            ("alone", Channel::Content, text),
            ("in an answer", Channel::Content, &answer),
            ("as thoughts", Channel::Reasoning, &answer),
            ("in a fence", Channel::Content, &fenced),
            ("as an argument", Channel::Arguments, &argument),
        ] {
            found.extend(look(channel, text).map(|repetition| (name, way, repetition)));
        }
    }
    assert_eq!(found, []);
    assert!(texts.len() >= 200, "{} texts", texts.len());
    let repetitive = texts.iter().filter(|(_, text)| is_repetitive(text)).count();
    assert!(repetitive >= 190, "{repetitive} of {} repeat themselves", texts.len());
}

/// Whether a fifth of it, at least, is where it repeats what was shortly before, or it has a line thrice.
fn is_repetitive(text: &str) -> bool {
    let runes: Vec<char> = text.chars().collect();
    let repeats = |period: usize| runes.iter().zip(runes.iter().skip(period)).filter(|(a, b)| a == b).count();
    let mut lines = std::collections::HashMap::new();
    text.lines().for_each(|line| *lines.entry(line).or_insert(0) += 1);
    lines.values().any(|times| *times >= 3) || (1..200).any(|period| repeats(period) * 5 >= runes.len())
}
