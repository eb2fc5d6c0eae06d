//! Silent streams against the scripted provider.

use std::sync::Arc;
use std::time::Duration;

use crate::harness::{config, get, start};
use iop_perf::idle::{self, Plan, Stage};
use iop_perf::load::Config;
use iop_perf::procfs::Process;

#[test]
fn silent_streams_are_all_open_are_read_and_all_arrive_whole() {
    let address = start(config(""));
    let plan = Plan {
        streams: 30,
        silence: Duration::from_millis(300),
        per_second: 300.0,
        every: Duration::from_millis(50),
    };
    let base = Config {
        target: format!("http://{address}").parse().unwrap(),
        processes: vec![Process { name: "me".to_owned(), pid: std::process::id() }],
        ..Config::default()
    };
    let silence = idle::run(&plan, base, &Arc::default()).unwrap();
    assert_eq!((silence.report.ok, silence.report.sealed, silence.dropped), (30, 30, 0), "{silence}");
    assert_eq!(silence.report.in_flight_peak, 30, "{silence}");
    assert_eq!(get(address, "/stats").json()["requests_open_peak"], 30);
    let stages: Vec<Stage> = silence.readings.iter().map(|reading| reading.stage).collect();
    assert_eq!((stages.first(), stages.last()), (Some(&Stage::Before), Some(&Stage::After)));
    assert!(stages.contains(&Stage::Opening), "{stages:?}");
    assert!(silence.held["me"].pss_kib.iter().all(|kib| *kib > 0) || !stages.contains(&Stage::Silent));
}
