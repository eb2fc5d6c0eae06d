//! Raw streams of the three surfaces: however they arrive the same is told, every event ends where the stream may be cut, and whether
//! somebody wants the text changes no sign.
#![no_main]

mod each;

use dataplane::http::sse::Splitter;
use iop_edge::{
    gate::{
        provider_error,
        reading::{Malformed, Reader, Sign, Text, Told},
    },
    surface::Surface,
};

const WORDS: [&[u8]; 36] = [
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\r\n\r\n",
    b"data: ",
    b"data:",
    b": ka\n\n",
    b"\xef\xbb\xbf",
    b"event: error\n",
    b"event: ping\n",
    b"event: response.output_item.added\n",
    b"event: response.completed\n",
    b"event: content_block_start\n",
    b"event: message_delta\n",
    b"data: [DONE]\n\n",
    b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
    b"{\"index\":1,\"delta\":{\"reasoning\":\"r\"},\"finish_reason\":\"abort\"}",
    b"\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]",
    b"\"function_call\":{\"name\":\"f\",\"arguments\":{}}",
    b"\"error\":{\"type\":\"t\",\"code\":400,\"message\":\"m\"}",
    b"\"object\":\"error\",",
    b"\"type\":\"response.failed\",",
    b"\"type\": \"content_block_delta\",",
    b"\"delta\":{\"text\":\"t\",\"partial_json\":\"{\"},",
    b"\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"x\"}]}]",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\ud83d",
    b"\xff",
    b",",
    b"null",
    b"1e400",
];

type Outcome = (Vec<Told>, Vec<Text>, Result<(), Malformed>);

fn told(surface: Surface, wants_text: bool, pieces: &[&[u8]]) -> Outcome {
    let mut reader = Reader::new(surface, wants_text);
    let (mut told, mut text) = (Vec::new(), Vec::new());
    for piece in pieces {
        if let Err(malformed) = reader.push(piece, &mut told, &mut text) {
            return (told, text, Err(malformed));
        }
    }
    reader.finish(&mut told, &mut text);
    (told, text, Ok(()))
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    each::each(input, &WORDS, |input, random| {
        let pieces = random.pieces(input);
        for surface in Surface::ALL {
            let whole = told(surface, true, &[input]);
            assert_eq!(told(surface, true, &pieces), whole, "{pieces:?}");
            let (signs, text, end) = told(surface, false, &pieces);
            assert_eq!((&signs, end), (&whole.0, whole.2));
            assert!(text.is_empty());
            assert!(signs.is_sorted_by_key(|told| told.until));
            for told in &signs {
                let mut splitter = Splitter::new();
                let _boundary = splitter.push(&input[..told.until]);
                assert!(splitter.at_boundary() || told.until == input.len());
                if let Sign::Failure(said) = &told.sign {
                    assert!(said.message.len() <= 1024);
                    let _class = provider_error::of_said(said);
                }
            }
            assert!(whole.1.iter().all(|text| signs.iter().any(|told| told.until == text.until)));
        }
        let _class = provider_error::of_status(500, &[], input);
    });
});
