//! Very many connections: idle ones, too many, and those on ports that are not for everyone.

use std::{
    net::{Ipv4Addr, SocketAddrV4, TcpStream},
    time::{Duration, Instant},
};

use iop_tests::{
    EdgeYaml, Process,
    bench::{Bench, NODE, RETRY, SOON, eventually, metric, provider_at, site, skip, yaml},
    http::{self, Raw},
    procfs,
    site::path,
};

use super::place::{Place, Quiet, clients, raise_own_descriptors, start_limited};

/// Client connections that have nothing to say.
const IDLE: usize = 10_000;
/// Connections a source address makes here: fewer than it has ports.
const PER_SOURCE: usize = 4000;

/// A connection from `127.0.0.source`.
fn connect_from(source: u8, address: &str) -> anyhow::Result<TcpStream> {
    use std::os::fd::FromRawFd;
    let to: SocketAddrV4 = address.parse()?;
    let named = |address: &SocketAddrV4| libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    };
    let from = named(&SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, source), 0));
    let to = named(&to);
    let size = libc::socklen_t::try_from(size_of::<libc::sockaddr_in>())?;
    // SAFETY: plain system calls; the addresses are live locals of the size that is told, the descriptor is fresh and ours.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        anyhow::ensure!(fd >= 0, "{}", std::io::Error::last_os_error());
        let stream = TcpStream::from_raw_fd(fd);
        anyhow::ensure!(libc::bind(fd, (&raw const from).cast(), size) == 0, "bind");
        anyhow::ensure!(libc::connect(fd, (&raw const to).cast(), size) == 0, "connect");
        Ok(stream)
    }
}

/// An Edge that keeps idle connections for so long.
fn keeping(idle: Duration) -> anyhow::Result<Bench> {
    let limits = format!("keepalive_idle_ms: {}, head_timeout_ms: 60000", idle.as_millis());
    let bench = Bench::with(&[], |provider| provider, |edge| EdgeYaml { limits, ..edge })?;
    assert_eq!(bench.chat(true, "")?.status, 200);
    eventually(SOON, "that client has gone", || Ok(clients(&bench.edge)? == 0))?;
    Ok(bench)
}

/// Very many connections, each of which has had a request: they are kept ones, not such that never spoke. And when the last of
/// them was asked.
fn idle_crowd(bench: &Bench) -> anyhow::Result<(Vec<Raw>, Instant)> {
    let models =
        format!("GET /v1/models HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {}\r\n\r\n", bench.site.token());
    let mut idle = Vec::with_capacity(IDLE);
    let mut asked = Instant::now();
    for number in 0..IDLE {
        let source = u8::try_from(number / PER_SOURCE)? + 2;
        let mut raw = Raw::over(connect_from(source, &bench.edge.http)?)?;
        asked = Instant::now();
        raw.send(&models)?;
        idle.push(raw);
    }
    for raw in &mut idle {
        assert_eq!(raw.answer()?.status, 200);
    }
    Ok((idle, asked))
}

/// Within a limit that is out of reach here, however slow the machine.
fn ten_thousand_cost_little() -> anyhow::Result<()> {
    let bench = keeping(Duration::from_secs(600))?;
    let pid = bench.edge.process.pid();
    let (fds, memory) = (procfs::fds(pid)?, procfs::anonymous_kib(pid)?);
    let (idle, _) = idle_crowd(&bench)?;
    assert_eq!(clients(&bench.edge)?, IDLE);
    let grown = procfs::anonymous_kib(pid)?.saturating_sub(memory);
    let each = grown as f64 / IDLE as f64;

    let before = procfs::cpu(pid)?;
    std::thread::sleep(Duration::from_secs(3));
    let used = procfs::cpu(pid)? - before;
    let started = Instant::now();
    for _ in 0..20 {
        assert_eq!(bench.chat(true, "events=3")?.status, 200);
    }
    let took = started.elapsed();
    println!(
        "{each:.2} KiB for each idle connection; {used:?} of CPU in 3 s; 20 requests among them in {took:?}"
    );
    assert!(each < 8.0, "{each:.2} KiB for each idle connection");
    assert!(used <= Duration::from_millis(60), "{used:?} of CPU in 3 s of silence");
    assert!(took < SOON, "20 requests took {took:?}");
    assert_eq!(clients(&bench.edge)?, IDLE, "none of them has been closed");
    drop(idle);
    eventually(2 * SOON, "all have left", || Ok(clients(&bench.edge)? == 0))?;
    eventually(SOON, "descriptors are as before", || Ok(procfs::fds(pid)? <= fds))?;
    bench.settles()
}

/// Each has its own time from its own answer on: the first of them may be over before the last have come.
fn ten_thousand_end_at_their_limit() -> anyhow::Result<()> {
    const KEPT: Duration = Duration::from_secs(12);
    let bench = keeping(KEPT)?;
    let pid = bench.edge.process.pid();
    let fds = procfs::fds(pid)?;
    let (mut idle, last_asked) = idle_crowd(&bench)?;
    eventually(KEPT + 2 * SOON, "all are closed", || Ok(clients(&bench.edge)? == 0))?;
    println!("the last was closed {:?} after its request", last_asked.elapsed());
    assert!(last_asked.elapsed() >= KEPT, "not before its time: {:?}", last_asked.elapsed());
    for raw in &mut idle {
        assert_eq!((raw.fill()?, raw.buffered().len()), (0, 0), "closed without a word");
    }
    eventually(SOON, "descriptors are as before", || Ok(procfs::fds(pid)? <= fds))?;
    bench.settles()
}

#[test]
fn ten_thousand_idle_connections_cost_little_memory_and_no_time_and_end_at_their_limit() -> anyhow::Result<()>
{
    if raise_own_descriptors()? < IDLE as u64 + 2000 {
        return skip(&format!("this process may not have {IDLE} sockets"));
    }
    ten_thousand_cost_little()?;
    ten_thousand_end_at_their_limit()
}

#[test]
fn a_client_over_the_bound_is_closed_at_once_and_finds_room_when_one_leaves() -> anyhow::Result<()> {
    const FILES: u64 = 120;
    let site = site()?;
    let provider = site.provider(&[])?;
    let config = site.configure(&yaml().with(provider_at(&provider.base_url())))?;
    let args = ["serve", "--config", path(&config)?];
    let mut process = start_limited(&site, ("edge", "iop-edge"), &args, (FILES, FILES))?;
    process.wait_for("edge serving")?;
    let edge = site.running(process)?;
    let mut node = site.node_with(NODE, &edge.node, RETRY)?;
    node.wait_for("node ready")?;
    let most = metric(&edge, "iop_edge_client_connections_max")? as usize;
    assert_eq!(most, FILES as usize * 3 / 4, "a quarter is kept for others");
    let chat = |script: &str| -> anyhow::Result<Raw> {
        let mut client = Raw::connect(&edge.http)?;
        client.send(http::chat_request(site.token(), &http::chat_body("m1", true, script)))?;
        Ok(client)
    };
    let mut streaming = chat("events=100000 gap=10ms")?;
    streaming.wait_for("data:")?;
    let mut kept: Vec<_> = (1..most).map(|_| Quiet::connect(&edge.http)).collect::<anyhow::Result<_>>()?;
    eventually(SOON, "all are in", || Ok(clients(&edge)? == most))?;
    let mut refused: Vec<_> = (0..50).map(|_| Quiet::connect(&edge.http)).collect::<anyhow::Result<_>>()?;
    eventually(SOON, "the others are closed", || Ok(refused.iter_mut().all(Quiet::look)))?;
    assert!(refused.iter().all(|refused| refused.said.is_empty()), "without a word");
    assert_eq!(metric(&edge, "iop_edge_client_connections_refused_total")?, 50.0);
    assert_eq!(metric(&edge, "iop_edge_accepts_exhausted_total")?, 0.0, "it never came to that");
    let said = edge.process.text().matches("too many client connections").count();
    assert!((1..=2 * iop_tests::bench::shards()).contains(&said), "said {said} times");
    streaming.wait_for("data:")?;
    assert!(!kept.iter_mut().any(Quiet::look), "who is in stays");
    assert_eq!(clients(&edge)?, most);

    kept.pop();
    eventually(SOON, "there is room", || Ok(clients(&edge)? < most))?;
    let answer = chat("")?.answer()?;
    assert!(answer.is_done() && answer.whole, "{}", answer.text());
    Ok(())
}

#[test]
fn mute_connections_on_the_node_port_keep_no_node_out_and_end_by_themselves() -> anyhow::Result<()> {
    const MUTE: usize = 1500;
    raise_own_descriptors()?;
    let site = site()?;
    let provider = site.provider(&[])?;
    let edge = site.edge(&yaml().with(provider_at(&provider.base_url())))?;
    let pid = edge.process.pid();
    let fds = procfs::fds(pid)?;
    let mut mute: Vec<_> = (0..MUTE).map(|_| Quiet::connect(&edge.node)).collect::<anyhow::Result<_>>()?;
    let mut node = site.node_with(NODE, &edge.node, RETRY)?;
    let mut late: Vec<_> =
        (0..MUTE / 4).map(|_| Quiet::connect(&edge.node)).collect::<anyhow::Result<_>>()?;
    node.wait_for("node ready")?;
    let answer = http::chat(&edge.http, site.token(), &http::chat_body("m1", true, ""))?;
    assert!(answer.is_done() && answer.whole, "{}", answer.text());
    let displaced = metric(&edge, "iop_edge_node_handshakes_displaced_total")?;
    let bound = 256 * iop_tests::bench::shards();
    eventually(SOON, "the oldest ones gave way", || {
        Ok(mute.iter_mut().filter_map(|mute| mute.look().then_some(())).count() >= MUTE / 2)
    })?;
    // Those whose handshake ran out of time live for 5 s.
    let soonest = mute.iter().filter_map(Quiet::lived).min();
    assert!(soonest.is_some_and(|lived| lived < Duration::from_millis(4500)), "{soonest:?}");
    assert!(displaced >= (MUTE - bound) as f64 / 2.0, "{displaced} gave way");
    eventually(3 * SOON, "each ends at the handshake's limit", || {
        Ok(mute.iter_mut().chain(&mut late).fold(true, |all, mute| mute.look() & all))
    })?;
    assert!(metric(&edge, "iop_edge_node_handshake_refused_total{reason=\"handshake_timeout\"}")? >= 1.0);
    eventually(SOON, "descriptors are as before", || Ok(procfs::fds(pid)? <= fds + 2))?;
    assert!(node.is_running()? && !node.text().contains("connection to the edge lost"));
    Ok(())
}

/// Asks for `path` and reads nothing.
fn ask_and_read_nothing(address: &str, path: &str) -> anyhow::Result<Quiet> {
    let mut quiet = Quiet::connect(address)?;
    quiet.send(format!("GET {path} HTTP/1.1\r\nhost: e\r\n\r\n").as_bytes());
    Ok(quiet)
}

#[test]
fn mute_and_slow_connections_to_the_ops_ports_keep_no_operator_out() -> anyhow::Result<()> {
    let place = Place::start()?;
    let edge = &place.bench.edge;
    let mut crowd: Vec<Quiet> = Vec::new();
    let mut longest = Duration::ZERO;
    for round in 0..150 {
        for address in [&*edge.ops, &*place.bench.node_ops] {
            crowd.push(Quiet::connect(address)?);
            crowd.push(ask_and_read_nothing(address, "/metrics")?);
        }
        if round % 10 == 9 {
            let started = Instant::now();
            for (address, path) in [
                (&*edge.ops, "/metrics"),
                (&*edge.ops, "/healthz"),
                (&*edge.ops, "/readyz"),
                (&*place.bench.node_ops, "/metrics"),
                (&*place.bench.node_ops, "/healthz"),
            ] {
                assert_eq!(http::get(address, path, None)?.status, 200, "{path}");
            }
            longest = longest.max(started.elapsed());
        }
    }
    // A mute one may stay 5 s on a Node and 10 s on an Edge: whoever waits for it has been kept out.
    assert!(longest < Duration::from_secs(4), "{longest:?}");
    assert!(metric(edge, "iop_edge_ops_connections_displaced_total")? > 100.0);
    let pid = edge.process.pid();
    let fds = procfs::fds(pid)?;
    assert!(fds < 64 + 60, "{fds} descriptors");
    drop(crowd);
    Ok(())
}

#[test]
fn both_programs_may_open_as_many_files_as_the_hard_limit_says() -> anyhow::Result<()> {
    let site = site()?;
    let config = site.configure(&yaml().with(provider_at("http://127.0.0.1:9/v1")))?;
    let args = ["serve", "--config", path(&config)?];
    let mut process = start_limited(&site, ("edge", "iop-edge"), &args, (256, 3000))?;
    process.wait_for("edge serving")?;
    let edge = site.running(process)?;
    let bundle = site.join_bundle(NODE, &edge.node)?;
    let mut node =
        start_limited(&site, ("node", "iop-node"), &["run", "--join", path(&bundle)?], (256, 2000))?;
    node.wait_for("node ready")?;
    let soft = |process: &Process| -> anyhow::Result<String> {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.pid()))?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap_or_default();
        Ok(line.split_whitespace().next().unwrap_or_default().to_owned())
    };
    for (process, hard) in [(&edge.process, "3000"), (&node, "2000")] {
        assert_eq!(soft(process)?, hard);
        let line = process.line_with("open files")?.unwrap_or_default();
        assert!(line.contains("found=256") && line.contains(&format!("raised_to={hard}")), "{line}");
    }
    assert_eq!(metric(&edge, "iop_edge_client_connections_max")?, 3000.0 - 256.0);
    Ok(())
}
