//! CPU time and memory of measured processes, read from `/proc`.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;

/// Ticks per second of `/proc/PID/stat`: `USER_HZ`, which is 100 on every Linux architecture that is served
/// here.
const TICKS_PER_SECOND: u64 = 100;

/// A process that is measured, under the name it has in reports.
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

/// One reading of a process. A process that is gone reads as zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// User and system time of all its threads. Unit: µs, in steps of 10,000.
    pub cpu_us: u64,
    /// Resident memory. Unit: KiB.
    pub rss_kib: u64,
    /// Proportional share of resident memory. Unit: KiB.
    pub pss_kib: u64,
    /// The highest resident memory so far. Unit: KiB.
    pub rss_peak_kib: u64,
}

/// Reads every process once.
#[must_use]
pub fn sample(processes: &[Process]) -> BTreeMap<String, Sample> {
    processes.iter().map(|process| (process.name.clone(), sample_one(process.pid))).collect()
}

fn sample_one(pid: u32) -> Sample {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let (rollup, status) = (read("smaps_rollup"), read("status"));
    Sample {
        cpu_us: cpu_us(&read("stat")).unwrap_or(0),
        rss_kib: field_kib(&status, "VmRSS:").unwrap_or(0),
        pss_kib: field_kib(&rollup, "Pss:").unwrap_or(0),
        rss_peak_kib: field_kib(&status, "VmHWM:").unwrap_or(0),
    }
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
    fn process_names_are_parsed() {
        assert_eq!("edge=12".parse(), Ok(Process { name: "edge".to_owned(), pid: 12 }));
        for text in ["edge", "=12", "edge=", "edge=x"] {
            assert_eq!(text.parse::<Process>(), Err(ProcessError), "{text}");
        }
    }
}
