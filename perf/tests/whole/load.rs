//! The load generator against the scripted provider: good runs are proven good, every fault is named.

use std::net::SocketAddr;
use std::time::Duration;

use crate::harness::{config, get, start, stats_when};
use iop_perf::load::{self, Arrivals, Config, Engine, Length, Step};
use iop_perf::procfs::Process;

/// Each engine, with a provider of its own.
fn on_both(script: &str) -> [(Engine, SocketAddr); 2] {
    [Engine::Epoll, Engine::Glommio].map(|engine| (engine, start(config(script))))
}

fn load((engine, address): (Engine, SocketAddr), script: &str) -> Config {
    Config {
        engine,
        target: format!("http://{address}").parse().unwrap(),
        model: "m".to_owned(),
        concurrency: 4,
        length: Length::Requests(12),
        script: Some(script.to_owned()),
        timeout: Duration::from_secs(5),
        ..Config::default()
    }
}

#[test]
fn streams_are_counted_timed_and_proven_exact() {
    for to in on_both("") {
        for script in [
            "events=10",
            "events=10 split=byte",
            "events=10 chunk=5 stamp crlf extras",
            "events=10 early-hints=2",
        ] {
            let report = load::run(&load(to, script)).unwrap();
            assert!(report.is_clean(), "{script}: {report}");
            assert_eq!((report.ok, report.sealed), (12, 12), "{script}");
            // Role, ten of content, finish, usage, done.
            assert_eq!(report.events, 12 * 14, "{script}");
            assert_eq!((report.first_event_us.count, report.gap_us.count), (12, 12 * 13), "{script}");
            assert_eq!(report.delivery_us.count, if script.contains("stamp") { 120 } else { 0 }, "{script}");
        }
    }
}

#[test]
fn whole_replies_are_proven_exact_on_kept_and_on_new_connections() {
    for to in on_both("") {
        let whole = Config { stream: false, threads: 2, warmup_requests: 4, ..load(to, "events=6") };
        let report = load::run(&whole).unwrap();
        assert_eq!((report.ok, report.sealed, report.events), (12, 12, 12), "{report}");
        // Four workers, once for the warm-up and once for the run.
        assert!(get(to.1, "/stats").json()["connections_serving"].as_u64().unwrap() <= 8);
        let report = load::run(&Config { keep_alive: false, warmup_requests: 0, ..whole }).unwrap();
        assert_eq!(report.ok, 12, "{report}");
        assert!(get(to.1, "/stats").json()["connections_serving"].as_u64().unwrap() >= 16);
    }
}

#[test]
fn every_fault_has_its_own_name() {
    for to in on_both("events=5") {
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
            let report = load::run(&load(to, script)).unwrap();
            assert_eq!(report.errors.get(kind), Some(&12), "{script}: {report}");
            assert!(!report.is_clean());
        }
        let impatient = Config { timeout: Duration::from_millis(100), ..load(to, "stall-after=2") };
        assert_eq!(load::run(&impatient).unwrap().errors.get("timeout"), Some(&12));
    }
}

#[test]
fn runs_end_by_time_and_read_their_processes() {
    for to in on_both("events=5 gap=1ms") {
        let me = Process { name: "me".to_owned(), pid: std::process::id() };
        let report = load::run(&Config {
            length: Length::Time(Duration::from_millis(300)),
            processes: vec![me],
            memory_at: Some(Duration::from_millis(100)),
            stagger: Duration::from_millis(50),
            ..load(to, "")
        })
        .unwrap();
        assert!(report.is_clean() && report.seconds < 3.0, "{report}");
        let me = report.processes["me"];
        assert!(me.pss_kib.iter().all(|kib| kib.is_some_and(|kib| kib > 0)), "{me:?}");
        assert_eq!(Some(me), report.all_processes);
    }
}

/// An open load of 40 requests within a fifth of a second.
fn open((engine, address): (Engine, SocketAddr), script: &str) -> Config {
    let arrivals = Arrivals::Uniform { per_second: 200.0 };
    Config { arrivals, length: Length::Requests(40), ..load((engine, address), script) }
}

#[test]
fn every_scheduled_request_is_sent_and_proven_exact_on_any_number_of_threads() {
    for to in on_both("") {
        let steps = |per_second| Step { per_second, lasts: Duration::from_millis(100) };
        for (arrivals, threads) in [
            (Arrivals::Uniform { per_second: 200.0 }, 1),
            (Arrivals::Poisson { per_second: 200.0, seed: 3 }, 3),
            (Arrivals::Steps(vec![steps(100.0), steps(300.0)]), 2),
        ] {
            let asked = Config { arrivals: arrivals.clone(), threads, ..open(to, "events=3") };
            let report = load::run(&asked).unwrap();
            assert!(report.is_clean(), "{report}");
            assert_eq!((report.ok, report.sealed, report.lateness_us.count), (40, 40, 40), "{report}");
            assert_eq!(report.arrivals, arrivals.to_string());
            assert!(report.in_flight_peak >= 1 && report.connection_wait_us.count == 0);
            assert_eq!(report.distributions.total_us.len(), report.distributions.quantiles.len());
        }
    }
}

#[test]
fn an_open_load_ends_with_its_time_even_if_its_schedule_does_not() {
    for to in on_both("") {
        let length = Length::Time(Duration::from_millis(100));
        let report = load::run(&Config { length, ..open(to, "events=1") }).unwrap();
        assert_eq!((report.requests, report.ok), (20, 20), "{report}");
    }
}

/// A closed load of one worker would see one slow reply and 39 quick ones. The schedule does not wait: whoever was due
/// meanwhile has waited too, and its latency says so.
#[test]
fn what_a_stalled_subject_makes_others_wait_is_in_their_latencies() {
    for to in on_both("") {
        // One connection, each reply 20 ms, a request due every 5 ms: the n-th waits for n others.
        let stalled = Config { connections: Some(1), ..open(to, "prefill=20ms events=1") };
        let report = load::run(&stalled).unwrap();
        assert!(report.is_clean(), "{report}");
        // At least 40 × 20 ms of replies less 39 × 5 ms of schedule, whatever else the machine does.
        assert!(report.total_us.max >= 600_000 && report.first_event_us.max >= 600_000, "{report}");
        assert!(report.total_us.p50 >= 300_000, "{report}");
        assert!(report.connection_wait_us.max >= 580_000, "{report}");
        assert_eq!((report.in_flight_peak > 20, report.connection_wait_us.count), (true, 40), "{report}");
        let serving = get(to.1, "/stats").json()["connections_serving"].as_u64().unwrap();
        assert!(serving <= 2, "one connection, and the one that asks: {serving}");
    }
}

#[test]
fn requests_over_the_bound_in_flight_fail_by_their_own_name() {
    for to in on_both("") {
        let bounded = Config { max_in_flight: 3, ..open(to, "prefill=2s events=1") };
        let report = load::run(&bounded).unwrap();
        // All are due long before the first reply.
        assert_eq!((report.ok, report.errors.get("max_in_flight")), (3, Some(&37)), "{report}");
        assert_eq!(report.in_flight_peak, 3);
    }
}

#[test]
fn refusals_have_times_of_their_own_and_keep_their_connection() {
    for to in on_both("") {
        let refused = Config { concurrency: 1, ..load(to, "status=429") };
        let report = load::run(&refused).unwrap();
        assert_eq!((report.ok, report.errors.get("status_429")), (0, Some(&12)), "{report}");
        assert_eq!((report.refusals[&429].count, report.total_us.count), (12, 0), "{report}");
        let serving = get(to.1, "/stats").json()["connections_serving"].as_u64().unwrap();
        assert!(serving <= 2, "one connection, and the one that asks: {serving}");
    }
}

#[test]
fn a_request_over_its_limit_closes_its_connection_at_once() {
    for to in on_both("") {
        let arrivals = Arrivals::Uniform { per_second: 20.0 };
        let script = "prefill=3600s ping=10ms events=1";
        let (timeout, length) = (Duration::from_millis(50), Length::Requests(20));
        let report = load::run(&Config { arrivals, timeout, length, ..load(to, script) }).unwrap();
        assert_eq!(report.errors.get("timeout"), Some(&20), "{report}");
        let stats = stats_when(to.1, |stats| stats["requests_open"] == 0);
        // A second lies between the first and the last: they were not all kept until the end.
        assert!(stats["requests_open_peak"].as_u64() < Some(20), "{stats:#}");
    }
}
