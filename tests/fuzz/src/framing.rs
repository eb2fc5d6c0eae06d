//! Requests one behind the other on a connection: no byte of one is taken for another, however they arrive.
#![no_main]

mod each;

use bytes::BytesMut;
use dataplane::http::{
    h1::{
        body::{BodyDecoder, Decoded},
        parse::HeadScan,
    },
    limits::Limits,
};

const WORDS: [&[u8]; 16] = [
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
    b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
    b"3\r\nabc\r\n",
    b"0\r\n\r\n",
    b"\r\n",
    b"\n",
    b" ",
    b"content-length: 5\r\n",
    b"content-length: 0\r\n",
    b"content-length: 05\r\n",
    b"transfer-encoding: chunked\r\n",
    b"transfer-encoding : chunked\r\n",
    b"Transfer-Encoding:\tchunked\r\n",
    b"\0",
    b"GET ",
];

/// What a server makes of a connection that brings `pieces`: its requests, each with its body, and how it ends.
fn served(pieces: &[&[u8]], limits: &Limits) -> Vec<String> {
    let (mut buf, mut scan, mut body) =
        (BytesMut::new(), HeadScan::default(), None::<(BodyDecoder, Vec<u8>)>);
    let mut seen = Vec::new();
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            if let Some((decoder, bytes)) = &mut body {
                match decoder.decode(&mut buf) {
                    Ok(Decoded::Data(data)) => bytes.extend_from_slice(&data),
                    Ok(Decoded::NeedMore) => break,
                    Ok(Decoded::End) => {
                        seen.push(format!("body {bytes:?}"));
                        body = None;
                    }
                    Err(fault) => {
                        seen.push(format!("{bytes:?} {fault:?}"));
                        return seen;
                    }
                }
                continue;
            }
            match scan.request_head(&mut buf, limits) {
                Ok(Some(head)) => {
                    seen.push(format!("{head:?}"));
                    match BodyDecoder::for_request(&head, limits) {
                        Ok(decoder) => body = Some((decoder, Vec::new())),
                        Err(fault) => {
                            seen.push(format!("{fault:?}"));
                            return seen;
                        }
                    }
                }
                Ok(None) => break,
                Err(fault) => {
                    seen.push(format!("{fault:?}"));
                    return seen;
                }
            }
        }
    }
    seen.push(format!("open {:?}", body.map(|(_, bytes)| bytes)));
    seen
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let limits = Limits::default();
    each::each(input, &WORDS, |input, random| {
        let pieces = random.pieces(input);
        assert_eq!(served(&pieces, &limits), served(&[input], &limits), "{pieces:?}");
    });
});
