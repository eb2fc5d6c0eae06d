//! What RFC 9113 asks of a server, as frames.

use std::time::Duration;

use super::{
    harness::{Server, on_both},
    raw::{
        DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RESET, Raw, SETTINGS, block, frame, request,
    },
};
use crate::{
    http::{
        http2::{Http2Limits, limits::Rate},
        limits::Limits,
    },
    shard::DriverWish,
};

const WHOLE: u8 = END_STREAM | END_HEADERS;
const PROTOCOL_ERROR: u32 = 1;
const REFUSED_STREAM: u32 = 7;

#[test]
fn the_preface_is_known_however_it_is_split_and_http_1_goes_on() {
    on_both(|server| {
        let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat();
        for cut in [1, 4, 17, 18, 19, 23, 24, preface.len()] {
            let mut raw = Raw::open(server.address);
            raw.send(&preface[..cut]).unwrap();
            // The server gets it in two reads, as far as a loopback can promise it.
            std::thread::yield_now();
            raw.send(&preface[cut..]).unwrap();
            raw.frame(HEADERS, WHOLE, 1, &request("GET", "/hello", &[]));
            let settings = raw.next().unwrap();
            assert_eq!((settings.kind, settings.stream), (SETTINGS, 0), "its own preface comes first");
            assert_eq!(raw.next_of(DATA).unwrap().payload, b"hello", "cut at {cut}");
        }
        let mut raw = Raw::open(server.address);
        raw.send(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
        assert!(raw.rest().ends_with(b"http/1"));
    });
}

#[test]
fn what_is_no_preface_is_refused() {
    on_both(|server| {
        let mut raw = Raw::open(server.address);
        raw.send(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n").unwrap();
        raw.rest();
        server.saw_at_last("ended protocol");
    });
}

#[test]
fn a_client_that_does_not_go_on_behind_the_preface_is_closed() {
    let limits = Limits { head_deadline: Duration::from_millis(300), ..Limits::default() };
    let server = Server::start(DriverWish::Auto, limits, Http2Limits::default());
    let mut raw = Raw::open(server.address);
    raw.send(b"PRI * HTTP/2.0\r\n\r\nSM").unwrap();
    raw.rest();
    server.saw_at_last("ended stalled");
}

#[test]
fn an_idle_connection_is_closed_by_a_goaway_and_pings_do_not_keep_it() {
    let limits = Limits { keepalive_idle: Duration::from_millis(300), ..Limits::default() };
    let bounds = Http2Limits { control: Rate { burst: u32::MAX, per_second: 0 }, ..Http2Limits::default() };
    let server = Server::start(DriverWish::Auto, limits, bounds);
    let mut raw = Raw::connect(server.address);
    while raw.frame(PING, 0, 0, &[0; 8]) {
        match raw.next() {
            Some(frame) if frame.kind == GOAWAY => {
                assert_eq!(frame.code(), 0);
                break;
            }
            Some(_) => {}
            None => panic!("no goaway"),
        }
    }
    server.saw_at_last("ended idle");
}

#[test]
fn malformed_requests_are_reset_or_answered_400_and_the_connection_goes_on() {
    on_both(|server| {
        let mut raw = Raw::connect(server.address);
        let method = (":method", "GET");
        let (scheme, path) = ((":scheme", "http"), (":path", "/hello"));
        let authority = (":authority", "edge.test");
        let cases: &[&[(&str, &str)]] = &[
            // RFC 9113 section 8.2: field names and values.
            &[method, scheme, path, authority, ("X-Upper", "1")],
            &[method, scheme, path, authority, ("x-nul", "a\0b")],
            &[method, scheme, path, authority, ("x-line", "a\r\nb: c")],
            &[method, scheme, path, authority, ("x-space", " padded")],
            // Section 8.2.2: fields of a connection.
            &[method, scheme, path, authority, ("connection", "close")],
            &[method, scheme, path, authority, ("transfer-encoding", "chunked")],
            &[method, scheme, path, authority, ("te", "gzip")],
            &[method, scheme, path, authority, ("upgrade", "h2c")],
            &[method, scheme, path, authority, ("keep-alive", "timeout=1")],
            // Section 8.3: pseudo-fields.
            &[scheme, path, authority],
            &[method, path, authority],
            &[method, scheme, authority],
            &[method, scheme, (":path", ""), authority],
            &[method, scheme, (":path", "hello"), authority],
            &[method, scheme, (":path", "http://other.test/hello"), authority],
            &[method, method, scheme, path, authority],
            &[method, scheme, path, authority, (":unknown", "1")],
            &[method, scheme, path, authority, (":status", "200")],
            &[method, scheme, path, ("x-before", "1"), authority],
            &[method, scheme, path, (":authority", "me@edge.test")],
            &[method, scheme, path, authority, ("host", "other.test")],
            &[method, scheme, path],
            &[(":method", "CONNECT"), authority],
            &[(":method", "TRACE"), scheme, path, authority],
            &[method, scheme, path, authority, ("content-length", "1"), ("content-length", "2")],
            &[method, scheme, path, authority, ("authorization", "a"), ("authorization", "b")],
        ];
        let mut stream = 1;
        for fields in cases {
            raw.frame(HEADERS, WHOLE, stream, &block(fields));
            stream += 2;
            match raw.outcome(stream - 2) {
                Outcome::Reset(code) => assert_eq!(code, PROTOCOL_ERROR, "{fields:?}"),
                Outcome::Answer(body) => assert_eq!(body, b"refused", "{fields:?}"),
                // What is no field at all the crate takes for a broken block.
                Outcome::Gone(code) => {
                    assert_eq!(code, PROTOCOL_ERROR, "{fields:?}");
                    assert!(fields.iter().any(|(name, value)| is_no_field(name, value)), "{fields:?}");
                    raw = Raw::connect(server.address);
                    stream = 1;
                }
            }
        }
        // With `te: trailers`, and a host that is the same.
        let good = request("GET", "/hello", &[("te", "trailers"), ("host", "edge.test")]);
        raw.frame(HEADERS, WHOLE, stream, &good);
        assert_eq!(raw.outcome(stream), Outcome::Answer(b"hello".to_vec()));
    });
}

#[test]
fn a_body_of_another_length_than_announced_is_reset() {
    on_both(|server| {
        for (announced, sent) in [("10", 9), ("10", 11), ("0", 1)] {
            let mut raw = Raw::connect(server.address);
            let fields = [("content-length", announced)];
            raw.frame(HEADERS, END_HEADERS, 1, &request("POST", "/echo", &fields));
            raw.frame(DATA, END_STREAM, 1, &vec![b'x'; sent]);
            let reset = raw.next_of(RESET).unwrap();
            assert_eq!((reset.stream, reset.code()), (1, PROTOCOL_ERROR), "{announced} {sent}");
            raw.frame(HEADERS, WHOLE, 3, &request("GET", "/hello", &[]));
            assert_eq!(raw.outcome(3), Outcome::Answer(b"hello".to_vec()));
        }
    });
}

#[test]
fn a_client_that_expects_it_is_told_to_go_on() {
    on_both(|server| {
        let mut raw = Raw::connect(server.address);
        let fields = [("expect", "100-continue"), ("content-length", "4")];
        raw.frame(HEADERS, END_HEADERS, 1, &request("POST", "/echo", &fields));
        let head = raw.next_of(HEADERS).unwrap();
        assert_eq!((head.stream, head.flags & END_STREAM), (1, 0), "an informational head");
        raw.frame(DATA, END_STREAM, 1, b"body");
        assert_eq!(raw.outcome(1), Outcome::Answer(b"body".to_vec()));
    });
}

#[test]
fn errors_of_the_connection_end_it_with_their_code() {
    on_both(|server| {
        for (bytes, code) in [
            // Section 5.1.1: an even number, and a number that goes back.
            (frame(HEADERS, WHOLE, 2, &request("GET", "/hello", &[])), 1),
            // Section 6.1: DATA of the connection.
            (frame(DATA, 0, 0, b"x"), 1),
            // Section 6.5: SETTINGS of a stream, and of a length that is no multiple of 6 (6 would be the code for it).
            (frame(SETTINGS, 0, 1, &[]), 1),
            (frame(SETTINGS, 0, 0, &[0; 5]), 1),
            // Section 6.7: PING of a wrong length.
            (frame(PING, 0, 0, &[0; 7]), 1),
            // Section 6.9: a window that opens by nothing.
            (frame(super::raw::WINDOW_UPDATE, 0, 0, &[0; 4]), 1),
            // Section 4.2: a frame over the limit that we told.
            (frame(DATA, 0, 1, &[0; 20_000]), 6),
            // Section 6.10: CONTINUATION of nothing.
            (frame(super::raw::CONTINUATION, END_HEADERS, 1, &[]), 1),
            // Section 4.3: a block that is no HPACK (9 would be the code for it).
            (frame(HEADERS, WHOLE, 1, &[0xff; 8]), 1),
            // Section 5.1: DATA and WINDOW_UPDATE of an idle stream.
            (frame(DATA, 0, 5, b"x"), 1),
            (frame(super::raw::WINDOW_UPDATE, 0, 5, &[0, 0, 0, 1]), 1),
            (frame(RESET, 0, 5, &[0; 4]), 1),
        ] {
            let mut raw = Raw::connect(server.address);
            raw.send(&bytes).unwrap();
            let found = raw.goaway();
            assert_eq!(found, Some(code), "{:?}", &bytes[..bytes.len().min(20)]);
        }
    });
}

#[test]
fn requests_over_the_limit_are_refused_and_may_be_sent_again() {
    let bounds = Http2Limits { streams: 2, ..Http2Limits::default() };
    let server = Server::start(DriverWish::Auto, Limits::default(), bounds);
    let mut raw = Raw::connect(server.address);
    for stream in [1, 3, 5] {
        raw.frame(HEADERS, WHOLE, stream, &request("GET", "/wait", &[]));
    }
    let refused = raw.next_of(RESET).unwrap();
    assert_eq!((refused.stream, refused.code()), (5, REFUSED_STREAM));
    raw.frame(RESET, 0, 1, &8_u32.to_be_bytes());
    raw.frame(HEADERS, WHOLE, 7, &request("GET", "/hello", &[]));
    assert_eq!(raw.outcome(7), Outcome::Answer(b"hello".to_vec()));
}

#[test]
fn large_heads_are_refused() {
    on_both(|server| {
        // What the crate counts (32 KiB), what we do (100 fields), and what is far too much.
        let value = "v".repeat(15_000);
        let large = [("x-a", &*value), ("x-b", &value), ("x-c", &value)];
        let many = [("x", "1"); 101];
        let mut raw = Raw::connect(server.address);
        raw.headers(1, &request("GET", "/hello", &large));
        raw.headers(3, &request("GET", "/hello", &many));
        assert!(matches!(raw.outcome(3), Outcome::Answer(body) if body == b"refused"));
        raw.headers(5, &request("GET", "/hello", &[]));
        assert_eq!(raw.outcome(5), Outcome::Answer(b"hello".to_vec()));
    });
}

/// What RFC 9110 section 5 knows no field for.
fn is_no_field(name: &str, value: &str) -> bool {
    name.bytes().any(|b| b.is_ascii_uppercase())
        || value.bytes().any(|b| b.is_ascii_control())
        || (name.starts_with(':') && name != ":path")
}

/// How a stream ended.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Reset(u32),
    /// Its connection ended.
    Gone(u32),
    /// The body.
    Answer(Vec<u8>),
}

impl Raw {
    /// What comes of a stream; what comes of others is thrown away.
    fn outcome(&mut self, stream: u32) -> Outcome {
        let mut body = Vec::new();
        loop {
            let frame = self.next().unwrap();
            if frame.kind == GOAWAY {
                return Outcome::Gone(frame.code());
            }
            if frame.stream != stream {
                continue;
            }
            match frame.kind {
                RESET => return Outcome::Reset(frame.code()),
                DATA => body.extend(&frame.payload),
                _ => {}
            }
            if matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0 {
                return Outcome::Answer(body);
            }
        }
    }
}
