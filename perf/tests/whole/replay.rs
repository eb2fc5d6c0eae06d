//! A trace sent again against the scripted provider.

use std::process::Command;

use crate::harness::{config, get, start};
use iop_perf::load::{self, Config};
use iop_perf::replay::{self, Model, Pace, Trace};

const TRACE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
    2023-11-16 18:17:03.0000000,4000,3\n2023-11-16 18:17:04.5000000,100,8\n2023-11-16 18:17:09.0000000,7,0\n";

fn replayed() -> Config {
    let address = start(config(""));
    let base = Config { target: format!("http://{address}").parse().unwrap(), ..Config::default() };
    let model = Model { prefill_rate: 1e6, gap: std::time::Duration::from_millis(1), ..Model::default() };
    replay::load(base, &Trace::parse(TRACE).unwrap(), &model, Pace::Compress(60.0))
}

#[test]
fn every_row_arrives_with_its_number_of_events_and_its_prompt() {
    let asked = replayed();
    let report = load::run(&asked).unwrap();
    assert!(report.is_clean(), "{report}");
    // Beside the tokens: role, finish, usage, done.
    assert_eq!((report.ok, report.sealed, report.events), (3, 3, 3 + 8 + 3 * 4), "{report}");
    assert_eq!(report.arrivals, "trace of 3");
    // The last row's request, as the provider saw it: seven tokens of four bytes.
    let last = get(asked.target.address, "/stats").json()["last"]["body"].as_str().unwrap().to_owned();
    let body: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!(body["messages"][0]["content"].as_str().unwrap().len(), 28);
    assert_eq!(body["user"], "perf:prefill=7us events=0 gap=1000us");
}

#[test]
fn a_reply_with_another_number_of_events_is_an_error_though_its_seal_fits() {
    let mut asked = replayed();
    let mut asks = asked.asks.to_vec();
    asks[1].content_events += 1;
    asked.asks = asks.into();
    let report = load::run(&asked).unwrap();
    assert_eq!((report.ok, report.errors.get("wrong_event_count")), (2, Some(&1)), "{report}");
}

#[test]
fn a_bad_trace_is_refused_by_file_and_line() {
    let file = std::env::temp_dir().join(format!("iop-perf-trace-{}.csv", std::process::id()));
    std::fs::write(&file, TRACE.replace(",8", ",eight")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_iop-perf"))
        .args(["replay", "--url", "http://127.0.0.1:1", "--trace"])
        .arg(&file)
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let place = format!("{}:3: expected a number of generated tokens, found \"eight\"", file.display());
    assert!(!output.status.success() && stderr.contains(&place), "{stderr}");
}
