//! Drain: SIGTERM under load.
//!
//! The provider is the test itself, so that a stream ends when the test says so and never by a clock.

use std::{
    io::{ErrorKind, Read},
    net::TcpStream,
    time::Duration,
};

use anyhow::Context;
use iop_tests::{
    Edge, EdgeYaml, ProviderYaml,
    bench::{Bench, NODE, SOON, assert_broken_stream, assert_error, eventually, node_status, start_node},
    http::{self, Answer, Raw},
    scripted::{Call, Scripted},
};

/// Streams that run when the signal comes.
const STREAMS: usize = 50;
/// Requests that wait for a slot then.
const WAITING: usize = 5;
/// An end that was asked for twice: at once, on a machine that is busy.
const AT_ONCE: Duration = Duration::from_secs(10);

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
/// One event, with which an answer begins, and most of another one, a chunk by itself.
const EVENT: &str = "f\r\ndata: {\"n\":0}\n\n\r\nd\r\ndata: {\"n\":1}\r\n";
/// An end of its events, and of a stream.
const REST: &str = "2\r\n\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

/// As many streams as there are slots, all begun, and requests that wait for one.
struct Busy {
    bench: Bench,
    server: Scripted,
    clients: Vec<Raw>,
    calls: Vec<Call>,
    waiting: Vec<Raw>,
}

impl Busy {
    fn start() -> anyhow::Result<Self> {
        let mut server = Scripted::bind()?;
        let base_url = server.base_url()?;
        let bench = Bench::with(
            &[],
            |provider| ProviderYaml { base_url, capacity: STREAMS as u32, ..provider },
            // Time enough for a machine that is slow: nothing here waits for it to pass.
            |edge| EdgeYaml {
                limits: "drain_grace_ms: 120000".to_owned(),
                pool: "queue_timeout_ms: 0".to_owned(),
                ..edge
            },
        )?;
        let (mut clients, mut calls) = (Vec::new(), Vec::new());
        for _ in 0..STREAMS {
            let mut client = bench.begin(true, "")?;
            let mut call = server.next_call()?;
            call.write(HEAD.as_bytes())?;
            call.write(EVENT.as_bytes())?;
            client.wait_for("\"n\":1")?;
            clients.push(client);
            calls.push(call);
        }
        let waiting = (0..WAITING).map(|_| bench.begin(true, "")).collect::<anyhow::Result<_>>()?;
        eventually(SOON, "the others wait", || Ok(bench.metric("iop_edge_queued")? == WAITING as f64))?;
        Ok(Self { bench, server, clients, calls, waiting })
    }

    /// Lets a stream come to its end, and gives what its client got.
    fn finish(&mut self, index: usize) -> anyhow::Result<Answer> {
        let mut call = self.calls.remove(index);
        call.write(REST.as_bytes())?;
        self.server.keep(call);
        let client = &mut self.clients[index];
        let head = client.read_head()?;
        client.body_of(head)
    }

    /// Lets every stream come to its end. None is lost.
    fn finish_all(&mut self) -> anyhow::Result<()> {
        while !self.calls.is_empty() {
            assert_whole(&self.finish(0)?);
            self.clients.remove(0);
        }
        Ok(())
    }

    /// Answers those who waited, as their turn comes.
    fn serve_waiting(&mut self) -> anyhow::Result<()> {
        for _ in &self.waiting {
            let mut call = self.server.next_call()?;
            call.write([HEAD, EVENT, REST].concat().as_bytes())?;
            self.server.keep(call);
        }
        for mut client in std::mem::take(&mut self.waiting) {
            assert_whole(&client.answer()?);
        }
        Ok(())
    }
}

#[track_caller]
fn assert_whole(answer: &Answer) {
    assert_eq!(answer.status, 200, "{}\n{}", answer.head, answer.text());
    assert_eq!(answer.text(), "data: {\"n\":0}\n\ndata: {\"n\":1}\n\ndata: [DONE]\n\n");
    assert!(answer.whole, "{}", answer.head);
}

/// Checks the answer to a request that came during a drain, and that nothing more comes on its connection.
#[track_caller]
fn assert_refused(client: &mut Raw) {
    let answer = client.answer().unwrap_or_else(|error| panic!("no answer: {error:#}"));
    assert_error(&answer, 503, Some("overloaded"));
    assert_eq!(answer.header("retry-after"), Some("5"), "{}", answer.head);
    assert_eq!(answer.header("connection"), Some("close"), "{}", answer.head);
    assert_eq!(client.fill().unwrap_or(1), 0, "the connection ends");
}

fn models(bench: &Bench) -> String {
    format!("GET /v1/models HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {}\r\n\r\n", bench.site.token())
}

/// Sends SIGTERM to an Edge and waits until it takes no connection any more.
fn drain(edge: &mut Edge) -> anyhow::Result<()> {
    edge.process.signal(libc::SIGTERM);
    edge.process.wait_for("told to stop")?;
    let address = edge.http.clone();
    eventually(SOON, "new connections are refused", || Ok(TcpStream::connect(&address).is_err()))
}

#[test]
fn an_edge_that_drains_under_50_streams_finishes_them_and_refuses_what_is_new_with_a_time_to_retry()
-> anyhow::Result<()> {
    let mut busy = Busy::start()?;
    // Connections that are kept: after an answer, without any, and one that is in the middle of a head.
    let mut kept: Vec<_> = (0..4).map(|_| busy.bench.client()).collect::<anyhow::Result<_>>()?;
    for client in &mut kept[..3] {
        client.send(models(&busy.bench))?;
        assert_eq!(client.answer()?.status, 200);
    }
    let mut begun = busy.bench.client()?;
    let head = models(&busy.bench);
    let (first, rest) = head.split_at(20);
    begun.send(first)?;
    // One that has its next request on the way behind a stream.
    busy.clients[1].send(busy.bench.request(true, ""))?;

    drain(&mut busy.bench.edge)?;
    assert_eq!(http::get(&busy.bench.edge.ops, "/readyz", None)?.status, 503);
    let [one, two, three, four] = &mut kept[..] else { unreachable!("there are four") };
    one.send(models(&busy.bench))?;
    two.send(busy.bench.request(true, ""))?;
    three.send(busy.bench.request(false, ""))?;
    four.send(models(&busy.bench))?;
    begun.send(rest)?;
    for client in [one, two, three, four, &mut begun] {
        assert_refused(client);
    }
    // A stream whose head promised that its connection goes on: it does, for one more answer.
    let answer = busy.finish(0)?;
    assert_whole(&answer);
    assert_eq!(answer.header("connection"), None, "{}", answer.head);
    let mut client = busy.clients.remove(0);
    client.send(busy.bench.request(true, ""))?;
    assert_refused(&mut client);
    assert_whole(&busy.finish(0)?);
    assert_refused(&mut busy.clients.remove(0));
    assert_eq!(busy.bench.outcomes("draining")?, 4.0);

    assert!(busy.bench.edge.process.is_running()?, "it waits for the others");
    busy.finish_all()?;
    busy.serve_waiting()?;
    assert_eq!(busy.bench.edge.process.wait_exit(AT_ONCE)?, 0);
    let log = busy.bench.edge.process.text();
    assert!(!log.contains("broken off"), "{log}");
    Ok(())
}

#[test]
fn a_connection_that_the_kernel_took_before_the_drain_gets_an_answer() -> anyhow::Result<()> {
    let mut busy = Busy::start()?;
    // The process sleeps, so that connections, their requests and the signal are there together when it wakes.
    busy.bench.edge.process.signal(libc::SIGSTOP);
    let mut clients: Vec<_> = (0..64).map(|_| busy.bench.client()).collect::<anyhow::Result<_>>()?;
    for client in &mut clients {
        client.send(models(&busy.bench))?;
    }
    busy.bench.edge.process.signal(libc::SIGTERM);
    busy.bench.edge.process.signal(libc::SIGCONT);
    for mut client in clients {
        let answer = client.answer()?;
        if answer.status == 200 {
            // It was faster than the signal.
            continue;
        }
        assert_error(&answer, 503, Some("overloaded"));
        assert_eq!(answer.header("retry-after"), Some("5"), "{}", answer.head);
    }
    busy.finish_all()?;
    busy.serve_waiting()?;
    assert_eq!(busy.bench.edge.process.wait_exit(AT_ONCE)?, 0);
    Ok(())
}

// req: API-1
#[test]
fn a_second_signal_ends_an_edge_at_once_and_no_stream_looks_whole() -> anyhow::Result<()> {
    let mut busy = Busy::start()?;
    drain(&mut busy.bench.edge)?;
    busy.bench.edge.process.signal(libc::SIGTERM);
    assert_eq!(busy.bench.edge.process.wait_exit(AT_ONCE)?, 0);
    for client in &mut busy.clients {
        let head = client.read_head()?;
        let answer = client.body_of(head)?;
        assert_eq!(answer.status, 200);
        assert!(!answer.whole && !answer.is_done(), "{}", answer.text());
    }
    // Nothing ran of these.
    for client in &mut busy.waiting {
        assert_refused(client);
    }
    let said = format!("requests are broken off requests={}", STREAMS + WAITING);
    assert!(busy.bench.edge.process.text().contains(&said), "{}", busy.bench.edge.process.text());
    eventually(SOON, "the Node leaves the provider alone", || {
        let runs = busy.bench.node_metric("iop_node_runs_in_flight")?;
        Ok(runs == 0.0 && busy.bench.node_metric("iop_node_provider_connections")? == 0.0)
    })
}

/// A cut between two events: there is room to say what happened.
// req: API-1
#[test]
fn a_second_signal_is_told_in_the_streams_that_stand_between_two_events() -> anyhow::Result<()> {
    let mut busy = Busy::start()?;
    for (call, client) in busy.calls.iter_mut().zip(&mut busy.clients) {
        call.write(b"2\r\n\n\n\r\n")?;
        client.wait_for("\r\n2\r\n\n\n\r\n")?;
    }
    drain(&mut busy.bench.edge)?;
    busy.bench.edge.process.signal(libc::SIGTERM);
    for client in &mut busy.clients {
        let head = client.read_head()?;
        assert_broken_stream(&client.body_of(head)?, "cancelled");
    }
    assert_eq!(busy.bench.edge.process.wait_exit(AT_ONCE)?, 0);
    Ok(())
}

/// Nothing but its close ends such an answer, so the close must say that it is not the end.
// req: API-1
#[test]
fn an_answer_that_only_a_close_ends_is_reset_by_every_end_of_the_edge() -> anyhow::Result<()> {
    for signals in [&[libc::SIGTERM, libc::SIGTERM][..], &[libc::SIGKILL]] {
        let mut server = Scripted::bind()?;
        let base_url = server.base_url()?;
        let mut bench = Bench::with(&[], |provider| ProviderYaml { base_url, ..provider }, |edge| edge)?;
        // One that has read all that came, and one that has stopped reading in the middle of much.
        let mut reader = bench.begin(false, "")?;
        let mut few = server.next_call()?;
        few.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"half\":")?;
        reader.wait_for("{\"half\":")?;
        let stalled = bench.begin(false, "")?;
        let mut many = server.next_call()?;
        many.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")?;
        // More than all sockets on the way hold: the end of this thread is that of the connection.
        let writer = std::thread::spawn(move || many.write(&vec![b' '; 64 << 20]).is_err());
        let series = "iop_node_stream_bytes_total{direction=\"response\"}";
        let mut passed = -1.0;
        eventually(SOON * 2, "nothing moves any more", || {
            let before = std::mem::replace(&mut passed, bench.node_metric(series)?);
            std::thread::sleep(Duration::from_millis(200));
            Ok(passed > 256.0 * 1024.0 && passed == before)
        })?;
        for signal in signals {
            bench.edge.process.signal(*signal);
            if *signal == libc::SIGTERM {
                bench.edge.process.wait_for("told to stop")?;
            }
        }
        if signals.len() == 2 {
            assert_eq!(bench.edge.process.wait_exit(AT_ONCE)?, 0);
        } else {
            bench.edge.process.kill();
        }
        for mut client in [reader, stalled] {
            let mut sink = vec![0; 1 << 20];
            let end = loop {
                match client.stream.read(&mut sink) {
                    Ok(0) => break None,
                    Ok(_) => {}
                    Err(error) => break Some(error.kind()),
                }
            };
            assert_eq!(end, Some(ErrorKind::ConnectionReset), "{signals:?}");
        }
        assert!(writer.join().ok().context("the writer panicked")?, "the Node lets go of the provider");
    }
    Ok(())
}

/// Waits until the Edge has heard that the Node drains.
fn node_drains(busy: &Busy) -> anyhow::Result<()> {
    busy.bench.node.signal(libc::SIGTERM);
    eventually(SOON, "the Edge shows it as gone", || Ok(node_status(&busy.bench.edge)?["connected"] == false))
}

// req: SUP-4
#[test]
fn a_node_that_drains_under_50_streams_finishes_them_and_what_waits_is_served_by_the_next()
-> anyhow::Result<()> {
    let mut busy = Busy::start()?;
    node_drains(&busy)?;
    // Slots become free, and nobody is sent to this Node: who waits, waits.
    for _ in 0..STREAMS / 2 {
        assert_whole(&busy.finish(0)?);
        busy.clients.remove(0);
    }
    busy.waiting.push(busy.bench.begin(true, "")?);
    eventually(SOON, "the new one waits too", || {
        Ok(busy.bench.metric("iop_edge_queued")? == (WAITING + 1) as f64)
    })?;
    assert!(busy.bench.node.is_running()?, "it waits for the others");
    busy.finish_all()?;
    assert_eq!(busy.bench.node.wait_exit(AT_ONCE)?, 0);
    assert!(!busy.bench.node.text().contains("broken off"), "{}", busy.bench.node.text());
    assert_eq!(busy.bench.metric("iop_edge_queued")?, (WAITING + 1) as f64);
    (busy.bench.node, busy.bench.node_ops) = start_node(&busy.bench.site, NODE, &busy.bench.edge.node)?;
    busy.serve_waiting()?;
    assert_eq!(busy.bench.outcomes("ok")?, (STREAMS + WAITING + 1) as f64);
    busy.bench.settles()
}

// req: SUP-4, PRE-2, FEN-6, API-1
#[test]
fn a_second_signal_ends_a_node_at_once_and_every_stream_says_so() -> anyhow::Result<()> {
    let mut busy = Busy::start()?;
    for (call, client) in busy.calls.iter_mut().zip(&mut busy.clients) {
        call.write(b"2\r\n\n\n\r\n")?;
        client.wait_for("\r\n2\r\n\n\n\r\n")?;
    }
    node_drains(&busy)?;
    busy.bench.node.signal(libc::SIGTERM);
    assert_eq!(busy.bench.node.wait_exit(AT_ONCE)?, 0);
    let said = format!("runs are broken off runs={STREAMS}");
    assert!(busy.bench.node.text().contains(&said), "{}", busy.bench.node.text());
    for client in &mut busy.clients {
        let head = client.read_head()?;
        assert_broken_stream(&client.body_of(head)?, "upstream_error");
    }
    assert_eq!(busy.bench.metric("iop_edge_leases")?, 0.0);
    // The provider was left alone with it.
    for call in &mut busy.calls {
        eventually(SOON, "the Node's connection is closed", || call.is_left())?;
    }
    // Who waited is served by the next Node.
    (busy.bench.node, busy.bench.node_ops) = start_node(&busy.bench.site, NODE, &busy.bench.edge.node)?;
    busy.serve_waiting()?;
    busy.bench.settles()
}
