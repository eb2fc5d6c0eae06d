//! Heads that must be refused, whole and split at every byte, and those that must not.

use bytes::BytesMut;

use crate::http::{
    h1::parse::{HeadFault, HeadScan, request_head, response_head},
    head::{Method, RequestHead, Version},
    limits::Limits,
};

fn whole(bytes: &[u8]) -> Result<Option<RequestHead>, HeadFault> {
    request_head(&mut BytesMut::from(bytes), &Limits::default())
}

/// The same head, one byte at a time.
fn dripped(bytes: &[u8]) -> Result<Option<RequestHead>, HeadFault> {
    let (mut scan, mut buf, limits) = (HeadScan::default(), BytesMut::new(), Limits::default());
    for byte in bytes {
        buf.extend_from_slice(&[*byte]);
        if let Some(head) = scan.request_head(&mut buf, &limits)? {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

fn refused(bytes: &[u8], status: u16) {
    let text = String::from_utf8_lossy(bytes);
    match whole(bytes) {
        Err(fault) => {
            assert_eq!(fault.status(), status, "{text:?}: {fault}");
            assert_eq!(dripped(bytes).map(|_| ()), Err(fault), "{text:?} byte by byte");
        }
        Ok(head) => panic!("{text:?} taken: {head:?}"),
    }
}

fn with_field(line: &str) -> Vec<u8> {
    format!("POST /v1/messages HTTP/1.1\r\nHost: gw\r\n{line}\r\n\r\n").into_bytes()
}

const LINES: &[(&str, u16)] = &[
    ("", 400),
    (" ", 400),
    ("GET", 400),
    ("GET /", 400),
    ("GET / ", 400),
    ("GET  / HTTP/1.1", 400),
    ("GET /  HTTP/1.1", 400),
    ("GET / HTTP/1.1 ", 400),
    (" GET / HTTP/1.1", 400),
    ("\tGET / HTTP/1.1", 400),
    ("GET\t/ HTTP/1.1", 400),
    ("GET /\tHTTP/1.1", 400),
    ("GET / HTTP/1.1\t", 400),
    ("GET / a HTTP/1.1", 400),
    ("GET /a b HTTP/1.1", 400),
    ("G@T / HTTP/1.1", 400),
    ("GE(T / HTTP/1.1", 400),
    ("GET: / HTTP/1.1", 400),
    ("G\u{e9}T / HTTP/1.1", 400),
    ("GET / http/1.1", 400),
    ("GET / HTTP/1", 400),
    ("GET / HTTP/1.", 400),
    ("GET / HTTP/1.1a", 400),
    ("GET / HTTP/11", 400),
    ("GET / HTTP/01.1", 400),
    ("GET / HTTP/1.01", 400),
    ("GET / HTTP /1.1", 400),
    ("GET / HTTPS/1.1", 400),
    ("GET / HTTP/1,1", 400),
    ("GET / HTTP/-1.1", 400),
    ("GET / ICY/1.0", 400),
    ("GET / HTTP/1.2", 505),
    ("GET / HTTP/2.0", 505),
    ("GET / HTTP/3.0", 505),
    ("GET / HTTP/0.9", 505),
    ("PRI * HTTP/2.0", 505),
    ("CONNECT upstream:443 HTTP/1.1", 501),
    ("CONNECT / HTTP/1.1", 501),
    ("TRACE / HTTP/1.1", 501),
    ("GET http://169.254.169.254/latest HTTP/1.1", 400),
    ("GET http://gw/v1/models HTTP/1.1", 400),
    ("GET https://gw HTTP/1.1", 400),
    ("GET HTTP://gw/ HTTP/1.1", 400),
    ("GET file:///etc/passwd HTTP/1.1", 400),
    ("GET gw:80 HTTP/1.1", 400),
    ("GET gw HTTP/1.1", 400),
    ("GET v1/models HTTP/1.1", 400),
    ("GET ?x=1 HTTP/1.1", 400),
    ("GET * HTTP/1.1", 400),
    ("POST * HTTP/1.1", 400),
    ("OPTIONS ** HTTP/1.1", 400),
    ("OPTIONS gw HTTP/1.1", 400),
    ("GET \\v1 HTTP/1.1", 400),
    ("GET user@gw/ HTTP/1.1", 400),
    ("GET /a#b HTTP/1.1", 400),
    ("GET /\u{e9} HTTP/1.1", 400),
    ("GET /\u{7f} HTTP/1.1", 400),
    ("GET /\u{1} HTTP/1.1", 400),
    ("GET /\u{b} HTTP/1.1", 400),
    ("GET /a\u{1b}[2J HTTP/1.1", 400),
];

const FIELDS: &[(&str, u16)] = &[
    // Lengths.
    ("Content-Length: +5", 400),
    ("Content-Length: -5", 400),
    ("Content-Length:", 400),
    ("Content-Length: ", 400),
    ("Content-Length: 5,5", 400),
    ("Content-Length: 5, 5", 400),
    ("Content-Length: 5,", 400),
    ("Content-Length: ,5", 400),
    ("Content-Length: 5 5", 400),
    ("Content-Length: 5\t5", 400),
    ("Content-Length: 0x5", 400),
    ("Content-Length: 5h", 400),
    ("Content-Length: 5.0", 400),
    ("Content-Length: 5;x", 400),
    ("Content-Length: \"5\"", 400),
    ("Content-Length: 5e1", 400),
    ("Content-Length: 5_0", 400),
    ("Content-Length: \u{665}", 400),
    ("Content-Length: 18446744073709551616", 400),
    ("Content-Length: 00000000000000000005", 400),
    ("Content-Length: 99999999999999999999999", 400),
    ("Content-Length: 5\r\nContent-Length: 5", 400),
    ("Content-Length: 5\r\nContent-Length: 6", 400),
    ("Content-Length: 5\r\ncontent-length: 5", 400),
    ("Content-Length: 5\r\nX: y\r\nCONTENT-LENGTH: 0", 400),
    // Transfer codings.
    ("Transfer-Encoding: chunked\r\nContent-Length: 5", 400),
    ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
    ("Content-Length: 0\r\nTransfer-Encoding: chunked", 400),
    ("Content-Length: +5\r\nTransfer-Encoding: chunked", 400),
    ("Transfer-Encoding: identity\r\nContent-Length: 5", 400),
    ("Transfer-Encoding: x\r\nContent-Length: 5", 400),
    ("Transfer-Encoding:\r\nContent-Length: 5", 400),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", 400),
    ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", 400),
    ("Transfer-Encoding: chunked\r\ntransfer-encoding: x", 400),
    ("Transfer-Encoding:", 400),
    ("Transfer-Encoding: identity", 400),
    ("Transfer-Encoding: gzip", 400),
    ("Transfer-Encoding: gzip, chunked", 400),
    ("Transfer-Encoding: chunked, gzip", 400),
    ("Transfer-Encoding: chunked, chunked", 400),
    ("Transfer-Encoding: chunked, identity", 400),
    ("Transfer-Encoding: identity, chunked", 400),
    ("Transfer-Encoding: ,chunked", 400),
    ("Transfer-Encoding: chunked,", 400),
    ("Transfer-Encoding: chunked;q=1", 400),
    ("Transfer-Encoding: \"chunked\"", 400),
    ("Transfer-Encoding: 'chunked'", 400),
    ("Transfer-Encoding: xchunked", 400),
    ("Transfer-Encoding: chunkedx", 400),
    ("Transfer-Encoding: chun ked", 400),
    ("Transfer-Encoding: cow", 400),
    ("Transfer-Encoding: \u{b}chunked", 400),
    ("Transfer-Encoding: chunked\u{b}", 400),
    ("Transfer-Encoding: \u{c}chunked", 400),
    ("Transfer-Encoding: \u{a0}chunked", 400),
    ("Transfer-Encoding: chunke\u{212a}", 400),
    ("Transfer-Encoding: chunked\u{0}", 400),
    ("Transfer-Encoding: \u{0}chunked", 400),
    // Names and lines that some readers take for a framing field.
    ("Transfer-Encoding : chunked", 400),
    ("Transfer-Encoding\t: chunked", 400),
    ("Transfer-Encoding\u{b}: chunked", 400),
    ("Transfer-Encoding\u{0}: chunked", 400),
    (" Transfer-Encoding: chunked", 400),
    ("\tTransfer-Encoding: chunked", 400),
    ("X: y\r\n Transfer-Encoding: chunked", 400),
    ("X: y\r\n\tTransfer-Encoding: chunked", 400),
    ("Transfer-Encoding:\r\n chunked", 400),
    ("Transfer-Encoding: x\r\n chunked", 400),
    ("Content-Length : 5", 400),
    ("Content-Length\t: 5", 400),
    (" Content-Length: 5", 400),
    ("Content-Length: 5\r\n 6", 400),
    ("Content Length: 5", 400),
    ("Content-Length\u{a0}: 5", 400),
    ("X: y\nTransfer-Encoding: chunked", 400),
    ("X: y\rTransfer-Encoding: chunked", 400),
    ("X: y\r\rTransfer-Encoding: chunked", 400),
    ("X: y\n\rTransfer-Encoding: chunked", 400),
    ("X:\nTransfer-Encoding: chunked", 400),
    ("X\nTransfer-Encoding: chunked", 400),
    ("X\rY: z", 400),
    ("X: \rY: z", 400),
    ("X: y\r\r", 400),
    ("X: y\n", 400),
    (": value", 400),
    (":", 400),
    ("novalue", 400),
    ("\"X\": y", 400),
    ("X(: y", 400),
    ("X/Y: z", 400),
    ("X@Y: z", 400),
    ("X[]: z", 400),
    ("X{}: z", 400),
    ("X=Y: z", 400),
    ("X,Y: z", 400),
    ("X;Y: z", 400),
    ("X\\Y: z", 400),
    ("X?: z", 400),
    ("\u{e9}: z", 400),
    ("X\u{7f}: z", 400),
    ("X: a\u{0}b", 400),
    ("X: a\u{7f}b", 400),
    ("X: a\u{1b}[31m", 400),
    ("X: \u{8}", 400),
    // Host.
    ("Host: gw", 400),
    ("Host: other", 400),
    ("host: gw", 400),
    ("HOST:", 400),
    // Fields that may come once.
    ("Authorization: Bearer a\r\nAuthorization: Bearer b", 400),
    ("Authorization: Bearer a\r\nauthorization: Bearer a", 400),
    ("Authorization:\r\nAuthorization: Bearer a", 400),
    ("Proxy-Authorization: a\r\nProxy-Authorization: b", 400),
    ("X-Api-Key: a\r\nX-API-KEY: b", 400),
    ("Api-Key: a\r\nApi-Key: b", 400),
    ("Content-Type: a/b\r\nContent-Type: c/d", 400),
    ("Content-Encoding: gzip\r\nContent-Encoding: br", 400),
    ("X-Request-Id: a\r\nX-Request-Id: b", 400),
    ("Idempotency-Key: a\r\nIdempotency-Key: b", 400),
    ("Anthropic-Version: a\r\nAnthropic-Version: b", 400),
    ("Origin: a\r\nOrigin: b", 400),
    ("User-Agent: a\r\nUser-Agent: b", 400),
    ("Expect: 100-continue\r\nExpect: 100-continue", 400),
    // Expectations.
    ("Expect: 200-ok", 417),
    ("Expect:", 417),
    ("Expect: 100-continue, 100-continue", 417),
    ("Expect: 100-continue, x", 417),
    ("Expect: 100-continue;q=1", 417),
    ("Expect: 100", 417),
    ("Expect: y 100-continue", 417),
    ("Expect: \"100-continue\"", 417),
];

const HOSTS: &[&str] = &[
    "",
    " ",
    "a b",
    "a,b",
    "user@gw",
    "user:pw@gw",
    "gw/",
    "gw/path",
    "http://gw",
    "gw?x",
    "gw#x",
    "gw\\x",
    "gw:",
    ":80",
    "gw:80:80",
    "gw:-80",
    "gw:80a",
    "gw:123456",
    "[::1",
    "::1",
    "[]",
    "[::1]x",
    "[::1]80",
    "[::g]",
    "[::1%25eth0]",
    "\u{e9}",
    "gw\u{0}",
    "<gw>",
    "gw;x",
    "gw'",
];

#[test]
fn request_lines_outside_the_grammar_are_refused() {
    for (line, status) in LINES {
        refused(format!("{line}\r\nHost: gw\r\n\r\n").as_bytes(), *status);
    }
}

#[test]
fn fields_that_peers_could_read_differently_are_refused() {
    for (field, status) in FIELDS {
        refused(&with_field(field), *status);
    }
}

#[test]
fn there_are_enough_vectors() {
    assert!(LINES.len() + FIELDS.len() + HOSTS.len() >= 220);
}

#[test]
fn exactly_one_valid_host_is_required() {
    for host in HOSTS.iter().filter(|host| **host != "gw:") {
        refused(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(), 400);
    }
    refused(b"GET / HTTP/1.1\r\n\r\n", 400);
    refused(b"GET / HTTP/1.1\r\nX-Host: gw\r\n\r\n", 400);
    refused(b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400);
    for host in
        ["gw", "gw:80", "gw:", "a.b-c_d.e:65535", "127.0.0.1:8080", "[::1]", "[::ffff:1.2.3.4]:80", "%41"]
    {
        assert!(
            whole(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap().is_some(),
            "{host}"
        );
    }
}

#[test]
fn no_control_byte_is_taken_anywhere_in_a_head() {
    for byte in (0..0x20_u8).chain([0x7f]).filter(|b| *b != b'\t') {
        for (before, after) in [
            ("", "GET / HTTP/1.1\r\nHost: gw\r\n\r\n"),
            ("GE", "T / HTTP/1.1\r\nHost: gw\r\n\r\n"),
            ("GET /a", "b HTTP/1.1\r\nHost: gw\r\n\r\n"),
            ("GET / HTTP/1.1", "\r\nHost: gw\r\n\r\n"),
            ("GET / HTTP/1.1\r\n", "Host: gw\r\n\r\n"),
            ("GET / HTTP/1.1\r\nHost", ": gw\r\n\r\n"),
            ("GET / HTTP/1.1\r\nHost: gw\r\nX: a", "b\r\n\r\n"),
            ("GET / HTTP/1.1\r\nHost: gw\r\nX: ", "\r\n\r\n"),
            ("GET / HTTP/1.1\r\nHost: gw\r\n", "\r\n\r\n"),
        ] {
            let bytes = [before.as_bytes(), &[byte], after.as_bytes()].concat();
            refused(&bytes, 400);
        }
    }
}

#[test]
fn bare_line_feeds_are_refused_at_once_and_not_at_the_deadline() {
    for bytes in [
        &b"GET / HTTP/1.1\n"[..],
        b"\n",
        b"GET / HTTP/1.1\r\nHost: gw\n",
        b"GET / HTTP/1.1\r\nHost: gw\r\n\n",
    ] {
        refused(bytes, 400);
    }
}

#[test]
fn one_leading_empty_line_is_ignored_and_two_are_refused() {
    assert!(whole(b"\r\nGET / HTTP/1.1\r\nHost: gw\r\n\r\n").unwrap().is_some());
    assert!(dripped(b"\r\nGET / HTTP/1.1\r\nHost: gw\r\n\r\n").unwrap().is_some());
    refused(b"\r\n\r\nGET / HTTP/1.1\r\nHost: gw\r\n\r\n", 400);
}

#[test]
fn transfer_encoding_with_an_older_version_is_refused() {
    refused(b"POST / HTTP/1.0\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
    refused(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400);
}

#[test]
fn large_heads_are_refused_with_431_and_never_buffered_beyond_the_limit() {
    let fields = |n: usize| (0..n).map(|i| format!("x{i}: y\r\n")).collect::<String>();
    assert!(whole(format!("GET / HTTP/1.1\r\nHost: gw\r\n{}\r\n", fields(99)).as_bytes()).unwrap().is_some());
    refused(format!("GET / HTTP/1.1\r\nHost: gw\r\n{}\r\n", fields(100)).as_bytes(), 431);
    refused(format!("GET / HTTP/1.1\r\nHost: gw\r\n{}\r\n", fields(5000)).as_bytes(), 431);
    let most = Limits { fields: 1000, ..Limits::default() };
    for (count, fits) in [(999, true), (1000, false)] {
        let mut head = BytesMut::from(&*format!("GET / HTTP/1.1\r\nHost: gw\r\n{}\r\n", fields(count)));
        assert_eq!(request_head(&mut head, &most).is_ok(), fits, "{count} and one more");
    }
    refused(&with_field(&format!("X: {}", "y".repeat(16 * 1024))), 431);
    refused(format!("GET /{} HTTP/1.1\r\nHost: gw\r\n\r\n", "a".repeat(16 * 1024)).as_bytes(), 431);
    refused(&vec![b'a'; 64 * 1024 + 1], 431);
    assert!(whole(&vec![b'a'; 64 * 1024]).unwrap().is_none());
    let field = format!("x: {}\r\n", "y".repeat(15 * 1024));
    let head = |pad: usize| {
        format!("GET / HTTP/1.1\r\nHost: gw\r\n{}z: {}\r\n\r\n", field.repeat(4), "p".repeat(pad))
    };
    let room = 64 * 1024 - head(0).len();
    assert!(whole(head(room).as_bytes()).unwrap().is_some());
    refused(head(room + 1).as_bytes(), 431);
}

#[test]
fn many_connection_options_are_refused() {
    assert!(whole(&with_field(&format!("Connection: {}", vec!["a"; 64].join(",")))).unwrap().is_some());
    refused(&with_field(&format!("Connection: {}\r\nConnection: b", vec!["a"; 64].join(","))), 400);
}

#[test]
fn a_head_is_given_with_its_names_in_lower_case_and_the_rest_untouched() {
    let bytes =
        b"POST /v1/Messages?beta=true&x=? HTTP/1.1\r\nHOST: gw\r\nAnthropic-Beta: A, b \r\nX-Empty:\r\n\
        Content-Length: 3\r\nUpgrade: websocket\r\nexpect: 100-Continue\r\nAnthropic-Beta:\tc\r\n\r\nabc";
    let mut buf = BytesMut::from(&bytes[..]);
    let head = request_head(&mut buf, &Limits::default()).unwrap().unwrap();
    assert_eq!(&buf[..], b"abc");
    assert_eq!((head.method.as_str(), head.version), ("POST", Version::Http11));
    assert_eq!((head.target.path(), head.target.query()), ("/v1/Messages", Some("beta=true&x=?")));
    assert_eq!(head.target.as_str(), "/v1/Messages?beta=true&x=?");
    assert!(head.expects_continue());
    let fields: Vec<_> = head.headers.iter().map(|(n, v)| (n, std::str::from_utf8(v).unwrap())).collect();
    assert_eq!(
        fields,
        [
            ("host", "gw"),
            ("anthropic-beta", "A, b"),
            ("x-empty", ""),
            ("content-length", "3"),
            ("upgrade", "websocket"),
            ("expect", "100-Continue"),
            ("anthropic-beta", "c"),
        ]
    );
    assert_eq!(head.headers.get_all("anthropic-beta").count(), 2);
    assert!(head.headers.get_unique("anthropic-beta").is_err());
    assert_eq!(head.headers.get_unique("host"), Ok(Some(&b"gw"[..])));
    assert_eq!(head.headers.get("absent"), None);
}

#[test]
fn ordinary_heads_of_clients_are_taken() {
    for line in [
        "GET / HTTP/1.1",
        "HEAD / HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "OPTIONS /v1/models HTTP/1.1",
        "DELETE /v1/x HTTP/1.1",
        "GET /v1/models/openai/gpt-oss-20b%2Fa:8b HTTP/1.1",
        "GET //v1/models/ HTTP/1.1",
        "GET /a|b\"<>^`{} HTTP/1.1",
        "GET / HTTP/1.0",
    ] {
        assert!(whole(format!("{line}\r\nHost: gw\r\n\r\n").as_bytes()).unwrap().is_some(), "{line}");
    }
    for field in [
        "Content-Length: 0",
        "Content-Length: 0000000000000000005",
        "Content-Length:   5 \t ",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding:\tChUnKeD ",
        "X: caf\u{e9}\tx",
        "X!#$%&'*+-.^_`|~9: y",
        "Connection: keep-alive, Upgrade, HTTP2-Settings",
        "Expect: 100-CONTINUE",
    ] {
        assert!(whole(&with_field(field)).unwrap().is_some(), "{field}");
    }
    let old = whole(b"GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").unwrap().unwrap();
    assert!(old.version == Version::Http10 && old.method == Method::Get && !old.expects_continue());
}

#[test]
fn a_head_that_is_not_whole_stays_in_the_buffer() {
    let bytes = b"GET / HTTP/1.1\r\nHost: gw\r\n\r\n";
    for end in 0..bytes.len() {
        let mut buf = BytesMut::from(&bytes[..end]);
        assert!(request_head(&mut buf, &Limits::default()).unwrap().is_none(), "{end}");
        assert_eq!(&buf[..], &bytes[..end]);
    }
}

#[test]
fn broken_response_heads_are_refused() {
    for head in [
        "HTTP/1.1 99 X\r\n\r\n",
        "HTTP/1.1 099 X\r\n\r\n",
        "HTTP/1.1 600 X\r\n\r\n",
        "HTTP/1.1 999 X\r\n\r\n",
        "HTTP/1.1 000 X\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 +20 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\n\n",
        "HTTP/1.1 200 OK\r\nX: y\n\r\n",
        "HTTP/1.1 200 OK\r\nX: y\rZ: a\r\n\r\n",
        "HTTP/1.1 200 O\rK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: y\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: \u{0}\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let whole = response_head(&mut BytesMut::from(head), &Limits::default());
        let Err(fault) = whole else { panic!("{head:?} taken") };
        let (mut scan, mut buf, mut dripped) = (HeadScan::default(), BytesMut::new(), None);
        for byte in head.bytes() {
            buf.extend_from_slice(&[byte]);
            dripped = dripped.or(scan.response_head(&mut buf, &Limits::default()).err());
        }
        assert_eq!(dripped, Some(fault), "{head:?}");
    }
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
    assert_eq!(
        response_head(&mut BytesMut::from(many.as_str()), &Limits::default()).map(|_| ()),
        Err(HeadFault::TooLarge)
    );
}

#[test]
fn ordinary_response_heads_are_taken() {
    for (head, status) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\nset-cookie: a\r\nset-cookie: b\r\n\r\n", 200),
        ("HTTP/1.1 200 \r\n\r\n", 200),
        ("HTTP/1.1 200\r\n\r\n", 200),
        ("HTTP/1.0 404 caf\u{e9}\r\n\r\n", 404),
        ("HTTP/1.1 100 Continue\r\n\r\n", 100),
        ("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 103),
        ("HTTP/1.1 599 X\r\nTransfer-Encoding: Chunked\r\n\r\n", 599),
    ] {
        let got = response_head(&mut BytesMut::from(head), &Limits::default()).unwrap().unwrap();
        assert_eq!((got.status, got.is_informational()), (status, status < 200), "{head}");
    }
}

#[test]
fn the_debug_text_of_a_head_shows_no_values() {
    let head =
        whole(b"GET /p?key=sekrit HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer sekrit\r\n\r\n").unwrap();
    assert!(!format!("{head:?}").contains("sekrit"));
}
