//! Where io_uring is refused or there is no memory for a ring, the Edge serves on epoll and says so.

use std::{io, os::unix::process::CommandExt, process::Command};

use iop_tests::{Process, Site, site::path};

use crate::support::{is_matrix_only, provider_at, site, yaml};

/// Starts an Edge whose process has gone through `before` and gives its log once it serves.
fn log_of(site: &Site, before: fn() -> io::Result<()>) -> anyhow::Result<String> {
    let config = site.configure(&yaml().with(provider_at("http://127.0.0.1:9/v1")))?;
    let mut command = Command::new(site.program("iop-edge"));
    command.args(["serve", "--config", path(&config)?]).env_remove("IOP_DRIVER");
    // SAFETY: `before` makes system calls only, on memory of its own.
    unsafe { command.pre_exec(before) };
    let mut edge = Process::spawn("edge", &mut command, site.dir())?;
    edge.wait_for("edge serving")?;
    Ok(edge.text())
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// As many containers do: io_uring_setup gives EPERM.
fn refuse_rings() -> io::Result<()> {
    let number = u32::try_from(libc::SYS_io_uring_setup).map_err(io::Error::other)?;
    let eperm = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).map_err(io::Error::other)?;
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: u16::try_from(code).unwrap_or(0), jt, jf, k };
    let mut program = [
        // The system call's number is the first word of seccomp_data.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, eperm),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: plain system calls; the filter and its program live until they return.
    unsafe {
        checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        checked(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter, 0, 0))
    }
}

/// As a service user with a small memlock limit: a ring gives ENOMEM. Root's own limit counts once the right to lock
/// memory is taken from what it executes.
fn lock_no_memory() -> io::Result<()> {
    const CAP_IPC_LOCK: libc::c_ulong = 14;
    let limit = libc::rlimit { rlim_cur: 16 * 1024, rlim_max: 16 * 1024 };
    // SAFETY: plain system calls.
    unsafe {
        if libc::getuid() == 0 {
            checked(libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0))?;
        }
        checked(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit))
    }
}

fn serves_on_epoll(before: fn() -> io::Result<()>) -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let log = log_of(&site()?, before)?;
    assert!(log.contains("io_uring refused, using epoll") && log.contains("driver=\"epoll\""), "{log}");
    Ok(())
}

#[test]
fn an_edge_that_may_make_no_ring_serves_on_epoll() -> anyhow::Result<()> {
    serves_on_epoll(refuse_rings)
}

#[test]
fn an_edge_without_memory_for_a_ring_serves_on_epoll() -> anyhow::Result<()> {
    serves_on_epoll(lock_no_memory)
}

#[test]
fn shards_are_pinned_to_the_cores_that_are_named() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let site = site()?;
    let pinned = iop_tests::EdgeYaml { shards: 1, cpus: vec![0], ..yaml() };
    let edge = site.edge(&pinned.with(provider_at("http://127.0.0.1:9/v1")))?;
    let tasks = format!("/proc/{}/task", edge.process.pid());
    let mut found = 0;
    for task in std::fs::read_dir(tasks)? {
        let status = std::fs::read_to_string(task?.path().join("status"))?;
        if status.starts_with("Name:\tedge-0") {
            found += 1;
            assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
        }
    }
    assert_eq!(found, 1);
    Ok(())
}
