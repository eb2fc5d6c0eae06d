//! What a process holds and has used, as the kernel tells (proc(5)).

use std::time::Duration;

use anyhow::Context;

/// Open file descriptors.
///
/// # Errors
/// There is no such process.
pub fn fds(pid: u32) -> anyhow::Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Memory of its own that is in use, KiB: neither files nor what is shared.
///
/// # Errors
/// There is no such process.
pub fn anonymous_kib(pid: u32) -> anyhow::Result<u64> {
    kib(pid, "RssAnon:")
}

/// All memory that is in use, bytes.
///
/// # Errors
/// There is no such process.
pub fn resident(pid: u32) -> anyhow::Result<usize> {
    Ok(usize::try_from(kib(pid, "VmRSS:")?)? * 1024)
}

fn kib(pid: u32, field: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).with_context(|| field.to_owned())?;
    line.trim().trim_end_matches("kB").trim().parse().with_context(|| line.to_owned())
}

/// User and system time so far, in steps of 10 ms.
///
/// # Errors
/// There is no such process.
pub fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may hold anything; utime and stime are fields 14 and 15, the name is field 2.
    let (_, fields) = stat.rsplit_once(')').context("the end of the name")?;
    let ticks = |field: usize| -> anyhow::Result<u64> {
        Ok(fields.split_whitespace().nth(field - 3).context("a field")?.parse()?)
    };
    Ok(Duration::from_millis((ticks(14)? + ticks(15)?) * 10))
}

/// Time for which its threads were running so far, in steps of a scheduler's nanosecond. Threads that have ended are not in it.
///
/// # Errors
/// There is no such process.
pub fn run_time(pid: u32) -> anyhow::Result<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += stat.split_whitespace().next().context("a time")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

/// Sets the soft limit of open files of a running process, at most its hard one, and gives what it was.
///
/// # Errors
/// There is no such process, or the limit is over its hard one.
pub fn limit_fds(pid: u32, soft: u64) -> anyhow::Result<u64> {
    let pid = libc::pid_t::try_from(pid)?;
    let mut found = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system call; the pointer is to a live local.
    let got = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut found) };
    anyhow::ensure!(got == 0, "{}", std::io::Error::last_os_error());
    let new = libc::rlimit { rlim_cur: soft, rlim_max: found.rlim_max };
    // SAFETY: as above.
    let set = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const new, std::ptr::null_mut()) };
    anyhow::ensure!(set == 0, "{}", std::io::Error::last_os_error());
    Ok(found.rlim_cur)
}
