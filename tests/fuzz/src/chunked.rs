//! Chunked bodies: however they arrive the same is decoded, and no byte comes from nowhere.
#![no_main]

mod each;

use bytes::BytesMut;
use dataplane::http::{
    h1::{
        body::{BodyDecoder, Decoded},
        encode,
    },
    limits::Limits,
};

const WORDS: [&[u8]; 16] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"0\r\n\r\n",
    b"5\r\nhello\r\n",
    b"1",
    b"f",
    b"FFFFFFFFFFFFFFFF",
    b"10000000000000000",
    b"0x5",
    b";a=b",
    b";\"\n",
    b" ",
    b"-1",
    b"x: y\r\n",
    b"0",
];

/// All that a body has, how it ended, and what is left behind it.
fn decoded(mut decoder: BodyDecoder, pieces: &[&[u8]]) -> (Vec<u8>, String, Vec<u8>) {
    let (mut buf, mut body, mut end) = (BytesMut::new(), Vec::new(), String::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        while end.is_empty() {
            match decoder.decode(&mut buf) {
                Ok(Decoded::Data(data)) => {
                    assert!(!data.is_empty());
                    body.extend_from_slice(&data);
                }
                Ok(Decoded::NeedMore) => break,
                Ok(Decoded::End) => end.push_str("end"),
                Err(fault) => end = format!("{fault:?}"),
            }
        }
    }
    if end.is_empty() {
        end = format!("{:?}", decoder.finish_at_eof());
    }
    let left = if end == "end" { buf.to_vec() } else { Vec::new() };
    (body, end, left)
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let limits = Limits::default();
    each::each(input, &WORDS, |input, random| {
        let whole = decoded(BodyDecoder::chunked(&limits), &[input]);
        let pieces = random.pieces(input);
        let pieced = decoded(BodyDecoder::chunked(&limits), &pieces);
        assert_eq!(pieced, whole, "{pieces:?}");
        assert!(whole.0.len() + whole.2.len() <= input.len());
        // What is written is read as it was.
        let mut out = Vec::new();
        encode::chunk_of(&mut out, input);
        out.extend_from_slice(encode::LAST_CHUNK);
        let again = decoded(BodyDecoder::chunked(&limits), &random.pieces(&out));
        assert_eq!(again, (input.to_vec(), "end".to_owned(), Vec::new()));
    });
});
