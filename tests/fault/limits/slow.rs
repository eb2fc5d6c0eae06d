//! Clients that send too slowly, or too much at once.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::{Duration, Instant},
};

use iop_tests::{
    EdgeYaml,
    bench::{Bench, SOON, eventually},
    http::Raw,
};

use super::place::{Quiet, clients, raise_own_descriptors};

/// The head that the slow ones never finish.
const HEAD: &[u8] =
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: edge\r\nx-slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn bench(limits: &str) -> anyhow::Result<Bench> {
    Bench::with(&[], |provider| provider, |edge| EdgeYaml { limits: limits.to_owned(), ..edge })
}

#[test]
fn heads_that_drip_are_refused_at_their_deadline_and_500_of_them_hold_up_nobody() -> anyhow::Result<()> {
    const SLOW: usize = 500;
    const DEADLINE: Duration = Duration::from_secs(5);
    raise_own_descriptors()?;
    let bench = bench("head_timeout_ms: 5000")?;
    let mut slow = (0..SLOW).map(|_| Quiet::connect(&bench.edge.http)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut mute = Quiet::connect(&bench.edge.http)?;
    let all_in = Instant::now();
    let over = AtomicBool::new(false);
    let (mut served, mut longest) = (0, Duration::ZERO);
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let dripping = scope.spawn(|| {
            for byte in HEAD {
                slow.iter_mut().for_each(|slow| {
                    if !slow.look() {
                        let _taken = slow.send(&[*byte]);
                    }
                });
                mute.look();
                if slow.iter().all(|slow| slow.closed.is_some()) && mute.closed.is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(250));
            }
            over.store(true, SeqCst);
        });
        while !over.load(SeqCst) && all_in.elapsed() < DEADLINE * 4 / 5 {
            let started = Instant::now();
            let answer = bench.chat(true, "events=3")?;
            longest = longest.max(started.elapsed());
            assert!(answer.is_done() && answer.whole, "{}", answer.text());
            served += 1;
        }
        dripping.join().expect("the dripping thread ends by itself");
        Ok(())
    })?;
    assert!(served >= 10, "{served} requests in {DEADLINE:?}");
    assert!(longest < DEADLINE / 3, "one of them took {longest:?}");
    for slow in &slow {
        assert!(slow.text().starts_with("HTTP/1.1 408 "), "{}", slow.text());
        let lived = slow.lived().unwrap_or_default();
        // The wheel of the timers is some milliseconds coarse; one drip is 250 ms.
        assert!(lived > DEADLINE - Duration::from_millis(100) && lived < DEADLINE + SOON, "{lived:?}");
    }
    assert!(mute.lived().is_some_and(|lived| lived < DEADLINE + SOON) && mute.said.is_empty(), "no word");
    let refused = "iop_edge_requests_total{outcome=\"request_timeout\",route=\"none\"}";
    assert_eq!(bench.metric(refused)?, SLOW as f64);
    eventually(SOON, "they are gone", || Ok(clients(&bench.edge)? == 0))?;
    bench.settles()
}

#[test]
fn the_time_for_a_later_head_runs_from_its_first_byte() -> anyhow::Result<()> {
    let bench = bench("head_timeout_ms: 1500, keepalive_idle_ms: 60000")?;
    let mut client = bench.client()?;
    client.send(bench.request(false, ""))?;
    assert_eq!(client.answer()?.status, 200);
    // Longer than a head may take: an idle connection has the other limit.
    std::thread::sleep(Duration::from_millis(2500));
    let began = Instant::now();
    client.send("GET /v1/mod")?;
    assert_eq!(client.answer()?.status, 408);
    assert!(began.elapsed() > Duration::from_millis(1400), "{:?}", began.elapsed());
    assert_eq!(client.fill()?, 0, "closed");
    Ok(())
}

/// Sends `piece` again and again until something is answered; the answer's status.
fn drip(client: &mut Raw, piece: &[u8], pause: Duration, most: usize) -> anyhow::Result<u16> {
    client.stream.set_read_timeout(Some(pause))?;
    for _ in 0..most {
        // A refused client may still be writing.
        let _gone = client.send(piece);
        match client.fill() {
            Ok(0) => break,
            Ok(_) => return Ok(client.answer()?.status),
            Err(_) => {}
        }
    }
    anyhow::bail!("no answer to {most} pieces: {:?}", String::from_utf8_lossy(client.buffered()))
}

fn begin_body(bench: &Bench, framing: &str) -> anyhow::Result<Raw> {
    let mut client = bench.client()?;
    client.send(format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: edge\r\nauthorization: Bearer {}\r\n{framing}\r\n\r\n",
        bench.site.token()
    ))?;
    Ok(client)
}

#[test]
fn a_body_that_drips_is_refused_and_one_at_the_least_rate_is_taken() -> anyhow::Result<()> {
    const WINDOW: Duration = Duration::from_secs(2);
    let bench = bench("body_timeout_ms: 2000, body_min_rate: 100")?;
    let pause = Duration::from_millis(100);
    for (framing, piece) in [
        ("content-length: 100000", &b"x"[..]),
        ("transfer-encoding: chunked", b"1\r\nx\r\n"),
        ("content-length: 100000\r\nexpect: 100-continue", b""),
    ] {
        let mut client = begin_body(&bench, framing)?;
        let began = Instant::now();
        let status = if framing.contains("expect") {
            // It is told to go on and says nothing.
            client.wait_for("HTTP/1.1 100 Continue\r\n\r\n")?;
            client.answer()?.status
        } else {
            drip(&mut client, piece, pause, 200)?
        };
        let took = began.elapsed();
        assert_eq!(status, 408, "{framing}");
        assert!(took > WINDOW * 9 / 10 && took < WINDOW + SOON, "{framing}: {took:?}");
        client.stream.set_read_timeout(Some(SOON))?;
        while client.fill()? > 0 {}
    }
    let refused = "iop_edge_requests_total{outcome=\"request_timeout\",route=\"chat_completions\"}";
    assert_eq!(bench.metric(refused)?, 3.0);
    assert_eq!(bench.seen("requests_started")?, 0, "no slot was taken for them");

    // Slow, but at more than the least rate for longer than the window: 100 ms bring 40 bytes.
    let request = bench.request(false, &format!("events=3;{}", " ".repeat(2000)));
    let head = request.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or_default() + 4;
    let mut client = bench.client()?;
    client.send(&request[..head])?;
    let began = Instant::now();
    for piece in request[head..].chunks(40) {
        client.send(piece)?;
        std::thread::sleep(pause);
    }
    assert!(began.elapsed() > WINDOW * 2, "{:?}", began.elapsed());
    assert_eq!(client.answer()?.status, 200);
    bench.settles()
}

#[test]
fn requests_sent_ahead_are_answered_in_order_and_too_many_of_them_end_the_run() -> anyhow::Result<()> {
    let bench = Bench::one_slot()?;
    let mut client = bench.client()?;
    let models =
        format!("GET /v1/models HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {}\r\n\r\n", bench.site.token());
    let mut ahead = bench.request(true, "events=20 gap=10ms");
    (0..100).for_each(|_| ahead.extend_from_slice(models.as_bytes()));
    client.send(&ahead)?;
    let first = client.answer()?;
    assert!(first.is_done() && first.whole, "{}", first.text());
    for _ in 0..100 {
        assert!(client.answer()?.text().contains("\"m1\""));
    }

    client.send(bench.request(true, "events=100000 gap=10ms"))?;
    client.wait_for("data:")?;
    let gone = bench.outcomes("client_gone")?;
    // More than is kept for it: it cannot be waiting for this answer.
    let _closed_on_the_way = client.send(models.repeat(2 * 65536 / models.len()));
    eventually(SOON, "its run has ended", || Ok(bench.outcomes("client_gone")? == gone + 1.0))?;
    bench.settles()?;
    assert_eq!(bench.chat(false, "")?.status, 200, "the slot is free");
    Ok(())
}
