//! Clients that speak HTTP/2 without TLS, by prior knowledge: the same answers as over HTTP/1.1, many at a time.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};
use iop_tests::{EdgeYaml, ProviderYaml, http, http2::Client};

use crate::support::{Bench, MODEL, SOON, eventually};

const INTERNAL_ERROR: u32 = 2;

/// Runs curl with prior knowledge, a token and what it posts, and wants it to have spoken HTTP/2.
fn curl(bench: &Bench, path: &str, body: Option<&[u8]>, args: &[&str]) -> anyhow::Result<(u32, String)> {
    let (code, output) = curl_for(bench, path, body, args)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "curl: {text}{}", String::from_utf8_lossy(&output.stderr));
    Ok((code, text))
}

/// As [`curl`], whatever curl thinks of the answer.
fn curl_for(bench: &Bench, path: &str, body: Option<&[u8]>, args: &[&str]) -> anyhow::Result<(u32, Output)> {
    let url = format!("http://{}{path}", bench.edge.http);
    let bearer = format!("authorization: Bearer {}", bench.site.token());
    let mut command = Command::new("curl");
    command.args(["-sSN", "--http2-prior-knowledge", "-m", "60", "-H", &bearer, "-w"]);
    command.args(["\n%{http_version} %{http_code}", &url]).args(args);
    if body.is_some() {
        command.args(["-H", "content-type: application/json", "--data-binary", "@-"]);
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("its input")?;
    // A client that is refused early does not read all of it.
    let _taken = input.write_all(body.unwrap_or_default());
    drop(input);
    let mut output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (text, end) = text.rsplit_once('\n').context("what curl says of the answer")?;
    let (version, code) = end.split_once(' ').context("its version")?;
    ensure!(version == "2", "HTTP/{version}: {text}");
    let code = code.parse()?;
    output.stdout = text.as_bytes().to_vec();
    Ok((code, output))
}

fn chat(stream: bool, script: &str) -> Vec<u8> {
    http::chat_body(MODEL, stream, script).to_string().into_bytes()
}

#[test]
fn curl_gets_a_stream_to_its_end_and_every_other_answer() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let route = "/v1/chat/completions";
    let (code, text) = curl(&bench, route, Some(&chat(true, "events=20 gap=2ms")), &[])?;
    assert_eq!(code, 200);
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let (code, text) = curl(&bench, route, Some(&chat(false, "")), &[])?;
    assert!(code == 200 && text.contains("\"chat.completion\""), "{code} {text}");
    let (code, text) = curl(&bench, "/v1/models", None, &["-D", "-"])?;
    assert!(code == 200 && text.contains("x-request-id: ") && text.contains(MODEL), "{code} {text}");
    // Statuses of each kind, with their JSON.
    for (path, body, args, expected, word) in [
        ("/v1/nowhere", None, &[][..], 404, "error"),
        (route, None, &[], 405, "error"),
        (route, Some(&b"{"[..]), &[], 400, "error"),
        (route, Some(br#"{"model":"no","messages":[]}"#), &[], 404, "model_not_found"),
        (route, None, &["-X", "POST", "-H", "expect: miracles"], 417, "error"),
    ] {
        let (code, text) = curl(&bench, path, body, args)?;
        assert!(code == expected && text.contains(word), "{path}: {code} {text}");
    }
    let wrong = ["-H", "authorization: Bearer wrong"];
    assert_eq!(curl(&bench, "/v1/models", None, &wrong)?.0, 400, "two tokens");
    bench.settles()?;
    // One line for each request, as over HTTP/1.1.
    assert_eq!(bench.outcomes("ok")?, 2.0);
    assert_eq!(bench.metric("iop_edge_http2_connections")?, 0.0);
    Ok(())
}

#[test]
fn a_large_body_gets_through_and_one_over_the_limit_is_refused() -> anyhow::Result<()> {
    let limits = "body_bytes: 33554432".to_owned();
    let bench = Bench::with(&[], |p| p, |edge| EdgeYaml { limits, ..edge })?;
    let route = "/v1/chat/completions";
    let mut body = http::chat_body(MODEL, false, "");
    let filler = 33_554_432 - body.to_string().len() - "\"x\":\"\",".len();
    body["x"] = "y".repeat(filler).into();
    let body = body.to_string().into_bytes();
    assert_eq!(body.len(), 33_554_432);
    // It asks with `Expect: 100-continue`, as curl does for a body of this size.
    let (code, text) = curl(&bench, route, Some(&body), &["-H", "expect: 100-continue"])?;
    assert_eq!(code, 200, "{text}");
    let larger = [&body[..], b" "].concat();
    let (code, output) = curl_for(&bench, route, Some(&larger), &[])?;
    assert!(code == 413, "{code} {}", String::from_utf8_lossy(&output.stderr));
    bench.settles()
}

// req: TUN-4, POL-11
#[test]
fn one_of_a_hundred_streams_is_cancelled_and_its_slot_is_free_while_the_others_go_on() -> anyhow::Result<()> {
    let bench = Bench::with(&[], |p| ProviderYaml { capacity: 100, ..p }, |edge| edge)?;
    let mut client = Client::connect(&bench.edge.http)?;
    let body = chat(true, "events=200 gap=20ms");
    let streams = (0..100)
        .map(|_| client.post("/v1/chat/completions", bench.site.token(), &body))
        .collect::<anyhow::Result<Vec<_>>>()?;
    client.until("all have begun", |client| streams.iter().all(|it| !client.stream(*it).body.is_empty()))?;
    assert_eq!(bench.metric("iop_edge_leases")?, 100.0);
    assert_eq!(bench.metric("iop_edge_http2_connections")?, 1.0);
    let (gone, others) = streams.split_first().context("a hundred")?;
    client.cancel(*gone)?;
    eventually(SOON, "its slot is free", || {
        Ok(bench.seen("aborts_seen")? == 1 && bench.metric("iop_edge_leases")? == 99.0)
    })?;
    // The slot takes another request, on the same connection.
    let next = client.post("/v1/chat/completions", bench.site.token(), &chat(true, "events=3"))?;
    client.until("all are over", |client| {
        others.iter().chain([&next]).all(|stream| client.stream(*stream).is_over())
    })?;
    for stream in others.iter().chain([&next]) {
        let stream = client.stream(*stream);
        assert!(stream.is_ok() && stream.ended && stream.reset.is_none(), "{stream:?}");
        assert!(stream.body.ends_with(b"data: [DONE]\n\n"));
    }
    assert!(!client.stream(*gone).ended);
    bench.settles()?;
    assert_eq!((bench.outcomes("ok")?, bench.outcomes("client_gone")?), (100.0, 1.0));
    assert_eq!(bench.seen("aborts_seen")?, 1);
    Ok(())
}

#[test]
fn when_the_connection_goes_all_of_its_runs_stop() -> anyhow::Result<()> {
    let bench = Bench::with(&[], |p| ProviderYaml { capacity: 10, ..p }, |edge| edge)?;
    let mut client = Client::connect(&bench.edge.http)?;
    for _ in 0..10 {
        client.post("/v1/chat/completions", bench.site.token(), &chat(true, "prefill=60s"))?;
    }
    eventually(SOON, "ten run", || Ok(bench.seen("requests_open")? == 10))?;
    drop(client);
    eventually(SOON, "all are stopped", || Ok(bench.seen("aborts_seen")? == 10))?;
    bench.settles()?;
    assert_eq!(bench.outcomes("client_gone")?, 10.0);
    Ok(())
}

// req: API-1
#[test]
fn a_stream_that_failed_gets_its_error_event_and_a_reset_but_no_end() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let mut client = Client::connect(&bench.edge.http)?;
    let cut =
        client.post("/v1/chat/completions", bench.site.token(), &chat(true, "events=20 rst-after=3"))?;
    let whole = client.post("/v1/chat/completions", bench.site.token(), &chat(true, "events=20"))?;
    client.until("both are over", |client| client.stream(cut).is_over() && client.stream(whole).is_over())?;
    let (cut, whole) = (client.stream(cut), client.stream(whole));
    let text = String::from_utf8_lossy(&cut.body);
    assert!(cut.is_ok() && !cut.ended && cut.reset == Some(INTERNAL_ERROR), "{cut:?}");
    assert!(text.contains("data: {\"error\":") && !text.contains("[DONE]"), "{text}");
    assert!(whole.ended && whole.body.ends_with(b"data: [DONE]\n\n"));
    bench.settles()
}

#[test]
fn an_edge_that_stops_says_goaway_and_finishes_what_runs() -> anyhow::Result<()> {
    let mut bench = Bench::start()?;
    let mut client = Client::connect(&bench.edge.http)?;
    let streaming =
        client.post("/v1/chat/completions", bench.site.token(), &chat(true, "events=150 gap=10ms"))?;
    client.until("it streams", |client| !client.stream(streaming).body.is_empty())?;
    bench.edge.process.signal(libc::SIGTERM);
    client.until("goaway", |client| client.goaway == Some(0))?;
    assert!(!client.stream(streaming).is_over());
    client.until("its end", |client| client.stream(streaming).is_over())?;
    let stream = client.stream(streaming);
    assert!(stream.ended && stream.body.ends_with(b"data: [DONE]\n\n"));
    while client.step()? {}
    assert_eq!(bench.edge.process.wait_exit(Duration::from_secs(5))?, 0);
    Ok(())
}

#[test]
fn what_outlasts_the_grace_is_reset_behind_its_error() -> anyhow::Result<()> {
    let limits = "drain_grace_ms: 700".to_owned();
    let mut bench = Bench::with(&[], |p| p, |edge| EdgeYaml { limits, ..edge })?;
    let mut client = Client::connect(&bench.edge.http)?;
    let streaming =
        client.post("/v1/chat/completions", bench.site.token(), &chat(true, "events=100000 gap=5ms"))?;
    client.until("it streams", |client| !client.stream(streaming).body.is_empty())?;
    bench.edge.process.signal(libc::SIGTERM);
    client.until("its end", |client| client.stream(streaming).is_over())?;
    let stream = client.stream(streaming);
    let text = String::from_utf8_lossy(&stream.body);
    assert!(stream.reset == Some(INTERNAL_ERROR) && !stream.ended, "{:?}", stream.reset);
    assert!(text.contains("cancelled") && !text.contains("[DONE]"), "{text}");
    assert_eq!(bench.edge.process.wait_exit(Duration::from_secs(6))?, 0);
    Ok(())
}
