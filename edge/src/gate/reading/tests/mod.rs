//! Streams as servers send them (api.md), cut at every byte and with every line end.

mod chat;
mod hostile;
mod lines;
mod messages;
mod responses;

use super::*;

/// What is told of a stream that comes in these pieces, to its end.
fn follow(
    surface: Surface,
    wants_text: bool,
    pieces: &[&[u8]],
) -> (Vec<Told>, Vec<Text>, Result<(), Malformed>) {
    let mut reader = Reader::new(surface, wants_text);
    let (mut told, mut text) = (Vec::new(), Vec::new());
    for piece in pieces {
        if let Err(malformed) = reader.push(piece, &mut told, &mut text) {
            assert_eq!(reader.push(b"data: x\n\n", &mut told, &mut text), Err(malformed));
            return (told, text, Err(malformed));
        }
    }
    reader.finish(&mut told, &mut text);
    (told, text, Ok(()))
}

/// The same, which must not depend on where it is cut, nor the signs on whether somebody wants the text.
fn everywhere(surface: Surface, stream: &[u8]) -> (Vec<Told>, Vec<Text>, Result<(), Malformed>) {
    let whole = follow(surface, true, &[stream]);
    for at in 0..=stream.len() {
        let (left, right) = stream.split_at(at);
        assert_eq!(follow(surface, true, &[left, right]), whole, "cut at {at}");
    }
    let single: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(follow(surface, true, &single), whole, "byte by byte");
    let nothing: Vec<&[u8]> = single.iter().flat_map(|byte| [&b""[..], *byte, b""]).collect();
    assert_eq!(follow(surface, true, &nothing), whole, "byte by byte, and nothing between");
    let (told, text, end) = follow(surface, false, &single);
    assert_eq!((&told, end), (&whole.0, whole.2), "without text");
    assert_eq!(text, [], "text that nobody wants");
    whole
}

/// A letter for each sign: `p`reamble, `c`ontent, `f`ailure, `e`nd.
fn letter(sign: &Sign) -> char {
    match sign {
        Sign::Preamble => 'p',
        Sign::Content => 'c',
        Sign::Failure(_) => 'f',
        Sign::End => 'e',
    }
}

/// Every event of a stream and the signs that are told of it. They must be told exactly at its end, whatever the line ends are.
/// What the model says is returned, as `channel choice/call name: text`.
fn stream(surface: Surface, events: &[(&str, &str)]) -> Vec<String> {
    let mut texts = Vec::new();
    for line_end in ["\n", "\r\n", "\r"] {
        let (mut all, mut expected) = (String::new(), Vec::new());
        for (event, signs) in events {
            all.push_str(&event.replace('\n', line_end));
            expected.extend(signs.chars().map(|sign| (all.len(), sign)));
        }
        let (told, text, end) = everywhere(surface, all.as_bytes());
        let told: Vec<_> = told.iter().map(|told| (told.until, letter(&told.sign))).collect();
        assert_eq!(told, expected, "{surface:?} with {line_end:?}:\n{all}");
        assert_eq!(end, Ok(()));
        let ends: Vec<usize> = expected.iter().map(|(until, _)| *until).collect();
        assert!(text.iter().all(|text| ends.contains(&text.until)));
        texts = text.iter().map(written).collect();
    }
    texts
}

fn written(text: &Text) -> String {
    let name = text.name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
    format!("{:?} {}/{}{name}: {}", text.channel, text.choice, text.call, text.text)
}

/// What is said of the failure that the only event of a stream is.
fn failure(surface: Surface, event: &str) -> Said {
    let (told, _, end) = everywhere(surface, event.as_bytes());
    assert_eq!(end, Ok(()));
    match told.as_slice() {
        [Told { until, sign: Sign::Failure(said) }] if *until == event.len() => (**said).clone(),
        other => panic!("{event}: {other:?}"),
    }
}

fn said(kind: Option<&str>, code: Option<&str>, message: &str) -> Said {
    Said { kind: kind.map(str::to_owned), code: code.map(str::to_owned), message: message.to_owned() }
}
