//! The load generator against the scripted provider: good runs are proven good, every fault is named.

use std::net::SocketAddr;
use std::time::Duration;

use crate::harness::{config, get, start};
use iop_perf::load::{self, Config, Length};
use iop_perf::procfs::Process;

fn load(address: SocketAddr, script: &str) -> Config {
    Config {
        target: format!("http://{address}").parse().unwrap(),
        token: None,
        model: "m".to_owned(),
        concurrency: 4,
        length: Length::Requests(12),
        warmup_requests: 0,
        stream: true,
        include_usage: true,
        prompt_bytes: 200,
        script: Some(script.to_owned()),
        keep_alive: true,
        seal_demanded: true,
        timeout: Duration::from_secs(5),
        stagger: Duration::ZERO,
        threads: 1,
        processes: Vec::new(),
        memory_at: None,
    }
}

#[test]
fn streams_are_counted_timed_and_proven_exact() {
    let address = start(config(""));
    for script in [
        "events=10",
        "events=10 split=byte",
        "events=10 chunk=5 stamp crlf extras",
        "events=10 early-hints=2",
    ] {
        let report = load::run(&load(address, script)).unwrap();
        assert!(report.is_clean(), "{script}: {report}");
        assert_eq!((report.ok, report.sealed), (12, 12), "{script}");
        // Role, ten of content, finish, usage, done.
        assert_eq!(report.events, 12 * 14, "{script}");
        assert_eq!((report.first_event_us.count, report.gap_us.count), (12, 12 * 13), "{script}");
        assert_eq!(report.delivery_us.count, if script.contains("stamp") { 120 } else { 0 }, "{script}");
    }
}

#[test]
fn whole_replies_are_proven_exact_on_kept_and_on_new_connections() {
    let address = start(config(""));
    let whole = Config { stream: false, threads: 2, warmup_requests: 4, ..load(address, "events=6") };
    let report = load::run(&whole).unwrap();
    assert_eq!((report.ok, report.sealed, report.events), (12, 12, 12), "{report}");
    // Four workers, once for the warm-up and once for the run.
    assert!(get(address, "/stats").json()["connections_serving"].as_u64().unwrap() <= 8);
    let report = load::run(&Config { keep_alive: false, warmup_requests: 0, ..whole }).unwrap();
    assert_eq!(report.ok, 12, "{report}");
    assert!(get(address, "/stats").json()["connections_serving"].as_u64().unwrap() >= 16);
}

#[test]
fn every_fault_has_its_own_name() {
    let address = start(config("events=5"));
    for (script, kind) in [
        ("status=503", "status_503"),
        ("garbage", "bad_head"),
        ("bad-head=cl-te", "bad_head"),
        ("no-reply", "closed_before_head"),
        ("rst-before-headers", "reset_before_head"),
        ("rst-after=2", "reset"),
        ("truncate-after=2", "truncated"),
        ("truncate-after=2 content-length", "truncated"),
        ("truncate-after=2 close-delimited", "no_done"),
        ("clean-eof-after=2", "no_done"),
        ("bad-chunk-after=2", "bad_chunk"),
        ("huge-chunk-after=2", "bad_chunk"),
        ("garbage-after=2", "bad_chunk"),
        ("error-after=2", "error_event_perf_error"),
        ("bad-json-after=2", "bad_json"),
        ("done-after=2", "data_after_done"),
        ("no-finish", "no_seal"),
        ("empty-body", "not_sse"),
        ("echo", "not_sse"),
    ] {
        let report = load::run(&load(address, script)).unwrap();
        assert_eq!(report.errors.get(kind), Some(&12), "{script}: {report}");
        assert!(!report.is_clean());
    }
    let impatient = Config { timeout: Duration::from_millis(100), ..load(address, "stall-after=2") };
    assert_eq!(load::run(&impatient).unwrap().errors.get("timeout"), Some(&12));
}

#[test]
fn runs_end_by_time_and_read_their_processes() {
    let address = start(config("events=5 gap=1ms"));
    let me = Process { name: "me".to_owned(), pid: std::process::id() };
    let report = load::run(&Config {
        length: Length::Time(Duration::from_millis(300)),
        processes: vec![me],
        memory_at: Some(Duration::from_millis(100)),
        stagger: Duration::from_millis(50),
        ..load(address, "")
    })
    .unwrap();
    assert!(report.is_clean() && report.seconds < 3.0, "{report}");
    let me = report.processes["me"];
    assert!(me.pss_kib.iter().all(|kib| kib.is_some_and(|kib| kib > 0)), "{me:?}");
    assert_eq!(Some(me), report.all_processes);
}
