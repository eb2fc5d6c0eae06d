//! Request bodies: however they arrive the same is found, what is taken is JSON, and but for the model nothing changes.
#![no_main]

mod each;

use dataplane::http::body::Body;
use iop_edge::{
    config::{GenerationFields, GenerationPolicy},
    openai::{policy, scan::Scanner},
};
use serde_json::Value;

const WORDS: [&[u8]; 24] = [
    b"\"model\"",
    b"\"model\":\"m\"",
    b"\"m\\u006fdel\":\"x\"",
    b"\"stream\":true",
    b"\"stream\":null",
    b"\"max_tokens\":7",
    b"\"max_completion_tokens\":1e3",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\",
    b"\\ud83d\\ude00",
    b"\\u12",
    b"null",
    b"-0",
    b"1.5e-7",
    b"01",
    b"tru",
    b"\xc3\x28",
    b" ",
];

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    each::each(input, &WORDS, |input, random| {
        let scan = |pieces: &[&[u8]]| {
            let mut scanner = Scanner::default();
            pieces.iter().try_for_each(|piece| scanner.push(piece))?;
            scanner.finish()
        };
        let (whole, pieces) = (scan(&[input]), random.pieces(input));
        let pieced = scan(&pieces);
        assert_eq!(format!("{whole:?}"), format!("{pieced:?}"), "{pieces:?}");
        let Ok(found) = whole else { return };
        // Text that nobody looks at is not checked to be UTF-8.
        let Ok(text) = std::str::from_utf8(input) else { return };
        let body = Body::from(bytes::Bytes::copy_from_slice(input));
        let target = "another \"model\"";
        let fields = GenerationFields::default();
        let sent =
            policy::body_for(&found, &body, target, &GenerationPolicy::default(), &fields, false).joined();
        // serde_json has a bound of its own on nesting, and on what a number may be.
        let Ok(mut before) = serde_json::from_str::<Value>(text) else { return };
        let after: Value = serde_json::from_slice(&sent).unwrap();
        assert_eq!(before["model"], found.model.as_str());
        before["model"] = target.into();
        assert_eq!(after, before);
        let span = found.model_span.clone();
        assert_eq!(&sent[..span.start], &input[..span.start]);
        assert!(sent.ends_with(&input[span.end..]));
    });
});
