//! Response heads: however they arrive the same is read.
#![no_main]

mod each;

use bytes::BytesMut;
use dataplane::http::{
    h1::{
        body::BodyDecoder,
        parse::{self, HeadScan},
    },
    head::Method,
    limits::Limits,
};

const WORDS: [&[u8]; 18] = [
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b":",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 204\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"999",
    b"content-length: 5\r\n",
    b"content-length: 5, 5\r\n",
    b"transfer-encoding: chunked\r\n",
    b"transfer-encoding: identity\r\n",
    b"connection: x, close\r\n",
    b"content-type: text/event-stream\r\n",
    b"\xff",
];

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let limits = Limits::default();
    each::each(input, &WORDS, |input, random| {
        let mut buf = BytesMut::from(input);
        let read = parse::response_head(&mut buf, &limits);
        let (mut scan, mut parts, mut pieced) = (HeadScan::default(), BytesMut::new(), Ok(None));
        for piece in random.pieces(input) {
            parts.extend_from_slice(piece);
            if matches!(pieced, Ok(None)) {
                pieced = scan.response_head(&mut parts, &limits);
            }
        }
        assert_eq!(format!("{read:?}"), format!("{pieced:?}"));
        let Ok(Some(head)) = read else { return };
        assert_eq!(buf, parts, "what is left");
        assert!((100..=599).contains(&head.status));
        for asked in [Method::Get, Method::Head] {
            let _framing = BodyDecoder::for_response(&head, &asked, &limits);
        }
    });
});
