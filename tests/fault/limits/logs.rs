//! A log that nobody reads, that is full, or closed, holds up nothing.

use std::{
    fs::{File, OpenOptions},
    io::Read,
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context;
use iop_tests::{
    Site,
    bench::{self, MODEL, NODE, RETRY, SOON, eventually, provider_at, site, yaml},
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

/// A port that nothing uses now.
fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
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
    let (http, node_port, ops, node_ops) = (free_port()?, free_port()?, free_port()?, free_port()?);
    let file = site.configure(&yaml().with(provider_at(&provider.base_url())))?;
    let text = std::fs::read_to_string(&file)?;
    let text = text.replacen("http: [\"127.0.0.1:0\"]", &format!("http: [\"127.0.0.1:{http}\"]"), 1);
    let text = text.replacen("node: [\"127.0.0.1:0\"]", &format!("node: [\"127.0.0.1:{node_port}\"]"), 1);
    let text = text.replacen("ops: \"127.0.0.1:0\"", &format!("ops: \"127.0.0.1:{ops}\""), 1);
    std::fs::write(&file, text)?;
    let _edge = start(&site, "iop-edge", &["serve", "--config", path(&file)?], log()?)?;
    let bundle = site.join_bundle(NODE, &format!("127.0.0.1:{node_port}"))?;
    let more = format!("{RETRY}\nmetrics: {{ listen: \"127.0.0.1:{node_ops}\" }}");
    std::fs::write(&bundle, with_reconnect(&std::fs::read_to_string(&bundle)?, &more))?;
    let _node = start(&site, "iop-node", &["run", "--join", path(&bundle)?], log()?)?;
    let (ops, node_ops) = (format!("127.0.0.1:{ops}"), format!("127.0.0.1:{node_ops}"));
    eventually(6 * SOON, "it is ready", || {
        Ok(http::get(&ops, "/readyz", None).is_ok_and(|a| a.status == 200))
    })?;
    let mut client = Raw::connect(&format!("127.0.0.1:{http}"))?;
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
    let config = site.configure(&yaml().with(provider_at("http://127.0.0.1:9/v1")))?;
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
    std::thread::sleep(Duration::from_secs(1));
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
