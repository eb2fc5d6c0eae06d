//! Uploads: large request bodies beside streams.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use iop_tests::{
    EdgeYaml, ProviderYaml,
    bench::{Bench, NODE, SOON, assert_error, eventually, sha256, site},
    http::{self, Raw},
    procfs::resident,
    sockets::reset_on_close,
};

const CHAT: &str = "/v1/chat/completions";
/// The longest body that a client may send unless configured otherwise.
const LARGEST: usize = 32 * 1024 * 1024;
/// What the gateway calls the model of the uploads, and what their provider calls it: longer, so that a body of the largest
/// size grows on its way.
const UPLOADED: &str = "m2";
const SERVED: &str = "Org/Served-8B-Instruct-with-a-long-name";
const PROFILE: &str = "protocol_profiles:\n  mapped: { base: openai_compat, driver: openai_chat, model_mapping: { m2: \"Org/Served-8B-Instruct-with-a-long-name\" } }\n";
/// How long an upload may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A body of exactly `len` bytes for [`UPLOADED`], and the SHA-256 of what its provider must get.
fn prompt(script: &str, len: usize, seed: usize) -> (Vec<u8>, String) {
    let mut body = format!("{{\"user\":\"perf:{script}\",\"seed\":{seed},\"pad\":\"");
    let tail = format!("\", \"model\": \"{UPLOADED}\"}}");
    let unit = format!("{seed} naïve 你好 \\n \\\"quoted\\\" [{{}}] ");
    while body.len() + unit.len() + tail.len() <= len {
        body.push_str(&unit);
    }
    body.push_str(&"x".repeat(len - tail.len() - body.len()));
    body.push_str(&tail);
    let served = body.replace(&tail, &tail.replace(UPLOADED, SERVED));
    (body.into_bytes(), sha256(served.as_bytes()))
}

/// A provider that takes a request's body only when it may, and answers with the body's size and digest.
struct Engine {
    url: String,
    may_take: Arc<AtomicBool>,
    heads: Arc<AtomicUsize>,
}

impl Engine {
    fn start(may_take: bool) -> anyhow::Result<Self> {
        Self::serve(may_take, None)
    }

    /// Takes nothing, and refuses with `answer` once an upload has got stuck; tells when in `said`.
    fn refusing(answer: &'static str, said: Arc<Mutex<Option<Instant>>>) -> anyhow::Result<Self> {
        Self::serve(false, Some((answer, said)))
    }

    fn serve(
        may_take: bool,
        refusal: Option<(&'static str, Arc<Mutex<Option<Instant>>>)>,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}/v1", listener.local_addr()?);
        let (may_take, heads) = (Arc::new(AtomicBool::new(may_take)), Arc::new(AtomicUsize::new(0)));
        let engine = Self { url, may_take: Arc::clone(&may_take), heads: Arc::clone(&heads) };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (may_take, heads, refusal) = (Arc::clone(&may_take), Arc::clone(&heads), refusal.clone());
                thread::spawn(move || exchange(stream, &may_take, &heads, refusal));
            }
        });
        Ok(engine)
    }

    fn yaml(&self) -> ProviderYaml {
        uploads_to(&self.url)
    }
}

fn exchange(
    mut stream: TcpStream,
    may_take: &AtomicBool,
    heads: &AtomicUsize,
    refusal: Option<(&'static str, Arc<Mutex<Option<Instant>>>)>,
) -> Option<()> {
    let (mut seen, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let end = loop {
            if let Some(at) = seen.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            // Little at a time, so that the body stays where it is.
            let n = stream.read(&mut buffer[..512]).ok().filter(|n| *n > 0)?;
            seen.extend_from_slice(&buffer[..n]);
        };
        heads.fetch_add(1, SeqCst);
        if let Some((answer, said)) = refusal {
            thread::sleep(Duration::from_millis(500));
            *said.lock().ok()? = Some(Instant::now());
            stream.write_all(answer.as_bytes()).ok()?;
            // Open and unread for longer than anybody should need.
            thread::sleep(Duration::from_secs(20));
            return None;
        }
        let head = String::from_utf8_lossy(&seen[..end]).to_lowercase();
        let length: usize = head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
        let mut body = seen.split_off(end);
        while !may_take.load(SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        while body.len() < length {
            let n = stream.read(&mut buffer).ok().filter(|n| *n > 0)?;
            body.extend_from_slice(&buffer[..n]);
        }
        seen = body.split_off(length);
        let facts = format!("{{\"body_bytes\":{},\"body_sha256\":\"{}\"}}", body.len(), sha256(&body));
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            facts.len()
        );
        stream.write_all((head + &facts).as_bytes()).ok()?;
    }
}

fn uploads_to(url: &str) -> ProviderYaml {
    ProviderYaml {
        capacity: 16,
        extra: "profile: mapped".to_owned(),
        ..ProviderYaml::new("p2", NODE, url, UPLOADED)
    }
}

/// The usual set, with a second provider for the uploads.
fn bench(uploads: ProviderYaml, limits: &str) -> anyhow::Result<Bench> {
    Bench::with(
        &[],
        |provider| ProviderYaml { capacity: 64, ..provider },
        |edge| {
            EdgeYaml { limits: limits.to_owned(), extra: PROFILE.to_owned(), ..edge }.with(uploads.clone())
        },
    )
}

/// Memory that request bodies take at the Edge.
fn held(bench: &Bench) -> anyhow::Result<f64> {
    bench.metric("iop_edge_body_memory_bytes")
}

fn nothing_is_held(bench: &Bench) -> anyhow::Result<()> {
    eventually(SOON, "no request body is held", || Ok(held(bench)? == 0.0))?;
    bench.settles()
}

/// A connection of a client that waits longer than the usual.
fn client(bench: &Bench) -> anyhow::Result<Raw> {
    let client = bench.client()?;
    client.stream.set_read_timeout(Some(PATIENCE))?;
    client.stream.set_write_timeout(Some(PATIENCE))?;
    Ok(client)
}

/// The head of a request with these fields beside the usual ones, each with its line end.
fn head(bench: &Bench, fields: &str) -> String {
    let token = bench.site.token();
    format!("POST {CHAT} HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {token}\r\n{fields}\r\n")
}

fn sized(bench: &Bench, length: usize) -> String {
    head(bench, &format!("content-length: {length}\r\n"))
}

fn upload(bench: &Bench, body: &[u8]) -> anyhow::Result<http::Answer> {
    let mut client = client(bench)?;
    client.send(sized(bench, body.len()))?;
    client.send(body)?;
    client.answer()
}

/// The same at the pace of a network, in bytes per second.
fn upload_over_a_network(bench: &Bench, body: &[u8], rate: f64) -> anyhow::Result<http::Answer> {
    let mut client = client(bench)?;
    client.send(sized(bench, body.len()))?;
    let (begun, mut sent) = (Instant::now(), 0);
    for piece in body.chunks(64 * 1024) {
        client.send(piece)?;
        sent += piece.len();
        let due = begun + Duration::from_secs_f64(sent as f64 / rate);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    client.answer()
}

#[track_caller]
fn assert_arrived(answer: &http::Answer, bytes: usize, digest: &str) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let facts = answer.json().unwrap_or_else(|error| panic!("{error:#}"));
    let grown = bytes + SERVED.len() - UPLOADED.len();
    assert_eq!(
        (facts["body_bytes"].as_u64(), facts["body_sha256"].as_str()),
        (Some(grown as u64), Some(digest))
    );
}

/// Between two events of the streams.
const PACE: Duration = Duration::from_millis(50);
const STREAMS: usize = 50;
/// Streams of the same provider to the same reader that pass by the product: what they suffer is the machine's doing.
const CONTROLS: usize = 10;
const ROUNDS: usize = 5;
const STRETCH: f64 = 2.0;
/// What all uploads together may take of the network: 1 Gbit/s. As fast as memory copies, the clients and the provider alone would
/// keep two cores busy, and every stream would wait for the scheduler.
const NETWORK: f64 = 125e6;

const SCRIPT: &str = "events=1000000 gap=50ms";

/// The arrivals of one stream's events.
type Arrivals = Arc<Mutex<Vec<Instant>>>;

/// Reads a stream until told to stop, noting each arrival.
fn follow(mut stream: Raw, arrivals: &Arrivals, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    while !stop.load(SeqCst) {
        let n = stream.stream.read(&mut buffer)?;
        ensure!(n > 0, "a stream ended");
        let now = Instant::now();
        arrivals.lock().unwrap().push(now);
    }
    Ok(())
}

/// The gaps that have a part in a phase, longest last.
fn gaps(streams: &[Arrivals], (begin, end): (Instant, Instant)) -> Vec<Duration> {
    let mut gaps = Vec::new();
    for stream in streams {
        let arrivals = stream.lock().unwrap();
        let within = arrivals.windows(2).filter(|w| w[0] < end && w[1] > begin);
        gaps.extend(within.map(|w| w[1] - w[0]));
    }
    gaps.sort();
    gaps
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

// req: WIR-6, WIR-9
#[test]
fn large_uploads_do_not_stretch_the_gaps_of_streams_and_arrive_as_they_were_sent() -> anyhow::Result<()> {
    let side = site()?;
    let engine = side.provider(&[])?;
    let bench = bench(uploads_to(&engine.base_url()), "")?;
    let prompts: Vec<_> = (0..8).map(|n| prompt("echo", LARGEST, n)).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let mut followers = Vec::new();
    let mut start = |stream: Raw| {
        let (arrivals, stop) = (Arrivals::default(), Arc::clone(&stop));
        let noted = Arc::clone(&arrivals);
        followers.push(thread::spawn(move || follow(stream, &noted, &stop)));
        arrivals
    };
    let (mut streams, mut controls) = (Vec::new(), Vec::new());
    for _ in 0..STREAMS {
        streams.push(start(bench.begin(true, SCRIPT)?));
    }
    for _ in 0..CONTROLS {
        let mut control = Raw::connect(bench.provider.url.trim_start_matches("http://"))?;
        control.send(bench.request(true, SCRIPT))?;
        controls.push(start(control));
    }
    eventually(PATIENCE, "every stream runs", || {
        Ok(streams.iter().chain(&controls).all(|stream| stream.lock().unwrap().len() > 3))
    })?;
    let (mut at_the_99th, mut at_most) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        thread::sleep(4 * PACE);
        let begin = Instant::now();
        thread::sleep(Duration::from_millis(1500));
        let quiet = (begin, Instant::now());
        let begin = Instant::now();
        thread::scope(|scope| -> anyhow::Result<()> {
            let uploads: Vec<_> = prompts
                .iter()
                .map(|(body, digest)| {
                    let bench = &bench;
                    scope.spawn(move || -> anyhow::Result<()> {
                        let answer = upload_over_a_network(bench, body, NETWORK / 8.0)?;
                        assert_arrived(&answer, body.len(), digest);
                        Ok(())
                    })
                })
                .collect();
            uploads.into_iter().try_for_each(|upload| upload.join().expect("the upload arrived"))
        })?;
        let busy = (begin, Instant::now());
        thread::sleep(4 * PACE);
        let control = gaps(&controls, busy);
        let (quiet, took, busy) = (gaps(&streams, quiet), busy.1 - busy.0, gaps(&streams, busy));
        let at =
            |gaps: &[Duration], share: usize| gaps[(gaps.len() - 1) * share / 100].max(PACE).as_secs_f64();
        print!("round {round}: uploads took {took:?}; gaps in ms");
        for (share, ratios) in [(99, &mut at_the_99th), (100, &mut at_most)] {
            let all = [at(&quiet, share), at(&control, share), at(&busy, share)];
            let [quiet, control, busy] = all.map(|gap| gap * 1e3);
            print!(" | p{share} quiet {quiet:.1}, passing by {control:.1}, with uploads {busy:.1}");
            ratios.push(busy / quiet.max(control));
        }
        println!();
    }
    stop.store(true, SeqCst);
    for follower in followers {
        follower.join().expect("no follower panics")?;
    }
    let (at_the_99th, at_most) = (median(at_the_99th), median(at_most));
    println!(
        "gaps with uploads by gaps without, medians of {ROUNDS} rounds: p99 {at_the_99th:.2}, max {at_most:.2}"
    );
    assert!(at_the_99th <= STRETCH && at_most <= STRETCH, "p99 {at_the_99th:.2}, max {at_most:.2}");
    nothing_is_held(&bench)
}

#[test]
fn uploads_that_their_provider_does_not_take_are_held_once_and_keep_nobody_else_waiting() -> anyhow::Result<()>
{
    const UPLOADS: usize = 8;
    let engine = Engine::start(false)?;
    let bench = bench(engine.yaml(), "")?;
    // What the first request of each kind costs.
    assert_eq!(bench.chat(false, "")?.status, 200);
    let (edge, node) = (resident(bench.edge.process.pid())?, resident(bench.node.pid())?);
    let prompts: Vec<_> = (0..UPLOADS).map(|n| prompt("", LARGEST, n)).collect();
    thread::scope(|scope| -> anyhow::Result<()> {
        let uploads: Vec<_> = prompts.iter().map(|(body, _)| scope.spawn(|| upload(&bench, body))).collect();
        eventually(PATIENCE, "every upload is stuck at its provider", || {
            Ok(engine.heads.load(SeqCst) == UPLOADS)
        })?;
        let all = UPLOADS * LARGEST;
        assert_eq!(held(&bench)?, all as f64);
        let (edge, node) =
            (resident(bench.edge.process.pid())? - edge, resident(bench.node.pid())?.saturating_sub(node));
        println!("{} MiB held: Edge grew by {} MiB, Node by {} MiB", all >> 20, edge >> 20, node >> 20);
        assert!(edge < all + all / 4, "the Edge holds no second copy: {} MiB", edge >> 20);
        assert!(node < all + all / 4, "the Node holds no second copy: {} MiB", node >> 20);
        for stream in [true, false] {
            assert_eq!(bench.chat(stream, "")?.status, 200);
        }
        engine.may_take.store(true, SeqCst);
        for (upload, (body, digest)) in uploads.into_iter().zip(&prompts) {
            assert_arrived(&upload.join().expect("no client panics")?, body.len(), digest);
        }
        Ok(())
    })?;
    nothing_is_held(&bench)
}

#[test]
fn over_the_budget_of_all_bodies_an_upload_is_refused_at_once_and_room_comes_back() -> anyhow::Result<()> {
    let engine = Engine::start(false)?;
    let bench = bench(engine.yaml(), &format!("body_memory_bytes: {}", 2 * LARGEST))?;
    let (body, digest) = prompt("", LARGEST, 0);
    assert_eq!(bench.metric("iop_edge_body_memory_max_bytes")?, 2.0 * LARGEST as f64);
    thread::scope(|scope| -> anyhow::Result<()> {
        let first = scope.spawn(|| upload(&bench, &body));
        eventually(PATIENCE, "the first is stuck at its provider", || Ok(engine.heads.load(SeqCst) == 1))?;
        // Before it is sent, and without an invitation to do so.
        let mut asking = client(&bench)?;
        asking.send(head(&bench, &format!("content-length: {LARGEST}\r\nexpect: 100-continue\r\n")))?;
        let refusal = asking.read_head()?;
        assert!(refusal.starts_with("HTTP/1.1 503"), "{refusal}");
        assert_error(&asking.body_of(refusal)?, 503, Some("overloaded"));
        // By its announcement while it is sent, and by its growth; both clients find the answer.
        let mut sending = client(&bench)?;
        let _cut_short = sending.send([sized(&bench, LARGEST).as_bytes(), &body].concat());
        let mut growing = client(&bench)?;
        growing.send(head(&bench, "transfer-encoding: chunked\r\n"))?;
        for part in body.chunks(1 << 20) {
            let chunk = [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
            if growing.send(chunk).is_err() {
                break;
            }
        }
        for refused in [&mut sending, &mut growing] {
            let answer = refused.answer()?;
            assert_error(&answer, 503, Some("overloaded"));
            assert!(answer.header("retry-after").is_some_and(|s| s.parse::<u8>().is_ok()), "{}", answer.head);
        }
        assert_eq!(bench.outcomes("no_body_room")?, 3.0);
        // Requests of the usual size go on.
        assert_eq!(bench.chat(true, "")?.status, 200);
        eventually(SOON, "what was refused is not held", || Ok(held(&bench)? == LARGEST as f64))?;
        engine.may_take.store(true, SeqCst);
        assert_arrived(&first.join().expect("no client panics")?, body.len(), &digest);
        Ok(())
    })?;
    eventually(SOON, "no request body is held", || Ok(held(&bench)? == 0.0))?;
    assert_arrived(&upload(&bench, &body)?, body.len(), &digest);
    nothing_is_held(&bench)
}

#[test]
fn a_client_that_leaves_within_its_upload_leaves_nothing_behind() -> anyhow::Result<()> {
    let engine = Engine::start(true)?;
    let bench = bench(engine.yaml(), "")?;
    let (body, digest) = prompt("", 8 << 20, 0);
    let head = sized(&bench, body.len());
    for cut in 0..20 {
        let mut client = client(&bench)?;
        client.send(&head)?;
        client.send(&body[..body.len() * cut / 20])?;
        if cut > 0 {
            eventually(SOON, "a part of it is there", || Ok(held(&bench)? > 0.0))?;
        }
        if cut % 2 == 0 {
            // As a client does that is killed with an answer unread.
            reset_on_close(&client.stream)?;
        }
        drop(client);
        eventually(SOON, "nothing of it is held", || Ok(held(&bench)? == 0.0))?;
    }
    assert_eq!(engine.heads.load(SeqCst), 0, "nothing of it reached the provider");
    bench.settles()?;
    assert_arrived(&upload(&bench, &body)?, body.len(), &digest);
    nothing_is_held(&bench)
}

#[test]
fn an_upload_may_be_slow_in_whatever_framing() -> anyhow::Result<()> {
    let engine = Engine::start(true)?;
    let bench = bench(engine.yaml(), "")?;
    let (body, digest) = prompt("", 3 << 20, 0);
    for chunked in [false, true] {
        let mut client = client(&bench)?;
        let framing = if chunked { "transfer-encoding: chunked" } else { "content-length: 3145728" };
        client.send(head(&bench, &format!("{framing}\r\n")))?;
        for part in body.chunks(10_007) {
            thread::sleep(Duration::from_millis(2));
            if chunked {
                client.send(format!("{:x}\r\n", part.len()))?;
            }
            client.send(part)?;
            if chunked {
                client.send("\r\n")?;
            }
        }
        if chunked {
            client.send("0\r\n\r\n")?;
        }
        assert_arrived(&client.answer()?, body.len(), &digest);
    }
    nothing_is_held(&bench)
}

#[test]
fn a_provider_that_refuses_before_it_has_read_the_body_is_heard_at_once() -> anyhow::Result<()> {
    const TOO_LARGE: &str = "HTTP/1.1 413 Content Too Large\r\ncontent-type: text/plain\r\ncontent-length: 21\r\n\r\nthe provider's words\n";
    const UNAUTHORIZED: &str =
        "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer realm=p\r\ncontent-length: 2\r\n\r\nno";
    let (body, _) = prompt("", LARGEST, 0);
    for (answer, status, words) in [(TOO_LARGE, 413, "the provider's words\n"), (UNAUTHORIZED, 401, "no")] {
        let said = Arc::new(Mutex::new(None));
        let engine = Engine::refusing(answer, Arc::clone(&said))?;
        let bench = bench(engine.yaml(), "")?;
        let mut late = Vec::new();
        for _ in 0..3 {
            let answer = upload(&bench, &body)?;
            late.push(said.lock().unwrap().context("the provider has spoken")?.elapsed());
            assert_eq!((answer.status, answer.whole, &*answer.text()), (status, true, words));
            assert_eq!(answer.header("x-iop-provider"), Some("p2"));
            assert_eq!(answer.header("www-authenticate").is_some(), status == 401);
        }
        // The best of three, so that a busy machine proves nothing.
        let best = late.into_iter().min().context("three")?;
        println!("{status} heard after {best:?}");
        assert!(best < Duration::from_secs(1), "{best:?}");
        nothing_is_held(&bench)?;
    }
    Ok(())
}

/// Reads to the end of a connection, which must be no reset.
fn ends_well(client: &mut Raw) -> anyhow::Result<()> {
    client.stream.shutdown(Shutdown::Write)?;
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).context("a reset instead of an end")?;
    ensure!(rest.is_empty(), "something follows the answer");
    Ok(())
}

#[test]
fn a_client_that_sends_all_of_a_body_over_the_limit_finds_a_413_and_no_reset() -> anyhow::Result<()> {
    let engine = Engine::start(true)?;
    let bench = bench(engine.yaml(), "")?;
    let part = vec![b' '; 1 << 20];
    let parts = LARGEST / part.len() + 4;
    for (framing, chunked) in [
        (format!("content-length: {}", parts << 20), false),
        (format!("content-length: {}\r\nexpect: 100-continue", parts << 20), false),
        ("transfer-encoding: chunked".to_owned(), true),
        ("transfer-encoding: chunked\r\nexpect: 100-continue".to_owned(), true),
    ] {
        let mut client = client(&bench)?;
        client.send(head(&bench, &format!("{framing}\r\n")))?;
        if chunked && framing.contains("expect") {
            // Nothing is known of its length yet.
            assert!(client.read_head()?.starts_with("HTTP/1.1 100"));
        }
        for _ in 0..parts {
            let chunk = format!("{:x}\r\n", part.len());
            let (before, after) =
                if chunked { (chunk.as_bytes(), &b"\r\n"[..]) } else { (&b""[..], &b""[..]) };
            client.send([before, &part, after].concat()).with_context(|| framing.clone())?;
        }
        let head = client.read_head()?;
        assert!(head.starts_with("HTTP/1.1 413"), "{framing}: {head}");
        let answer = client.body_of(head)?;
        assert_error(&answer, 413, None);
        assert!(answer.whole && answer.header("connection") == Some("close"), "{}", answer.head);
        ends_well(&mut client).context(framing)?;
    }
    assert_eq!(engine.heads.load(SeqCst), 0);
    nothing_is_held(&bench)
}

#[test]
fn a_large_body_that_is_not_as_long_as_announced_reaches_nobody() -> anyhow::Result<()> {
    let engine = Engine::start(true)?;
    let bench = bench(engine.yaml(), "")?;
    let (body, _) = prompt("", 4 << 20, 0);
    // Longer than what comes.
    let mut refused = client(&bench)?;
    refused.send(sized(&bench, body.len() + 1))?;
    refused.send(&body)?;
    refused.stream.shutdown(Shutdown::Write)?;
    assert_error(&refused.answer()?, 400, None);
    // Shorter: the rest would be the next request.
    let mut refused = client(&bench)?;
    refused.send(sized(&bench, body.len() - 1))?;
    refused.send(&body)?;
    assert_error(&refused.answer()?, 400, None);
    refused.send("\r\n\r\n")?;
    assert_error(&refused.answer()?, 400, None);
    ends_well(&mut refused)?;
    assert_eq!(engine.heads.load(SeqCst), 0);
    assert_eq!((bench.outcomes("bad_json")?, bench.outcomes("ok")?), (1.0, 0.0));
    assert_eq!(bench.chat(false, "")?.status, 200);
    nothing_is_held(&bench)
}
