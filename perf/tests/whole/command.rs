//! The command as a process: what others parse, and how it ends.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A provider process that ends when the test lets go of its standard input.
struct Process {
    child: Child,
    url: String,
}

impl Process {
    fn start(options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_iop-perf"))
            .args(["provider", "--listen", "127.0.0.1:0", "--until-stdin-closes"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let url = line.strip_prefix("listening ").unwrap().trim_end().to_owned();
        Self { child, url }
    }

    /// Lets the provider end and returns whether it ended well.
    fn end(mut self) -> bool {
        drop(self.child.stdin.take());
        self.child.wait().unwrap().success()
    }
}

fn load(url: &str, options: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_iop-perf"))
        .args(["load", "--url", url, "--model", "m", "--requests", "6", "--concurrency", "2"])
        .args(options)
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn provider_names_its_address_and_load_reports_a_clean_run() {
    let provider =
        Process::start(&["--events", "4", "--event-bytes", "300", "--gap-us", "100", "--split", "byte"]);
    assert!(provider.url.starts_with("http://127.0.0.1:"), "{}", provider.url);
    let pid = format!("provider={}", provider.child.id());
    for (engine, options) in [("epoll", [].as_slice()), ("glommio", &["--engine", "glommio"])] {
        let options = [options, &["--json", "-", "--pid", &pid]].concat();
        let (clean, json) = load(&provider.url, &options);
        let report: Value = serde_json::from_str(&json).unwrap();
        assert!(clean && report["engine"] == engine, "{report:#}");
        assert_eq!((&report["ok"], &report["sealed"], &report["events"]), (&6.into(), &6.into(), &48.into()));
        assert!(report["processes"]["provider"]["rss_kib"].as_u64() > Some(0));
    }
    assert!(provider.end());
}

#[test]
fn load_fails_when_a_request_fails_unless_errors_are_allowed() {
    let provider = Process::start(&["--script", "truncate-after=3"]);
    let file = std::env::temp_dir().join(format!("iop-perf-{}.json", std::process::id()));
    let (clean, table) = load(&provider.url, &["--json", file.to_str().unwrap()]);
    assert!(!clean && table.contains("error truncated: 6"), "{table}");
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(report["errors"]["truncated"], 6);
    assert!(load(&provider.url, &["--allow-errors"]).0);
    assert!(provider.end());
}

#[test]
fn wrong_options_are_refused_before_anything_listens() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_iop-perf"))
        .args(["provider", "--script", "nonsense"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(!child.wait().unwrap().success() && stdout.is_empty());
    assert!(stderr.contains("unknown directive \"nonsense\""), "{stderr}");
}
