//! Streams that are silent for long, with something in front of the Edge that takes silence for death (cases 27 to 29 of what users
//! of such gateways report).

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    time::Duration,
};

use iop_tests::{EdgeYaml, ProviderYaml, http::Raw};

use crate::support::Bench;

/// Silence that the thing in front of the Edge puts up with.
const CUT_AFTER: Duration = Duration::from_secs(4);

fn bench(tunnel: bool) -> anyhow::Result<Bench> {
    let openai = format!("  keepalive: {{ comment_ms: 250, event_ms: 60000, tunnel: {tunnel} }}\n");
    Bench::with(
        &[],
        |provider| ProviderYaml { capacity: 1, ..provider },
        |edge| EdgeYaml { openai, pool: "queue_timeout_ms: 60000".to_owned(), ..edge },
    )
}

/// Passes one connection on to `target`, and cuts it when the answer is silent for [`CUT_AFTER`].
fn impatient_proxy(target: &str) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (address, target) = (listener.local_addr()?.to_string(), target.to_owned());
    std::thread::spawn(move || -> std::io::Result<()> {
        let (mut client, _) = listener.accept()?;
        let mut server = TcpStream::connect(target)?;
        let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        server.set_read_timeout(Some(CUT_AFTER))?;
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = server.read(&mut buffer) {
            client.write_all(buffer.get(..count).unwrap_or_default())?;
        }
        server.shutdown(Shutdown::Both)?;
        client.shutdown(Shutdown::Both)
    });
    Ok(address)
}

#[test]
fn a_silent_stream_survives_what_cuts_silent_connections_and_only_with_keep_alive() -> anyhow::Result<()> {
    let script = format!("prefill={} events=3", 2 * CUT_AFTER.as_millis());
    for tunnel in [false, true] {
        let bench = bench(tunnel)?;
        let mut client = Raw::connect(&impatient_proxy(&bench.edge.http)?)?;
        client.send(bench.request(true, &script))?;
        let answer = client.answer();
        if !tunnel {
            // Nothing had come, as there was no content.
            assert!(answer.is_err(), "{}", answer?.text());
            bench.settles()?;
            continue;
        }
        let answer = answer?;
        let text = answer.text();
        assert_eq!((answer.status, answer.is_done()), (200, true), "{text}");
        assert!(text.contains(": ka\n"), "{text}");
        // Between events alone: what is left without them is what the provider sent.
        let events: Vec<_> = text.replace(": ka\n", "").split("\n\n").map(str::to_owned).collect();
        for event in events.iter().filter(|event| !event.is_empty()) {
            assert!(event.starts_with("data: ") && !event.contains('\n'), "{event:?}");
        }
        bench.settles()?;
    }
    Ok(())
}

#[test]
fn what_waits_for_its_slot_hears_something_and_is_told_a_late_failure_in_its_stream() -> anyhow::Result<()> {
    let bench = bench(true)?;
    let busy = || bench.begin(true, "prefill=3s events=2");
    let mut first = busy()?;
    first.wait_for(": ka\n")?;
    // In the queue, and begun.
    let mut waits = bench.begin(true, "events=3")?;
    let head = waits.read_head()?;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
    // Each in a chunk of its own.
    waits.wait_for(": ka\n\r\n5\r\n: ka\n")?;
    assert!(!String::from_utf8_lossy(waits.buffered()).contains("data:"));
    // One that is not streamed has nothing to hear, and gets its own status.
    let mut whole = bench.begin(false, "status=429 error-body=vllm retry-after=7")?;
    let answer = waits.body_of(head)?;
    assert!(answer.is_done(), "{}", answer.text());
    assert_eq!(whole.answer()?.status, 429);
    assert!(first.answer()?.is_done());

    for (script, kind) in [
        ("status=429 error-body=vllm", "rate_limit_error"),
        ("status=400 error-body=vllm", "invalid_request_error"),
        ("status=500 error-body=text", "server_error"),
    ] {
        let mut first = busy()?;
        // It has the slot: two shards may take what two clients send in either order.
        first.wait_for(": ka\n")?;
        let mut late = bench.begin(true, script)?;
        late.wait_for(": ka\n")?;
        let answer = late.answer()?;
        let errors = answer.error_events();
        assert_eq!((answer.status, answer.whole, errors.len()), (200, false, 1), "{}", answer.text());
        assert_eq!(errors[0]["type"], kind, "{}", answer.text());
        assert!(!answer.is_done(), "{}", answer.text());
    }
    // A stream that does not have to wait is answered as without keep-alive.
    let refused = bench.chat(true, "status=429 error-body=vllm")?;
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(bench.chat(true, "events=2")?.is_done());
    bench.settles()
}
