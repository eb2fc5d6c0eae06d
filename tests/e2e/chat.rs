//! What a provider answers reaches the client as it was, and what a client asks reaches the provider as it should.

use iop_tests::{EdgeYaml, ProviderYaml, http};
use serde_json::Value;

use crate::support::{Bench, MODEL, SOON, eventually, is_matrix_only, sha256, site};

/// The provider's clock stands in every chunk; everything else of two equal requests is equal.
fn without_clock(body: &[u8]) -> Vec<u8> {
    let mark = b"\"created\":";
    let mut out = body.to_vec();
    let mut at = 0;
    while let Some(found) = out[at..].windows(mark.len()).position(|w| w == mark) {
        at += found + mark.len();
        while out.get(at).is_some_and(u8::is_ascii_digit) {
            out[at] = b'0';
            at += 1;
        }
    }
    out
}

// req: TUN-3
#[test]
fn every_shape_of_answer_is_byte_for_byte_the_providers() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    // A twin counts its requests alike, so its answers are the same to the digit.
    let twin = bench.site.provider(&[])?;
    let direct = twin.url.trim_start_matches("http://");
    for (stream, script) in [
        (true, ""),
        (true, "events=200 reasoning=3 extras usage=always"),
        (true, "events=40 crlf bom"),
        (true, "events=6 split=byte"),
        (true, "events=60 join=7 chunk=13"),
        (true, "events=20 gap=2ms"),
        (true, "events=5 close-delimited"),
        (true, "events=5 http10"),
        (true, "events=5 trailers"),
        (true, "events=3 bad-json-after=1"),
        (true, "events=3 data-after-done"),
        (true, "events=3 headers-bytes=20k"),
        (true, "events=3 headers-count=60"),
        (true, "events=3 early-hints=3"),
        (true, "events=3 usage=always no-role"),
        (false, ""),
        (false, "events=400 chunked split=100"),
        (false, "events=50 close-delimited"),
        (false, "events=50 http10"),
        (false, "empty-body"),
        (false, "status=418 error-body=html"),
    ] {
        let ours = bench.chat(stream, script)?;
        let theirs = http::chat(direct, "", &http::chat_body(MODEL, stream, script))?;
        assert_eq!(ours.status, theirs.status, "{script}");
        assert_eq!(ours.header("content-type"), theirs.header("content-type"), "{script}");
        assert_eq!(ours.header("x-provider"), Some("iop-perf"), "{script}");
        assert!(ours.whole && theirs.whole, "{script}: {}", ours.text());
        let (ours, theirs) = (without_clock(&ours.body), without_clock(&theirs.body));
        assert!(
            sha256(&ours) == sha256(&theirs),
            "{script}\n{}\n--- instead of\n{}",
            String::from_utf8_lossy(&ours),
            String::from_utf8_lossy(&theirs)
        );
    }
    assert_eq!(bench.outcomes("ok")?, 21.0);
    bench.settles()
}

// req: TUN-3
#[test]
fn characters_of_several_bytes_survive_a_write_that_ends_at_any_of_them() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let mut client = bench.client()?;
    let mut first = None;
    for at in 150..230 {
        client.send(bench.request(true, &format!("events=2 bytes=300 split-at={at} split-gap=200us")))?;
        let answer = client.answer()?;
        let text = String::from_utf8(answer.body.clone())?;
        assert!(text.contains("你好🌍é"), "{text}");
        let content: String = answer
            .events()
            .iter()
            .filter_map(|event| serde_json::from_str::<Value>(event).ok())
            .filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
            .collect();
        assert_eq!(first.get_or_insert_with(|| content.clone()), &content, "split at {at}");
        assert!(answer.is_done(), "{text}");
    }
    bench.settles()
}

// req: TUN-3, WIR-6
#[test]
fn large_answers_arrive_whole_in_every_framing() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    for script in
        ["raw-body=1m", "raw-body=1m chunked", "raw-body=1m close-delimited", "raw-body=5m chunk=700"]
    {
        let answer = bench.chat(false, script)?;
        assert_eq!(answer.status, 200);
        assert!(answer.whole, "{script}");
        assert_eq!(answer.header("x-body-sha256"), Some(&*sha256(&answer.body)), "{script}");
    }
    bench.settles()
}

// req: WIR-9
#[test]
fn a_body_of_5_mb_reaches_the_provider_whole_however_it_is_framed() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let mut body = http::chat_body(MODEL, false, "");
    body["messages"][0]["content"] = "naïve 你好🌍 ".repeat(280_000).into();
    let body = body.to_string().into_bytes();
    assert!(body.len() > 5_000_000);

    let mut client = bench.client()?;
    client.send(http::post("/v1/chat/completions", bench.site.token(), &body))?;
    let answer = client.answer()?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let seen = bench.stats()?["last"].clone();
    assert_eq!(
        (seen["body_bytes"].as_u64(), seen["body_sha256"].as_str()),
        (Some(body.len() as u64), Some(&*sha256(&body)))
    );

    // The same connection, in chunks that fit nothing.
    client.send(format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: edge\r\nauthorization: Bearer {}\r\ntransfer-encoding: chunked\r\n\r\n",
        bench.site.token()
    ))?;
    for chunk in body.chunks(99_991) {
        client.send(format!("{:x};note=1\r\n", chunk.len()))?;
        client.send(chunk)?;
        client.send("\r\n")?;
    }
    client.send("0\r\nx-trailer: 1\r\n\r\n")?;
    let answer = client.answer()?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let seen = bench.stats()?["last"].clone();
    assert_eq!(seen["body_sha256"].as_str(), Some(&*sha256(&body)));
    assert_eq!(bench.seen("requests_completed")?, 2);
    bench.settles()
}

// req: TUN-6, API-2
#[test]
fn end_to_end_fields_pass_and_everything_of_the_hop_or_of_ours_stays_behind() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let body = http::chat_body(MODEL, false, "").to_string();
    let mut client = bench.client()?;
    client.send(format!(
        "POST /v1/chat/completions?api-version=7 HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer {}\r\n\
         X-Api-Key: {}\r\nApi-Key: client-secret-2\r\nCookie: session=client-secret-3\r\n\
         Proxy-Authorization: Basic client-secret-4\r\nX-Iop-Provider: spoofed\r\nX-Iop-Run: spoofed\r\n\
         Connection: keep-alive, X-Nominated\r\nX-Nominated: hop\r\nTE: trailers\r\nUpgrade: h2c\r\nKeep-Alive: timeout=5\r\n\
         Accept-Encoding: gzip, br\r\nX-Trace: abc\r\nX-Trace: def\r\nOpenAI-Organization: org\r\nAccept: text/event-stream\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        bench.site.token(),
        bench.site.token(),
        body.len()
    ))?;
    let answer = client.answer()?;
    assert_eq!(answer.status, 200, "{}", answer.text());

    let seen = bench.stats()?["last"].clone();
    assert_eq!(
        (seen["method"].as_str(), seen["path"].as_str()),
        (Some("POST"), Some("/v1/chat/completions"))
    );
    assert_eq!(seen["target"], "/v1/chat/completions", "a client's query is not the provider's");
    let all = seen["headers"].to_string().to_lowercase();
    for absent in [
        "secret",
        "spoofed",
        bench.site.token(),
        "x-iop-",
        "x-nominated",
        "\"te\"",
        "upgrade",
        "keep-alive",
        "gzip",
        "authorization",
    ] {
        assert!(!all.contains(&absent.to_lowercase()), "{absent} reached the provider: {all}");
    }
    let values = |name: &str| -> Vec<String> {
        let fields = seen["headers"].as_array().cloned().unwrap_or_default();
        let is = |field: &Value| field[0].as_str().is_some_and(|n| n.eq_ignore_ascii_case(name));
        fields
            .iter()
            .filter(|field| is(field))
            .filter_map(|field| Some(field[1].as_str()?.to_owned()))
            .collect()
    };
    assert_eq!(values("x-trace"), ["abc", "def"]);
    assert_eq!(values("openai-organization"), ["org"]);
    assert_eq!(values("content-type"), ["application/json"]);
    assert_eq!(values("accept"), ["text/event-stream"]);
    assert_eq!(values("host"), [bench.provider.url.trim_start_matches("http://")]);

    assert_eq!(answer.header("x-iop-provider"), Some("p1"));
    assert_eq!(answer.header("x-iop-attempts"), Some("1"));
    assert!(answer.header("x-iop-queue-ms").is_some_and(|ms| ms.parse::<u64>().is_ok()));
    let id = answer.header("x-request-id").unwrap_or_default();
    assert!(!id.is_empty() && !id.starts_with("perf-"), "the request id is the Edge's own: {id}");
    assert_eq!(answer.header("request-id"), Some(id));
    assert_eq!(answer.header("server"), Some("iop-perf"));
    assert_eq!(answer.head.to_lowercase().matches("x-request-id:").count(), 1, "{}", answer.head);
    eventually(SOON, "the log line of the request carries its id", || {
        Ok(bench.edge.process.text().contains(id))
    })?;
    assert!(!bench.edge.process.text().contains(bench.site.token()), "no token stands in a log");
    Ok(())
}

// req: TUN-5, PRF-2
#[test]
fn the_model_name_is_replaced_in_place_and_no_other_byte_moves() -> anyhow::Result<()> {
    let profile = "protocol_profiles:\n  mapped: { base: openai_compat, driver: openai_chat, model_mapping: { m1: \"Org/Served-8B\" } }\n";
    let bench = Bench::with(
        &[],
        |provider| ProviderYaml { extra: "profile: mapped".to_owned(), ..provider },
        |edge| EdgeYaml { extra: profile.to_owned(), ..edge },
    )?;
    let body = "{ \"n\" : 1.0,\t\"messages\":[ {\"role\":\"user\",\"content\":\"m1 \\u4f60 你\",\"model\":\"m1\"} ],\r\n\"model\" : \"m1\" , \"x\":1e2 }";
    let mut client = bench.client()?;
    client.send(http::post("/v1/chat/completions", bench.site.token(), body.as_bytes()))?;
    let answer = client.answer()?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let expected = body.replace("\"model\" : \"m1\"", "\"model\" : \"Org/Served-8B\"");
    assert_eq!(bench.stats()?["last"]["body"].as_str(), Some(&*expected));
    assert_eq!(answer.json()?["model"], "Org/Served-8B", "the answer is the provider's own");
    Ok(())
}

// req: TUN-7
#[test]
fn one_provider_connection_serves_requests_that_follow_each_other() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let mut client = bench.client()?;
    for stream in [true, false].repeat(10) {
        client.send(bench.request(stream, "events=3"))?;
        let answer = client.answer()?;
        assert_eq!((answer.status, answer.whole), (200, true));
        // The end of a stream reaches the client a moment before the connection is back in its pool.
        bench.settles()?;
    }
    assert_eq!(bench.seen("connections_serving")?, 1);
    assert_eq!(bench.seen("requests_completed")?, 20);
    Ok(())
}

// req: TUN-7
// Case 78 of what users of such gateways report.
#[test]
fn a_kept_connection_that_the_provider_has_closed_costs_no_client_an_error() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    for script in [
        "events=2 close-after-response",
        "events=2 close-after-response=3",
        "events=2 drop-next-reused",
        "connection-close",
    ] {
        for stream in [true, false].repeat(8) {
            let answer = bench.chat(stream, script)?;
            assert_eq!((answer.status, answer.whole), (200, true), "{script}: {}", answer.text());
        }
    }
    assert!(
        bench.seen("connections_dropped_on_reuse")? > 0,
        "no connection was found dead: nothing was tested"
    );
    // Each request ran once: the retry was of a request that no answer byte had come for.
    assert_eq!(bench.seen("requests_completed")?, 64);
    bench.settles()
}

// req: TUN-6
#[test]
fn the_end_of_a_providers_connection_is_none_of_the_clients_business() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let mut client = bench.client()?;
    for script in ["connection-close", "events=3 close-delimited", "events=3 http10", "events=3 trailers"] {
        // What only a close ends, stays so for the client where it is no stream: its end proves nothing.
        let framed = !script.contains("close-delimited") && !script.contains("http10");
        for stream in [true, false].into_iter().filter(|stream| *stream || framed) {
            client.send(bench.request(stream, script))?;
            let answer = client.answer()?;
            assert_eq!((answer.status, answer.whole), (200, true), "{script}");
            assert_eq!(answer.header("connection"), None, "{script}: {}", answer.head);
        }
    }
    assert_eq!(bench.metric("iop_edge_client_connections")?, 1.0, "it was one connection all the time");
    Ok(())
}

#[test]
fn tokens_come_one_by_one_and_not_at_the_end() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let started = std::time::Instant::now();
    let mut client = bench.begin(true, "events=60 gap=10ms")?;
    let head = client.read_head()?;
    client.wait_for("\n\n")?;
    let first = started.elapsed();
    let answer = client.body_of(head)?;
    let whole = started.elapsed();
    assert!(answer.is_done());
    assert!(first * 2 < whole, "the first event came after {first:?} of {whole:?}");
    Ok(())
}

#[test]
fn models_are_listed_by_the_names_that_clients_may_use() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let site = site()?;
    let yaml = crate::support::yaml().with(ProviderYaml {
        models: vec![MODEL.to_owned(), "org/other:8b".to_owned()],
        ..crate::support::provider_at("http://127.0.0.1:9/v1")
    });
    let edge = site.edge(&yaml)?;
    let list = http::get(&edge.http, "/v1/models", Some(site.token()))?;
    let ids: Vec<_> =
        list.json()?["data"].as_array().into_iter().flatten().map(|m| m["id"].clone()).collect();
    assert_eq!((list.status, ids), (200, vec![MODEL.into(), "org/other:8b".into()]));
    let one = http::get(&edge.http, "/v1/models/org/other:8b", Some(site.token()))?;
    assert_eq!((one.status, one.json()?["id"].as_str()), (200, Some("org/other:8b")));
    eventually(SOON, "the listing took no slot", || {
        Ok(crate::support::metric(&edge, "iop_edge_leases")? == 0.0)
    })
}
