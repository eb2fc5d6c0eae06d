//! Ollama's answers: however they arrive the same is said.
#![no_main]

mod each;

use node::adapters::ollama::reader::{Reader, Said};

const WORDS: [&[u8]; 16] = [
    b"\n",
    b"\r\n",
    b"{\"message\":{\"content\":\"a\"},\"done\":false}\n",
    b"{\"done\":true,\"done_reason\":\"stop\",\"eval_count\":3}\n",
    b"{\"error\":\"x\"}\n",
    b"{\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]},\"done\":false}\n",
    b"{",
    b"}",
    b"\"thinking\":\"t\"",
    b"null",
    b"\"index\":1",
    b"-1",
    b"1e400",
    b"\\ud800",
    b"\"",
    b",",
];

/// What is said, texts of one kind that follow each other together, and the end.
fn said(pieces: &[&[u8]]) -> (Vec<Said>, String) {
    let (mut reader, mut all) = (Reader::default(), Vec::new());
    for piece in pieces {
        if let Err(error) = reader.feed(piece, &mut all) {
            return (all, format!("{error:?}"));
        }
    }
    let end = reader.finish(&mut all);
    (all, format!("{end:?}"))
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    each::each(input, &WORDS, |input, random| {
        let pieces = random.pieces(input);
        assert_eq!(said(&pieces), said(&[input]), "{pieces:?}");
    });
});
