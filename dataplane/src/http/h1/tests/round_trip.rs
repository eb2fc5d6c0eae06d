//! What is encoded parses back to the same, and requests on one connection are never read into each other.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use crate::http::{
    h1::{
        body::{BodyDecoder, Decoded},
        encode::{self, EncodeFault, Framing},
        parse::{HeadScan, request_head, response_head},
    },
    head::{FieldFault, Headers, Method},
    limits::Limits,
};

#[test]
fn nothing_with_a_line_break_gets_into_a_head() {
    for value in ["a\r\nx: y", "a\nb", "a\rb", "\0", "\u{1b}", "\u{7f}"] {
        assert_eq!(Headers::new().push("x", value), Err(FieldFault::Value), "{value:?}");
        let mut out = b"before".to_vec();
        let fields = [("x", value.as_bytes())];
        assert_eq!(
            encode::response_head(&mut out, 200, fields, Framing::None, false),
            Err(EncodeFault::Field)
        );
        let request = |out: &mut Vec<u8>, target: &str, host: &str| {
            encode::request_head(out, &Method::Get, target, host, [], Framing::None)
        };
        assert_eq!(request(&mut out, "/", value), Err(EncodeFault::Field));
        assert_eq!(request(&mut out, &format!("/{value}"), "h"), Err(EncodeFault::Target));
        assert_eq!(request(&mut out, "/a b", "h"), Err(EncodeFault::Target));
        assert_eq!(request(&mut out, "", "h"), Err(EncodeFault::Target));
        assert_eq!(out, b"before");
    }
    for name in ["", "X", "a b", "a:", "a\r\n", "\u{e9}"] {
        assert_eq!(Headers::new().push(name, "v"), Err(FieldFault::Name), "{name:?}");
    }
    let method = Method::Other("A B".into());
    let refused = encode::request_head(&mut Vec::new(), &method, "/", "h", [], Framing::None);
    assert_eq!(refused, Err(EncodeFault::Method));
}

#[test]
fn heads_are_written_as_they_should_look() {
    let mut headers = Headers::new();
    headers.push("content-type", "text/plain").unwrap();
    headers.push("connection", "keep-alive").unwrap();
    headers.push("content-length", "99").unwrap();
    headers.push("transfer-encoding", "gzip").unwrap();
    let mut out = Vec::new();
    encode::response_head(&mut out, 200, headers.iter(), Framing::Length(0), true).unwrap();
    let text =
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), text);

    let mut out = Vec::new();
    encode::request_head(&mut out, &Method::Post, "/v1?x", "h:1", headers.raw(), Framing::Chunked).unwrap();
    let text =
        "POST /v1?x HTTP/1.1\r\nhost: h:1\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), text);
}

#[test]
fn all_ready_parts_are_one_chunk() {
    let mut out = Vec::new();
    encode::chunk(
        &mut out,
        &[Bytes::from_static(b"hello "), Bytes::new(), Bytes::from_static(b"big wide world")],
    );
    encode::chunk(&mut out, &[Bytes::new()]);
    encode::chunk(&mut out, &[]);
    encode::chunk_of(&mut out, b"");
    assert_eq!(out, b"14\r\nhello big wide world\r\n");
}

#[test]
fn fields_are_removed_by_name() {
    let mut headers = Headers::new();
    for (name, value) in [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")] {
        headers.push(name, value).unwrap();
    }
    headers.remove("a");
    let left: Vec<_> = headers.iter().map(|(name, _)| name).collect();
    assert_eq!((left, headers.len(), headers.is_empty()), (vec!["b", "c"], 2, false));
}

/// A request with a body that looks like more requests.
fn request() -> impl Strategy<Value = (String, Vec<u8>, bool)> {
    let body = prop::collection::vec(
        prop::sample::select(vec![
            "\r\n",
            "0\r\n\r\n",
            "GET /x HTTP/1.1\r\nHost: gw\r\n\r\n",
            "a",
            "5\r\n",
            "\n",
        ]),
        0..6,
    );
    ("[a-z/%?=]{0,12}", body.prop_map(|parts| parts.concat().into_bytes()), any::<bool>())
}

proptest! {
    // Security row 1: the bytes of request i+1 never begin inside request i.
    #[test]
    fn requests_on_one_connection_are_read_exactly_as_they_were_sent(
        requests in prop::collection::vec(request(), 1..5),
        step in 1_usize..40,
    ) {
        let mut wire = Vec::new();
        for (path, body, is_chunked) in &requests {
            let framing = if *is_chunked { Framing::Chunked } else { Framing::Length(body.len() as u64) };
            encode::request_head(&mut wire, &Method::Post, &format!("/{path}"), "gw", [], framing).unwrap();
            if *is_chunked {
                for piece in body.chunks(7) {
                    encode::chunk_of(&mut wire, piece);
                }
                wire.extend_from_slice(encode::LAST_CHUNK);
            } else {
                wire.extend_from_slice(body);
            }
        }
        let (limits, mut scan, mut buf, mut got) = (Limits::default(), HeadScan::default(), BytesMut::new(), Vec::new());
        let mut current: Option<(String, Vec<u8>, BodyDecoder)> = None;
        for piece in wire.chunks(step) {
            buf.extend_from_slice(piece);
            loop {
                match &mut current {
                    None => match scan.request_head(&mut buf, &limits).unwrap() {
                        None => break,
                        Some(head) => {
                            let decoder = BodyDecoder::for_request(&head, &limits).unwrap();
                            current = Some((head.target.as_str().to_owned(), Vec::new(), decoder));
                        }
                    },
                    Some((path, body, decoder)) => match decoder.decode(&mut buf).unwrap() {
                        Decoded::NeedMore => break,
                        Decoded::Data(data) => body.extend_from_slice(&data),
                        Decoded::End => {
                            got.push((std::mem::take(path), std::mem::take(body)));
                            current = None;
                        }
                    },
                }
            }
        }
        let sent: Vec<_> = requests.iter().map(|(path, body, _)| (format!("/{path}"), body.clone())).collect();
        prop_assert_eq!(got, sent);
        prop_assert!(buf.is_empty());
    }

    #[test]
    fn any_fields_that_are_taken_parse_back_to_the_same_list(
        fields in prop::collection::vec(("[a-z0-9-]{1,20}", prop::collection::vec(any::<u8>(), 0..40)), 0..20),
    ) {
        let mut headers = Headers::new();
        for (name, value) in &fields {
            let _refused = headers.push(&format!("x-{name}"), value);
        }
        let mut out = Vec::new();
        encode::response_head(&mut out, 200, headers.iter(), Framing::Length(3), false).unwrap();
        let head = response_head(&mut BytesMut::from(&out[..]), &Limits::default()).unwrap().unwrap();
        let trimmed = |value: &[u8]| crate::http::head::trim_ows(value).to_vec();
        let mut sent: Vec<_> = headers.iter().map(|(name, value)| (name.to_owned(), trimmed(value))).collect();
        sent.push(("content-length".to_owned(), b"3".to_vec()));
        let got: Vec<_> = head.headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn any_bytes_are_judged_the_same_whole_and_byte_by_byte(
        middle in prop::collection::vec(prop::sample::select(b"ab: \t\r\n\r\n,5\0\x7f\xff".to_vec()), 0..40),
        at in 0_usize..4,
    ) {
        let prefix = ["", "GET / HTTP/1.1\r\nHost: gw\r\n", "POST /", "POST / HTTP/1.1\r\nHost: gw\r\nContent-Length:"][at];
        let bytes = [prefix.as_bytes(), &middle, b"\r\n\r\n"].concat();
        let mut buf = BytesMut::from(&bytes[..]);
        let whole = request_head(&mut buf, &Limits::default()).map(|head| head.is_some());
        let (mut scan, mut dripped) = (HeadScan::default(), Ok(false));
        let mut one = BytesMut::new();
        for byte in &bytes {
            one.extend_from_slice(&[*byte]);
            dripped = scan.request_head(&mut one, &Limits::default()).map(|head| head.is_some());
            if dripped != Ok(false) {
                break;
            }
        }
        prop_assert_eq!(dripped, whole);
    }
}
