//! Request heads: however they arrive the same is read, and what is read can be written and read again.
#![no_main]

mod each;

use bytes::BytesMut;
use dataplane::http::{
    h1::{
        encode::{self, Framing},
        parse::{self, HeadScan},
    },
    limits::Limits,
};

const WORDS: [&[u8]; 26] = [
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b": ",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"host: a\r\n",
    b"content-length: 5\r\n",
    b"content-length: +5\r\n",
    b"transfer-encoding: chunked\r\n",
    b"transfer-encoding: gzip, chunked\r\n",
    b"connection: close\r\n",
    b"expect: 100-continue\r\n",
    b"upgrade: h2c\r\n",
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"/v1/models?x=%2e",
    b"http://a/",
    b"*",
    b"\xff",
];

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let limits = Limits::default();
    each::each(input, &WORDS, |input, random| {
        let mut buf = BytesMut::from(input);
        let read = parse::request_head(&mut buf, &limits);
        let (mut scan, mut parts, mut pieced) = (HeadScan::default(), BytesMut::new(), Ok(None));
        for piece in random.pieces(input) {
            parts.extend_from_slice(piece);
            if matches!(pieced, Ok(None)) {
                pieced = scan.request_head(&mut parts, &limits);
            }
        }
        assert_eq!(format!("{read:?}"), format!("{pieced:?}"));
        let Ok(Some(head)) = read else { return };
        assert_eq!(buf, parts, "what is left");
        let fields: Vec<_> = head.headers.raw().collect();
        let host = head.headers.get("host").unwrap_or(b"a");
        let mut out = Vec::new();
        let host = std::str::from_utf8(host).unwrap_or("a");
        if encode::request_head(
            &mut out,
            &head.method,
            head.target.as_str(),
            host,
            fields.iter().copied(),
            Framing::None,
        )
        .is_err()
        {
            return;
        }
        let again = parse::request_head(&mut BytesMut::from(&out[..]), &limits);
        // Our own fields may bring it over a limit.
        let Ok(Some(again)) = again else { return };
        assert_eq!(again.target.as_str(), head.target.as_str());
        let kept =
            |name: &[u8]| !matches!(name, b"host" | b"content-length" | b"transfer-encoding" | b"connection");
        let kept_of =
            |all: Vec<(Vec<u8>, Vec<u8>)>| all.into_iter().filter(|(name, _)| kept(name)).collect::<Vec<_>>();
        let owned = |head: &dataplane::http::head::RequestHead| {
            kept_of(head.headers.raw().map(|(name, value)| (name.to_vec(), value.to_vec())).collect())
        };
        assert_eq!(owned(&again), owned(&head), "the same fields in the same order");
    });
});
