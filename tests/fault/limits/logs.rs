//! A log that nobody reads, that is full, or closed, holds up nothing.

use std::{
    fs::{File, OpenOptions},
    io::Read,
    os::fd::OwnedFd,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, ensure};
use iop_tests::{
    Site,
    bench::{self, MODEL, NODE, RETRY, SOON, eventually, provider_at, site, steady_address, yaml},
    http::{self, Raw},
    site::{path, with_reconnect},
};

/// Ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

/// A configuration with steady addresses, because nobody can read from such a log which ones the kernel gave: of clients, of
/// Nodes and of operators.
fn steady(site: &Site, base_url: &str) -> anyhow::Result<(PathBuf, [String; 3])> {
    let file = site.configure(&yaml().with(provider_at(base_url)))?;
    let addresses = [steady_address()?, steady_address()?, steady_address()?];
    let mut text = std::fs::read_to_string(&file)?;
    for (listener, address) in ["http: [", "node: [", "ops: "].into_iter().zip(&addresses) {
        let any = format!("{listener}\"127.0.0.1:0\"");
        ensure!(text.contains(&any), "no {any} in {text}");
        text = text.replacen(&any, &format!("{listener}\"{address}\""), 1);
    }
    std::fs::write(&file, text)?;
    Ok((file, addresses))
}

fn start(site: &Site, program: &str, args: &[&str], stderr: Stdio) -> anyhow::Result<Running> {
    let child = Command::new(site.program(program))
        .args(args)
        .env("IOP_DRIVER", bench::driver().unwrap_or_default())
        .env("RUST_LOG", "debug")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()?;
    Ok(Running(child))
}

/// Edge and Node with such a log serve, lose lines, and say how many.
fn serves_with(log: impl Fn() -> anyhow::Result<Stdio>, requests: usize) -> anyhow::Result<()> {
    let site = site()?;
    let provider = site.provider(&[])?;
    let (file, [http, node_address, ops]) = steady(&site, &provider.base_url())?;
    let node_ops = steady_address()?;
    let _edge = start(&site, "iop-edge", &["serve", "--config", path(&file)?], log()?)?;
    let bundle = site.join_bundle(NODE, &node_address)?;
    let more = format!("{RETRY}\nmetrics: {{ listen: \"{node_ops}\" }}");
    std::fs::write(&bundle, with_reconnect(&std::fs::read_to_string(&bundle)?, &more))?;
    let _node = start(&site, "iop-node", &["run", "--join", path(&bundle)?], log()?)?;
    eventually(6 * SOON, "it is ready", || {
        Ok(http::get(&ops, "/readyz", None).is_ok_and(|a| a.status == 200))
    })?;
    let mut client = Raw::connect(&http)?;
    client.stream.set_read_timeout(Some(2 * SOON))?;
    for number in 0..requests {
        client.send(http::chat_request(site.token(), &http::chat_body(MODEL, false, "events=1")))?;
        let answer = client.answer().with_context(|| format!("request {number}"))?;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    for (address, series) in
        [(&ops, "iop_edge_log_lines_lost_total"), (&node_ops, "iop_node_log_lines_lost_total")]
    {
        let text = http::get(address, "/metrics", None)?.text();
        assert!(http::metric(&text, series).context(series)? > 0.0, "{series}");
    }
    Ok(())
}

#[test]
fn a_log_that_nobody_reads_holds_up_nothing() -> anyhow::Result<()> {
    let mut unread: Vec<OwnedFd> = Vec::new();
    let kept = std::cell::RefCell::new(&mut unread);
    serves_with(
        || {
            let (read, write) = std::io::pipe()?;
            kept.borrow_mut().push(read.into());
            Ok(write.into())
        },
        1500,
    )?;
    // What was written is whole lines.
    for end in unread {
        let mut file = File::from(end);
        let mut text = Vec::new();
        let _until_both_are_gone = file.read_to_end(&mut text)?;
        assert!(text.len() > 32 * 1024 && text.ends_with(b"\n"), "{}", text.len());
    }
    Ok(())
}

#[test]
fn a_log_on_a_full_disk_or_whose_reader_is_gone_holds_up_nothing() -> anyhow::Result<()> {
    serves_with(|| Ok(OpenOptions::new().write(true).open("/dev/full")?.into()), 20)?;
    serves_with(
        || {
            let (_gone, write) = std::io::pipe()?;
            Ok(write.into())
        },
        20,
    )
}

#[test]
fn an_edge_whose_log_nobody_reads_still_ends() -> anyhow::Result<()> {
    let site = site()?;
    let (config, [_, _, ops]) = steady(&site, "http://127.0.0.1:9/v1")?;
    let (_unread, write) = std::io::pipe()?;
    // Filled to the brim before the Edge can say a word.
    {
        use std::{io::Write, os::fd::AsRawFd};
        let mut write = write.try_clone()?;
        // SAFETY: plain system calls on a descriptor of ours.
        unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        while write.write(&[b'x'; 4096]).is_ok_and(|n| n > 0) {}
        // SAFETY: as above.
        unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETFL, 0) };
    }
    let mut edge = start(&site, "iop-edge", &["serve", "--config", path(&config)?], write.into())?;
    eventually(
        6 * SOON,
        "it is up",
        || Ok(http::get(&ops, "/healthz", None).is_ok_and(|a| a.status == 200)),
    )?;
    let pid = libc::pid_t::try_from(edge.0.id())?;
    // SAFETY: plain system call; the child has not been waited for.
    unsafe { libc::kill(pid, libc::SIGTERM) };
    let mut status = None;
    eventually(2 * SOON, "it ends", || {
        status = edge.0.try_wait()?;
        Ok(status.is_some())
    })?;
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    Ok(())
}
