//! The scripted provider seen from a raw socket: every directive does what `docs/performance.md` says.

use std::time::{Duration, Instant};

use crate::harness::{
    Client, End, PATIENCE, Response, ask, chat_request, config, get, post, start, stats_when,
};
use iop_perf::provider::responses;

/// Long enough that a silence is a silence, short enough to wait for.
const SILENCE: Duration = Duration::from_millis(300);

/// The bytes of one scripted chat reply, and how the connection ended.
fn reply(script: &str, stream: bool) -> (String, End) {
    let mut client = Client::connect(start(config("")));
    client.chat(script, stream);
    let (bytes, end) = client.read_all(SILENCE);
    (String::from_utf8_lossy(&bytes).into_owned(), end)
}

fn events(text: &str) -> usize {
    text.matches(r#""delta":{"content""#).count()
}

#[test]
fn stream_has_all_its_chunks_and_the_connection_is_kept() {
    let address = start(config("events=5"));
    let mut client = Client::connect(address);
    for round in 1..=3 {
        client.chat("", true);
        let response = client.read_response();
        assert_eq!(response.status, 200);
        assert!(response.head.contains("x-provider: iop-perf\r\n"), "{}", response.head);
        assert!(response.head.contains(&format!("x-request-id: perf-{round:010}\r\n")), "{}", response.head);
        assert!(response.head.contains("content-type: text/event-stream"), "{}", response.head);
        let text = response.text();
        assert_eq!(events(text), 5);
        assert!(text.contains("你好🌍é"), "{text}");
        assert!(text.contains(r#""model":"m""#) && text.contains(r#""choices":[],"usage""#), "{text}");
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    }
    let stats = stats_when(address, |stats| stats["requests_completed"] == 3);
    assert_eq!(stats["connections_serving"], 1);
    assert_eq!(stats["recent"][1]["first_on_connection"], false);
    assert_eq!(stats["events_written"], 15);
}

#[test]
fn whole_reply_is_one_json_object_of_the_model_asked_for() {
    let mut client = Client::connect(start(config("")));
    client.chat("events=4", false);
    let response = client.read_response();
    let json = response.json();
    assert!(response.head.contains("content-length: "), "{}", response.head);
    assert_eq!((&json["model"], &json["usage"]["completion_tokens"]), (&"m".into(), &4.into()));
}

#[test]
fn script_of_the_body_wins_over_the_header() {
    let address = start(config("events=9"));
    let body = r#"{"model":"m","stream":true,"user":"perf:events=2;usage=never"}"#;
    let response = ask(address, &chat_request("events=7 no-done", body));
    assert_eq!(events(response.text()), 2);
    assert!(!response.text().contains("[DONE]") && !response.text().contains("\"usage\""));
    let plain_user = r#"{"model":"m","stream":true,"user":"somebody"}"#;
    assert_eq!(events(ask(address, &chat_request("", plain_user)).text()), 9);
}

#[test]
fn a_mistake_in_a_script_is_a_loud_400() {
    let address = start(config(""));
    let response = ask(address, &chat_request("evnets=3", r#"{"model":"m"}"#));
    assert_eq!((response.status, &response.json()["error"]["code"]), (400, &"perf_script".into()));
    assert_eq!(get(address, "/stats").json()["bad_requests"], 1);
}

#[test]
fn own_routes_answer_and_do_not_count_as_requests() {
    let address = start(config(""));
    let models = get(address, "/v1/models").json();
    assert_eq!((&models["object"], &models["data"][1]["id"]), (&"list".into(), &"b".into()));
    assert_eq!(get(address, "/health").json()["status"], "ok");
    assert_eq!(get(address, "/nothing").status, 404);
    assert_eq!(post(address, "/models", "x, y:8b").status, 200);
    assert_eq!(get(address, "/v1/models").json()["data"][1]["id"], "y:8b");
    let stats = get(address, "/stats").json();
    assert_eq!((&stats["models_requests"], &stats["health_requests"]), (&2.into(), &1.into()));
    assert_eq!(stats["requests_started"], 0);
    assert_eq!(post(address, "/stats/reset", "").status, 200);
    assert_eq!(get(address, "/stats").json()["models_requests"], 0);
}

#[test]
fn base_scripts_of_routes_can_be_changed_while_it_runs() {
    let address = start(config("events=3"));
    let chat = || ask(address, &chat_request("", r#"{"model":"m","stream":true}"#));
    assert_eq!(post(address, "/script/health", "status=503").status, 200);
    assert_eq!(get(address, "/health").status, 503);
    assert_eq!(post(address, "/script/models", "status=500 error-body=text").status, 200);
    assert_eq!(get(address, "/v1/models").text(), "scripted error\n");
    assert_eq!(post(address, "/script/chat", "no-done").status, 200);
    assert_eq!(events(chat().text()), 3);
    assert!(!chat().text().contains("[DONE]"));
    assert_eq!(post(address, "/script/chat", "").status, 200);
    assert!(chat().text().contains("[DONE]"));
    assert_eq!(post(address, "/script/other", "").status, 400);
    assert_eq!(post(address, "/script/chat", "nonsense").status, 400);
}

#[test]
fn stats_show_the_last_request_as_it_arrived() {
    let address = start(config(""));
    let body = r#"{"model":"org/m:8b", "stream":false, "x":1e2}"#;
    ask(address, &chat_request("events=1", body));
    let last = &get(address, "/stats").json()["last"];
    assert_eq!((&last["method"], &last["path"]), (&"POST".into(), &"/v1/chat/completions".into()));
    assert_eq!(last["headers"][1], serde_json::json!(["x-perf-script", "events=1"]));
    assert_eq!(last["body"], body);
    assert_eq!(last["body_sha256"], responses::sha256_hex(body.as_bytes()));
}

#[test]
fn keys_and_models_are_checked_when_asked_to() {
    let address = start(iop_perf::provider::Config {
        api_key: Some("secret".to_owned()),
        strict_models: true,
        ..config("events=1")
    });
    assert_eq!(ask(address, &chat_request("", r#"{"model":"a"}"#)).status, 401);
    let with_key = |model: &str| {
        let body = format!(r#"{{"model":"{model}"}}"#);
        let fields = format!("authorization: Bearer secret\r\ncontent-length: {}", body.len());
        let request = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{fields}\r\n\r\n{body}");
        ask(address, request.as_bytes())
    };
    assert_eq!(with_key("a").status, 200);
    let unknown = with_key("c");
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (404, &"model_not_found".into()));
    assert_eq!(get(address, "/stats").json()["unauthorized"], 1);
}

#[test]
fn prefill_and_gap_pace_the_stream() {
    let address = start(config(""));
    let mut client = Client::connect(address);
    let started = Instant::now();
    client.chat("prefill=150 events=6 gap=20ms", true);
    let text = client.read_response();
    let elapsed = started.elapsed();
    assert_eq!(events(text.text()), 6);
    assert!(elapsed >= Duration::from_millis(250), "{elapsed:?}");
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
}

#[test]
fn late_head_waits_for_the_prefill_and_pings_fill_a_silence() {
    let (text, _) = {
        let mut client = Client::connect(start(config("")));
        client.chat("late-head prefill=5s", true);
        client.read_all(SILENCE)
    };
    assert_eq!(text, b"");
    let (text, _) = reply("prefill=250 ping=60 events=1", true);
    assert!(text.matches(": ping\n\n").count() >= 2, "{text}");
    assert!(text.contains("[DONE]"), "{text}");
}

#[test]
fn every_split_and_framing_carries_the_same_stream() {
    let address = start(config(""));
    let stream = |script: &str| {
        let mut client = Client::connect(address);
        client.chat(&format!("events=3 {script}"), true);
        let response = client.read_response();
        // The number of the request and the second of its creation differ, and nothing else may.
        let parts = response.text().split("chatcmpl-");
        parts.map(|part| part.find("\"model\"").map_or(part, |at| &part[at..]).to_owned()).collect::<String>()
    };
    let whole = stream("");
    for script in [
        "split=byte",
        "split=7",
        "split-at=11",
        "chunk=3",
        "join=2",
        "content-length",
        "trailers",
        "split=50 split-gap=200us",
    ] {
        assert_eq!(stream(script), whole, "{script}");
    }
    for script in ["close-delimited", "http10"] {
        let (text, end) = reply(&format!("events=3 {script}"), true);
        assert_eq!(end, End::Closed, "{script}");
        assert!(text.contains("connection: close\r\n") && !text.contains("transfer-encoding"), "{text}");
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        assert_eq!(text.starts_with("HTTP/1.0 200"), script == "http10");
    }
}

#[test]
fn errors_have_status_shape_and_retry_after() {
    for stream in [true, false] {
        let mut client = Client::connect(start(config("")));
        client.chat("status=429 retry-after=7", stream);
        let response = client.read_response();
        assert_eq!(response.status, 429);
        assert!(response.head.contains("retry-after: 7\r\n"), "{}", response.head);
        assert_eq!(response.json()["error"]["type"], "rate_limit_error");
        client.chat("error-body=sglang", stream);
        let response = client.read_response();
        assert_eq!((response.status, &response.json()["object"]), (200, &"error".into()));
        client.chat("status=204", stream);
        let (bytes, end) = client.read_all(SILENCE);
        assert!(bytes.starts_with(b"HTTP/1.1 204 No Content\r\n") && bytes.ends_with(b"\r\n\r\n"));
        assert_eq!(end, End::StillOpen);
    }
}

#[test]
fn openings_break_the_response_before_it_begins() {
    assert_eq!(reply("stall-before-headers", true), (String::new(), End::StillOpen));
    assert_eq!(reply("no-reply", true), (String::new(), End::Closed));
    assert_eq!(reply("rst-before-headers", true), (String::new(), End::Reset));
    for stream in [true, false] {
        let (text, end) = reply("stall-after-headers", stream);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n"), "{text}");
        assert_eq!(end, End::StillOpen);
    }
    let (text, end) = reply("garbage", true);
    assert!(!text.starts_with("HTTP") && text.contains("not HTTP"), "{text}");
    assert_eq!(end, End::Closed);
}

#[test]
fn stream_faults_come_after_exactly_their_events() {
    const LAST: &str = "0\r\n\r\n";
    for after in [0, 2, 5] {
        let run = |name: &str| {
            let (text, end) = reply(&format!("events=5 {name}-after={after}"), true);
            assert!(text.contains("\"role\""), "{name}: {text}");
            (text, end)
        };
        for (name, expected) in [
            ("stall", End::StillOpen),
            ("rst", End::Reset),
            ("truncate", End::Closed),
            ("garbage", End::Closed),
            ("bad-chunk", End::Closed),
            ("huge-chunk", End::Closed),
        ] {
            let (text, end) = run(name);
            assert_eq!((events(&text), end), (after, expected), "{name}");
            assert!(!text.contains("[DONE]") && !text.ends_with(LAST), "{name}: {text}");
        }
        assert!(run("garbage").0.contains("not HTTP"));
        assert!(run("bad-chunk").0.contains("zz;not-hex\r\n"));
        assert!(run("huge-chunk").0.contains("fffffffffffffffff\r\n"));
        let (text, end) = run("clean-eof");
        assert_eq!((events(&text), end), (after, End::StillOpen));
        assert!(!text.contains("[DONE]") && !text.contains("\"stop\"") && text.ends_with(LAST), "{text}");
        let (text, _) = run("error");
        assert_eq!(events(&text), after);
        assert!(text.contains(r#"{"error":{"#) && text.contains("[DONE]") && text.ends_with(LAST), "{text}");
        let (text, _) = run("bad-json");
        assert_eq!(events(&text), 5);
        assert!(text.contains("\"del\n\n") && text.contains("[DONE]"), "{text}");
        let (text, _) = run("done");
        assert_eq!((events(&text), text.matches("[DONE]").count()), (5, 2));
    }
}

#[test]
fn whole_replies_are_cut_at_the_same_share() {
    for (script, expected) in
        [("rst-after=10", End::Reset), ("truncate-after=10", End::Closed), ("stall-after=10", End::StillOpen)]
    {
        let (text, end) = reply(&format!("events=20 {script}"), false);
        assert_eq!(end, expected, "{script}");
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let announced: usize =
            head.split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        assert!(body.len() < announced && !body.is_empty(), "{script}: {} of {announced}", body.len());
    }
    let mut client = Client::connect(start(config("")));
    client.chat("events=20 bad-json-after=10", false);
    assert!(serde_json::from_slice::<serde_json::Value>(&client.read_response().body).is_err());
}

#[test]
fn fault_delay_lets_the_good_bytes_arrive_first() {
    let mut client = Client::connect(start(config("")));
    let started = Instant::now();
    client.chat("events=5 rst-after=2 fault-delay=150", true);
    let (_, end) = client.read_all(PATIENCE);
    assert_eq!(end, End::Reset);
    assert!(started.elapsed() >= Duration::from_millis(150));
}

#[test]
fn echo_tells_what_arrived() {
    let address = start(config(""));
    let body = "not json \u{e9}";
    let echoed = ask(address, &chat_request("echo", body)).json();
    assert_eq!((&echoed["body"], &echoed["body_bytes"]), (&body.into(), &body.len().into()));
    assert_eq!(echoed["headers"][0], serde_json::json!(["host", "x"]));
    let request = "PUT /any/path?q=1 HTTP/1.1\r\nX-Perf-Script: echo\r\nTransfer-Encoding: chunked\r\n\r\n\
                   2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
    let echoed = ask(address, request.as_bytes()).json();
    assert_eq!((&echoed["method"], &echoed["target"]), (&"PUT".into(), &"/any/path?q=1".into()));
    assert_eq!(echoed["body_sha256"], responses::sha256_hex(b"abc"));
}

#[test]
fn raw_and_empty_bodies_have_their_exact_bytes() {
    let address = start(config(""));
    for script in ["raw-body=300k", "raw-body=300k chunked", "raw-body=300k chunked chunk=1000"] {
        let response = ask(address, &chat_request(script, r#"{"model":"m"}"#));
        assert_eq!(response.body.len(), 300 * 1024, "{script}");
        assert!(
            response.head.contains(&format!("x-body-sha256: {}\r\n", responses::sha256_hex(&response.body)))
        );
    }
    let empty = ask(address, &chat_request("empty-body", r#"{"model":"m","stream":true}"#));
    assert_eq!((empty.status, empty.body.len()), (200, 0));
}

#[test]
fn heads_can_be_early_large_or_wrong() {
    let (text, _) = reply("early-hints=3 events=1", true);
    assert_eq!(text.matches("HTTP/1.1 103 Early Hints\r\n").count(), 3, "{text}");
    assert!(text.contains("\r\n\r\nHTTP/1.1 200 OK\r\n"), "{text}");
    let response = {
        let mut client = Client::connect(start(config("")));
        client.chat("headers-bytes=100k headers-count=50 events=1", true);
        client.read_response()
    };
    assert!(response.head.len() > 100 * 1024 && response.head.contains("x-small-49: 1\r\n"));
    let (text, _) = reply("bad-head=double-cl", false);
    assert!(text.contains("content-length: 3\r\ncontent-length: 4\r\n"), "{text}");
}

#[test]
fn connections_end_as_scripted() {
    let (text, end) = reply("connection-close events=1", true);
    assert!(text.contains("connection: close\r\n") && text.ends_with("0\r\n\r\n"), "{text}");
    assert_eq!(end, End::Closed);
    let (text, end) = reply("close-after-response events=1", true);
    assert!(!text.contains("connection: close") && text.ends_with("0\r\n\r\n"), "{text}");
    assert_eq!(end, End::Closed);
    let address = start(config(""));
    let mut client = Client::connect(address);
    client.chat("drop-next-reused events=1", true);
    assert_eq!(client.read_response().status, 200);
    client.chat("", true);
    assert_eq!(client.read_all(PATIENCE), (Vec::new(), End::Closed));
    assert_eq!(get(address, "/stats").json()["connections_dropped_on_reuse"], 1);
}

#[test]
fn kept_connections_are_closed_when_idle_for_too_long() {
    let address = start(iop_perf::provider::Config {
        keepalive_idle: Duration::from_millis(100),
        ..config("events=1")
    });
    let mut client = Client::connect(address);
    client.chat("", true);
    assert_eq!(client.read_response().status, 200);
    assert_eq!(client.read_all(PATIENCE), (Vec::new(), End::Closed));
}

#[test]
fn a_peer_that_leaves_is_noticed_in_every_phase() {
    for (script, head_sent) in [
        ("stall-before-headers", false),
        ("late-head prefill=60s", false),
        ("stall-after-headers", true),
        ("prefill=60s", true),
        ("prefill=60s ping=20", true),
        ("gap=60s", true),
        ("stall-after=1", true),
        ("events=1000000 bytes=10k", true),
    ] {
        let address = start(config(""));
        let mut client = Client::connect(address);
        client.chat(script, true);
        stats_when(address, |stats| stats["requests_open"] == 1);
        // Time for the head to be sent, where there is one.
        std::thread::sleep(Duration::from_millis(50));
        client.leave();
        let stats = stats_when(address, |stats| stats["requests_open"] == 0);
        assert_eq!((&stats["aborts_seen"], &stats["aborted_by_peer"]), (&1.into(), &1.into()), "{script}");
        assert_eq!(stats["recent"][0]["head_sent"], head_sent, "{script}");
    }
}

#[test]
fn a_deaf_reply_goes_on_until_a_write_fails() {
    let address = start(config(""));
    let mut client = Client::connect(address);
    client.chat("events=20 gap=5ms deaf", true);
    client.0.shutdown(std::net::Shutdown::Write).unwrap();
    let (bytes, _) = client.read_all(PATIENCE);
    assert!(String::from_utf8(bytes).unwrap().ends_with("0\r\n\r\n"));
    let mut client = Client::connect(address);
    client.chat("events=1000000 gap=5ms deaf", true);
    stats_when(address, |stats| stats["requests_open"] == 1);
    client.leave();
    let stats = stats_when(address, |stats| stats["requests_open"] == 0);
    assert_eq!((&stats["requests_completed"], &stats["aborts_seen"]), (&1.into(), &1.into()));
}

#[test]
fn an_ignored_abort_stays_open_for_its_time() {
    let address = start(config(""));
    let mut client = Client::connect(address);
    client.chat("stall-after-headers ignore-abort=400", true);
    stats_when(address, |stats| stats["requests_open"] == 1);
    client.leave();
    let seen = stats_when(address, |stats| stats["aborts_seen"] == 1);
    assert_eq!((&seen["requests_open"], &seen["aborted_by_peer"]), (&1.into(), &0.into()));
    let ended = stats_when(address, |stats| stats["requests_open"] == 0);
    assert!(ended["recent"][0]["open_ms"].as_u64().unwrap() >= 400);
}

#[test]
fn connections_without_a_request_and_cut_bodies_are_counted() {
    let address = start(config(""));
    Client::connect(address).leave();
    let mut client = Client::connect(address);
    client.send(b"POST /v1/chat/comp");
    client.leave();
    let mut client = Client::connect(address);
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 10\r\n\r\n{}");
    client.leave();
    stats_when(address, |stats| stats["connections_without_request"] == 2 && stats["bodies_cut"] == 1);
    let mut client = Client::connect(address);
    client.send(b"\x16\x03\x01\x02\x00");
    let (text, end) = client.read_all(PATIENCE);
    assert!(text.starts_with(b"HTTP/1.1 400") && end == End::Closed);
}

#[test]
fn expect_continue_is_answered_before_the_body() {
    let mut client = Client::connect(start(config("events=1")));
    let body = r#"{"model":"m"}"#;
    let fields = format!("expect: 100-continue\r\ncontent-length: {}", body.len());
    client.send(format!("POST /v1/chat/completions HTTP/1.1\r\n{fields}\r\n\r\n").as_bytes());
    let (interim, _) = client.read_all(SILENCE);
    assert_eq!(interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send(body.as_bytes());
    assert_eq!(client.read_response().status, 200);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let mut client = Client::connect(start(config("events=1")));
    let request = chat_request("", r#"{"model":"m","stream":true}"#);
    client.send(&[request.clone(), request].concat());
    let (bytes, _) = client.read_all(SILENCE);
    let first = Response::parse(&bytes).unwrap();
    assert!(first.text().contains("chatcmpl-0000000001"));
    assert!(String::from_utf8_lossy(&bytes).contains("chatcmpl-0000000002"));
}
