//! Requests that two readers could read in two ways: refused, the connection closed, and nothing of them at a Node.

use std::net::Shutdown;

use iop_tests::http;

use crate::support::{Bench, MODEL};

/// A request that would be served if its framing were taken in one of its two ways.
fn ambiguous(token: &str) -> Vec<(&'static str, String)> {
    let body = http::chat_body(MODEL, false, "").to_string();
    let n = body.len();
    let with = |lines: &str, body: &str| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {token}\r\n{lines}\r\n{body}"
        )
    };
    let chunked = format!("{n:x}\r\n{body}\r\n0\r\n\r\n");
    vec![
        ("two lengths", with(&format!("content-length: {n}\r\ncontent-length: {}\r\n", n + 1), &body)),
        ("a list of lengths", with(&format!("content-length: {n}, {}\r\n", n + 1), &body)),
        ("a signed length", with(&format!("content-length: +{n}\r\n"), &body)),
        ("a hexadecimal length", with(&format!("content-length: 0x{n:x}\r\n"), &body)),
        ("an empty length", with("content-length:\r\n", &body)),
        (
            "length and chunked",
            with(&format!("content-length: {n}\r\ntransfer-encoding: chunked\r\n"), &chunked),
        ),
        ("chunked twice", with("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", &chunked)),
        ("chunked not last", with("transfer-encoding: chunked, identity\r\n", &chunked)),
        ("an unknown coding", with("transfer-encoding: xchunked\r\n", &chunked)),
        ("a folded field", with(&format!("x-a: 1\r\n  content-length: 3\r\ncontent-length: {n}\r\n"), &body)),
        ("a space before the colon", with(&format!("content-length : {n}\r\n"), &body)),
        ("a field without a name", with(&format!(": 1\r\ncontent-length: {n}\r\n"), &body)),
        ("a nul in a value", with(&format!("x-a: 1\0\r\ncontent-length: {n}\r\n"), &body)),
        ("bare line feeds", with(&format!("content-length: {n}\r\n"), &body).replace("\r\n", "\n")),
        (
            "a bare carriage return",
            with(&format!("x-a: 1\rcontent-length: 3\r\ncontent-length: {n}\r\n"), &body),
        ),
        ("a chunk size that is none", with("transfer-encoding: chunked\r\n", &format!("0x{chunked}"))),
        (
            "a chunk size over 64 bits",
            with("transfer-encoding: chunked\r\n", &format!("1{:016x}\r\n{body}\r\n0\r\n\r\n", n)),
        ),
        (
            "a chunk without its end",
            with("transfer-encoding: chunked\r\n", &format!("{n:x}\r\n{body}XX0\r\n\r\n")),
        ),
        ("two hosts", with(&format!("host: f\r\ncontent-length: {n}\r\n"), &body)),
        (
            "a second line break",
            with(&format!("content-length: {n}\r\n"), &body).replacen(" HTTP/1.1\r\n", "  HTTP/1.1\r\n", 1),
        ),
        (
            "another protocol",
            with(&format!("content-length: {n}\r\n"), &body).replacen("HTTP/1.1", "HTTP/2.0", 1),
        ),
    ]
}

#[test]
fn ambiguous_requests_are_refused_and_their_connection_is_closed() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    for (what, request) in ambiguous(bench.site.token()) {
        let mut client = bench.client()?;
        client.send(&request)?;
        client.send("GET /v1/models HTTP/1.1\r\nhost: smuggled\r\n\r\n")?;
        let _already_closed = client.stream.shutdown(Shutdown::Write);
        let answer = client.answer()?;
        assert!(matches!(answer.status, 400 | 501 | 505), "{what}: {}\n{}", answer.head, answer.text());
        assert!(answer.whole, "{what}");
        while client.fill()? > 0 {}
        assert!(
            client.buffered().is_empty(),
            "{what}: a second answer: {:?}",
            String::from_utf8_lossy(client.buffered())
        );
    }
    assert_eq!(bench.seen("requests_started")?, 0, "nothing of them reached the provider");
    assert_eq!(bench.chat(false, "")?.status, 200);
    Ok(())
}

#[test]
fn requests_in_one_write_are_answered_in_order_on_one_connection() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let mut client = bench.client()?;
    let all = [
        bench.request(false, "events=1"),
        bench.request(true, "events=2"),
        format!("GET /v1/models HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {}\r\n\r\n", bench.site.token())
            .into_bytes(),
        bench.request(false, "events=3 status=418"),
    ];
    client.send(all.concat())?;
    assert!(client.answer()?.json()?["choices"].is_array());
    assert!(client.answer()?.is_done());
    assert_eq!(client.answer()?.json()?["object"], "list");
    assert_eq!(client.answer()?.status, 418);
    bench.settles()
}

#[test]
fn a_head_over_its_bounds_is_a_431() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let small = "x-a: 1\r\n".repeat(200);
    let long = format!("x-a: {}\r\n", "a".repeat(100_000));
    for fields in [small, long] {
        let mut client = bench.client()?;
        let _cut_short = client.send(format!("GET /v1/models HTTP/1.1\r\nhost: e\r\n{fields}\r\n"));
        assert_eq!(client.answer()?.status, 431);
    }
    Ok(())
}
