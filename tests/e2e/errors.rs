//! Refusals and failures: the status, the error keys, and the end of a stream that failed.

use std::time::{Duration, Instant};

use iop_tests::{
    EdgeYaml, ProviderYaml,
    http::{self, Raw},
};

use crate::support::{
    Bench, MODEL, SOON, assert_broken_stream, assert_error, eventually, provider_at, site, yaml,
};

const CHAT: &str = "/v1/chat/completions";

#[test]
fn every_refusal_of_the_edge_has_its_status_and_all_four_error_keys() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let token = bench.site.token();
    let body = http::chat_body(MODEL, false, "").to_string();
    let ask = |request: &[u8]| -> anyhow::Result<http::Answer> {
        let mut client = bench.client()?;
        client.send(request)?;
        client.answer()
    };

    for request in [
        format!("POST {CHAT} HTTP/1.1\r\nhost: e\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            .into_bytes(),
        http::post(CHAT, "wrong", body.as_bytes()),
        http::post(CHAT, "", body.as_bytes()),
        http::post(CHAT, &token[..token.len() - 1], body.as_bytes()),
        b"GET /v1/models HTTP/1.1\r\nhost: e\r\n\r\n".to_vec(),
    ] {
        let answer = ask(&request)?;
        assert_error(&answer, 401, Some("invalid_api_key"));
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    let unknown = http::chat_body("no-such-model", true, "").to_string();
    let answer = ask(&http::post(CHAT, token, unknown.as_bytes()))?;
    assert_error(&answer, 404, Some("model_not_found"));
    assert_eq!(answer.json()?["error"]["param"], "model");
    assert!(answer.text().contains("no-such-model"));

    assert_error(&ask(&http::post("/v1/nothing", token, b"{}"))?, 404, None);
    assert_error(&http::get(&bench.edge.http, "/", Some(token))?, 404, None);
    let answer = http::get(&bench.edge.http, CHAT, Some(token))?;
    assert_error(&answer, 405, None);
    assert_eq!(answer.header("allow"), Some("POST, OPTIONS"));
    let answer = ask(&http::post("/v1/models", token, b"{}"))?;
    assert_error(&answer, 405, None);
    assert_eq!(answer.header("allow"), Some("GET, HEAD, OPTIONS"));

    for body in [
        "",
        "{",
        "[]",
        "null",
        "{\"model\":\"m1\"} x",
        "{\"model\":\"m1\",\"model\":\"m1\"}",
        "{\"messages\":[]}",
    ] {
        assert_error(&ask(&http::post(CHAT, token, body.as_bytes()))?, 400, None);
    }
    let answer = ask(&http::post(CHAT, token, b"{\"model\":\"m1\",\"stream\":\"yes\"}"))?;
    assert_eq!((answer.status, answer.json()?["error"]["param"].as_str()), (400, Some("stream")));

    assert_eq!(bench.seen("requests_started")?, 0, "nothing of this reaches a provider");
    bench.settles()
}

/// Sends `request` and expects a clean 413 of it without a `100 Continue` before it.
fn is_too_large(edge: &str, request: &[u8]) -> anyhow::Result<()> {
    let mut client = Raw::connect(edge)?;
    // The answer may come while this is still being sent; it must be readable all the same.
    let _cut_short = client.send(request);
    let answer = client.answer()?;
    assert_error(&answer, 413, None);
    assert!(answer.whole);
    assert_eq!(client.fill()?, 0, "the connection ends after it");
    Ok(())
}

// Case 75 of what users of such gateways report.
#[test]
fn a_body_over_the_limit_gets_a_clean_413_in_every_framing() -> anyhow::Result<()> {
    let bench = Bench::with(&[], |p| p, |edge| EdgeYaml { limits: "body_bytes: 100000".to_owned(), ..edge })?;
    let edge = &bench.edge.http;
    let head = |more: &str| {
        format!(
            "POST {CHAT} HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {}\r\n{more}\r\n",
            bench.site.token()
        )
    };
    let body = vec![b' '; 100_001];

    is_too_large(edge, &[head("content-length: 100001\r\n").as_bytes(), &body].concat())?;
    is_too_large(edge, head("content-length: 100001\r\nexpect: 100-continue\r\n").as_bytes())?;
    is_too_large(edge, head("content-length: 5000000000\r\n").as_bytes())?;
    let mut chunked = head("transfer-encoding: chunked\r\n").into_bytes();
    for part in body.chunks(1000) {
        chunked.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        chunked.extend_from_slice(part);
        chunked.extend_from_slice(b"\r\n");
    }
    is_too_large(edge, &chunked)?;
    // Much more than the sockets hold.
    is_too_large(edge, &[head("content-length: 30000000\r\n").as_bytes(), &vec![b' '; 30_000_000]].concat())?;

    // At the limit it is welcome, with and without a question first.
    let mut exact = http::chat_body(MODEL, false, "").to_string();
    exact.push_str(&" ".repeat(100_000 - exact.len()));
    let mut client = bench.client()?;
    client.send(head("content-length: 100000\r\nexpect: 100-continue\r\n"))?;
    assert!(client.read_head()?.starts_with("HTTP/1.1 100"));
    client.send(&exact)?;
    assert_eq!(client.answer()?.status, 200);
    assert_eq!(bench.seen("requests_started")?, 1);
    Ok(())
}

#[test]
fn a_providers_own_refusal_reaches_the_client_as_it_is() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    for (script, status, part) in [
        ("status=429 error-body=vllm retry-after=7", 429, "error"),
        ("status=500 error-body=openai", 500, "error"),
        ("status=503 error-body=text", 503, ""),
        ("status=400 error-body=llamacpp", 400, "error"),
    ] {
        for stream in [true, false] {
            let answer = bench.chat(stream, script)?;
            assert_eq!(answer.status, status, "{script}: {}", answer.text());
            assert!(answer.whole && answer.text().contains(part), "{script}: {}", answer.text());
            assert_eq!(answer.header("retry-after"), (status == 429).then_some("7"));
            assert_eq!(answer.header("x-iop-provider"), Some("p1"));
        }
    }
    // A refusal of the provider is no fault of it: the next one is served.
    assert_eq!(bench.chat(true, "")?.status, 200);
    bench.settles()
}

#[test]
fn a_provider_that_cannot_be_reached_is_a_502() -> anyhow::Result<()> {
    let mut bench = Bench::start()?;
    bench.provider.process.kill();
    for stream in [true, false] {
        let answer = bench.chat(stream, "")?;
        assert_error(&answer, 502, Some("upstream_error"));
        assert_eq!(answer.header("x-iop-provider"), Some("p1"));
    }
    assert_eq!(bench.outcomes("upstream_connect")?, 2.0);
    let log = bench.node.text();
    let warned = log.lines().filter(|line| line.contains("provider failed") && line.contains("127.0.0.1:"));
    assert_eq!(warned.count(), 1, "told with its address, and not for each request: {log}");
    Ok(())
}

// req: API-1
#[test]
fn a_failure_before_the_response_has_begun_is_a_502_with_json() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    for script in [
        "no-reply",
        "rst-before-headers",
        "garbage",
        "bad-head=cl-te",
        "bad-head=double-cl",
        "bad-head=signed-cl",
        "bad-head=te",
        "bad-head=name",
        "bad-head=nul",
        "bad-head=status",
        "bad-head=version",
    ] {
        for stream in [true, false] {
            let answer = bench.chat(stream, script)?;
            assert_error(&answer, 502, Some("upstream_error"));
            assert!(answer.whole, "{script}");
        }
    }
    // Case 17: a storm of failures holds no slot.
    bench.settles()?;
    assert_eq!(bench.chat(true, "")?.status, 200);
    bench.settles()
}

// req: API-1, FEN-2
#[test]
fn a_stream_that_breaks_ends_with_one_error_event_and_never_with_done() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    for script in [
        "events=60 truncate-after=40",
        "events=60 rst-after=40 gap=100us",
        "events=9 bad-chunk-after=5",
        "events=9 huge-chunk-after=5",
        "events=9 garbage-after=1",
    ] {
        let answer = bench.chat(true, script)?;
        assert_broken_stream(&answer, "upstream_error");
        let after: usize = script
            .split("after=")
            .nth(1)
            .and_then(|n| n.split(' ').next())
            .map_or(0, |n| n.parse().unwrap_or(0));
        let content = answer.events().len() - 1;
        if !script.contains("rst") {
            // A reset may take what was in flight with it; a close may not.
            assert_eq!(
                content,
                after + 1,
                "{script}: the role chunk and every whole event came: {}",
                answer.text()
            );
        }
    }
    // Before there is any content nothing of it is with the client, which is told by a status.
    let answer = bench.chat(true, "events=9 garbage-after=0")?;
    assert_eq!(answer.status, 502, "{}", answer.head);
    // An answer that is no stream has no place for an event: it is broken off.
    for script in [
        "events=60 truncate-after=30",
        "raw-body=100k chunked truncate-after=5",
        "events=60 chunked rst-after=30",
    ] {
        let answer = bench.chat(false, script)?;
        assert!(answer.status == 502 || !answer.whole, "{script}: {} {}", answer.head, answer.text());
        assert!(answer.status == 502 || answer.error_events().is_empty());
    }
    assert!(bench.outcomes("upstream_truncated")? >= 2.0);
    assert_eq!(bench.outcomes("ok")?, 0.0, "none of these counts as a success");
    bench.settles()
}

#[test]
fn the_edge_never_makes_up_an_end_that_the_provider_did_not_send() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let answer = bench.chat(true, "events=9 clean-eof-after=3")?;
    assert!(!answer.is_done() && !answer.text().contains("\"stop\""), "{}", answer.text());
    assert_broken_stream(&answer, "upstream_error");
    assert_eq!(bench.outcomes("upstream_truncated")?, 1.0);
    let answer = bench.chat(true, "events=9 error-after=3")?;
    assert_eq!(
        answer.error_events()[0]["code"],
        "perf_error",
        "a provider's own error event passes as it is"
    );
    Ok(())
}

// req: TUN-8
#[test]
fn the_deadline_of_a_run_ends_it_at_the_node_with_an_error_of_its_own() -> anyhow::Result<()> {
    let bench = Bench::with(
        &[],
        |provider| ProviderYaml { capacity: 1, extra: "request_timeout_ms: 1000".to_owned(), ..provider },
        |edge| edge,
    )?;
    for script in ["stall-before-headers", "events=5 late-head prefill=60s"] {
        let started = Instant::now();
        let answer = bench.chat(true, script)?;
        assert_error(&answer, 504, Some("timeout"));
        let took = started.elapsed();
        assert!(took > Duration::from_millis(900) && took < Duration::from_secs(4), "{took:?}");
    }
    let started = Instant::now();
    let answer = bench.chat(true, "events=100000 gap=10ms")?;
    assert_broken_stream(&answer, "timeout");
    assert!(started.elapsed() < Duration::from_secs(4));
    assert_eq!(bench.outcomes("deadline")?, 3.0);
    eventually(SOON, "the provider's requests are dropped", || Ok(bench.seen("aborts_seen")? == 3))?;
    bench.settles()?;
    assert_eq!(bench.chat(false, "")?.status, 200);
    Ok(())
}

/// A refusal for want of a slot: OpenAI's shape, and a time to come again in whole seconds of the range that clients heed.
fn is_turned_away(answer: &http::Answer, status: u16, code: &str) -> anyhow::Result<()> {
    assert_error(answer, status, Some(code));
    assert!(answer.whole && answer.header("content-length").is_some(), "{}", answer.head);
    let seconds: u64 = answer.header("retry-after").unwrap_or_default().parse()?;
    assert!((1..=60).contains(&seconds), "{seconds}");
    Ok(())
}

// req: POL-5
#[test]
fn over_the_queues_bound_is_a_429_at_once_and_too_long_a_wait_a_503() -> anyhow::Result<()> {
    let bench = Bench::with(
        &[],
        |provider| ProviderYaml { capacity: 1, ..provider },
        |edge| EdgeYaml { pool: "max_queue: 1, queue_timeout_ms: 4000".to_owned(), ..edge },
    )?;
    let _running = bench.begin(true, "prefill=60s")?;
    eventually(SOON, "the slot is taken", || Ok(bench.seen("requests_open")? == 1))?;
    let started = Instant::now();
    let mut waiting = bench.begin(false, "")?;
    eventually(SOON, "one waits", || Ok(bench.metric("iop_edge_queued")? == 1.0))?;

    let asked = Instant::now();
    for stream in [true, false] {
        is_turned_away(&bench.chat(stream, "")?, 429, "rate_limit_exceeded")?;
    }
    assert!(asked.elapsed() < Duration::from_secs(3));
    assert_eq!(bench.metric("iop_edge_queued")?, 1.0, "the one that waits still does");

    is_turned_away(&waiting.answer()?, 503, "overloaded")?;
    let took = started.elapsed();
    assert!(took > Duration::from_millis(3900) && took < Duration::from_secs(20), "{took:?}");
    // A request is counted after its answer is written.
    let counted = || Ok((bench.outcomes("queue_full")?, bench.outcomes("queue_timeout")?) == (2.0, 1.0));
    eventually(SOON, "all three are counted", counted)?;
    assert_eq!(bench.seen("requests_started")?, 1, "neither reached the provider");
    Ok(())
}

// req: POL-5
#[test]
fn a_request_without_a_live_candidate_waits_for_one_and_no_longer_than_the_queue_allows() -> anyhow::Result<()>
{
    let site = site()?;
    let pool = EdgeYaml { pool: "queue_timeout_ms: 400".to_owned(), ..yaml() };
    let edge = site.edge(&pool.with(provider_at("http://127.0.0.1:9/v1")))?;
    let started = Instant::now();
    let answer = http::chat(&edge.http, site.token(), &http::chat_body(MODEL, true, ""))?;
    assert_error(&answer, 503, Some("overloaded"));
    assert!(started.elapsed() > Duration::from_millis(350), "it waited");
    let ready = http::get(&edge.ops, "/readyz", None)?;
    assert_eq!(ready.status, 503);
    assert_eq!(http::get(&edge.ops, "/healthz", None)?.status, 200);
    Ok(())
}

#[test]
fn an_answer_that_only_a_close_ends_stays_one_so_that_a_cut_is_not_made_whole() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let answer = bench.chat(false, "close-delimited")?;
    assert_eq!((answer.status, answer.json()?["object"].as_str()), (200, Some("chat.completion")));
    for field in ["content-length", "transfer-encoding"] {
        assert!(answer.header(field).is_none(), "{field}: {}", answer.head);
    }
    assert_eq!(answer.header("connection"), Some("close"));
    // A reset of the provider's connection must not reach the client as a proper end.
    let mut client = bench.begin(false, "close-delimited events=60 rst-after=30")?;
    let head = client.read_head()?;
    if head.starts_with("HTTP/1.1 200") {
        let mut buffer = [0; 4096];
        let ended = loop {
            match std::io::Read::read(&mut client.stream, &mut buffer) {
                Ok(0) => break "a proper end",
                Ok(_) => {}
                Err(_) => break "a reset",
            }
        };
        assert_eq!(ended, "a reset", "{head}");
    }
    bench.settles()
}

#[test]
fn an_old_client_cannot_take_a_cut_answer_for_a_whole_one() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let body = http::chat_body(MODEL, false, "events=60 chunked truncate-after=30").to_string();
    let mut client = bench.client()?;
    client.send(format!(
        "POST /v1/chat/completions HTTP/1.0\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
        bench.site.token(),
        body.len()
    ))?;
    let mut seen = Vec::new();
    // Before the head it is a 502; after it nothing but a reset can tell.
    match std::io::Read::read_to_end(&mut client.stream, &mut seen) {
        Ok(_) => assert!(seen.starts_with(b"HTTP/1.1 502"), "{}", String::from_utf8_lossy(&seen)),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    bench.settles()
}
