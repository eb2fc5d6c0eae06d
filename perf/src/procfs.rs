//! CPU time and memory of measured processes, read from `/proc`.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;

/// Ticks per second of `/proc/PID/stat`: `USER_HZ`, which is 100 on every Linux architecture that is served
/// here.
const TICKS_PER_SECOND: u64 = 100;

/// A process that is measured with all its descendants, under the name it has in reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its name in reports.
    pub name: String,
    /// Its process id.
    pub pid: u32,
}

/// Why `--pid` was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a process is written NAME=PID")]
pub struct ProcessError;

impl std::str::FromStr for Process {
    type Err = ProcessError;

    fn from_str(text: &str) -> Result<Self, ProcessError> {
        let (name, pid) = text.split_once('=').ok_or(ProcessError)?;
        let pid = pid.parse().map_err(|_| ProcessError)?;
        if name.is_empty() { Err(ProcessError) } else { Ok(Self { name: name.to_owned(), pid }) }
    }
}

/// One reading of a process and its descendants. A process that is gone reads as zeros.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// User and system time of all threads. Unit: µs.
    pub cpu_us: u64,
    /// Time that the threads which live were ready to run and had no CPU, by the scheduler's account. Unit: ns.
    pub run_delay_ns: u64,
    /// Time on a CPU of the threads that live, by their names; threads of one name are added. Unit: ns.
    pub threads_ns: BTreeMap<String, u64>,
    /// Resident memory. Unit: KiB.
    pub rss_kib: u64,
    /// Proportional share of resident memory. Unit: KiB.
    pub pss_kib: u64,
    /// The highest resident memory so far. Unit: KiB.
    pub rss_peak_kib: u64,
}

/// Reads every process once, with its descendants: a server with workers is all of its processes.
#[must_use]
pub fn sample(processes: &[Process]) -> BTreeMap<String, Sample> {
    let parents = parents();
    processes
        .iter()
        .map(|process| {
            let whole = tree(process.pid, &parents).into_iter().map(sample_one).fold(Sample::default(), add);
            (process.name.clone(), whole)
        })
        .collect()
}

/// CPU time of this very process so far. Unit: µs.
#[must_use]
pub fn own_cpu_us() -> u64 {
    sample_one(std::process::id()).cpu_us
}

/// CPU time that the whole machine has spent at work since it started, time stolen from it included. Unit: µs.
#[must_use]
pub fn machine_busy_us() -> u64 {
    busy_us(&fs::read_to_string("/proc/stat").unwrap_or_default()).unwrap_or(0)
}

/// The name of the processor.
#[must_use]
pub fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or("unknown processor", |(_, name)| name.trim()).to_owned()
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, …
fn busy_us(stat: &str) -> Option<u64> {
    let fields: Vec<u64> = stat
        .lines()
        .next()?
        .split_ascii_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    let busy = [0, 1, 2, 5, 6, 7].into_iter().filter_map(|index| fields.get(index)).sum::<u64>();
    Some(busy * (1_000_000 / TICKS_PER_SECOND))
}

/// `pid` and every process below it.
fn tree(pid: u32, parents: &[(u32, u32)]) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let children = parents.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child);
        let new: Vec<u32> = children.filter(|child| !found.contains(child)).collect();
        found.extend(new);
        next += 1;
    }
    found
}

/// Every process of the machine with its parent.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (_, fields) = stat.rsplit_once(')')?;
            Some((pid, fields.split_ascii_whitespace().nth(1)?.parse().ok()?))
        })
        .collect()
}

fn add(mut sum: Sample, one: Sample) -> Sample {
    for (name, ns) in one.threads_ns {
        *sum.threads_ns.entry(name).or_default() += ns;
    }
    Sample {
        run_delay_ns: sum.run_delay_ns + one.run_delay_ns,
        threads_ns: sum.threads_ns,
        cpu_us: sum.cpu_us + one.cpu_us,
        rss_kib: sum.rss_kib + one.rss_kib,
        pss_kib: sum.pss_kib + one.pss_kib,
        rss_peak_kib: sum.rss_peak_kib + one.rss_peak_kib,
    }
}

fn sample_one(pid: u32) -> Sample {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let (rollup, status) = (read("smaps_rollup"), read("status"));
    let threads = threads(pid);
    // The ticks, rounded down, count threads that have ended too; the scheduler's account is exact for those that live.
    let ticks = cpu_us(&read("stat")).unwrap_or(0);
    Sample {
        cpu_us: ticks.max(threads.values().map(|account| account.on_cpu_ns).sum::<u64>() / 1000),
        run_delay_ns: threads.values().map(|account| account.run_delay_ns).sum(),
        threads_ns: threads.into_iter().map(|(name, account)| (name, account.on_cpu_ns)).collect(),
        rss_kib: field_kib(&status, "VmRSS:").unwrap_or(0),
        pss_kib: field_kib(&rollup, "Pss:").unwrap_or(0),
        rss_peak_kib: field_kib(&status, "VmHWM:").unwrap_or(0),
    }
}

/// The scheduler's account of a thread: `/proc/PID/task/TID/schedstat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Account {
    on_cpu_ns: u64,
    run_delay_ns: u64,
}

/// The accounts of the threads that live, by their names.
fn threads(pid: u32) -> BTreeMap<String, Account> {
    let mut threads = BTreeMap::<String, Account>::new();
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return threads };
    for task in tasks.filter_map(Result::ok).map(|task| task.path()) {
        let read = |file: &str| fs::read_to_string(task.join(file)).unwrap_or_default();
        // One that has ended meanwhile reads as nothing.
        let Some(account) = account(&read("schedstat")) else { continue };
        let sum = threads.entry(read("comm").trim_end().to_owned()).or_default();
        sum.on_cpu_ns += account.on_cpu_ns;
        sum.run_delay_ns += account.run_delay_ns;
    }
    threads
}

/// Time on a CPU, time ready without one, and a count that is not needed here.
fn account(schedstat: &str) -> Option<Account> {
    let mut fields = schedstat.split_ascii_whitespace().map(str::parse);
    Some(Account { on_cpu_ns: fields.next()?.ok()?, run_delay_ns: fields.next()?.ok()? })
}

/// User plus system time out of `/proc/PID/stat`; the command's name may hold spaces and brackets.
fn cpu_us(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    // Field 14 of the file, counted from 1, is the twelfth after the command.
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) * (1_000_000 / TICKS_PER_SECOND))
}

/// The number of a line `Name:   123 kB`.
fn field_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_command_name() {
        let stat = "7 (a) b (c) S 1 1 1 0 -1 4194560 1 0 0 0 150 25 0 0 20 0 1 0 99 1 1";
        assert_eq!(cpu_us(stat), Some(1_750_000));
        assert_eq!(cpu_us("7 (a) S 1"), None);
        assert_eq!(cpu_us(""), None);
    }

    #[test]
    fn the_machine_is_busy_with_all_but_idle_and_waiting() {
        assert_eq!(busy_us("cpu  1 2 3 400 500 6 7 8 9 10\ncpu0 1 2"), Some(270_000));
        assert_eq!(busy_us(""), None);
        assert!(machine_busy_us() > 0 && own_cpu_us() > 0);
    }

    #[test]
    fn a_tree_is_a_process_and_all_below_it_even_when_pids_go_round() {
        let parents = [(2, 1), (3, 2), (4, 2), (5, 4), (9, 8), (8, 9)];
        assert_eq!(tree(2, &parents), [2, 3, 4, 5]);
        assert_eq!(tree(9, &parents), [9, 8]);
        assert_eq!(tree(7, &parents), [7]);
    }

    #[test]
    fn a_child_counts_for_its_parent() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read -r line"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let parents = parents();
        assert!(parents.contains(&(child.id(), std::process::id())));
        assert!(tree(std::process::id(), &parents).contains(&child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn memory_fields_are_read_by_name() {
        let text = "Rss:  10 kB\nPss_Dirty: 3 kB\nPss:   2048 kB\n";
        assert_eq!(field_kib(text, "Pss:"), Some(2048));
        assert_eq!(field_kib(text, "Swap:"), None);
    }

    #[test]
    fn this_process_has_memory_and_a_gone_one_has_none() {
        let me = Process { name: "me".to_owned(), pid: std::process::id() };
        let samples = sample(&[me, Process { name: "gone".to_owned(), pid: u32::MAX }]);
        assert!(samples["me"].pss_kib > 0 && samples["me"].rss_peak_kib >= samples["me"].rss_kib);
        assert_eq!(samples["gone"], Sample::default());
    }

    #[test]
    fn a_thread_is_accounted_under_its_name() {
        assert_eq!(account("5 7 1\n"), Some(Account { on_cpu_ns: 5, run_delay_ns: 7 }));
        assert_eq!(account(""), None);
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let busy = std::thread::Builder::new().name("busy-thread".to_owned());
        // It lives, and has run, until it is told to stop.
        let busy = busy.spawn(move || stopped.recv().is_err()).unwrap();
        let me = Process { name: "me".to_owned(), pid: std::process::id() };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while sample(std::slice::from_ref(&me))["me"].threads_ns.get("busy-thread").is_none_or(|ns| *ns == 0)
        {
            assert!(std::time::Instant::now() < deadline, "the thread never ran");
        }
        drop(stop);
        assert!(busy.join().unwrap());
    }

    #[test]
    fn process_names_are_parsed() {
        assert_eq!("edge=12".parse(), Ok(Process { name: "edge".to_owned(), pid: 12 }));
        for text in ["edge", "=12", "edge=", "edge=x"] {
            assert_eq!(text.parse::<Process>(), Err(ProcessError), "{text}");
        }
    }
}
