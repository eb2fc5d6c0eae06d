//! One who does not read slows nobody else and fills no memory.

use std::{
    net::TcpStream,
    time::{Duration, Instant},
};

use iop_tests::{Process, procfs::anonymous_kib, site::path};

use crate::support::{Bench, NODE, SOON, eventually, metric, provider_at, site, yaml};

// req: WIR-6, HBT-2
#[test]
fn clients_that_read_nothing_of_50_mb_hold_up_no_stream_on_the_same_link() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let pids = [bench.edge.process.pid(), bench.node.pid()];
    // Two times 50 MB, of which these clients read nothing. What is touched once, the first time round, is not measured.
    let begin = || -> anyhow::Result<_> {
        let slow = [
            bench.begin(true, "events=12500 bytes=4000")?,
            bench.begin(true, "events=12500 bytes=4000 chunk=64k join=16")?,
        ];
        // Let them fill whatever can be filled.
        std::thread::sleep(Duration::from_millis(700));
        Ok(slow)
    };
    drop(begin()?);
    bench.settles()?;
    let before = [anonymous_kib(pids[0])?, anonymous_kib(pids[1])?];
    let slow = begin()?;

    let started = Instant::now();
    let answer = bench.chat(true, "events=150 gap=10ms")?;
    let took = started.elapsed();
    assert!(answer.is_done() && answer.whole);
    assert!(took < Duration::from_millis(2600), "1.5 s of stream took {took:?}");
    for (pid, before) in pids.iter().zip(before) {
        let grown = anonymous_kib(*pid)?.saturating_sub(before);
        assert!(grown < 2 * 2048, "process {pid} grew by {grown} KiB for two streams of a bounded window");
    }
    drop(slow);
    bench.settles()
}

// req: WIR-6
#[test]
fn a_client_that_starts_to_read_late_gets_every_byte() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let mut late = bench.begin(false, "raw-body=12m")?;
    std::thread::sleep(Duration::from_millis(500));
    let answer = late.answer()?;
    assert!(answer.whole);
    assert_eq!(answer.header("x-body-sha256"), Some(&*crate::support::sha256(&answer.body)));
    bench.settles()
}

#[test]
fn clients_over_the_bound_are_closed_and_nodes_and_operators_still_come_in() -> anyhow::Result<()> {
    const FILES: u64 = 200;
    let site = site()?;
    let config = site.configure(&yaml().with(provider_at("http://127.0.0.1:9/v1")))?;
    let mut command = std::process::Command::new(site.program("iop-edge"));
    command.args(["serve", "--config", path(&config)?]);
    let limit = || {
        let limit = libc::rlimit { rlim_cur: FILES, rlim_max: FILES };
        // SAFETY: plain system call.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one system call on memory of its own.
    unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, limit) };
    let mut process = Process::spawn("edge", &mut command, site.dir())?;
    process.wait_for("edge serving")?;
    let edge = site.running(process)?;
    let clients: Vec<_> = (0..FILES).map(|_| TcpStream::connect(&edge.http)).collect::<Result<_, _>>()?;
    let refused = "iop_edge_client_connections_refused_total";
    eventually(SOON, refused, || Ok(metric(&edge, refused)? >= (FILES / 4) as f64))?;
    let _node = site.node(NODE, &edge)?;
    assert_eq!(clients.len() as u64, FILES);
    assert_eq!(metric(&edge, "iop_edge_accepts_exhausted_total")?, 0.0, "it never came to that");
    Ok(())
}
